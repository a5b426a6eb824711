/* A generated token as a row: the columns that waste_tokens and waste_chat_tokens
 * have in common (what they mean stands in vt_tokens.c), and the names of their
 * values. */
#ifndef EXT_TOKEN_ROW_H
#define EXT_TOKEN_ROW_H

#include "sqlite3ext.h"
#include "waste.h"

/* The first columns of such a table; its hidden arguments follow. */
#define WASTE_TOKEN_ROW_DECLARED                                                                 \
    "n INTEGER, token INTEGER, piece TEXT, reasoning TEXT, logprob REAL, top TEXT, region TEXT," \
    " finish TEXT, hits INTEGER, misses INTEGER, bytes_read INTEGER, ms REAL, io_ms REAL"
#define WASTE_TOKEN_ROW_N       0  /* ascends by nature */
#define WASTE_TOKEN_ROW_COLUMNS 13 /* their number, and so the first argument's */

/* Makes column 0..12 of t the result. logprobs_of: the container whose tokens `top`
 * spells; NULL when no alternatives were asked for. */
void waste_token_row_column(sqlite3_context *ctx, const waste_gen_token *t, int column,
                            const waste_container *logprobs_of);

/* "stop", "length", "timeout"; NULL for WASTE_FINISH_NONE. Static. */
const char *waste_token_row_finish(waste_finish f);

#endif
