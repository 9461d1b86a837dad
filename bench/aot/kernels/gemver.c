/* A matrix with two updates of rank one, and two products, of the BLAS:
 * A = A + t u^T + v w^T, x = beta A^T y + z, s = alpha A x, where A is N×N. STEPS times, each with
 * vectors of its own. */
#include "kernel.h"

#ifndef N
#define N 1000
#endif
#ifndef STEPS
#define STEPS 15
#endif

const char name[] = "gemver";

static const double alpha = 1.5, beta = 1.25;
static double A[N][N], t[STEPS][N], u[STEPS][N], v[STEPS][N], w[STEPS][N], y[STEPS][N], z[STEPS][N];
static double x[STEPS][N], s[STEPS][N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = element(0, i, j);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < N; i++) {
            t[step][i] = element(1, step, i);
            u[step][i] = element(2, step, i);
            v[step][i] = element(3, step, i);
            w[step][i] = element(4, step, i);
            y[step][i] = element(5, step, i);
            z[step][i] = element(6, step, i);
        }
}

void kernel(void)
{
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                A[i][j] += t[step][i] * u[step][j] + v[step][i] * w[step][j];
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int j = 0; j < N; j++)
                sum += A[j][i] * y[step][j];
            x[step][i] = beta * sum + z[step][i];
        }
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int j = 0; j < N; j++)
                sum += A[i][j] * x[step][j];
            s[step][i] = alpha * sum;
        }
    }
}

uint64_t checksum(void)
{
    return digest(digest(digest(START, A, sizeof A), x, sizeof x), s, sizeof s);
}
