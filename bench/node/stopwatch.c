/* Linked into a native program, says on its standard error how many nanoseconds it ran: from before `main` until it has
   written its last byte. What the kernel and the loader do before and after is not its work. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct timespec begin;

__attribute__((constructor)) static void start(void)
{
    clock_gettime(CLOCK_MONOTONIC, &begin);
}

__attribute__((destructor)) static void stop(void)
{
    struct timespec end;
    char text[32];
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long nanoseconds = (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec;
    int length = snprintf(text, sizeof text, "%lld\n", nanoseconds);
    if (write(2, text, (size_t)length) != length)
        _exit(125);
}
