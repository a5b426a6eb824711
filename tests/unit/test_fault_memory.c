/* Memory that runs out, at each allocation in turn, while a model opens, reads a
 * prompt and writes a reply; once, or from then on. Each ends in WASTE_NOMEM and a
 * sentence or does no harm, gives back all that it took, and the next call works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include "internal.h"
#include "model_files.h"

/* What is wrong here is no race, and ThreadSanitizer is slow: a sample will do. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STEP 11
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(STEP)
#define STEP 11
#endif
#ifndef STEP
#define STEP (emulated() ? 41 : 1)
#endif
#define STRIDE ((uint64_t)(emulated() ? 150 : 23))

enum {
    AT_LEAST = 500, /* the last allocation that fails; a later one when there are more */
    MARGIN = 40,    /* so many in a row have done no harm: there are no more */
    PROMPT = 60,
    REPLY = 12 /* latents come in blocks of 64 positions: one begins in the reply */
};

typedef enum phase { PREFILL, DECODE } phase;

static model_files k3, plain;
static char usage[MODEL_PATH + 32];

static int write_models(void **state)
{
    (void)state;
    model_write(&k3, MODEL_K3);
    model_write(&plain, MODEL_PLAIN);
    snprintf(usage, sizeof usage, "%s.usage", k3.dir);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    unlink(usage);
    model_remove(&k3);
    model_remove(&plain);
    return 0;
}

/* A reply of REPLY tokens to the prompt; the n-th allocation of phase `at` fails. */
static waste_status talk(waste_model *m, phase at, uint64_t n, int stay, int32_t *reply,
                         waste_error *err)
{
    int32_t ids[PROMPT];
    waste_prompt p = {.tokens = ids, .n_tokens = PROMPT};
    waste_gen_params params;
    waste_gen_token token;
    waste_gen *g = NULL;
    waste_status st;
    int i;

    for (i = 0; i < PROMPT; i++) ids[i] = (i * 7 + 3) % MODEL_VOCAB;
    waste_gen_params_init(&params);
    params.max_tokens = REPLY;
    params.repetition_penalty = 1.1;
    params.top_logprobs = 3;
    if (at == PREFILL) waste_mem_fail_at(n, stay);
    st = waste_gen_open(&g, m, &p, &params, err);
    for (i = 0; i < REPLY && !st; i++) {
        st = waste_gen_next(g, &token, err);
        if (!st) reply[i] = token.token;
        if (i == 0) waste_mem_fail_at(at == DECODE ? n : 0, stay);
    }
    waste_mem_fail_at(0, 0);
    waste_gen_close(g);
    return st;
}

static void answers(waste_model *m, const int32_t *want)
{
    int32_t got[REPLY] = {0};
    waste_error e = {0};

    if (talk(m, PREFILL, 0, 0, got, &e)) fail_msg("the next call: %s", e.text);
    assert_memory_equal(got, want, sizeof got);
}

/* A failure has its status and a sentence, a success neither. */
static void is_clean(waste_status st, const waste_error *e, const char *where, uint64_t n)
{
    if (st == e->status && (st ? st == WASTE_NOMEM && e->text[0] : !e->text[0])) return;
    fail_msg("%s, allocation %llu: status %d, error %d: %s", where, (unsigned long long)n, (int)st,
             (int)e->status, e->text);
}

/* By the model's own account. */
static void holds_no_sequence(waste_model *m)
{
    waste_model_stats s;

    waste_model_stats_get(m, &s);
    assert_int_equal(s.sequence_bytes, 0);
}

static waste_model *open_model(const model_files *f, const waste_model_options *o)
{
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, o, &e)) fail_msg("%s", e.text);
    return m;
}

/* The next allocation to fail: each (or one in STEP), as long as there are any; then a few that
 * nobody asks for. */
static uint64_t next(uint64_t n, uint64_t last_failure)
{
    return n + (n > last_failure + MARGIN ? STRIDE : (uint64_t)STEP);
}

static void in_a_reply(const model_files *f, const waste_model_options *o, phase at, int stay)
{
    static const char *const name[] = {"the prompt", "the reply"};
    waste_model *m = open_model(f, o);
    int32_t want[REPLY] = {0};
    waste_error e = {0};
    waste_status st = WASTE_NOMEM;
    uint64_t n, last = 0, failed = 0, before;

    assert_int_equal(talk(m, PREFILL, 0, 0, want, &e), WASTE_OK);
    before = waste_mem_used();
    for (n = 1; n <= AT_LEAST || st; n = next(n, last)) {
        int32_t got[REPLY] = {0};

        memset(&e, 0, sizeof e);
        st = talk(m, at, n, stay, got, &e);
        is_clean(st, &e, name[at], n);
        assert_int_equal(waste_mem_used(), before);
        holds_no_sequence(m);
        if (st) {
            last = n;
            failed++;
            answers(m, want);
        } else {
            assert_memory_equal(got, want, sizeof got);
        }
    }
    assert_true(failed * (uint64_t)STEP >= (at == PREFILL ? 15 : 8));
    waste_model_close(m);
}

/* Every path that opening takes has its turn: with a hotlist, checksums, and the
 * kernels that pack; and what opened although memory ran out answers as ever. */
static void opens(const model_files *f, const waste_model_options *o, int stay)
{
    const uint64_t before = waste_mem_used();
    waste_model *m = open_model(f, o);
    int32_t want[REPLY] = {0};
    waste_error e = {0};
    waste_status st = WASTE_NOMEM;
    uint64_t n, last = 0, failed = 0;

    assert_int_equal(talk(m, PREFILL, 0, 0, want, &e), WASTE_OK);
    waste_model_close(m);
    assert_int_equal(waste_mem_used(), before);
    for (n = 1; n <= AT_LEAST || st; n = next(n, last)) {
        memset(&e, 0, sizeof e);
        waste_mem_fail_at(n, stay);
        st = waste_model_open(&m, f->dir, o, &e);
        waste_mem_fail_at(0, 0);
        is_clean(st, &e, "opening", n);
        if (st) {
            last = n;
            failed++;
            assert_null(m);
        } else {
            answers(m, want);
        }
        waste_model_close(m);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(failed * (uint64_t)STEP > 300);
    m = open_model(f, o);
    answers(m, want);
    waste_model_close(m);
}

static void opening_fails_cleanly(void **state)
{
    const waste_model_options some[] = {
        {.precision = WASTE_PRECISION_EXACT, .context = 200},
        {.verify = 1, .context = 200, .usage = usage},
    };
    waste_model *m = open_model(&k3, &some[0]);
    int32_t ids[REPLY];
    waste_error e = {0};
    size_t i;
    int stay;
    (void)state;

    assert_int_equal(talk(m, PREFILL, 0, 0, ids, &e), WASTE_OK);
    assert_int_equal(waste_usage_save(m, usage, &e), WASTE_OK);
    waste_model_close(m);
    for (i = 0; i < sizeof some / sizeof *some; i++)
        for (stay = 0; stay < 2; stay++) {
            opens(&k3, &some[i], stay);
            if (!some[i].usage) opens(&plain, &some[i], stay);
        }
}

static void a_prompt_fails_cleanly(void **state)
{
    const waste_model_options o = {.context = 200}, one = {.context = 200, .io_threads = 1};
    (void)state;

    in_a_reply(&k3, &o, PREFILL, 0);
    in_a_reply(&k3, &o, PREFILL, 1);
    in_a_reply(&plain, &one, PREFILL, 1);
}

static void a_reply_fails_cleanly(void **state)
{
    const waste_model_options o = {.context = 200}, one = {.context = 200, .io_threads = 1};
    (void)state;

    in_a_reply(&k3, &o, DECODE, 0);
    in_a_reply(&k3, &o, DECODE, 1);
    in_a_reply(&plain, &one, DECODE, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_fails_cleanly),
        cmocka_unit_test(a_prompt_fails_cleanly),
        cmocka_unit_test(a_reply_fails_cleanly),
    };

    emulated_say("one allocation in 41 fails");
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
