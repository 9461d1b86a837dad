/* A matrix and its transpose times a vector: y = A^T (A x), where A is M×N. VECTORS of them, one after the other. */
#include "kernel.h"

#ifndef M
#define M 1000
#endif
#ifndef N
#define N 1000
#endif
#ifndef VECTORS
#define VECTORS 30
#endif

const char name[] = "atax";

static double A[M][N], x[VECTORS][N], y[VECTORS][N];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < VECTORS; i++)
        for (int j = 0; j < N; j++)
            x[i][j] = element(1, i, j);
}

void kernel(void)
{
    for (int v = 0; v < VECTORS; v++) {
        for (int j = 0; j < N; j++)
            y[v][j] = 0;
        for (int i = 0; i < M; i++) {
            double sum = 0;
            for (int j = 0; j < N; j++)
                sum += A[i][j] * x[v][j];
            for (int j = 0; j < N; j++)
                y[v][j] += A[i][j] * sum;
        }
    }
}

uint64_t checksum(void)
{
    return digest(START, y, sizeof y);
}
