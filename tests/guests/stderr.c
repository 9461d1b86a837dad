/* Logs three lines, the last without its end, and answers "logged". */
#include <stdio.h>

int main(void)
{
    fputs("first line\nsecond line\n", stderr);
    fputs("third line", stderr);
    puts("logged");
    return 0;
}
