/* Reads far outside its memory. */
int main(void)
{
    return *(volatile int *)0xfffffff0u;
}
