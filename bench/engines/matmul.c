/* Multiplies a square matrix by its transpose: 64-bit integers, little-endian, row by row, whose sums wrap. The matrix is the only item of the set
 * `matrix`, and the product that of the set `product`. bench/src/matmul.rs is the same function. */
#include "millpond.h"

#include <stdint.h>

int millpond_main(void)
{
    const struct millpond_item *matrix = millpond_items(millpond_input_set("matrix"));
    if (!matrix)
        return 2;
    size_t size = 0;
    while (size * size * sizeof(uint64_t) < matrix->size)
        size++;
    if (size * size * sizeof(uint64_t) != matrix->size)
        return 3;
    uint64_t *product = millpond_allocate(matrix->size ? matrix->size : 1);
    if (!product)
        return 4;
    const uint64_t *rows = matrix->data;
    for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j < size; j++) {
            uint64_t sum = 0;
            for (size_t k = 0; k < size; k++)
                sum += rows[i * size + k] * rows[j * size + k];
            product[i * size + j] = sum;
        }
    return millpond_give_named(millpond_output_set("product"), "product", product, matrix->size) ? 4 : 0;
}
