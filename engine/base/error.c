/* Error sentences. Callable from any thread; owns no state. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

const char *waste_version(void)
{
    return WASTE_VERSION;
}

/* File names and JSON keys come from outside and end up in the sentence. */
static void make_printable(char *s)
{
    unsigned char *p = (unsigned char *)s;

    while (*p) {
        size_t n = waste_utf8_span((const char *)p, 4);
        if (*p < 0x20 || *p == 0x7f || n == 0) {
            *p++ = '?';
        } else {
            p += n;
        }
    }
}

waste_status waste_fail(waste_error *err, waste_status st, const char *fmt, ...)
{
    va_list ap;

    if (!err || err->status != WASTE_OK) return st;
    err->status = st;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    make_printable(err->text);
    return st;
}
