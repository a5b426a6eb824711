/* The pattern's matcher. Owns no state; any thread may call it.
 *
 * The pattern, whose first matching alternative wins (U and W are the classes
 * UPPER and LOWER of pretok.h, S is white space):
 *
 *   1  Han+
 *   2  [^\r\n L N]? U* W+ suffix?
 *   3  [^\r\n L N]? U+ W* suffix?
 *   4  N{1,3}
 *   5  " "? [^S L N]+ [\r\n]*
 *   6  S* [\r\n]+
 *   7  S+ (?!non-S)
 *   8  S+
 *
 * Each alternative looks at a character a bounded number of times and either
 * takes what it looked at or leaves it to one that will, so the whole is linear
 * in the text. */
#include "text/pretok.h"

#include "base/utf8.h"
#include "text/unicode_tables.h"

#define HAN    WASTE_PRETOK_HAN
#define LETTER WASTE_PRETOK_LETTER
#define NUMBER WASTE_PRETOK_NUMBER
#define UPPER  WASTE_PRETOK_UPPER
#define LOWER  WASTE_PRETOK_LOWER
#define SPACE  WASTE_PRETOK_SPACE
#define BREAK  WASTE_PRETOK_BREAK

static unsigned class_in_table(uint32_t c)
{
    return unicode_block[unicode_index[c / 256]][c % 256];
}

unsigned waste_pretok_class_of(uint32_t c)
{
    return c <= 0x10FFFF ? class_in_table(c) : 0;
}

/* Class of the character at s, n > 0 bytes to look at; *span gets its bytes. */
static unsigned read_class(const char *s, size_t n, size_t *span)
{
    unsigned char first = (unsigned char)*s;

    if (first < 0x80) {
        *span = 1;
        return unicode_block[0][first];
    }
    *span = waste_utf8_span(s, n);
    if (*span) return class_in_table(waste_utf8_decode(s, *span));
    *span = 1;
    return 0;
}

/* Where the characters that share a bit with `mask` end, from `at` on. */
static size_t run_of(const char *s, size_t n, size_t at, unsigned mask)
{
    size_t span;

    while (at < n && (read_class(s + at, n - at, &span) & mask)) at += span;
    return at;
}

/* The same of characters that share none. */
static size_t run_without(const char *s, size_t n, size_t at, unsigned mask)
{
    size_t span;

    while (at < n && !(read_class(s + at, n - at, &span) & mask)) at += span;
    return at;
}

static int letter_is(const char *s, size_t n, size_t at, char lower)
{
    return at < n && (s[at] | 0x20) == lower;
}

/* End of (?i:'s|'t|'re|'ve|'m|'ll|'d) at `at`, or `at`. Under Unicode's simple
 * case folding U+017F, the long s, is an s. */
static size_t suffix(const char *s, size_t n, size_t at)
{
    size_t a = at + 1;

    if (at >= n || s[at] != '\'') return at;
    if (letter_is(s, n, a, 's') || letter_is(s, n, a, 't')) return a + 1;
    if (n - a >= 2 && s[a] == '\xC5' && s[a + 1] == '\xBF') return a + 2;
    if (letter_is(s, n, a, 'r') && letter_is(s, n, a + 1, 'e')) return a + 2;
    if (letter_is(s, n, a, 'v') && letter_is(s, n, a + 1, 'e')) return a + 2;
    if (letter_is(s, n, a, 'm')) return a + 1;
    if (letter_is(s, n, a, 'l') && letter_is(s, n, a + 1, 'l')) return a + 2;
    if (letter_is(s, n, a, 'd')) return a + 1;
    return at;
}

/* U* W+ from `at`, or `at` when it does not match. *upper gets the end of the
 * run of U, which is what U+ W* matches when U* W+ does not. Where the run is
 * not followed by a W, the last character in it that is also a W has to serve. */
static size_t lower_word(const char *s, size_t n, size_t at, size_t *upper)
{
    size_t i = at, span, last = at;
    unsigned c = 0;

    while (i < n) {
        c = read_class(s + i, n - i, &span);
        if (!(c & UPPER)) break;
        i += span;
        if (c & LOWER) last = i;
    }
    *upper = i;
    return i < n && (c & LOWER) ? run_of(s, n, i, LOWER) : last;
}

/* Alternatives 2 and 3; 0 when neither matches. `lead` is the bytes of the
 * first character when it may stand before the word, else 0. */
static size_t word(const char *s, size_t n, size_t lead)
{
    size_t end, upper_led, upper;

    end = lower_word(s, n, lead, &upper_led);
    if (end > lead) return suffix(s, n, end);
    if (lead) {
        /* The lead itself may be a mark, which is a word of its own. */
        end = lower_word(s, n, 0, &upper);
        if (end > 0) return suffix(s, n, end);
    }
    /* Without its lead alternative 3 has nothing left to try: a lead that is in
     * U is a mark, so in W too, and was taken above. */
    return upper_led > lead ? suffix(s, n, upper_led) : 0;
}

static size_t digits(const char *s, size_t n)
{
    size_t at = 0, span;
    int i;

    for (i = 0; i < 3 && at < n && (read_class(s + at, n - at, &span) & NUMBER); i++) at += span;
    return at;
}

/* Alternatives 6 to 8, at a white space character. */
static size_t spaces(const char *s, size_t n)
{
    size_t at = 0, span, after_break = 0, before_last = 0;

    while (at < n) {
        unsigned c = read_class(s + at, n - at, &span);
        if (!(c & SPACE)) break;
        before_last = at;
        at += span;
        if (c & BREAK) after_break = at;
    }
    if (after_break) return after_break;
    return at < n && before_last ? before_last : at;
}

size_t waste_pretok_piece(const char *s, size_t n)
{
    size_t span, end, at;
    unsigned c = read_class(s, n, &span);

    if (c & HAN) return run_of(s, n, span, HAN);
    end = word(s, n, c & (BREAK | LETTER | NUMBER) ? 0 : span);
    if (end) return end;
    if (c & NUMBER) return digits(s, n);
    at = *s == ' ' ? 1 : 0;
    end = run_without(s, n, at, SPACE | LETTER | NUMBER);
    if (end > at) return run_of(s, n, end, BREAK);
    return spaces(s, n);
}

/* A run's count starts again at each change between white space and other
 * characters; the cut is made before the character that would exceed it. */
size_t waste_pretok_stretch(const char *s, size_t n, size_t *chunk)
{
    size_t at = 0, run = 0, span;
    unsigned before = 0;

    if (*chunk == 0) *chunk = WASTE_PRETOK_CHUNK;
    while (at<n && * chunk> 0) {
        unsigned space = read_class(s + at, n - at, &span) & SPACE;
        run = space == before ? run + 1 : 1;
        if (run > WASTE_PRETOK_RUN) break;
        before = space;
        at += span;
        (*chunk)--;
    }
    return at;
}
