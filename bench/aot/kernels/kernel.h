/* What a kernel and the program around it know of each other.
 *
 * A kernel's file defines the four names below; main.c calls them, and test.c does. Both are compiled apart from the
 * kernel, so nothing of it is inlined where it is timed.
 *
 * Results are compared to the bit between compilers. So a kernel computes with + - * / and sqrt alone, which IEEE 754
 * defines exactly, and is compiled with -ffp-contract=off and without -ffast-math. */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern const char name[];

/* Fills the inputs, and whatever the kernel updates in place. The same values every time. */
void init(void);

__attribute__((noinline)) void kernel(void);

/* Digests every element of the output. */
uint64_t checksum(void);

/* FNV-1a of 64 bits. The digest of two arrays is digest(digest(START, …), …). */
#define START UINT64_C(14695981039346656037)
static inline uint64_t digest(uint64_t state, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < size; i++)
        state = (state ^ byte[i]) * UINT64_C(1099511628211);
    return state;
}

/* A number that depends on every bit of its place. */
static inline uint32_t mix(uint32_t array, uint32_t row, uint32_t column)
{
    uint32_t state = array * 83492791u ^ row * 73856093u ^ column * 19349663u;
    state = (state ^ state >> 13) * 1540483477u;
    return state ^ state >> 15;
}

/* An element for an input: a multiple of 1/1000 above 0, at most 1. */
static inline double element(uint32_t array, uint32_t row, uint32_t column)
{
    return (mix(array, row, column) % 1000 + 1) / 1000.0;
}
