/* JSON in prompts and replies (docs/chat.md 3.2): documents whose numbers keep
 * the spelling they came in, and the two ways to write them.
 *
 * Parsing is base/json.h's, which knows 64-bit integers only. So it is shown
 * every number as its ordinal, and the spellings are kept beside the tree: never
 * ask base/json.h for the value of a number of such a document.
 *
 * A document is immutable after opening; any thread may read it. */
#ifndef WASTE_CHAT_JSON_H
#define WASTE_CHAT_JSON_H

#include "base/buf.h"
#include "base/json.h"

typedef struct waste_chat_json waste_chat_json;

/* As waste_json_parse; of duplicate keys the last value counts, at the place of
 * the first. A number with a fraction or an exponent that overflows a double is
 * an error; with `finite` an integer that does is one too. */
waste_status waste_chat_json_open(waste_chat_json **out, const char *text, size_t bytes, int finite,
                                  const char *what, waste_status st, waste_error *err);
void waste_chat_json_close(waste_chat_json *d);
const waste_json *waste_chat_json_root(const waste_chat_json *d); /* borrowed, as all its nodes */

/* "a number", "an object", ... of a node of a document; "nothing" of NULL. */
const char *waste_chat_json_kind(const waste_json *j);

/* Append a node of document d; out->failed says when memory ran out. Integers
 * keep all their digits; other numbers get the fewest that give the same double,
 * plainly and with a fraction when 1e-4 <= |x| < 1e16, else with an exponent. */
void waste_chat_json_compact(const waste_chat_json *d, const waste_json *j, waste_buf *out);
void waste_chat_json_spaced(const waste_chat_json *d, const waste_json *j, waste_buf *out);
/* compact: no spaces, keys sorted by code point at every depth. spaced: ", " and
 * ": ", keys as received. */

/* Appends s[0..n) as a JSON string. UTF-8 stays as it is, also 0x7F and '/';
 * bytes that are none become U+FFFD. */
void waste_chat_json_quote(waste_buf *out, const char *s, size_t n);

#endif
