/* The alternating direction implicit method of Peaceman and Rachford for the heat equation, u_t = u_xx + u_yy, on
 * N×N points whose border keeps its values. With r = (time step) / (2 (grid step)^2), each of STEPS is two halves:
 *
 *     (1 - r Dx) v = (1 + r Dy) u        then        (1 - r Dy) u = (1 + r Dx) v
 *
 * Dx is the second difference along the first index, Dy along the second. Each line is a tridiagonal system, solved by
 * Thomas's algorithm: v(i) = p(i) v(i+1) + q(i). */
#include "kernel.h"

#ifndef N
#define N 250
#endif
#ifndef STEPS
#define STEPS 20
#endif

const char name[] = "adi";

static const double r = 0.75;
static double u[N][N], v[N][N];
static double p[N], q[N];

void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            u[i][j] = element(0, i, j);
}

void kernel(void)
{
    for (int step = 0; step < STEPS; step++) {
        for (int j = 1; j < N - 1; j++) {
            v[0][j] = u[0][j];
            v[N - 1][j] = u[N - 1][j];
            p[0] = 0;
            q[0] = v[0][j];
            for (int i = 1; i < N - 1; i++) {
                double right = u[i][j] + r * (u[i][j - 1] - 2 * u[i][j] + u[i][j + 1]);
                double pivot = 1 + 2 * r - r * p[i - 1];
                p[i] = r / pivot;
                q[i] = (right + r * q[i - 1]) / pivot;
            }
            for (int i = N - 2; i > 0; i--)
                v[i][j] = p[i] * v[i + 1][j] + q[i];
        }
        for (int i = 1; i < N - 1; i++) {
            p[0] = 0;
            q[0] = u[i][0];
            for (int j = 1; j < N - 1; j++) {
                double right = v[i][j] + r * (v[i - 1][j] - 2 * v[i][j] + v[i + 1][j]);
                double pivot = 1 + 2 * r - r * p[j - 1];
                p[j] = r / pivot;
                q[j] = (right + r * q[j - 1]) / pivot;
            }
            for (int j = N - 2; j > 0; j--)
                u[i][j] = p[j] * u[i][j + 1] + q[j];
        }
    }
}

uint64_t checksum(void)
{
    return digest(START, u, sizeof u);
}
