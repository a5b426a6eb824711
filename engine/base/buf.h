/* Growable bytes, and number parsing that refuses what it does not understand. */
#ifndef WASTE_BUF_H
#define WASTE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zero-initialised is empty. After a failed growth `failed` stays set and
 * further appends do nothing, so a builder checks once at the end. */
typedef struct waste_buf {
    char *data; /* always followed by a NUL once anything was appended */
    size_t len, cap;
    int failed;
} waste_buf;

void waste_buf_add(waste_buf *b, const void *p, size_t n);
void waste_buf_text(waste_buf *b, const char *s); /* NUL-terminated */
void waste_buf_byte(waste_buf *b, char c);
void waste_buf_printf(waste_buf *b, const char *fmt, ...) WASTE_PRINTF(2, 3);
/* Room for n more bytes at data + len (then add to len); NULL when out of memory. */
char *waste_buf_room(waste_buf *b, size_t n);
void waste_buf_clear(waste_buf *b);

/* Decimal digits only, the whole of s[0..n), at most `max`. 0 on success. */
int waste_parse_u64(const char *s, size_t n, uint64_t max, uint64_t *out);

#endif
