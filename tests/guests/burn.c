/* Computes: as many rounds of xorshift as the query says (`?n=N`), by default one million. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    const char *query = getenv("QUERY_STRING");
    const char *given = query ? strstr(query, "n=") : NULL;
    unsigned long long rounds = given ? strtoull(given + 2, NULL, 10) : 1000000;
    uint64_t state = 88172645463325252u;
    for (unsigned long long i = 0; i < rounds; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    printf("%016llx\n", (unsigned long long)state);
    return 0;
}
