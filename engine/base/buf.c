/* Growable bytes: see buf.h. One thread per buffer. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

char *waste_buf_room(waste_buf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;
    char *p;

    if (b->failed || n >= SIZE_MAX / 4 - b->len) {
        b->failed = 1;
        return NULL;
    }
    if (b->len + n + 1 <= b->cap) return b->data + b->len;
    while (cap < b->len + n + 1) cap *= 2;
    p = waste_mem_resize(b->data, cap);
    if (!p) {
        b->failed = 1;
        return NULL;
    }
    b->data = p;
    b->cap = cap;
    return b->data + b->len;
}

void waste_buf_add(waste_buf *b, const void *p, size_t n)
{
    char *to = waste_buf_room(b, n);

    if (!to) return;
    if (n) memcpy(to, p, n);
    b->len += n;
    b->data[b->len] = 0;
}

void waste_buf_text(waste_buf *b, const char *s)
{
    waste_buf_add(b, s, strlen(s));
}

void waste_buf_byte(waste_buf *b, char c)
{
    waste_buf_add(b, &c, 1);
}

void waste_buf_printf(waste_buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;
    char *to;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    to = n < 0 ? NULL : waste_buf_room(b, (size_t)n);
    if (!to) {
        b->failed = 1;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(to, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void waste_buf_clear(waste_buf *b)
{
    waste_mem_free(b->data);
    memset(b, 0, sizeof *b);
}

int waste_parse_u64(const char *s, size_t n, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    size_t i;

    if (n == 0) return -1;
    for (i = 0; i < n; i++) {
        unsigned d = (unsigned char)s[i] - (unsigned)'0';
        if (d > 9 || v > (max - d) / 10 || d > max) return -1;
        v = v * 10 + d;
    }
    *out = v;
    return 0;
}
