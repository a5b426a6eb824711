/* Control tokens: ids and spellings (docs/format.md 8.2 and 8.5).
 * Immutable after opening; any thread may read them. */
#ifndef WASTE_SPECIALS_H
#define WASTE_SPECIALS_H

#include "base/error.h"

/* Longest spelling accepted: it bounds what a search costs per byte. */
#define WASTE_SPECIALS_TEXT 1024

typedef struct waste_specials waste_specials;

/* Reads the JSON array of {"id": number, "text": string} at `path`; a file that
 * is not there is a table without entries. Empty texts are ignored. An id
 * outside 0..n_vocab-1, an id or a text that stands twice, a text that is too
 * long and anything else unexpected is WASTE_FORMAT, naming file and element. */
waste_status waste_specials_open(waste_specials **out, const char *path, int64_t n_vocab,
                                 waste_error *err);
void waste_specials_close(waste_specials *s); /* NULL is fine */

size_t waste_specials_count(const waste_specials *s);
/* Number i in the order of ids; text is borrowed. */
int32_t waste_specials_at(const waste_specials *s, size_t i, waste_str *text);
/* Spelling of an id, borrowed; NULL when it is no special. */
const char *waste_specials_text(const waste_specials *s, int32_t id, size_t *bytes);
/* Id of an exact spelling, -1 if none. */
int32_t waste_specials_find(const waste_specials *s, const char *text, size_t bytes);

/* The earliest special in text[0..bytes), the longest of those that start
 * there: its id and place, or -1. */
int32_t waste_specials_search(const waste_specials *s, const char *text, size_t bytes,
                              size_t *start, size_t *length);

#endif
