/* Three products of matrices: G = (A B) (C D), where A is M×K, B K×L, C L×O and D O×N.
 * Each element is an inner product of a row and a column. */
#include "kernel.h"

#ifndef M
#define M 240
#endif
#ifndef N
#define N 240
#endif
#ifndef K
#define K 240
#endif
#ifndef L
#define L 240
#endif
#ifndef O
#define O 240
#endif

const char name[] = "3mm";

static double A[M][K], B[K][L], C[L][O], D[O][N];
static double E[M][L], F[L][N], G[M][N];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < K; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < L; j++)
            B[i][j] = element(1, i, j);
    for (int i = 0; i < L; i++)
        for (int j = 0; j < O; j++)
            C[i][j] = element(2, i, j);
    for (int i = 0; i < O; i++)
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
            E[i][j] = sum;
        }
    for (int i = 0; i < L; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < O; k++)
                sum += C[i][k] * D[k][j];
            F[i][j] = sum;
        }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < L; k++)
                sum += E[i][k] * F[k][j];
            G[i][j] = sum;
        }
}

uint64_t checksum(void)
{
    return digest(START, G, sizeof G);
}
