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
 *     io_threads, lookahead, policy, precision   in force
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
    COL_NOTICE
};

typedef struct cursor {
    sqlite3_vtab_cursor base;
    waste_shared_view *rows; /* as they were when the query began */
    size_t n, at;
} cursor;

static int stats_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(
        db, aux,
        "CREATE TABLE x(path TEXT, names TEXT, users INTEGER, tokens INTEGER,"
        " reused_tokens INTEGER, prefixes INTEGER, hits INTEGER, misses INTEGER, hit_rate REAL, "
        "guesses INTEGER, guesses_used INTEGER, evictions INTEGER,"
        " bytes_read INTEGER, io_ms REAL, step_ms REAL, idle_ms REAL, warmed INTEGER,"
        " trunk_bytes INTEGER, scratch_bytes INTEGER, sequence_bytes INTEGER, cache_bytes INTEGER,"
        " memory_bytes INTEGER, budget_bytes INTEGER, cache_slots INTEGER, cache_used INTEGER,"
        " page_faults INTEGER, banks_direct INTEGER, banks_buffered INTEGER, threads INTEGER,"
        " io_threads INTEGER,"
        " lookahead INTEGER, policy TEXT, precision TEXT, notice TEXT)",
        out);
}

static int stats_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    info->estimatedCost = 10;
    info->estimatedRows = 2;
    return SQLITE_OK;
}

static int stats_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out)
{
    cursor *c = waste_mem_zero(sizeof *c);

    (void)t;
    if (!c) return SQLITE_NOMEM;
    *out = &c->base;
    return SQLITE_OK;
}

static int stats_close(sqlite3_vtab_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_mem_free(c->rows);
    waste_mem_free(c);
    return SQLITE_OK;
}

static int stats_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                        sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    waste_error err = {0};

    (void)idx_num;
    (void)idx_str;
    (void)argc;
    (void)argv;
    waste_mem_free(c->rows);
    c->at = 0;
    if (waste_shared_views(&c->rows, &c->n, &err)) return waste_table_fail(base->pVtab, &err);
    return SQLITE_OK;
}

static int stats_next(sqlite3_vtab_cursor *base)
{
    ((cursor *)base)->at++;
    return SQLITE_OK;
}

static int stats_eof(sqlite3_vtab_cursor *base)
{
    const cursor *c = (const cursor *)base;

    return c->at >= c->n;
}

static void names(sqlite3_context *ctx, const cursor *c)
{
    waste_buf b = {0};

    waste_models_names(&b, ((waste_table *)c->base.pVtab)->conn, c->rows[c->at].id);
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

static int stats_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    const waste_shared_view *v = &c->rows[c->at];
    const waste_model_stats *s = &v->stats;
    const uint64_t wanted = s->hits + s->misses;

    switch (column) {
    case COL_PATH: waste_table_text(ctx, v->path, strlen(v->path)); break;
    case COL_NAMES: names(ctx, c); break;
    case COL_HIT_RATE:
        if (wanted) sqlite3_result_double(ctx, (double)s->hits / (double)wanted);
        break;
    case COL_IO_MS: sqlite3_result_double(ctx, (double)s->io_ns / 1e6); break;
    case COL_STEP_MS: sqlite3_result_double(ctx, (double)s->step_ns / 1e6); break;
    case COL_IDLE_MS: sqlite3_result_double(ctx, (double)s->idle_ns / 1e6); break;
    case COL_POLICY:
        if (s->policy) sqlite3_result_text(ctx, s->policy, -1, SQLITE_STATIC);
        break;
    case COL_PRECISION:
        sqlite3_result_text(ctx, v->precision == WASTE_PRECISION_EXACT ? "exact" : "fast", -1,
                            SQLITE_STATIC);
        break;
    case COL_NOTICE:
        if (s->notice[0]) waste_table_text(ctx, s->notice, strlen(s->notice));
        break;
    default: sqlite3_result_int64(ctx, count_of(v, column)); break;
    }
    return SQLITE_OK;
}

static int stats_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)((const cursor *)base)->at + 1;
    return SQLITE_OK;
}

const sqlite3_module waste_vt_stats = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only */
    .xConnect = stats_connect,
    .xBestIndex = stats_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = stats_open,
    .xClose = stats_close,
    .xFilter = stats_filter,
    .xNext = stats_next,
    .xEof = stats_eof,
    .xColumn = stats_column,
    .xRowid = stats_rowid,
};
