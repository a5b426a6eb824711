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

#include "ext_args.h"
#include "ext_direct.h"
#include "ext_interrupt.h"
#include "ext_table.h"
#include "ext_token_row.h"
#include "ext_turn.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

typedef struct cursor {
    waste_cursor head;
    waste_turn *turn;
    waste_gen_token token; /* the row; borrows from the turn */
} cursor;

static waste_status start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    const waste_turn_args a = {.who = "waste_chat_tokens",
                               .session = base->args.v[0],
                               .message = base->args.v[1],
                               .options = base->args.v[2],
                               .logprobs = 1};
    const waste_cancel cancel = waste_interrupt_cancel(&base->stop);
    waste_conn *conn = waste_cursor_conn(base);
    waste_status st = waste_direct_enter(waste_models_depth(conn), err);

    if (st) return st;
    st = waste_turn_open(&c->turn, conn, &a, &cancel, err);
    waste_direct_leave(waste_models_depth(conn));
    return st;
}

static waste_status step(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    int *depth = waste_models_depth(waste_cursor_conn(base));
    waste_status st = waste_direct_enter(depth, err);

    if (st) return st;
    st = waste_turn_next(c->turn, &c->token, err);
    waste_direct_leave(depth);
    return st;
}

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;

    waste_token_row_column(ctx, &c->token, column,
                           waste_turn_logprobs(c->turn) ? waste_turn_container(c->turn) : NULL);
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    waste_turn_close(c->turn);
    c->turn = NULL;
    memset(&c->token, 0, sizeof c->token);
}

const waste_table_kind waste_vt_chat_tokens = {
    .columns = "CREATE TABLE x(" WASTE_TOKEN_ROW_DECLARED
               ", session HIDDEN, message HIDDEN, options HIDDEN)",
    .first = WASTE_TOKEN_ROW_COLUMNS,
    .args = 3,
    .required = 2,
    .wanted = 2,
    .needs = "waste_chat_tokens needs a session and a message",
    .ascending = WASTE_TOKEN_ROW_N,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
