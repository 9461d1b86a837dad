/* Writes for ever, and does not look whether anybody takes it. */
#include <string.h>
#include <unistd.h>

int main(void)
{
    static char buffer[64 * 1024];
    memset(buffer, 'x', sizeof buffer);
    for (;;)
        (void)!write(1, buffer, sizeof buffer);
}
