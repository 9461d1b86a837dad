/* Durbin's recursion: solves the Yule-Walker equations T y = -(r1, …, rN), where T is the symmetric Toeplitz matrix
 * with first row (1, r1, …, r(N-1)). r[k] holds r(k+1). See Golub and Van Loan, Matrix Computations, section 4.7. */
#include "kernel.h"

#ifndef N
#define N 7000
#endif

const char name[] = "durbin";

static double r[N], y[N], z[N];

/* 1, 1/2, 1/3, … decreases and is convex, so T is positive definite. */
void init(void)
{
    for (int i = 0; i < N; i++)
        r[i] = 1.0 / (i + 2);
}

void kernel(void)
{
    double alpha = -r[0], beta = 1;
    y[0] = alpha;
    for (int k = 1; k < N; k++) {
        double sum = r[k];
        for (int i = 0; i < k; i++)
            sum += r[k - 1 - i] * y[i];
        beta *= 1 - alpha * alpha;
        alpha = -sum / beta;
        for (int i = 0; i < k; i++)
            z[i] = y[i] + alpha * y[k - 1 - i];
        for (int i = 0; i < k; i++)
            y[i] = z[i];
        y[k] = alpha;
    }
}

uint64_t checksum(void)
{
    return digest(START, y, sizeof y);
}
