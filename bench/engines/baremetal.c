/* product.h as a part of the server. It is compiled several times, each with a NAME and options of its own: bench/src/matmul.rs takes the
 * fastest. */
#include "product.h"

void NAME(const uint64_t *rows, size_t size, uint64_t *product)
{
    multiply(rows, size, product);
}
