/* Takes and touches memory until there is no more, then aborts. */
#include <stdlib.h>

int main(void)
{
    /* Volatile: a compiler may delete memory that nobody reads, and the allocation with it. */
    volatile char *block;
    while ((block = malloc(1 << 20)) != NULL)
        for (size_t page = 0; page < 1 << 20; page += 4096)
            block[page] = 1;
    abort();
}
