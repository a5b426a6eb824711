/* One call's prompt and options, as the engine takes them. */
#ifndef EXT_REQUEST_H
#define EXT_REQUEST_H

#include "ext_args.h"
#include "waste.h"

/* Which options a caller takes. */
enum {
    WASTE_TAKES_PROMPT = 1,    /* system, raw, markup, thinking, tokens */
    WASTE_TAKES_SAMPLING = 2,  /* everything about the reply */
    WASTE_TAKES_TIMEOUT = 4,   /* timeout_ms */
    WASTE_TAKES_MARKUP = 8,    /* markup alone: tokenizing */
    WASTE_TAKES_STATS = 16,    /* stats: where the answer has a place for them */
    WASTE_TAKES_LOGPROBS = 32, /* logprobs, likewise */
    WASTE_TAKES_CHAT = 64,     /* what shapes a conversation's prompt; the engine reads it */
    WASTE_TAKES_BATCH = 128,   /* parallel, into */
    WASTE_TAKES_CACHE = 256,   /* cache */
    WASTE_TAKES_TRUNCATE = 512 /* truncate: conversations whose beginning can go */
};

/* Text in `prompt` and `params` is borrowed from the SQL values and from `doc`,
 * so both must stay until the request is cleared. params.cancel is the caller's
 * to set. */
typedef struct waste_request {
    waste_prompt prompt;
    waste_gen_params params;
    int logprobs; /* the option was given, if only as 0 */
    int progress, stats, cache;
    int truncate; /* 1: "oldest" */

    waste_json *doc;
    int32_t *tokens;
    waste_bias *bias;
    waste_str *stop, *parts;
} waste_request;

/* Reads prompt and options (each may be an SQL NULL; options may be NULL for
 * none). WASTE_DONE: the prompt is NULL and no tokens are given, so there is
 * nothing to answer. `who` is the SQL name of the caller. Clear it in any case. */
waste_status waste_request_read(waste_request *r, const char *who, unsigned takes,
                                sqlite3_value *prompt, sqlite3_value *options, waste_error *err);
/* The same where further options, read before them, hold for many calls: `base` may be
 * NULL, and has to stay until the request is cleared. It may have those of
 * WASTE_TAKES_BATCH. */
waste_status waste_request_read_over(waste_request *r, const char *who, unsigned takes,
                                     const waste_json *base, sqlite3_value *prompt,
                                     sqlite3_value *options, waste_error *err);
/* What is for the whole batch in such options, all of which are checked: *parallel
 * is 0 and into->text NULL where they do not say. */
waste_status waste_request_batch(const waste_json *base, const char *who, unsigned takes,
                                 int64_t *parallel, waste_str *into, waste_error *err);
/* Further arguments, part i being argument `first` + i (counted from 1) of the
 * call: TEXT is data of the user turn, NULL is skipped, a BLOB is an error. */
waste_status waste_request_parts(waste_request *r, const char *who, int first, int n,
                                 sqlite3_value **parts, waste_error *err);
void waste_request_clear(waste_request *r);

#endif
