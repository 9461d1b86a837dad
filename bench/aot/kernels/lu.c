/* The factors of Gauss's elimination without pivoting: A = L U, L lower triangular with ones on its diagonal, U upper
 * triangular, A N×N. In place: U replaces the upper triangle of A with its diagonal, L what is below.
 * By updates of rank one of what remains. */
#include "kernel.h"

#ifndef N
#define N 550
#endif

const char name[] = "lu";

static double A[N][N];

/* The diagonal dominates its row, so no pivot is near zero. */
void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = i == j ? N : element(0, i, j);
}

void kernel(void)
{
    for (int k = 0; k < N; k++)
        for (int i = k + 1; i < N; i++) {
            A[i][k] /= A[k][k];
            for (int j = k + 1; j < N; j++)
                A[i][j] -= A[i][k] * A[k][j];
        }
}

uint64_t checksum(void)
{
    return digest(START, A, sizeof A);
}
