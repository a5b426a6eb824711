/* Work that may hang, such as reading from a disk that does not answer: a thread of
 * its own does it while the caller waits, so that a caller who is told to stop can go
 * and leave it behind.
 *
 * What is left behind ends when the system lets it; until then everything that the
 * work uses has to stay. So its memory belongs to the work, and who takes away what
 * else it uses waits for it first: waste_aside_settle. */
#ifndef WASTE_ASIDE_H
#define WASTE_ASIDE_H

#include <stdint.h>

#include "base/error.h"

/* left: the caller has gone; asked now and then, it makes the work end early. */
typedef waste_status waste_aside_work(void *ctx, const waste_cancel *left, waste_error *err);
typedef void waste_aside_drop(void *ctx);

/* Runs work(ctx) and gives its status and error; WASTE_CANCELLED as soon as `cancel`
 * says so, whatever the work does. After WASTE_OK ctx is the caller's again; otherwise
 * drop(ctx) has been called, or is when work returns, on the thread it ran on.
 *
 * key names what the work uses: work of the same key that was left behind is waited for
 * before this begins. 0: none. Without a cancel that can be asked, and where the system
 * has no thread to give, the calling thread does the work. */
waste_status waste_aside_run(uint64_t key, waste_aside_work *work, waste_aside_drop *drop,
                             void *ctx, const waste_cancel *cancel, waste_error *err);

/* Returns when no work of this key that was left behind is running any more, or none at
 * all with key 0: before what it uses goes away, the library's code included. */
void waste_aside_settle(uint64_t key);

#endif
