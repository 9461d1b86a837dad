/* Gauss and Seidel's iteration in two dimensions: each of N×N points becomes the mean of itself and its eight
 * neighbours, of which those before it have been replaced in this step already. The border keeps its values. */
#include "kernel.h"

#ifndef N
#define N 250
#endif
#ifndef STEPS
#define STEPS 50
#endif

const char name[] = "seidel-2d";

static double A[N][N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = element(0, i, j);
}

void kernel(void)
{
    for (int step = 0; step < STEPS; step++)
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                A[i][j] = (A[i - 1][j - 1] + A[i - 1][j] + A[i - 1][j + 1]
                    + A[i][j - 1] + A[i][j] + A[i][j + 1]
                    + A[i + 1][j - 1] + A[i + 1][j] + A[i + 1][j + 1]) / 9;
}

uint64_t checksum(void)
{
    return digest(START, A, sizeof A);
}
