/* Standard input as a whole, standard output as a whole, and one way to fail.
 *
 * The C examples use the system calls under stdio: a function that lives for some microseconds has no use for stdio's
 * buffers, and its module stays small. Buffers are static, so that a fresh sandbox never has to grow its memory. */
#ifndef EXAMPLES_IO_H
#define EXAMPLES_IO_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes all of `data`. What cannot be written (a closed output) ends the program with code 1. */
static void write_all(int file, const void *data, size_t length) {
    const char *next = data;
    while (length > 0) {
        ssize_t written = write(file, next, length);
        if (written <= 0) exit(1);
        next += written;
        length -= (size_t)written;
    }
}

/* Ends the program with code 1 and `program: message` on standard error. */
_Noreturn static void fail(const char *program, const char *message) {
    write_all(STDERR_FILENO, program, strlen(program));
    write_all(STDERR_FILENO, ": ", 2);
    write_all(STDERR_FILENO, message, strlen(message));
    write_all(STDERR_FILENO, "\n", 1);
    exit(1);
}

/* Reads standard input to its end into `buffer` and returns the number of bytes; fails when there are more than `capacity`. */
static size_t read_all(const char *program, void *buffer, size_t capacity) {
    size_t length = 0;
    for (;;) {
        char beyond;
        int full = length == capacity;
        ssize_t got = full ? read(STDIN_FILENO, &beyond, 1) : read(STDIN_FILENO, (char *)buffer + length, capacity - length);
        if (got < 0) fail(program, "standard input cannot be read");
        if (got == 0) return length;
        if (full) fail(program, "the input is too long");
        length += (size_t)got;
    }
}

#endif
