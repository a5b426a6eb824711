/* How the RAM budget is divided (spec runtime.md 1, 2). Pure but for a look at
 * the machine's memory. */
#ifndef WASTE_PLAN_H
#define WASTE_PLAN_H

#include "model/config.h"

typedef struct waste_plan {
    /* given */
    uint64_t trunk;   /* resident tensors and codebooks */
    uint64_t tables;  /* manifest, handles, tokenizer: small things, estimated */
    uint64_t scratch; /* of the pass */
    uint64_t state;   /* of one sequence that fills the context */
    uint64_t record;  /* a cache slot with its bookkeeping; 0 without experts */
    uint64_t records; /* of all layers */
    int top_k;
    /* worked out */
    uint64_t min_slots; /* 0 without experts */
    uint64_t floor;     /* the least that the model runs with */
    uint64_t slots;     /* of the cache */
    uint64_t sequences; /* what sequences may take in all; UINT64_MAX: no limit */
} waste_plan;

/* Fills the second half. budget 0: chosen here. WASTE_RAM_BUDGET names the floor
 * when the budget is below it. */
waste_status waste_plan_divide(waste_plan *p, uint64_t budget, waste_error *err);

#endif
