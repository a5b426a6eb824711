/* Stop strings: one Knuth-Morris-Pratt automaton per string, run side by side,
 * and the text they hold back. Owns copies of the strings. One thread at a
 * time; what always holds is that `held` is the longest end of the text so far
 * that begins any of the strings. */
#include "text/stop.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

typedef struct matcher {
    unsigned char *text;
    /* border[i]: longest proper beginning of text[0..i] that also ends it */
    uint16_t *border;
    size_t bytes;
    size_t at; /* bytes of the string that the text ends in; < bytes */
} matcher;

struct waste_stop {
    matcher *m;
    size_t n;
    waste_buf held;
    int hit;
};

static waste_status matcher_init(matcher *m, waste_str s, size_t i, waste_error *err)
{
    size_t at = 0, k;

    if (s.bytes == 0) return waste_fail(err, WASTE_ARG, "stop[%zu] is empty", i);
    if (s.bytes > WASTE_STOP_BYTES_MAX)
        return waste_fail(err, WASTE_ARG, "stop[%zu] has %zu bytes, at most %d are allowed", i,
                          s.bytes, WASTE_STOP_BYTES_MAX);
    if (!waste_utf8_valid(s.text, s.bytes))
        return waste_fail(err, WASTE_ARG, "stop[%zu] is not valid UTF-8", i);
    m->text = (unsigned char *)waste_mem_text(s.text, s.bytes);
    m->border = waste_mem_array(s.bytes, sizeof *m->border);
    if (!m->text || !m->border)
        return waste_fail(err, WASTE_NOMEM, "out of memory for stop[%zu]", i);
    m->bytes = s.bytes;
    for (k = 1; k < m->bytes; k++) {
        while (at > 0 && m->text[k] != m->text[at]) at = m->border[at - 1];
        if (m->text[k] == m->text[at]) at++;
        m->border[k] = (uint16_t)at;
    }
    return WASTE_OK;
}

waste_status waste_stop_open(waste_stop **out, const waste_str *strings, size_t n, waste_error *err)
{
    waste_status st = WASTE_OK;
    waste_stop *s;
    size_t i;

    *out = NULL;
    if (n > WASTE_STOP_MAX)
        return waste_fail(err, WASTE_ARG, "%zu stop strings, at most %d are allowed", n,
                          WASTE_STOP_MAX);
    s = waste_mem_zero(sizeof *s);
    if (s && n) s->m = waste_mem_array(n, sizeof *s->m);
    if (!s || (n && !s->m)) st = waste_fail(err, WASTE_NOMEM, "out of memory for stop strings");
    for (i = 0; !st && i < n; i++) {
        s->n = i + 1;
        st = matcher_init(&s->m[i], strings[i], i, err);
    }
    if (st) {
        waste_stop_close(s);
        return st;
    }
    *out = s;
    return WASTE_OK;
}

void waste_stop_close(waste_stop *s)
{
    size_t i;

    if (!s) return;
    for (i = 0; i < s->n; i++) {
        waste_mem_free(s->m[i].text);
        waste_mem_free(s->m[i].border);
    }
    waste_mem_free(s->m);
    waste_buf_clear(&s->held);
    waste_mem_free(s);
}

/* The bytes of the longest string that c completes; 0 when none is complete.
 * *held: how much of the text's end must wait. */
static size_t step(waste_stop *s, unsigned char c, size_t *held)
{
    size_t i, longest = 0;

    *held = 0;
    for (i = 0; i < s->n; i++) {
        matcher *m = &s->m[i];
        while (m->at > 0 && m->text[m->at] != c) m->at = m->border[m->at - 1];
        if (m->text[m->at] == c) m->at++;
        if (m->at == m->bytes) {
            if (m->bytes > longest) longest = m->bytes;
            m->at = m->border[m->at - 1];
        }
        if (m->at > *held) *held = m->at;
    }
    return longest;
}

waste_status waste_stop_push(waste_stop *s, const char *text, size_t bytes, waste_buf *out,
                             int *hit, waste_error *err)
{
    size_t i, held = 0, cut = 0, keep;

    *hit = s->hit;
    if (s->hit || bytes == 0) return WASTE_OK;
    for (i = 0; i < bytes && !cut; i++) cut = step(s, (unsigned char)text[i], &held);
    waste_buf_add(&s->held, text, i);
    if (s->held.failed) return waste_fail(err, WASTE_NOMEM, "out of memory for held text");

    /* i bytes were looked at; the string that was found was held in full */
    keep = cut ? cut : held;
    waste_buf_add(out, s->held.data, s->held.len - keep);
    if (out->failed) return waste_fail(err, WASTE_NOMEM, "out of memory for released text");
    if (cut) {
        s->hit = *hit = 1;
        keep = 0;
    }
    memmove(s->held.data, s->held.data + s->held.len - keep, keep);
    s->held.len = keep;
    return WASTE_OK;
}

waste_status waste_stop_end(waste_stop *s, waste_buf *out, waste_error *err)
{
    if (s->held.len) waste_buf_add(out, s->held.data, s->held.len);
    s->held.len = 0;
    return out->failed ? waste_fail(err, WASTE_NOMEM, "out of memory for released text") : WASTE_OK;
}
