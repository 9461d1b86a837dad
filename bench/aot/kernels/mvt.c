/* A matrix and its transpose, each times a vector of its own: x = x + A p and y = y + A^T q, where A is N×N.
 * VECTORS of them, one after the other. The second product goes through A by columns. */
#include "kernel.h"

#ifndef N
#define N 1000
#endif
#ifndef VECTORS
#define VECTORS 16
#endif

const char name[] = "mvt";

static double A[N][N], p[VECTORS][N], q[VECTORS][N];
static double x[VECTORS][N], y[VECTORS][N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = element(0, i, j);
    for (int v = 0; v < VECTORS; v++)
        for (int i = 0; i < N; i++) {
            p[v][i] = element(1, v, i);
            q[v][i] = element(2, v, i);
            x[v][i] = element(3, v, i);
            y[v][i] = element(4, v, i);
        }
}

void kernel(void)
{
    for (int v = 0; v < VECTORS; v++) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                x[v][i] += A[i][j] * p[v][j];
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                y[v][i] += A[j][i] * q[v][j];
    }
}

uint64_t checksum(void)
{
    return digest(digest(START, x, sizeof x), y, sizeof y);
}
