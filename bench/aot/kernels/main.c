/* Runs a kernel as often as the first argument says, by default once, each time from fresh inputs. Prints its name, the
 * least time of the kernel alone in nanoseconds, and the checksum of its output. */
#include "kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
    long repeat = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    if (repeat < 1) {
        fprintf(stderr, "Usage: %s [REPEAT], where REPEAT is at least 1\n", name);
        return 2;
    }
    uint64_t least = UINT64_MAX;
    uint64_t sum = 0;
    for (long i = 0; i < repeat; i++) {
        init();
        uint64_t start = now();
        kernel();
        uint64_t time = now() - start;
        if (time < least)
            least = time;
        uint64_t previous = sum;
        sum = checksum();
        if (i > 0 && sum != previous) {
            fprintf(stderr, "%s: repetition %ld gave another output\n", name, i + 1);
            return 1;
        }
    }
    printf("%s %" PRIu64 " %016" PRIx64 "\n", name, least, sum);
    return 0;
}
