/* Nussinov's folding of RNA: pairs[i][j] is the most pairs of complementary bases that bases i to j can form without
 * crossing. Base i pairs with j, or i to j is two parts that fold apart. Neighbours are too close to pair. */
#include "kernel.h"

#ifndef N
#define N 740
#endif

const char name[] = "nussinov";

static int base[N], pairs[N][N];

/* Bases 0 and 3 are complementary, and 1 and 2. */
void init(void)
{
    for (int i = 0; i < N; i++) {
        base[i] = (int)(mix(0, i, 0) % 4);
        for (int j = 0; j < N; j++)
            pairs[i][j] = 0;
    }
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

void kernel(void)
{
    for (int i = N - 2; i >= 0; i--)
        for (int j = i + 1; j < N; j++) {
            int most = 0;
            if (j > i + 1)
                most = pairs[i + 1][j - 1] + (base[i] + base[j] == 3);
            for (int k = i; k < j; k++)
                most = larger(most, pairs[i][k] + pairs[k + 1][j]);
            pairs[i][j] = most;
        }
}

uint64_t checksum(void)
{
    return digest(START, pairs, sizeof pairs);
}
