/* Two products of matrices: D = alpha A B C + beta D, where A is M×K, B K×L, C L×N and D M×N.
 * Each element is an inner product of a row and a column. */
#include "kernel.h"

#ifndef M
#define M 270
#endif
#ifndef N
#define N 270
#endif
#ifndef K
#define K 270
#endif
#ifndef L
#define L 270
#endif

const char name[] = "2mm";

static const double alpha = 1.5, beta = 1.25;
static double A[M][K], B[K][L], C[L][N], D[M][N];
static double AB[M][L];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < K; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < L; j++)
            B[i][j] = element(1, i, j);
    for (int i = 0; i < L; i++)
        for (int j = 0; j < N; j++)
            C[i][j] = element(2, i, j);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            D[i][j] = element(3, i, j);
}

void kernel(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < L; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += A[i][k] * B[k][j];
            AB[i][j] = alpha * sum;
        }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = beta * D[i][j];
            for (int k = 0; k < L; k++)
                sum += AB[i][k] * C[k][j];
            D[i][j] = sum;
        }
}

uint64_t checksum(void)
{
    return digest(START, D, sizeof D);
}
