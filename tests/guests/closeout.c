/* Answers, closes its standard output, and tries to write on. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    puts("before");
    fflush(stdout);
    if (close(1) != 0)
        return 1;
    if (write(1, "after\n", 6) >= 0)
        return 2;
    fprintf(stderr, "write after close: %s\n", errno == EBADF ? "EBADF" : strerror(errno));
    return 0;
}
