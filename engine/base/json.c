/* JSON reading over jansson: see json.h. Documents are immutable after parsing,
 * so any number of threads may read one. */
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/plat.h"
#include "base/utf8.h"

/* jansson's file loader, which nothing here calls, compares with stdin. The
 * build renames that reference in the static archive to this variable, so that
 * the archive can be linked into a shared object (docs/decisions.md). */
FILE *waste_json_unused_stdin;

/* jansson does not survive every failed allocation: it goes on with half-made
 * state. So a failure leaves the parse by longjmp, and what the parse had
 * allocated by then is freed here; each block is on a list until its parse is
 * over. */
typedef struct block {
    struct block *prev, *next; /* next points to itself: on no list */
    size_t pad[2];             /* keeps what follows aligned as malloc does */
} block;

typedef struct parse {
    jmp_buf failed;
    block head;
} parse;

static _Thread_local parse *current;

static void *block_alloc(size_t size)
{
    block *b = size < SIZE_MAX / 2 ? waste_mem_alloc(sizeof *b + size) : NULL;

    if (!b) {
        if (current) longjmp(current->failed, 1);
        return NULL;
    }
    b->next = b->prev = b;
    if (current) {
        b->next = current->head.next;
        b->prev = &current->head;
        b->next->prev = b;
        current->head.next = b;
    }
    return b + 1;
}

static void unlink_block(block *b)
{
    b->prev->next = b->next;
    b->next->prev = b->prev;
    b->next = b->prev = b;
}

static void block_free(void *p)
{
    block *b = p;

    if (!p) return;
    unlink_block(--b);
    waste_mem_free(b);
}

static void set_up(void)
{
    json_set_alloc_funcs(block_alloc, block_free);
    json_object_seed(0); /* once, not in the middle of a parse */
}

/* Parses with every way out accounted for. NULL with *e filled, or with
 * *out_of_memory set. */
static json_t *load(const char *text, size_t bytes, size_t flags, json_error_t *e,
                    int *out_of_memory)
{
    parse here;
    json_t *volatile j = NULL;

    here.head.next = here.head.prev = &here.head;
    current = &here;
    *out_of_memory = setjmp(here.failed) != 0;
    if (!*out_of_memory) j = json_loadb(text, bytes, flags, e);
    current = NULL;
    while (here.head.next != &here.head) {
        block *b = here.head.next;

        unlink_block(b);
        if (*out_of_memory) waste_mem_free(b);
    }
    return j;
}

/* jansson recurses; depth is bounded before it sees the text. */
static int too_deep(const char *s, size_t n)
{
    size_t i;
    int depth = 0, in_string = 0;

    for (i = 0; i < n; i++) {
        if (in_string) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                in_string = 0;
        } else if (s[i] == '"') {
            in_string = 1;
        } else if (s[i] == '{' || s[i] == '[') {
            if (++depth > WASTE_JSON_DEPTH) return 1;
        } else if (s[i] == '}' || s[i] == ']') {
            depth--;
        }
    }
    return 0;
}

waste_status waste_json_parse(waste_json **out, const char *text, size_t bytes, int unique,
                              const char *what, waste_status st, waste_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    json_error_t e;
    int out_of_memory;

    *out = NULL;
    pthread_once(&once, set_up);
    if (too_deep(text, bytes))
        return waste_fail(err, st, "%s: JSON nested deeper than %d levels", what, WASTE_JSON_DEPTH);
    /* a zero-length buffer must still be a valid pointer for jansson */
    *out = load(bytes ? text : "", bytes,
                JSON_DECODE_ANY | JSON_ALLOW_NUL | (unique ? JSON_REJECT_DUPLICATES : 0), &e,
                &out_of_memory);
    if (*out) return WASTE_OK;
    if (out_of_memory) return waste_fail(err, WASTE_NOMEM, "out of memory parsing %s", what);
    return waste_fail(err, st, "%s: not valid JSON: %s (line %d, column %d)", what, e.text, e.line,
                      e.column);
}

waste_status waste_json_load(waste_json **out, const char *path, waste_error *err)
{
    char *text;
    size_t bytes;
    waste_status st = waste_file_load(path, 1u << 30, &text, &bytes, err);

    *out = NULL;
    if (st) return st;
    st = waste_json_parse(out, text, bytes, 0, path, WASTE_FORMAT, err);
    waste_mem_free(text);
    return st;
}

void waste_json_free(waste_json *j)
{
    json_decref(j);
}

waste_json_kind waste_json_kind_of(const waste_json *j)
{
    if (!j) return WASTE_JSON_ABSENT;
    switch (json_typeof(j)) {
    case JSON_OBJECT: return WASTE_JSON_OBJECT;
    case JSON_ARRAY: return WASTE_JSON_ARRAY;
    case JSON_STRING: return WASTE_JSON_TEXT;
    case JSON_INTEGER: return WASTE_JSON_INT;
    case JSON_REAL: return WASTE_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return WASTE_JSON_BOOL;
    default: return WASTE_JSON_NULL;
    }
}

const char *waste_json_kind_name(waste_json_kind k)
{
    static const char *const names[] = {"nothing",  "null",     "a boolean", "an integer",
                                        "a number", "a string", "an array",  "an object"};
    return names[k];
}

waste_json *waste_json_get(const waste_json *object, const char *key)
{
    return json_object_get(object, key);
}

waste_json *waste_json_at(const waste_json *array, size_t i)
{
    return json_array_get(array, i);
}

size_t waste_json_count(const waste_json *j)
{
    return json_is_array(j) ? json_array_size(j) : json_object_size(j);
}

int waste_json_each(waste_json_iter *it, const waste_json *object)
{
    json_t *o = (json_t *)object; /* jansson's iterators take non-const and change nothing */

    if (!json_is_object(object)) return 0;
    it->at = it->object ? json_object_iter_next(o, it->at) : json_object_iter(o);
    it->object = object;
    if (!it->at) return 0;
    it->key = json_object_iter_key(it->at);
    it->value = json_object_iter_value(it->at);
    return 1;
}

int waste_json_int(const waste_json *j, int64_t *out)
{
    double d;

    if (json_is_integer(j)) {
        *out = json_integer_value(j);
        return 0;
    }
    if (!json_is_real(j)) return -1;
    d = json_real_value(j);
    if (!(fabs(d) <= 9007199254740992.0) || d != floor(d)) return -1;
    *out = (int64_t)d;
    return 0;
}

int waste_json_number(const waste_json *j, double *out)
{
    if (!json_is_number(j)) return -1;
    *out = json_number_value(j);
    return 0;
}

int waste_json_bool(const waste_json *j, int *out)
{
    if (!json_is_boolean(j)) return -1;
    *out = json_is_true(j);
    return 0;
}

const char *waste_json_text(const waste_json *j, size_t *bytes)
{
    if (!json_is_string(j)) return NULL;
    if (bytes) *bytes = json_string_length(j);
    return json_string_value(j);
}

waste_status waste_json_int_in(const waste_json *object, const char *key, int64_t def, int64_t lo,
                               int64_t hi, int64_t *out, const char *where, waste_error *err)
{
    waste_json *j = waste_json_get(object, key);
    int64_t v = def;

    if (j && !json_is_null(j) && (waste_json_int(j, &v) || v < lo || v > hi)) {
        if (json_is_number(j))
            return waste_fail(err, WASTE_FORMAT,
                              "%s: %s is %.17g, wanted an integer from %lld to %lld", where, key,
                              json_number_value(j), (long long)lo, (long long)hi);
        return waste_fail(err, WASTE_FORMAT, "%s: %s is %s, wanted an integer from %lld to %lld",
                          where, key, waste_json_kind_name(waste_json_kind_of(j)), (long long)lo,
                          (long long)hi);
    }
    *out = v;
    return WASTE_OK;
}

waste_status waste_json_number_in(const waste_json *object, const char *key, double def, double lo,
                                  double hi, double *out, const char *where, waste_error *err)
{
    waste_json *j = waste_json_get(object, key);
    double v = def;

    if (j && !json_is_null(j) && (waste_json_number(j, &v) || !(v >= lo && v <= hi))) {
        if (json_is_number(j))
            return waste_fail(err, WASTE_FORMAT, "%s: %s is %g, wanted a number from %g to %g",
                              where, key, v, lo, hi);
        return waste_fail(err, WASTE_FORMAT, "%s: %s is %s, wanted a number from %g to %g", where,
                          key, waste_json_kind_name(waste_json_kind_of(j)), lo, hi);
    }
    *out = v;
    return WASTE_OK;
}

char *waste_json_dump(const waste_json *j, size_t *bytes)
{
    char *s = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)), *copy;

    if (!s) return NULL;
    copy = waste_mem_text(s, strlen(s));
    if (copy && bytes) *bytes = strlen(s);
    block_free(s);
    return copy;
}

void waste_json_quote(waste_buf *b, const char *s, size_t n)
{
    size_t i = 0;

    waste_buf_byte(b, '"');
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        size_t k = waste_utf8_span(s + i, n - i);
        if (k == 0) {
            waste_buf_text(b, "\xEF\xBF\xBD");
            k = 1;
        } else if (c == '"' || c == '\\') {
            waste_buf_byte(b, '\\');
            waste_buf_byte(b, (char)c);
        } else if (c == '\n') {
            waste_buf_text(b, "\\n");
        } else if (c == '\t') {
            waste_buf_text(b, "\\t");
        } else if (c == '\r') {
            waste_buf_text(b, "\\r");
        } else if (c < 0x20) {
            waste_buf_printf(b, "\\u%04x", c);
        } else {
            waste_buf_add(b, s + i, k);
        }
        i += k;
    }
    waste_buf_byte(b, '"');
}
