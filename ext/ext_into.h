/* The table that waste_batch writes its rows to.
 *
 *     CREATE TABLE answers(key PRIMARY KEY, text TEXT, finish TEXT, error TEXT,
 *       prompt_tokens INTEGER, reused_tokens INTEGER, tokens INTEGER, ms REAL)
 *
 * is made in the main database when SQLite finds none of the name: in temp, main, then
 * those attached. One that is there needs these columns and a unique key.
 * For one call, on SQLite's thread. */
#ifndef EXT_INTO_H
#define EXT_INTO_H

#include "sqlite3ext.h"
#include "waste.h"

typedef struct waste_into {
    sqlite3 *db, *own; /* the caller's, and a second connection once that one is stuck */
    char *schema, *name;
    int counts_up; /* the key is the rowid: SQLite would make up one for NULL */
    sqlite3_stmt *find, *same, *add;
} waste_into;

/* What a row has besides its key. */
typedef struct waste_into_row {
    waste_str text; /* text NULL: NULL */
    const char *finish, *error;
    int tokens; /* whether the counts are there */
    waste_usage usage;
} waste_into_row;

waste_status waste_into_open(waste_into *i, sqlite3 *db, waste_str name, waste_error *err);
/* Whether the table has the key; NULL is one, too. */
waste_status waste_into_has(waste_into *i, sqlite3_value *key, int *has, waste_error *err);
/* Whether they are the same key there, by its column's affinity and collation. */
int waste_into_same(waste_into *i, sqlite3_value *a, sqlite3_value *b);
/* Adds a row, and with no transaction open commits it. A key that somebody else has
 * added meanwhile is left as it is. Errors name the key. */
waste_status waste_into_add(waste_into *i, sqlite3_value *key, const waste_into_row *row,
                            const waste_cancel *cancel, waste_error *err);
void waste_into_close(waste_into *i); /* zeroed is fine */

#endif
