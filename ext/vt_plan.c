/* waste_plan(model [, options]): where a model's memory would go, part by part,
 * and the budget that would be chosen. Nothing is loaded.
 *
 *     SELECT part, value, unit FROM waste_plan('demo', '{"context":1024}');
 *     -- trunk|...|bytes
 *     -- ...
 *     SELECT value, why FROM waste_plan('demo', '{"budget":"1M"}') WHERE part = 'budget';
 *     -- 1048576|as given: below the floor, opening would be refused
 *     SELECT part, round(value), why FROM waste_plan('demo', '{"probe":true}') WHERE unit LIKE '%/s';
 *
 * Columns
 *     part    trunk, codebooks, tables, scratch, state, generation, min_cache;
 *             floor (their sum); working_set, expert_set; ceiling (usable RAM),
 *             budget, cache, slots, sequences; with a probe also disk, cold, warm
 *     value   a number, an INTEGER where it counts something; NULL: not known
 *     unit    bytes, slots, bytes/s, tokens/s
 *     why     one sentence
 *     model, options   hidden: the arguments
 *
 * model is a name in waste_models, whose options apply, or a path; options go
 * over them: the model options (budget, context, ...), and "probe": true to time
 * direct reads of the container's banks for a tenth of a second. NULL gives no
 * rows. docs/memory.md explains the parts. It reads the container's manifest,
 * tokenizer and, with a probe, banks, and writes nothing. */
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

enum { COL_PART, COL_VALUE, COL_UNIT, COL_WHY, COL_MODEL, COL_OPTIONS };

#define N_ARGS 2

typedef struct cursor {
    sqlite3_vtab_cursor base;
    waste_table_args args;
    waste_plan_report plan;
    size_t at;
} cursor;

/* ---- options ---- */

/* The row's options and, over them, the argument's. */
static waste_status read_options(waste_wish *wish, int *probe, const waste_model_ref *ref,
                                 sqlite3_value *argument, waste_error *err)
{
    waste_json *row = NULL, *mine = NULL;
    waste_status st = WASTE_OK;

    memset(wish, 0, sizeof *wish);
    *probe = 0;
    if (ref->options)
        st = waste_args_object_text(&row, ref->options, strlen(ref->options),
                                    "options in waste_models", err);
    if (!st) st = waste_wish_read(wish, row, "options in waste_models", err);
    if (!st && argument) st = waste_args_object(&mine, argument, "waste_plan: options", err);
    if (!st) st = waste_wish_read_probe(wish, probe, mine, "waste_plan", err);
    waste_json_free(mine);
    waste_json_free(row);
    return st;
}

/* ---- table ---- */

static int plan_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux,
                               "CREATE TABLE x(part TEXT, value, unit TEXT, why TEXT,"
                               " model HIDDEN, options HIDDEN)",
                               out);
}

static int plan_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, COL_MODEL, N_ARGS, 1, -1, "waste_plan needs a model");
}

static int plan_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out)
{
    cursor *c = waste_mem_zero(sizeof *c);

    (void)t;
    if (!c) return SQLITE_NOMEM;
    *out = &c->base;
    return SQLITE_OK;
}

static void end(cursor *c)
{
    waste_plan_clear(&c->plan);
    waste_table_args_clear(&c->args);
    c->at = 0;
}

static int plan_close(sqlite3_vtab_cursor *base)
{
    end((cursor *)base);
    waste_mem_free(base);
    return SQLITE_OK;
}

static waste_status make(cursor *c, waste_error *err)
{
    waste_conn *conn = ((waste_table *)c->base.pVtab)->conn;
    waste_model_ref ref;
    waste_wish wish;
    int probe;
    waste_status st = waste_models_find(&ref, conn, c->args.v[0], err);

    if (st) return st;
    st = read_options(&wish, &probe, &ref, c->args.v[1], err);
    if (!st) st = waste_plan_make(&c->plan, ref.path, &wish.options, probe, err);
    waste_models_ref_clear(&ref);
    return st;
}

static int plan_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                       sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    waste_error err = {0};
    int rc;

    end(c);
    rc = waste_table_args_set(&c->args, c->base.pVtab, idx_num, idx_str, argc, argv);
    if (rc != SQLITE_OK || waste_table_args_null(&c->args, 0)) return rc;
    return make(c, &err) ? waste_table_fail(base->pVtab, &err) : SQLITE_OK;
}

static int plan_next(sqlite3_vtab_cursor *base)
{
    ((cursor *)base)->at++;
    return SQLITE_OK;
}

static int plan_eof(sqlite3_vtab_cursor *base)
{
    const cursor *c = (const cursor *)base;
    return c->at >= c->plan.n;
}

/* Rates are REAL, counts INTEGER; SQLite makes NULL of a NaN. */
static void value_column(sqlite3_context *ctx, const waste_plan_row *row)
{
    if (!strchr(row->unit, '/') && row->value >= 0 && row->value < 0x1p62)
        sqlite3_result_int64(ctx, (sqlite3_int64)row->value);
    else
        sqlite3_result_double(ctx, row->value);
}

static int plan_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    const waste_plan_row *row = &c->plan.row[c->at];

    switch (column) {
    case COL_PART: sqlite3_result_text(ctx, row->part, -1, SQLITE_STATIC); break;
    case COL_VALUE: value_column(ctx, row); break;
    case COL_UNIT: sqlite3_result_text(ctx, row->unit, -1, SQLITE_STATIC); break;
    case COL_WHY: waste_table_text(ctx, row->why, strlen(row->why)); break;
    default: waste_table_args_column(&c->args, column - COL_MODEL, ctx); break;
    }
    return SQLITE_OK;
}

static int plan_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)((const cursor *)base)->at + 1;
    return SQLITE_OK;
}

const sqlite3_module waste_vt_plan = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only */
    .xConnect = plan_connect,
    .xBestIndex = plan_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = plan_open,
    .xClose = plan_close,
    .xFilter = plan_filter,
    .xNext = plan_next,
    .xEof = plan_eof,
    .xColumn = plan_column,
    .xRowid = plan_rowid,
};
