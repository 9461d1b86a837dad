/* The product with a symmetric matrix of the BLAS: C = alpha A B + beta C, where A is M×M, B and C are M×N.
 * Only the lower triangle of A is read. */
#include "kernel.h"

#ifndef M
#define M 620
#endif
#ifndef N
#define N 620
#endif

const char name[] = "symm";

static const double alpha = 1.5, beta = 1.25;
static double A[M][M], B[M][N], C[M][N];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            B[i][j] = element(1, i, j);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            C[i][j] = element(2, i, j);
}

void kernel(void)
{
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++)
            C[i][j] = beta * C[i][j] + alpha * A[i][i] * B[i][j];
        /* A(i, k) below the diagonal stands for A(k, i) above it too. */
        for (int k = 0; k < i; k++)
            for (int j = 0; j < N; j++) {
                C[i][j] += alpha * A[i][k] * B[k][j];
                C[k][j] += alpha * A[i][k] * B[i][j];
            }
    }
}

uint64_t checksum(void)
{
    return digest(START, C, sizeof C);
}
