/* generate.c: prompts to ids, and generations of a model whose next token this
 * file decides (tiny.h), so that every way to end is reached on purpose. */
#include "tiny.h"

#include <time.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "waste.h"

/* ---- the models ---------------------------------------------------------- */

static const char *const words[] = {"response", "think", "message", NULL};
static const char *const xtml_specials[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>",
                                            NULL};
static const char *const plain_specials[] = {"<|im_user|>", "<|im_end|>", "<|end|>", NULL};
static const char plain_json[] = "{\"user\": [\"<|im_user|>\", \"<|im_end|>\"],"
                                 " \"assistant\": [\"\", \"<|im_end|>\"], \"open\": \">\"}";

enum { RESPONSE = 256, THINK, MESSAGE, OPEN, CLOSE, SEP, END, XTML_VOCAB };
enum { IM_USER = 259, IM_END, EOS, PLAIN_VOCAB };

/* After the prompt it says "Hi" and closes; a..e follow each other; x begins a
 * character of three bytes; m is followed by n, o or p. */
static const tiny_edge xtml_edges[] = {
    {SEP, 'H', 9},  {'H', 'i', 9},   {'i', CLOSE, 9}, {CLOSE, RESPONSE, 9}, {RESPONSE, SEP, 9},
    {'a', 'b', 9},  {'b', 'c', 9},   {'c', 'd', 9},   {'d', 'e', 9},        {'e', END, 9},
    {'x', 0xE4, 9}, {0xE4, 0xBD, 9}, {0xBD, 0xA0, 9}, {0xA0, 'x', 9},       {'m', 'n', 3},
    {'m', 'o', 2},  {'m', 'p', 2},   {'n', 'm', 20},  {'o', 'm', 20},       {'p', 'm', 20},
};
static const tiny_edge plain_edges[] = {
    {'>', 'O', 9},    {'O', 'k', 9},    {'k', IM_END, 9},
    {'a', IM_END, 9}, {IM_END, 'b', 9}, {'b', EOS, 9},
};

static char xtml_dir[TINY_PATH], plain_dir[TINY_PATH], bare_dir[TINY_PATH];
static waste_model *xtml, *plain, *bare; /* bare: no tokenizer */

static waste_model *open_model(const char *dir, int64_t context)
{
    waste_model_options o;
    waste_error e = {0};
    waste_model *m;
    waste_status st;

    memset(&o, 0, sizeof o);
    o.context = context;
    st = waste_model_open(&m, dir, &o, &e);
    if (st) fail_msg("%s: %s", dir, e.text);
    return m;
}

static int write_models(void **state)
{
    (void)state;
    tiny_dir(xtml_dir);
    assert_int_equal(tiny_tokenizer(xtml_dir, words, xtml_specials), XTML_VOCAB);
    tiny_model(xtml_dir, XTML_VOCAB, END, xtml_edges, sizeof xtml_edges / sizeof *xtml_edges);
    xtml = open_model(xtml_dir, 200);
    tiny_dir(plain_dir);
    assert_int_equal(tiny_tokenizer(plain_dir, words, plain_specials), PLAIN_VOCAB);
    tiny_put(plain_dir, "chat.json", plain_json);
    tiny_model(plain_dir, PLAIN_VOCAB, EOS, plain_edges, sizeof plain_edges / sizeof *plain_edges);
    plain = open_model(plain_dir, 0);
    tiny_dir(bare_dir);
    tiny_model(bare_dir, XTML_VOCAB, END, xtml_edges, sizeof xtml_edges / sizeof *xtml_edges);
    bare = open_model(bare_dir, 0);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    waste_model_close(xtml);
    waste_model_close(plain);
    waste_model_close(bare);
    tiny_remove(xtml_dir);
    tiny_remove(plain_dir);
    tiny_remove(bare_dir);
    return 0;
}

/* ---- running one --------------------------------------------------------- */

static waste_str str(const char *s)
{
    waste_str v = {s, s ? strlen(s) : 0};

    return v;
}

static waste_prompt text_prompt(const char *text, int raw)
{
    waste_prompt p;

    memset(&p, 0, sizeof p);
    p.text = str(text);
    p.raw = raw;
    return p;
}

static waste_gen_params tokens(int64_t n)
{
    waste_gen_params p;

    waste_gen_params_init(&p);
    p.max_tokens = n;
    return p;
}

typedef struct run {
    char answer[256], reasoning[256];
    size_t n_answer, n_reasoning;
    int32_t token[64];
    waste_region region[64];
    size_t n; /* reports, the last one included */
    waste_finish finish;
    waste_usage usage;
    uint64_t rows; /* computed by the model */
} run;

static uint64_t rows_of(waste_model *m)
{
    waste_model_stats s;

    waste_model_stats_get(m, &s);
    return s.tokens;
}

static void append(char *to, size_t *n, waste_str s)
{
    assert_true(waste_utf8_valid(s.text, s.bytes));
    assert_true(*n + s.bytes < 256);
    memcpy(to + *n, s.text, s.bytes);
    *n += s.bytes;
    to[*n] = 0;
}

/* To the end; the status of the last call that was not WASTE_OK goes to *st. */
static run generate(waste_model *m, const waste_prompt *p, const waste_gen_params *g,
                    waste_status *st, waste_error *err)
{
    uint64_t before = waste_mem_used();
    waste_gen_token t;
    waste_gen *gen;
    run r;

    memset(&r, 0, sizeof r);
    r.rows = rows_of(m);
    *st = waste_gen_open(&gen, m, p, g, err);
    assert_int_equal(rows_of(m), r.rows);
    while (!*st && !(*st = waste_gen_next(gen, &t, err))) {
        assert_int_equal(r.finish, WASTE_FINISH_NONE);
        assert_true(r.n < 64);
        assert_int_equal(t.index, r.n);
        append(r.answer, &r.n_answer, t.piece);
        append(r.reasoning, &r.n_reasoning, t.reasoning);
        r.token[r.n] = t.token;
        r.region[r.n++] = t.region;
        r.finish = t.finish;
        assert_true(t.ms >= 0);
    }
    r.rows = rows_of(m) - r.rows;
    if (gen) {
        waste_gen_usage(gen, &r.usage);
        assert_true(r.usage.total_ms >= r.usage.prompt_ms);
    }
    waste_gen_close(gen);
    assert_int_equal(waste_mem_used(), before);
    return r;
}

static run complete(waste_model *m, const waste_prompt *p, const waste_gen_params *g)
{
    waste_error e = {0};
    waste_status st;
    run r = generate(m, p, g, &st, &e);

    if (st != WASTE_DONE) fail_msg("status %d: %s", (int)st, e.text);
    assert_int_equal(e.status, WASTE_OK);
    return r;
}

/* A raw prompt, to its end. */
static run raw(const char *text, const waste_gen_params *g)
{
    waste_prompt p = text_prompt(text, 1);

    return complete(xtml, &p, g);
}

/* ---- replies ------------------------------------------------------------- */

static void speaks_until_the_response_is_closed(void **state)
{
    static const int32_t want[] = {'H', 'i', CLOSE, RESPONSE, SEP};
    static const waste_region regions[] = {WASTE_REGION_ANSWER, WASTE_REGION_ANSWER,
                                           WASTE_REGION_MARKUP, WASTE_REGION_MARKUP,
                                           WASTE_REGION_MARKUP};
    waste_prompt p = text_prompt("Say hi.", 0);
    waste_gen_params g = tokens(60);
    run r = complete(xtml, &p, &g);
    waste_ids ids = {NULL, 0};
    waste_error e = {0};
    (void)state;

    assert_string_equal(r.answer, "Hi");
    assert_string_equal(r.reasoning, "");
    assert_int_equal(r.finish, WASTE_FINISH_STOP);
    assert_int_equal(r.n, 5);
    assert_memory_equal(r.token, want, sizeof want);
    assert_memory_equal(r.region, regions, sizeof regions);

    /* the prompt is what waste_prompt_ids says; the last token is not computed */
    assert_int_equal(waste_prompt_ids(waste_model_container(xtml), &p, &ids, &e), WASTE_OK);
    assert_int_equal(r.usage.prompt_tokens, ids.n);
    assert_int_equal(r.usage.completion_tokens, 5);
    assert_int_equal(r.rows, ids.n + 4);
    assert_int_equal(ids.id[0], OPEN);
    assert_int_equal(ids.id[ids.n - 1], SEP);
    assert_int_equal(ids.id[ids.n - 2], RESPONSE);
    waste_ids_clear(&ids);
}

static void thinking_is_given_apart(void **state)
{
    waste_prompt p = text_prompt("Say hi.", 0);
    waste_gen_params g = tokens(7);
    run r;
    (void)state;

    p.thinking = 1;
    r = complete(xtml, &p, &g); /* closing what is not open closes nothing */
    assert_string_equal(r.answer, "");
    assert_string_equal(r.reasoning, "HiHi");
    assert_int_equal(r.finish, WASTE_FINISH_LENGTH);
    assert_int_equal(r.region[0], WASTE_REGION_REASONING);
}

static void raw_text_goes_on_to_the_end_token(void **state)
{
    waste_gen_params g = tokens(60);
    run r = raw("xa", &g);
    (void)state;

    assert_string_equal(r.answer, "bcde");
    assert_int_equal(r.finish, WASTE_FINISH_STOP);
    assert_int_equal(r.token[r.n - 1], END);
    assert_int_equal(r.region[r.n - 1], WASTE_REGION_MARKUP);
    assert_int_equal(r.n, 5);
    assert_int_equal(r.rows, 2 + 4);
}

static void ids_are_a_prompt_with_and_without_a_tokenizer(void **state)
{
    static const int32_t ids[] = {'x', 'a'};
    waste_gen_params g = tokens(60);
    waste_prompt p = text_prompt(NULL, 0);
    run r;
    (void)state;

    p.tokens = ids;
    p.n_tokens = 2;
    r = complete(xtml, &p, &g);
    assert_string_equal(r.answer, "bcde");
    r = complete(bare, &p, &g);
    assert_string_equal(r.answer, "");
    assert_int_equal(r.n, 5);
    assert_int_equal(r.token[1], 'c');
    assert_int_equal(r.finish, WASTE_FINISH_STOP);
}

static void chat_json_ends_at_its_stop_token(void **state)
{
    waste_prompt p = text_prompt("Well?", 0);
    waste_gen_params g = tokens(60);
    run r = complete(plain, &p, &g);
    (void)state;

    assert_string_equal(r.answer, "Ok");
    assert_int_equal(r.finish, WASTE_FINISH_STOP);
    assert_int_equal(r.token[r.n - 1], IM_END);
    p = text_prompt("a", 1); /* raw: the marker is text, the end token ends */
    r = complete(plain, &p, &g);
    assert_string_equal(r.answer, "<|im_end|>b");
    assert_int_equal(r.token[r.n - 1], EOS);
}

static void stop_strings_cut_across_tokens(void **state)
{
    waste_str stop[] = {str("zz"), str("cd")};
    waste_gen_params g = tokens(60);
    run r;
    (void)state;

    g.stop = stop;
    g.n_stop = 2;
    r = raw("a", &g);
    assert_string_equal(r.answer, "b");
    assert_int_equal(r.finish, WASTE_FINISH_STOP);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.rows, 3);

    stop[0] = str("de!"); /* held, and given out when it can no longer come */
    g.n_stop = 1;
    r = raw("a", &g);
    assert_string_equal(r.answer, "bcde");
    g.max_tokens = 3;
    r = raw("a", &g);
    assert_string_equal(r.answer, "bcd");
    assert_int_equal(r.finish, WASTE_FINISH_LENGTH);
}

static void half_a_character_at_the_end_is_replaced(void **state)
{
    static const char *const want[] = {"\xEF\xBF\xBD", "\xEF\xBF\xBD", "\xE4\xBD\xA0",
                                       "\xE4\xBD\xA0x"};
    int64_t n;
    (void)state;

    for (n = 1; n <= 4; n++) {
        waste_gen_params g = tokens(n);
        run r = raw("x", &g);
        assert_string_equal(r.answer, want[n - 1]);
        assert_int_equal(r.finish, WASTE_FINISH_LENGTH);
    }
}

static void a_full_context_ends_the_reply(void **state)
{
    waste_model *m = open_model(xtml_dir, 8);
    waste_gen_params g = tokens(60);
    waste_prompt p = text_prompt("mmmmm", 1);
    waste_error e = {0};
    waste_status st;
    run r = complete(m, &p, &g);
    (void)state;

    assert_int_equal(r.n, 3);
    assert_int_equal(r.finish, WASTE_FINISH_LENGTH);
    assert_int_equal(r.rows, 5 + 2);
    p = text_prompt("mmmmmmm", 1);
    r = complete(m, &p, &g);
    assert_int_equal(r.n, 1);
    p = text_prompt("mmmmmmmm", 1);
    generate(m, &p, &g, &st, &e);
    assert_int_equal(st, WASTE_ARG);
    assert_non_null(strstr(e.text, "8 tokens"));
    assert_non_null(strstr(e.text, "8 positions"));
    waste_model_close(m);
}

/* ---- being stopped ------------------------------------------------------- */

typedef struct patience {
    int asks; /* counts down */
    int sleep_ms;
} patience;

static int out_of_patience(void *ctx)
{
    patience *p = ctx;
    struct timespec t = {0, p->sleep_ms * 1000000L};

    if (p->asks-- > 0) return 0;
    if (p->sleep_ms == 0) return 1;
    nanosleep(&t, NULL);
    return 0;
}

static void cancelling_ends_it_for_good(void **state)
{
    int asks, with_text = 0;
    (void)state;

    for (asks = 0; asks < 12; asks++) {
        patience x = {asks, 0};
        waste_prompt p = text_prompt("a", 1);
        waste_gen_params g = tokens(60);
        waste_error e = {0}, after = {0};
        waste_gen_token t;
        waste_gen *gen;
        waste_status st;

        g.cancel.asked = out_of_patience;
        g.cancel.ctx = &x;
        assert_int_equal(waste_gen_open(&gen, xtml, &p, &g, &e), WASTE_OK);
        while ((st = waste_gen_next(gen, &t, &e)) == WASTE_OK) with_text += t.piece.bytes > 0;
        if (st != WASTE_DONE) {
            assert_int_equal(st, WASTE_CANCELLED);
            assert_int_equal(e.status, WASTE_CANCELLED);
            assert_int_equal(waste_gen_next(gen, &t, &after), WASTE_DONE);
            assert_int_equal(after.status, WASTE_OK);
        }
        waste_gen_close(gen);
    }
    assert_true(with_text > 0);
}

/* The clock runs out between two asks of one pass, or between passes. What was
 * held for a stop string comes with the last report. */
static void a_timeout_reports_what_was_held(void **state)
{
    waste_str stop = str("bcdz");
    int asks;
    (void)state;

    for (asks = 0; asks < 8; asks++) {
        patience x = {asks, 30};
        waste_prompt p = text_prompt("a", 1);
        waste_gen_params g = tokens(60);
        waste_error e = {0};
        waste_status st;
        run r;

        g.stop = &stop;
        g.n_stop = 1;
        g.timeout_ms = 20;
        g.cancel.asked = out_of_patience;
        g.cancel.ctx = &x;
        r = generate(xtml, &p, &g, &st, &e);
        assert_int_equal(st, WASTE_DONE);
        assert_int_equal(e.status, WASTE_OK);
        assert_int_equal(r.finish, WASTE_FINISH_TIMEOUT);
        assert_int_equal(r.token[r.n - 1], -1);
        assert_int_equal(r.usage.completion_tokens, r.n - 1);
        assert_memory_equal(r.answer, "bcde", r.n_answer);
        assert_int_equal(r.n_answer, r.n - 1 < 4 ? r.n - 1 : 4);
    }
}

static void a_failure_is_repeated(void **state)
{
    static waste_bias ban[XTML_VOCAB];
    waste_prompt p = text_prompt("a", 1);
    waste_gen_params g = tokens(60);
    waste_error e = {0}, again = {0};
    waste_gen_token t;
    waste_gen *gen;
    int i;
    (void)state;

    for (i = 0; i < XTML_VOCAB; i++) {
        ban[i].token = i;
        ban[i].bias = -INFINITY;
    }
    g.logit_bias = ban;
    g.n_logit_bias = XTML_VOCAB;
    assert_int_equal(waste_gen_open(&gen, xtml, &p, &g, &e), WASTE_OK);
    assert_int_equal(waste_gen_next(gen, &t, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "logit_bias"));
    assert_int_equal(waste_gen_next(gen, &t, &again), WASTE_ARG);
    assert_string_equal(again.text, e.text);
    waste_gen_close(gen);
}

/* ---- choosing ------------------------------------------------------------ */

static void log_probabilities_come_with_each_token(void **state)
{
    const double sum = exp(3) + 2 * exp(2) + XTML_VOCAB - 3;
    const waste_bias ban = {'n', -INFINITY};
    waste_prompt p = text_prompt("m", 1);
    waste_gen_params g = tokens(1);
    waste_error e = {0};
    waste_gen_token t;
    waste_gen *gen;
    (void)state;

    g.top_logprobs = 4;
    g.logit_bias = &ban; /* changes the choice and no log-probability */
    g.n_logit_bias = 1;
    assert_int_equal(waste_gen_open(&gen, xtml, &p, &g, &e), WASTE_OK);
    assert_int_equal(waste_gen_next(gen, &t, &e), WASTE_OK);
    assert_int_equal(t.token, 'o');
    assert_true(fabs(t.logprob - (2 - log(sum))) < 1e-3);
    assert_int_equal(t.n_top, 4);
    assert_int_equal(t.top[0].token, 'n');
    assert_true(fabs(t.top[0].logprob - (3 - log(sum))) < 1e-3);
    assert_int_equal(t.top[1].token, 'o');
    assert_int_equal(t.top[2].token, 'p');
    assert_true(fabs(t.top[1].logprob - t.logprob) < 1e-12);
    assert_int_equal(t.top[3].token, 0);
    waste_gen_close(gen);
}

static void a_seed_decides_the_reply(void **state)
{
    waste_gen_params g = tokens(40);
    run a, b;
    uint64_t seed;
    int differ = 0;
    (void)state;

    g.temperature = 0.5;
    g.top_k = 3;
    for (seed = 0; seed < 5; seed++) {
        g.seed = seed;
        a = raw("m", &g);
        b = raw("m", &g);
        assert_string_equal(a.answer, b.answer);
        g.seed = seed + 100;
        b = raw("m", &g);
        differ += strcmp(a.answer, b.answer) != 0;
    }
    assert_true(differ >= 4);
}

static void penalties_see_the_prompt(void **state)
{
    waste_gen_params g = tokens(1);
    run r;
    (void)state;

    g.repetition_penalty = 2;
    r = raw("nm", &g); /* n: 3 / 2 against 2 */
    assert_int_equal(r.token[0], 'o');
    r = raw("m", &g);
    assert_int_equal(r.token[0], 'n');
}

/* ---- what is refused ----------------------------------------------------- */

static void assert_refused(waste_model *m, const waste_prompt *p, const waste_gen_params *g,
                           waste_status want, const char *text)
{
    waste_error e = {0};
    waste_status st;

    generate(m, p, g, &st, &e);
    assert_int_equal(st, want);
    assert_int_equal(e.status, want);
    if (!strstr(e.text, text)) fail_msg("\"%s\" does not say \"%s\"", e.text, text);
}

static void bad_options_are_named(void **state)
{
    waste_prompt p = text_prompt("a", 1);
    waste_gen_params g;
    waste_str stop = str("");
    (void)state;

    g = tokens(0);
    assert_refused(xtml, &p, &g, WASTE_ARG, "max_tokens is 0");
    g = tokens(1);
    g.timeout_ms = -1;
    assert_refused(xtml, &p, &g, WASTE_ARG, "timeout_ms is -1");
    g = tokens(1);
    g.top_logprobs = 21;
    assert_refused(xtml, &p, &g, WASTE_ARG, "top_logprobs is 21");
    g = tokens(1);
    g.temperature = NAN;
    assert_refused(xtml, &p, &g, WASTE_ARG, "temperature");
    g = tokens(1);
    g.stop = &stop;
    g.n_stop = 1;
    assert_refused(xtml, &p, &g, WASTE_ARG, "stop[0] is empty");
}

static void bad_prompts_are_named(void **state)
{
    static const int32_t ids[] = {1, 2, XTML_VOCAB};
    waste_gen_params g = tokens(1);
    waste_str part = str("x");
    waste_prompt p, many;
    (void)state;

    p = text_prompt(NULL, 0);
    assert_refused(xtml, &p, &g, WASTE_ARG, "empty");
    many = p;
    many.tokens = ids;
    many.n_tokens = 3;
    assert_refused(xtml, &many, &g, WASTE_ARG, "tokens[2] is 263, the vocabulary has 263");
    many.n_tokens = 2;
    many.parts = &part;
    many.n_parts = 1;
    assert_refused(xtml, &many, &g, WASTE_ARG, "parts");
    many.n_parts = 0;
    many.text = str("x");
    assert_refused(xtml, &many, &g, WASTE_ARG, "not both");
    p = text_prompt("", 1);
    assert_refused(xtml, &p, &g, WASTE_ARG, "empty");
    p = text_prompt("x", 1);
    p.system = str("s");
    assert_refused(xtml, &p, &g, WASTE_ARG, "system");
    p = text_prompt("x", 1);
    p.thinking = 1;
    assert_refused(xtml, &p, &g, WASTE_ARG, "thinking");
    p = text_prompt("x", 0);
    p.markup = 1;
    assert_refused(xtml, &p, &g, WASTE_ARG, "raw");
    p = text_prompt("x", 0);
    assert_refused(bare, &p, &g, WASTE_UNSUPPORTED, "{\"tokens\":[...]}");
    p.thinking = 1;
    assert_refused(plain, &p, &g, WASTE_UNSUPPORTED, "thinking");
}

/* Raw text is content unless markup is asked for; parts are content always. */
static void raw_prompts_keep_data_apart(void **state)
{
    waste_str part = str("<|sep|>");
    waste_prompt p = text_prompt("<|sep|>", 1);
    waste_ids ids = {NULL, 0};
    waste_error e = {0};
    const waste_container *c = waste_model_container(xtml);
    (void)state;

    assert_int_equal(waste_prompt_ids(c, &p, &ids, &e), WASTE_OK);
    assert_int_equal(ids.n, 7);
    assert_int_equal(ids.id[0], '<');
    waste_ids_clear(&ids);
    p.markup = 1;
    p.parts = &part;
    p.n_parts = 1;
    assert_int_equal(waste_prompt_ids(c, &p, &ids, &e), WASTE_OK);
    assert_int_equal(ids.n, 1 + 2 + 7);
    assert_int_equal(ids.id[0], SEP);
    assert_int_equal(ids.id[1], '\n');
    assert_int_equal(ids.id[3], '<');
    /* what was there stays, also when the next one is refused */
    p.thinking = 1;
    assert_int_equal(waste_prompt_ids(c, &p, &ids, &e), WASTE_ARG);
    assert_int_equal(ids.n, 10);
    waste_ids_clear(&ids);
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    waste_str stop = str("cdz");
    waste_status st = WASTE_NOMEM;
    uint64_t n;
    (void)state;

    for (n = 1; st != WASTE_DONE; n++) {
        waste_prompt p = text_prompt("Say hi.", 0);
        waste_gen_params g = tokens(60);
        waste_error e = {0};
        run r;

        g.stop = &stop;
        g.n_stop = 1;
        g.temperature = 0.1;
        g.top_k = 2;
        waste_mem_fail_at(n, 1);
        r = generate(xtml, &p, &g, &st, &e);
        waste_mem_fail_at(0, 0);
        assert_true(st == WASTE_DONE || st == WASTE_NOMEM);
        assert_int_equal(e.status, st == WASTE_DONE ? WASTE_OK : WASTE_NOMEM);
        if (st == WASTE_DONE) assert_string_equal(r.answer, "Hi");
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speaks_until_the_response_is_closed),
        cmocka_unit_test(thinking_is_given_apart),
        cmocka_unit_test(raw_text_goes_on_to_the_end_token),
        cmocka_unit_test(ids_are_a_prompt_with_and_without_a_tokenizer),
        cmocka_unit_test(chat_json_ends_at_its_stop_token),
        cmocka_unit_test(stop_strings_cut_across_tokens),
        cmocka_unit_test(half_a_character_at_the_end_is_replaced),
        cmocka_unit_test(a_full_context_ends_the_reply),
        cmocka_unit_test(cancelling_ends_it_for_good),
        cmocka_unit_test(a_timeout_reports_what_was_held),
        cmocka_unit_test(a_failure_is_repeated),
        cmocka_unit_test(log_probabilities_come_with_each_token),
        cmocka_unit_test(a_seed_decides_the_reply),
        cmocka_unit_test(penalties_see_the_prompt),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(bad_prompts_are_named),
        cmocka_unit_test(raw_prompts_keep_data_apart),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
