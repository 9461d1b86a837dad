/* Solves L x = b for x by forward substitution, where L is N×N and lower triangular. VECTORS of them,
 * one after the other. */
#include "kernel.h"

#ifndef N
#define N 1000
#endif
#ifndef VECTORS
#define VECTORS 60
#endif

const char name[] = "trisolv";

static double L[N][N], b[VECTORS][N], x[VECTORS][N];

/* The diagonal dominates its row. */
void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            L[i][j] = i == j ? N : element(0, i, j);
    for (int i = 0; i < VECTORS; i++)
        for (int j = 0; j < N; j++)
            b[i][j] = element(1, i, j);
}

void kernel(void)
{
    for (int v = 0; v < VECTORS; v++)
        for (int i = 0; i < N; i++) {
            double sum = b[v][i];
            for (int j = 0; j < i; j++)
                sum -= L[i][j] * x[v][j];
            x[v][i] = sum / L[i][i];
        }
}

uint64_t checksum(void)
{
    return digest(START, x, sizeof x);
}
