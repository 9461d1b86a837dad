/* A tensor times a matrix, in place, as in multiresolution analysis: A(r, q, p) = sum over s of A(r, q, s) C(s, p). */
#include "kernel.h"

#ifndef R
#define R 50
#endif
#ifndef Q
#define Q 100
#endif
#ifndef P
#define P 100
#endif

const char name[] = "doitgen";

static double A[R][Q][P], C[P][P];
static double sum[P];

void init(void)
{
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++)
            for (int p = 0; p < P; p++)
                A[r][q][p] = element(r, q, p);
    for (int i = 0; i < P; i++)
        for (int j = 0; j < P; j++)
            C[i][j] = element(R, i, j);
}

void kernel(void)
{
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) {
            for (int p = 0; p < P; p++) {
                sum[p] = 0;
                for (int s = 0; s < P; s++)
                    sum[p] += A[r][q][s] * C[s][p];
            }
            for (int p = 0; p < P; p++)
                A[r][q][p] = sum[p];
        }
}

uint64_t checksum(void)
{
    return digest(START, A, sizeof A);
}
