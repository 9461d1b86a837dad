/* Multiplies a square matrix by its transpose (product.h), both little-endian. The matrix is the only item of the set `matrix`, and the product
 * that of the set `product`. */
#include "millpond.h"
#include "product.h"

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
    multiply(matrix->data, size, product);
    return millpond_give_named(millpond_output_set("product"), "product", product, matrix->size) ? 4 : 0;
}
