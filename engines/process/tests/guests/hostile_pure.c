/* A pure function that tries to get out: its input names the way by a letter, and a number in hexadecimal. */

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

#ifdef HIDDEN
/* Bytes among its code that nothing leads to. */
__asm__(".pushsection .text\n" HIDDEN "\n.popsection");
#endif

static long call(long number, long one, long two, long three) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one), "S"(two), "d"(three) : "rcx", "r11", "memory");
    return result;
}

static void leave(void) {
    for (;;) call(231, 0, 0, 0);
}

void _start(void) {
    const struct buffer *item = __dandelion_system_data.input_buffers;
    unsigned long number = 0;
    for (word at = 1; at < item->length; at++) {
        char c = item->data[at];
        number = number * 16 + (unsigned long)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    switch (item->data[0]) {
    case 'c':
        call((long)number, 0, 0, 0);
        break;
    case 'r':
        __dandelion_system_data.exit_code = *(volatile char *)number & 1;
        break;
    case 'i': {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    }
    }
    __dandelion_system_data.exit_code = 0;
    leave();
}
