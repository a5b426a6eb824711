/* A generated token as a row: see ext_token_row.h. Runs on SQLite's thread; owns no
 * state. */
#include "ext_token_row.h"

#include "ext_args.h"
#include "ext_logprobs.h"
#include "ext_table.h"

SQLITE_EXTENSION_INIT3

enum {
    COL_N = WASTE_TOKEN_ROW_N,
    COL_TOKEN,
    COL_PIECE,
    COL_REASONING,
    COL_LOGPROB,
    COL_TOP,
    COL_REGION,
    COL_FINISH,
    COL_HITS,
    COL_MISSES,
    COL_BYTES_READ,
    COL_MS,
    COL_IO_MS,
    COL_COUNT
};
_Static_assert(COL_COUNT == WASTE_TOKEN_ROW_COLUMNS, "columns of a token's row");

static const char *region_name(waste_region r)
{
    static const char *const names[] = {"answer", "reasoning", "tools", "markup"};
    return names[r];
}

const char *waste_token_row_finish(waste_finish f)
{
    static const char *const names[] = {NULL, "stop", "length", "timeout"};
    return names[f];
}

static void column_top(sqlite3_context *ctx, const waste_gen_token *t, const waste_container *c)
{
    waste_buf top = {0};

    waste_logprobs_top(&top, c, t);
    waste_args_result_json(ctx, &top);
}

void waste_token_row_column(sqlite3_context *ctx, const waste_gen_token *t, int column,
                            const waste_container *logprobs_of)
{
    const char *finish = waste_token_row_finish(t->finish);

    switch (column) {
    case COL_N: sqlite3_result_int64(ctx, t->index + 1); break;
    case COL_TOKEN:
        if (t->token >= 0) sqlite3_result_int(ctx, t->token);
        break;
    case COL_PIECE: waste_table_text(ctx, t->piece.text, t->piece.bytes); break;
    case COL_REASONING: waste_table_text(ctx, t->reasoning.text, t->reasoning.bytes); break;
    case COL_LOGPROB:
        if (t->token >= 0) sqlite3_result_double(ctx, t->logprob);
        break;
    case COL_TOP:
        if (logprobs_of && t->token >= 0) column_top(ctx, t, logprobs_of);
        break;
    case COL_REGION: sqlite3_result_text(ctx, region_name(t->region), -1, SQLITE_STATIC); break;
    case COL_FINISH:
        if (finish) sqlite3_result_text(ctx, finish, -1, SQLITE_STATIC);
        break;
    case COL_HITS: sqlite3_result_int64(ctx, (sqlite3_int64)t->stats.hits); break;
    case COL_MISSES: sqlite3_result_int64(ctx, (sqlite3_int64)t->stats.misses); break;
    case COL_BYTES_READ: sqlite3_result_int64(ctx, (sqlite3_int64)t->stats.bytes_read); break;
    case COL_MS: sqlite3_result_double(ctx, t->ms); break;
    case COL_IO_MS: sqlite3_result_double(ctx, (double)t->stats.io_ns / 1e6); break;
    default: break;
    }
}
