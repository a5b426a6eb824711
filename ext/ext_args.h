/* Typed SQL arguments, option JSON, and errors on their way back to SQLite.
 *
 * Of the engine, ext/ uses waste.h, and stateless helpers of base/: json.h (typed
 * reads with one bound on depth; SQLite's own JSON functions may be compiled out
 * of hosts before 3.38), buf.h and mem.h; for the list of open models also plat.h
 * and process.h. Nothing else.
 *
 * All functions are for the thread that SQLite called us on. */
#ifndef EXT_ARGS_H
#define EXT_ARGS_H

#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"
#include "sqlite3ext.h"
#include "waste.h"

/* Text of an argument, with its length: NUL bytes and invalid UTF-8 are kept.
 * Numbers become text as SQLite converts them. A BLOB is WASTE_ARG, naming
 * `what`; NULL gives out->text NULL. Lives as long as the value is unchanged. */
waste_status waste_args_text(sqlite3_value *v, const char *what, waste_str *out, waste_error *err);

/* The same as a C string: NULL, empty text and NUL bytes are errors too. */
waste_status waste_args_name(sqlite3_value *v, const char *what, const char **out,
                             waste_error *err);

/* One key of an option object: how it is read and what may be in it. */
typedef enum waste_option_kind {
    WASTE_OPTION_BOOL,   /* int; true, false, 1, 0 (SQL has no booleans) */
    WASTE_OPTION_INT,    /* int64_t in [lo, hi] */
    WASTE_OPTION_NUMBER, /* double in [lo, hi] */
    WASTE_OPTION_TEXT,   /* waste_str, borrowed from the document */
    WASTE_OPTION_PATH,   /* the same, not empty and without NUL bytes */
    WASTE_OPTION_CUSTOM  /* whatever `read` makes of it */
} waste_option_kind;

typedef struct waste_option {
    const char *key;
    waste_option_kind kind;
    unsigned groups; /* which callers take it, as bits */
    size_t offset;   /* of the field in the caller's struct */
    double lo, hi;
    const char *wanted; /* "an integer from 0 to 20": the end of the error sentence */
    /* WASTE_OPTION_CUSTOM: WASTE_ARG without a text means "not what is wanted". */
    waste_status (*read)(const waste_json *value, void *into, waste_error *err);
} waste_option;

/* The option object in v. SQL NULL and '' give *out NULL: no options. Anything
 * but a JSON object, duplicate keys and NUL bytes are errors naming `what`.
 * Free with waste_json_free. */
waste_status waste_args_object(waste_json **out, sqlite3_value *v, const char *what,
                               waste_error *err);
waste_status waste_args_object_text(waste_json **out, const char *text, size_t bytes,
                                    const char *what, waste_error *err);

/* Reads every key of `object` by the table into the struct `into`; NULL object
 * reads nothing, a JSON null counts as not given. `given`, if not NULL, gets bit
 * i for row i. A key outside the table or its groups is an error that names it
 * and the nearest key. `who` names the caller in messages ("waste_next"). */
waste_status waste_args_read(const waste_option *table, size_t n, unsigned groups, void *into,
                             unsigned *given, const waste_json *object, const char *who,
                             waste_error *err);

/* An array of token ids, each at least 0; *out is NULL for an empty array. Free
 * with waste_mem_free. WASTE_ARG without a text when it is no such array. */
waste_status waste_args_ids(const waste_json *array, int32_t **out, size_t *n, waste_error *err);

/* Which of the words (NULL ends them) the value is; -1: none. */
int waste_args_word(const waste_json *value, const char *const *words);

/* A number as text for messages, in any locale of the host: whole numbers in all
 * their digits. */
#define WASTE_ARGS_DECIMAL 40
void waste_args_decimal(char out[WASTE_ARGS_DECIMAL], double v);

/* Edit distance of two names, where swapping neighbours counts as one; large
 * when either is longer than 63 bytes. */
unsigned waste_args_distance(const char *a, const char *b);
/* How far a misspelling of `name` may be from what was meant. */
unsigned waste_args_slack(const char *name);

/* Appends a JSON number, in any locale of the host; infinities and NaN, which
 * JSON lacks, become null. */
void waste_args_number(waste_buf *b, double v);

/* SQLite's code for a status. */
int waste_args_code(waste_status st);
/* Makes err the outcome of a function: its sentence, or SQLITE_INTERRUPT. */
void waste_args_fail(sqlite3_context *ctx, const waste_error *err);
/* Makes the buffer's text the result and empties it. */
void waste_args_result(sqlite3_context *ctx, waste_buf *text);
/* Likewise of JSON: SQLite's JSON functions then take it as such. */
void waste_args_result_json(sqlite3_context *ctx, waste_buf *text);

#endif
