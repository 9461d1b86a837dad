/* Solves A x = b by factors: A = L U as in lu.c, then L y = b, then U x = y, where A is N×N.
 * Row by row, each element by an inner product. */
#include "kernel.h"

#ifndef N
#define N 480
#endif

const char name[] = "ludcmp";

static double A[N][N], b[N], x[N], y[N];

/* The diagonal dominates its row, so no pivot is near zero. */
void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = i == j ? N : element(0, i, j);
    for (int i = 0; i < N; i++)
        b[i] = element(1, i, 0);
}

void kernel(void)
{
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < i; j++) {
            double sum = A[i][j];
            for (int k = 0; k < j; k++)
                sum -= A[i][k] * A[k][j];
            A[i][j] = sum / A[j][j];
        }
        for (int j = i; j < N; j++) {
            double sum = A[i][j];
            for (int k = 0; k < i; k++)
                sum -= A[i][k] * A[k][j];
            A[i][j] = sum;
        }
    }
    for (int i = 0; i < N; i++) {
        double sum = b[i];
        for (int j = 0; j < i; j++)
            sum -= A[i][j] * y[j];
        y[i] = sum;
    }
    for (int i = N - 1; i >= 0; i--) {
        double sum = y[i];
        for (int j = i + 1; j < N; j++)
            sum -= A[i][j] * x[j];
        x[i] = sum / A[i][i];
    }
}

uint64_t checksum(void)
{
    return digest(digest(START, A, sizeof A), x, sizeof x);
}
