/* What the table-valued functions have in common: arguments as hidden columns,
 * planning, errors. */
#ifndef EXT_TABLE_H
#define EXT_TABLE_H

#include "ext_models.h"
#include "sqlite3ext.h"
#include "waste.h"

#define WASTE_TABLE_ARGS 4 /* most arguments any of them takes */

/* The start of every table of ours. */
typedef struct waste_table {
    sqlite3_vtab base;
    waste_conn *conn; /* held */
} waste_table;

/* Declares `columns` ("CREATE TABLE x(...)") and makes the table direct-only:
 * its arguments name files, so no view or trigger may use it. `aux` is the
 * module's connection. */
int waste_table_connect(sqlite3 *db, void *aux, const char *columns, sqlite3_vtab **out);
int waste_table_disconnect(sqlite3_vtab *t);

/* Plans a call whose arguments are the hidden columns first .. first + n - 1, of
 * which the first `required` must be given; `needs` is the error if they are
 * not ("waste_info needs a model"; static). `sequence` is a column that ascends by
 * nature, or -1: ORDER BY it costs nothing. idxNum gets a bit per argument.
 *
 * SQLite also asks for plans it will not run: for the terms of an OR it leaves the
 * arguments out. So a plan without them is a very dear one, and only running it is
 * an error: `needs` travels in idxStr. */
int waste_table_plan(sqlite3_index_info *info, int first, int n, int required, int sequence,
                     const char *needs);

/* Arguments of a cursor, kept for its life: text borrowed from them and the
 * hidden columns need them. Those not given are NULL values. */
typedef struct waste_table_args {
    sqlite3_value *v[WASTE_TABLE_ARGS];
} waste_table_args;

/* From what xFilter gets; the error of a plan without its arguments is t's. */
int waste_table_args_set(waste_table_args *a, sqlite3_vtab *t, int idx_num, const char *idx_str,
                         int argc, sqlite3_value **argv);
void waste_table_args_clear(waste_table_args *a);
int waste_table_args_null(const waste_table_args *a, int i); /* not given, or NULL */
/* The hidden column of argument i. */
void waste_table_args_column(const waste_table_args *a, int i, sqlite3_context *ctx);

/* Hands err to SQLite and returns its code. */
int waste_table_fail(sqlite3_vtab *t, const waste_error *err);

/* Borrowed text as a column. */
void waste_table_text(sqlite3_context *ctx, const char *text, size_t bytes);

#endif
