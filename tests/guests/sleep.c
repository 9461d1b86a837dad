/* Sleeps for as many milliseconds as the query says (`?ms=N`), or else standard input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(void)
{
    long ms = 0;
    const char *query = getenv("QUERY_STRING");
    const char *given = query ? strstr(query, "ms=") : NULL;
    if (given)
        ms = atol(given + 3);
    else if (scanf("%ld", &ms) != 1)
        ms = 0;
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    if (nanosleep(&time, NULL) != 0)
        return 1;
    printf("slept %ld ms\n", ms);
    return 0;
}
