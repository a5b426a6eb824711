/* waste_next(model, prompt [, k [, options]]): the distribution of the next token.
 *
 *     SELECT n, token, piece, round(prob, 4)
 *       FROM waste_next('demo', 'The capital of Italy is **', 3, '{"raw":true}');
 *     -- 1|82|R|0.992
 *     -- 2|520| R|0.0005
 *     -- 3|1991| Seoul|0.0005
 *     SELECT -sum(prob * logprob) AS entropy FROM waste_next('demo', 'Hello', 1e9);
 *
 * Columns
 *     n       rank from 1, most likely first; among equals the lower id
 *     token   its id
 *     piece   its text (U+FFFD for bytes that are no UTF-8); NULL if it has none
 *     logit, logprob, prob   of the whole distribution, whatever k is
 *     model, prompt, k, options (hidden)   the arguments
 *
 * k is 10 unless given; more than the vocabulary is all of it. The prompt is
 * rendered as waste_generate does; options are system, raw, markup, thinking,
 * tokens and timeout_ms (which is an error when it passes). A NULL model, or a
 * NULL prompt without {"tokens":[...]}, gives no rows. Reads the container,
 * writes nothing. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_request.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

#define DEFAULT_K 10
#define BATCH     256 /* prompt rows handed to the engine at once */

enum { COL_N, COL_TOKEN, COL_PIECE, COL_LOGIT, COL_LOGPROB, COL_PROB, COL_MODEL };
enum { ARG_MODEL, ARG_PROMPT, ARG_K, ARG_OPTIONS };

typedef struct cursor {
    sqlite3_vtab_cursor base;
    waste_table_args args;
    waste_lease lease;
    waste_logprob *top;
    size_t n, at;
} cursor;

static int next_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                        sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux,
                               "CREATE TABLE x(n INTEGER, token INTEGER, piece TEXT, logit REAL,"
                               " logprob REAL, prob REAL, model HIDDEN, prompt HIDDEN, k HIDDEN,"
                               " options HIDDEN)",
                               out);
}

static int next_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out)
{
    cursor *c = waste_mem_zero(sizeof *c);

    (void)t;
    if (!c) return SQLITE_NOMEM;
    *out = &c->base;
    return SQLITE_OK;
}

static void end(cursor *c)
{
    waste_mem_free(c->top);
    c->top = NULL;
    c->n = c->at = 0;
    waste_models_end(&c->lease);
    waste_table_args_clear(&c->args);
}

static int next_close(sqlite3_vtab_cursor *base)
{
    end((cursor *)base);
    waste_mem_free(base);
    return SQLITE_OK;
}

static int next_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, COL_MODEL, 4, 2, COL_N, "waste_next needs a model and a prompt");
}

/* The options in the place of k are a likely slip: NULL stands for k then. */
static waste_status wrong_k(sqlite3_value *v, waste_error *err)
{
    char number[WASTE_ARGS_DECIMAL];
    const char *text;

    switch (sqlite3_value_numeric_type(v)) {
    case SQLITE_INTEGER:
        return waste_fail(err, WASTE_ARG, "waste_next: k is %lld, wanted an integer of at least 1",
                          (long long)sqlite3_value_int64(v));
    case SQLITE_FLOAT:
        waste_args_decimal(number, sqlite3_value_double(v));
        return waste_fail(err, WASTE_ARG, "waste_next: k is %s, wanted an integer of at least 1",
                          number);
    case SQLITE_BLOB:
        return waste_fail(err, WASTE_ARG,
                          "waste_next: k is a BLOB, wanted an integer of at least 1");
    default: break;
    }
    text = (const char *)sqlite3_value_text(v);
    return waste_fail(err, WASTE_ARG,
                      "waste_next: k is '%.40s', wanted an integer of at least 1; options are the "
                      "fourth argument",
                      text ? text : "");
}

static waste_status read_k(const cursor *c, int64_t *k, waste_error *err)
{
    sqlite3_value *v = c->args.v[ARG_K];
    double d;

    *k = DEFAULT_K;
    if (waste_table_args_null(&c->args, ARG_K)) return WASTE_OK;
    switch (sqlite3_value_numeric_type(v)) {
    case SQLITE_INTEGER: *k = sqlite3_value_int64(v); break;
    case SQLITE_FLOAT: /* 1e6 is a natural way to ask for everything */
        d = sqlite3_value_double(v);
        *k = d != floor(d) || d < 1 ? 0 : d > 1e9 ? 1000000000 : (int64_t)d;
        break;
    default: *k = 0;
    }
    return *k < 1 ? wrong_k(v, err) : WASTE_OK;
}

/* ---- the pass ---- */

/* Feeds the ids to a fresh sequence; `logits` are those after the last. */
static waste_status run(waste_model *m, const waste_ids *ids, float *logits,
                        const waste_cancel *cancel, waste_error *err)
{
    waste_row rows[BATCH];
    waste_seq *seq = NULL;
    size_t at = 0, n, i;
    waste_status st;

    if (!ids->n) return waste_fail(err, WASTE_ARG, "waste_next: the prompt has no tokens");
    if ((uint64_t)ids->n > (uint64_t)waste_model_context(m))
        return waste_fail(err, WASTE_ARG,
                          "waste_next: the prompt has %zu tokens, the model is open with context "
                          "%lld",
                          ids->n, (long long)waste_model_context(m));
    st = waste_seq_new(&seq, m, err);
    for (; !st && at < ids->n; at += n) {
        n = ids->n - at < BATCH ? ids->n - at : BATCH;
        for (i = 0; i < n; i++) {
            rows[i].seq = seq;
            rows[i].token = ids->id[at + i];
            rows[i].logits = at + i + 1 == ids->n ? logits : NULL;
        }
        st = waste_step(m, rows, n, cancel, NULL, err);
    }
    waste_seq_free(seq);
    return st;
}

static waste_status distribution(cursor *c, const waste_prompt *prompt, int64_t k,
                                 const waste_cancel *cancel, waste_error *err)
{
    size_t vocab = (size_t)waste_container_info(c->lease.container)->vocab;
    size_t n = (uint64_t)k < vocab ? (size_t)k : vocab;
    waste_ids ids = {0};
    float *logits = waste_mem_array(vocab, sizeof *logits);
    waste_status st = WASTE_OK;

    c->top = waste_mem_array(n, sizeof *c->top);
    if (!logits || !c->top)
        st = waste_fail(err, WASTE_NOMEM, "out of memory for %zu logits", vocab);
    if (!st) st = waste_prompt_ids(c->lease.container, prompt, &ids, err);
    if (!st) st = run(c->lease.model, &ids, logits, cancel, err);
    if (!st) st = waste_top(logits, vocab, n, c->top, err);
    if (!st) c->n = n;
    waste_ids_clear(&ids);
    waste_mem_free(logits);
    return st;
}

static int next_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                       sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    waste_conn *conn = ((waste_table *)base->pVtab)->conn;
    waste_request r;
    waste_interrupt stop = {0};
    waste_cancel cancel = waste_interrupt_cancel(&stop);
    waste_error err = {0};
    waste_status st;
    int64_t k = 0;
    int rc;

    end(c);
    rc = waste_table_args_set(&c->args, c->base.pVtab, idx_num, idx_str, argc, argv);
    if (rc != SQLITE_OK || waste_table_args_null(&c->args, ARG_MODEL)) return rc;
    waste_interrupt_begin(&stop, waste_models_db(conn));
    st = waste_request_read(&r, "waste_next", WASTE_TAKES_PROMPT | WASTE_TAKES_TIMEOUT,
                            c->args.v[ARG_PROMPT], c->args.v[ARG_OPTIONS], &err);
    if (!st) st = read_k(c, &k, &err);
    if (!st) st = waste_models_weights(&c->lease, conn, c->args.v[ARG_MODEL], &cancel, &err);
    if (!st) {
        waste_interrupt_deadline(&stop, r.params.timeout_ms); /* loading does not count */
        st = distribution(c, &r.prompt, k, &cancel, &err);
    }
    if (st == WASTE_CANCELLED && stop.timed_out) {
        memset(&err, 0, sizeof err); /* the engine cannot know why it was told to stop */
        st = waste_fail(&err, WASTE_TIMEOUT, "waste_next: timeout_ms %lld passed",
                        (long long)r.params.timeout_ms);
    }
    waste_interrupt_end(&stop);
    waste_request_clear(&r);
    return st < 0 ? waste_table_fail(base->pVtab, &err) : SQLITE_OK;
}

static int next_next(sqlite3_vtab_cursor *base)
{
    ((cursor *)base)->at++;
    return SQLITE_OK;
}

static int next_eof(sqlite3_vtab_cursor *base)
{
    const cursor *c = (const cursor *)base;
    return c->at >= c->n;
}

static void column_piece(const cursor *c, int32_t token, sqlite3_context *ctx)
{
    size_t bytes = 0, n;
    const char *text = waste_token_bytes(c->lease.container, token, &bytes);
    waste_utf8 u = {{0}, 0};
    waste_buf piece = {0};
    char *to;

    if (!text) return;
    to = waste_buf_room(&piece, 3 * (bytes + 4) + 3 * 4);
    if (to) {
        n = waste_utf8_push(&u, text, bytes, to);
        piece.len = n + waste_utf8_end(&u, to + n);
    }
    waste_args_result(ctx, &piece);
}

static int next_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    const waste_logprob *p = &c->top[c->at];

    switch (column) {
    case COL_N: sqlite3_result_int64(ctx, (sqlite3_int64)c->at + 1); break;
    case COL_TOKEN: sqlite3_result_int(ctx, p->token); break;
    case COL_PIECE: column_piece(c, p->token, ctx); break;
    case COL_LOGIT: sqlite3_result_double(ctx, (double)p->logit); break;
    case COL_LOGPROB: sqlite3_result_double(ctx, p->logprob); break;
    case COL_PROB: sqlite3_result_double(ctx, exp(p->logprob)); break;
    default: waste_table_args_column(&c->args, column - COL_MODEL, ctx); break;
    }
    return SQLITE_OK;
}

static int next_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)((const cursor *)base)->at + 1;
    return SQLITE_OK;
}

const sqlite3_module waste_vt_next = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only */
    .xConnect = next_connect,
    .xBestIndex = next_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = next_open,
    .xClose = next_close,
    .xFilter = next_filter,
    .xNext = next_next,
    .xEof = next_eof,
    .xColumn = next_column,
    .xRowid = next_rowid,
};
