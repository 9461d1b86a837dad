/* Deriche's recursive smoothing of an image: its convolution, along rows and then along columns, with
 * h(n) = k (a |n| + 1) e^(-a |n|), where a = 1/4 and the sum of all h(n) is 1. Outside of it the image is zero.
 * h is the sum of a causal part, filtered forwards, and an anticausal one, filtered backwards.
 * See Deriche, Fast algorithms for low-level vision, IEEE PAMI 12(1), 1990. */
#include "kernel.h"

#ifndef H
#define H 1400
#endif
#ifndef W
#define W 1400
#endif

const char name[] = "deriche";

static const float a1 = 0.0624996619f;  /* k = (1 - e^-a)^2 / (1 + 2 a e^-a - e^-2a) */
static const float a2 = -0.0365060892f; /* k e^-a (a - 1) */
static const float a3 = 0.0608434821f;  /* k e^-a (a + 1) */
static const float a4 = -0.0379079612f; /* -k e^-2a */
static const float b1 = 1.55760157f;    /* 2 e^-a */
static const float b2 = -0.60653066f;   /* -e^-2a */

static float in[H][W], out[H][W];
static float forward[H][W], backward[H][W];

void init(void)
{
    for (int i = 0; i < H; i++)
        for (int j = 0; j < W; j++)
            in[i][j] = (float)element(0, i, j);
}

void kernel(void)
{
    for (int i = 0; i < H; i++) {
        float x1 = 0, y1 = 0, y2 = 0;
        for (int j = 0; j < W; j++) {
            float y = a1 * in[i][j] + a2 * x1 + b1 * y1 + b2 * y2;
            x1 = in[i][j];
            y2 = y1;
            y1 = forward[i][j] = y;
        }
    }
    for (int i = 0; i < H; i++) {
        float x1 = 0, x2 = 0, y1 = 0, y2 = 0;
        for (int j = W - 1; j >= 0; j--) {
            float y = a3 * x1 + a4 * x2 + b1 * y1 + b2 * y2;
            x2 = x1;
            x1 = in[i][j];
            y2 = y1;
            y1 = backward[i][j] = y;
        }
    }
    for (int i = 0; i < H; i++)
        for (int j = 0; j < W; j++)
            out[i][j] = forward[i][j] + backward[i][j];

    for (int j = 0; j < W; j++) {
        float x1 = 0, y1 = 0, y2 = 0;
        for (int i = 0; i < H; i++) {
            float y = a1 * out[i][j] + a2 * x1 + b1 * y1 + b2 * y2;
            x1 = out[i][j];
            y2 = y1;
            y1 = forward[i][j] = y;
        }
    }
    for (int j = 0; j < W; j++) {
        float x1 = 0, x2 = 0, y1 = 0, y2 = 0;
        for (int i = H - 1; i >= 0; i--) {
            float y = a3 * x1 + a4 * x2 + b1 * y1 + b2 * y2;
            x2 = x1;
            x1 = out[i][j];
            y2 = y1;
            y1 = backward[i][j] = y;
        }
    }
    for (int i = 0; i < H; i++)
        for (int j = 0; j < W; j++)
            out[i][j] = forward[i][j] + backward[i][j];
}

uint64_t checksum(void)
{
    return digest(START, out, sizeof out);
}
