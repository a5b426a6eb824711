/* waste_stats: one row per model that this process has open, as it is now.
 *
 *     SELECT waste_register('demo', 'examples/demo/demo.waste');
 *     SELECT waste_generate('demo', 'What is the capital of Italy?');
 *     SELECT names, users, tokens, cache_used <= cache_slots FROM waste_stats;
 *     -- demo|1|43|1
 *     SELECT round(100 * hit_rate), round(bytes_read / 1e6), policy FROM waste_stats;
 *     -- 50.0|11.0|decayed use, layer distance
 *
 * Columns
 *     path         of the container, as whoever opened it gave it
 *     names        by which waste_models of this database knows it; NULL if none
 *     users        connections of this process that have it open
 *     tokens       positions computed, prompts included
 *     reused_tokens  positions of prompts that earlier ones had computed
 *     prefixes     beginnings of prompts that are kept for that
 *     hits, misses expert records that were in memory (or on their way) when a
 *                  step wanted them, and that were not
 *     hit_rate     hits / (hits + misses); NULL before the first
 *     guesses, guesses_used   records read ahead, and those then wanted
 *     evictions    records that made room for others
 *     bytes_read   of records, guesses included, warming at open not
 *     io_ms        steps waited for reads
 *     known_ms     of that, for reads that had been asked for before the layer knew
 *                  that it needs them: what reading ahead did not hide
 *     disk_ms      a read was under way
 *     step_ms      in steps altogether
 *     idle_ms      open and in no step
 *     warmed       records read at open because of learned usage
 *     trunk_bytes, scratch_bytes, sequence_bytes, cache_bytes   in memory
 *     memory_bytes allocated by the extension in this process, all models
 *     budget_bytes in force
 *     cache_slots, cache_used   records that fit, and that are there
 *     page_faults  of the process since the model was opened, from disk: what
 *                  grows here is memory that the system took away
 *     banks_direct, banks_buffered   expert files read past the page cache, and
 *                  through it
 *     threads      that compute; those that read are io_threads
 *     io_threads, lookahead, policy, precision, kv   in force
 *     notice       what did not go as planned, or NULL
 *
 * Reading it opens no model, waits for none, and writes nothing. A process that
 * was forked has no model open, whatever its parent has. */
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_models.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

enum {
    COL_PATH,
    COL_NAMES,
    COL_USERS,
    COL_TOKENS,
    COL_REUSED_TOKENS,
    COL_PREFIXES,
    COL_HITS,
    COL_MISSES,
    COL_HIT_RATE,
    COL_GUESSES,
    COL_GUESSES_USED,
    COL_EVICTIONS,
    COL_BYTES_READ,
    COL_IO_MS,
    COL_KNOWN_MS,
    COL_DISK_MS,
    COL_STEP_MS,
    COL_IDLE_MS,
    COL_WARMED,
    COL_TRUNK_BYTES,
    COL_SCRATCH_BYTES,
    COL_SEQUENCE_BYTES,
    COL_CACHE_BYTES,
    COL_MEMORY_BYTES,
    COL_BUDGET_BYTES,
    COL_CACHE_SLOTS,
    COL_CACHE_USED,
    COL_PAGE_FAULTS,
    COL_BANKS_DIRECT,
    COL_BANKS_BUFFERED,
    COL_THREADS,
    COL_IO_THREADS,
    COL_LOOKAHEAD,
    COL_POLICY,
    COL_PRECISION,
    COL_KV,
    COL_NOTICE
};

typedef struct cursor {
    waste_cursor head;
    waste_shared_view *rows; /* as they were when the query began */
    size_t n;
} cursor;

static waste_status start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;

    return waste_shared_views(&c->rows, &c->n, err);
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    (void)err;
    return (size_t)base->n < ((const cursor *)base)->n ? WASTE_OK : WASTE_DONE;
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_mem_free(c->rows);
    c->rows = NULL;
    c->n = 0;
}

static void names(sqlite3_context *ctx, const waste_cursor *base, const uint64_t id[2])
{
    waste_buf b = {0};

    waste_models_names(&b, waste_cursor_conn(base), id);
    if (b.len || b.failed) waste_args_result(ctx, &b);
    waste_buf_clear(&b);
}

/* The columns that are counts; -1 for others. */
static int64_t count_of(const waste_shared_view *v, int column)
{
    const waste_model_stats *s = &v->stats;

    switch (column) {
    case COL_USERS: return v->users;
    case COL_TOKENS: return (int64_t)s->tokens;
    case COL_REUSED_TOKENS: return (int64_t)s->reused;
    case COL_PREFIXES: return (int64_t)s->prefixes;
    case COL_HITS: return (int64_t)s->hits;
    case COL_MISSES: return (int64_t)s->misses;
    case COL_GUESSES: return (int64_t)s->guesses;
    case COL_GUESSES_USED: return (int64_t)s->guesses_used;
    case COL_EVICTIONS: return (int64_t)s->evictions;
    case COL_BYTES_READ: return (int64_t)s->bytes_read;
    case COL_WARMED: return (int64_t)s->warmed;
    case COL_TRUNK_BYTES: return (int64_t)s->trunk_bytes;
    case COL_SCRATCH_BYTES: return (int64_t)s->scratch_bytes;
    case COL_SEQUENCE_BYTES: return (int64_t)s->sequence_bytes;
    case COL_CACHE_BYTES: return (int64_t)s->cache_bytes;
    case COL_MEMORY_BYTES: return (int64_t)s->memory_bytes;
    case COL_BUDGET_BYTES: return (int64_t)s->budget_bytes;
    case COL_CACHE_SLOTS: return (int64_t)s->cache_slots;
    case COL_CACHE_USED: return (int64_t)s->cache_used;
    case COL_PAGE_FAULTS: return (int64_t)s->page_faults;
    case COL_BANKS_DIRECT: return s->banks_direct;
    case COL_BANKS_BUFFERED: return s->banks_buffered;
    case COL_THREADS: return s->threads;
    case COL_IO_THREADS: return s->io_threads;
    case COL_LOOKAHEAD: return s->lookahead;
    default: return -1;
    }
}

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const waste_shared_view *v = &((const cursor *)base)->rows[base->n - 1];
    const waste_model_stats *s = &v->stats;
    const uint64_t wanted = s->hits + s->misses;

    switch (column) {
    case COL_PATH: waste_table_text(ctx, v->path, strlen(v->path)); break;
    case COL_NAMES: names(ctx, base, v->id); break;
    case COL_HIT_RATE:
        if (wanted) sqlite3_result_double(ctx, (double)s->hits / (double)wanted);
        break;
    case COL_IO_MS: sqlite3_result_double(ctx, (double)s->io_ns / 1e6); break;
    case COL_KNOWN_MS: sqlite3_result_double(ctx, (double)s->known_ns / 1e6); break;
    case COL_DISK_MS: sqlite3_result_double(ctx, (double)s->disk_ns / 1e6); break;
    case COL_STEP_MS: sqlite3_result_double(ctx, (double)s->step_ns / 1e6); break;
    case COL_IDLE_MS: sqlite3_result_double(ctx, (double)s->idle_ns / 1e6); break;
    case COL_POLICY:
        if (s->policy) sqlite3_result_text(ctx, s->policy, -1, SQLITE_STATIC);
        break;
    case COL_PRECISION:
        sqlite3_result_text(ctx, v->precision == WASTE_PRECISION_EXACT ? "exact" : "fast", -1,
                            SQLITE_STATIC);
        break;
    case COL_KV:
        sqlite3_result_text(ctx, v->kv == WASTE_KV_F16 ? "f16" : "f32", -1, SQLITE_STATIC);
        break;
    case COL_NOTICE:
        if (s->notice[0]) waste_table_text(ctx, s->notice, strlen(s->notice));
        break;
    default: sqlite3_result_int64(ctx, count_of(v, column)); break;
    }
}

const waste_table_kind waste_vt_stats = {
    .columns =
        "CREATE TABLE x(path TEXT, names TEXT, users INTEGER, tokens INTEGER,"
        " reused_tokens INTEGER, prefixes INTEGER, hits INTEGER, misses INTEGER, hit_rate REAL, "
        "guesses INTEGER, guesses_used INTEGER, evictions INTEGER,"
        " bytes_read INTEGER, io_ms REAL, known_ms REAL, disk_ms REAL, step_ms REAL, idle_ms REAL, "
        "warmed INTEGER,"
        " trunk_bytes INTEGER, scratch_bytes INTEGER, sequence_bytes INTEGER, cache_bytes INTEGER,"
        " memory_bytes INTEGER, budget_bytes INTEGER, cache_slots INTEGER, cache_used INTEGER,"
        " page_faults INTEGER, banks_direct INTEGER, banks_buffered INTEGER, threads INTEGER,"
        " io_threads INTEGER,"
        " lookahead INTEGER, policy TEXT, precision TEXT, kv TEXT, notice TEXT)",
    .ascending = -1,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
