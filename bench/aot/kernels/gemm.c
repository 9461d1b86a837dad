/* The product of matrices of the BLAS: C = alpha A B + beta C, where A is M×K, B K×N and C M×N.
 * The order i, k, j goes through every matrix by rows. */
#include "kernel.h"

#ifndef M
#define M 640
#endif
#ifndef N
#define N 640
#endif
#ifndef K
#define K 640
#endif

const char name[] = "gemm";

static const double alpha = 1.5, beta = 1.25;
static double A[M][K], B[K][N], C[M][N];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < K; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < K; i++)
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
            C[i][j] *= beta;
        for (int k = 0; k < K; k++)
            for (int j = 0; j < N; j++)
                C[i][j] += alpha * A[i][k] * B[k][j];
    }
}

uint64_t checksum(void)
{
    return digest(START, C, sizeof C);
}
