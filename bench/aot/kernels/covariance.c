/* The covariance of each two of M variables, each observed N times: row i of `data` is observation i.
 * Centred in place; then an update of rank one for each observation. */
#include "kernel.h"

#ifndef M
#define M 640
#endif
#ifndef N
#define N 640
#endif

const char name[] = "covariance";

static double data[N][M], covariance[M][M];
static double mean[M];

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
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++)
            data[i][j] -= mean[j];
    for (int i = 0; i < M; i++)
        for (int j = i; j < M; j++)
            covariance[i][j] = 0;
    for (int k = 0; k < N; k++)
        for (int i = 0; i < M; i++)
            for (int j = i; j < M; j++)
                covariance[i][j] += data[k][i] * data[k][j];
    for (int i = 0; i < M; i++)
        for (int j = i; j < M; j++) {
            covariance[i][j] /= N - 1;
            covariance[j][i] = covariance[i][j];
        }
}

uint64_t checksum(void)
{
    return digest(START, covariance, sizeof covariance);
}
