/* A program as one writes it for a web server: it answers with what it was given. Its first argument may ask for something else. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int sink;
static char page[1 << 16];
static char other_stack[1 << 16];
static sigjmp_buf back;
static volatile int zero;

static int deep(int levels) {
    volatile char room[256];
    room[0] = (char)levels;
    return levels ? deep(levels - 1) + room[0] : 0;
}

static int deep_by_arrays(int levels) {
    volatile char room[1 << 20];
    for (size_t at = 0; at < sizeof room; at += 4096) room[at] = (char)levels;
    return levels ? deep_by_arrays(levels - 1) + room[0] : 0;
}

static void handle(int signal, void (*handler)(int)) {
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(signal, &action, NULL);
}

static void to_abort(int signal) { (void)signal; abort(); }
static void to_go_back(int signal) { (void)signal; siglongjmp(back, 1); }
static void to_count(int signal) { (void)signal; sink++; }
static void *aborts(void *none) { abort(); return none; }

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *spins_a_while(void *none) {
    while (now(CLOCK_PROCESS_CPUTIME_ID) < 0.5) sink++;
    return none;
}

/* Faults that a handler of its own deals with, the stack's overflow among them. */
static void handlers(void) {
    handle(SIGSEGV, to_go_back);
    handle(SIGFPE, to_go_back);
    handle(SIGABRT, to_go_back);
    for (int round = 0; round < 3; round++) {
        if (!sigsetjmp(back, 1)) sink = *(volatile int *)8;
        if (!sigsetjmp(back, 1)) sink = deep(1 << 30);
        if (!sigsetjmp(back, 1)) sink = 7 / zero;
        if (!sigsetjmp(back, 1)) abort();
    }
}

int main(int count, char **arguments) {
    const char *wish = count > 1 ? arguments[1] : "";
    if (!strcmp(wish, "exit")) return 3;
    if (!strcmp(wish, "abort")) abort();
    if (!strcmp(wish, "abort_after")) {
        handlers();
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    if (!strcmp(wish, "abort_on_a_thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, aborts, NULL);
        pthread_join(thread, NULL);
    }
    if (!strcmp(wish, "divide")) return 7 / zero;
    if (!strcmp(wish, "breakpoint")) {
#ifdef __x86_64__
        __asm__ volatile("int3");
#else
        raise(SIGTRAP);
#endif
    }
    if (!strcmp(wish, "overflow")) return deep(1 << 30);
    if (!strcmp(wish, "overflow_by_arrays")) return deep_by_arrays(1 << 20);
    if (!strcmp(wish, "overflow_told")) { handle(SIGSEGV, to_abort); return deep(1 << 30); }
    if (!strcmp(wish, "handlers")) {
        handlers();
        return printf("went on\n") < 0;
    }
    if (!strcmp(wish, "storm")) {
        /* More than anybody wants to hear of. */
        handle(SIGUSR1, to_count);
        for (int sent = 0; sent < 20000; sent++) raise(SIGUSR1);
        return printf("%s\n", sink == 20000 ? "went on" : "lost some") < 0;
    }
    if (!strcmp(wish, "signals")) {
        /* The first of a namespace ignores what it does not handle, and stops for nobody inside. */
        int all[] = {SIGTERM, SIGSTOP, SIGTSTP, SIGHUP, SIGSEGV, SIGKILL, SIGUSR2, SIGCONT};
        for (size_t one = 0; one < sizeof all / sizeof *all; one++) kill(getpid(), all[one]);
        pid_t child = fork();
        if (child == 0) { raise(SIGSTOP); _exit(5); }
        int status;
        waitpid(child, &status, WUNTRACED);
        int stopped = WIFSTOPPED(status);
        kill(child, SIGCONT);
        waitpid(child, &status, 0);
        return printf("%s\n", stopped && WIFEXITED(status) && WEXITSTATUS(status) == 5 ? "went on" : "not so") < 0;
    }
    if (!strcmp(wish, "spin")) for (;;) sink++;
    if (!strcmp(wish, "wait")) for (;;) pause();
    if (!strcmp(wish, "child_spins")) {
        if (fork() == 0) for (;;) sink++;
        for (;;) pause();
    }
    if (!strcmp(wish, "cores")) {
        /* Four threads use half a second of processors; in tenths, how many they had at a time. */
        pthread_t threads[4];
        double begin = now(CLOCK_MONOTONIC);
        for (int one = 0; one < 4; one++) pthread_create(threads + one, NULL, spins_a_while, NULL);
        for (int one = 0; one < 4; one++) pthread_join(threads[one], NULL);
        return printf("%d\n", (int)(10 * now(CLOCK_PROCESS_CPUTIME_ID) / (now(CLOCK_MONOTONIC) - begin))) < 0;
    }
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
