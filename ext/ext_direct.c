/* Who is calling: see ext_direct.h. Owns nothing. */
#include "ext_direct.h"

#include "base/error.h"
#include "fn.h"

SQLITE_EXTENSION_INIT3

#define MOST_DEEP 3

/* Also when the schema cannot be read: then it is not that which calls. */
static int temp_schema_names(sqlite3 *db)
{
    sqlite3_stmt *q = NULL;
    int found = 0;

    if (sqlite3_prepare_v2(db, "SELECT sql FROM sqlite_temp_master WHERE sql IS NOT NULL", -1, &q,
                           NULL) == SQLITE_OK)
        while (!found && sqlite3_step(q) == SQLITE_ROW)
            found = waste_fn_named((const char *)sqlite3_column_text(q, 0));
    sqlite3_finalize(q);
    return found;
}

waste_status waste_direct_check(sqlite3 *db, waste_error *err)
{
    sqlite3_stmt *s;

    for (s = sqlite3_next_stmt(db, NULL); s; s = sqlite3_next_stmt(db, s))
        if (sqlite3_stmt_busy(s) && waste_fn_named(sqlite3_sql(s))) return WASTE_OK;
    if (temp_schema_names(db)) return WASTE_OK;
    return waste_fail(err, WASTE_ARG,
                      "unsafe use: a constraint in the database file calls a waste function that "
                      "the statement does not name");
}

waste_status waste_direct_enter(int *depth, waste_error *err)
{
    if (*depth >= MOST_DEEP)
        return waste_fail(
            err, WASTE_ARG,
            "views, triggers or queries behind the waste_* functions call themselves, %d deep",
            MOST_DEEP);
    ++*depth;
    return WASTE_OK;
}

void waste_direct_leave(int *depth)
{
    --*depth;
}
