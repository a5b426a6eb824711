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

#include "base/mem.h"
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

#define N_ARGS 2

typedef struct cursor {
    sqlite3_vtab_cursor base;
    waste_table_args args;
    waste_interrupt stop;
    waste_verify *work;
    waste_verify_row row;
    sqlite3_int64 n;
    int eof;
} cursor;

static int verify_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                          sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux,
                               "CREATE TABLE x(part TEXT, layer INTEGER, expert INTEGER,"
                               " name TEXT, ok INTEGER, error REAL, gate REAL, up REAL, down REAL,"
                               " note TEXT, model HIDDEN, source HIDDEN)",
                               out);
}

static int verify_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, COL_MODEL, N_ARGS, 1, -1, "waste_verify needs a model");
}

static int verify_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out)
{
    cursor *c = waste_mem_zero(sizeof *c);

    (void)t;
    if (!c) return SQLITE_NOMEM;
    c->eof = 1;
    *out = &c->base;
    return SQLITE_OK;
}

static void end(cursor *c)
{
    waste_verify_close(c->work);
    c->work = NULL;
    waste_table_args_clear(&c->args);
    memset(&c->row, 0, sizeof c->row);
    c->n = 0;
    c->eof = 1;
}

static int verify_close(sqlite3_vtab_cursor *base)
{
    end((cursor *)base);
    waste_mem_free(base);
    return SQLITE_OK;
}

static waste_status start(cursor *c, waste_error *err)
{
    const waste_cancel cancel = waste_interrupt_cancel(&c->stop);
    const char *source = NULL;
    waste_model_ref ref;
    waste_status st =
        waste_models_find(&ref, ((waste_table *)c->base.pVtab)->conn, c->args.v[0], err);

    if (st) return st;
    if (!waste_table_args_null(&c->args, 1))
        st = waste_args_name(c->args.v[1], "waste_verify: the source", &source, err);
    if (!st) st = waste_verify_open(&c->work, ref.path, source, &cancel, err);
    waste_models_ref_clear(&ref);
    return st;
}

static int advance(cursor *c, waste_status st, waste_error *err)
{
    if (!st) st = waste_verify_next(c->work, &c->row, err);
    c->n++;
    c->eof = st != WASTE_OK;
    return st < 0 ? waste_table_fail(c->base.pVtab, err) : SQLITE_OK;
}

static int verify_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                         sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    waste_error err = {0};
    int rc;

    end(c);
    rc = waste_table_args_set(&c->args, c->base.pVtab, idx_num, idx_str, argc, argv);
    if (rc != SQLITE_OK || waste_table_args_null(&c->args, 0)) return rc;
    waste_interrupt_begin(&c->stop, waste_models_db(((waste_table *)base->pVtab)->conn));
    rc = advance(c, start(c, &err), &err);
    waste_interrupt_end(&c->stop);
    return rc;
}

static int verify_next(sqlite3_vtab_cursor *base)
{
    cursor *c = (cursor *)base;
    waste_error err = {0};
    int rc;

    waste_interrupt_begin(&c->stop, waste_models_db(((waste_table *)base->pVtab)->conn));
    rc = advance(c, WASTE_OK, &err);
    waste_interrupt_end(&c->stop);
    return rc;
}

static int verify_eof(sqlite3_vtab_cursor *base)
{
    return ((const cursor *)base)->eof;
}

static void put_number(sqlite3_context *ctx, int number)
{
    if (number >= 0) sqlite3_result_int(ctx, number);
}

static void put_error(sqlite3_context *ctx, double error)
{
    if (!isnan(error)) sqlite3_result_double(ctx, error);
}

static int verify_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    const waste_verify_row *r = &c->row;

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
    case COL_NOTE:
        if (*r->note) waste_table_text(ctx, r->note, strlen(r->note));
        break;
    default: waste_table_args_column(&c->args, column - COL_MODEL, ctx); break;
    }
    return SQLITE_OK;
}

static int verify_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = ((const cursor *)base)->n;
    return SQLITE_OK;
}

const sqlite3_module waste_vt_verify = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only */
    .xConnect = verify_connect,
    .xBestIndex = verify_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = verify_open,
    .xClose = verify_close,
    .xFilter = verify_filter,
    .xNext = verify_next,
    .xEof = verify_eof,
    .xColumn = verify_column,
    .xRowid = verify_rowid,
};
