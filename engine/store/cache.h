/* The bounded expert cache: fixed slots of one record each, inside the budget, and
 * the reads that fill them.
 *
 * A layer's experts are one batch: the caller asks for all of them before its
 * first multiply, then takes them one after the other as they are there - those in
 * memory first, the others in the order in which their reads end - applies each
 * and releases it. Only one batch at a time is open, on the thread that has the
 * model's turn; everything else may be called by any thread at any time. A record
 * that is asked for, taken or being read is never evicted, and its bytes do not
 * move. */
#ifndef WASTE_CACHE_H
#define WASTE_CACHE_H

#include "store/bank.h"

typedef struct waste_cache waste_cache;

typedef struct waste_cache_counts {
    uint64_t hits, misses; /* of demand; a record on its way for another reason is a hit */
    uint64_t guesses;      /* speculative reads */
    uint64_t guesses_used; /* those that a demand then met */
    uint64_t bytes_read;   /* demand and guesses */
    uint64_t io_ns;        /* that takers waited */
    uint64_t known_ns;     /* of it for reads known before (waste_model_stats) */
    uint64_t disk_ns;      /* that some read was asked for and had not ended */
    uint64_t evictions;
    uint64_t slots, used;
    uint64_t warmed; /* records read by waste_cache_warm; no misses, no bytes_read */
} waste_cache_counts;

/* slots >= 1. io_threads: readers (reader.h); 0: the default; -1: none, a taker
 * reads what it waits for, and nothing is read ahead. Slot memory (slots *
 * waste_banks_slot_bytes) is reserved here and counted, and so are the tables
 * beside it, which waste_cache_table_bytes gives beforehand. `banks` must outlive
 * the cache. */
waste_status waste_cache_open(waste_cache **out, const waste_banks *banks, uint64_t slots,
                              int io_threads, waste_error *err);
/* No batch may be open. Reads that have begun are waited for. */
void waste_cache_close(waste_cache *c);
uint64_t waste_cache_table_bytes(const waste_banks *banks, uint64_t slots);

/* ---- a layer's batch ---------------------------------------------------- */

/* Opens the batch of experts ids[0..n) of a layer, all distinct, for a pass of
 * `rows` rows of which uses[i] chose ids[i] (NULL: one each). Reads are under way
 * when it returns, as many as there are slots; the rest follow as slots come free.
 * WASTE_ARG when there is no such expert or one is named twice, WASTE_BUSY when a
 * batch is open. */
waste_status waste_cache_ask(waste_cache *c, int layer, const int *ids, const int *uses, size_t n,
                             size_t rows, waste_error *err);
/* The next record, to be released after use, and whose it is. WASTE_DONE when all
 * were taken. Waits for reads, asking `cancel` (may be NULL) at least every 50 ms,
 * whatever a read does. Anything but WASTE_OK has ended the batch: a read that
 * failed (the error names the record), WASTE_CANCELLED, WASTE_BUSY when the caller
 * holds every slot. The cache stays usable. */
waste_status waste_cache_take(waste_cache *c, int *expert, const void **record,
                              const waste_cancel *cancel, waste_error *err);
void waste_cache_release(waste_cache *c, int layer, int expert);
/* How many records can be taken at this moment without waiting, and how many of the
 * batch have not been taken. */
void waste_cache_ready(waste_cache *c, size_t *ready, size_t *left);

/* ---- hints ---------------------------------------------------------------- */

/* Whether guesses at `layer` can be of any use: something of it is not in memory, or may
 * have to go. */
int waste_cache_may_lack(waste_cache *c, int layer);
/* The experts that `layer`, to be asked for next, will probably want, likeliest
 * first, and how the lookahead ranked each for its row (0: likeliest; NULL: as they
 * come). Those there stay; the others are read when nobody waits for a read, into
 * slots whose records are less likely to be used soon. Ids that do not exist are
 * skipped. What the next ask does not confirm is forgotten. */
void waste_cache_guess(waste_cache *c, int layer, const int *ids, const int *ranks, size_t n);

/* Learned demand: one row per record that was wanted, in no order, at most `max`.
 * Returns how many. */
size_t waste_cache_usage(waste_cache *c, waste_usage_row *out, size_t max);
/* Takes rows[0..n) for what was learned before, and reads their records in the
 * background, in the order given, as far as empty slots go. Rows that name no
 * record are skipped; a record that cannot be read ends it without an error. A
 * call while an earlier one is still reading does nothing. */
void waste_cache_warm(waste_cache *c, const waste_usage_row *rows, size_t n);

void waste_cache_counts_get(waste_cache *c, waste_cache_counts *out);
int waste_cache_threads(const waste_cache *c); /* reading; 0: synchronous */
const char *waste_cache_policy(void);          /* its name; static */

#endif
