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

/* slots >= 1. Slot memory is reserved here and counted. */
waste_status waste_cache_open(waste_cache **out, const waste_banks *banks, uint64_t slots,
                              waste_error *err);
void waste_cache_close(waste_cache *c);

/* Announces the experts that will be held next. A hint: never fails. */
void waste_cache_want(waste_cache *c, int layer, const int *experts, size_t n);
/* The record's bytes, read now if they are not there. Every hold is paired with
 * one release. Fails when the read fails (error names the record) or when every
 * slot is held. */
waste_status waste_cache_hold(waste_cache *c, int layer, int expert, const void **record,
                              waste_error *err);
void waste_cache_release(waste_cache *c, int layer, int expert);

void waste_cache_counts_get(waste_cache *c, waste_cache_counts *out);

#endif
