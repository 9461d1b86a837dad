/* The heat equation in three dimensions by explicit steps on N×N×N points: u = u + c (Dx + Dy + Dz) u, each D the
 * second difference along its index. The border keeps its values. Each of STEPS is two, from A to B and back. */
#include "kernel.h"

#ifndef N
#define N 80
#endif
#ifndef STEPS
#define STEPS 50
#endif

const char name[] = "heat-3d";

static const double c = 0.125;
static double A[N][N][N], B[N][N][N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < N; k++)
                A[i][j][k] = B[i][j][k] = element(i, j, k);
}

void kernel(void)
{
    for (int step = 0; step < STEPS; step++) {
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                for (int k = 1; k < N - 1; k++)
                    B[i][j][k] = A[i][j][k]
                        + c * (A[i - 1][j][k] - 2 * A[i][j][k] + A[i + 1][j][k])
                        + c * (A[i][j - 1][k] - 2 * A[i][j][k] + A[i][j + 1][k])
                        + c * (A[i][j][k - 1] - 2 * A[i][j][k] + A[i][j][k + 1]);
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                for (int k = 1; k < N - 1; k++)
                    A[i][j][k] = B[i][j][k]
                        + c * (B[i - 1][j][k] - 2 * B[i][j][k] + B[i + 1][j][k])
                        + c * (B[i][j - 1][k] - 2 * B[i][j][k] + B[i][j + 1][k])
                        + c * (B[i][j][k - 1] - 2 * B[i][j][k] + B[i][j][k + 1]);
    }
}

uint64_t checksum(void)
{
    return digest(START, A, sizeof A);
}
