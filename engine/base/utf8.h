/* UTF-8 as the standard defines it: no surrogates, no overlong forms, nothing
 * above U+10FFFF. */
#ifndef WASTE_UTF8_H
#define WASTE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes (1..4) of the valid sequence at s, which has n bytes to look at; 0 when
 * there is none. A NUL byte counts as a valid sequence of one, and a reader of
 * a NUL-terminated string may pass n = 4: no byte after a NUL is looked at. */
size_t waste_utf8_span(const char *s, size_t n);

/* Code point of the valid sequence at s of `span` bytes. */
uint32_t waste_utf8_decode(const char *s, size_t span);

/* How many bytes at the end of s[0..n) begin a sequence that more bytes could
 * complete: 0..3. */
size_t waste_utf8_tail(const char *s, size_t n);

int waste_utf8_valid(const char *s, size_t n);

/* Where `word`, in ASCII, begins in s; its letters match in either case. NULL: nowhere. */
const char *waste_utf8_find(const char *s, const char *word);

#endif
