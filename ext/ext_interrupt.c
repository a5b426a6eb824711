/* Interrupts: see ext_interrupt.h.
 *
 * sqlite3_is_interrupted came with SQLite 3.41. Before, a statement that is
 * stepped while another one runs on the connection reports SQLITE_INTERRUPT,
 * for the flag is cleared only when no statement is active. That statement
 * lives no longer than one call: kept for the connection's life it would make
 * sqlite3_close fail, and a host may finalize every statement it finds. */
#include "ext_interrupt.h"

#include <string.h>

#include "base/plat.h"

SQLITE_EXTENSION_INIT3

/* Preparing stops at the flag just as stepping does. Other errors say nothing
 * about an interrupt: an authorizer may refuse even this statement. */
static int probe_says_so(waste_interrupt *i)
{
    int rc = SQLITE_OK;

    if (!i->probe) rc = sqlite3_prepare_v2(i->db, "SELECT 1", -1, &i->probe, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(i->probe);
        sqlite3_reset(i->probe);
    }
    return rc == SQLITE_INTERRUPT;
}

static int interrupted(waste_interrupt *i)
{
#if SQLITE_VERSION_NUMBER >= 3041000
    /* the header knows it; the host may be older */
    if (sqlite3_libversion_number() >= 3041000) return sqlite3_is_interrupted(i->db);
#endif
    return probe_says_so(i);
}

static int asked(void *ctx)
{
    waste_interrupt *i = ctx;

    if (!i->db) return 0;
    if (i->deadline_ns && waste_clock_ns() >= i->deadline_ns) {
        i->timed_out = 1;
        return 1;
    }
    return interrupted(i);
}

void waste_interrupt_begin(waste_interrupt *i, sqlite3 *db)
{
    memset(i, 0, sizeof *i);
    i->db = db;
}

void waste_interrupt_end(waste_interrupt *i)
{
    sqlite3_finalize(i->probe);
    i->probe = NULL;
    i->db = NULL;
}

waste_cancel waste_interrupt_cancel(waste_interrupt *i)
{
    waste_cancel c = {asked, i};

    return c;
}

void waste_interrupt_deadline(waste_interrupt *i, int64_t ms)
{
    i->deadline_ns = ms > 0 ? waste_clock_ns() + (uint64_t)ms * 1000000u : 0;
}
