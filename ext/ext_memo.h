/* Calls that have been answered already. What a generating function gives is decided by
 * its arguments, so a call repeated need not be computed again.
 *
 * 1. Within a statement: SQLite may call a scalar several times for one row (in SELECT
 *    and in WHERE, for ORDER BY). The last answers of a statement are kept while it runs.
 * 2. With the option "cache": in the table waste_cache of this database, which is made
 *    when it is first needed:
 *
 *        CREATE TABLE waste_cache(key TEXT PRIMARY KEY NOT NULL, request BLOB NOT NULL,
 *          result TEXT NOT NULL, created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)
 *
 *    key names the model's weights and tokenizer, precision, and a hash of the request,
 *    which is compared as a whole. */
#ifndef EXT_MEMO_H
#define EXT_MEMO_H

#include "base/buf.h"
#include "ext_models.h"
#include "sqlite3ext.h"
#include "waste.h"

typedef struct waste_memo {
    waste_buf call;    /* the arguments as bytes: equal for equal calls */
    waste_str request; /* those of all but the model, which the table knows by what it is,
                        * not by a name; borrowed from call */
    waste_identity id; /* of the model, with the option "cache" */
    int json, cache, stored;
} waste_memo;

/* Begins a call whose answer is text, or JSON. 1: the statement has answered it already
 * and this is the result; the memo is cleared. Else clear it in any case. */
int waste_memo_begin(waste_memo *m, sqlite3_context *ctx, const char *who, int json, int argc,
                     sqlite3_value **argv);
void waste_memo_clear(waste_memo *m);

/* Once the model is open, with the option's value: WASTE_OK and the answer of the table
 * appended to `out`, or WASTE_DONE when it is to be computed. */
waste_status waste_memo_look(waste_memo *m, waste_conn *c, waste_model *model, int cache,
                             waste_buf *out, waste_error *err);
typedef enum waste_memo_keep {
    WASTE_MEMO_NOWHERE,   /* time ended it: asked again it may be another one */
    WASTE_MEMO_STATEMENT, /* the context ended it, which the table's key does not have */
    WASTE_MEMO_TABLE      /* and in the statement */
} waste_memo_keep;

/* Where an answer may be kept that ended like this. */
waste_memo_keep waste_memo_where(waste_finish finish, const waste_usage *usage,
                                 const waste_gen_params *params);
/* Makes `result` the call's and empties it, and remembers it where it was not found.
 * A statement that has no memory for it, and a database that is busy, keep nothing. */
void waste_memo_give(waste_memo *m, sqlite3_context *ctx, waste_buf *result, waste_memo_keep where);

#endif
