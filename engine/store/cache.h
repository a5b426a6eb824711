/* The bounded expert cache: fixed slots of one record each, inside the budget.
 *
 * A record that is held is never evicted, and its bytes do not move. The caller
 * asks for all experts of a layer before its first multiply, then holds them
 * one after the other in any order, applies them, and releases them.
 * Thread-safe. */
#ifndef WASTE_CACHE_H
#define WASTE_CACHE_H

#include "store/bank.h"

typedef struct waste_cache waste_cache;

typedef struct waste_cache_counts {
    uint64_t hits, misses; /* of demand accesses */
    uint64_t bytes_read, io_ns;
    uint64_t evictions;
    uint64_t slots, used;
} waste_cache_counts;

/* slots >= 1. Slot memory (slots * waste_banks_slot_bytes) is reserved here and
 * counted, and so are the tables beside it, which waste_cache_table_bytes gives
 * beforehand. `banks` must outlive the cache. */
waste_status waste_cache_open(waste_cache **out, const waste_banks *banks, uint64_t slots,
                              waste_error *err);
void waste_cache_close(waste_cache *c); /* no thread may still hold or wait */
uint64_t waste_cache_table_bytes(const waste_banks *banks, uint64_t slots);

/* Announces the experts that will be held next. A hint: never fails, and ids that
 * do not exist are skipped. Of the records there, those of the latest call are
 * the last to be evicted. */
void waste_cache_want(waste_cache *c, int layer, const int *experts, size_t n);
/* The record's bytes, read now if they are not there. Every hold is paired with
 * one release. A record that another thread is reading is waited for, and counts
 * as a hit. Fails when the read fails (error names the record; the slot is empty
 * again), when every slot is held (WASTE_BUSY), or when there is no such expert
 * (WASTE_ARG). */
waste_status waste_cache_hold(waste_cache *c, int layer, int expert, const void **record,
                              waste_error *err);
void waste_cache_release(waste_cache *c, int layer, int expert);

void waste_cache_counts_get(waste_cache *c, waste_cache_counts *out);

#endif
