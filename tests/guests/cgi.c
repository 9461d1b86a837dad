/* Speaks CGI (`protocol = "cgi"`): status 201, a header of its own, and the request's method and path in the body. */
#include <stdio.h>
#include <stdlib.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

int main(void)
{
    printf("Status: 201 Created\r\nContent-Type: text/plain\r\nX-Guest: cgi\r\n\r\n");
    printf("%s %s\n", variable("REQUEST_METHOD"), variable("PATH_INFO"));
    return 0;
}
