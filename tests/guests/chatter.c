/* Writes to its log for ever, a byte at a time. */
#include <unistd.h>

int main(void)
{
    for (;;)
        (void)!write(2, ".", 1);
}
