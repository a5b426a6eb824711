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

/* The call as bytes: equal for equal arguments. *request are those of all but the model,
 * which the table knows by what it is, not by a name; borrowed from out. */
void waste_memo_call(waste_buf *out, waste_str *request, const char *who, int argc,
                     sqlite3_value **argv);

/* Makes the statement's answer to this call the result; 0 when it has none. */
int waste_memo_find(sqlite3_context *ctx, const waste_buf *call, int json);
/* Running out of memory only means that it is not kept. */
void waste_memo_keep(sqlite3_context *ctx, const waste_buf *call, const waste_buf *result);

/* Appends the answer in the table; WASTE_DONE when it is not there. */
waste_status waste_memo_stored(waste_buf *out, waste_conn *c, const waste_identity *id,
                               waste_str request, waste_error *err);
/* A database that is busy keeps nothing. */
waste_status waste_memo_store(waste_conn *c, const waste_identity *id, waste_str request,
                              const waste_buf *result, waste_error *err);

#endif
