/* The other side of millpond.h: the structure that the host fills in and reads, a heap in what it leaves free, and the entry.
 *
 * The structure's fields are those of the Dandelion SDK's `system.h`. An array of sets ends with one more set, whose `first` is the number of all items.
 */
#include "millpond.h"

#include <stdint.h>

struct set {
    const char *name;
    size_t name_length;
    /* The number of its first item. */
    size_t first;
};

/* The host reads this before the function has said any other. */
#define UNTOUCHED 256

struct system_data {
    int exit_code;
    uintptr_t heap_begin;
    uintptr_t heap_end;
    size_t input_sets_length;
    struct set *input_sets;
    size_t output_sets_length;
    struct set *output_sets;
    const struct millpond_item *inputs;
    struct millpond_item *outputs;
};

/* The host writes and reads it behind the compiler's back. */
__attribute__((visibility("default"), used)) volatile struct system_data __dandelion_system_data = {.exit_code = UNTOUCHED};

#define DATA __dandelion_system_data

/* --- what compilers expect --- */

/* A compiler must not make a call of these to themselves out of them. */
#define PLAIN __attribute__((weak, no_builtin))

PLAIN void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    while (size--)
        *t++ = *f++;
    return to;
}

PLAIN void *memmove(void *to, const void *from, size_t size)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((uintptr_t)t - (uintptr_t)f >= size)
        return memcpy(to, from, size);
    while (size--)
        t[size] = f[size];
    return to;
}

PLAIN void *memset(void *to, int byte, size_t size)
{
    unsigned char *t = to;
    while (size--)
        *t++ = (unsigned char)byte;
    return to;
}

PLAIN int memcmp(const void *a, const void *b, size_t size)
{
    const unsigned char *x = a, *y = b;
    for (; size; size--, x++, y++)
        if (*x != *y)
            return *x < *y ? -1 : 1;
    return 0;
}

PLAIN size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

/* --- the heap --- */

/* Before each piece that was handed out. Pieces that were given back are in lists by their class, of which there are four for each power of
 * two: so one is found without a search, and is a quarter larger than asked at most. Those of a larger alignment stay where they are. */
struct piece {
    /* The piece's class; of one that stays, its bytes and STAYS. */
    size_t kind;
    struct piece *next;
};

#define STAYS (SIZE_MAX / 2 + 1)
#define UNIT ((size_t)16)
#define HEADER UNIT
#define CLASSES (sizeof(size_t) * 8 * 4 + 4)

_Static_assert(sizeof(struct piece) <= HEADER, "a piece's header keeps the alignment");

static uintptr_t heap;
static struct piece *returned[CLASSES];

/* The class of the smallest pieces of so many bytes. The first four are multiples of a unit. */
static size_t class_of(size_t size)
{
    if (size <= 4 * UNIT)
        return size ? (size - 1) / UNIT : 0;
    size_t order = sizeof(size_t) * 8 - 1;
    while (!((size - 1) >> order))
        order--;
    return 4 * order + (((size - 1) >> (order - 2)) & 3);
}

static size_t bytes_of(size_t kind)
{
    return kind < 4 ? (kind + 1) * UNIT : (kind % 4 + 5) << (kind / 4 - 2);
}

static uintptr_t take(size_t size, size_t alignment)
{
    if (!heap)
        heap = DATA.heap_begin;
    uintptr_t at = (heap + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (at < heap || at > DATA.heap_end || size > DATA.heap_end - at)
        return 0;
    heap = at + size;
    return at;
}

void *millpond_allocate(size_t size)
{
    if (size > SIZE_MAX / 4)
        return NULL;
    size_t kind = class_of(size);
    struct piece *piece = returned[kind];
    if (piece)
        returned[kind] = piece->next;
    else
        piece = (struct piece *)take(HEADER + bytes_of(kind), UNIT);
    if (!piece)
        return NULL;
    piece->kind = kind;
    return (char *)piece + HEADER;
}

void *millpond_allocate_aligned(size_t size, size_t alignment)
{
    if (alignment <= UNIT)
        return millpond_allocate(size);
    if (alignment & (alignment - 1) || size > SIZE_MAX / 4 || alignment > SIZE_MAX / 4)
        return NULL;
    uintptr_t at = take(size + alignment, alignment);
    if (!at)
        return NULL;
    struct piece *piece = (struct piece *)(at + alignment - HEADER);
    piece->kind = size | STAYS;
    return (char *)piece + HEADER;
}

void millpond_free(void *memory)
{
    if (!memory)
        return;
    struct piece *piece = (struct piece *)((char *)memory - HEADER);
    if (piece->kind & STAYS)
        return;
    piece->next = returned[piece->kind];
    returned[piece->kind] = piece;
}

void *millpond_reallocate(void *memory, size_t size)
{
    if (!memory)
        return millpond_allocate(size);
    struct piece *piece = (struct piece *)((char *)memory - HEADER);
    size_t had = piece->kind & STAYS ? piece->kind & ~STAYS : bytes_of(piece->kind);
    if (size <= had)
        return memory;
    void *larger = millpond_allocate(size);
    if (larger) {
        memcpy(larger, memory, had);
        millpond_free(memory);
    }
    return larger;
}

/* --- sets --- */

static int is(const char *name, size_t length, const char *wanted)
{
    return strlen(wanted) == length && memcmp(name, wanted, length) == 0;
}

static size_t find(const struct set *sets, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (is(sets[i].name, sets[i].name_length, name))
            return i;
    return MILLPOND_NONE;
}

size_t millpond_input_sets(void)
{
    return DATA.input_sets_length;
}

size_t millpond_input_set(const char *name)
{
    return find(DATA.input_sets, DATA.input_sets_length, name);
}

const struct millpond_item *millpond_items(size_t set)
{
    return set < DATA.input_sets_length ? DATA.inputs + DATA.input_sets[set].first : NULL;
}

size_t millpond_item_count(size_t set)
{
    return set < DATA.input_sets_length ? DATA.input_sets[set + 1].first - DATA.input_sets[set].first : 0;
}

const struct millpond_item *millpond_item(size_t set, const char *name)
{
    const struct millpond_item *items = millpond_items(set);
    for (size_t i = 0; i < millpond_item_count(set); i++)
        if (is(items[i].name, items[i].name_length, name))
            return &items[i];
    return NULL;
}

size_t millpond_output_sets(void)
{
    return DATA.output_sets_length;
}

size_t millpond_output_set(const char *name)
{
    return find(DATA.output_sets, DATA.output_sets_length, name);
}

/* What was given so far, in the order in which it was, and of which set each is. */
static struct millpond_item *given;
static size_t *given_to;
static size_t given_count, given_room;

int millpond_give(size_t set, struct millpond_item item)
{
    if (set >= DATA.output_sets_length)
        return -1;
    if (given_count == given_room) {
        size_t room = given_room ? 2 * given_room : 16;
        struct millpond_item *items = millpond_reallocate(given, room * sizeof *items);
        if (!items)
            return -1;
        given = items;
        size_t *sets = millpond_reallocate(given_to, room * sizeof *sets);
        if (!sets)
            return -1;
        given_to = sets;
        given_room = room;
    }
    given[given_count] = item;
    given_to[given_count++] = set;
    return 0;
}

int millpond_give_named(size_t set, const char *name, const void *data, size_t size)
{
    return millpond_give(set, (struct millpond_item){.name = name, .name_length = strlen(name), .data = data, .size = size});
}

/* Puts what was given where the host looks for it: sorted by set, each in the order in which it was given. */
static int leave(void)
{
    struct millpond_item *outputs = millpond_allocate(given_count * sizeof *outputs);
    if (!outputs)
        return -1;
    size_t next = 0;
    for (size_t set = 0; set <= DATA.output_sets_length; set++) {
        DATA.output_sets[set].first = next;
        for (size_t i = 0; i < given_count; i++)
            if (given_to[i] == set)
                outputs[next++] = given[i];
    }
    DATA.outputs = outputs;
    return 0;
}

/* --- the entry --- */

/* There was no memory for what describes the outputs: the Dandelion SDK's code for that. */
#define NO_MEMORY 259

/* Runs the function and says how it ended. */
int millpond_run(void)
{
    int code = millpond_main();
    if (code == 0 && leave() != 0)
        code = NO_MEMORY;
    DATA.exit_code = code;
    return code;
}

#if defined(__wasm__)

__attribute__((export_name("_start"))) void _start(void)
{
    millpond_run();
}

#elif !defined(MILLPOND_NO_START) && defined(__linux__)

/* Where the process begins, with a stack that no function has called upon: leaves with the exit code. */
__attribute__((used, noreturn)) static void begin(void)
{
    long code = millpond_run();
    for (;;) {
#if defined(__x86_64__)
        long number = 231; /* exit_group */
        __asm__ volatile("syscall" : "+a"(number) : "D"(code) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
        register long number __asm__("x8") = 94; /* exit_group */
        register long first __asm__("x0") = code;
        __asm__ volatile("svc 0" : "+r"(first) : "r"(number) : "memory");
#else
#error "There is no entry for this processor yet."
#endif
    }
}

__attribute__((naked, noreturn)) void _start(void)
{
#if defined(__x86_64__)
    __asm__("xor %ebp, %ebp\n\tcall begin");
#elif defined(__aarch64__)
    __asm__("mov x29, xzr\n\tbl begin");
#endif
}

#endif
