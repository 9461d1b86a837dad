/* Pearson's correlation of each two of M variables, each observed N times: row i of `data` is observation i.
 * Centred and scaled in place; then an inner product of two columns for each two variables. */
#include "kernel.h"

#include <math.h>

#ifndef M
#define M 400
#endif
#ifndef N
#define N 400
#endif

const char name[] = "correlation";

static double data[N][M], correlation[M][M];
static double mean[M], deviation[M];

/* No variable is constant, so no deviation is zero. */
void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++)
            data[i][j] = element(0, i, j);
}

void kernel(void)
{
    for (int j = 0; j < M; j++) {
        double sum = 0;
        for (int i = 0; i < N; i++)
            sum += data[i][j];
        mean[j] = sum / N;
        double square = 0;
        for (int i = 0; i < N; i++)
            square += (data[i][j] - mean[j]) * (data[i][j] - mean[j]);
        deviation[j] = sqrt(square / N);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++)
            data[i][j] = (data[i][j] - mean[j]) / (sqrt(N) * deviation[j]);
    for (int i = 0; i < M; i++) {
        correlation[i][i] = 1;
        for (int j = i + 1; j < M; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += data[k][i] * data[k][j];
            correlation[i][j] = correlation[j][i] = sum;
        }
    }
}

uint64_t checksum(void)
{
    return digest(START, correlation, sizeof correlation);
}
