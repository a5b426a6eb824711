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

#include "ext_args.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

enum { COL_PART, COL_VALUE, COL_UNIT, COL_WHY, COL_MODEL };

typedef struct cursor {
    waste_cursor head;
    waste_plan_report plan;
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

static waste_status start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    waste_model_ref ref;
    waste_wish wish;
    int probe;
    waste_status st = waste_models_find(&ref, waste_cursor_conn(base), base->args.v[0], err);

    if (st) return st;
    st = read_options(&wish, &probe, &ref, base->args.v[1], err);
    wish.options.cancel = waste_interrupt_cancel(&base->stop);
    if (!st) st = waste_plan_make(&c->plan, ref.path, &wish.options, probe, err);
    waste_models_ref_clear(&ref);
    return st;
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    (void)err;
    return (size_t)base->n < ((const cursor *)base)->plan.n ? WASTE_OK : WASTE_DONE;
}

static void end(waste_cursor *base)
{
    waste_plan_clear(&((cursor *)base)->plan);
}

/* Rates are REAL, counts INTEGER; SQLite makes NULL of a NaN. */
static void value_column(sqlite3_context *ctx, const waste_plan_row *row)
{
    if (!strchr(row->unit, '/') && row->value >= 0 && row->value < 0x1p62)
        sqlite3_result_int64(ctx, (sqlite3_int64)row->value);
    else
        sqlite3_result_double(ctx, row->value);
}

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const waste_plan_row *row = &((const cursor *)base)->plan.row[base->n - 1];

    switch (column) {
    case COL_PART: sqlite3_result_text(ctx, row->part, -1, SQLITE_STATIC); break;
    case COL_VALUE: value_column(ctx, row); break;
    case COL_UNIT: sqlite3_result_text(ctx, row->unit, -1, SQLITE_STATIC); break;
    default: waste_table_text(ctx, row->why, strlen(row->why)); break;
    }
}

const waste_table_kind waste_vt_plan = {
    .columns =
        "CREATE TABLE x(part TEXT, value, unit TEXT, why TEXT, model HIDDEN, options HIDDEN)",
    .first = COL_MODEL,
    .args = 2,
    .required = 1,
    .wanted = 1,
    .needs = "waste_plan needs a model",
    .ascending = -1,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
