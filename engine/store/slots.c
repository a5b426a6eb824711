/* Slots and the index of what they hold: see slots.h. Used by the cache under its
 * lock. */
#include "store/slots.h"

#include "base/mem.h"

#define NONE (-1)

/* ---- open, close ------------------------------------------------------------ */

waste_status waste_slots_open(waste_slots *s, const waste_banks *banks, uint64_t n,
                              waste_error *err)
{
    const waste_bank_shape *shape = waste_banks_shape(banks);
    const uint64_t bytes = waste_banks_slot_bytes(banks);
    size_t records, i;

    *s = (waste_slots){.first_layer = shape->first_moe,
                       .layers = shape->layers - shape->first_moe,
                       .experts = shape->experts,
                       .slot_bytes = bytes,
                       .n = n};
    if (n == 0 || bytes == 0)
        return waste_fail(err, WASTE_ARG, "an expert cache of %llu slots of %llu bytes",
                          (unsigned long long)n, (unsigned long long)bytes);
    /* the links between slots are 32 bits wide */
    if (n > INT32_MAX || n > SIZE_MAX / 2 / bytes)
        return waste_fail(err, WASTE_NOMEM, "an expert cache of %llu records fits no memory",
                          (unsigned long long)n);
    records = (size_t)s->layers * (size_t)s->experts;
    s->slot = waste_mem_array((size_t)n, sizeof *s->slot);
    s->where = waste_mem_array(records, sizeof *s->where);
    s->memory = waste_mem_region((size_t)(n * bytes));
    if (!s->slot || !s->where || !s->memory)
        return waste_fail(err, WASTE_NOMEM, "no memory for an expert cache of %llu records of %llu",
                          (unsigned long long)n, (unsigned long long)bytes);
    for (i = 0; i < records; i++) s->where[i] = NONE;
    for (i = 0; i < n; i++) s->slot[i].next_free = (int32_t)i + 1;
    s->slot[n - 1].next_free = NONE;
    return waste_policy_open(&s->policy, s->layers, s->experts, err);
}

void waste_slots_close(waste_slots *s)
{
    waste_policy_close(s->policy);
    waste_mem_region_free(s->memory, (size_t)(s->n * s->slot_bytes));
    waste_mem_free(s->where);
    waste_mem_free(s->slot);
}

uint64_t waste_slots_table_bytes(const waste_banks *banks, uint64_t n)
{
    const waste_bank_shape *shape = waste_banks_shape(banks);
    const int layers = shape->layers - shape->first_moe;

    return n * sizeof(waste_slot) + (uint64_t)layers * (uint64_t)shape->experts * sizeof(int32_t) +
           waste_policy_bytes(layers, shape->experts);
}

/* ---- where is what ------------------------------------------------------------ */

int waste_slots_exists(const waste_slots *s, int layer, int expert)
{
    return layer >= s->first_layer && layer - s->first_layer < s->layers && expert >= 0 &&
           expert < s->experts;
}

int32_t waste_slots_record(const waste_slots *s, int layer, int expert)
{
    return (layer - s->first_layer) * s->experts + expert;
}

static int32_t record_in(const waste_slots *s, const waste_slot *x)
{
    return waste_slots_record(s, x->read.layer, x->read.expert);
}

waste_slot *waste_slots_find(const waste_slots *s, int layer, int expert)
{
    const int32_t i = s->where[waste_slots_record(s, layer, expert)];

    return i == NONE ? NULL : &s->slot[i];
}

int32_t waste_slots_number(const waste_slots *s, const waste_slot *x)
{
    return (int32_t)(x - s->slot);
}

char *waste_slots_bytes(const waste_slots *s, const waste_slot *x)
{
    return s->memory + (uint64_t)waste_slots_number(s, x) * s->slot_bytes;
}

/* ---- who stays ---------------------------------------------------------------- */

void waste_slots_withhold(waste_slots *s, const waste_slot *x)
{
    waste_policy_withhold(s->policy, record_in(s, x));
}

void waste_slots_offer(waste_slots *s, const waste_slot *x)
{
    if (x->state == WASTE_SLOT_READY && !x->asked && !x->held && !x->kept)
        waste_policy_offer(s->policy, record_in(s, x));
}

void waste_slots_empty(waste_slots *s, waste_slot *x)
{
    waste_slots_withhold(s, x);
    s->where[record_in(s, x)] = NONE;
    x->state = WASTE_SLOT_EMPTY;
    x->asked = x->held = x->kept = x->joined = x->known = 0;
    x->guessed = x->warming = 0;
    x->next_free = s->first_free;
    s->first_free = waste_slots_number(s, x);
    s->used--;
}

int waste_slots_keep(const waste_slots *s, int layer)
{
    int e;

    if (s->n < (uint64_t)s->layers * (uint64_t)s->experts) return 0;
    for (e = 0; e < s->experts && waste_slots_exists(s, layer, e); e++) {
        const waste_slot *x = waste_slots_find(s, layer, e);

        if (!x || x->state == WASTE_SLOT_READING) return 0;
    }
    return e == s->experts;
}

int waste_slots_any_empty(const waste_slots *s)
{
    return s->first_free != NONE;
}

waste_slot *waste_slots_take(waste_slots *s, int layer, int expert, float than)
{
    waste_slot *x;

    if (!waste_slots_any_empty(s)) {
        const int32_t victim = waste_policy_least(s->policy, than);

        if (victim < 0) return NULL;
        waste_slots_empty(s, &s->slot[s->where[victim]]);
        s->evictions++;
    }
    x = &s->slot[s->first_free];
    s->first_free = x->next_free;
    s->used++;
    x->read.layer = layer;
    x->read.expert = expert;
    x->read.to = waste_slots_bytes(s, x);
    x->state = WASTE_SLOT_READING;
    s->where[waste_slots_record(s, layer, expert)] = waste_slots_number(s, x);
    return x;
}
