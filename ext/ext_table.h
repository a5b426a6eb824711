/* Table-valued functions. Each is a waste_table_kind: what it declares and four
 * functions. The rest of SQLite's virtual-table interface is the same for all and in
 * ext_table.c. */
#ifndef EXT_TABLE_H
#define EXT_TABLE_H

#include "ext_interrupt.h"
#include "ext_models.h"
#include "sqlite3ext.h"
#include "waste.h"

#define WASTE_TABLE_ARGS 4 /* most arguments any of them takes */

/* Arguments of a call, kept as long as its rows: text borrowed from them and the
 * hidden columns need them. Those not given are NULL pointers. */
typedef struct waste_table_args {
    sqlite3_value *v[WASTE_TABLE_ARGS];
} waste_table_args;

int waste_table_args_null(const waste_table_args *a, int i); /* not given, or NULL */

/* The start of every cursor. */
typedef struct waste_cursor {
    sqlite3_vtab_cursor base;
    waste_table_args args;
    waste_interrupt stop; /* set up for start and for each step */
    sqlite3_int64 n;      /* number of the row, from 1: its rowid */
    int over;
} waste_cursor;

waste_conn *waste_cursor_conn(const waste_cursor *c);
sqlite3 *waste_cursor_db(const waste_cursor *c);

/* Arguments are the hidden columns, which come last. */
typedef struct waste_table_kind {
    const char *columns; /* "CREATE TABLE x(...)", hidden ones included */
    int first;           /* the column that is the first argument */
    int args;            /* how many there are */
    int required;        /* of them the first ones must be given */
    int wanted;          /* and of those the first ones NULL gives no rows */
    const char *needs;   /* the error when they are not ("waste_info needs a model") */
    int ascending;       /* a column that ascends by nature, or -1: ORDER BY is free */
    size_t cursor_bytes; /* of a struct that starts with waste_cursor, zeroed at first */
    /* Begins a call. WASTE_DONE: it has no rows. */
    waste_status (*start)(waste_cursor *c, waste_error *err);
    /* Makes the cursor's next row; WASTE_DONE when there is none. */
    waste_status (*step)(waste_cursor *c, waste_error *err);
    /* A column of the row, not a hidden one. */
    void (*column)(const waste_cursor *c, sqlite3_context *ctx, int column);
    /* Frees what start and step made and leaves zeros there: after the last row, after
     * a failure, and when the statement ends before. */
    void (*end)(waste_cursor *c);
} waste_table_kind;

/* Registers the function for conn's connection; conn NULL: takes the name back. Such a
 * table is direct-only: its arguments name files, so no view or trigger may use it. */
int waste_table_register(sqlite3 *db, const char *name, const waste_table_kind *kind,
                         waste_conn *conn);

/* Borrowed text as a column. */
void waste_table_text(sqlite3_context *ctx, const char *text, size_t bytes);

#endif
