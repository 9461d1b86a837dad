/* Shows all that it was told: `argument I VALUE` in order, then `NAME=VALUE` sorted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        printf("argument %d %s\n", i, argv[i]);
    size_t count = 0;
    while (environ && environ[count])
        count++;
    if (count > 0)
        qsort(environ, count, sizeof *environ, by_name);
    for (size_t i = 0; i < count; i++)
        puts(environ[i]);
    return 0;
}
