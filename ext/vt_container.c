/* What is in a container, without loading a weight.
 *
 * waste_info(model): key, value
 *
 *     SELECT value FROM waste_info('demo') WHERE key = 'active_params';   -- 5994720
 *
 * waste_tensors(model): name, format (F32, Q8G, Q4G, Q3G), shape (JSON array),
 * group_size (0 for F32), offset, bytes (in trunk.bin), resident (1: in memory
 * while the model is open)
 *
 *     SELECT format, count(*), sum(bytes) FROM waste_tensors('demo') GROUP BY format;
 *     -- F32|177|6939520
 *     -- Q4G|33|1216512
 *     -- Q8G|2|1064960
 *
 * waste_experts(model): layer, expert, file, offset, bytes, codebook_base, format;
 * one row per record, in the order layer, expert
 *
 *     SELECT layer, count(*), sum(bytes) FROM waste_experts('demo') GROUP BY layer;
 *     -- 1|32|655360 ...
 *
 * The model (hidden column `model`) is a name in waste_models or a path. NULL
 * gives no rows. They read the manifest and what it names, and write nothing. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

/* ---- what the three share: a cursor over rows 0 .. n - 1 ---- */

typedef struct cursor {
    sqlite3_vtab_cursor base;
    waste_table_args args;
    waste_lease lease;
    size_t at, n;
    int layer; /* waste_experts: where row `at` is */
    int expert;
    waste_bank_info bank;
} cursor;

static int container_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out)
{
    cursor *c = waste_mem_zero(sizeof *c);

    (void)t;
    if (!c) return SQLITE_NOMEM;
    *out = &c->base;
    return SQLITE_OK;
}

static void end(cursor *c)
{
    waste_models_end(&c->lease);
    waste_table_args_clear(&c->args);
    c->at = c->n = 0;
}

static int container_close(sqlite3_vtab_cursor *base)
{
    end((cursor *)base);
    waste_mem_free(base);
    return SQLITE_OK;
}

/* The container of the argument; none (SQLITE_OK) when it is NULL. */
static int start(cursor *c, int idx_num, const char *idx_str, int argc, sqlite3_value **argv)
{
    waste_error err = {0};
    int rc;

    end(c);
    rc = waste_table_args_set(&c->args, c->base.pVtab, idx_num, idx_str, argc, argv);
    if (rc != SQLITE_OK || waste_table_args_null(&c->args, 0)) return rc;
    if (waste_models_container(&c->lease, ((waste_table *)c->base.pVtab)->conn, c->args.v[0], &err))
        return waste_table_fail(c->base.pVtab, &err);
    return SQLITE_OK;
}

static int container_next(sqlite3_vtab_cursor *base)
{
    ((cursor *)base)->at++;
    return SQLITE_OK;
}

static int container_eof(sqlite3_vtab_cursor *base)
{
    const cursor *c = (const cursor *)base;
    return c->at >= c->n;
}

static int container_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)((const cursor *)base)->at + 1;
    return SQLITE_OK;
}

static void text_column(sqlite3_context *ctx, const char *text)
{
    sqlite3_result_text(ctx, text, -1, SQLITE_TRANSIENT);
}

/* ---- waste_info ---- */

enum { INFO_KEY, INFO_VALUE, INFO_MODEL };

/* In the order of info_value's cases. */
static const char *const info_keys[] = {
    "path",        "arch",           "layers",       "kda_layers",   "mla_layers",  "moe_layers",
    "hidden",      "vocab",          "experts",      "top_k",        "params",      "active_params",
    "trunk_bytes", "resident_bytes", "expert_bytes", "record_bytes", "expert_bits", "expert_format",
    "eos_token",   "chat",           "tokenizer",    "vision"};

static void info_value(sqlite3_context *ctx, const waste_info *i, size_t row)
{
    static const char *const chats[] = {"none", "xtml", "plain"};

    switch (row) {
    case 0: text_column(ctx, i->path); break;
    case 1: text_column(ctx, i->arch); break;
    case 2: sqlite3_result_int(ctx, i->layers); break;
    case 3: sqlite3_result_int(ctx, i->kda_layers); break;
    case 4: sqlite3_result_int(ctx, i->mla_layers); break;
    case 5: sqlite3_result_int(ctx, i->moe_layers); break;
    case 6: sqlite3_result_int(ctx, i->hidden); break;
    case 7: sqlite3_result_int(ctx, i->vocab); break;
    case 8: sqlite3_result_int(ctx, i->experts); break;
    case 9: sqlite3_result_int(ctx, i->top_k); break;
    case 10: sqlite3_result_int64(ctx, i->params); break;
    case 11: sqlite3_result_int64(ctx, i->active_params); break;
    case 12: sqlite3_result_int64(ctx, i->trunk_bytes); break;
    case 13: sqlite3_result_int64(ctx, i->resident_bytes); break;
    case 14: sqlite3_result_int64(ctx, i->expert_bytes); break;
    case 15: sqlite3_result_int64(ctx, i->record_bytes); break;
    case 16: sqlite3_result_double(ctx, i->expert_bits); break;
    case 17: text_column(ctx, i->expert_format); break;
    case 18:
        if (i->eos_token >= 0) sqlite3_result_int(ctx, i->eos_token);
        break;
    case 19: text_column(ctx, chats[i->chat]); break;
    case 20: sqlite3_result_int(ctx, i->has_tokenizer != 0); break;
    default: sqlite3_result_int(ctx, i->has_vision != 0); break;
    }
}

static int info_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux, "CREATE TABLE x(key TEXT, value, model HIDDEN)", out);
}

static int info_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, INFO_MODEL, 1, 1, -1, "waste_info needs a model");
}

static int info_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                       sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    int rc = start(c, idx_num, idx_str, argc, argv);

    if (c->lease.container) c->n = sizeof info_keys / sizeof *info_keys;
    return rc;
}

static int info_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;

    if (column == INFO_KEY)
        sqlite3_result_text(ctx, info_keys[c->at], -1, SQLITE_STATIC);
    else if (column == INFO_VALUE)
        info_value(ctx, waste_container_info(c->lease.container), c->at);
    else
        waste_table_args_column(&c->args, column - INFO_MODEL, ctx);
    return SQLITE_OK;
}

const sqlite3_module waste_vt_info = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only */
    .xConnect = info_connect,
    .xBestIndex = info_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = container_open,
    .xClose = container_close,
    .xFilter = info_filter,
    .xNext = container_next,
    .xEof = container_eof,
    .xColumn = info_column,
    .xRowid = container_rowid,
};

/* ---- waste_tensors ---- */

enum {
    TENSOR_NAME,
    TENSOR_FORMAT,
    TENSOR_SHAPE,
    TENSOR_GROUP,
    TENSOR_OFFSET,
    TENSOR_BYTES,
    TENSOR_RESIDENT,
    TENSOR_MODEL
};

static int tensors_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                           sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux,
                               "CREATE TABLE x(name TEXT, format TEXT, shape TEXT,"
                               " group_size INTEGER, offset INTEGER, bytes INTEGER,"
                               " resident INTEGER, model HIDDEN)",
                               out);
}

static int tensors_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, TENSOR_MODEL, 1, 1, -1, "waste_tensors needs a model");
}

static int tensors_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                          sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    int rc = start(c, idx_num, idx_str, argc, argv);

    if (c->lease.container) c->n = waste_container_tensors(c->lease.container);
    return rc;
}

static void shape_column(sqlite3_context *ctx, const waste_tensor_info *t)
{
    waste_buf b = {0};
    int d;

    waste_buf_byte(&b, '[');
    for (d = 0; d < t->dims; d++)
        waste_buf_printf(&b, d ? ",%lld" : "%lld", (long long)t->shape[d]);
    waste_buf_byte(&b, ']');
    waste_args_result_json(ctx, &b);
}

static int tensors_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    waste_tensor_info t;

    waste_container_tensor(c->lease.container, c->at, &t);
    switch (column) {
    case TENSOR_NAME: text_column(ctx, t.name); break;
    case TENSOR_FORMAT: text_column(ctx, t.format); break;
    case TENSOR_SHAPE: shape_column(ctx, &t); break;
    case TENSOR_GROUP: sqlite3_result_int(ctx, t.group); break;
    case TENSOR_OFFSET: sqlite3_result_int64(ctx, t.offset); break;
    case TENSOR_BYTES: sqlite3_result_int64(ctx, t.bytes); break;
    case TENSOR_RESIDENT: sqlite3_result_int(ctx, t.resident != 0); break;
    default: waste_table_args_column(&c->args, column - TENSOR_MODEL, ctx); break;
    }
    return SQLITE_OK;
}

const sqlite3_module waste_vt_tensors = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only */
    .xConnect = tensors_connect,
    .xBestIndex = tensors_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = container_open,
    .xClose = container_close,
    .xFilter = tensors_filter,
    .xNext = container_next,
    .xEof = container_eof,
    .xColumn = tensors_column,
    .xRowid = container_rowid,
};

/* ---- waste_experts ---- */

enum {
    EXPERT_LAYER,
    EXPERT_EXPERT,
    EXPERT_FILE,
    EXPERT_OFFSET,
    EXPERT_BYTES,
    EXPERT_CODEBOOK_BASE,
    EXPERT_FORMAT,
    EXPERT_MODEL
};

static int experts_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                           sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux,
                               "CREATE TABLE x(layer INTEGER, expert INTEGER, file TEXT,"
                               " offset INTEGER, bytes INTEGER, codebook_base INTEGER, format TEXT,"
                               " model HIDDEN)",
                               out);
}

static int experts_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, EXPERT_MODEL, 1, 1, -1, "waste_experts needs a model");
}

/* Moves to the first layer from c->layer on that has a bank, if there is one. */
static void seek_bank(cursor *c)
{
    int layers = waste_container_info(c->lease.container)->layers;

    for (; c->layer < layers; c->layer++) {
        waste_container_bank(c->lease.container, c->layer, &c->bank);
        if (c->bank.file && c->bank.experts > 0) return;
    }
}

static int experts_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                          sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    const waste_info *info;
    int rc = start(c, idx_num, idx_str, argc, argv);

    if (!c->lease.container) return rc;
    info = waste_container_info(c->lease.container);
    c->n = (size_t)info->moe_layers * (size_t)info->experts;
    c->layer = c->expert = 0;
    seek_bank(c);
    return rc;
}

static int experts_next(sqlite3_vtab_cursor *base)
{
    cursor *c = (cursor *)base;

    c->at++;
    if (++c->expert < c->bank.experts) return SQLITE_OK;
    c->expert = 0;
    c->layer++;
    seek_bank(c);
    return SQLITE_OK;
}

static int experts_eof(sqlite3_vtab_cursor *base)
{
    const cursor *c = (const cursor *)base;

    return !c->lease.container || c->layer >= waste_container_info(c->lease.container)->layers;
}

static int experts_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;

    switch (column) {
    case EXPERT_LAYER: sqlite3_result_int(ctx, c->layer); break;
    case EXPERT_EXPERT: sqlite3_result_int(ctx, c->expert); break;
    case EXPERT_FILE: text_column(ctx, c->bank.file); break;
    case EXPERT_OFFSET: sqlite3_result_int64(ctx, c->expert * c->bank.record_bytes); break;
    case EXPERT_BYTES: sqlite3_result_int64(ctx, c->bank.record_bytes); break;
    case EXPERT_CODEBOOK_BASE: sqlite3_result_int(ctx, c->bank.codebook_base); break;
    case EXPERT_FORMAT:
        text_column(ctx, waste_container_info(c->lease.container)->expert_format);
        break;
    default: waste_table_args_column(&c->args, column - EXPERT_MODEL, ctx); break;
    }
    return SQLITE_OK;
}

const sqlite3_module waste_vt_experts = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only */
    .xConnect = experts_connect,
    .xBestIndex = experts_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = container_open,
    .xClose = container_close,
    .xFilter = experts_filter,
    .xNext = experts_next,
    .xEof = experts_eof,
    .xColumn = experts_column,
    .xRowid = container_rowid,
};
