/* Copies standard input to standard output, of any size, in pieces of 64 KiB. */
#include <unistd.h>

int main(void)
{
    static char buffer[64 * 1024];
    ssize_t got;
    while ((got = read(0, buffer, sizeof buffer)) > 0)
        for (ssize_t done = 0; done < got;) {
            ssize_t put = write(1, buffer + done, (size_t)(got - done));
            if (put <= 0)
                return 1;
            done += put;
        }
    return got != 0;
}
