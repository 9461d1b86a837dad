// Encrypts what it is given with AES-256 in counter mode, written from FIPS 197: the input is a key of 32 bytes, a counter of 16, and the text; the
// output is the text encrypted. The same work that app.py does with pyaes: tables of words, as both have.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t box[256];
static uint32_t table[4][256];

static uint8_t twice(uint8_t a) { return (uint8_t)(a << 1 ^ (a >> 7) * 0x1b); }

// Section 5.1.1: inverses by powers of the generator 3, then the affine map. Section 5.1.3 in tables.
static void prepare(void) {
    uint8_t power[256], logarithm[256] = {0}, x = 1;
    for (int i = 0; i < 255; i++) {
        power[i] = x;
        logarithm[x] = (uint8_t)i;
        x ^= twice(x);
    }
    for (int a = 0; a < 256; a++) {
        uint8_t inverse = a ? power[(255 - logarithm[a]) % 255] : 0;
        uint8_t s = 0x63;
        for (int turn = 0; turn < 5; turn++) s ^= (uint8_t)(inverse << turn | inverse >> (8 - turn));
        box[a] = s;
        uint32_t column = (uint32_t)twice(s) << 24 | (uint32_t)s << 16 | (uint32_t)s << 8 | (uint8_t)(twice(s) ^ s);
        for (int row = 0; row < 4; row++) {
            table[row][a] = column;
            column = column >> 8 | column << 24;
        }
    }
}

static uint32_t word(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint32_t substituted(uint32_t w) {
    return (uint32_t)box[w >> 24] << 24 | (uint32_t)box[w >> 16 & 255] << 16 | (uint32_t)box[w >> 8 & 255] << 8 | box[w & 255];
}

enum { ROUNDS = 14, WORDS = 4 * (ROUNDS + 1) };

// Section 5.2.
static void expand(const uint8_t *key, uint32_t *keys) {
    uint8_t constant = 1;
    for (int i = 0; i < 8; i++) keys[i] = word(key + 4 * i);
    for (int i = 8; i < WORDS; i++) {
        uint32_t w = keys[i - 1];
        if (i % 8 == 0) {
            w = substituted(w << 8 | w >> 24) ^ (uint32_t)constant << 24;
            constant = twice(constant);
        } else if (i % 8 == 4) {
            w = substituted(w);
        }
        keys[i] = keys[i - 8] ^ w;
    }
}

static void encrypt(const uint32_t *keys, const uint8_t *from, uint8_t *to) {
    uint32_t state[4], next[4];
    for (int i = 0; i < 4; i++) state[i] = word(from + 4 * i) ^ keys[i];
    for (int round = 1; round < ROUNDS; round++) {
        for (int i = 0; i < 4; i++)
            next[i] = table[0][state[i] >> 24] ^ table[1][state[(i + 1) % 4] >> 16 & 255] ^
                      table[2][state[(i + 2) % 4] >> 8 & 255] ^ table[3][state[(i + 3) % 4] & 255] ^ keys[4 * round + i];
        memcpy(state, next, sizeof state);
    }
    for (int i = 0; i < 4; i++) {
        uint32_t w = (uint32_t)box[state[i] >> 24] << 24 | (uint32_t)box[state[(i + 1) % 4] >> 16 & 255] << 16 |
                     (uint32_t)box[state[(i + 2) % 4] >> 8 & 255] << 8 | box[state[(i + 3) % 4] & 255];
        w ^= keys[4 * ROUNDS + i];
        for (int byte = 0; byte < 4; byte++) to[4 * i + byte] = (uint8_t)(w >> (24 - 8 * byte));
    }
}

int main(void) {
    size_t length = 0, room = 1 << 16;
    uint8_t *input = malloc(room);
    for (size_t got; input && (got = fread(input + length, 1, room - length, stdin)) > 0;) {
        length += got;
        if (length == room) input = realloc(input, room *= 2);
    }
    if (!input || length < 48) {
        fputs("the input is a key of 32 bytes, a counter of 16, and a text\n", stderr);
        return 1;
    }
    uint32_t keys[WORDS];
    prepare();
    expand(input, keys);
    uint8_t *counter = input + 32, stream[16];
    for (size_t at = 48; at < length; at += 16) {
        encrypt(keys, counter, stream);
        for (size_t i = 0; i < 16 && at + i < length; i++) input[at + i] ^= stream[i];
        for (int byte = 15; byte >= 0 && ++counter[byte] == 0; byte--) {
        }
    }
    return fwrite(input + 48, 1, length - 48, stdout) == length - 48 ? 0 : 1;
}
