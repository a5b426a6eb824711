/* UTF-8 scanning, and the stream that never emits half a code point.
 * Callable from any thread; owns no state. */
#include "base/utf8.h"

#include <string.h>

#include "waste.h"

/* The Unicode standard's table 3-7: allowed ranges of the second byte. */
static int second_ok(unsigned char a, unsigned char b)
{
    switch (a) {
    case 0xE0: return b >= 0xA0 && b <= 0xBF;
    case 0xED: return b >= 0x80 && b <= 0x9F;
    case 0xF0: return b >= 0x90 && b <= 0xBF;
    case 0xF4: return b >= 0x80 && b <= 0x8F;
    default: return b >= 0x80 && b <= 0xBF;
    }
}

static size_t length_of(unsigned char a)
{
    if (a < 0x80) return 1;
    if (a >= 0xC2 && a <= 0xDF) return 2;
    if (a >= 0xE0 && a <= 0xEF) return 3;
    if (a >= 0xF0 && a <= 0xF4) return 4;
    return 0;
}

/* Leading bytes of s that agree with one sequence; `need` gets its length. */
static size_t matched(const unsigned char *s, size_t n, size_t *need)
{
    size_t i;

    *need = n ? length_of(s[0]) : 0;
    if (*need == 0) return 0;
    for (i = 1; i < *need; i++) {
        if (i == n) return i;
        if (i == 1 ? !second_ok(s[0], s[1]) : (s[i] & 0xC0) != 0x80) return 0;
    }
    return *need;
}

size_t waste_utf8_span(const char *s, size_t n)
{
    size_t need, got = matched((const unsigned char *)s, n, &need);

    return got == need ? got : 0;
}

uint32_t waste_utf8_decode(const char *s, size_t span)
{
    const unsigned char *p = (const unsigned char *)s;
    static const unsigned char lead[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = p[0] & lead[span];
    size_t i;

    for (i = 1; i < span; i++) c = c << 6 | (p[i] & 0x3F);
    return c;
}

size_t waste_utf8_tail(const char *s, size_t n)
{
    size_t back, need;

    for (back = 1; back <= 3 && back <= n; back++) {
        if (matched((const unsigned char *)s + n - back, back, &need) == back && need > back)
            return back;
    }
    return 0;
}

int waste_utf8_valid(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n) {
        size_t k = waste_utf8_span(s + i, n - i);
        if (k == 0) return 0;
        i += k;
    }
    return 1;
}

static size_t replace(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

/* One U+FFFD for each maximal part of a sequence that cannot be completed, as
 * the Unicode standard recommends (section 3.9). */
size_t waste_utf8_push(waste_utf8 *u, const char *in, size_t bytes, char *out)
{
    size_t i, w = 0;

    for (i = 0; i < bytes; i++) {
        size_t need, got;

        u->held[u->n++] = (unsigned char)in[i];
        got = matched(u->held, u->n, &need);
        if (got == u->n && got < need) continue;
        if (got == u->n) {
            memcpy(out + w, u->held, got);
            w += got;
            u->n = 0;
        } else if (u->n == 1) {
            w += replace(out + w);
            u->n = 0;
        } else {
            /* what was held can never complete; the last byte starts anew */
            w += replace(out + w);
            u->n = 0;
            i--;
        }
    }
    return w;
}

size_t waste_utf8_end(waste_utf8 *u, char *out)
{
    size_t w = u->n ? replace(out) : 0;

    u->n = 0;
    return w;
}

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

const char *waste_utf8_find(const char *s, const char *word)
{
    size_t n;

    for (; *s; s++) {
        for (n = 0; word[n] && lower(s[n]) == lower(word[n]); n++) continue;
        if (!word[n]) return s;
    }
    return NULL;
}
