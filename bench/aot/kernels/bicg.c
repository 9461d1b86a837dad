/* The two products in a step of the biconjugate gradient method: q = A p and s = A^T r, where A is M×N.
 * VECTORS of them, one after the other. One loop makes both. */
#include "kernel.h"

#ifndef M
#define M 1000
#endif
#ifndef N
#define N 1000
#endif
#ifndef VECTORS
#define VECTORS 30
#endif

const char name[] = "bicg";

static double A[M][N], p[VECTORS][N], r[VECTORS][M];
static double q[VECTORS][M], s[VECTORS][N];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = element(0, i, j);
    for (int i = 0; i < VECTORS; i++)
        for (int j = 0; j < N; j++)
            p[i][j] = element(1, i, j);
    for (int i = 0; i < VECTORS; i++)
        for (int j = 0; j < M; j++)
            r[i][j] = element(2, i, j);
}

void kernel(void)
{
    for (int v = 0; v < VECTORS; v++) {
        for (int j = 0; j < N; j++)
            s[v][j] = 0;
        for (int i = 0; i < M; i++) {
            q[v][i] = 0;
            for (int j = 0; j < N; j++) {
                q[v][i] += A[i][j] * p[v][j];
                s[v][j] += A[i][j] * r[v][i];
            }
        }
    }
}

uint64_t checksum(void)
{
    return digest(digest(START, q, sizeof q), s, sizeof s);
}
