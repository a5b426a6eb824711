/* Sizes and the division of the RAM budget: see plan.h. Called when a model opens,
 * before anything large is allocated, and when a plan is reported. */
#include "model/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/pack.h"
#include "model/scratch.h"
#include "model/sequence.h"

/* Small things, from above; test_plan holds them against what is allocated. */
#define TABLES_MODEL  (1u << 18) /* handles, file names, locks */
#define TABLES_TENSOR 2560       /* JSON nodes, handle, alignment */
#define TABLES_TOKEN  96         /* text, rank, hash table */
#define TABLES_TEXT   (1u << 19) /* pairs of bytes, specials, chat format */
#define TABLES_RECORD 64         /* index of the cache, use counts, hotlist */
#define SLOT_TABLE    128        /* bookkeeping of a slot */

#define CHUNK_PART 8 /* of what is over the floor, for a longer chunk: 1 / this */

#define GEN_FIXED 65536 /* text that is held back, regions, stop strings */
#define GEN_TOKEN 29    /* per vocabulary entry: logits, penalties, ranking */
#define GEN_ROW   32    /* per token of the prompt: id, row */

uint64_t waste_plan_cliff(uint64_t usable)
{
    return usable == WASTE_RAM_UNKNOWN ? usable : usable / 4 * 3;
}

uint64_t waste_plan_generation(int vocab, uint64_t prompt_tokens)
{
    return GEN_FIXED + (uint64_t)vocab * GEN_TOKEN + prompt_tokens * GEN_ROW;
}

/* ---- sizes ---------------------------------------------------------------- */

static void size_experts(waste_plan *p, const waste_config *c, const waste_manifest *m)
{
    const waste_quant *q = &m->quant;
    /* floats of one layer's codebooks in memory (waste_banks_codebook) */
    const uint64_t books =
        3 * (uint64_t)q->stages * ((uint64_t)1 << q->index_bits) * (uint64_t)q->vec_dim;
    int i;

    p->top_k = c->top_k;
    for (i = 0; i < c->layers; i++) {
        if (!waste_config_is_moe(c, i)) continue;
        p->moe_layers++;
        if (m->bank[i].record_bytes > p->record) p->record = m->bank[i].record_bytes;
        p->records += (uint64_t)c->experts;
        p->working_set += (uint64_t)c->top_k * m->bank[i].record_bytes;
        p->codebooks += books * sizeof(float);
    }
    if (p->record) p->slot = p->record + SLOT_TABLE;
}

/* 0 when it does not fit the address space. */
static int size_scratch(waste_plan *p, const waste_config *c, int threads)
{
    waste_scratch measure;
    uint64_t bytes;
    int i;

    memset(&measure, 0, sizeof measure);
    p->scratch = waste_scratch_carve(&measure, c, WASTE_ROWS_LEAST, threads, NULL);
    for (i = 0; i < WASTE_PLAN_CHUNKS; i++) {
        bytes = waste_scratch_carve(&measure, c, WASTE_ROWS_LEAST << (i + 1), threads, NULL);
        p->more[i] = bytes ? bytes - p->scratch : UINT64_MAX;
    }
    return p->scratch != 0;
}

waste_status waste_plan_size(waste_plan *p, const waste_config *c, const waste_manifest *m,
                             uint64_t trunk, int threads, int64_t context, waste_kv kv,
                             int64_t count, int has_tokenizer, waste_error *err)
{
    memset(p, 0, sizeof *p);
    if (!size_scratch(p, c, threads))
        return waste_fail(err, WASTE_RAM_BUDGET,
                          "the model's scratch does not fit the address space");
    p->trunk = trunk;
    p->state = waste_sequence_bytes(c, kv, context);
    p->generation = waste_plan_generation(c->vocab, (uint64_t)context);
    p->count = (uint64_t)count;
    size_experts(p, c, m);
    p->tables = TABLES_MODEL + m->n_trunk * (uint64_t)TABLES_TENSOR + p->records * TABLES_RECORD;
    p->tables += (uint64_t)p->moe_layers * waste_pack_layer_bytes(&m->quant);
    if (has_tokenizer) p->tables += TABLES_TEXT + (uint64_t)c->vocab * TABLES_TOKEN;
    return WASTE_OK;
}

/* ---- division --------------------------------------------------------------- */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whole working sets: part of one, read again before its turn comes back, is no
 * use to a cache that only sees demand (docs/memory.md). */
static void choose(waste_plan *p, uint64_t usable)
{
    const uint64_t cliff = waste_plan_cliff(usable), all = p->records * p->slot;
    int k;

    p->budget = p->floor;
    p->sets = 0;
    for (k = WASTE_PLAN_SETS; k > 0 && p->working_set; k--) {
        const uint64_t b = p->floor + smaller((uint64_t)k * p->working_set, all);

        if (b > cliff) continue;
        p->budget = b;
        p->sets = k;
        break;
    }
    p->limit = cliff > p->budget ? cliff : p->budget;
}

static waste_status too_small(const waste_plan *p, uint64_t budget, waste_error *err)
{
    char several[64] = "";

    if (p->count > 1)
        snprintf(several, sizeof several, "; state and generation are of %llu sequences",
                 (unsigned long long)p->count);
    return waste_fail(err, WASTE_RAM_BUDGET,
                      "a budget of %llu bytes is below the floor of %llu: trunk %llu, codebooks "
                      "%llu, scratch %llu, state %llu, generation %llu, %llu expert records %llu, "
                      "tables %llu%s",
                      (unsigned long long)budget, (unsigned long long)p->floor,
                      (unsigned long long)p->trunk, (unsigned long long)p->codebooks,
                      (unsigned long long)p->scratch, (unsigned long long)(p->count * p->state),
                      (unsigned long long)(p->count * p->generation),
                      (unsigned long long)p->min_slots, (unsigned long long)p->min_cache,
                      (unsigned long long)p->tables, several);
}

/* A given budget pays with slots, but not with the first of those that hold all experts;
 * a chosen one grows. */
static void choose_chunk(waste_plan *p, int given)
{
    const uint64_t over = p->budget - p->floor, all = p->records * p->slot;
    uint64_t most = over / CHUNK_PART;
    int i;

    if (given && over > all) most = smaller(most, over - all);
    if (!given) most = smaller(most, p->limit - p->budget);
    p->rows = WASTE_ROWS_LEAST;
    p->chunk = 0;
    for (i = 0; i < WASTE_PLAN_CHUNKS && p->more[i] <= most; i++) {
        p->rows = WASTE_ROWS_LEAST << (i + 1);
        p->chunk = p->more[i];
    }
    if (!given) p->budget += p->chunk;
}

waste_status waste_plan_divide(waste_plan *p, uint64_t budget, uint64_t usable, waste_error *err)
{
    const uint64_t reserve = p->count * (p->state + p->generation) - p->generation;
    uint64_t fixed = p->trunk + p->codebooks + p->tables + p->scratch + p->generation;

    /* Twice what one row needs, so that the next layer's can arrive meanwhile. */
    p->min_slots = p->slot ? 2 * (uint64_t)p->top_k : 0;
    p->min_cache = p->min_slots * p->slot;
    p->floor = fixed + reserve + p->min_cache;
    p->slots = p->sequences = p->chunk = 0;
    p->rows = WASTE_ROWS_LEAST;
    if (budget) {
        p->budget = p->limit = budget;
        p->sets = 0;
        if (budget < p->floor) return too_small(p, budget, err);
    } else {
        choose(p, usable);
    }
    choose_chunk(p, budget > 0);
    fixed += p->chunk;
    if (p->slot) p->slots = smaller((p->budget - fixed - reserve) / p->slot, p->records);
    if (p->slots < p->min_slots) p->slots = p->min_slots;
    p->sequences = p->limit - fixed - p->slots * p->slot;
    return WASTE_OK;
}

void waste_plan_shrink(waste_plan *p, uint64_t slots)
{
    p->slots = smaller(slots, p->slots);
}
