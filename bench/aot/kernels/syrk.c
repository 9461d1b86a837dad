/* The symmetric update of rank K of the BLAS: C = alpha A A^T + beta C, where A is N×K and C N×N.
 * Only the lower triangle of C is read and written. */
#include "kernel.h"

#ifndef N
#define N 420
#endif
#ifndef K
#define K 420
#endif

const char name[] = "syrk";

static const double alpha = 1.5, beta = 1.25;
static double A[N][K], C[N][N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < K; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            C[i][j] = element(1, i, j);
}

void kernel(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += A[i][k] * A[j][k];
            C[i][j] = alpha * sum + beta * C[i][j];
        }
}

uint64_t checksum(void)
{
    return digest(START, C, sizeof C);
}
