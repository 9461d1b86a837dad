/* ocr: reads the text of a page.
 *
 * Standard input: a PBM image (P4 or P1). Standard output: its text in ASCII.
 *
 *   1. smooth      a filter on 64 pixels at a time removes specks and closes pinholes
 *   2. components  connected components of ink (8 neighbours), from runs of pixels and a disjoint-set forest
 *   3. lines       components beside each other are a line; components above each other in it are one glyph (i, =, %)
 *   4. font        a sample of glyphs is matched with letters of distinct shape: they tell the font and its size (em)
 *   5. match       every glyph is stretched to a grid and compared with each template of the font: shape, size, and,
 *                  once the neighbours' matches have told the baseline, height above it
 *   6. split       a glyph like no template is cut in two where it is thinnest
 *   7. text        templates know their bearings and advances, so gaps become spaces
 *
 * All of it is integers. Arrays are static with proven bounds; the comments beside the limits give them. */

#include <stdint.h>

#include "../common/io.h"
#include "../common/pnm.h"
#include "glyphs.h"

enum {
    SIDE_LIMIT = 8192,
    PIXEL_LIMIT = 2500000, /* A4 at 150 dots an inch is 2.2 million */
    /* P1 with a blank after each pixel, and a header. */
    INPUT_LIMIT = 2 * PIXEL_LIMIT + 4096,
    /* Rows are whole words, with a row of white above and below. */
    WORD_LIMIT = PIXEL_LIMIT / 64 + 3 * SIDE_LIMIT,
    /* A row of w pixels has at most (w + 1) / 2 runs. */
    RUN_LIMIT = (PIXEL_LIMIT + SIDE_LIMIT) / 2,
    GLYPH_LIMIT = 20000,
    OUTPUT_LIMIT = 4 * GLYPH_LIMIT,
    CELLS = ROWS * COLUMNS,
    /* Costs: squares of differences of cells (0 to 255) count this part, 1/1024 em this many times. */
    SHAPE_SCALE = 64,
    GEOMETRY_WEIGHT = 32,
    /* A match that costs more may be two letters. */
    DOUBTFUL = 20000,
    ASPECT_WEIGHT = 4000,
    /* Glyphs that tell the font. */
    SAMPLE = 96,
    /* Neighbours on each side that tell the baseline. */
    REACH = 7,
    NONE = -1,
};

static const char program[] = "ocr";
/* Letters whose shape alone tells which they are; c and C, o and 0, l and I do not. */
static const char distinct[] = "abdefghkmnrtyABDEFGHKLMNQRT2345679";

struct run {
    uint16_t y, from, to; /* pixels from..to - 1 */
    int32_t parent, next; /* disjoint-set forest; then the list of the component's runs */
};

struct box {
    int left, top, right, bottom; /* right and bottom are one past the ink */
};

/* A connected component, and from step 3 on a glyph: then `next` chains its components. */
struct component {
    struct box box;
    int area, runs, next, line;
};

struct glyph {
    struct box box;
    int component, line;
    int cost, baseline; /* baseline in 1/64 pixels */
    const struct template *match;
    uint8_t shape[CELLS];
};

static unsigned char input[INPUT_LIMIT];
static uint64_t page[WORD_LIMIT], smoothed[WORD_LIMIT];
static struct run runs[RUN_LIMIT];
static struct component components[GLYPH_LIMIT];
static struct glyph glyphs[GLYPH_LIMIT];
static char output[OUTPUT_LIMIT];
static int width, height, stride; /* stride in words */
static int run_count, component_count, glyph_count, line_count;

static int minimum(int a, int b) { return a < b ? a : b; }
static int maximum(int a, int b) { return a > b ? a : b; }
static int magnitude(int a) { return a < 0 ? -a : a; }

/* The middle one of `count` numbers, which it puts in order. */
static int median(int *values, int count) {
    for (int gap = count / 2; gap > 0; gap /= 2)
        for (int i = gap; i < count; i++)
            for (int j = i; j >= gap && values[j - gap] > values[j]; j -= gap) {
                int other = values[j];
                values[j] = values[j - gap];
                values[j - gap] = other;
            }
    return values[count / 2];
}

/* --- 1. the page ------------------------------------------------------------------------------------------------ */

/* Row `y` of an image, -1 and `height` included. Pixel x is bit 63 - x % 64 of word x / 64. */
static uint64_t *row_of(uint64_t *image, int y) { return image + (size_t)(y + 1) * (size_t)stride; }

static void read_page(size_t length) {
    struct cursor in = {input, input + length};
    int binary = read_magic(&in, "P4");
    if (!binary && !read_magic(&in, "P1")) fail(program, "not a PBM image: it does not begin with P4 or P1");
    width = (int)read_number(&in, SIDE_LIMIT);
    height = (int)read_number(&in, SIDE_LIMIT);
    if (width < 1 || height < 1) fail(program, "the width and height must be from 1 to 8192");
    if (width * height > PIXEL_LIMIT) fail(program, "the page has more than 2500000 pixels");
    stride = (width + 63) / 64;
    if (binary) {
        int bytes = (width + 7) / 8;
        if (!read_separator(&in) || in.end - in.next < (ptrdiff_t)bytes * height) fail(program, "the image ends before its last pixel");
        for (int y = 0; y < height; y++, in.next += bytes) {
            uint64_t *row = row_of(page, y);
            for (int at = 0; at < bytes; at++) row[at / 8] |= (uint64_t)in.next[at] << (56 - at % 8 * 8);
            if (width % 64) row[stride - 1] &= ~(uint64_t)0 << (64 - width % 64); /* what pads a row is not ink */
        }
    } else {
        for (int y = 0; y < height; y++) {
            uint64_t *row = row_of(page, y);
            for (int x = 0; x < width; x++) {
                skip_white(&in);
                if (in.next == in.end || (*in.next != '0' && *in.next != '1'))
                    fail(program, "the image ends before its last pixel, or a pixel is neither 0 nor 1");
                row[x / 64] |= (uint64_t)(*in.next++ - '0') << (63 - x % 64);
            }
        }
    }
}

/* The words of pixels to the left (west) and right (east) of those of a row's word. */
static uint64_t west(const uint64_t *row, int word) { return row[word] >> 1 | (word > 0 ? row[word - 1] << 63 : 0); }
static uint64_t east(const uint64_t *row, int word) { return row[word] << 1 | (word + 1 < stride ? row[word + 1] >> 63 : 0); }

/* Levels the edges. A pixel's neighbours are four sides of three. Ink that touches ink on one side only is a speck or a bump,
 * and goes; white that touches white on one side only is a pinhole or a notch, and is filled. */
static void smooth(void) {
    for (int y = 0; y < height; y++) {
        const uint64_t *above = row_of(page, y - 1), *row = row_of(page, y), *below = row_of(page, y + 1);
        uint64_t *out = row_of(smoothed, y);
        for (int word = 0; word < stride; word++) {
            uint64_t n = above[word], s = below[word], w = west(row, word), e = east(row, word);
            uint64_t nw = west(above, word), ne = east(above, word), sw = west(below, word), se = east(below, word);
            uint64_t stays = (w | e | s | sw | se) & (w | e | n | nw | ne) & (n | s | e | ne | se) & (n | s | w | nw | sw);
            uint64_t becomes = (w & e & s & sw & se) | (w & e & n & nw & ne) | (n & s & e & ne & se) | (n & s & w & nw & sw);
            out[word] = becomes | (row[word] & stays);
        }
        if (width % 64) out[stride - 1] &= ~(uint64_t)0 << (64 - width % 64);
    }
}

/* --- 2. connected components ------------------------------------------------------------------------------------ */

static int root_of(int run) {
    while (runs[run].parent != run) run = runs[run].parent = runs[runs[run].parent].parent;
    return run;
}

/* The first pixel from `x` on that is ink (or, when `white`, that is not); `width` when there is none. */
static int find_pixel(const uint64_t *row, int x, int white) {
    uint64_t turn = white ? ~(uint64_t)0 : 0;
    for (int word = x / 64, skip = x % 64; word < stride; word++, skip = 0) {
        uint64_t bits = (row[word] ^ turn) & ~(uint64_t)0 >> skip;
        if (bits) return minimum(width, word * 64 + __builtin_clzll(bits));
    }
    return width;
}

/* Runs of all rows, each joined with those it touches in the row above. A joined set's root is its first run. */
static void find_runs(void) {
    int above = 0;
    for (int y = 0; y < height; y++) {
        const uint64_t *row = row_of(smoothed, y);
        int first = run_count, touching = above;
        for (int x = find_pixel(row, 0, 0); x < width;) {
            int end = find_pixel(row, x, 1), current = run_count++;
            runs[current] = (struct run){(uint16_t)y, (uint16_t)x, (uint16_t)end, current, NONE};
            /* Diagonal neighbours count: [x - 1, end + 1) meets the other's pixels. */
            while (touching < first && runs[touching].to < x) touching++;
            for (int other = touching; other < first && runs[other].from <= end; other++) {
                int a = root_of(current), b = root_of(other);
                runs[maximum(a, b)].parent = minimum(a, b);
            }
            x = find_pixel(row, end, 0);
        }
        above = first;
    }
}

/* Joins `box` with one more. */
static void enclose(struct box *box, struct box other) {
    box->left = minimum(box->left, other.left);
    box->top = minimum(box->top, other.top);
    box->right = maximum(box->right, other.right);
    box->bottom = maximum(box->bottom, other.bottom);
}

/* Components from the runs; what is too small to be a dot, or too large to be a letter, is left out. Returns the median
 * height of those that may be letters, 0 when there are none. */
static int find_components(void) {
    /* A root comes before its other runs: lists are built from the back, and end complete at their roots. */
    for (int index = run_count - 1; index > 0; index--) {
        int root = root_of(index);
        if (root == index) continue;
        runs[index].next = runs[root].next;
        runs[root].next = index;
    }
    for (int index = 0; index < run_count; index++) {
        if (runs[index].parent != index) continue;
        struct component found = {{width, height, 0, 0}, 0, index, NONE, NONE};
        for (int run = index; run != NONE; run = runs[run].next) {
            enclose(&found.box, (struct box){runs[run].from, runs[run].y, runs[run].to, runs[run].y + 1});
            found.area += runs[run].to - runs[run].from;
        }
        if (found.area < 4) continue;
        if (component_count == GLYPH_LIMIT) fail(program, "the page has more than 20000 marks: it is no page of text");
        components[component_count++] = found;
    }
    static int heights[GLYPH_LIMIT];
    int count = 0;
    for (int index = 0; index < component_count; index++)
        if (components[index].area >= 16) heights[count++] = components[index].box.bottom - components[index].box.top;
    if (count == 0) return 0;
    int usual = median(heights, count), kept = 0;
    for (int index = 0; index < component_count; index++) {
        struct component *it = &components[index];
        int large = it->box.bottom - it->box.top > 4 * usual || it->box.right - it->box.left > 8 * usual;
        if (!large && it->area * 120 >= usual * usual) components[kept++] = *it;
    }
    component_count = kept;
    return usual;
}

/* --- 3. lines and glyphs ---------------------------------------------------------------------------------------- */

static int by_left(const void *a, const void *b) {
    const struct component *one = a, *other = b;
    return one->box.left != other->box.left ? one->box.left - other->box.left : one->box.top - other->box.top;
}

static int by_line_and_left(const void *a, const void *b) {
    const struct component *one = a, *other = b;
    return one->line != other->line ? one->line - other->line : by_left(a, b);
}

struct line {
    int last;      /* the component that was added last */
    int top, sum, count;
    int order;     /* from the top of the page */
};
static struct line lines[GLYPH_LIMIT];

static int by_top(const void *a, const void *b) {
    const struct line *one = a, *other = b;
    return one->sum / one->count - other->sum / other->count;
}

/* Gives each component its line. From left to right, so that a line may slope: a tall component joins the line whose last
 * one it overlaps vertically most; marks that are small join the nearest line afterwards. */
static void find_lines(int usual) {
    qsort(components, (size_t)component_count, sizeof *components, by_left);
    for (int index = 0; index < component_count; index++) {
        struct box box = components[index].box;
        int tall = box.bottom - box.top, best = NONE, most = 0;
        if (5 * tall < 3 * usual) continue;
        for (int line = 0; line < line_count; line++) {
            struct box last = components[lines[line].last].box;
            int overlap = minimum(box.bottom, last.bottom) - maximum(box.top, last.top);
            if (2 * overlap >= minimum(tall, last.bottom - last.top) && overlap > most) best = line, most = overlap;
        }
        if (best == NONE) lines[best = line_count++] = (struct line){0, 0, 0, 0, 0};
        lines[best].last = index;
        lines[best].sum += (box.top + box.bottom) / 2;
        lines[best].count++;
        components[index].line = best;
    }
    /* Small marks: the line of the tall component that is nearest, a step down counting as much as two along. */
    for (int index = 0; index < component_count; index++) {
        if (components[index].line != NONE) continue;
        struct box box = components[index].box;
        int nearest = 6 * usual, best = NONE;
        for (int way = -1; way <= 1; way += 2) {
            for (int other = index + way; other >= 0 && other < component_count; other += way) {
                struct box tall = components[other].box;
                int along = maximum(0, maximum(tall.left - box.right, box.left - tall.right));
                if ((way > 0 || tall.left < box.left - 12 * usual) && along >= nearest) break;
                if (5 * (tall.bottom - tall.top) < 3 * usual || components[other].line == NONE) continue;
                int away = maximum(0, maximum(tall.top - box.bottom, box.top - tall.bottom));
                if (along + 3 * away < nearest) nearest = along + 3 * away, best = components[other].line;
            }
        }
        components[index].line = best; /* NONE: far from any line */
    }
    /* Number the lines from the top. */
    static int order[GLYPH_LIMIT];
    for (int line = 0; line < line_count; line++) lines[line].order = line;
    qsort(lines, (size_t)line_count, sizeof *lines, by_top);
    for (int line = 0; line < line_count; line++) order[lines[line].order] = line;
    int kept = 0;
    for (int index = 0; index < component_count; index++) {
        if (components[index].line == NONE) continue;
        components[index].line = order[components[index].line];
        components[kept++] = components[index];
    }
    component_count = kept;
    qsort(components, (size_t)component_count, sizeof *components, by_line_and_left);
}

/* Components of a line that lie above each other become one glyph. */
static void find_glyphs(void) {
    for (int index = 0; index < component_count; index++) {
        struct component *it = &components[index];
        struct glyph *last = glyph_count > 0 ? &glyphs[glyph_count - 1] : 0;
        if (last && last->line == it->line) {
            int overlap = minimum(last->box.right, it->box.right) - it->box.left;
            int narrower = minimum(last->box.right - last->box.left, it->box.right - it->box.left);
            if (2 * overlap > narrower) {
                it->next = last->component;
                last->component = index;
                enclose(&last->box, it->box);
                continue;
            }
        }
        glyphs[glyph_count++] = (struct glyph){.box = it->box, .component = index, .line = it->line};
    }
}

/* Stretches a glyph to the grid. A pixel is COLUMNS x ROWS parts and a cell takes width x height of them, so a cell's
 * share of ink is exact. */
static void stretch(struct glyph *glyph) {
    int wide = glyph->box.right - glyph->box.left, high = glyph->box.bottom - glyph->box.top;
    uint32_t cells[CELLS] = {0};
    for (int index = glyph->component; index != NONE; index = components[index].next) {
        for (int run = components[index].runs; run != NONE; run = runs[run].next) {
            int from = (maximum(runs[run].from, glyph->box.left) - glyph->box.left) * COLUMNS;
            int to = (minimum(runs[run].to, glyph->box.right) - glyph->box.left) * COLUMNS;
            if (from >= to) continue; /* beyond the cut of a glyph that was split */
            uint32_t share[COLUMNS] = {0};
            for (int column = from / wide; column < COLUMNS && column * wide < to; column++)
                share[column] = (uint32_t)(minimum(to, (column + 1) * wide) - maximum(from, column * wide));
            int top = (runs[run].y - glyph->box.top) * ROWS, bottom = top + ROWS;
            for (int row = top / high; row < ROWS && row * high < bottom; row++) {
                uint32_t part = (uint32_t)(minimum(bottom, (row + 1) * high) - maximum(top, row * high));
                for (int column = 0; column < COLUMNS; column++) cells[row * COLUMNS + column] += share[column] * part;
            }
        }
    }
    uint32_t whole = (uint32_t)(wide * high);
    for (int cell = 0; cell < CELLS; cell++) glyph->shape[cell] = (uint8_t)((cells[cell] * 255 + whole / 2) / whole);
}

/* --- 4. and 5. matching ----------------------------------------------------------------------------------------- */

/* `cost` and the difference of two shapes; may stop as soon as `limit` is reached. The sum of squares: a bar or a dot that is
 * missing weighs more than an outline that is a little off. */
static int add_shape_cost(int cost, int limit, const uint8_t *a, const uint8_t *b) {
    for (int part = 0; part < CELLS && cost < limit; part += CELLS / 4) {
        int sum = 0;
        for (int cell = part; cell < part + CELLS / 4; cell++) {
            int16_t difference = (int16_t)(a[cell] - b[cell]);
            sum += difference * difference;
        }
        cost += sum / SHAPE_SCALE;
    }
    return cost;
}

/* The font and the size of its em in 1/64 pixels: the font in which a sample of glyphs looks most like distinct letters,
 * and the size that most of those letters speak for. */
static int find_font(int usual, int *em) {
    int best_font = 0;
    int64_t best_total = INT64_MAX;
    for (int font = 0; font < FONTS; font++) {
        int sizes[SAMPLE], costs[SAMPLE], count = 0;
        int step = maximum(1, glyph_count / SAMPLE);
        int64_t total = 0;
        for (int index = 0; index < glyph_count && count < SAMPLE; index += step) {
            const struct glyph *glyph = &glyphs[index];
            int wide = glyph->box.right - glyph->box.left, high = glyph->box.bottom - glyph->box.top;
            if (5 * high < 4 * usual) continue;
            int best = INT32_MAX, size = 0;
            for (int candidate = 0; candidate < TEMPLATES; candidate++) {
                const struct template *template = &templates[font][candidate];
                if (!strchr(distinct, template->character)) continue;
                int aspect = magnitude(wide * template->height - high * template->width);
                int cost = (int)((int64_t)ASPECT_WEIGHT * aspect / (high * template->height));
                cost = add_shape_cost(cost, best, glyph->shape, template->shape);
                if (cost < best) best = cost, size = high * 64 * EM / template->height;
            }
            sizes[count] = size;
            costs[count++] = best;
            total += best;
        }
        if (count == 0) continue;
        total /= count;
        if (total < best_total) {
            /* The better half of the matches has the vote. */
            int sorted[SAMPLE], votes = 0;
            memcpy(sorted, costs, sizeof(int) * (size_t)count);
            int limit = median(sorted, count);
            for (int index = 0; index < count; index++)
                if (costs[index] <= limit) sizes[votes++] = sizes[index];
            best_total = total;
            best_font = font;
            *em = median(sizes, votes);
        }
    }
    return best_font;
}

/* Finds the template that fits best by shape, size and, when `with_baseline`, position. */
static void match(struct glyph *glyph, int font, int em, int with_baseline) {
    /* In 1/1024 em, as the templates have it. */
    int wide = (glyph->box.right - glyph->box.left) * 64 * EM / em;
    int high = (glyph->box.bottom - glyph->box.top) * 64 * EM / em;
    int bottom = (int)((int64_t)(glyph->box.bottom * 64 - glyph->baseline) * EM / em);
    const struct template *favourite = glyph->match ? glyph->match : templates[font];
    glyph->cost = INT32_MAX;
    /* The last match first: what it costs lets most of the others be passed over by their size alone. */
    for (int candidate = -1; candidate < TEMPLATES; candidate++) {
        const struct template *template = candidate < 0 ? favourite : &templates[font][candidate];
        int away = magnitude(wide - template->width) + magnitude(high - template->height);
        if (with_baseline) away += magnitude(bottom - template->bottom);
        int cost = add_shape_cost(away * GEOMETRY_WEIGHT, glyph->cost, glyph->shape, template->shape);
        if (cost < glyph->cost) glyph->cost = cost, glyph->match = template;
    }
}

/* The baseline at each glyph: the median of what it and its neighbours in the line say. */
static void find_baselines(int em) {
    static int said[GLYPH_LIMIT];
    for (int index = 0; index < glyph_count; index++)
        said[index] = glyphs[index].box.bottom * 64 - glyphs[index].match->bottom * em / EM;
    for (int index = 0; index < glyph_count; index++) {
        int near[2 * REACH + 1], count = 0;
        for (int other = maximum(0, index - REACH); other <= index + REACH && other < glyph_count; other++)
            if (glyphs[other].line == glyphs[index].line) near[count++] = said[other];
        glyphs[index].baseline = median(near, count);
    }
}

/* --- 6. letters that touch --------------------------------------------------------------------------------------- */

static int by_reading(const void *a, const void *b) {
    const struct glyph *one = a, *other = b;
    return one->line != other->line ? one->line - other->line : one->box.left - other->box.left;
}

/* What `whole` has between two columns, as a glyph of its own; 0 when there is no ink. */
static int cut(const struct glyph *whole, int left, int right, struct glyph *part) {
    *part = *whole;
    part->box = (struct box){right, whole->box.bottom, left, whole->box.top};
    for (int index = whole->component; index != NONE; index = components[index].next) {
        for (int run = components[index].runs; run != NONE; run = runs[run].next) {
            int from = maximum(runs[run].from, left), to = minimum(runs[run].to, right);
            if (from < to) enclose(&part->box, (struct box){from, runs[run].y, to, runs[run].y + 1});
        }
    }
    if (part->box.left >= part->box.right) return 0;
    stretch(part);
    return 1;
}

/* A glyph like no template may be two letters: it is cut where it is thinnest, and stays so when both are more like letters. */
static void split(int font, int em) {
    static int ink[SIDE_LIMIT];
    int original = glyph_count;
    for (int index = 0; index < original && glyph_count < GLYPH_LIMIT; index++) {
        struct glyph *glyph = &glyphs[index];
        int wide = glyph->box.right - glyph->box.left;
        if (glyph->cost < DOUBTFUL || wide * 64 < em / 2) continue;
        memset(ink, 0, sizeof(int) * (size_t)wide);
        for (int member = glyph->component; member != NONE; member = components[member].next)
            for (int run = components[member].runs; run != NONE; run = runs[run].next)
                for (int x = runs[run].from; x < runs[run].to; x++) ink[x - glyph->box.left]++;
        int at = wide / 4;
        for (int x = wide / 4; x <= wide * 3 / 4; x++)
            if (ink[x] < ink[at]) at = x;
        struct glyph first, second;
        /* The bridge itself, one column, belongs to neither. */
        if (!cut(glyph, glyph->box.left, glyph->box.left + at, &first)) continue;
        if (!cut(glyph, glyph->box.left + at + 1, glyph->box.right, &second)) continue;
        match(&first, font, em, 1);
        match(&second, font, em, 1);
        if (maximum(first.cost, second.cost) >= glyph->cost) continue;
        *glyph = first;
        glyphs[glyph_count++] = second;
    }
    if (glyph_count > original) qsort(glyphs, (size_t)glyph_count, sizeof *glyphs, by_reading);
}

/* --- 7. text ---------------------------------------------------------------------------------------------------- */

/* Where the pen was before the glyph was drawn, in 1/64 pixels. */
static int pen_before(const struct glyph *glyph, int em) { return glyph->box.left * 64 - glyph->match->left * em / EM; }
static int pen_after(const struct glyph *glyph, int em) { return pen_before(glyph, em) + glyph->match->advance * em / EM; }

/* Two strokes closer together than two apostrophes can be are one quotation mark. */
static void join_quotes(int font, int em) {
    int kept = 0;
    for (int index = 0; index < glyph_count; index++) {
        struct glyph *last = kept > 0 ? &glyphs[kept - 1] : 0, *it = &glyphs[index];
        if (last && last->line == it->line && last->match->character == '\'' && it->match->character == '\'' &&
            pen_before(it, em) - pen_after(last, em) < -em / 10) {
            enclose(&last->box, it->box);
            last->match = &templates[font]['"' - '!'];
        } else {
            glyphs[kept++] = *it;
        }
    }
    glyph_count = kept;
}

static size_t put(size_t length, char character, int count) {
    for (int written = 0; written < count; written++) {
        if (length == OUTPUT_LIMIT) fail(program, "the text is too long: it is no page of text");
        output[length++] = character;
    }
    return length;
}

/* What the page has between letters of a word beyond the font's own: the median. */
static int letter_spacing(int em, int space) {
    static int gaps[GLYPH_LIMIT];
    int count = 0;
    for (int index = 1; index < glyph_count; index++) {
        int gap = pen_before(&glyphs[index], em) - pen_after(&glyphs[index - 1], em);
        if (glyphs[index].line == glyphs[index - 1].line && magnitude(gap) < space / 2) gaps[count++] = gap;
    }
    return count > 0 ? median(gaps, count) : 0;
}

static size_t write_text(int font, int em) {
    int space = space_advance[font] * em / EM, margin = INT32_MAX, pitch = INT32_MAX;
    int spacing = letter_spacing(em, space);
    for (int index = 0; index < glyph_count; index++) {
        int first = index == 0 || glyphs[index].line != glyphs[index - 1].line;
        if (!first) continue;
        margin = minimum(margin, pen_before(&glyphs[index], em));
        if (index > 0) pitch = minimum(pitch, maximum(em, glyphs[index].baseline - glyphs[index - 1].baseline));
    }
    size_t length = 0;
    for (int index = 0; index < glyph_count; index++) {
        int pen = pen_before(&glyphs[index], em), from = margin;
        if (index > 0 && glyphs[index].line == glyphs[index - 1].line) {
            from = pen_after(&glyphs[index - 1], em) + spacing;
        } else if (index > 0) {
            int down = glyphs[index].baseline - glyphs[index - 1].baseline;
            length = put(length, '\n', maximum(1, (down + pitch / 2) / pitch));
        }
        int blank = space + spacing;
        if (pen > from) length = put(length, ' ', (pen - from + blank / 2) / blank);
        length = put(length, glyphs[index].match->character, 1);
    }
    return glyph_count > 0 ? put(length, '\n', 1) : length;
}

int main(void) {
    read_page(read_all(program, input, sizeof input));
    smooth();
    find_runs();
    int usual = find_components();
    if (usual == 0) return 0;
    find_lines(usual);
    find_glyphs();
    for (int index = 0; index < glyph_count; index++) stretch(&glyphs[index]);
    int em = 0, font = find_font(usual, &em);
    if (em < 64) return 0; /* nothing on the page is as tall as a letter */
    for (int index = 0; index < glyph_count; index++) match(&glyphs[index], font, em, 0);
    find_baselines(em);
    for (int index = 0; index < glyph_count; index++) match(&glyphs[index], font, em, 1);
    split(font, em);
    join_quotes(font, em);
    write_all(STDOUT_FILENO, output, write_text(font, em));
    return 0;
}
