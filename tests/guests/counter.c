/* Counts its runs in a static variable. In a fresh sandbox it says 1 for ever; with `reuse = N` it says 1 to N. */
#include <stdio.h>

static int runs;

int main(void)
{
    printf("%d\n", ++runs);
    return 0;
}
