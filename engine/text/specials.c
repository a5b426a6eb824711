/* Reading specials.json, looking up by id, by spelling, and searching a text.
 * Nothing changes after opening.
 *
 * Spellings are sorted by their bytes, so those that agree with a text so far
 * are always neighbours; the search narrows that range byte by byte. */
#include "text/specials.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/plat.h"

typedef struct special {
    char *text;
    uint32_t bytes;
    int32_t id;
} special;

struct waste_specials {
    special *by_text; /* owns the texts */
    uint32_t *by_id;  /* numbers in by_text, ids ascending */
    uint32_t n;
    int32_t lowest;      /* id that slot 0 stands for */
    uint32_t n_slots;    /* up to the highest id */
    uint32_t *slots;     /* number in by_text + 1, by id - lowest; 0: none */
    uint32_t first[257]; /* where spellings that begin with a byte begin in by_text */
};

static int compare_texts(const void *a, const void *b)
{
    const special *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int c = memcmp(x->text, y->text, n);

    return c ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static waste_status read_one(waste_specials *s, const waste_json *j, size_t i, int64_t n_vocab,
                             const char *path, waste_error *err)
{
    const char *text;
    size_t bytes = 0;
    int64_t id;
    special *p = &s->by_text[s->n];

    if (waste_json_kind_of(j) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s: element %llu is %s, wanted an object", path,
                          (unsigned long long)i, waste_json_kind_name(waste_json_kind_of(j)));
    if (waste_json_int(waste_json_get(j, "id"), &id) || id < 0 || id >= n_vocab)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: id of element %llu is not an integer from 0 to %lld", path,
                          (unsigned long long)i, (long long)n_vocab - 1);
    text = waste_json_text(waste_json_get(j, "text"), &bytes);
    if (!text)
        return waste_fail(err, WASTE_FORMAT, "%s: text of element %llu is not a string", path,
                          (unsigned long long)i);
    if (bytes > WASTE_SPECIALS_TEXT)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: text of element %llu has %llu bytes, more than the %d allowed", path,
                          (unsigned long long)i, (unsigned long long)bytes, WASTE_SPECIALS_TEXT);
    if (bytes == 0) return WASTE_OK;
    p->text = waste_mem_text(text, bytes);
    if (!p->text) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    p->bytes = (uint32_t)bytes;
    p->id = (int32_t)id;
    s->n++;
    return WASTE_OK;
}

static waste_status read_all(waste_specials *s, const waste_json *j, int64_t n_vocab,
                             const char *path, waste_error *err)
{
    size_t n = waste_json_count(j), i;
    waste_status st = WASTE_OK;

    if (waste_json_kind_of(j) != WASTE_JSON_ARRAY)
        return waste_fail(err, WASTE_FORMAT, "%s is %s, wanted an array", path,
                          waste_json_kind_name(waste_json_kind_of(j)));
    if (n == 0) return WASTE_OK;
    if (n > (uint64_t)n_vocab)
        return waste_fail(err, WASTE_FORMAT, "%s has %llu elements for a vocabulary of %lld", path,
                          (unsigned long long)n, (long long)n_vocab);
    s->by_text = waste_mem_array(n, sizeof *s->by_text);
    if (!s->by_text) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    for (i = 0; i < n && !st; i++) st = read_one(s, waste_json_at(j, i), i, n_vocab, path, err);
    return st;
}

static waste_status index_texts(waste_specials *s, const char *path, waste_error *err)
{
    uint32_t i, b = 0;

    if (s->n) qsort(s->by_text, s->n, sizeof *s->by_text, compare_texts);
    for (i = 1; i < s->n; i++)
        if (compare_texts(&s->by_text[i - 1], &s->by_text[i]) == 0)
            return waste_fail(err, WASTE_FORMAT, "%s: \"%s\" stands for id %d and for id %d", path,
                              s->by_text[i].text, s->by_text[i - 1].id, s->by_text[i].id);
    for (i = 0; i < s->n; i++)
        while (b <= (unsigned char)s->by_text[i].text[0]) s->first[b++] = i;
    while (b < 257) s->first[b++] = s->n;
    return WASTE_OK;
}

static waste_status index_ids(waste_specials *s, const char *path, waste_error *err)
{
    int32_t highest = -1;
    uint32_t i, n = 0;

    if (s->n == 0) return WASTE_OK;
    s->lowest = s->by_text[0].id;
    for (i = 0; i < s->n; i++) {
        if (s->by_text[i].id < s->lowest) s->lowest = s->by_text[i].id;
        if (s->by_text[i].id > highest) highest = s->by_text[i].id;
    }
    s->n_slots = (uint32_t)(highest - s->lowest) + 1;
    s->slots = waste_mem_array(s->n_slots, sizeof *s->slots);
    s->by_id = waste_mem_array(s->n, sizeof *s->by_id);
    if (!s->slots || !s->by_id)
        return waste_fail(err, WASTE_NOMEM, "%s: out of memory for %u tokens", path, s->n_slots);
    for (i = 0; i < s->n; i++) {
        uint32_t *slot = &s->slots[s->by_text[i].id - s->lowest];
        if (*slot)
            return waste_fail(err, WASTE_FORMAT, "%s: id %d stands for \"%s\" and for \"%s\"", path,
                              s->by_text[i].id, s->by_text[*slot - 1].text, s->by_text[i].text);
        *slot = i + 1;
    }
    for (i = 0; i < s->n_slots; i++)
        if (s->slots[i]) s->by_id[n++] = s->slots[i] - 1;
    return WASTE_OK;
}

waste_status waste_specials_open(waste_specials **out, const char *path, int64_t n_vocab,
                                 waste_error *err)
{
    waste_specials *s;
    waste_json *j = NULL;
    waste_status st = WASTE_OK;

    *out = NULL;
    if (n_vocab < 1 || n_vocab > INT32_MAX)
        return waste_fail(err, WASTE_ARG, "a vocabulary of %lld tokens", (long long)n_vocab);
    s = waste_mem_zero(sizeof *s);
    if (!s) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    if (waste_path_exists(path)) st = waste_json_load(&j, path, err);
    if (!st && j) st = read_all(s, j, n_vocab, path, err);
    waste_json_free(j);
    if (!st) st = index_texts(s, path, err);
    if (!st) st = index_ids(s, path, err);
    if (st) {
        waste_specials_close(s);
        return st;
    }
    *out = s;
    return WASTE_OK;
}

void waste_specials_close(waste_specials *s)
{
    uint32_t i;

    if (!s) return;
    for (i = 0; i < s->n; i++) waste_mem_free(s->by_text[i].text);
    waste_mem_free(s->by_text);
    waste_mem_free(s->by_id);
    waste_mem_free(s->slots);
    waste_mem_free(s);
}

size_t waste_specials_count(const waste_specials *s)
{
    return s->n;
}

int32_t waste_specials_at(const waste_specials *s, size_t i, waste_str *text)
{
    const special *p = &s->by_text[s->by_id[i]];

    text->text = p->text;
    text->bytes = p->bytes;
    return p->id;
}

const char *waste_specials_text(const waste_specials *s, int32_t id, size_t *bytes)
{
    const special *p;

    if (id < s->lowest || (uint32_t)(id - s->lowest) >= s->n_slots) return NULL;
    if (s->slots[id - s->lowest] == 0) return NULL;
    p = &s->by_text[s->slots[id - s->lowest] - 1];
    *bytes = p->bytes;
    return p->text;
}

/* Of the spellings lo..hi, which are longer than `depth` and agree up to it, the
 * first whose byte there is at least b. */
static uint32_t lower_bound(const waste_specials *s, uint32_t lo, uint32_t hi, size_t depth,
                            unsigned b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)s->by_text[mid].text[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest spelling that begins at text[0]: its number, or -1. Of spellings
 * that agree so far the one that ends here sorts first. */
static int64_t longest_here(const waste_specials *s, const char *text, size_t bytes)
{
    uint32_t lo = s->first[(unsigned char)text[0]], hi = s->first[(unsigned char)text[0] + 1];
    int64_t found = -1;
    size_t depth;

    for (depth = 1; lo < hi; depth++) {
        if (s->by_text[lo].bytes == depth) found = lo++;
        if (depth == bytes) break;
        lo = lower_bound(s, lo, hi, depth, (unsigned char)text[depth]);
        hi = lower_bound(s, lo, hi, depth, (unsigned char)text[depth] + 1u);
    }
    return found;
}

int32_t waste_specials_find(const waste_specials *s, const char *text, size_t bytes)
{
    int64_t i = bytes ? longest_here(s, text, bytes) : -1;

    return i >= 0 && s->by_text[i].bytes == bytes ? s->by_text[i].id : -1;
}

int32_t waste_specials_search(const waste_specials *s, const char *text, size_t bytes,
                              size_t *start, size_t *length)
{
    size_t at;

    if (s->n == 0) return -1;
    for (at = 0; at < bytes; at++) {
        int64_t i = longest_here(s, text + at, bytes - at);
        if (i < 0) continue;
        *start = at;
        *length = s->by_text[i].bytes;
        return s->by_text[i].id;
    }
    return -1;
}
