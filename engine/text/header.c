/* Headers of elements: see header.h. */
#include "text/header.h"

#include <string.h>

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

waste_str waste_header_trim(waste_str s)
{
    while (s.bytes && is_space(s.text[s.bytes - 1])) s.bytes--;
    while (s.bytes && is_space(*s.text)) {
        s.text++;
        s.bytes--;
    }
    return s;
}

static waste_str cut(waste_str s, size_t from, size_t to)
{
    waste_str c = {s.text + from, to - from};

    return c;
}

/* Index of c at or after `from`; s.bytes when there is none. */
static size_t find(waste_str s, size_t from, char c)
{
    const char *p = from < s.bytes ? memchr(s.text + from, c, s.bytes - from) : NULL;

    return p ? (size_t)(p - s.text) : s.bytes;
}

waste_str waste_header_name(waste_str header)
{
    return cut(header, 0, find(header, 0, ' '));
}

/* Takes the next key="value" off the front of h. Returns 0 at the end. */
static int next_attr(waste_str *h, waste_str *key, waste_str *value)
{
    size_t eq, from, to;

    while (h->bytes && is_space(*h->text)) *h = cut(*h, 1, h->bytes);
    eq = find(*h, 0, '=');
    if (eq == h->bytes) return 0;
    *key = waste_header_trim(cut(*h, 0, eq));
    from = eq + 1;
    if (from < h->bytes && h->text[from] == '"') {
        from++;
        to = find(*h, from, '"');
    } else {
        to = find(*h, from, ' ');
    }
    *value = cut(*h, from, to);
    *h = cut(*h, to < h->bytes ? to + 1 : to, h->bytes);
    return 1;
}

static int key_is(waste_str key, const char *name)
{
    return key.bytes == strlen(name) && memcmp(key.text, name, key.bytes) == 0;
}

int waste_header_attribute(waste_str header, const char *name, waste_buf *out)
{
    waste_str rest = cut(header, waste_header_name(header).bytes, header.bytes);
    waste_str key, value, found = {NULL, 0};
    size_t i;

    out->len = 0;
    while (next_attr(&rest, &key, &value)) {
        if (key_is(key, name)) found = value;
    }
    if (!found.text) return 0;
    for (i = 0; i < found.bytes; i++) {
        const waste_str tail = cut(found, i, found.bytes);
        if (tail.bytes >= 6 && memcmp(tail.text, "&quot;", 6) == 0) {
            waste_buf_byte(out, '"');
            i += 5;
        } else if (tail.bytes >= 5 && memcmp(tail.text, "&amp;", 5) == 0) {
            waste_buf_byte(out, '&');
            i += 4;
        } else {
            waste_buf_byte(out, *tail.text);
        }
    }
    return 1;
}
