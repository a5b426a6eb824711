/* Where the memory goes (docs/memory.md): how large the parts of a model
 * are, and how a RAM budget is divided among them. Opening a model and the
 * report of a plan both come here, so they cannot disagree. Pure functions.
 *
 * Every term is bounded by the manifest's checks (docs/format.md 2), so that 64
 * bits hold all sums. */
#ifndef WASTE_PLAN_H
#define WASTE_PLAN_H

#include "base/ram.h"
#include "model/config.h"

#define WASTE_PLAN_SETS   3 /* working sets that a chosen budget has room for, at most */
#define WASTE_PLAN_CHUNKS 3 /* sizes of WASTE_ROWS_LEAST..WASTE_ROWS_MOST, by doubling */

typedef struct waste_plan {
    /* sizes, in bytes unless the name says otherwise: waste_plan_size */
    uint64_t trunk;     /* resident tensors */
    uint64_t codebooks; /* of all MoE layers, as f32 */
    uint64_t tables;    /* manifest, handles, tokenizer, the cache's index: estimated from above */
    uint64_t scratch;   /* of the pass, for WASTE_ROWS_LEAST rows */
    uint64_t more[WASTE_PLAN_CHUNKS]; /* that it takes beyond, for 2, 4, 8 times as many */
    uint64_t state;                   /* of one sequence that fills the context */
    uint64_t generation;              /* buffers of one generation whose prompt fills the context */
    uint64_t count;                   /* of both, that are to be there at the same time */
    uint64_t record;                  /* the largest, as it is read; 0 without experts */
    uint64_t slot;                    /* of the cache, for one record, with its bookkeeping */
    uint64_t records;                 /* of all layers */
    uint64_t working_set;             /* what one token reads when nothing is in memory */
    int top_k, moe_layers;
    /* the division: waste_plan_divide */
    uint64_t min_slots; /* 0 without experts */
    uint64_t min_cache; /* bytes of these */
    uint64_t floor;     /* the least that the model runs with */
    uint64_t budget;    /* given or chosen; sizes the cache */
    int sets;           /* working sets that a chosen budget adds to the floor */
    /* What everything together may take: the budget, if one is given. Otherwise
     * three quarters of the usable RAM: the cache is as large as the chosen budget
     * makes it, and what lies between is for further sequences. */
    uint64_t limit;
    uint64_t slots; /* of the cache */
    /* What sequences, and the generations after the first, may take in all. */
    uint64_t sequences;
    int rows;       /* of a prompt that are computed together */
    uint64_t chunk; /* what these add to the scratch */
} waste_plan;

/* Fills the first half. trunk: bytes of the resident tensors (weights.h); threads: of the
 * pass's scratch; context, kv: positions of a sequence, and its latents; count: of sequences.
 * WASTE_RAM_BUDGET when the scratch does not fit the address space. */
waste_status waste_plan_size(waste_plan *p, const waste_config *c, const waste_manifest *m,
                             uint64_t trunk, int threads, int64_t context, waste_kv kv,
                             int64_t count, int has_tokenizer, waste_error *err);

/* Fills the second half. usable: bytes of RAM or WASTE_RAM_UNKNOWN. budget 0: the
 * largest of floor + k working sets, k = 3, 2, 1, that is at most 3/4 of usable,
 * else the floor; no more than the floor and all experts. The more rows of a prompt
 * are computed together, the less often its experts are read and met: as many as an
 * eighth of what the budget has over the floor pays for, and no expert that would have
 * been in memory for good; a chosen budget grows by that. WASTE_RAM_BUDGET names
 * the floor when the budget is below it; then slots and sequences are 0. */
waste_status waste_plan_divide(waste_plan *p, uint64_t budget, uint64_t usable, waste_error *err);

/* Takes slots from the cache: what they took goes to nobody, since memory has
 * just turned out to be less than planned. */
void waste_plan_shrink(waste_plan *p, uint64_t slots);

/* Bytes that a generation allocates beside its sequence. */
uint64_t waste_plan_generation(int vocab, uint64_t prompt_tokens);

/* From which budget on the operating system may take pages that count as
 * resident: 3/4 of usable. */
uint64_t waste_plan_cliff(uint64_t usable);

#endif
