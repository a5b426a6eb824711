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

#include "base/mem.h"
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
    sqlite3_vtab_cursor base;
    waste_table_args args;
    waste_request request;
    waste_lease lease;
    waste_interrupt stop; /* set up anew for each row */
    waste_progress progress;
    waste_gen *gen;
    waste_gen_token token; /* the row; borrows from gen */
    int eof;
} cursor;

static int tokens_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                          sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux,
                               "CREATE TABLE x(" WASTE_TOKEN_ROW_DECLARED
                               ", model HIDDEN, prompt HIDDEN, options HIDDEN)",
                               out);
}

static int tokens_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out)
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
    waste_progress_end(&c->progress);
    waste_gen_close(c->gen);
    c->gen = NULL;
    waste_models_end(&c->lease);
    waste_request_clear(&c->request);
    waste_table_args_clear(&c->args);
    memset(&c->token, 0, sizeof c->token);
    c->eof = 1;
}

static int tokens_close(sqlite3_vtab_cursor *base)
{
    cursor *c = (cursor *)base;

    end(c);
    waste_mem_free(c);
    return SQLITE_OK;
}

static int tokens_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, COL_MODEL, 3, 2, WASTE_TOKEN_ROW_N,
                            "waste_tokens needs a model and a prompt");
}

/* After a failure the generation is over, too. */
static int advance(cursor *c, waste_status st, waste_error *err)
{
    if (!st) st = waste_gen_next(c->gen, &c->token, err);
    c->eof = st != WASTE_OK;
    if (c->eof)
        waste_progress_end(&c->progress);
    else
        waste_progress_token(&c->progress, &c->token);
    return st < 0 ? waste_table_fail(c->base.pVtab, err) : SQLITE_OK;
}

static int tokens_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                         sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    waste_conn *conn = ((waste_table *)base->pVtab)->conn;
    waste_request *r = &c->request;
    waste_error err = {0};
    waste_status st;
    int rc;

    end(c);
    rc = waste_table_args_set(&c->args, c->base.pVtab, idx_num, idx_str, argc, argv);
    if (rc != SQLITE_OK || waste_table_args_null(&c->args, 0)) return rc;
    st = waste_request_read(r, "waste_tokens",
                            WASTE_TAKES_PROMPT | WASTE_TAKES_SAMPLING | WASTE_TAKES_LOGPROBS,
                            c->args.v[1], c->args.v[2], &err);
    if (st == WASTE_DONE) return SQLITE_OK;

    waste_interrupt_begin(&c->stop, waste_models_db(conn));
    r->params.cancel = waste_interrupt_cancel(&c->stop);
    if (!st) st = waste_models_weights(&c->lease, conn, c->args.v[0], &r->params.cancel, &err);
    if (!st) {
        waste_progress_begin(&c->progress, r->progress, c->lease.model);
        r->params.cancel = waste_progress_cancel(&c->progress, &r->params.cancel);
        st = waste_gen_open(&c->gen, c->lease.model, &r->prompt, &r->params, &err);
        waste_progress_of(&c->progress, c->gen);
    }
    rc = advance(c, st, &err);
    waste_interrupt_end(&c->stop);
    return rc;
}

static int tokens_next(sqlite3_vtab_cursor *base)
{
    cursor *c = (cursor *)base;
    waste_error err = {0};
    int rc;

    waste_interrupt_begin(&c->stop, waste_models_db(((waste_table *)base->pVtab)->conn));
    rc = advance(c, WASTE_OK, &err);
    waste_interrupt_end(&c->stop);
    return rc;
}

static int tokens_eof(sqlite3_vtab_cursor *base)
{
    return ((cursor *)base)->eof;
}

static int tokens_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;

    if (column >= COL_MODEL)
        waste_table_args_column(&c->args, column - COL_MODEL, ctx);
    else
        waste_token_row_column(ctx, &c->token, column,
                               c->request.logprobs ? c->lease.container : NULL);
    return SQLITE_OK;
}

static int tokens_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = ((const cursor *)base)->token.index + 1;
    return SQLITE_OK;
}

const sqlite3_module waste_vt_tokens = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only: a function, not a table to create */
    .xConnect = tokens_connect,
    .xBestIndex = tokens_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = tokens_open,
    .xClose = tokens_close,
    .xFilter = tokens_filter,
    .xNext = tokens_next,
    .xEof = tokens_eof,
    .xColumn = tokens_column,
    .xRowid = tokens_rowid,
};
