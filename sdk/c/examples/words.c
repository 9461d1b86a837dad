/* A pure function of two kinds of input: counts the words of each item of `texts`, and multiplies the matrices `a` and `b` of `matrices`.
 *
 * `counts` gets an item for each text, of the same name and key: its words in the order of their bytes, each with its count. `product` gets `c`. Matrices
 * are square, of little-endian doubles. sdk/rust/examples/words.rs is the same function.
 */
#include "millpond.h"

struct word {
    const char *begin;
    size_t length;
    size_t count;
};

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static int compare(const struct word *a, const struct word *b)
{
    int order = memcmp(a->begin, b->begin, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* Merges runs of words that are sorted, twice as long each time. */
static void sort(struct word *words, struct word *other, size_t count)
{
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t at = 0; at < count; at += 2 * run) {
            size_t a = at, b = at + run < count ? at + run : count;
            size_t middle = b, end = at + 2 * run < count ? at + 2 * run : count;
            for (size_t to = at; to < end; to++)
                other[to] = a < middle && (b >= end || compare(&words[a], &words[b]) <= 0) ? words[a++] : words[b++];
        }
        memcpy(words, other, count * sizeof *words);
    }
}

static size_t digits(size_t number)
{
    size_t count = 1;
    while (number /= 10)
        count++;
    return count;
}

static int count(const struct millpond_item *text, size_t set)
{
    const char *bytes = text->data;
    size_t found = 0, room = text->size / 2 + 1;
    struct word *words = millpond_allocate(room * sizeof *words), *other = millpond_allocate(room * sizeof *other);
    if (!words || !other)
        return 3;
    for (size_t at = 0; at < text->size;) {
        size_t begin = at;
        while (at < text->size && is_letter(bytes[at]))
            at++;
        if (at > begin)
            words[found++] = (struct word){bytes + begin, at - begin, 1};
        else
            at++;
    }
    sort(words, other, found);
    size_t kinds = 0, size = 0;
    for (size_t i = 0; i < found; i++) {
        if (kinds && compare(&words[kinds - 1], &words[i]) == 0)
            words[kinds - 1].count++;
        else
            words[kinds++] = words[i];
    }
    for (size_t i = 0; i < kinds; i++)
        size += words[i].length + digits(words[i].count) + 2;
    char *lines = millpond_allocate(size), *to = lines;
    if (!lines)
        return 3;
    for (size_t i = 0; i < kinds; i++) {
        memcpy(to, words[i].begin, words[i].length);
        to += words[i].length;
        *to++ = ' ';
        size_t number = words[i].count, length = digits(number);
        for (size_t digit = length; digit--; number /= 10)
            to[digit] = (char)('0' + number % 10);
        to += length;
        *to++ = '\n';
    }
    millpond_free(words);
    millpond_free(other);
    struct millpond_item item = *text;
    item.data = lines;
    item.size = size;
    return millpond_give(set, item) ? 3 : 0;
}

static int multiply(const struct millpond_item *left, const struct millpond_item *right, size_t set)
{
    size_t size = 0;
    while (size * size * sizeof(double) < left->size)
        size++;
    if (size * size * sizeof(double) != left->size || right->size != left->size)
        return 4;
    double *product = millpond_allocate(left->size ? left->size : 1);
    if (!product)
        return 3;
    const double *a = left->data, *b = right->data;
    for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j < size; j++) {
            double sum = 0;
            for (size_t k = 0; k < size; k++)
                sum += a[i * size + k] * b[k * size + j];
            product[i * size + j] = sum;
        }
    return millpond_give_named(set, "c", product, left->size) ? 3 : 0;
}

int millpond_main(void)
{
    size_t texts = millpond_input_set("texts"), counts = millpond_output_set("counts");
    const struct millpond_item *items = millpond_items(texts);
    for (size_t i = 0; i < millpond_item_count(texts); i++) {
        int failed = count(&items[i], counts);
        if (failed)
            return failed;
    }
    size_t matrices = millpond_input_set("matrices");
    const struct millpond_item *a = millpond_item(matrices, "a"), *b = millpond_item(matrices, "b");
    if (!a && !b)
        return 0;
    return a && b ? multiply(a, b, millpond_output_set("product")) : 5;
}
