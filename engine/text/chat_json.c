/* JSON of prompts and replies: see chat_json.h. Owns the spellings of a
 * document's numbers. Called from any thread; what always holds is that number
 * node i of the tree stands for literal[i]. */
#include "text/chat_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

struct literal {
    size_t at, bytes; /* in spellings */
};

struct waste_chat_json {
    waste_json *root;
    struct literal *literal;
    size_t n, cap, longest;
    waste_buf spellings;
};

/* ---- number literals --------------------------------------------------- */

static size_t digits(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && s[i] >= '0' && s[i] <= '9') i++;
    return i;
}

/* Whether s[0..n) is a number as JSON spells it, and whether an integer. */
static int is_number(const char *s, size_t n, int *integer)
{
    size_t i = n && s[0] == '-', k = digits(s + i, n - i);

    if (k == 0 || (k > 1 && s[i] == '0')) return 0;
    i += k;
    *integer = i == n;
    if (i < n && s[i] == '.') {
        k = digits(s + i + 1, n - i - 1);
        if (k == 0) return 0;
        i += 1 + k;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-')) i++;
        k = digits(s + i, n - i);
        if (k == 0) return 0;
        i += k;
    }
    return i == n;
}

/* The double of a number literal. strtod is shown it without a point ("12.5e3"
 * as "125e2"), because which character that is depends on the host's locale. */
static double literal_value(const char *s, size_t n, waste_buf *scratch)
{
    int64_t shift = 0, exponent = 0;
    int fraction = 0, minus;
    size_t i;

    scratch->len = 0;
    for (i = 0; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') {
            fraction = 1;
            continue;
        }
        waste_buf_byte(scratch, s[i]);
        shift -= fraction;
    }
    if (i < n) {
        i++;
        minus = s[i] == '-';
        if (s[i] == '-' || s[i] == '+') i++;
        for (; i < n; i++) {
            /* beyond any literal that fits memory, so that it decides alone */
            if (exponent < INT64_MAX / 32) exponent = exponent * 10 + (s[i] - '0');
        }
        if (minus) exponent = -exponent;
    }
    waste_buf_printf(scratch, "e%lld", (long long)(exponent + shift));
    return scratch->failed ? 0 : strtod(scratch->data, NULL);
}

/* ---- reading ----------------------------------------------------------- */

static int add_literal(waste_chat_json *d, const char *s, size_t n)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 16;
        struct literal *p =
            cap <= SIZE_MAX / 2 / sizeof *p ? waste_mem_resize(d->literal, cap * sizeof *p) : NULL;
        if (!p) return -1;
        d->literal = p;
        d->cap = cap;
    }
    d->literal[d->n].at = d->spellings.len;
    d->literal[d->n].bytes = n;
    d->n++;
    if (n > d->longest) d->longest = n;
    waste_buf_add(&d->spellings, s, n);
    return d->spellings.failed ? -1 : 0;
}

static size_t string_span(const char *s, size_t n)
{
    size_t i = 1;

    while (i < n && s[i] != '"') i += s[i] == '\\' ? 2 : 1;
    return i < n ? i + 1 : n;
}

static size_t number_span(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && s[i] && strchr("0123456789.eE+-", s[i])) i++;
    return i;
}

/* The text with its numbers replaced by ordinals, padded to the length they had
 * so that positions in messages stay right. What is no number stays as it is,
 * for the parser to refuse. */
static waste_status number_text(waste_chat_json *d, const char *s, size_t n, int finite,
                                const char *what, waste_status st, waste_buf *out, waste_error *err)
{
    waste_buf scratch = {0};
    size_t i, k;
    int failed = 0, integer = 0, huge = 0;

    for (i = 0; i < n && !failed && !huge; i += k) {
        k = 1;
        if (s[i] == '"') {
            k = string_span(s + i, n - i);
            waste_buf_add(out, s + i, k);
        } else if (s[i] == '-' || (s[i] >= '0' && s[i] <= '9')) {
            k = number_span(s + i, n - i);
            if (is_number(s + i, k, &integer)) {
                if (finite || !integer) huge = isinf(literal_value(s + i, k, &scratch));
                if (huge) break;
                waste_buf_printf(out, "%-*zu", k < 24 ? (int)k : 24, d->n);
                failed = add_literal(d, s + i, k);
            } else {
                waste_buf_add(out, s + i, k);
            }
        } else {
            waste_buf_byte(out, s[i]);
        }
    }
    failed |= out->failed | scratch.failed;
    waste_buf_clear(&scratch);
    if (failed) return waste_fail(err, WASTE_NOMEM, "out of memory parsing %s", what);
    if (huge)
        return waste_fail(err, st, "%s: the number %.*s is beyond what a double holds", what,
                          (int)(k < 40 ? k : 40), s + i);
    return WASTE_OK;
}

/* The sentence about a text that does not parse quotes the text itself, unless
 * its integers would be what the parser complains about. */
static waste_status complain(const waste_chat_json *d, const char *text, size_t bytes,
                             const char *what, waste_status st, waste_error *own, waste_error *err)
{
    waste_json *j = NULL;
    waste_error e = {0};

    if (own->status == st && d->longest < 19 &&
        waste_json_parse(&j, text, bytes, 0, what, st, &e) == st)
        *own = e;
    waste_json_free(j);
    return waste_fail(err, own->status, "%s", own->text);
}

waste_status waste_chat_json_open(waste_chat_json **out, const char *text, size_t bytes, int finite,
                                  const char *what, waste_status st, waste_error *err)
{
    waste_chat_json *d = waste_mem_zero(sizeof *d);
    waste_buf numbered = {0};
    waste_error own = {0};
    waste_status got;

    *out = NULL;
    if (!d) return waste_fail(err, WASTE_NOMEM, "out of memory parsing %s", what);
    got = number_text(d, text, bytes, finite, what, st, &numbered, err);
    if (!got) {
        got = waste_json_parse(&d->root, numbered.data, numbered.len, 0, what, st, &own);
        if (got) got = complain(d, text, bytes, what, st, &own, err);
    }
    waste_buf_clear(&numbered);
    if (got) {
        waste_chat_json_close(d);
        return got;
    }
    *out = d;
    return WASTE_OK;
}

void waste_chat_json_close(waste_chat_json *d)
{
    if (!d) return;
    waste_json_free(d->root);
    waste_mem_free(d->literal);
    waste_buf_clear(&d->spellings);
    waste_mem_free(d);
}

const waste_json *waste_chat_json_root(const waste_chat_json *d)
{
    return d->root;
}

const char *waste_chat_json_kind(const waste_json *j)
{
    waste_json_kind k = waste_json_kind_of(j);

    return waste_json_kind_name(k == WASTE_JSON_INT ? WASTE_JSON_REAL : k);
}

/* ---- numbers as text --------------------------------------------------- */

#define DIGITS 17 /* always enough for a double */

/* Decimal digits of x > 0 without the point, and the exponent of the first. */
static int scientific(double x, int n, char *digit)
{
    char s[DIGITS + 16];
    const char *p;
    int k = 0;

    snprintf(s, sizeof s, "%.*e", n - 1, x);
    for (p = s; *p && *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9' && k < n) digit[k++] = *p;
    }
    digit[k] = 0;
    return *p ? atoi(p + 1) : 0;
}

static double value_of(const char *digit, int n, int exponent)
{
    char s[DIGITS + 16];

    snprintf(s, sizeof s, "%se%d", digit, exponent - (n - 1));
    return strtod(s, NULL);
}

/* One more in the last place. */
static void next_up(char *digit, int n, int *exponent)
{
    int i = n - 1;

    while (i >= 0 && digit[i] == '9') digit[i--] = '0';
    if (i >= 0) {
        digit[i]++;
    } else {
        digit[0] = '1';
        ++*exponent;
    }
}

/* The fewest digits that read back as x > 0. Rounding to n digits finds them but
 * for powers of two: below one, doubles are twice as dense, so that the nearest
 * n digits may miss where the next ones up do not. */
static int shortest(double x, char *digit, int *exponent)
{
    int n;

    for (n = 1; n < DIGITS; n++) {
        *exponent = scientific(x, n, digit);
        if (value_of(digit, n, *exponent) == x) return n;
        next_up(digit, n, exponent);
        if (value_of(digit, n, *exponent) == x) return n;
    }
    *exponent = scientific(x, n, digit);
    return n;
}

static void zeros(waste_buf *out, int n)
{
    while (n-- > 0) waste_buf_byte(out, '0');
}

static void add_real(waste_buf *out, double x)
{
    char digit[DIGITS + 1] = "0";
    int n = 1, e = 0;

    if (signbit(x)) waste_buf_byte(out, '-');
    if (x != 0) n = shortest(fabs(x), digit, &e);
    if (e < -4 || e >= 16) {
        waste_buf_byte(out, digit[0]);
        if (n > 1) waste_buf_byte(out, '.');
        waste_buf_text(out, digit + 1);
        waste_buf_printf(out, "e%c%02d", e < 0 ? '-' : '+', abs(e));
    } else if (e < 0) {
        waste_buf_text(out, "0.");
        zeros(out, -e - 1);
        waste_buf_text(out, digit);
    } else if (n <= e + 1) {
        waste_buf_text(out, digit);
        zeros(out, e + 1 - n);
        waste_buf_text(out, ".0");
    } else {
        waste_buf_add(out, digit, (size_t)e + 1);
        waste_buf_byte(out, '.');
        waste_buf_text(out, digit + e + 1);
    }
}

static void add_number(const waste_chat_json *d, const waste_json *j, waste_buf *out)
{
    waste_buf scratch = {0};
    const char *s;
    int64_t i = 0;
    size_t n;
    int integer = 0;

    waste_json_int(j, &i);
    s = d->spellings.data + d->literal[i].at;
    n = d->literal[i].bytes;
    is_number(s, n, &integer);
    if (!integer)
        add_real(out, literal_value(s, n, &scratch));
    else if (n == 2 && s[0] == '-' && s[1] == '0')
        waste_buf_byte(out, '0');
    else
        waste_buf_add(out, s, n);
    out->failed |= scratch.failed;
    waste_buf_clear(&scratch);
}

/* ---- writing ----------------------------------------------------------- */

void waste_chat_json_quote(waste_buf *out, const char *s, size_t n)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    size_t i, k;

    waste_buf_byte(out, '"');
    for (i = 0; i < n; i += k) {
        const char *p = s[i] ? strchr(plain, s[i]) : NULL;

        k = waste_utf8_span(s + i, n - i);
        if (k == 0) {
            waste_buf_text(out, "\xEF\xBF\xBD");
            k = 1;
        } else if (p) {
            waste_buf_byte(out, '\\');
            waste_buf_byte(out, letter[p - plain]);
        } else if ((unsigned char)s[i] < 0x20) {
            waste_buf_printf(out, "\\u%04x", (unsigned)s[i]);
        } else {
            waste_buf_add(out, s + i, k);
        }
    }
    waste_buf_byte(out, '"');
}

typedef struct writer {
    const waste_chat_json *doc;
    const char *comma, *colon;
    int sorted;
    waste_buf *out;
} writer;

typedef struct member {
    const char *key;
    const waste_json *value;
} member;

static void write_value(const writer *w, const waste_json *j);

static void write_member(const writer *w, const char *key, const waste_json *value, int first)
{
    if (!first) waste_buf_text(w->out, w->comma);
    waste_chat_json_quote(w->out, key, strlen(key));
    waste_buf_text(w->out, w->colon);
    write_value(w, value);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const member *)a)->key, ((const member *)b)->key);
}

static void write_sorted(const writer *w, const waste_json *j)
{
    size_t n = waste_json_count(j), i = 0;
    member *m = n ? waste_mem_array(n, sizeof *m) : NULL;
    waste_json_iter it = {0};

    if (n && !m) w->out->failed = 1;
    if (!m) return;
    for (; i < n && waste_json_each(&it, j); i++) {
        m[i].key = it.key;
        m[i].value = it.value;
    }
    qsort(m, n, sizeof *m, by_key);
    for (i = 0; i < n; i++) write_member(w, m[i].key, m[i].value, i == 0);
    waste_mem_free(m);
}

/* Recursion is bounded: no document is deeper than WASTE_JSON_DEPTH. */
static void write_value(const writer *w, const waste_json *j)
{
    waste_json_iter it = {0};
    const char *text;
    size_t n, i;
    int yes = 0;

    switch (waste_json_kind_of(j)) {
    case WASTE_JSON_BOOL:
        waste_json_bool(j, &yes);
        waste_buf_text(w->out, yes ? "true" : "false");
        break;
    case WASTE_JSON_INT: add_number(w->doc, j, w->out); break;
    case WASTE_JSON_TEXT:
        text = waste_json_text(j, &n);
        waste_chat_json_quote(w->out, text, n);
        break;
    case WASTE_JSON_ARRAY:
        waste_buf_byte(w->out, '[');
        for (i = 0; i < waste_json_count(j); i++) {
            if (i) waste_buf_text(w->out, w->comma);
            write_value(w, waste_json_at(j, i));
        }
        waste_buf_byte(w->out, ']');
        break;
    case WASTE_JSON_OBJECT:
        waste_buf_byte(w->out, '{');
        if (w->sorted)
            write_sorted(w, j);
        else
            for (i = 0; waste_json_each(&it, j); i++) write_member(w, it.key, it.value, i == 0);
        waste_buf_byte(w->out, '}');
        break;
    default: waste_buf_text(w->out, "null"); break;
    }
}

void waste_chat_json_compact(const waste_chat_json *d, const waste_json *j, waste_buf *out)
{
    const writer w = {d, ",", ":", 1, out};

    write_value(&w, j);
}

void waste_chat_json_spaced(const waste_chat_json *d, const waste_json *j, waste_buf *out)
{
    const writer w = {d, ", ", ": ", 0, out};

    write_value(&w, j);
}
