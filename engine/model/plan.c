/* The division of the RAM budget: see plan.h. Called when a model opens, before
 * anything large is allocated. Every term is bounded by the manifest's checks
 * (container.md 2), so that 64 bits hold all sums. */
#include "model/plan.h"

#include <unistd.h>

#include "base/error.h"

/* Bytes of RAM, or 0 when the system does not say. */
static uint64_t physical_ram(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

waste_status waste_plan_divide(waste_plan *p, uint64_t budget, waste_error *err)
{
    const uint64_t base = p->trunk + p->tables + p->scratch + p->state;
    uint64_t room;

    /* Twice what one row needs, so that the next layer's can arrive meanwhile. */
    p->min_slots = p->record ? 2 * (uint64_t)p->top_k : 0;
    p->floor = base + p->min_slots * p->record;
    if (budget && budget < p->floor)
        return waste_fail(err, WASTE_RAM_BUDGET,
                          "a budget of %llu bytes is below the floor of %llu: trunk %llu, scratch "
                          "%llu, state %llu, %llu expert records of %llu, tables %llu",
                          (unsigned long long)budget, (unsigned long long)p->floor,
                          (unsigned long long)p->trunk, (unsigned long long)p->scratch,
                          (unsigned long long)p->state, (unsigned long long)p->min_slots,
                          (unsigned long long)p->record, (unsigned long long)p->tables);

    room = budget ? budget - base : physical_ram() / 4;
    p->slots = p->record ? smaller(room / p->record, p->records) : 0;
    if (p->slots < p->min_slots) p->slots = p->min_slots;
    p->sequences = budget ? budget - (base - p->state) - p->slots * p->record : UINT64_MAX;
    return WASTE_OK;
}
