/* millpond.h for a pure function whose sets are files: a command of WASI 0.1 with its libc, in place of millpond.c.
 *
 *     clang --target=wasm32-wasi -O2 -Isdk/c -o function.wasm function.c sdk/c/millpond-files.c
 *
 * The same function by the other of the two ways, for one that needs a libc as well. Items have no keys, and are read into memory.
 */
#include "millpond.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct set {
    char *name;
    struct millpond_item *items;
    size_t count;
};

struct sets {
    struct set *sets;
    size_t count;
};

static struct sets inputs, outputs;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static void *need(void *memory)
{
    if (!memory)
        fail("memory");
    return memory;
}

static char *join(const char *folder, const char *name)
{
    char *path = need(malloc(strlen(folder) + strlen(name) + 2));
    sprintf(path, "%s/%s", folder, name);
    return path;
}

static int is_name(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static size_t list(const char *folder, struct dirent ***entries)
{
    int count = scandir(folder, entries, is_name, alphasort);
    if (count < 0)
        fail(folder);
    return (size_t)count;
}

static void load(struct millpond_item *item, const char *folder, const char *name)
{
    char *path = join(folder, name);
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &about) != 0)
        fail(path);
    size_t size = (size_t)about.st_size;
    void *data = need(malloc(size ? size : 1));
    if (fread(data, 1, size, file) != size)
        fail(path);
    fclose(file);
    free(path);
    *item = (struct millpond_item){.name = need(strdup(name)), .name_length = strlen(name), .data = data, .size = size};
}

static struct sets find_sets(const char *folder, int with_items)
{
    struct dirent **entries, **files;
    struct sets found = {.count = list(folder, &entries)};
    found.sets = need(calloc(found.count ? found.count : 1, sizeof *found.sets));
    for (size_t i = 0; i < found.count; i++) {
        struct set *set = &found.sets[i];
        set->name = entries[i]->d_name;
        if (!with_items)
            continue;
        char *path = join(folder, set->name);
        set->count = list(path, &files);
        set->items = need(calloc(set->count ? set->count : 1, sizeof *set->items));
        for (size_t j = 0; j < set->count; j++)
            load(&set->items[j], path, files[j]->d_name);
        free(path);
    }
    return found;
}

static size_t number(const struct sets *sets, const char *name)
{
    for (size_t i = 0; i < sets->count; i++)
        if (strcmp(sets->sets[i].name, name) == 0)
            return i;
    return MILLPOND_NONE;
}

size_t millpond_input_sets(void)
{
    return inputs.count;
}

size_t millpond_input_set(const char *name)
{
    return number(&inputs, name);
}

const struct millpond_item *millpond_items(size_t set)
{
    return set < inputs.count ? inputs.sets[set].items : NULL;
}

size_t millpond_item_count(size_t set)
{
    return set < inputs.count ? inputs.sets[set].count : 0;
}

const struct millpond_item *millpond_item(size_t set, const char *name)
{
    const struct millpond_item *items = millpond_items(set);
    for (size_t i = 0; i < millpond_item_count(set); i++)
        if (strcmp(items[i].name, name) == 0)
            return &items[i];
    return NULL;
}

size_t millpond_output_sets(void)
{
    return outputs.count;
}

size_t millpond_output_set(const char *name)
{
    return number(&outputs, name);
}

int millpond_give(size_t set, struct millpond_item item)
{
    if (set >= outputs.count)
        return -1;
    char *folder = join("/out", outputs.sets[set].name), *name = need(strndup(item.name, item.name_length));
    char *path = join(folder, name);
    FILE *file = fopen(path, "wb");
    int good = file && fwrite(item.data, 1, item.size, file) == item.size;
    good = file && fclose(file) == 0 && good;
    free(path);
    free(name);
    free(folder);
    return good ? 0 : -1;
}

int millpond_give_named(size_t set, const char *name, const void *data, size_t size)
{
    return millpond_give(set, (struct millpond_item){.name = name, .name_length = strlen(name), .data = data, .size = size});
}

void *millpond_allocate(size_t size)
{
    return malloc(size ? size : 1);
}

void *millpond_allocate_aligned(size_t size, size_t alignment)
{
    return alignment <= 16 ? millpond_allocate(size) : aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void *millpond_reallocate(void *memory, size_t size)
{
    return realloc(memory, size ? size : 1);
}

void millpond_free(void *memory)
{
    free(memory);
}

int main(void)
{
    inputs = find_sets("/in", 1);
    outputs = find_sets("/out", 0);
    return millpond_main();
}
