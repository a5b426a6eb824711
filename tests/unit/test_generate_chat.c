/* generate.c: chat requests to prompts, and their replies as messages. The model's
 * next token depends on the last one only (tiny.h), so that this file decides what
 * it says. */
#include "tiny.h"

#include "base/mem.h"
#include "waste.h"

static const char *const words[] = {
    "response", "think", "message", "tools", "call tool=\"f\" id=\"a&quot;b\"", NULL};
static const char *const xtml_specials[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>",
                                            NULL};
static const char *const plain_specials[] = {"<|im_user|>", "<|im_end|>", "<|end|>", NULL};
static const char plain_json[] = "{\"user\": [\"<|im_user|>\", \"<|im_end|>\"],"
                                 " \"assistant\": [\"\", \"<|im_end|>\\n\"], \"open\": \">\"}";

enum { RESPONSE = 256, THINK, MESSAGE, TOOLS, CALL, OPEN, CLOSE, SEP, END, XTML_VOCAB };
enum { IM_USER = 261, IM_END, EOS, PLAIN_VOCAB };

/* "Hi", closed and ended. In the other model an answer is followed by calls. */
static const tiny_edge says_hi[] = {
    {SEP, 'H', 9}, {'H', 'i', 9}, {'i', CLOSE, 9}, {CLOSE, RESPONSE, 9}, {RESPONSE, SEP, 9},
};
static const tiny_edge calls[] = {{SEP, OPEN, 9}, {OPEN, CALL, 9}, {CALL, SEP, 9}};
static const tiny_edge thinks[] = {{SEP, 'h', 9}, {'h', 'm', 9}, {'m', END, 9}};
static const tiny_edge plain_edges[] = {{'>', 'O', 9}, {'O', 'k', 9}, {'k', IM_END, 9}};

static char dir[4][TINY_PATH];
static waste_model *hi, *calling, *thinking, *plain;

static waste_model *open_model(const char *path)
{
    waste_model_options o;
    waste_error e = {0};
    waste_model *m;

    memset(&o, 0, sizeof o);
    o.context = 2000;
    if (waste_model_open(&m, path, &o, &e)) fail_msg("%s: %s", path, e.text);
    return m;
}

static waste_model *xtml_model(char *path, const tiny_edge *edges, size_t n)
{
    tiny_dir(path);
    assert_int_equal(tiny_tokenizer(path, words, xtml_specials), XTML_VOCAB);
    tiny_model(path, XTML_VOCAB, END, edges, n);
    return open_model(path);
}

static int write_models(void **state)
{
    (void)state;
    hi = xtml_model(dir[0], says_hi, sizeof says_hi / sizeof *says_hi);
    calling = xtml_model(dir[1], calls, sizeof calls / sizeof *calls);
    thinking = xtml_model(dir[2], thinks, sizeof thinks / sizeof *thinks);
    tiny_dir(dir[3]);
    assert_int_equal(tiny_tokenizer(dir[3], words, plain_specials), PLAIN_VOCAB);
    tiny_put(dir[3], "chat.json", plain_json);
    tiny_model(dir[3], PLAIN_VOCAB, EOS, plain_edges, sizeof plain_edges / sizeof *plain_edges);
    plain = open_model(dir[3]);
    return 0;
}

static int remove_models(void **state)
{
    int i;
    (void)state;

    waste_model_close(hi);
    waste_model_close(calling);
    waste_model_close(thinking);
    waste_model_close(plain);
    for (i = 0; i < 4; i++) tiny_remove(dir[i]);
    return 0;
}

static waste_str str(const char *s)
{
    waste_str v = {s, s ? strlen(s) : 0};

    return v;
}

/* Pieces put together; the generation, at its end. */
typedef struct run {
    waste_gen *g;
    char answer[64], reasoning[64];
    int32_t token[64];
    double logprob[64];
    int64_t tokens;
    waste_usage usage;
} run;

/* thoughts: tokens that thinking may take; -1: all. */
static run think(waste_model *m, const char *messages, const char *options, int64_t max,
                 int64_t thoughts, const char *stop)
{
    const waste_chat_request chat = {str(messages), str(options), 0};
    waste_prompt prompt;
    waste_gen_params params;
    waste_gen_token t;
    waste_error e = {0};
    waste_status st;
    waste_text early;
    const waste_str stops = str(stop);
    run r;

    memset(&r, 0, sizeof r);
    memset(&prompt, 0, sizeof prompt);
    prompt.chat = &chat;
    waste_gen_params_init(&params);
    params.max_tokens = max;
    params.max_thinking_tokens = thoughts;
    params.stop = &stops;
    params.n_stop = stop != NULL;
    if (waste_gen_open(&r.g, m, &prompt, &params, &e)) fail_msg("%s", e.text);
    assert_null(waste_gen_finish_reason(r.g));
    assert_int_equal(waste_gen_message(r.g, &early, &e), WASTE_ARG);
    assert_null(early.text);
    memset(&e, 0, sizeof e);
    while (!(st = waste_gen_next(r.g, &t, &e))) {
        strncat(r.answer, t.piece.text, t.piece.bytes);
        strncat(r.reasoning, t.reasoning.text, t.reasoning.bytes);
        assert_int_equal(t.tools.bytes, 0);
        assert_true(t.index < 64);
        r.token[t.index] = t.token;
        r.logprob[t.index] = t.logprob;
    }
    assert_int_equal(st, WASTE_DONE);
    waste_gen_usage(r.g, &r.usage);
    r.tokens = r.usage.completion_tokens;
    return r;
}

static run reply(waste_model *m, const char *messages, const char *options, int64_t max)
{
    return think(m, messages, options, max, -1, NULL);
}

static void assert_message(const run *r, const char *want, const char *finish)
{
    waste_text t;
    waste_error e = {0};

    assert_int_equal(waste_gen_message(r->g, &t, &e), WASTE_OK);
    assert_string_equal(t.text, want);
    assert_int_equal(t.bytes, strlen(want));
    assert_string_equal(waste_gen_finish_reason(r->g), finish);
    waste_text_clear(&t);
    assert_null(t.text);
}

/* The closing as text: control tokens by their spelling. */
static void assert_closing(const run *r, const waste_model *m, const char *want)
{
    const waste_container *c = waste_model_container(m);
    waste_ids ids = {NULL, 0};
    waste_error e = {0};
    char got[200] = "";
    size_t i, n;

    assert_int_equal(waste_gen_closing(r->g, &ids, &e), WASTE_OK);
    for (i = 0; i < ids.n; i++) {
        const char *s = waste_token_bytes(c, ids.id[i], &n);
        strncat(got, s, n);
    }
    assert_string_equal(got, want);
    waste_ids_clear(&ids);
}

#define USER       "[{\"role\":\"user\",\"content\":\"go\"}]"
#define NO_THOUGHT "{\"thinking\":false}"
#define ASSISTANT  "{\"role\":\"assistant\",\"content\":"

static void a_reply_ends_with_its_answer_when_no_tools_were_declared(void **state)
{
    run r = reply(hi, USER, NO_THOUGHT, 50);
    (void)state;

    assert_string_equal(r.answer, "Hi");
    assert_int_equal(r.tokens, 5);
    assert_message(&r, ASSISTANT "\"Hi\"}", "stop");
    assert_closing(&r, hi, "<|close|>message<|sep|><|end_of_msg|>");
    waste_gen_close(r.g);
    /* with tools it is read on, here to max_tokens, in the element around it */
    r = reply(hi, USER, "{\"thinking\":false,\"tools\":[{}]}", 7);
    assert_string_equal(r.answer, "HiHi");
    assert_int_equal(r.tokens, 7);
    assert_message(&r, ASSISTANT "\"HiHi\"}", "length");
    waste_gen_close(r.g);
}

static void calls_are_reported_in_openais_form(void **state)
{
#define CALLED \
    "{\"id\":\"a\\\"b\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"
    run r = reply(calling, USER, "{\"thinking\":false,\"tools\":[{}]}", 6);
    waste_str id, name;
    (void)state;

    assert_int_equal(waste_gen_calls(r.g), 2);
    waste_gen_call(r.g, 1, &id, &name);
    assert_int_equal(id.bytes, 3);
    assert_memory_equal(id.text, "a\"b", 3);
    assert_int_equal(name.bytes, 1);
    assert_message(&r, ASSISTANT "null,\"tool_calls\":[" CALLED "," CALLED "]}", "tool_calls");
    assert_closing(&r, calling,
                   "<|close|>call<|sep|><|close|>call<|sep|><|close|>response<|sep|>"
                   "<|close|>message<|sep|><|end_of_msg|>");
    waste_gen_close(r.g);
    /* cut in a header, of which the reader sees nothing; it is ended in the sequence */
    r = reply(calling, USER, "{\"thinking\":false,\"tools\":[{}]}", 1);
    assert_message(&r, ASSISTANT "null}", "length");
    assert_closing(&r, calling,
                   "<|sep|><|close|><|sep|><|close|>response<|sep|><|close|>message<|sep|>"
                   "<|end_of_msg|>");
    waste_gen_close(r.g);
}

static void a_reply_begins_in_the_channel_left_open(void **state)
{
    run r = reply(thinking, USER, NULL, 50);
    (void)state;

    assert_string_equal(r.reasoning, "hm");
    assert_message(&r, ASSISTANT "null,\"reasoning_content\":\"hm\"}", "stop");
    assert_closing(&r, thinking, ""); /* it ended its message, such as it is */
    waste_gen_close(r.g);
    r = reply(thinking, USER, "{\"reasoning_effort\":\"low\"}", 1);
    assert_message(&r, ASSISTANT "null,\"reasoning_content\":\"h\"}", "length");
    assert_closing(&r, thinking,
                   "<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>"
                   "<|close|>message<|sep|><|end_of_msg|>");
    waste_gen_close(r.g);
    r = reply(thinking, USER, NO_THOUGHT, 50);
    assert_message(&r, ASSISTANT "\"hm\"}", "stop");
    waste_gen_close(r.g);
}

/* ---- a limit on thinking ------------------------------------------------------- */

/* What follows the prompt: reasoning, what ends it, the answer. */
static void assert_tokens(const run *r, const int32_t *want, int64_t n)
{
    assert_int_equal(r->tokens, n);
    assert_memory_equal(r->token, want, (size_t)n * sizeof *want);
}

static void thinking_ends_at_its_limit(void **state)
{
    static const int32_t want[] = {'h', CLOSE, THINK, SEP, OPEN, RESPONSE, SEP, 'h', 'm', END};
    const int64_t n = sizeof want / sizeof *want;
    run r = think(thinking, USER, NULL, 50, 1, NULL);
    int i;
    (void)state;

    assert_message(&r, ASSISTANT "\"hm\",\"reasoning_content\":\"h\"}", "stop");
    assert_tokens(&r, want, n);
    assert_int_equal(r.usage.reasoning_tokens, 1);
    assert_int_equal(r.usage.forced_tokens, 6);
    for (i = 0; i < n; i++) assert_int_equal(isnan(r.logprob[i]), i > 0 && i < 7);
    assert_closing(&r, thinking, "");
    waste_gen_close(r.g);
    /* at once; and where the model would have gone on to end its message */
    r = think(thinking, USER, NULL, 50, 0, NULL);
    assert_message(&r, ASSISTANT "\"hm\"}", "stop");
    assert_tokens(&r, want + 1, n - 1);
    assert_int_equal(r.usage.reasoning_tokens, 0);
    waste_gen_close(r.g);
    r = think(thinking, USER, NULL, 50, 2, NULL);
    assert_message(&r, ASSISTANT "\"hm\",\"reasoning_content\":\"hm\"}", "stop");
    assert_int_equal(r.tokens, n + 1);
    waste_gen_close(r.g);
}

static void a_limit_that_is_not_reached_changes_nothing(void **state)
{
    static const int32_t want[] = {'h', 'm', END};
    run r = think(thinking, USER, NULL, 50, 3, NULL);
    (void)state;

    assert_tokens(&r, want, 3);
    assert_int_equal(r.usage.reasoning_tokens, 2);
    assert_int_equal(r.usage.forced_tokens, 0);
    waste_gen_close(r.g);
    r = think(thinking, USER, NO_THOUGHT, 50, 0, NULL); /* nor one on what is not asked for */
    assert_tokens(&r, want, 3);
    assert_message(&r, ASSISTANT "\"hm\"}", "stop");
    waste_gen_close(r.g);
}

static void what_ends_thinking_may_be_cut_off_itself(void **state)
{
    static const char *const closing[] = {
        "<|close|>think<|sep|><|open|>response<|sep|>",
        "think<|sep|><|open|>response<|sep|>",
        "<|sep|><|open|>response<|sep|>",
        "<|open|>response<|sep|>",
        "response<|sep|>",
        "<|sep|>",
        "",
    };
    char want[200];
    int64_t i;
    (void)state;

    for (i = 0; i < 7; i++) { /* the conversation goes on as if it had come to its end */
        run r = think(thinking, USER, NULL, 1 + i, 1, NULL);
        assert_message(&r, ASSISTANT "null,\"reasoning_content\":\"h\"}", "length");
        assert_int_equal(r.usage.forced_tokens, i);
        snprintf(want, sizeof want, "%s%s", closing[i],
                 "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>");
        assert_closing(&r, thinking, want);
        waste_gen_close(r.g);
    }
}

static void stop_strings_see_the_answer_only(void **state)
{
    run r = think(thinking, USER, NULL, 50, 1, "h");
    (void)state;

    assert_message(&r, ASSISTANT "null,\"reasoning_content\":\"h\"}", "stop");
    assert_int_equal(r.tokens, 8);
    assert_closing(&r, thinking, "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>");
    waste_gen_close(r.g);
    r = think(thinking, USER, NULL, 50, 1, "<|close|>think");
    assert_int_equal(r.tokens, 10);
    waste_gen_close(r.g);
}

/* A model that says the same whatever came before has no use for it; what matters is which
 * tokens the sequence has seen, and in which pieces they came. */
static void what_was_put_in_is_what_the_sequence_has_seen(void **state)
{
    const waste_chat_request chat = {str(USER), {NULL, 0}, 0};
    waste_prompt p = {.chat = &chat}, again = {0};
    waste_gen_params params;
    waste_gen_token t;
    waste_model_stats before, after;
    waste_ids ids = {NULL, 0};
    waste_error e = {0};
    waste_gen *g;
    run r;
    int32_t all[100];
    (void)state;

    waste_model_stats_get(thinking, &before);
    r = think(thinking, USER, NULL, 50, 1, NULL);
    waste_model_stats_get(thinking, &after);
    assert_int_equal(after.tokens + after.reused - before.tokens - before.reused,
                     r.usage.prompt_tokens + r.tokens - 1);
    assert_int_equal(waste_prompt_ids(waste_model_container(thinking), &p, &ids, &e), WASTE_OK);
    memcpy(all, ids.id, ids.n * sizeof *all);
    memcpy(all + ids.n, r.token, 7 * sizeof *all);
    again.tokens = all;
    again.n_tokens = ids.n + 7;
    waste_gen_params_init(&params);
    assert_int_equal(waste_gen_open(&g, thinking, &again, &params, &e), WASTE_OK);
    assert_int_equal(waste_gen_next(g, &t, &e), WASTE_OK);
    assert_int_equal(t.token, r.token[7]);
    assert_memory_equal(&t.logprob, &r.logprob[7], sizeof t.logprob);
    waste_gen_close(g);
    waste_gen_close(r.g);
    waste_ids_clear(&ids);
}

static int asked_for(void *ctx)
{
    return *(int *)ctx;
}

static void a_cancel_is_obeyed_at_the_next_step(void **state)
{
    const waste_chat_request chat = {str(USER), {NULL, 0}, 0};
    waste_prompt p = {.chat = &chat};
    waste_gen_params params;
    waste_gen_token t;
    waste_error e = {0};
    waste_gen *g;
    int cancel = 0, n = 0;
    waste_status st;
    (void)state;

    waste_gen_params_init(&params);
    params.max_thinking_tokens = 1;
    params.cancel.asked = asked_for;
    params.cancel.ctx = &cancel;
    assert_int_equal(waste_gen_open(&g, thinking, &p, &params, &e), WASTE_OK);
    while (!(st = waste_gen_next(g, &t, &e))) {
        n++;
        cancel = n >= 3;
    }
    assert_int_equal(st, WASTE_CANCELLED);
    assert_int_equal(n, 7); /* one thought, and what ends it */
    waste_gen_close(g);
}

static void in_a_batch_each_has_its_limit(void **state)
{
    const waste_chat_request chat = {str(USER), {NULL, 0}, 0};
    const waste_prompt p = {.chat = &chat};
    waste_gen_params params;
    waste_batch_end done;
    waste_batch *b;
    waste_error e = {0};
    int64_t i, limit[5] = {-1, 0, 1, 2, 3};
    int n = 0;
    waste_status st;
    (void)state;

    waste_gen_params_init(&params);
    assert_int_equal(waste_batch_open(&b, thinking, 8, NULL, &e), WASTE_OK);
    for (i = 0; i < 5; i++) {
        params.max_thinking_tokens = limit[i];
        assert_int_equal(waste_batch_add(b, &p, &params, &limit[i], &e), WASTE_OK);
    }
    while (!(st = waste_batch_next(b, &done, &e))) {
        run alone = think(thinking, USER, NULL, 256, *(int64_t *)done.tag, NULL);
        waste_usage u;
        waste_text one, other;

        assert_int_equal(done.error.status, WASTE_OK);
        waste_gen_usage(done.gen, &u);
        assert_int_equal(u.completion_tokens, alone.tokens);
        assert_int_equal(u.forced_tokens, alone.usage.forced_tokens);
        assert_int_equal(waste_gen_message(done.gen, &one, &e), WASTE_OK);
        assert_int_equal(waste_gen_message(alone.g, &other, &e), WASTE_OK);
        assert_string_equal(one.text, other.text);
        waste_text_clear(&one);
        waste_text_clear(&other);
        waste_gen_close(alone.g);
        waste_gen_close(done.gen);
        n++;
    }
    assert_int_equal(st, WASTE_DONE);
    assert_int_equal(n, 5);
    waste_batch_close(b);
}

static void a_limit_needs_a_reasoning_channel(void **state)
{
    waste_prompt p = {.text = str("x")};
    waste_gen_params params;
    waste_error e = {0};
    waste_gen *g;
    (void)state;

    waste_gen_params_init(&params);
    params.max_thinking_tokens = 5;
    assert_int_equal(waste_gen_open(&g, plain, &p, &params, &e), WASTE_UNSUPPORTED);
    assert_non_null(strstr(e.text, "max_thinking_tokens is 5"));
    assert_non_null(strstr(e.text, "chat.json"));
    memset(&e, 0, sizeof e);
    p.raw = 1;
    assert_int_equal(waste_gen_open(&g, thinking, &p, &params, &e), WASTE_UNSUPPORTED);
    assert_non_null(strstr(e.text, "no chat turn"));
    memset(&e, 0, sizeof e);
    params.max_thinking_tokens = -2;
    assert_int_equal(waste_gen_open(&g, thinking, &p, &params, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "max_thinking_tokens is -2"));
}

static void chat_json_answers_conversations(void **state)
{
    run r = reply(plain, USER, NULL, 50);
    (void)state;

    assert_message(&r, ASSISTANT "\"Ok\"}", "stop");
    assert_closing(&r, plain, "\n");
    waste_gen_close(r.g);
    r = reply(plain, USER, "{\"reasoning_effort\":\"none\"}", 1);
    assert_message(&r, ASSISTANT "\"O\"}", "length");
    assert_closing(&r, plain, "<|im_end|>\n");
    waste_gen_close(r.g);
}

static void assert_refused(waste_model *m, const char *messages, const char *options,
                           waste_status want, const char *word)
{
    const waste_chat_request chat = {str(messages), str(options), 0};
    waste_prompt prompt;
    waste_gen_params params;
    waste_error e = {0};
    waste_gen *g;

    memset(&prompt, 0, sizeof prompt);
    prompt.chat = &chat;
    waste_gen_params_init(&params);
    assert_int_equal(waste_gen_open(&g, m, &prompt, &params, &e), want);
    assert_null(g);
    if (!strstr(e.text, word)) fail_msg("%s", e.text);
}

static void what_cannot_be_answered_is_refused(void **state)
{
    static const char image[] = "[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]";
    waste_chat_request chat = {str(USER), {NULL, 0}, 0};
    waste_prompt prompt;
    waste_text t;
    waste_error e = {0};
    (void)state;

    assert_refused(hi, image, NULL, WASTE_UNSUPPORTED, "messages[0].content[0]");
    assert_refused(hi, USER, "{\"add_generation_prompt\":false}", WASTE_ARG,
                   "add_generation_prompt");
    assert_refused(plain, USER, "{\"tools\":[{}]}", WASTE_UNSUPPORTED, "tools");
    assert_refused(hi, "[]", NULL, WASTE_ARG, "messages");
    assert_refused(hi, NULL, NULL, WASTE_ARG, "messages");

    memset(&prompt, 0, sizeof prompt);
    prompt.chat = &chat;
    prompt.text = str("x");
    assert_int_equal(waste_prompt_render(waste_model_container(hi), &prompt, &t, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "chat request"));
}

static void a_prompt_is_shown_as_its_segments(void **state)
{
    const waste_container *c = waste_model_container(plain);
    waste_chat_request chat = {str("[{\"role\":\"user\",\"content\":\"a\\\"\\n\"}]"), {NULL, 0}, 0};
    const int32_t token = 3;
    waste_prompt prompt;
    waste_text t;
    waste_error e = {0};
    (void)state;

    memset(&prompt, 0, sizeof prompt);
    prompt.chat = &chat;
    assert_int_equal(waste_prompt_render(c, &prompt, &t, &e), WASTE_OK);
    assert_string_equal(t.text, "[{\"text\":\"<|im_user|>\",\"markup\":true},"
                                "{\"text\":\"a\\\"\\n\",\"markup\":false},"
                                "{\"text\":\"<|im_end|>\",\"markup\":true},"
                                "{\"text\":\">\",\"markup\":true}]");
    waste_text_clear(&t);
    prompt.chat = NULL;
    prompt.text = str("x\xFF");
    prompt.raw = 1;
    assert_int_equal(waste_prompt_render(c, &prompt, &t, &e), WASTE_OK);
    assert_string_equal(t.text, "[{\"text\":\"x\xEF\xBF\xBD\",\"markup\":false}]");
    waste_text_clear(&t);
    memset(&prompt, 0, sizeof prompt);
    prompt.tokens = &token;
    prompt.n_tokens = 1;
    assert_int_equal(waste_prompt_render(c, &prompt, &t, &e), WASTE_ARG);
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    const waste_chat_request chat = {str(USER), {NULL, 0}, 0};
    waste_prompt prompt;
    waste_gen_params params;
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;

    memset(&prompt, 0, sizeof prompt);
    prompt.chat = &chat;
    waste_gen_params_init(&params);
    params.max_tokens = 3;
    params.max_thinking_tokens = 0;
    for (n = 1; st == WASTE_NOMEM; n++) {
        waste_gen_token t;
        waste_error e = {0};
        waste_text text = {NULL, 0};
        waste_gen *g = NULL;

        waste_mem_fail_at(n, 1);
        st = waste_gen_open(&g, hi, &prompt, &params, &e);
        while (!st) st = waste_gen_next(g, &t, &e);
        if (st == WASTE_DONE) st = waste_gen_message(g, &text, &e);
        waste_mem_fail_at(0, 0);
        assert_true(st == WASTE_OK || st == WASTE_NOMEM);
        waste_gen_close(g);
        waste_text_clear(&text);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_ends_with_its_answer_when_no_tools_were_declared),
        cmocka_unit_test(calls_are_reported_in_openais_form),
        cmocka_unit_test(a_reply_begins_in_the_channel_left_open),
        cmocka_unit_test(thinking_ends_at_its_limit),
        cmocka_unit_test(a_limit_that_is_not_reached_changes_nothing),
        cmocka_unit_test(what_ends_thinking_may_be_cut_off_itself),
        cmocka_unit_test(stop_strings_see_the_answer_only),
        cmocka_unit_test(what_was_put_in_is_what_the_sequence_has_seen),
        cmocka_unit_test(a_cancel_is_obeyed_at_the_next_step),
        cmocka_unit_test(in_a_batch_each_has_its_limit),
        cmocka_unit_test(a_limit_needs_a_reasoning_channel),
        cmocka_unit_test(chat_json_answers_conversations),
        cmocka_unit_test(what_cannot_be_answered_is_refused),
        cmocka_unit_test(a_prompt_is_shown_as_its_segments),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
