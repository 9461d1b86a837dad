/* The modified Gram-Schmidt process: A = Q R, the columns of Q orthonormal, R upper triangular, A and Q M×N, R N×N.
 * A is overwritten by what is left of its columns. */
#include "kernel.h"

#include <math.h>

#ifndef M
#define M 350
#endif
#ifndef N
#define N 300
#endif

const char name[] = "gramschmidt";

static double A[M][N], Q[M][N], R[N][N];

/* The diagonal dominates its row, so no column is near the span of the others. */
void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = i == j ? N : element(0, i, j);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            R[i][j] = 0;
}

void kernel(void)
{
    for (int k = 0; k < N; k++) {
        double square = 0;
        for (int i = 0; i < M; i++)
            square += A[i][k] * A[i][k];
        R[k][k] = sqrt(square);
        for (int i = 0; i < M; i++)
            Q[i][k] = A[i][k] / R[k][k];
        for (int j = k + 1; j < N; j++) {
            double sum = 0;
            for (int i = 0; i < M; i++)
                sum += Q[i][k] * A[i][j];
            R[k][j] = sum;
            for (int i = 0; i < M; i++)
                A[i][j] -= Q[i][k] * sum;
        }
    }
}

uint64_t checksum(void)
{
    return digest(digest(START, Q, sizeof Q), R, sizeof R);
}
