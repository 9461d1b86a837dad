/* The sum of two products with a vector: y = alpha A x + beta B x, where A and B are N×N.
 * VECTORS of them, one after the other. */
#include "kernel.h"

#ifndef N
#define N 1000
#endif
#ifndef VECTORS
#define VECTORS 25
#endif

const char name[] = "gesummv";

static const double alpha = 1.5, beta = 1.25;
static double A[N][N], B[N][N], x[VECTORS][N], y[VECTORS][N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            B[i][j] = element(1, i, j);
    for (int i = 0; i < VECTORS; i++)
        for (int j = 0; j < N; j++)
            x[i][j] = element(2, i, j);
}

void kernel(void)
{
    for (int v = 0; v < VECTORS; v++)
        for (int i = 0; i < N; i++) {
            double a = 0, b = 0;
            for (int j = 0; j < N; j++) {
                a += A[i][j] * x[v][j];
                b += B[i][j] * x[v][j];
            }
            y[v][i] = alpha * a + beta * b;
        }
}

uint64_t checksum(void)
{
    return digest(START, y, sizeof y);
}
