/* waste_convert(source, target [, options]): makes a container of a checkpoint.
 *
 *     SELECT phase, layer, done, total
 *       FROM waste_convert('examples/demo/checkpoint', 'demo.waste');
 *     -- trunk||159|452
 *     -- trunk||212|452
 *     -- codebooks|1|213|452
 *     -- experts|1|245|452 ...
 *     SELECT kind, bytes, note FROM waste_convert('/downloads/K3', '/models/k3.waste',
 *                                                 '{"plan":true}');
 *
 * Columns
 *     phase      trunk, codebooks, experts, layer, reclaim, files, proof, manifest; trial;
 *                with plan: plan, warning, problem
 *     layer      NULL where a phase has none
 *     kind       of a layer row: gate, up, down; of a plan row: what it is about
 *     done, total   units of the whole conversion
 *     bytes      written so far; of a plan row: what the note says
 *     seconds    since the start; of a plan row: of the conversion
 *     eta        seconds to go, NULL while unknown
 *     error      ||W - W'|| / ||W|| so far of the trunk, layer or kind; NULL if nothing
 *     note       a sentence, or NULL
 *     source, target, options (hidden)   the arguments
 *
 * Options: trunk_bits (4, 8 or 3), experts ("vq3r", "vq2r", "vq4p"), overwrite, effort
 * ("fast", "default", "best"), importance (path of a file), threads, layers ("1,2": a
 * trial), reclaim ("off", "dry", "on"), plan, progress (a line on stderr).
 * The work is done row by row; the container is there when the last row has been
 * read. Stopping earlier (LIMIT, an interrupt, closing the statement, a crash) keeps
 * what is finished in target/.convert, and the same call goes on from there. A NULL
 * source or target gives no rows and converts nothing.
 * Reads the directory `source` and, with reclaim "on", deletes shards of it; writes
 * the directory `target`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_progress.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

enum {
    COL_PHASE,
    COL_LAYER,
    COL_KIND,
    COL_DONE,
    COL_TOTAL,
    COL_BYTES,
    COL_SECONDS,
    COL_ETA,
    COL_ERROR,
    COL_NOTE,
    COL_SOURCE
};
enum { ARG_SOURCE, ARG_TARGET, ARG_OPTIONS };

typedef struct cursor {
    waste_cursor head;
    waste_json *options; /* the conversion borrows from it */
    waste_progress progress;
    waste_convert *work;
    waste_convert_row row;
} cursor;

/* ---- options ---- */

typedef struct fields {
    int trunk_bits, overwrite, plan, progress;
    const char *experts, *effort, *reclaim;
    waste_str layers;
    waste_str importance;
    int64_t threads;
} fields;

static waste_status read_bits(const waste_json *j, void *into, waste_error *err)
{
    int64_t v;

    (void)err;
    if (waste_json_int(j, &v) || (v != 3 && v != 4 && v != 8)) return WASTE_ARG;
    *(int *)into = (int)v;
    return WASTE_OK;
}

static waste_status read_name(const waste_json *j, const char *const *names, void *into)
{
    int i = waste_args_word(j, names);

    if (i < 0) return WASTE_ARG;
    *(const char **)into = names[i];
    return WASTE_OK;
}

static waste_status read_experts(const waste_json *j, void *into, waste_error *err)
{
    static const char *const names[] = {"vq3r", "vq2r", "vq4p", NULL};

    (void)err;
    return read_name(j, names, into);
}

static waste_status read_effort(const waste_json *j, void *into, waste_error *err)
{
    static const char *const names[] = {"fast", "default", "best", NULL};

    (void)err;
    return read_name(j, names, into);
}

static waste_status read_reclaim(const waste_json *j, void *into, waste_error *err)
{
    static const char *const names[] = {"off", "dry", "on", NULL};

    (void)err;
    return read_name(j, names, into);
}

static const waste_option table[] = {
    {"trunk_bits", WASTE_OPTION_CUSTOM, 1, offsetof(fields, trunk_bits), 0, 0, "4, 8 or 3",
     read_bits},
    {"experts", WASTE_OPTION_CUSTOM, 1, offsetof(fields, experts), 0, 0,
     "\"vq3r\", \"vq2r\" or \"vq4p\"", read_experts},
    {"overwrite", WASTE_OPTION_BOOL, 1, offsetof(fields, overwrite), 0, 0, "true or false", NULL},
    {"effort", WASTE_OPTION_CUSTOM, 1, offsetof(fields, effort), 0, 0,
     "\"fast\", \"default\" or \"best\"", read_effort},
    {"importance", WASTE_OPTION_PATH, 1, offsetof(fields, importance), 0, 0, "the path of a file",
     NULL},
    {"threads", WASTE_OPTION_INT, 1, offsetof(fields, threads), 0, 256, "an integer from 0 to 256",
     NULL},
    {"layers", WASTE_OPTION_PATH, 1, offsetof(fields, layers), 0, 0, "text such as \"1,3-5\"",
     NULL},
    {"reclaim", WASTE_OPTION_CUSTOM, 1, offsetof(fields, reclaim), 0, 0,
     "\"off\", \"dry\" or \"on\"", read_reclaim},
    {"plan", WASTE_OPTION_BOOL, 1, offsetof(fields, plan), 0, 0, "true or false", NULL},
    {"progress", WASTE_OPTION_BOOL, 1, offsetof(fields, progress), 0, 0, "true or false", NULL}};

static waste_status start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    sqlite3_value *const *arg = base->args.v;
    const char *source, *target;
    fields f = {0};
    waste_convert_options o;
    waste_status st = waste_args_name(arg[ARG_SOURCE], "waste_convert: the source", &source, err);

    if (!st) st = waste_args_name(arg[ARG_TARGET], "waste_convert: the target", &target, err);
    if (!st && arg[ARG_OPTIONS])
        st = waste_args_object(&c->options, arg[ARG_OPTIONS], "waste_convert: options", err);
    if (!st)
        st = waste_args_read(table, sizeof table / sizeof *table, 1, &f, NULL, c->options,
                             "waste_convert", err);
    if (st) return st;
    memset(&o, 0, sizeof o);
    o.trunk_bits = f.trunk_bits;
    o.experts = f.experts;
    o.overwrite = f.overwrite;
    o.effort = f.effort;
    o.importance = f.importance.text;
    o.threads = (int)f.threads;
    o.layers = f.layers.text;
    o.reclaim = f.reclaim;
    o.plan = f.plan;
    o.cancel = waste_interrupt_cancel(&base->stop);
    waste_progress_plain(&c->progress, f.progress);
    return waste_convert_open(&c->work, source, target, &o, err);
}

/* ---- rows ---- */

/* "[experts of layer 3, 120 of 5000, 3.1 GB, error 16.1 %, 1:02:03 to go]" */
static void show(cursor *c, int last)
{
    const waste_convert_row *r = &c->row;
    char line[200], layer[32] = "", error[32] = "", eta[40] = "";

    if (!r->phase) return;
    if (r->layer >= 0) snprintf(layer, sizeof layer, " of layer %d", r->layer);
    if (r->error > 0) snprintf(error, sizeof error, ", error %.1f %%", 100 * r->error);
    if (r->eta > 0 && r->eta < 1e8)
        snprintf(eta, sizeof eta, ", %d:%02d:%02d to go", (int)(r->eta / 3600),
                 (int)(r->eta / 60) % 60, (int)r->eta % 60);
    snprintf(line, sizeof line, "[%s%s, %llu of %llu, %.2f GB, %.1f s%s%s]", r->phase, layer,
             (unsigned long long)r->done, (unsigned long long)r->total, (double)r->bytes / 1e9,
             r->seconds, error, eta);
    waste_progress_line(&c->progress, line, last);
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    waste_status st = waste_convert_next(c->work, &c->row, err);

    show(c, st != WASTE_OK);
    return st;
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_convert_close(c->work);
    c->work = NULL;
    waste_json_free(c->options);
    c->options = NULL;
    memset(&c->row, 0, sizeof c->row);
}

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const waste_convert_row *r = &((const cursor *)base)->row;

    switch (column) {
    case COL_PHASE: sqlite3_result_text(ctx, r->phase, -1, SQLITE_STATIC); break;
    case COL_LAYER:
        if (r->layer >= 0) sqlite3_result_int(ctx, r->layer);
        break;
    case COL_KIND:
        if (r->kind) sqlite3_result_text(ctx, r->kind, -1, SQLITE_STATIC);
        break;
    case COL_ETA:
        if (!isnan(r->eta)) sqlite3_result_double(ctx, r->eta);
        break;
    case COL_DONE: sqlite3_result_int64(ctx, (sqlite3_int64)r->done); break;
    case COL_TOTAL: sqlite3_result_int64(ctx, (sqlite3_int64)r->total); break;
    case COL_BYTES: sqlite3_result_int64(ctx, (sqlite3_int64)r->bytes); break;
    case COL_SECONDS: sqlite3_result_double(ctx, r->seconds); break;
    case COL_ERROR:
        if (!isnan(r->error)) sqlite3_result_double(ctx, r->error);
        break;
    default:
        if (*r->note) waste_table_text(ctx, r->note, strlen(r->note));
        break;
    }
}

const waste_table_kind waste_vt_convert = {
    .columns = "CREATE TABLE x(phase TEXT, layer INTEGER, kind TEXT, done INTEGER, total INTEGER,"
               " bytes INTEGER, seconds REAL, eta REAL, error REAL, note TEXT, source HIDDEN,"
               " target HIDDEN, options HIDDEN)",
    .first = COL_SOURCE,
    .args = 3,
    .required = 2,
    .wanted = 2,
    .needs = "waste_convert needs a source and a target",
    .ascending = COL_DONE,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
