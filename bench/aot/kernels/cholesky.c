/* Cholesky's factors of a symmetric positive definite matrix: A = L L^T, L lower triangular, A N×N. In place: L
 * replaces the lower triangle of A; the rest of A is not read. */
#include "kernel.h"

#include <math.h>

#ifndef N
#define N 600
#endif

const char name[] = "cholesky";

static double A[N][N];

/* Symmetric, and the diagonal dominates its row, so A is positive definite. */
void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = i == j ? N : element(0, i > j ? i : j, i > j ? j : i);
}

void kernel(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) {
            double sum = A[i][j];
            for (int k = 0; k < j; k++)
                sum -= A[i][k] * A[j][k];
            A[i][j] = i == j ? sqrt(sum) : sum / A[j][j];
        }
}

uint64_t checksum(void)
{
    return digest(START, A, sizeof A);
}
