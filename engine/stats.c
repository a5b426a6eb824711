/* What a model tells about itself, of waste.h: its counters, and which experts
 * were wanted. Any thread may call anything here at any time: the model's lock
 * and the cache's are held for moments, never while something is computed or
 * read. */
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"
#include "internal.h"
#include "model/scratch.h"
#include "store/usage.h"

/* ---- counters -------------------------------------------------------------- */

/* What changes with every step, as one moment saw it. */
static void get_steps(waste_model *m, waste_model_stats *out)
{
    uint64_t now, open;

    pthread_mutex_lock(&m->turn);
    *out = m->stats;
    now = waste_clock_ns();
    if (m->step_began) out->step_ns += now - m->step_began;
    out->sequence_bytes = m->sequence_bytes + m->generation_bytes;
    out->prefixes = waste_keep_prefixes(m);
    pthread_mutex_unlock(&m->turn);
    open = now - m->opened_ns;
    out->idle_ns = open > out->step_ns ? open - out->step_ns : 0;
}

static void get_cache(waste_model *m, waste_model_stats *out)
{
    waste_cache_counts n;

    waste_cache_counts_get(m->cache, &n);
    out->hits = n.hits;
    out->misses = n.misses;
    out->bytes_read = n.bytes_read;
    out->io_ns = n.io_ns;
    out->known_ns = n.known_ns;
    out->disk_ns = n.disk_ns;
    out->evictions = n.evictions;
    out->warmed = n.warmed;
    out->guesses = n.guesses;
    out->guesses_used = n.guesses_used;
    out->io_threads = waste_cache_threads(m->cache);
    out->lookahead = m->options.lookahead > 0 ? m->options.lookahead : 0;
    out->policy = waste_cache_policy();
    waste_banks_modes(m->banks, &out->banks_direct, &out->banks_buffered);
    out->cache_slots = n.slots;
    out->cache_used = n.used;
    out->cache_bytes =
        n.slots * waste_banks_slot_bytes(m->banks) + waste_cache_table_bytes(m->banks, n.slots);
}

void waste_model_stats_get(waste_model *m, waste_model_stats *out)
{
    memset(out, 0, sizeof *out);
    if (m->process != waste_process_id()) return; /* the locks are not ours to take */
    get_steps(m, out);
    if (m->cache) get_cache(m, out);
    out->trunk_bytes = m->plan.trunk + m->plan.codebooks;
    out->scratch_bytes = m->plan.scratch + m->plan.chunk;
    out->kernels = m->kernels.name;
    out->threads = m->threads;
    out->budget_bytes = m->plan.budget;
    out->memory_bytes = waste_mem_used();
    out->page_faults = waste_process_faults() - m->faults;
}

/* ---- usage ------------------------------------------------------------------ */

/* Every record that was ever wanted, most wanted first; NULL and 0 when there is
 * none. Free with waste_mem_free. */
static waste_status learned(waste_model *m, waste_usage_row **rows, size_t *n, waste_error *err)
{
    const waste_bank_shape *shape;
    size_t records;

    *rows = NULL;
    *n = 0;
    if (!m->cache) return WASTE_OK;
    shape = waste_banks_shape(m->banks);
    records = (size_t)(shape->layers - shape->first_moe) * (size_t)shape->experts;
    *rows = waste_mem_array(records, sizeof **rows);
    if (!*rows) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu usage rows", records);
    *n = waste_cache_usage(m->cache, *rows, records);
    waste_usage_sort(*rows, *n);
    return WASTE_OK;
}

waste_status waste_usage_get(waste_model *m, waste_usage_row *out, size_t max, size_t *n,
                             waste_error *err)
{
    waste_usage_row *rows;
    size_t known;
    waste_status st;

    *n = 0;
    if (!m) return waste_fail(err, WASTE_ARG, "waste_usage_get: no model");
    st = waste_model_here(m, err);
    if (!st) st = learned(m, &rows, &known, err);
    if (st) return st;
    *n = known < max ? known : max;
    if (*n) memcpy(out, rows, *n * sizeof *out);
    waste_mem_free(rows);
    return WASTE_OK;
}

waste_status waste_usage_warm(waste_model *m, const waste_usage_row *rows, size_t n,
                              waste_error *err)
{
    waste_usage_row *sorted;
    waste_status st;

    if (!m) return waste_fail(err, WASTE_ARG, "waste_usage_warm: no model");
    st = waste_model_here(m, err);
    if (st || !m->cache || !n) return st;
    sorted = waste_mem_array(n, sizeof *sorted);
    if (!sorted) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu usage rows", n);
    memcpy(sorted, rows, n * sizeof *sorted);
    waste_usage_sort(sorted, n);
    waste_cache_warm(m->cache, sorted, n);
    waste_mem_free(sorted);
    return WASTE_OK;
}

waste_status waste_usage_save(waste_model *m, const char *path, waste_error *err)
{
    waste_cache_counts counts = {0};
    waste_usage_row *rows;
    size_t n;
    waste_status st;

    if (!m) return waste_fail(err, WASTE_ARG, "waste_usage_save: no model");
    if (!path || !path[0]) return waste_fail(err, WASTE_ARG, "waste_usage_save: no path");
    st = waste_model_here(m, err);
    if (!st) st = learned(m, &rows, &n, err);
    if (st) return st;
    if (m->cache) waste_cache_counts_get(m->cache, &counts);
    st = waste_usage_write(path, rows, n, counts.hits + counts.misses, err);
    waste_mem_free(rows);
    return st;
}

/* A hotlist is a hint: whatever is wrong with the file, the model opens. */
void waste_stats_warm(waste_model *m, const char *path)
{
    waste_usage_row *rows;
    size_t n;

    if (!m->cache) return;
    n = waste_usage_read(&rows, path, waste_banks_shape(m->banks));
    if (n) waste_cache_warm(m->cache, rows, n);
    waste_mem_free(rows);
}
