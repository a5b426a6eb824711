/* waste_tokens(model, prompt [, options]): one row per token as it is made.
 *
 *     SELECT n, token, piece, finish
 *       FROM waste_tokens('demo', 'What is the capital of Italy?', '{"max_tokens":4}');
 *     -- 1|326|The|
 *     -- 2|308| capital|
 *     -- 3|296| of|
 *     -- 4|333| I|length
 *     SELECT group_concat(piece, '') FROM waste_tokens('demo', 'What is 47 + 38?');
 *     -- 47 + 38 = 85, as waste_generate gives
 *     SELECT p.id, t.piece FROM prompts p, waste_tokens('demo', p.text) t;
 *
 * Columns
 *     n          1 for the first token of the reply
 *     token      its id; NULL in a last row that only says "timeout"
 *     piece      answer text this token completed; may be empty
 *     reasoning  likewise of the reasoning channel
 *     logprob    natural, of the distribution before any option changed it
 *     top        with the option logprobs: a JSON array of the likeliest tokens
 *     region     answer, reasoning, tools or markup
 *     finish     in the last row: stop, length or timeout
 *     hits, misses, bytes_read   expert reads of the step that made the token
 *     ms, io_ms  its time, and of that the wait for reads; the first row's
 *                include the prompt
 *     model, prompt, options (hidden)   the arguments
 *
 * A row is computed when it is asked for: LIMIT, or closing the statement, stops
 * the work. A NULL model, or a NULL prompt without {"tokens":[...]}, gives no
 * rows. An interrupt is SQLITE_INTERRUPT; a timeout is not an error. Reads the
 * container, writes nothing. */
#include <string.h>

#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_progress.h"
#include "ext_request.h"
#include "ext_table.h"
#include "ext_token_row.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

#define COL_MODEL WASTE_TOKEN_ROW_COLUMNS /* the first hidden column */

typedef struct cursor {
    waste_cursor head;
    waste_request request;
    waste_lease lease;
    waste_progress progress;
    waste_gen *gen;
    waste_gen_token token; /* the row; borrows from gen */
} cursor;

static waste_status start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    waste_request *r = &c->request;
    waste_cancel *cancel = &r->params.cancel;
    waste_status st = waste_request_read(
        r, "waste_tokens", WASTE_TAKES_PROMPT | WASTE_TAKES_SAMPLING | WASTE_TAKES_LOGPROBS,
        base->args.v[1], base->args.v[2], err);

    if (st) return st;
    *cancel = waste_interrupt_cancel(&base->stop);
    st = waste_models_weights(&c->lease, waste_cursor_conn(base), base->args.v[0], cancel, err);
    if (st) return st;
    waste_progress_begin(&c->progress, r->progress, c->lease.model);
    *cancel = waste_progress_cancel(&c->progress, cancel);
    st = waste_gen_open(&c->gen, c->lease.model, &r->prompt, &r->params, err);
    waste_progress_of(&c->progress, c->gen);
    return st;
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    waste_status st = waste_gen_next(c->gen, &c->token, err);

    if (!st) waste_progress_token(&c->progress, &c->token);
    return st;
}

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;

    waste_token_row_column(ctx, &c->token, column, c->request.logprobs ? c->lease.container : NULL);
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_progress_end(&c->progress);
    waste_gen_close(c->gen);
    c->gen = NULL;
    waste_models_end(&c->lease);
    waste_request_clear(&c->request);
    memset(&c->token, 0, sizeof c->token);
}

const waste_table_kind waste_vt_tokens = {
    .columns =
        "CREATE TABLE x(" WASTE_TOKEN_ROW_DECLARED ", model HIDDEN, prompt HIDDEN, options HIDDEN)",
    .first = WASTE_TOKEN_ROW_COLUMNS,
    .args = 3,
    .required = 2,
    .wanted = 1,
    .needs = "waste_tokens needs a model and a prompt",
    .ascending = WASTE_TOKEN_ROW_N,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
