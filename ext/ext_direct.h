/* Who is calling: two things SQLite does not keep from us.
 *
 * 1. SQLITE_DIRECTONLY keeps functions out of views, triggers, defaults, indexes
 *    and generated columns of a database file, but not out of a CHECK constraint
 *    unless they are deterministic too (seen up to 3.50). So a call has to be named
 *    by a statement that is running, or by something in the TEMP schema, which
 *    this connection made itself.
 * 2. waste_models may be a TEMP view, and tables that we write to may have TEMP
 *    triggers, that call us again without end: the stack would be. */
#ifndef EXT_DIRECT_H
#define EXT_DIRECT_H

#include "sqlite3ext.h"
#include "waste.h"

/* WASTE_ARG when no statement names any of our functions or tables. */
waste_status waste_direct_check(sqlite3 *db, waste_error *err);

/* Around SQL of ours that may run SQL of others. `depth` is the connection's. */
waste_status waste_direct_enter(int *depth, waste_error *err);
void waste_direct_leave(int *depth);

#endif
