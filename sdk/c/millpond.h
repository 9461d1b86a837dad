/* Pure functions in C: sets of items in, sets of items out, and nothing else.
 *
 * A function is `int millpond_main(void)`, which returns 0 or the code that it fails with. Its inputs are there before it begins, in its own memory;
 * its outputs are taken from there when it has ended. It needs no C library, and imports nothing:
 *
 *     clang --target=wasm32 -nostdlib -O2 -Isdk/c -Wl,--export=__dandelion_system_data -o function.wasm function.c sdk/c/millpond.c
 *
 * Compiled for 64-bit Linux (`-nostdlib -static`), it is a program with the same structure and the same entry.
 */
#ifndef MILLPOND_H
#define MILLPOND_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Some bytes with a name, which is not terminated. Data of inputs is aligned to 16 bytes, from 64 bytes on to 64. */
struct millpond_item {
    const char *name;
    size_t name_length;
    const void *data;
    size_t size;
    size_t key;
};

/* No set or no item of this name. */
#define MILLPOND_NONE ((size_t)-1)

/* What the function's author writes. */
int millpond_main(void);

/* Input sets: how many there are, and the number of the one of this name, or MILLPOND_NONE. */
size_t millpond_input_sets(void);
size_t millpond_input_set(const char *name);

/* The items of an input set, one behind the other, in the order of the request, and how many there are. */
const struct millpond_item *millpond_items(size_t set);
size_t millpond_item_count(size_t set);

/* The item of this name, or NULL. */
const struct millpond_item *millpond_item(size_t set, const char *name);

/* Output sets: likewise. */
size_t millpond_output_sets(void);
size_t millpond_output_set(const char *name);

/* Adds an item to an output set. What it points to must stay as it is until the function has ended; it may be an input. 0, or -1 if there
 * is no such set or no memory. */
int millpond_give(size_t set, struct millpond_item item);

/* The same, of a name that is terminated. */
int millpond_give_named(size_t set, const char *name, const void *data, size_t size);

/* The heap: the rest of the memory that the function may have. NULL if there is none left. Memory is aligned to 16 bytes. */
void *millpond_allocate(size_t size);
void *millpond_allocate_aligned(size_t size, size_t alignment);
void *millpond_reallocate(void *memory, size_t size);
void millpond_free(void *memory);

/* What compilers expect to be there. */
void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
size_t strlen(const char *text);

#ifdef __cplusplus
}
#endif

#endif
