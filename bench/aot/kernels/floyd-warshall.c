/* Floyd and Warshall's shortest paths between each two of N nodes of a directed graph: after round k,
 * path[i][j] is the length of the shortest path from i to j by way of nodes up to k. */
#include "kernel.h"

#ifndef N
#define N 380
#endif

const char name[] = "floyd-warshall";

/* Where there is no path. Twice this is still an int. */
#define NONE (1 << 29)

static int path[N][N];

/* One pair of nodes in eight has an edge. */
void init(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            uint32_t bits = mix(0, i, j);
            path[i][j] = i == j ? 0 : bits % 8 ? NONE : (int)(bits / 8 % 1000) + 1;
        }
}

void kernel(void)
{
    for (int k = 0; k < N; k++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                if (path[i][k] + path[k][j] < path[i][j])
                    path[i][j] = path[i][k] + path[k][j];
}

uint64_t checksum(void)
{
    return digest(START, path, sizeof path);
}
