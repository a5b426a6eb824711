/* Typed, bounded reads of JSON somebody else wrote. Parsing is jansson's; this
 * file decides what is accepted and how a wrong value is reported.
 *
 * A waste_json is a borrowed node of a document; NULL stands for "absent" and
 * every reader accepts it. */
#ifndef WASTE_JSON_H
#define WASTE_JSON_H

#include "base/error.h"

typedef struct json_t waste_json;

#define WASTE_JSON_DEPTH 64 /* deepest nesting accepted */

typedef enum waste_json_kind {
    WASTE_JSON_ABSENT,
    WASTE_JSON_NULL,
    WASTE_JSON_BOOL,
    WASTE_JSON_INT,
    WASTE_JSON_REAL,
    WASTE_JSON_TEXT,
    WASTE_JSON_ARRAY,
    WASTE_JSON_OBJECT
} waste_json_kind;

/* Parses text[0..bytes). `what` names it in messages ("x/manifest.json",
 * "options"). Duplicate keys are an error when `unique`, otherwise the last one
 * wins; nesting deeper than WASTE_JSON_DEPTH, bytes after the value and NUL
 * bytes are errors. Errors carry status `st`. Free with waste_json_free. */
waste_status waste_json_parse(waste_json **out, const char *text, size_t bytes, int unique,
                              const char *what, waste_status st, waste_error *err);
/* The same of a whole file of at most 1 GiB. */
waste_status waste_json_load(waste_json **out, const char *path, waste_error *err);
void waste_json_free(waste_json *j);

waste_json_kind waste_json_kind_of(const waste_json *j);
const char *waste_json_kind_name(waste_json_kind k); /* "a number", "an object", ... */

/* Borrowed member or element; NULL when there is none or j is of another kind. */
waste_json *waste_json_get(const waste_json *object, const char *key);
waste_json *waste_json_at(const waste_json *array, size_t i);
size_t waste_json_count(const waste_json *array_or_object);
/* Members of an object in the order written: (key, value) of number i. O(1) when
 * called with ascending i is not promised; use waste_json_each for loops. */
typedef struct waste_json_iter {
    const waste_json *object;
    void *at;
    const char *key;
    waste_json *value;
} waste_json_iter;
int waste_json_each(waste_json_iter *it, const waste_json *object); /* zeroed it; 0 at the end */

/* A value as C. WASTE_JSON_INT also accepts a real with an integral value that
 * a double holds exactly. Nonzero when j is absent or of another kind. */
int waste_json_int(const waste_json *j, int64_t *out);
int waste_json_number(const waste_json *j, double *out);
int waste_json_bool(const waste_json *j, int *out);
const char *waste_json_text(const waste_json *j, size_t *bytes); /* NULL if not text */

/* Member `key` of `object` as an integer in [lo, hi]; absent or null gives
 * `def`. Anything else is an error naming `where` and the key. */
waste_status waste_json_int_in(const waste_json *object, const char *key, int64_t def, int64_t lo,
                               int64_t hi, int64_t *out, const char *where, waste_error *err);
waste_status waste_json_number_in(const waste_json *object, const char *key, double def, double lo,
                                  double hi, double *out, const char *where, waste_error *err);

/* Writes j compactly, or NULL when out of memory. Free with waste_mem_free. */
char *waste_json_dump(const waste_json *j, size_t *bytes);

/* Appends s[0..n) as a JSON string with its quotes; invalid UTF-8 becomes
 * U+FFFD. buf is a waste_buf. */
struct waste_buf;
void waste_json_quote(struct waste_buf *buf, const char *s, size_t n);

#endif
