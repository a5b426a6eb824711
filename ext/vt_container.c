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

#include "ext_args.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

/* ---- what the three share ---- */

typedef struct cursor {
    waste_cursor head;
    waste_lease lease;
    size_t rows;
    int layer, expert; /* waste_experts: where it is */
    waste_bank_info bank;
} cursor;

static waste_status start(waste_cursor *base, waste_error *err)
{
    return waste_models_container(&((cursor *)base)->lease, waste_cursor_conn(base),
                                  base->args.v[0], err);
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    (void)err;
    return (size_t)base->n < ((const cursor *)base)->rows ? WASTE_OK : WASTE_DONE;
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_models_end(&c->lease);
    c->rows = 0;
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

static waste_status info_start(waste_cursor *base, waste_error *err)
{
    ((cursor *)base)->rows = sizeof info_keys / sizeof *info_keys;
    return start(base, err);
}

static void info_column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const size_t row = (size_t)base->n - 1;

    if (column == INFO_KEY)
        sqlite3_result_text(ctx, info_keys[row], -1, SQLITE_STATIC);
    else
        info_value(ctx, waste_container_info(((const cursor *)base)->lease.container), row);
}

const waste_table_kind waste_vt_info = {
    .columns = "CREATE TABLE x(key TEXT, value, model HIDDEN)",
    .first = INFO_MODEL,
    .args = 1,
    .required = 1,
    .wanted = 1,
    .needs = "waste_info needs a model",
    .ascending = -1,
    .cursor_bytes = sizeof(cursor),
    .start = info_start,
    .step = step,
    .column = info_column,
    .end = end,
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

static waste_status tensors_start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    waste_status st = start(base, err);

    if (!st) c->rows = waste_container_tensors(c->lease.container);
    return st;
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

static void tensors_column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    waste_tensor_info t;

    waste_container_tensor(c->lease.container, (size_t)base->n - 1, &t);
    switch (column) {
    case TENSOR_NAME: text_column(ctx, t.name); break;
    case TENSOR_FORMAT: text_column(ctx, t.format); break;
    case TENSOR_SHAPE: shape_column(ctx, &t); break;
    case TENSOR_GROUP: sqlite3_result_int(ctx, t.group); break;
    case TENSOR_OFFSET: sqlite3_result_int64(ctx, t.offset); break;
    case TENSOR_BYTES: sqlite3_result_int64(ctx, t.bytes); break;
    default: sqlite3_result_int(ctx, t.resident != 0); break;
    }
}

const waste_table_kind waste_vt_tensors = {
    .columns = "CREATE TABLE x(name TEXT, format TEXT, shape TEXT,"
               " group_size INTEGER, offset INTEGER, bytes INTEGER,"
               " resident INTEGER, model HIDDEN)",
    .first = TENSOR_MODEL,
    .args = 1,
    .required = 1,
    .wanted = 1,
    .needs = "waste_tensors needs a model",
    .ascending = -1,
    .cursor_bytes = sizeof(cursor),
    .start = tensors_start,
    .step = step,
    .column = tensors_column,
    .end = end,
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

/* Moves to the first layer from c->layer on that has a bank, if there is one. */
static void seek_bank(cursor *c)
{
    int layers = waste_container_info(c->lease.container)->layers;

    for (; c->layer < layers; c->layer++) {
        waste_container_bank(c->lease.container, c->layer, &c->bank);
        if (c->bank.file && c->bank.experts > 0) return;
    }
}

static waste_status experts_start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    const waste_info *info;
    waste_status st = start(base, err);

    if (st) return st;
    info = waste_container_info(c->lease.container);
    c->layer = 0;
    c->expert = -1;
    if (info->layers > 0) seek_bank(c);
    return WASTE_OK;
}

static waste_status experts_step(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;

    (void)err;
    if (++c->expert >= c->bank.experts) {
        c->expert = 0;
        c->layer++;
        seek_bank(c);
    }
    return c->layer < waste_container_info(c->lease.container)->layers ? WASTE_OK : WASTE_DONE;
}

static void experts_column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;

    switch (column) {
    case EXPERT_LAYER: sqlite3_result_int(ctx, c->layer); break;
    case EXPERT_EXPERT: sqlite3_result_int(ctx, c->expert); break;
    case EXPERT_FILE: text_column(ctx, c->bank.file); break;
    case EXPERT_OFFSET: sqlite3_result_int64(ctx, c->expert * c->bank.record_bytes); break;
    case EXPERT_BYTES: sqlite3_result_int64(ctx, c->bank.record_bytes); break;
    case EXPERT_CODEBOOK_BASE: sqlite3_result_int(ctx, c->bank.codebook_base); break;
    default: text_column(ctx, waste_container_info(c->lease.container)->expert_format); break;
    }
}

const waste_table_kind waste_vt_experts = {
    .columns = "CREATE TABLE x(layer INTEGER, expert INTEGER, file TEXT,"
               " offset INTEGER, bytes INTEGER, codebook_base INTEGER, format TEXT,"
               " model HIDDEN)",
    .first = EXPERT_MODEL,
    .args = 1,
    .required = 1,
    .wanted = 1,
    .needs = "waste_experts needs a model",
    .ascending = -1,
    .cursor_bytes = sizeof(cursor),
    .start = experts_start,
    .step = experts_step,
    .column = experts_column,
    .end = end,
};
