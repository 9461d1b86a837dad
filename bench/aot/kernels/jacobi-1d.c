/* Jacobi's iteration in one dimension: each of N points becomes the mean of itself and its two neighbours.
 * The border keeps its values. Each of STEPS is two, from A to B and back. */
#include "kernel.h"

#ifndef N
#define N 4000
#endif
#ifndef STEPS
#define STEPS 20000
#endif

const char name[] = "jacobi-1d";

static double A[N], B[N];

void init(void)
{
    for (int i = 0; i < N; i++)
        A[i] = B[i] = element(0, i, 0);
}

void kernel(void)
{
    for (int step = 0; step < STEPS; step++) {
        for (int i = 1; i < N - 1; i++)
            B[i] = (A[i - 1] + A[i] + A[i + 1]) * (1.0 / 3);
        for (int i = 1; i < N - 1; i++)
            A[i] = (B[i - 1] + B[i] + B[i + 1]) * (1.0 / 3);
    }
}

uint64_t checksum(void)
{
    return digest(START, A, sizeof A);
}
