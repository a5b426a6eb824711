/* waste_generate(model, prompt [, options [, part...]]): the answer as text.
 * waste_generate_json(...): the same as an object.
 *
 *     SELECT waste_generate('demo', 'What is the capital of Italy?');
 *     -- The capital of Italy is **Rome**.
 *     SELECT waste_generate_json('demo', 'What is the capital of Italy?',
 *                                '{"max_tokens":2}');
 *     -- {"text":"The capital","reasoning":null,"finish_reason":"length","usage":{
 *     -- "prompt_tokens":30,"completion_tokens":2,"total_tokens":32,"reused_tokens":0,
 *     -- "reasoning_tokens":0,"forced_tokens":0},
 *     -- "timings":{...}}
 *     SELECT waste_generate('demo', 'Classify the sentiment:', NULL, body) FROM reviews;
 *     SELECT waste_generate_json('demo', 'Hi', '{"stats":true}') -> 'stats';
 *     -- {"hits":293,"misses":191,"hit_rate":0.605371900826,"bytes_read":8253440,
 *     -- "io_ms":1.280385,"total_ms":204.250897}
 *
 * Parts are further text of the user's turn: data, which no control token can
 * hide in. A NULL model gives NULL; so does a NULL prompt, unless the options
 * carry {"tokens":[...]}. A NULL part is skipped, a BLOB is an error.
 *
 * Within a statement a call repeated is answered once. With {"cache":true} answers are
 * kept in, and taken from, the table waste_cache; otherwise it writes nothing. When timeout_ms passes, waste_generate is
 * an error and waste_generate_json has finish_reason "timeout" and what was made
 * by then. An interrupt ends both with SQLITE_INTERRUPT. */
#include <math.h>
#include <string.h>

#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_logprobs.h"
#include "ext_memo.h"
#include "ext_models.h"
#include "ext_progress.h"
#include "ext_request.h"
#include "ext_token_row.h"
#include "fn.h"

SQLITE_EXTENSION_INIT3

typedef struct reply {
    waste_memo memo;
    waste_buf stored;                    /* the whole answer, if waste_cache has it */
    waste_buf text, reasoning, logprobs; /* logprobs: members of a JSON array */
    waste_finish finish;
    waste_usage usage;
    waste_step_stats sum; /* of all steps, the prompt's too */
} reply;

static void reply_clear(reply *r)
{
    waste_memo_clear(&r->memo);
    waste_buf_clear(&r->stored);
    waste_buf_clear(&r->text);
    waste_buf_clear(&r->reasoning);
    waste_buf_clear(&r->logprobs);
}

/* ---- generation ---- */

static waste_status generate(reply *out, const waste_lease *l, const waste_request *r,
                             waste_error *err)
{
    waste_gen *g = NULL;
    waste_gen_token t;
    waste_gen_params params = r->params;
    waste_progress progress;
    waste_status st;

    waste_progress_begin(&progress, r->progress, l->model);
    params.cancel = waste_progress_cancel(&progress, &r->params.cancel);
    st = waste_gen_open(&g, l->model, &r->prompt, &params, err);
    waste_progress_of(&progress, g);
    while (!st && !(st = waste_gen_next(g, &t, err))) {
        waste_progress_token(&progress, &t);
        out->sum.hits += t.stats.hits;
        out->sum.misses += t.stats.misses;
        out->sum.bytes_read += t.stats.bytes_read;
        out->sum.io_ns += t.stats.io_ns;
        waste_buf_add(&out->text, t.piece.text, t.piece.bytes);
        waste_buf_add(&out->reasoning, t.reasoning.text, t.reasoning.bytes);
        if (r->logprobs && t.token >= 0) {
            if (out->logprobs.len) waste_buf_byte(&out->logprobs, ',');
            waste_logprobs_token(&out->logprobs, l->container, &t);
        }
        if (t.finish != WASTE_FINISH_NONE) out->finish = t.finish;
        if (out->text.failed || out->reasoning.failed || out->logprobs.failed)
            st = waste_fail(err, WASTE_NOMEM, "out of memory for the reply");
    }
    if (g) waste_gen_usage(g, &out->usage);
    waste_progress_end(&progress);
    waste_gen_close(g);
    return st == WASTE_DONE ? WASTE_OK : st;
}

static waste_status generate_or_find(reply *out, waste_conn *conn, const waste_lease *l,
                                     const waste_request *r, waste_error *err)
{
    waste_status st = waste_memo_look(&out->memo, conn, l->model, r->cache, &out->stored, err);

    return st == WASTE_DONE ? generate(out, l, r, err) : st;
}

/* WASTE_DONE: the answer is NULL. */
static waste_status answer(reply *out, waste_request *r, const char *who, waste_conn *conn,
                           unsigned takes, int argc, sqlite3_value **argv, waste_error *err)
{
    waste_lease l = {0};
    waste_interrupt stop;
    waste_status st;

    memset(r, 0, sizeof *r);
    if (argc < 2) return waste_fail(err, WASTE_ARG, "%s needs a model and a prompt", who);
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL) return WASTE_DONE;
    st = waste_request_read(r, who,
                            takes | WASTE_TAKES_PROMPT | WASTE_TAKES_SAMPLING | WASTE_TAKES_CACHE,
                            argv[1], argc > 2 ? argv[2] : NULL, err);
    if (!st) st = waste_request_parts(r, who, 4, argc - 3, argv + 3, err);
    if (st) return st;

    waste_interrupt_begin(&stop, waste_models_db(conn));
    r->params.cancel = waste_interrupt_cancel(&stop);
    st = waste_models_weights(&l, conn, argv[0], &r->params.cancel, err);
    if (!st) st = generate_or_find(out, conn, &l, r, err);
    waste_models_end(&l);
    waste_interrupt_end(&stop);
    return st;
}

/* `text`, or what was stored, is the result. */
static void give(sqlite3_context *ctx, reply *out, const waste_request *r, waste_buf *text)
{
    waste_memo_give(&out->memo, ctx, out->memo.stored ? &out->stored : text,
                    waste_memo_where(out->finish, &out->usage, &r->params));
}

void waste_fn_generate(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    reply out = {0};
    waste_request r = {0};
    waste_error err = {0};
    waste_status st;

    if (waste_memo_begin(&out.memo, ctx, "waste_generate", 0, argc, argv)) return;
    st = answer(&out, &r, "waste_generate", sqlite3_user_data(ctx), 0, argc, argv, &err);
    if (!st && out.finish == WASTE_FINISH_TIMEOUT)
        st = waste_fail(&err, WASTE_TIMEOUT, "waste_generate: timeout_ms %lld passed after %lld %s",
                        (long long)r.params.timeout_ms, (long long)out.usage.completion_tokens,
                        out.usage.completion_tokens == 1 ? "token" : "tokens");
    if (st < 0)
        waste_args_fail(ctx, &err);
    else if (!st)
        give(ctx, &out, &r, &out.text);
    waste_request_clear(&r);
    reply_clear(&out);
}

static void add_quoted(waste_buf *b, const waste_buf *text)
{
    waste_json_quote(b, text->data ? text->data : "", text->len);
}

static void add_stats(waste_buf *b, const reply *r)
{
    const waste_step_stats *s = &r->sum;
    const double wanted = (double)s->hits + (double)s->misses;

    waste_buf_printf(b, ",\"stats\":{\"hits\":%llu,\"misses\":%llu,\"hit_rate\":",
                     (unsigned long long)s->hits, (unsigned long long)s->misses);
    waste_args_number(b, wanted > 0 ? (double)s->hits / wanted : NAN);
    waste_buf_printf(b, ",\"bytes_read\":%llu,\"io_ms\":", (unsigned long long)s->bytes_read);
    waste_args_number(b, (double)s->io_ns / 1e6);
    waste_buf_text(b, ",\"total_ms\":");
    waste_args_number(b, r->usage.total_ms);
    waste_buf_byte(b, '}');
}

static void as_json(waste_buf *b, const reply *r, int logprobs, int stats)
{
    const waste_usage *u = &r->usage;

    waste_buf_text(b, "{\"text\":");
    add_quoted(b, &r->text);
    waste_buf_text(b, ",\"reasoning\":");
    if (r->reasoning.len)
        add_quoted(b, &r->reasoning);
    else
        waste_buf_text(b, "null");
    waste_buf_printf(b, ",\"finish_reason\":\"%s\"", waste_token_row_finish(r->finish));
    waste_buf_printf(b,
                     ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                     "\"total_tokens\":%lld,\"reused_tokens\":%lld,\"reasoning_tokens\":%lld,"
                     "\"forced_tokens\":%lld}",
                     (long long)u->prompt_tokens, (long long)u->completion_tokens,
                     (long long)(u->prompt_tokens + u->completion_tokens),
                     (long long)u->reused_tokens, (long long)u->reasoning_tokens,
                     (long long)u->forced_tokens);
    waste_buf_text(b, ",\"timings\":{\"prompt_ms\":");
    waste_args_number(b, u->prompt_ms);
    waste_buf_text(b, ",\"total_ms\":");
    waste_args_number(b, u->total_ms);
    waste_buf_byte(b, '}');
    if (logprobs) {
        waste_buf_text(b, ",\"logprobs\":[");
        waste_buf_add(b, r->logprobs.data, r->logprobs.len);
        waste_buf_byte(b, ']');
    }
    if (stats) add_stats(b, r);
    waste_buf_byte(b, '}');
}

void waste_fn_generate_json(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    reply out = {0};
    waste_request r = {0};
    waste_buf json = {0};
    waste_error err = {0};
    waste_status st;

    if (waste_memo_begin(&out.memo, ctx, "waste_generate_json", 1, argc, argv)) return;
    st = answer(&out, &r, "waste_generate_json", sqlite3_user_data(ctx),
                WASTE_TAKES_STATS | WASTE_TAKES_LOGPROBS, argc, argv, &err);
    if (st < 0) {
        waste_args_fail(ctx, &err);
    } else if (!st) {
        if (!out.memo.stored) as_json(&json, &out, r.logprobs, r.stats);
        give(ctx, &out, &r, &json);
    }
    waste_buf_clear(&json);
    waste_request_clear(&r);
    reply_clear(&out);
}
