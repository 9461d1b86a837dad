/* Tests one kernel, at a small size and with sides of different lengths, against its definition computed another way.
 * TEST_NAME says which. A kernel's inputs are the same after every init, so they are had again by calling it again. */
#include "kernel.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EACH(i, count) for (int i = 0; i < (count); i++)
#define COPY(copy, array) \
    __typeof__(array) copy; \
    memcpy(copy, array, sizeof array)
/* That two numbers are equal, but for rounding. */
#define SAME(a, b) same(__LINE__, a, b, 1e-10)

void same(int line, double a, double b, double tolerance)
{
    if (fabs(a - b) <= tolerance * (1 + fabs(b)))
        return;
    fprintf(stderr, "%s: %g is not %g (test.c:%d)\n", name, a, b, line);
    exit(1);
}

/* Solves A x = b by elimination with pivots; x replaces b. */
void solve(int n, double A[n][n], double b[n])
{
    EACH(k, n) {
        int pivot = k;
        for (int i = k; i < n; i++)
            if (fabs(A[i][k]) > fabs(A[pivot][k]))
                pivot = i;
        EACH(j, n) {
            double other = A[k][j];
            A[k][j] = A[pivot][j];
            A[pivot][j] = other;
        }
        double other = b[k];
        b[k] = b[pivot];
        b[pivot] = other;
        EACH(i, n) {
            if (i == k)
                continue;
            double factor = A[i][k] / A[k][k];
            EACH(j, n)
                A[i][j] -= factor * A[k][j];
            b[i] -= factor * b[k];
        }
    }
    EACH(i, n)
        b[i] /= A[i][i];
}

#ifdef TEST_gemm
#define M 7
#define N 9
#define K 11
#include "gemm.c"
static void test(void)
{
    COPY(result, C);
    init();
    EACH(i, M) EACH(j, N) {
        double sum = 0;
        EACH(k, K)
            sum += A[i][k] * B[k][j];
        SAME(result[i][j], alpha * sum + beta * C[i][j]);
    }
}
#endif

#ifdef TEST_2mm
#define M 7
#define N 9
#define K 11
#define L 5
#include "2mm.c"
static void test(void)
{
    COPY(result, D);
    init();
    EACH(i, M) EACH(j, N) {
        double sum = 0;
        EACH(k, K) EACH(l, L)
            sum += A[i][k] * B[k][l] * C[l][j];
        SAME(result[i][j], alpha * sum + beta * D[i][j]);
    }
}
#endif

#ifdef TEST_3mm
#define M 7
#define N 9
#define K 11
#define L 5
#define O 4
#include "3mm.c"
static void test(void)
{
    EACH(i, M) EACH(j, N) {
        double sum = 0;
        EACH(k, K) EACH(l, L) EACH(o, O)
            sum += A[i][k] * B[k][l] * C[l][o] * D[o][j];
        SAME(G[i][j], sum);
    }
}
#endif

#ifdef TEST_doitgen
#define R 4
#define Q 5
#define P 6
#include "doitgen.c"
static void test(void)
{
    COPY(result, A);
    init();
    EACH(r, R) EACH(q, Q) EACH(p, P) {
        double expected = 0;
        EACH(s, P)
            expected += A[r][q][s] * C[s][p];
        SAME(result[r][q][p], expected);
    }
}
#endif

#ifdef TEST_atax
#define M 7
#define N 9
#define VECTORS 3
#include "atax.c"
static void test(void)
{
    EACH(v, VECTORS) EACH(j, N) {
        double sum = 0;
        EACH(i, M) EACH(k, N)
            sum += A[i][j] * A[i][k] * x[v][k];
        SAME(y[v][j], sum);
    }
}
#endif

#ifdef TEST_bicg
#define M 7
#define N 9
#define VECTORS 3
#include "bicg.c"
static void test(void)
{
    EACH(v, VECTORS) {
        EACH(i, M) {
            double sum = 0;
            EACH(j, N)
                sum += A[i][j] * p[v][j];
            SAME(q[v][i], sum);
        }
        EACH(j, N) {
            double sum = 0;
            EACH(i, M)
                sum += A[i][j] * r[v][i];
            SAME(s[v][j], sum);
        }
    }
}
#endif

#ifdef TEST_mvt
#define N 9
#define VECTORS 3
#include "mvt.c"
static void test(void)
{
    COPY(first, x);
    COPY(second, y);
    init();
    EACH(v, VECTORS) EACH(i, N) {
        double sum = 0, transposed = 0;
        EACH(j, N) {
            sum += A[i][j] * p[v][j];
            transposed += A[j][i] * q[v][j];
        }
        SAME(first[v][i], x[v][i] + sum);
        SAME(second[v][i], y[v][i] + transposed);
    }
}
#endif

#ifdef TEST_gemver
#define N 9
#define STEPS 3
#include "gemver.c"
static void test(void)
{
    COPY(result, A);
    init();
    EACH(step, STEPS) {
        EACH(i, N) EACH(j, N)
            A[i][j] += t[step][i] * u[step][j] + v[step][i] * w[step][j];
        EACH(i, N) {
            double sum = 0;
            EACH(k, N) {
                double inner = z[step][k];
                EACH(j, N)
                    inner += beta * A[j][k] * y[step][j];
                SAME(x[step][k], inner);
                sum += alpha * A[i][k] * inner;
            }
            SAME(s[step][i], sum);
        }
    }
    EACH(i, N) EACH(j, N)
        SAME(result[i][j], A[i][j]);
}
#endif

#ifdef TEST_gesummv
#define N 9
#define VECTORS 3
#include "gesummv.c"
static void test(void)
{
    EACH(v, VECTORS) EACH(i, N) {
        double sum = 0;
        EACH(j, N)
            sum += (alpha * A[i][j] + beta * B[i][j]) * x[v][j];
        SAME(y[v][i], sum);
    }
}
#endif

#ifdef TEST_symm
#define M 7
#define N 9
#include "symm.c"
static void test(void)
{
    COPY(result, C);
    init();
    EACH(i, M) EACH(j, N) {
        double sum = 0;
        EACH(k, M)
            sum += (k <= i ? A[i][k] : A[k][i]) * B[k][j];
        SAME(result[i][j], alpha * sum + beta * C[i][j]);
    }
}
#endif

#ifdef TEST_syrk
#define N 7
#define K 9
#include "syrk.c"
static void test(void)
{
    COPY(result, C);
    init();
    EACH(i, N) EACH(j, N) {
        double sum = 0;
        EACH(k, K)
            sum += A[i][k] * A[j][k];
        SAME(result[i][j], j <= i ? alpha * sum + beta * C[i][j] : C[i][j]);
    }
}
#endif

#ifdef TEST_syr2k
#define N 7
#define K 9
#include "syr2k.c"
static void test(void)
{
    COPY(result, C);
    init();
    EACH(i, N) EACH(j, N) {
        double first = 0, second = 0;
        EACH(k, K) {
            first += A[i][k] * B[j][k];
            second += B[i][k] * A[j][k];
        }
        SAME(result[i][j], j <= i ? alpha * first + alpha * second + beta * C[i][j] : C[i][j]);
    }
}
#endif

#ifdef TEST_trmm
#define M 7
#define N 9
#include "trmm.c"
static void test(void)
{
    COPY(result, B);
    init();
    EACH(i, M) EACH(j, N) {
        double sum = 0;
        EACH(k, M)
            sum += (k < i ? 0 : k == i ? 1 : A[k][i]) * B[k][j];
        SAME(result[i][j], alpha * sum);
    }
}
#endif

#ifdef TEST_trisolv
#define N 9
#define VECTORS 3
#include "trisolv.c"
static void test(void)
{
    EACH(v, VECTORS) EACH(i, N) {
        double sum = 0;
        EACH(j, i + 1)
            sum += L[i][j] * x[v][j];
        SAME(sum, b[v][i]);
    }
}
#endif

#ifdef TEST_cholesky
#define N 11
#include "cholesky.c"
static void test(void)
{
    COPY(L, A);
    init();
    EACH(i, N) EACH(j, N) {
        double product = 0;
        EACH(k, (i < j ? i : j) + 1)
            product += L[i][k] * L[j][k];
        SAME(product, A[i][j]);
    }
}
#endif

#ifdef TEST_lu
#define N 11
#include "lu.c"
static void test(void)
{
    COPY(LU, A);
    init();
    EACH(i, N) EACH(j, N) {
        double product = 0;
        EACH(k, (i < j ? i : j) + 1)
            product += (k < i ? LU[i][k] : 1) * LU[k][j];
        SAME(product, A[i][j]);
    }
}
#endif

#ifdef TEST_ludcmp
#define N 11
#include "ludcmp.c"
static void test(void)
{
    COPY(LU, A);
    init();
    EACH(i, N) EACH(j, N) {
        double product = 0;
        EACH(k, (i < j ? i : j) + 1)
            product += (k < i ? LU[i][k] : 1) * LU[k][j];
        SAME(product, A[i][j]);
    }
    solve(N, A, b);
    EACH(i, N)
        SAME(x[i], b[i]);
}
#endif

#ifdef TEST_durbin
#define N 11
#include "durbin.c"
static void test(void)
{
    double T[N][N], right[N];
    EACH(i, N) {
        EACH(j, N)
            T[i][j] = i == j ? 1 : r[abs(i - j) - 1];
        right[i] = -r[i];
    }
    solve(N, T, right);
    EACH(i, N)
        SAME(y[i], right[i]);
}
#endif

#ifdef TEST_gramschmidt
#define M 11
#define N 9
#include "gramschmidt.c"
static void test(void)
{
    COPY(upper, R);
    init();
    EACH(i, M) EACH(j, N) {
        double product = 0;
        EACH(k, j + 1)
            product += Q[i][k] * upper[k][j];
        SAME(product, A[i][j]);
    }
    EACH(i, N) EACH(j, N) {
        double product = 0;
        EACH(k, M)
            product += Q[k][i] * Q[k][j];
        SAME(product, i == j);
        if (j < i)
            SAME(upper[i][j], 0);
    }
}
#endif

#ifdef TEST_correlation
#define M 7
#define N 9
#include "correlation.c"
/* By the formula of sums of products, without centring. */
static void test(void)
{
    COPY(result, correlation);
    init();
    EACH(a, M) EACH(b, M) {
        double sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
        EACH(i, N) {
            sa += data[i][a];
            sb += data[i][b];
            saa += data[i][a] * data[i][a];
            sbb += data[i][b] * data[i][b];
            sab += data[i][a] * data[i][b];
        }
        SAME(result[a][b], (N * sab - sa * sb) / sqrt((N * saa - sa * sa) * (N * sbb - sb * sb)));
    }
}
#endif

#ifdef TEST_covariance
#define M 7
#define N 9
#include "covariance.c"
/* By the differences of every two observations, without a mean. */
static void test(void)
{
    init();
    EACH(a, M) EACH(b, M) {
        double sum = 0;
        EACH(i, N) EACH(j, N)
            sum += (data[i][a] - data[j][a]) * (data[i][b] - data[j][b]);
        SAME(covariance[a][b], sum / (2 * N * (N - 1)));
    }
}
#endif

#ifdef TEST_deriche
#define H 12
#define W 15
#include "deriche.c"
/* h(n) is summed far enough to leave out less than a float can tell. */
static void test(void)
{
    double a = 0.25, total = 0, h[201];
    EACH(n, 201)
        h[n] = (a * n + 1) * exp(-a * n);
    EACH(n, 201)
        total += n == 0 ? h[n] : 2 * h[n];
    EACH(i, H) EACH(j, W) {
        double sum = 0;
        EACH(y, H) EACH(x, W)
            sum += in[y][x] * h[abs(i - y)] / total * h[abs(j - x)] / total;
        same(__LINE__, out[i][j], sum, 1e-5);
    }
}
#endif

#ifdef TEST_floyd_warshall
#define N 60
#include "floyd-warshall.c"
/* By Bellman and Ford, from each node. */
static void test(void)
{
    COPY(result, path);
    init();
    EACH(from, N) {
        int length[N];
        EACH(i, N)
            length[i] = i == from ? 0 : NONE;
        EACH(round, N) EACH(i, N) EACH(j, N)
            if (path[i][j] != NONE && length[i] != NONE && length[i] + path[i][j] < length[j])
                length[j] = length[i] + path[i][j];
        EACH(i, N)
            SAME(result[from][i], length[i]);
    }
}
#endif

#ifdef TEST_nussinov
#define N 40
#include "nussinov.c"
/* By what base i does: nothing, or a pair with k. */
static int most(int i, int j)
{
    static int known[N + 2][N + 2]; /* one more than the answer */
    if (j <= i)
        return 0;
    int *memo = &known[i][j];
    if (*memo == 0) {
        int best = most(i + 1, j);
        for (int k = i + 2; k <= j; k++)
            if (base[i] + base[k] == 3)
                best = larger(best, 1 + most(i + 1, k - 1) + most(k + 1, j));
        *memo = best + 1;
    }
    return *memo - 1;
}
static void test(void)
{
    EACH(i, N) EACH(j, N)
        SAME(pairs[i][j], most(i, j));
}
#endif

#ifdef TEST_adi
#define N 8
#define STEPS 3
#include "adi.c"
/* Each half step as one system of all N×N points. */
static void half(double from[N][N], double to[N][N], int di, int dj)
{
    static double matrix[N * N][N * N], right[N * N];
    memset(matrix, 0, sizeof matrix);
    EACH(i, N) EACH(j, N) {
        int at = i * N + j;
        matrix[at][at] = 1;
        right[at] = from[i][j];
        if (i == 0 || i == N - 1 || j == 0 || j == N - 1)
            continue;
        matrix[at][at] += 2 * r;
        matrix[at][at + di * N + dj] = matrix[at][at - di * N - dj] = -r;
        right[at] += r * (from[i + dj][j + di] + from[i - dj][j - di] - 2 * from[i][j]);
    }
    solve(N * N, matrix, right);
    memcpy(to, right, sizeof right);
}
static void test(void)
{
    COPY(result, u);
    init();
    EACH(step, STEPS) {
        half(u, v, 1, 0);
        half(v, u, 0, 1);
    }
    EACH(i, N) EACH(j, N)
        SAME(result[i][j], u[i][j]);
}
#endif

/* The stencils: each value as a function of the time and the place, which calls itself for what it needs. */

#ifdef TEST_fdtd_2d
#define M 5
#define N 6
#define STEPS 3
#include "fdtd-2d.c"
static double hz_at(int time, int i, int j);
static double ey_at(int time, int i, int j)
{
    if (time == 0)
        return ey[i][j];
    if (i == 0)
        return source[time - 1];
    return ey_at(time - 1, i, j) - c * (hz_at(time - 1, i, j) - hz_at(time - 1, i - 1, j));
}
static double ex_at(int time, int i, int j)
{
    if (time == 0 || j == 0)
        return ex[i][j];
    return ex_at(time - 1, i, j) + c * (hz_at(time - 1, i, j) - hz_at(time - 1, i, j - 1));
}
static double hz_at(int time, int i, int j)
{
    if (time == 0 || i == M - 1 || j == N - 1)
        return hz[i][j];
    double curl = (ey_at(time, i + 1, j) - ey_at(time, i, j)) - (ex_at(time, i, j + 1) - ex_at(time, i, j));
    return hz_at(time - 1, i, j) - c * curl;
}
static void test(void)
{
    COPY(result_x, ex);
    COPY(result_y, ey);
    COPY(result_z, hz);
    init();
    EACH(i, M) EACH(j, N) {
        SAME(result_x[i][j], ex_at(STEPS, i, j));
        SAME(result_y[i][j], ey_at(STEPS, i, j));
        SAME(result_z[i][j], hz_at(STEPS, i, j));
    }
}
#endif

#ifdef TEST_heat_3d
#define N 6
#define STEPS 2
#include "heat-3d.c"
static double at(int time, int i, int j, int k)
{
    if (time == 0 || i % (N - 1) == 0 || j % (N - 1) == 0 || k % (N - 1) == 0)
        return A[i][j][k];
    time--;
    return (1 - 6 * c) * at(time, i, j, k)
        + c * (at(time, i - 1, j, k) + at(time, i + 1, j, k) + at(time, i, j - 1, k) + at(time, i, j + 1, k)
            + at(time, i, j, k - 1) + at(time, i, j, k + 1));
}
static void test(void)
{
    COPY(result, A);
    init();
    EACH(i, N) EACH(j, N) EACH(k, N)
        SAME(result[i][j][k], at(2 * STEPS, i, j, k));
}
#endif

#ifdef TEST_jacobi_1d
#define N 9
#define STEPS 4
#include "jacobi-1d.c"
static double at(int time, int i)
{
    if (time == 0 || i % (N - 1) == 0)
        return A[i];
    return (at(time - 1, i - 1) + at(time - 1, i) + at(time - 1, i + 1)) / 3;
}
static void test(void)
{
    COPY(result, A);
    init();
    EACH(i, N)
        SAME(result[i], at(2 * STEPS, i));
}
#endif

#ifdef TEST_jacobi_2d
#define N 7
#define STEPS 3
#include "jacobi-2d.c"
static double at(int time, int i, int j)
{
    if (time == 0 || i % (N - 1) == 0 || j % (N - 1) == 0)
        return A[i][j];
    time--;
    return (at(time, i, j) + at(time, i - 1, j) + at(time, i + 1, j) + at(time, i, j - 1) + at(time, i, j + 1)) / 5;
}
static void test(void)
{
    COPY(result, A);
    init();
    EACH(i, N) EACH(j, N)
        SAME(result[i][j], at(2 * STEPS, i, j));
}
#endif

#ifdef TEST_seidel_2d
#define N 6
#define STEPS 2
#include "seidel-2d.c"
static double at(int time, int i, int j)
{
    if (time == 0 || i % (N - 1) == 0 || j % (N - 1) == 0)
        return A[i][j];
    double sum = 0;
    for (int y = i - 1; y <= i + 1; y++)
        for (int x = j - 1; x <= j + 1; x++)
            sum += at(y * N + x < i * N + j ? time : time - 1, y, x);
    return sum / 9;
}
static void test(void)
{
    COPY(result, A);
    init();
    EACH(i, N) EACH(j, N)
        SAME(result[i][j], at(STEPS, i, j));
}
#endif

int main(void)
{
    if (digest(START, "foobar", 6) != UINT64_C(0x85944171f73967e8)) {
        fprintf(stderr, "This digest is not FNV-1a.\n");
        return 1;
    }
    init();
    kernel();
    uint64_t first = checksum();
    init();
    kernel();
    if (checksum() != first) {
        fprintf(stderr, "%s: init does not restore every input\n", name);
        return 1;
    }
    if (fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW)) {
        fprintf(stderr, "%s: a result is not a normal number\n", name);
        return 1;
    }
    test();
    return 0;
}
