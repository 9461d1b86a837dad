/* digits: reads handwritten digits.
 *
 * Standard input: one or more 8x8 PGM images (P5 or P2), light ink on a dark ground. Standard output: one line for each
 * image, the digit. The network and its quantisation are described in train.py, which wrote weights.h; this file is the
 * inference in integers. An activation is an int8 from 0 to 127 and lies in a frame of zeros, so that a 3x3 convolution
 * has no special case at the border. */

#include "../common/io.h"
#include "../common/pnm.h"
#include "weights.h"

#define SIDE 8
#define INPUT_LIMIT (1 << 20)
/* The shortest image is "P5 8 8 1\n" and 64 pixels, so the answers need less than the input. */
#define OUTPUT_LIMIT (INPUT_LIMIT / 32)
#define FRAMED(side) (((side) + 2) * ((side) + 2))

static const char program[] = "digits";
static unsigned char input[INPUT_LIMIT];
static char output[OUTPUT_LIMIT];

/* One convolution: `from` is framed, (side + 2)^2 positions of `inputs` channels; `to` has side^2 positions of `outputs`
 * channels in a frame of `frame` (0 or 1) zeros that this never touches. Always inlined, so that every layer's loops have
 * constant bounds and become vector code. */
__attribute__((always_inline)) static inline void convolve(
    const int8_t *from, int8_t *to, int side, int frame, int inputs, int outputs,
    const int8_t *weights, const int32_t *bias, const int32_t *multiplier, const uint8_t *shift) {
    for (int y = 0; y < side; y++) {
        for (int x = 0; x < side; x++) {
            int8_t *out = to + ((y + frame) * (side + 2 * frame) + x + frame) * outputs;
            for (int channel = 0; channel < outputs; channel++) {
                int32_t sum = bias[channel];
                for (int row = 0; row < 3; row++) {
                    /* Three neighbours of one row are 3 * inputs consecutive values on both sides. */
                    const int8_t *a = from + ((y + row) * (side + 2) + x) * inputs;
                    const int8_t *w = weights + (channel * 3 + row) * 3 * inputs;
                    for (int k = 0; k < 3 * inputs; k++) sum += (int32_t)a[k] * w[k];
                }
                int64_t scaled = ((int64_t)sum * multiplier[channel] + ((int64_t)1 << (shift[channel] - 1))) >> shift[channel];
                out[channel] = (int8_t)(scaled < 0 ? 0 : scaled > 127 ? 127 : scaled);
            }
        }
    }
}

/* Maximum over 2x2 blocks; `frame` as in `convolve`. */
__attribute__((always_inline)) static inline void pool(const int8_t *from, int8_t *to, int side, int frame, int channels) {
    int half = side / 2;
    for (int y = 0; y < half; y++) {
        for (int x = 0; x < half; x++) {
            const int8_t *a = from + (2 * y * side + 2 * x) * channels, *b = a + side * channels;
            int8_t *out = to + ((y + frame) * (half + 2 * frame) + x + frame) * channels;
            for (int k = 0; k < channels; k++) {
                int8_t upper = a[k] > a[k + channels] ? a[k] : a[k + channels];
                int8_t lower = b[k] > b[k + channels] ? b[k] : b[k + channels];
                out[k] = upper > lower ? upper : lower;
            }
        }
    }
}

/* The digit in a framed 8x8 image. */
static int classify(const int8_t *image) {
    static int8_t first[FRAMED(8) * 32], second[8 * 8 * 32], third[FRAMED(4) * 32], fourth[4 * 4 * 64], flat[2 * 2 * 64];
    convolve(image, first, 8, 1, 1, 32, layer1_weights, layer1_bias, layer1_multiplier, layer1_shift);
    convolve(first, second, 8, 0, 32, 32, layer2_weights, layer2_bias, layer2_multiplier, layer2_shift);
    pool(second, third, 8, 1, 32);
    convolve(third, fourth, 4, 0, 32, 64, layer3_weights, layer3_bias, layer3_multiplier, layer3_shift);
    pool(fourth, flat, 4, 0, 64);
    int best = 0;
    int32_t best_score = INT32_MIN;
    for (int digit = 0; digit < 10; digit++) {
        int32_t score = layer4_bias[digit];
        for (int k = 0; k < (int)sizeof flat; k++) score += (int32_t)flat[k] * layer4_weights[digit * (int)sizeof flat + k];
        if (score > best_score) best = digit, best_score = score;
    }
    return best;
}

/* Reads one PGM image into a framed activation. */
static void read_image(struct cursor *in, int8_t *image) {
    int binary = read_magic(in, "P5");
    if (!binary && !read_magic(in, "P2")) fail(program, "not a PGM image: it does not begin with P5 or P2");
    if (read_number(in, 1 << 24) != SIDE || read_number(in, 1 << 24) != SIDE)
        fail(program, "the image must be 8 pixels wide and 8 high");
    long maximum = read_number(in, 255);
    if (maximum < 1) fail(program, "the maximum must be from 1 to 255");
    if (binary && !read_separator(in)) fail(program, "the image ends before its last pixel");
    for (int index = 0; index < SIDE * SIDE; index++) {
        long level;
        if (binary) {
            if (in->next == in->end) fail(program, "the image ends before its last pixel");
            level = *in->next++;
        } else {
            level = read_number(in, 255);
            if (level < 0) fail(program, "the image ends before its last pixel, or a pixel is no number from 0 to 255");
        }
        if (level > maximum) fail(program, "a pixel is above the maximum that the header names");
        image[(index / SIDE + 1) * (SIDE + 2) + index % SIDE + 1] = (int8_t)((level * 127 + maximum / 2) / maximum);
    }
}

int main(void) {
    struct cursor in = {input, input + read_all(program, input, sizeof input)};
    static int8_t image[FRAMED(SIDE)];
    size_t length = 0;
    skip_white(&in);
    if (in.next == in.end) fail(program, "there is no image");
    while (in.next < in.end) {
        read_image(&in, image);
        output[length++] = (char)('0' + classify(image));
        output[length++] = '\n';
        skip_white(&in);
    }
    write_all(STDOUT_FILENO, output, length);
    return 0;
}
