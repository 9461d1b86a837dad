/* A pure function without any library: it gives back each item of its first input set, in its first output set, in capitals. Its first
 * item may ask for something else. */

typedef unsigned long word;

struct set { const char *name; word name_length; word first; };
struct buffer { const char *name; word name_length; char *data; word length; word key; };
struct {
    int exit_code;
    char *heap_begin, *heap_end;
    word input_sets_length;
    struct set *input_sets;
    word output_sets_length;
    struct set *output_sets;
    struct buffer *input_buffers, *output_buffers;
} __dandelion_system_data = { 1 };

static long call(long number, long one, long two, long three) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one), "S"(two), "d"(three) : "rcx", "r11", "memory");
    return result;
}

static void leave(void) {
    for (;;) call(231, 0, 0, 0);
}

static int is(const struct buffer *item, const char *wish) {
    word at = 0;
    for (; wish[at]; at++)
        if (at >= item->length || item->data[at] != wish[at]) return 0;
    return at == item->length;
}

static volatile int sink;

static int deep(int levels) {
    volatile char room[4096];
    room[0] = (char)levels;
    return levels ? deep(levels - 1) + room[0] : 0;
}

static volatile char zeros[100000];

void _start(void) {
    word items = __dandelion_system_data.input_sets[1].first;
    struct buffer *in = __dandelion_system_data.input_buffers;
    char *heap = __dandelion_system_data.heap_begin;
    struct buffer *out = (struct buffer *)heap;
    heap += items * sizeof *out;

    for (word at = 0; at < sizeof zeros; at++)
        if (zeros[at]) __dandelion_system_data.exit_code = 9;
    if (items && is(in, "spin")) for (;;) sink++;
    if (items && is(in, "overflow")) sink = deep(1 << 30);
    if (items && is(in, "null")) sink = *(volatile int *)8;
    if (items && is(in, "beyond")) *(volatile char *)__dandelion_system_data.heap_end = 1;
    if (items && is(in, "code")) *(volatile char *)_start = 1;
    if (items && is(in, "call")) call(39, 0, 0, 0);
    if (items && is(in, "trap")) __builtin_trap();
    if (items && is(in, "exit")) { __dandelion_system_data.exit_code = 7; leave(); }
    if (items && is(in, "silent")) leave();
    if (items && is(in, "time")) sink = (int)__builtin_ia32_rdtsc();
    if (items && is(in, "pointer")) {
        __dandelion_system_data.exit_code = 0;
        __dandelion_system_data.output_sets[0].first = 0;
        __dandelion_system_data.output_sets[1].first = 1;
        __dandelion_system_data.output_buffers = (struct buffer *)16;
        leave();
    }

    if (items && is(in, "constant")) {
        static const char name[] = "constant", data[] = "what nobody can write to";
        *out = (struct buffer){name, sizeof name - 1, (char *)data, sizeof data - 1, 0};
        __dandelion_system_data.exit_code = 0;
        __dandelion_system_data.output_sets[0].first = 0;
        __dandelion_system_data.output_sets[1].first = 1;
        __dandelion_system_data.output_buffers = out;
        leave();
    }

    for (word item = 0; item < items; item++) {
        out[item] = in[item];
        out[item].data = heap;
        for (word at = 0; at < in[item].length; at++) {
            char c = in[item].data[at];
            heap[at] = c >= 'a' && c <= 'z' ? c - 32 : c;
        }
        heap += in[item].length;
    }
    __dandelion_system_data.output_sets[0].first = 0;
    __dandelion_system_data.output_sets[1].first = items;
    __dandelion_system_data.output_buffers = out;
    if (__dandelion_system_data.exit_code != 9) __dandelion_system_data.exit_code = 0;
    leave();
}
