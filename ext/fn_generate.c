/* waste_generate(model, prompt [, options [, part...]]): the answer as text.
 * waste_generate_json(...): the same as an object.
 *
 *     SELECT waste_generate('demo', 'What is the capital of Italy?');
 *     -- The capital of Italy is **Rome**.
 *     SELECT waste_generate_json('demo', 'What is the capital of Italy?',
 *                                '{"max_tokens":2}');
 *     -- {"text":"The capital","reasoning":null,"finish_reason":"length","usage":{
 *     -- "prompt_tokens":30,"completion_tokens":2,"total_tokens":32},"timings":{...}}
 *     SELECT waste_generate('demo', 'Classify the sentiment:', NULL, body) FROM reviews;
 *
 * Parts are further text of the user's turn: data, which no control token can
 * hide in. A NULL model gives NULL; so does a NULL prompt, unless the options
 * carry {"tokens":[...]}. A NULL part is skipped, a BLOB is an error.
 *
 * Reads the container; writes nothing. When timeout_ms passes, waste_generate is
 * an error and waste_generate_json has finish_reason "timeout" and what was made
 * by then. An interrupt ends both with SQLITE_INTERRUPT. */
#include <string.h>

#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_models.h"
#include "ext_request.h"
#include "fn.h"

SQLITE_EXTENSION_INIT3

typedef struct reply {
    waste_buf text, reasoning, logprobs; /* logprobs: members of a JSON array */
    waste_finish finish;
    waste_usage usage;
} reply;

static void reply_clear(reply *r)
{
    waste_buf_clear(&r->text);
    waste_buf_clear(&r->reasoning);
    waste_buf_clear(&r->logprobs);
}

/* ---- log-probabilities ---- */

/* {"token":5,"piece":" Rome","logprob":-0.1 without the closing brace. */
static void open_logprob(waste_buf *b, const waste_container *c, int32_t token, double logprob)
{
    size_t bytes = 0;
    const char *piece = waste_token_bytes(c, token, &bytes);

    waste_buf_printf(b, "{\"token\":%d,\"piece\":", (int)token);
    if (piece)
        waste_json_quote(b, piece, bytes);
    else
        waste_buf_text(b, "null");
    waste_buf_text(b, ",\"logprob\":");
    waste_args_number(b, logprob);
}

static void add_logprobs(waste_buf *b, const waste_container *c, const waste_gen_token *t)
{
    int i;

    if (b->len) waste_buf_byte(b, ',');
    open_logprob(b, c, t->token, t->logprob);
    waste_buf_text(b, ",\"top\":[");
    for (i = 0; i < t->n_top; i++) {
        if (i) waste_buf_byte(b, ',');
        open_logprob(b, c, t->top[i].token, t->top[i].logprob);
        waste_buf_byte(b, '}');
    }
    waste_buf_text(b, "]}");
}

/* ---- generation ---- */

static waste_status generate(reply *out, const waste_lease *l, const waste_request *r,
                             waste_error *err)
{
    waste_gen *g = NULL;
    waste_gen_token t;
    waste_status st = waste_gen_open(&g, l->model, &r->prompt, &r->params, err);

    while (!st && !(st = waste_gen_next(g, &t, err))) {
        waste_buf_add(&out->text, t.piece.text, t.piece.bytes);
        waste_buf_add(&out->reasoning, t.reasoning.text, t.reasoning.bytes);
        if (r->logprobs && t.token >= 0) add_logprobs(&out->logprobs, l->container, &t);
        if (t.finish != WASTE_FINISH_NONE) out->finish = t.finish;
        if (out->text.failed || out->reasoning.failed || out->logprobs.failed)
            st = waste_fail(err, WASTE_NOMEM, "out of memory for the reply");
    }
    if (g) waste_gen_usage(g, &out->usage);
    waste_gen_close(g);
    return st == WASTE_DONE ? WASTE_OK : st;
}

/* WASTE_DONE: the answer is NULL. */
static waste_status answer(reply *out, waste_request *r, const char *who, waste_conn *conn,
                           int argc, sqlite3_value **argv, waste_error *err)
{
    waste_lease l = {0};
    waste_interrupt stop;
    waste_status st;

    memset(r, 0, sizeof *r);
    if (argc < 2) return waste_fail(err, WASTE_ARG, "%s needs a model and a prompt", who);
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL) return WASTE_DONE;
    st = waste_request_read(r, who, WASTE_TAKES_PROMPT | WASTE_TAKES_SAMPLING, argv[1],
                            argc > 2 ? argv[2] : NULL, err);
    if (!st) st = waste_request_parts(r, who, 4, argc - 3, argv + 3, err);
    if (st) return st;

    waste_interrupt_begin(&stop, waste_models_db(conn));
    r->params.cancel = waste_interrupt_cancel(&stop);
    st = waste_models_weights(&l, conn, argv[0], &r->params.cancel, err);
    if (!st) st = generate(out, &l, r, err);
    waste_models_end(&l);
    waste_interrupt_end(&stop);
    return st;
}

void waste_fn_generate(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    reply out = {0};
    waste_request r;
    waste_error err = {0};
    waste_status st = answer(&out, &r, "waste_generate", sqlite3_user_data(ctx), argc, argv, &err);

    if (!st && out.finish == WASTE_FINISH_TIMEOUT)
        st = waste_fail(&err, WASTE_TIMEOUT, "waste_generate: timeout_ms %lld passed after %lld %s",
                        (long long)r.params.timeout_ms, (long long)out.usage.completion_tokens,
                        out.usage.completion_tokens == 1 ? "token" : "tokens");
    if (st < 0)
        waste_args_fail(ctx, &err);
    else if (!st)
        waste_args_result(ctx, &out.text);
    waste_request_clear(&r);
    reply_clear(&out);
}

static void add_quoted(waste_buf *b, const waste_buf *text)
{
    waste_json_quote(b, text->data ? text->data : "", text->len);
}

static const char *finish_name(waste_finish f)
{
    return f == WASTE_FINISH_STOP ? "stop" : f == WASTE_FINISH_LENGTH ? "length" : "timeout";
}

static void as_json(waste_buf *b, const reply *r, int logprobs)
{
    const waste_usage *u = &r->usage;

    waste_buf_text(b, "{\"text\":");
    add_quoted(b, &r->text);
    waste_buf_text(b, ",\"reasoning\":");
    if (r->reasoning.len)
        add_quoted(b, &r->reasoning);
    else
        waste_buf_text(b, "null");
    waste_buf_printf(b, ",\"finish_reason\":\"%s\"", finish_name(r->finish));
    waste_buf_printf(b,
                     ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                     "\"total_tokens\":%lld}",
                     (long long)u->prompt_tokens, (long long)u->completion_tokens,
                     (long long)(u->prompt_tokens + u->completion_tokens));
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
    waste_buf_byte(b, '}');
}

void waste_fn_generate_json(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    reply out = {0};
    waste_request r;
    waste_buf json = {0};
    waste_error err = {0};
    waste_status st =
        answer(&out, &r, "waste_generate_json", sqlite3_user_data(ctx), argc, argv, &err);

    if (st < 0) {
        waste_args_fail(ctx, &err);
    } else if (!st) {
        as_json(&json, &out, r.logprobs);
        waste_args_result_json(ctx, &json);
    }
    waste_buf_clear(&json);
    waste_request_clear(&r);
    reply_clear(&out);
}
