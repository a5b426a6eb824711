/* Reader threads: whole expert records into buffers of the caller's, in the
 * background, most urgent queue first.
 *
 * A request is the caller's memory (a slot of the cache has one) and stays
 * untouched by it from ask until it is done or withdrawn. The reader never looks
 * at what is read: who asks twice for one record gets it twice. Any thread may
 * call; no function waits for a read but serve and close. */
#ifndef WASTE_READER_H
#define WASTE_READER_H

#include "store/bank.h"

#define WASTE_READER_THREADS 5  /* by default (docs/decisions.md) */
#define WASTE_READER_MOST    16 /* threads */

typedef enum waste_urgency {
    WASTE_URGENCY_DEMAND, /* somebody waits for it, or will in a moment */
    WASTE_URGENCY_GUESS,  /* the next layer may want it */
    WASTE_URGENCY_WARM,   /* when there is nothing else to do */
    WASTE_URGENCIES
} waste_urgency;

typedef struct waste_read {
    int layer, expert;
    void *to; /* room for a slot, aligned to 4096 */
    /* the reader's own */
    struct waste_read *next, *prev;
    waste_urgency urgency;
    int queued; /* in a queue; 0: being read, or nothing asked */
} waste_read;

/* A read has ended; `err` is its error or empty. Called by the thread that read,
 * with no lock of the reader held; the request is the caller's again. */
typedef void waste_reader_done(void *ctx, waste_read *r, waste_status st, const waste_error *err);

typedef struct waste_reader waste_reader;

/* threads 0: none, and whoever waits reads with waste_reader_serve. When the system
 * has no room for all threads there are fewer. `banks` outlives the reader. */
waste_status waste_reader_open(waste_reader **out, const waste_banks *banks, int threads,
                               waste_reader_done *done, void *ctx, waste_error *err);
/* Forgets what is queued, without a call of done, and joins the threads; a read
 * that has begun ends first. NULL is fine. */
void waste_reader_close(waste_reader *r);
uint64_t waste_reader_bytes(void); /* allocated by open, stacks not counted */
int waste_reader_threads(const waste_reader *r);

void waste_reader_ask(waste_reader *r, waste_read *q, waste_urgency urgency);
/* Queues it anew behind those of that urgency. One that is being read already, or
 * done, stays as it is. */
void waste_reader_promote(waste_reader *r, waste_read *q, waste_urgency urgency);
/* 1: it was queued and is not any more. 0: it is being read, done will come. */
int waste_reader_withdraw(waste_reader *r, waste_read *q);
/* Reads the most urgent request now, on this thread. 0 when there is none. */
int waste_reader_serve(waste_reader *r);

#endif
