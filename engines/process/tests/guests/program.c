/* A program as one writes it for a web server: it answers with what it was given. Its first argument may ask for something else. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int sink;
static char page[1 << 16];

int main(int count, char **arguments) {
    const char *wish = count > 1 ? arguments[1] : "";
    if (!strcmp(wish, "exit")) return 3;
    if (!strcmp(wish, "abort")) abort();
    if (!strcmp(wish, "spin")) for (;;) sink++;
    if (!strcmp(wish, "wait")) for (;;) pause();
    if (!strcmp(wish, "null")) return *(volatile int *)8;
    if (!strcmp(wish, "flood")) for (;;) if (write(1, page, sizeof page) < 0) return 4;
    if (!strcmp(wish, "allocate")) {
        for (size_t all = 0;; all += 1 << 20) {
            char *piece = malloc(1 << 20);
            if (!piece) return printf("%s\n", all < (64 << 20) ? "refused" : "too late") < 0;
            memset(piece, 1, 1 << 20);
        }
    }
    if (!strcmp(wish, "children")) {
        int children = 0;
        while (children < 1000) {
            pid_t child = fork();
            if (child < 0) break;
            if (child == 0) for (;;) pause();
            children++;
        }
        return printf("%s\n", children > 0 && children < 100 ? "some" : "none or all") < 0;
    }
    if (!strcmp(wish, "scratch")) {
        FILE *before = fopen("/tmp/kept", "r");
        FILE *file = fopen("/tmp/kept", "w");
        if (!file) perror("/tmp/kept");
        return printf("%s\n", !before && file && fputs("x", file) >= 0 ? "fresh" : "kept") < 0;
    }

    fprintf(stderr, "a line of log\n");
    printf("%s %s %s\n", getenv("REQUEST_METHOD"), getenv("QUERY_STRING"), getenv("SETTING"));
    for (int one = 1; one < count; one++) printf("[%s]", arguments[one]);
    int c;
    while ((c = getchar()) != EOF) putchar(c);
    return 0;
}
