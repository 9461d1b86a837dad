// Answers one request: standard input is its body, the environment says the rest, standard output is the answer.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

int main(void)
{
    static char body[64 << 10];
    size_t length = fread(body, 1, sizeof body - 1, stdin);
    body[length] = '\0';
    body[strcspn(body, "\r\n")] = '\0';
    const char *name = body[0] ? body : "world";

    printf("Hello, %s!\n", name);
    printf("You sent %s with the query \"%s\" and %zu bytes.\n",
           variable("REQUEST_METHOD"), variable("QUERY_STRING"), length);
    // Standard error is the log.
    fprintf(stderr, "greeted %s\n", name);
    return 0;
}
