/* The guests of the conformance suite (`contract::conformance::engine`) that are programs. Each is compiled by itself, as `GUEST`, with a
 * `VARIANT`, and does what the module of its case does. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define PAGE 65536

extern char **environ;
static volatile int sink;
static volatile int zero;

static int letter(void) { return getchar(); }

static void trap(int way) {
    switch (way) {
    case 0: __builtin_trap();
    case 1: sink = 7 / zero; break;
    case 2: sink = *(volatile int *)8; break;
    case 3: *(volatile int *)0x7ffffffffff0 = 1; break;
    case 4: ((void (*)(void))(uintptr_t)&sink)(); break;
    default: abort();
    }
}

static int echo(void) {
    static char piece[100000];
    ssize_t count;
    while ((count = read(0, piece, sizeof piece)) > 0)
        for (ssize_t done = 0, now; done < count; done += now)
            if ((now = write(1, piece + done, count - done)) < 0) return 4;
    return 0;
}

static int counters(void) {
    static int empty, filled = 256;
    static char large[200000];
    FILE *kept = fopen("/tmp/kept", "a");
    if (!kept || fputs("x", kept) < 0 || fseek(kept, 0, SEEK_END) < 0) return 5;
    return printf("%d %d %d ", ++empty, ++filled, (int)ftell(kept) + large[150000]++) < 0;
}

static int deeper(int level) {
    volatile char room[512];
    room[0] = (char)level;
    return deeper(level + 1) + room[0];
}

/* Changes all it can and then fails, or looks for changes. */
static int dirty(void) {
    static char empty[2 << 20], filled[PAGE] = "clean";
    int wish = letter();
    if (wish != 'c') {
        memset(empty, 0xaa, sizeof empty);
        memset(filled, 0xaa, sizeof filled);
        FILE *file = fopen("/tmp/file", "w");
        if (!file || fputs("dirt", file) < 0 || fflush(file) < 0) return 5;
        setenv("DIRT", "yes", 1);
        if (chdir("/tmp") < 0) return 6;
    }
    switch (wish) {
    case 't': trap(0);
    case 'o': return deeper(0);
    case 's': for (;;) sink++;
    case 'e': return 9;
    case 'r': return 0;
    }
    size_t at = 0;
    while (at < sizeof empty && !empty[at]) at++;
    char folder[64], *heap = malloc(1 << 20);
    size_t in_heap = 0;
    while (in_heap < 1 << 20 && !heap[in_heap]) in_heap++;
    return printf("%zu %s %d %d %s %zu", at, filled, access("/tmp/file", F_OK), !getenv("DIRT"), getcwd(folder, sizeof folder), in_heap) < 0;
}

static int keeps(void) {
    static volatile char own[1 << 20];
    char mine = (char)letter();
    memset((char *)own, mine, sizeof own);
    for (int round = 0; round < 20; round++)
        for (size_t at = 0; at < sizeof own; at++)
            if (own[at] != mine) trap(0);
    return putchar(own[sizeof own - 1]) < 0;
}

static int counts(void) {
    static int count;
    printf("%d ", ++count);
    fflush(stdout);
    return echo();
}

static int words(int count, char **arguments) {
    for (int at = 0; at < count; at++) fwrite(arguments[at], 1, strlen(arguments[at]) + 1, stdout);
    putchar('\n');
    for (char **at = environ; *at; at++) fwrite(*at, 1, strlen(*at) + 1, stdout);
    return 0;
}

static int random_bytes(void) {
    uint64_t bytes[2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return 5;
    return printf("%llu %llu ", (unsigned long long)bytes[0], (unsigned long long)bytes[1]) < 0;
}

/* By WASI's numbers: 8 is a bad descriptor. */
static int closes(void) {
    printf("1 ");
    fflush(stdout);
    dprintf(2, "%d ", close(1) ? errno : 0);
    dprintf(2, "%d ", write(1, "x", 1) < 0 && errno == EBADF ? 8 : 0);
    dprintf(2, "%d ", close(1) < 0 && errno == EBADF ? 8 : 0);
    return 0;
}

static int logs(int variant) {
    fprintf(stderr, "12345 ");
    if (variant == 1) trap(0);
    if (variant == 2) for (;;) sink++;
    return 0;
}

static int exits(int code) {
    printf("7 ");
    exit(code);
}

static int traps(int way) {
    printf("7 ");
    if (letter() == 't') trap(way);
    return 0;
}

static unsigned long sum(unsigned long n) {
    volatile unsigned long more = n;
    return n ? sum(n - 1) + more : 0;
}

static int deep(void) {
    if (letter() == 'r') return (int)sum(-1ul);
    return printf("%lu ", sum(1000)) < 0;
}

static int greedy(int variant) {
    size_t size = variant == 2 ? 1 << 20 : 64 << 20;
    char *all = malloc(size);
    for (size_t at = 0; all && at < size; at += 4096) ((volatile char *)all)[at] = 1;
    if (variant == 1) return 1;
    abort();
}

static int floods(void) {
    static char page[PAGE];
    for (;;) if (write(1, page, sizeof page) < 0) return 4;
}

static int uses(void) {
    memset(malloc(8 * PAGE), 1, 8 * PAGE);
    if (letter() == 't') trap(0);
    return 0;
}

static int spins(void) {
    for (;;) sink++;
}

static int sleeps(void) {
    struct timespec time = {0, 20000000};
    return printf("%d 1 ", nanosleep(&time, 0)) < 0;
}

static int says(void) { return printf("1 ") < 0; }

#define IS(name) (!strcmp(GUEST, name))

int main(int count, char **arguments) {
    if (IS("echo")) return echo();
    if (IS("counters")) return counters();
    if (IS("dirty")) return dirty();
    if (IS("keeps")) return keeps();
    if (IS("counts")) return counts();
    if (IS("words")) return words(count, arguments);
    if (IS("random")) return random_bytes();
    if (IS("closes")) return closes();
    if (IS("logs")) return logs(VARIANT);
    if (IS("exits")) return exits(VARIANT);
    if (IS("traps")) return traps(VARIANT);
    if (IS("dies")) trap(0);
    if (IS("deep")) return deep();
    if (IS("greedy")) return greedy(VARIANT);
    if (IS("floods")) return floods();
    if (IS("uses")) return uses();
    if (IS("spins")) return spins();
    if (IS("sleeps")) return sleeps();
    if (IS("says")) return says();
    return 99;
}
