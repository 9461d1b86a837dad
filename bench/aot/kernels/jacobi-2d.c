/* Jacobi's iteration in two dimensions: each of N×N points becomes the mean of itself and its four neighbours.
 * The border keeps its values. Each of STEPS is two, from A to B and back. */
#include "kernel.h"

#ifndef N
#define N 300
#endif
#ifndef STEPS
#define STEPS 600
#endif

const char name[] = "jacobi-2d";

static double A[N][N], B[N][N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = B[i][j] = element(0, i, j);
}

void kernel(void)
{
    for (int step = 0; step < STEPS; step++) {
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                B[i][j] = (A[i][j] + A[i - 1][j] + A[i + 1][j] + A[i][j - 1] + A[i][j + 1]) * 0.2;
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                A[i][j] = (B[i][j] + B[i - 1][j] + B[i + 1][j] + B[i][j - 1] + B[i][j + 1]) * 0.2;
    }
}

uint64_t checksum(void)
{
    return digest(START, A, sizeof A);
}
