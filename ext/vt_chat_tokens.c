/* waste_chat_tokens(session, message [, options]): waste_chat, token by token.
 *
 *     SELECT piece FROM waste_chat_tokens('mine', 'What is my name?');
 *     -- Your
 *     --  name
 *     -- ...
 *
 * Columns are those of waste_tokens, with session, message and options as the hidden
 * ones. The turn is written when the last token has been made, before its row is given
 * out. Until then nothing is: whoever stops reading (LIMIT, closing the statement) has
 * said nothing, and neither has a call that timed out, whose last row says so. A NULL
 * session or message gives no rows. An interrupt is SQLITE_INTERRUPT. */
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_direct.h"
#include "ext_interrupt.h"
#include "ext_table.h"
#include "ext_token_row.h"
#include "ext_turn.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

#define COL_SESSION WASTE_TOKEN_ROW_COLUMNS /* the first hidden column */

typedef struct cursor {
    sqlite3_vtab_cursor base;
    waste_table_args args;
    waste_interrupt stop; /* set up anew for each row */
    waste_turn *turn;
    waste_gen_token token; /* the row; borrows from the turn */
    int eof;
} cursor;

static int chat_tokens_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                               sqlite3_vtab **out, char **message)
{
    (void)argc;
    (void)argv;
    (void)message;
    return waste_table_connect(db, aux,
                               "CREATE TABLE x(" WASTE_TOKEN_ROW_DECLARED
                               ", session HIDDEN, message HIDDEN, options HIDDEN)",
                               out);
}

static int chat_tokens_open(sqlite3_vtab *t, sqlite3_vtab_cursor **out)
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
    waste_turn_close(c->turn);
    c->turn = NULL;
    waste_table_args_clear(&c->args);
    memset(&c->token, 0, sizeof c->token);
    c->eof = 1;
}

static int chat_tokens_close(sqlite3_vtab_cursor *base)
{
    cursor *c = (cursor *)base;

    end(c);
    waste_mem_free(c);
    return SQLITE_OK;
}

static int chat_tokens_best_index(sqlite3_vtab *t, sqlite3_index_info *info)
{
    (void)t;
    return waste_table_plan(info, COL_SESSION, 3, 2, WASTE_TOKEN_ROW_N,
                            "waste_chat_tokens needs a session and a message");
}

static waste_conn *conn_of(const cursor *c)
{
    return ((waste_table *)c->base.pVtab)->conn;
}

/* Opens the turn if it is not, and takes its next token. After a failure it is over. */
static int advance(cursor *c)
{
    const waste_turn_args a = {.who = "waste_chat_tokens",
                               .session = c->args.v[0],
                               .message = c->args.v[1],
                               .options = c->args.v[2],
                               .logprobs = 1};
    waste_conn *conn = conn_of(c);
    waste_error err = {0};
    waste_cancel cancel;
    waste_status st = waste_direct_enter(waste_models_depth(conn), &err);

    if (!st) {
        waste_interrupt_begin(&c->stop, waste_models_db(conn));
        cancel = waste_interrupt_cancel(&c->stop);
        if (!c->turn) st = waste_turn_open(&c->turn, conn, &a, &cancel, &err);
        if (!st) st = waste_turn_next(c->turn, &c->token, &err);
        waste_interrupt_end(&c->stop);
        waste_direct_leave(waste_models_depth(conn));
    }
    c->eof = st != WASTE_OK;
    return st < 0 ? waste_table_fail(c->base.pVtab, &err) : SQLITE_OK;
}

static int chat_tokens_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                              sqlite3_value **argv)
{
    cursor *c = (cursor *)base;
    int rc;

    end(c);
    rc = waste_table_args_set(&c->args, c->base.pVtab, idx_num, idx_str, argc, argv);
    if (rc != SQLITE_OK || waste_table_args_null(&c->args, 0) || waste_table_args_null(&c->args, 1))
        return rc;
    return advance(c);
}

static int chat_tokens_next(sqlite3_vtab_cursor *base)
{
    return advance((cursor *)base);
}

static int chat_tokens_eof(sqlite3_vtab_cursor *base)
{
    return ((cursor *)base)->eof;
}

static int chat_tokens_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;

    if (column >= COL_SESSION)
        waste_table_args_column(&c->args, column - COL_SESSION, ctx);
    else
        waste_token_row_column(ctx, &c->token, column,
                               waste_turn_logprobs(c->turn) ? waste_turn_container(c->turn) : NULL);
    return SQLITE_OK;
}

static int chat_tokens_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = ((const cursor *)base)->token.index + 1;
    return SQLITE_OK;
}

const sqlite3_module waste_vt_chat_tokens = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only: a function, not a table to create */
    .xConnect = chat_tokens_connect,
    .xBestIndex = chat_tokens_best_index,
    .xDisconnect = waste_table_disconnect,
    .xOpen = chat_tokens_open,
    .xClose = chat_tokens_close,
    .xFilter = chat_tokens_filter,
    .xNext = chat_tokens_next,
    .xEof = chat_tokens_eof,
    .xColumn = chat_tokens_column,
    .xRowid = chat_tokens_rowid,
};
