/* The header of a Netpbm image: white space, comments and decimal numbers, as pbm(5) and pgm(5) define them. */
#ifndef EXAMPLES_PNM_H
#define EXAMPLES_PNM_H

#include <stddef.h>

/* What is left of the input. */
struct cursor {
    const unsigned char *next, *end;
};

static int is_white(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Passes white space and comments (from '#' to the end of the line). */
static void skip_white(struct cursor *in) {
    while (in->next < in->end) {
        if (*in->next == '#') {
            while (in->next < in->end && *in->next != '\n' && *in->next != '\r') in->next++;
        } else if (is_white(*in->next)) {
            in->next++;
        } else {
            return;
        }
    }
}

/* The next decimal number, or -1 when there is none or it exceeds `maximum` (at most 2^24). */
static long read_number(struct cursor *in, long maximum) {
    skip_white(in);
    if (in->next == in->end || *in->next < '0' || *in->next > '9') return -1;
    long value = 0;
    while (in->next < in->end && *in->next >= '0' && *in->next <= '9') {
        value = value * 10 + (*in->next++ - '0');
        if (value > maximum) return -1;
    }
    return value;
}

/* Whether the next bytes are `magic` (two characters); passes them. */
static int read_magic(struct cursor *in, const char *magic) {
    if (in->end - in->next < 2 || in->next[0] != (unsigned char)magic[0] || in->next[1] != (unsigned char)magic[1]) return 0;
    in->next += 2;
    return 1;
}

/* Passes the single white-space character between a header and binary pixels; 0 when there is none. */
static int read_separator(struct cursor *in) {
    if (in->next == in->end || !is_white(*in->next)) return 0;
    in->next++;
    return 1;
}

#endif
