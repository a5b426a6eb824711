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
    waste_cursor head;
    waste_lease lease;
    waste_logprob *top;
    size_t n;
} cursor;

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

static waste_status read_k(const waste_cursor *c, int64_t *k, waste_error *err)
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

static waste_status start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    sqlite3_value *const *arg = base->args.v;
    const waste_cancel cancel = waste_interrupt_cancel(&base->stop);
    waste_request r;
    int64_t k = 0;
    waste_status st = waste_request_read(&r, "waste_next", WASTE_TAKES_PROMPT | WASTE_TAKES_TIMEOUT,
                                         arg[ARG_PROMPT], arg[ARG_OPTIONS], err);

    if (!st) st = read_k(base, &k, err);
    if (!st)
        st = waste_models_weights(&c->lease, waste_cursor_conn(base), arg[ARG_MODEL], &cancel, err);
    if (!st) {
        waste_interrupt_deadline(&base->stop, r.params.timeout_ms); /* loading does not count */
        st = distribution(c, &r.prompt, k, &cancel, err);
    }
    if (st == WASTE_CANCELLED && base->stop.timed_out) {
        memset(err, 0, sizeof *err); /* the engine cannot know why it was told to stop */
        st = waste_fail(err, WASTE_TIMEOUT, "waste_next: timeout_ms %lld passed",
                        (long long)r.params.timeout_ms);
    }
    waste_request_clear(&r);
    return st;
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    (void)err;
    return (size_t)base->n < ((const cursor *)base)->n ? WASTE_OK : WASTE_DONE;
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_mem_free(c->top);
    c->top = NULL;
    c->n = 0;
    waste_models_end(&c->lease);
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

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    const waste_logprob *p = &c->top[base->n - 1];

    switch (column) {
    case COL_N: sqlite3_result_int64(ctx, base->n); break;
    case COL_TOKEN: sqlite3_result_int(ctx, p->token); break;
    case COL_PIECE: column_piece(c, p->token, ctx); break;
    case COL_LOGIT: sqlite3_result_double(ctx, (double)p->logit); break;
    case COL_LOGPROB: sqlite3_result_double(ctx, p->logprob); break;
    default: sqlite3_result_double(ctx, exp(p->logprob)); break;
    }
}

const waste_table_kind waste_vt_next = {
    .columns = "CREATE TABLE x(n INTEGER, token INTEGER, piece TEXT, logit REAL, logprob REAL,"
               " prob REAL, model HIDDEN, prompt HIDDEN, k HIDDEN, options HIDDEN)",
    .first = COL_MODEL,
    .args = 4,
    .required = 2,
    .wanted = 1,
    .needs = "waste_next needs a model and a prompt",
    .ascending = COL_N,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
