/* Finite differences in the time domain (Yee's scheme) for Maxwell's equations in two dimensions, transverse electric:
 *
 *     ex = ex + c d(hz)/dy        ey = ey - c d(hz)/dx        hz = hz - c (d(ey)/dx - d(ex)/dy)
 *
 * on M×N cells with differences of neighbours for derivatives; x is the first index. Row 0 of ey is driven by `source`,
 * the rest of the border keeps its values. c is under 1/sqrt(2), Courant's bound. */
#include "kernel.h"

#ifndef M
#define M 300
#endif
#ifndef N
#define N 300
#endif
#ifndef STEPS
#define STEPS 450
#endif

const char name[] = "fdtd-2d";

static const double c = 0.5;
static double ex[M][N], ey[M][N], hz[M][N];
static double source[STEPS];

void init(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            ex[i][j] = element(0, i, j);
            ey[i][j] = element(1, i, j);
            hz[i][j] = element(2, i, j);
        }
    for (int i = 0; i < STEPS; i++)
        source[i] = element(3, i, 0);
}

void kernel(void)
{
    for (int step = 0; step < STEPS; step++) {
        for (int j = 0; j < N; j++)
            ey[0][j] = source[step];
        for (int i = 1; i < M; i++)
            for (int j = 0; j < N; j++)
                ey[i][j] -= c * (hz[i][j] - hz[i - 1][j]);
        for (int i = 0; i < M; i++)
            for (int j = 1; j < N; j++)
                ex[i][j] += c * (hz[i][j] - hz[i][j - 1]);
        for (int i = 0; i < M - 1; i++)
            for (int j = 0; j < N - 1; j++)
                hz[i][j] -= c * (ey[i + 1][j] - ey[i][j] - (ex[i][j + 1] - ex[i][j]));
    }
}

uint64_t checksum(void)
{
    return digest(digest(digest(START, ex, sizeof ex), ey, sizeof ey), hz, sizeof hz);
}
