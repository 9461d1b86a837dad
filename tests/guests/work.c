/* Computes: as many rounds of a 32-bit xorshift (Marsaglia 2003) as the query says (`?n=N`), and answers with what they came to.
 * The same is computed by the peers of bench-scheduler. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    const char *query = getenv("QUERY_STRING");
    const char *given = query ? strstr(query, "n=") : NULL;
    unsigned long long rounds = given ? strtoull(given + 2, NULL, 10) : 0;
    uint32_t state = 2463534242u;
    for (unsigned long long i = 0; i < rounds; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    printf("%08lx\n", (unsigned long)state);
    return 0;
}
