/* A program as one writes it for a web server: it answers with what it was given. Its first argument may ask for something else. */
#include <poll.h>
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
    if (!strcmp(wish, "share")) {
        /* Each of its processes keeps within what one may have, one after the other, and all keep what they have. */
        int ready[2];
        if (pipe(ready) < 0) return 5;
        for (int children = 0; children < 8; children++) {
            pid_t child = fork();
            if (child < 0) return 6;
            if (child == 0) {
                char *piece = malloc(16 << 20);
                if (!piece) return 7;
                for (size_t at = 0; at < 16 << 20; at += 4096) ((volatile char *)piece)[at] = 1;
                if (write(ready[1], "x", 1) < 0) return 8;
                for (;;) pause();
            }
            struct pollfd ends = {ready[0], POLLIN, 0};
            char byte;
            while (poll(&ends, 1, 10) == 0)
                if (waitpid(-1, NULL, WNOHANG) > 0) return 9;
            if (read(ready[0], &byte, 1) < 0) return 10;
        }
        return waitpid(-1, NULL, WNOHANG) > 0 ? 9 : 0;
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
