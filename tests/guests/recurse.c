/* Calls itself for ever, through a volatile pointer so that no compiler makes a loop of it. The calls keep nothing in
 * linear memory: it is the machine's stack that overflows. */
#include <stdio.h>

static unsigned deeper(unsigned depth);
static unsigned (*volatile again)(unsigned) = deeper;

static unsigned deeper(unsigned depth)
{
    return again(depth + 1) ^ depth;
}

int main(void)
{
    printf("%u\n", deeper(0));
    return 0;
}
