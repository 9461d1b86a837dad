/* The product of a square matrix and its transpose: 64-bit integers, row by row, whose sums wrap. The guests and the server without sandboxes
 * have it from here. */
#include <stddef.h>
#include <stdint.h>

static inline void multiply(const uint64_t *rows, size_t size, uint64_t *product)
{
    for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j < size; j++) {
            uint64_t sum = 0;
            for (size_t k = 0; k < size; k++)
                sum += rows[i * size + k] * rows[j * size + k];
            product[i * size + j] = sum;
        }
}
