/* The product with a triangular matrix of the BLAS, in place: B = alpha A^T B, where A is M×M and B M×N.
 * A is lower triangular, and its diagonal is taken for ones. So row i of the product needs rows i and below of B. */
#include "kernel.h"

#ifndef M
#define M 400
#endif
#ifndef N
#define N 400
#endif

const char name[] = "trmm";

static const double alpha = 1.5;
static double A[M][M], B[M][N];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            B[i][j] = element(1, i, j);
}

void kernel(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = B[i][j];
            for (int k = i + 1; k < M; k++)
                sum += A[k][i] * B[k][j];
            B[i][j] = alpha * sum;
        }
}

uint64_t checksum(void)
{
    return digest(START, B, sizeof B);
}
