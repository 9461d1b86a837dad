/* Computes for ever. */
int main(void)
{
    for (volatile unsigned turns = 0;; turns++) {
    }
}
