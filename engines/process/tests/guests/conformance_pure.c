/* The guests of the conformance suite (`contract::conformance::engine`) that are pure functions, as in `conformance.c`. */

typedef unsigned long word;

struct set { const char *name; word name_length; word first; };
struct buffer { const char *name; word name_length; char *data; word length; word key; };
struct data {
    int exit_code;
    char *heap_begin, *heap_end;
    word input_sets_length;
    struct set *input_sets;
    word output_sets_length;
    struct set *output_sets;
    struct buffer *input_buffers, *output_buffers;
};

#ifdef NOWHERE
/* Either nobody can write to it, or it is not there. */
#if NOWHERE == 0
const struct data __dandelion_system_data = { 1 };
#endif
void _start(void) { for (;;); }
#else

struct data __dandelion_system_data = { 256 };
#define system __dandelion_system_data

static void leave(void) {
    long result;
    for (;;) __asm__ volatile("syscall" : "=a"(result) : "a"(231), "D"(0) : "rcx", "r11", "memory");
}

/* Leaves one item in the first output set, called as the first input is. */
static void give(char *bytes, word length) {
    struct buffer *out = (struct buffer *)system.heap_begin;
    *out = system.input_buffers[0];
    out->data = bytes;
    out->length = length;
    system.output_sets[1].first = 1;
    system.output_sets[2].first = 1;
    system.output_buffers = out;
    system.exit_code = 0;
}

static void gives(void) { give(system.input_buffers[0].data, system.input_buffers[0].length); }

static char answer[8];

static void facts(void) {
    const struct buffer *in = system.input_buffers;
    int ok = system.exit_code == 256 && system.input_sets_length == 2 && system.output_sets_length == 2
        && system.input_sets[0].first == 0 && system.input_sets[1].first == 1 && system.input_sets[2].first == 1
        && in->name_length == 4 && in->name[0] == 'b' && in->name[3] == 'y' && (word)in->data % 16 == 0
        && system.heap_begin < system.heap_end && (word)system.heap_end % 4096 == 0;
    answer[0] = (char)('0' + ok);
    give(answer, 1);
}

static char zeros[20000];

static void counts(void) {
    char *places[] = {answer + 7, zeros + 15000, system.heap_begin + 100, system.heap_begin + 1500000, system.heap_end - 1};
    for (int at = 0; at < 5; at++) answer[at] = (char)('0' + (*places[at])++);
    give(answer, 5);
}

static void hostile(int way) {
    if (way == 0) { system.exit_code = 7; return; }
    if (way == 1) { system.exit_code = -1; return; }
    if (way == 2) return;
    if (way == 11) __builtin_trap();
    give(answer, 1);
    struct buffer *out = system.output_buffers;
    switch (way) {
    case 3: system.output_sets_length = 1; break;
    case 4: system.output_sets = (struct set *)-8; break;
    case 5: system.output_buffers = (struct buffer *)-8; break;
    case 6: out->name = (char *)-8; break;
    case 7: out->name_length = 0; break;
    case 8: out->data = system.heap_end; break;
    case 9: out->length = -1; break;
    case 10: system.output_sets[1].first = 70000; break;
    }
}

static void large(void) { give(system.heap_begin + 4096, (2 << 20) + 1); }

static void zero(void) { give(zeros, 1); }

void _start(void) {
    RUN;
    leave();
}
#endif
