/* Asking the host whether the running statement shall stop: sqlite3_interrupt,
 * a progress handler that says so, or a deadline of our own.
 *
 * One object serves one call of the engine on SQLite's thread:
 *
 *     waste_interrupt_begin(&i, db);
 *     st = waste_step(..., &cancel_of_i, ...);
 *     waste_interrupt_end(&i);
 */
#ifndef EXT_INTERRUPT_H
#define EXT_INTERRUPT_H

#include "sqlite3ext.h"
#include "waste.h"

typedef struct waste_interrupt {
    sqlite3 *db;
    sqlite3_stmt *probe;  /* only between begin and end */
    uint64_t deadline_ns; /* monotonic; 0: none */
    int timed_out;        /* the deadline was what stopped it */
} waste_interrupt;

/* Resets everything, the deadline too. */
void waste_interrupt_begin(waste_interrupt *i, sqlite3 *db);
void waste_interrupt_end(waste_interrupt *i);
/* Valid as long as i does not move; answers 0 outside begin and end. */
waste_cancel waste_interrupt_cancel(waste_interrupt *i);
/* From now on; ms 0 is no deadline. */
void waste_interrupt_deadline(waste_interrupt *i, int64_t ms);

#endif
