/* Arguments and options: see ext_args.h. Owns nothing; the tables that say which
 * options there are stand with those who use them. */
#include "ext_args.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

SQLITE_EXTENSION_INIT3

static const char *type_name(int sql_type)
{
    switch (sql_type) {
    case SQLITE_INTEGER: return "an integer";
    case SQLITE_FLOAT: return "a number";
    case SQLITE_BLOB: return "a BLOB";
    case SQLITE_NULL: return "NULL";
    default: return "text";
    }
}

waste_status waste_args_text(sqlite3_value *v, const char *what, waste_str *out, waste_error *err)
{
    out->text = NULL;
    out->bytes = 0;
    switch (sqlite3_value_type(v)) {
    case SQLITE_NULL: return WASTE_OK;
    case SQLITE_BLOB:
        return waste_fail(err, WASTE_ARG, "%s is a BLOB; cast it to TEXT if it is text", what);
    default: break;
    }
    out->text = (const char *)sqlite3_value_text(v);
    if (!out->text) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", what);
    out->bytes = (size_t)sqlite3_value_bytes(v);
    return WASTE_OK;
}

waste_status waste_args_name(sqlite3_value *v, const char *what, const char **out, waste_error *err)
{
    waste_str s;
    waste_status st = waste_args_text(v, what, &s, err);

    *out = s.text;
    if (st) return st;
    if (!s.text) return waste_fail(err, WASTE_ARG, "%s is NULL", what);
    if (!s.bytes) return waste_fail(err, WASTE_ARG, "%s is empty", what);
    if (memchr(s.text, 0, s.bytes))
        return waste_fail(err, WASTE_ARG, "%s holds a NUL byte (after '%.200s')", what, s.text);
    return WASTE_OK;
}

/* ---- option objects ---- */

waste_status waste_args_object_text(waste_json **out, const char *text, size_t bytes,
                                    const char *what, waste_error *err)
{
    waste_status st;
    waste_json_kind kind;

    *out = NULL;
    if (!bytes) return WASTE_OK;
    if (memchr(text, 0, bytes))
        return waste_fail(err, WASTE_ARG, "%s: the text holds a NUL byte", what);
    st = waste_json_parse(out, text, bytes, 1, what, WASTE_ARG, err);
    if (st) return st;
    kind = waste_json_kind_of(*out);
    if (kind == WASTE_JSON_OBJECT) return WASTE_OK;
    waste_json_free(*out);
    *out = NULL;
    return waste_fail(err, WASTE_ARG, "%s: wanted a JSON object, found %s", what,
                      waste_json_kind_name(kind));
}

waste_status waste_args_object(waste_json **out, sqlite3_value *v, const char *what,
                               waste_error *err)
{
    int type = sqlite3_value_type(v);
    waste_str s;
    waste_status st;

    *out = NULL;
    if (type == SQLITE_NULL) return WASTE_OK;
    if (type != SQLITE_TEXT)
        return waste_fail(err, WASTE_ARG, "%s: wanted a JSON object, found %s", what,
                          type_name(type));
    st = waste_args_text(v, what, &s, err);
    return st ? st : waste_args_object_text(out, s.text, s.bytes, what, err);
}

/* ---- keys ---- */

#define NAME_MAX_BYTES 63
#define FAR            1000

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned waste_args_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b), i, j;
    unsigned d[3][NAME_MAX_BYTES + 1];

    if (na > NAME_MAX_BYTES || nb > NAME_MAX_BYTES) return FAR;
    for (j = 0; j <= nb; j++) d[0][j] = (unsigned)j;
    for (i = 1; i <= na; i++) {
        unsigned *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (j = 1; j <= nb; j++) {
            unsigned best = least(up[j], row[j - 1]) + 1;
            best = least(best, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = least(best, up2[j - 2] + 1);
            row[j] = best;
        }
    }
    return d[na % 3][nb];
}

unsigned waste_args_slack(const char *name)
{
    return (unsigned)least((unsigned)strlen(name) / 3 + 1, 3);
}

/* A list of more than a few keys is a page nobody reads in a message. */
#define KEYS_LISTED 8

static waste_status unknown_key(const waste_option *table, size_t n, unsigned groups,
                                const char *key, const char *who, waste_error *err)
{
    const waste_option *best = NULL;
    unsigned far = waste_args_slack(key) + 1, d;
    waste_buf known = {0};
    waste_status st;
    size_t i, listed = 0;

    for (i = 0; i < n; i++)
        if (!(table[i].groups & groups) && strcmp(table[i].key, key) == 0)
            return waste_fail(err, WASTE_ARG, "%s takes no option '%s'", who, key);
    for (i = 0; i < n; i++) {
        if (!(table[i].groups & groups)) continue;
        if (listed++ < KEYS_LISTED)
            waste_buf_printf(&known, "%s%s", known.len ? ", " : "", table[i].key);
        d = waste_args_distance(key, table[i].key);
        if (d < far) {
            far = d;
            best = &table[i];
        }
    }
    if (best)
        st = waste_fail(err, WASTE_ARG, "%s: unknown option '%.100s' (did you mean '%s'?)", who,
                        key, best->key);
    else if (listed > KEYS_LISTED)
        st = waste_fail(err, WASTE_ARG,
                        "%s: unknown option '%.100s' (there are %zu: see docs/sql.md)", who, key,
                        listed);
    else
        st = waste_fail(err, WASTE_ARG, "%s: unknown option '%.100s' (known: %s)", who, key,
                        known.failed || !known.data ? "none" : known.data);
    waste_buf_clear(&known);
    return st;
}

/* Ends in what was found, so that the sentence says what to change. */
static waste_status wrong_value(const waste_option *o, const waste_json *value, const char *who,
                                waste_error *err)
{
    waste_json_kind kind = waste_json_kind_of(value);
    size_t bytes;
    const char *text = waste_json_text(value, &bytes);
    char number[WASTE_ARGS_DECIMAL];
    int64_t i;
    double d;

    if (text && memchr(text, 0, bytes))
        return waste_fail(err, WASTE_ARG, "%s: option '%s' holds a NUL byte, wanted %s", who,
                          o->key, o->wanted);
    if (text)
        return waste_fail(err, WASTE_ARG, "%s: option '%s' is \"%.*s\"%s, wanted %s", who, o->key,
                          (int)(bytes < 40 ? bytes : 40), text, bytes < 40 ? "" : "...", o->wanted);
    if (!waste_json_int(value, &i))
        return waste_fail(err, WASTE_ARG, "%s: option '%s' is %lld, wanted %s", who, o->key,
                          (long long)i, o->wanted);
    if (!waste_json_number(value, &d)) {
        waste_args_decimal(number, d);
        return waste_fail(err, WASTE_ARG, "%s: option '%s' is %s, wanted %s", who, o->key, number,
                          o->wanted);
    }
    return waste_fail(err, WASTE_ARG, "%s: option '%s' is %s, wanted %s", who, o->key,
                      waste_json_kind_name(kind), o->wanted);
}

static int read_bool(const waste_json *value, int *out)
{
    int64_t i;

    if (!waste_json_bool(value, out)) return 0;
    if (waste_json_int(value, &i) || (i != 0 && i != 1)) return -1;
    *out = (int)i;
    return 0;
}

/* Nonzero when the value is not what the row wants. */
static int read_plain(const waste_option *o, const waste_json *value, void *field)
{
    waste_str *s = field;
    int64_t i;
    double d;

    switch (o->kind) {
    case WASTE_OPTION_BOOL: return read_bool(value, field);
    case WASTE_OPTION_INT:
        if (waste_json_int(value, &i) || (double)i < o->lo || (double)i > o->hi) return -1;
        *(int64_t *)field = i;
        return 0;
    case WASTE_OPTION_NUMBER:
        if (waste_json_number(value, &d) || !(d >= o->lo && d <= o->hi)) return -1;
        *(double *)field = d;
        return 0;
    default: s->text = waste_json_text(value, &s->bytes); break;
    }
    if (!s->text) return -1;
    return o->kind == WASTE_OPTION_PATH && (!s->bytes || memchr(s->text, 0, s->bytes)) ? -1 : 0;
}

waste_status waste_args_read(const waste_option *table, size_t n, unsigned groups, void *into,
                             unsigned *given, const waste_json *object, const char *who,
                             waste_error *err)
{
    waste_json_iter it = {0};
    waste_status st = WASTE_OK;
    size_t i;

    if (given) *given = 0;
    while (!st && waste_json_each(&it, object)) {
        const waste_option *o = NULL;
        for (i = 0; i < n && !o; i++)
            if ((table[i].groups & groups) && strcmp(table[i].key, it.key) == 0) o = &table[i];
        if (!o) return unknown_key(table, n, groups, it.key, who, err);
        if (waste_json_kind_of(it.value) == WASTE_JSON_NULL) continue;
        if (o->kind == WASTE_OPTION_CUSTOM)
            st = o->read(it.value, (char *)into + o->offset, err);
        else if (read_plain(o, it.value, (char *)into + o->offset))
            st = WASTE_ARG;
        if (st == WASTE_ARG) wrong_value(o, it.value, who, err); /* unless `read` said more */
        if (given) *given |= 1u << (unsigned)(o - table);
    }
    return st;
}

waste_status waste_args_ids(const waste_json *array, int32_t **out, size_t *n, waste_error *err)
{
    size_t count = waste_json_count(array), i;
    int64_t v;

    *out = NULL;
    *n = 0;
    if (waste_json_kind_of(array) != WASTE_JSON_ARRAY) return WASTE_ARG;
    if (!count) return WASTE_OK;
    *out = waste_mem_array(count, sizeof **out);
    if (!*out) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu token ids", count);
    for (i = 0; i < count; i++) {
        const waste_json *j = waste_json_at(array, i);
        if (waste_json_int(j, &v) || v < 0 || v > INT32_MAX) {
            waste_mem_free(*out);
            *out = NULL;
            return waste_fail(err, WASTE_ARG,
                              "tokens[%zu] is %s, wanted an id from 0 to 2147483647", i,
                              waste_json_kind_of(j) == WASTE_JSON_INT
                                  ? "out of range"
                                  : waste_json_kind_name(waste_json_kind_of(j)));
        }
        (*out)[i] = (int32_t)v;
    }
    *n = count;
    return WASTE_OK;
}

int waste_args_word(const waste_json *value, const char *const *names)
{
    size_t bytes;
    const char *text = waste_json_text(value, &bytes);
    int i;

    for (i = 0; text && names[i]; i++)
        if (bytes == strlen(names[i]) && memcmp(text, names[i], bytes) == 0) return i;
    return -1;
}

void waste_args_decimal(char out[WASTE_ARGS_DECIMAL], double v)
{
    sqlite3_snprintf(WASTE_ARGS_DECIMAL, out, v == floor(v) && fabs(v) < 1e18 ? "%.0f" : "%!.15g",
                     v);
}

/* ---- results ---- */

void waste_args_number(waste_buf *b, double v)
{
    char text[48];

    if (!isfinite(v)) {
        waste_buf_text(b, "null");
        return;
    }
    sqlite3_snprintf((int)sizeof text, text, "%!.12g", v);
    waste_buf_text(b, text);
}

int waste_args_code(waste_status st)
{
    switch (st) {
    case WASTE_OK: return SQLITE_OK;
    case WASTE_NOMEM: return SQLITE_NOMEM;
    case WASTE_CANCELLED: return SQLITE_INTERRUPT;
    case WASTE_BUSY: return SQLITE_BUSY;
    default: return SQLITE_ERROR;
    }
}

void waste_args_fail(sqlite3_context *ctx, const waste_error *err)
{
    int rc = waste_args_code(err->status);

    if (rc == SQLITE_NOMEM) {
        sqlite3_result_error_nomem(ctx);
    } else if (rc == SQLITE_INTERRUPT) {
        sqlite3_result_error_code(ctx, rc);
    } else {
        sqlite3_result_error(ctx, err->text[0] ? err->text : "unknown error", -1);
        if (rc != SQLITE_ERROR) sqlite3_result_error_code(ctx, rc);
    }
}

void waste_args_result(sqlite3_context *ctx, waste_buf *text)
{
    if (text->failed) {
        sqlite3_result_error_nomem(ctx);
        waste_buf_clear(text);
    } else if (!text->data) {
        sqlite3_result_text(ctx, "", 0, SQLITE_STATIC);
    } else {
        sqlite3_result_text64(ctx, text->data, text->len, waste_mem_free, SQLITE_UTF8);
        memset(text, 0, sizeof *text); /* the bytes are SQLite's now */
    }
}

void waste_args_result_json(sqlite3_context *ctx, waste_buf *text)
{
    waste_args_result(ctx, text);
    sqlite3_result_subtype(ctx, 'J'); /* what SQLite's json1 marks its own with */
}
