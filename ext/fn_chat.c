/* waste_render(model, messages [, options]): the prompt that a conversation becomes.
 * waste_chat_json(model, messages [, options]): the model's answer to it.
 *
 *     SELECT waste_render('demo', '[{"role":"user","content":"Hi <|sep|>"}]',
 *                         '{"add_generation_prompt":false}');
 *     -- [{"text":"<|open|>","markup":true},{"text":"message","markup":false},...
 *     SELECT waste_chat_json('demo', '[{"role":"user","content":"What is the capital of Italy?"}]',
 *                            '{"thinking":false}');
 *     -- {"role":"assistant","content":"The capital of Italy is **Rome**.",
 *     -- "finish_reason":"stop","usage":{"prompt_tokens":30,"completion_tokens":14,
 *     -- "total_tokens":44,"prompt_tokens_details":{"cached_tokens":0},
 *     -- "completion_tokens_details":{"reasoning_tokens":0,"forced_tokens":0}},
 *     -- "timings":{...}}
 *
 * Messages are those of the OpenAI chat schema. What is answered is a message of
 * it too, to be appended as it is: what is not of the schema is ignored there. It
 * has reasoning_content and tool_calls when there are any. finish_reason is "stop",
 * "length", "tool_calls" or "timeout". Errors name message and field. NULL in, NULL
 * out.
 *
 * Options of both are those that shape the prompt: tools, tool_choice,
 * response_format, thinking, reasoning_effort (thinking_effort, reasoning.effort),
 * add_generation_prompt, image_prompts; waste_chat_json takes those of
 * waste_generate about the reply as well. A call repeated within a statement is answered
 * once; with {"cache":true} the table waste_cache is asked, and told.
 *
 * Read the container; write nothing else. waste_render loads no weights. An interrupt
 * ends waste_chat_json with SQLITE_INTERRUPT. */
#include <string.h>

#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_memo.h"
#include "ext_models.h"
#include "ext_progress.h"
#include "ext_request.h"
#include "fn.h"

SQLITE_EXTENSION_INIT3

/* What both take from their arguments. WASTE_DONE: the answer is NULL. */
static waste_status read_arguments(waste_request *r, waste_chat_request *chat, const char *who,
                                   unsigned takes, int argc, sqlite3_value **argv, waste_error *err)
{
    waste_status st;

    memset(r, 0, sizeof *r);
    memset(chat, 0, sizeof *chat);
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL) return WASTE_DONE;
    st = waste_request_read(r, who, takes | WASTE_TAKES_CHAT, argv[1], argc > 2 ? argv[2] : NULL,
                            err);
    if (st) return st;
    chat->messages = r->prompt.text;
    if (argc > 2) st = waste_args_text(argv[2], "options", &chat->options, err);
    if (!chat->options.bytes) chat->options.text = NULL; /* '' is none */
    memset(&r->prompt, 0, sizeof r->prompt);
    r->prompt.chat = chat;
    return st;
}

void waste_fn_render(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_request r;
    waste_chat_request chat;
    waste_lease l = {0};
    waste_text text = {NULL, 0};
    waste_buf out = {0};
    waste_error err = {0};
    waste_status st = read_arguments(&r, &chat, "waste_render", 0, argc, argv, &err);

    if (!st) st = waste_models_container(&l, sqlite3_user_data(ctx), argv[0], &err);
    if (!st) st = waste_prompt_render(l.container, &r.prompt, &text, &err);
    if (!st) waste_buf_add(&out, text.text, text.bytes);
    if (st < 0)
        waste_args_fail(ctx, &err);
    else if (!st)
        waste_args_result_json(ctx, &out);
    waste_text_clear(&text);
    waste_models_end(&l);
    waste_request_clear(&r);
}

/* The message with its closing brace taken off, and what goes with it. */
static void add_reply(waste_buf *b, const waste_gen *g, const waste_text *message)
{
    waste_usage u;

    waste_gen_usage(g, &u);
    waste_buf_add(b, message->text, message->bytes - 1);
    waste_buf_printf(
        b,
        ",\"finish_reason\":\"%s\",\"usage\":{\"prompt_tokens\":%lld,"
        "\"completion_tokens\":%lld,\"total_tokens\":%lld,\"prompt_tokens_details\":{"
        "\"cached_tokens\":%lld},\"completion_tokens_details\":{\"reasoning_tokens\":%lld,"
        "\"forced_tokens\":%lld}},\"timings\":{\"prompt_ms\":",
        waste_gen_finish_reason(g), (long long)u.prompt_tokens, (long long)u.completion_tokens,
        (long long)(u.prompt_tokens + u.completion_tokens), (long long)u.reused_tokens,
        (long long)u.reasoning_tokens, (long long)u.forced_tokens);
    waste_args_number(b, u.prompt_ms);
    waste_buf_text(b, ",\"total_ms\":");
    waste_args_number(b, u.total_ms);
    waste_buf_text(b, "}}");
}

static waste_status answer(waste_buf *out, waste_memo_keep *where, const waste_lease *l,
                           const waste_request *r, waste_error *err)
{
    waste_gen *g = NULL;
    waste_gen_token t;
    waste_gen_params params = r->params;
    waste_progress progress;
    waste_finish finish = WASTE_FINISH_NONE;
    waste_usage usage;
    waste_text message = {NULL, 0};
    waste_status st;

    waste_progress_begin(&progress, r->progress, l->model);
    params.cancel = waste_progress_cancel(&progress, &r->params.cancel);
    st = waste_gen_open(&g, l->model, &r->prompt, &params, err);
    waste_progress_of(&progress, g);
    while (!st && !(st = waste_gen_next(g, &t, err))) {
        waste_progress_token(&progress, &t);
        finish = t.finish;
    }
    if (st == WASTE_DONE) st = waste_gen_message(g, &message, err);
    if (!st) {
        waste_gen_usage(g, &usage);
        *where = waste_memo_where(finish, &usage, &params);
        add_reply(out, g, &message);
    }
    waste_progress_end(&progress);
    waste_text_clear(&message);
    waste_gen_close(g);
    return st;
}

void waste_fn_chat_json(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_conn *conn = sqlite3_user_data(ctx);
    waste_memo memo;
    waste_request r;
    waste_chat_request chat;
    waste_lease l = {0};
    waste_interrupt stop;
    waste_buf out = {0};
    waste_error err = {0};
    waste_memo_keep where = WASTE_MEMO_TABLE;
    waste_status st;

    if (waste_memo_begin(&memo, ctx, "waste_chat_json", 1, argc, argv)) return;
    st = read_arguments(&r, &chat, "waste_chat_json", WASTE_TAKES_SAMPLING | WASTE_TAKES_CACHE,
                        argc, argv, &err);
    if (!st) {
        waste_interrupt_begin(&stop, waste_models_db(conn));
        r.params.cancel = waste_interrupt_cancel(&stop);
        st = waste_models_weights(&l, conn, argv[0], &r.params.cancel, &err);
        if (!st) st = waste_memo_look(&memo, conn, l.model, r.cache, &out, &err);
        if (st == WASTE_DONE) st = answer(&out, &where, &l, &r, &err);
        waste_models_end(&l);
        waste_interrupt_end(&stop);
    }
    if (st < 0)
        waste_args_fail(ctx, &err);
    else if (!st)
        waste_memo_give(&memo, ctx, &out, where);
    waste_buf_clear(&out);
    waste_request_clear(&r);
    waste_memo_clear(&memo);
}
