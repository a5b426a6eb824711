/* waste_verify(model [, source]): reads a container back, everything in it.
 *
 *     SELECT count(*), sum(ok) FROM waste_verify('demo');
 *     -- 344|344
 *     SELECT layer, expert, note FROM waste_verify('/models/k3.waste') WHERE NOT ok;
 *     SELECT layer, avg(gate), avg(up), avg(down)
 *       FROM waste_verify('demo', 'examples/demo/checkpoint') WHERE part = 'record'
 *      GROUP BY layer;
 *
 * Columns
 *     part      census (one row: has it what its configuration needs), tensor (of the
 *               trunk), codebooks (of a layer), record (header and checksum)
 *     layer, expert   NULL where there is none
 *     name      of a tensor
 *     ok        1 or 0
 *     error     ||W - W'|| / ||W|| against the source; NULL without one
 *     gate, up, down   the same of the three matrices of a record
 *     note      what is wrong; for the census what there is
 *     model, source (hidden)   the arguments
 *
 * model is a name in waste_models or a path; source the checkpoint it was made of. A
 * NULL model gives no rows. A container that is damaged gives rows that are not ok; one
 * that is not there is an error. Reads both directories and writes nothing. */
#include <math.h>
#include <string.h>

#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

enum {
    COL_PART,
    COL_LAYER,
    COL_EXPERT,
    COL_NAME,
    COL_OK,
    COL_ERROR,
    COL_GATE,
    COL_UP,
    COL_DOWN,
    COL_NOTE,
    COL_MODEL
};

typedef struct cursor {
    waste_cursor head;
    waste_verify *work;
    waste_verify_row row;
} cursor;

static waste_status start(waste_cursor *base, waste_error *err)
{
    const waste_cancel cancel = waste_interrupt_cancel(&base->stop);
    const char *source = NULL;
    waste_model_ref ref;
    waste_status st = waste_models_find(&ref, waste_cursor_conn(base), base->args.v[0], err);

    if (st) return st;
    if (!waste_table_args_null(&base->args, 1))
        st = waste_args_name(base->args.v[1], "waste_verify: the source", &source, err);
    if (!st) st = waste_verify_open(&((cursor *)base)->work, ref.path, source, &cancel, err);
    waste_models_ref_clear(&ref);
    return st;
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;

    return waste_verify_next(c->work, &c->row, err);
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_verify_close(c->work);
    c->work = NULL;
    memset(&c->row, 0, sizeof c->row);
}

static void put_number(sqlite3_context *ctx, int number)
{
    if (number >= 0) sqlite3_result_int(ctx, number);
}

static void put_error(sqlite3_context *ctx, double error)
{
    if (!isnan(error)) sqlite3_result_double(ctx, error);
}

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const waste_verify_row *r = &((const cursor *)base)->row;

    switch (column) {
    case COL_PART: sqlite3_result_text(ctx, r->part, -1, SQLITE_STATIC); break;
    case COL_LAYER: put_number(ctx, r->layer); break;
    case COL_EXPERT: put_number(ctx, r->expert); break;
    case COL_NAME:
        if (r->name) waste_table_text(ctx, r->name, strlen(r->name));
        break;
    case COL_OK: sqlite3_result_int(ctx, r->ok); break;
    case COL_ERROR: put_error(ctx, r->error); break;
    case COL_GATE: put_error(ctx, r->gate); break;
    case COL_UP: put_error(ctx, r->up); break;
    case COL_DOWN: put_error(ctx, r->down); break;
    default:
        if (*r->note) waste_table_text(ctx, r->note, strlen(r->note));
        break;
    }
}

const waste_table_kind waste_vt_verify = {
    .columns = "CREATE TABLE x(part TEXT, layer INTEGER, expert INTEGER, name TEXT, ok INTEGER,"
               " error REAL, gate REAL, up REAL, down REAL, note TEXT, model HIDDEN,"
               " source HIDDEN)",
    .first = COL_MODEL,
    .args = 2,
    .required = 1,
    .wanted = 1,
    .needs = "waste_verify needs a model",
    .ascending = -1,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
