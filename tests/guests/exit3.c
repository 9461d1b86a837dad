/* Writes half an answer and leaves with code 3. */
#include <stdio.h>

int main(void)
{
    puts("half an answer");
    return 3;
}
