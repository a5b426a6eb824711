/* Sequences beyond one call: forks, generations that go on, and those that rest. */
#include "conversations.h"
#include "emulated.h"

/* ---- forks --------------------------------------------------------------------- */

/* Both go on alone, the parent first, and equal runs without any fork. */
static void fork_at(waste_model *m, int at, int parent_goes)
{
    waste_seq *s = open_seq(m), *f, *plain;
    float got[2][VOCAB], want[VOCAB];
    int who;

    go_on(s, 0, at, NULL);
    assert_int_equal(waste_seq_fork(&f, s, NULL), WASTE_OK);
    assert_int_equal(waste_seq_length(f), at);
    go_on(s, 1, 70, got[0]);
    if (parent_goes) waste_seq_free(s);
    go_on(f, 2, 70, got[1]);
    if (!parent_goes) waste_seq_free(s);
    waste_seq_free(f);
    for (who = 1; who < 3; who++) {
        plain = open_seq(m);
        go_on(plain, 0, at, NULL);
        go_on(plain, who, 70, want);
        assert_memory_equal(got[who - 1], want, sizeof want);
        waste_seq_free(plain);
    }
}

static void fork_equals_a_run_of_its_own(void **state)
{
    static const int at[] = {1, 63, 64, 65, 128, 130};
    int k;
    size_t i;

    (void)state;
    for (k = 0; k < 6; k += emulated() ? 3 : 1) {
        waste_model *m =
            open_as(&files[k % 3], WASTE_PRECISION_FAST, k < 3 ? WASTE_KV_F32 : WASTE_KV_F16);

        for (i = 0; i < sizeof at / sizeof *at; i += emulated() ? 5 : 1)
            fork_at(m, at[i], (int)i % 2);
        assert_int_equal(m->sequence_bytes, 0);
        waste_model_close(m);
    }
}

static void fork_shares_full_blocks(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    waste_seq *s = open_seq(m), *f;
    uint64_t alone, both;
    int i;

    (void)state;
    go_on(s, 0, 130, NULL);
    alone = m->sequence_bytes;
    assert_int_equal(alone, waste_sequence_bytes(s->config, s->kv, 130));
    assert_int_equal(waste_seq_fork(&f, s, NULL), WASTE_OK);
    both = m->sequence_bytes;
    assert_int_equal(both - alone, waste_sequence_fork_bytes(s));
    assert_true(both - alone < alone);
    for (i = 0; i < MODEL_LAYERS; i++) {
        if (s->config->is_kda[i]) continue;
        assert_ptr_equal(f->layer[i].block[0], s->layer[i].block[0]);
        assert_ptr_equal(f->layer[i].block[1], s->layer[i].block[1]);
        assert_ptr_not_equal(f->layer[i].block[2], s->layer[i].block[2]);
    }
    waste_seq_free(s); /* what they shared is still there, and counted */
    assert_int_equal(m->sequence_bytes, waste_sequence_bytes(f->config, f->kv, 130));
    waste_seq_free(f);
    assert_int_equal(m->sequence_bytes, 0);
    waste_model_close(m);
}

/* What goes in is rounded to the nearest binary16, never to an infinity; what came out
 * goes in and out again unchanged, at any alignment. */
static void latents_are_kept_as_asked(void **state)
{
    waste_model *m[2] = {open_model(&files[MODEL_PLAIN], WASTE_PRECISION_FAST),
                         open_as(&files[MODEL_PLAIN], WASTE_PRECISION_FAST, WASTE_KV_F16)};
    const waste_config *c = &m[0]->container->config;
    const size_t n = waste_sequence_latent_floats(c);
    float *x = malloc(3 * n * sizeof *x), *y = malloc(3 * n * sizeof *y);
    char *bytes = malloc(3 * n * sizeof *x + 1);
    const float odd[4] = {1e-7f, 70000, -3e38f, -INFINITY};
    uint64_t taken[2];
    int kv, layer = 0;
    size_t i;

    (void)state;
    while (c->is_kda[layer]) layer++;
    for (kv = 0; kv < 2; kv++) {
        waste_seq *s = open_seq(m[kv]);

        for (i = 0; i < 3 * n; i++) x[i] = i < 4 ? odd[i] : (float)i * 0.37f - 7.3f;
        assert_int_equal(waste_model_reserve(s, 66, NULL), WASTE_OK);
        taken[kv] = m[kv]->sequence_bytes - waste_sequence_bytes(c, s->kv, 0);
        waste_sequence_put_latents(s, layer, 63, 66, x); /* over the edge of a block */
        waste_sequence_get_latents(s, layer, 63, 66, bytes + 1);
        memcpy(y, bytes + 1, 3 * n * sizeof *y);
        for (i = 0; i < 3 * n; i++) {
            float want = kv ? waste_f16_to_f32(waste_f32_to_f16(x[i])) : x[i];

            if (kv && (i == 1 || i == 2)) want = i == 1 ? 65504 : -65504;
            assert_memory_equal(&y[i], &want, sizeof want);
        }
        waste_sequence_put_latents(s, layer, 0, 3, bytes + 1);
        waste_sequence_get_latents(s, layer, 0, 3, x);
        assert_memory_equal(x, y, 3 * n * sizeof *x);
        waste_seq_free(s);
    }
    for (kv = 0; kv < 2; kv++) waste_model_close(m[kv]);
    assert_true(taken[1] < taken[0] * 6 / 10);
    free(x);
    free(y);
    free(bytes);
}

static void fork_without_memory_changes_nothing(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    waste_seq *s = open_seq(m), *f = NULL;
    const uint64_t room = m->plan.sequences;
    waste_error e = {0};
    uint64_t before, held;
    int n;

    (void)state;
    go_on(s, 0, 100, NULL);
    before = m->sequence_bytes;
    held = waste_mem_used();
    for (n = 1; !f && n < 50; n++) {
        waste_mem_fail_at((uint64_t)n, 0);
        if (waste_seq_fork(&f, s, NULL)) {
            assert_null(f);
            assert_int_equal(m->sequence_bytes, before);
            assert_int_equal(waste_mem_used(), held);
        }
    }
    waste_mem_fail_at(0, 0);
    assert_true(n > 3 && n < 50);
    waste_seq_free(f);

    m->plan.sequences = before;
    assert_int_equal(waste_seq_fork(&f, s, &e), WASTE_RAM_BUDGET);
    assert_non_null(strstr(e.text, "for sequences"));
    m->plan.sequences = room;
    s->broken = 1;
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_seq_fork(&f, s, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "broken"));
    waste_seq_free(s);
    waste_model_close(m);
}

/* ---- generations ---------------------------------------------------------------- */

/* Tokens of a greedy reply; with a sequence, only what it lacks is computed. */
static void reply(waste_model *m, const waste_prompt *p, int32_t *token, double *logprob, int n)
{
    waste_gen_params params;
    waste_gen_token t;
    waste_error e = {0};
    waste_usage u;
    waste_gen *g;
    int i;

    waste_gen_params_init(&params);
    params.max_tokens = n;
    params.repetition_penalty = 1.3;
    if (waste_gen_open(&g, m, p, &params, &e)) fail_msg("%s", e.text);
    for (i = 0; i < n; i++) {
        if (waste_gen_next(g, &t, &e)) fail_msg("%s", e.text);
        token[i] = t.token;
        logprob[i] = t.logprob;
    }
    waste_gen_usage(g, &u);
    assert_int_equal(u.prompt_tokens, p->n_before + p->n_tokens);
    waste_gen_close(g);
}

static void generation_goes_on_with_a_sequence(void **state)
{
    enum { ALL = 90, HALF = 70, DONE = 65, N = 6 };
    int32_t ids[ALL], got[N], want[N];
    double p[N], q[N];
    waste_error e = {0};
    int k;

    (void)state;
    ids_of(ids, 0, ALL);
    for (k = 0; k < 2; k++) { /* with experts */
        waste_model *m = open_model(&files[k], WASTE_PRECISION_FAST);
        waste_prompt whole = {.tokens = ids, .n_tokens = ALL}, rest = whole;
        waste_gen_params params;
        waste_seq *s = open_seq(m);
        waste_gen *g;

        reply(m, &whole, want, q, N);
        go_on(s, 0, DONE, NULL);
        rest.before = ids;
        rest.n_before = HALF;
        rest.tokens = ids + HALF;
        rest.n_tokens = ALL - HALF;
        rest.seq = s;
        reply(m, &rest, got, p, N);
        assert_memory_equal(got, want, sizeof got);
        assert_memory_equal(p, q, sizeof p);
        assert_int_equal(waste_seq_length(s), ALL + N - 1);

        waste_gen_params_init(&params);
        rest.n_before = 5;
        assert_int_equal(waste_gen_open(&g, m, &rest, &params, &e), WASTE_ARG);
        assert_non_null(strstr(e.text, "95 tokens, 5 are said to be before"));
        memset(&e, 0, sizeof e);
        waste_seq_free(s);
        rest.seq = NULL; /* then all of it is computed */
        rest.n_before = HALF;
        reply(m, &rest, got, p, N);
        assert_memory_equal(p, q, sizeof p);
        waste_model_close(m);
    }
}

/* ---- rest -------------------------------------------------------------------------- */

static void tokens_decide_who_wakes(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    waste_seq *s = open_seq(m), *t, *u;
    float got[VOCAB], want[VOCAB];
    int32_t ids[LONG];

    (void)state;
    ids_of(ids, 0, LONG);
    go_on(s, 0, 70, NULL);
    waste_seq_rest(s, ids, 1);
    assert_null(waste_seq_wake(m, ids, 69, 1)); /* it cannot go back */
    ids[69] ^= 1;
    assert_null(waste_seq_wake(m, ids, 100, 1));
    ids[69] ^= 1;
    t = waste_seq_wake(m, ids, 100, 2); /* somebody else's: a fork */
    assert_non_null(t);
    assert_ptr_not_equal(t, s);
    assert_int_equal(waste_seq_length(t), 70);
    u = waste_seq_wake(m, ids, 70, 1);
    assert_ptr_equal(u, s);
    assert_null(waste_seq_wake(m, ids, 100, 1)); /* awake */
    go_on(t, 1, 20, got);
    go_on(u, 1, 20, want);
    assert_memory_equal(got, want, sizeof got);
    waste_seq_free(t);
    waste_seq_free(u);
    assert_int_equal(m->sequence_bytes, 0);
    waste_model_close(m);
}

static void owner_keeps_one_and_the_longest_fits(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    waste_seq *s = open_seq(m), *f;
    int32_t ids[LONG];
    uint64_t one;

    (void)state;
    ids_of(ids, 0, LONG);
    go_on(s, 0, 10, NULL);
    assert_int_equal(waste_seq_fork(&f, s, NULL), WASTE_OK);
    waste_seq_rest(s, ids, 1);
    one = m->sequence_bytes;
    go_on(f, 0, 10, NULL);
    waste_seq_rest(f, ids, 2);
    s = waste_seq_wake(m, ids, LONG, 1);
    assert_int_equal(waste_seq_length(s), 20);
    waste_seq_rest(s, ids, 1); /* in the place of the shorter */
    f = waste_seq_wake(m, ids, LONG, 2);
    waste_seq_free(f);
    assert_true(m->sequence_bytes < 2 * one);
    s = waste_seq_wake(m, ids, LONG, 1);
    assert_int_equal(waste_seq_length(s), 20);
    s->broken = 1;
    waste_seq_rest(s, ids, 1); /* good for nothing */
    assert_null(waste_seq_wake(m, ids, LONG, 1));
    assert_int_equal(m->sequence_bytes, 0);
    waste_seq_rest(NULL, NULL, 1);
    waste_model_close(m);
}

static void resting_ones_make_room_oldest_first(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    waste_seq *s;
    int32_t ids[LONG];
    int who;

    (void)state;
    for (who = 1; who < 4; who++) {
        s = open_seq(m);
        go_on(s, who, 10, NULL);
        ids_of(ids, who, 10);
        waste_seq_rest(s, ids, (uint64_t)who);
    }
    m->plan.sequences = m->sequence_bytes;
    s = open_seq(m); /* needs room */
    ids_of(ids, 1, 10);
    assert_null(waste_seq_wake(m, ids, 10, 1));
    ids_of(ids, 3, 10);
    waste_seq_free(s);
    s = waste_seq_wake(m, ids, 10, 3);
    assert_non_null(s);
    waste_seq_free(s);
    waste_model_close(m); /* with one that rests */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_equals_a_run_of_its_own),
        cmocka_unit_test(fork_shares_full_blocks),
        cmocka_unit_test(latents_are_kept_as_asked),
        cmocka_unit_test(fork_without_memory_changes_nothing),
        cmocka_unit_test(generation_goes_on_with_a_sequence),
        cmocka_unit_test(tokens_decide_who_wakes),
        cmocka_unit_test(owner_keeps_one_and_the_longest_fits),
        cmocka_unit_test(resting_ones_make_room_oldest_first),
    };

    emulated_say("one model of three, cut at fewer places");
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
