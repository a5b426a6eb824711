/* Sequences beyond one call: forks, parts, checks, identity, and those that rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include "internal.h"
#include "model/state.h"
#include "model_files.h"

enum { VOCAB = MODEL_VOCAB, LONG = 150 };

static model_files files[3];

static int write_models(void **state)
{
    int k;

    (void)state;
    for (k = 0; k < 3; k++) model_write(&files[k], (model_kind)k);
    return 0;
}

static int remove_models(void **state)
{
    int k;

    (void)state;
    for (k = 0; k < 3; k++) model_remove(&files[k]);
    return 0;
}

static waste_model *open_as(const model_files *f, waste_precision precision, waste_kv kv)
{
    waste_model_options o = {.context = 256, .precision = precision, .kv = kv};
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

static waste_model *open_model(const model_files *f, waste_precision precision)
{
    return open_as(f, precision, WASTE_KV_F32);
}

static waste_seq *open_seq(waste_model *m)
{
    waste_seq *s;

    assert_int_equal(waste_seq_new(&s, m, NULL), WASTE_OK);
    return s;
}

/* Token number i of conversation `who`. */
static int32_t word(int who, int64_t i)
{
    return (int32_t)((i * 7 + who * 11 + i * i * 3) % VOCAB);
}

/* The next n tokens of conversation `who`; logits of the last. */
static void go_on(waste_seq *s, int who, int n, float *logits)
{
    waste_row rows[LONG];
    waste_error e = {0};
    int i;

    assert_true(n <= LONG);
    for (i = 0; i < n; i++)
        rows[i] = (waste_row){s, word(who, s->length + i), i == n - 1 ? logits : NULL};
    if (waste_step(s->model, rows, (size_t)n, NULL, NULL, &e)) fail_msg("%s", e.text);
}

static void ids_of(int32_t *ids, int who, int n)
{
    int i;

    for (i = 0; i < n; i++) ids[i] = word(who, i);
}

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

/* ---- parts ----------------------------------------------------------------------- */

typedef struct saved {
    waste_seq_part *part[3];
    size_t n[3];
    uint64_t tokens[3];
    unsigned char *data[3][64];
    uint64_t check[3][64];
} saved;

static void save_list(saved *k, int list, const waste_seq *s, int latents, int from, int to)
{
    int32_t ids[LONG * 2];
    size_t i;

    ids_of(ids, 0, to);
    k->tokens[list] = waste_tokens_hash(0, ids, (size_t)to);
    assert_int_equal(
        waste_seq_parts(&k->part[list], &k->n[list], s->model, latents, from, to, NULL), WASTE_OK);
    assert_true(k->n[list] <= 64);
    for (i = 0; i < k->n[list]; i++) {
        k->data[list][i] = malloc(k->part[list][i].bytes);
        assert_int_equal(waste_seq_save(s, &k->part[list][i], k->tokens[list], k->data[list][i],
                                        &k->check[list][i], NULL),
                         WASTE_OK);
    }
}

/* Two turns: latents of [0, cut) are written after the first, the rest later. */
static void save_twice(saved *k, waste_model *m, int cut, int end)
{
    waste_seq *s = open_seq(m);

    memset(k, 0, sizeof *k);
    go_on(s, 0, cut, NULL);
    save_list(k, 0, s, 1, 0, cut);
    go_on(s, 0, end - cut, NULL);
    save_list(k, 1, s, 1, cut, end);
    save_list(k, 2, s, 0, 0, end);
    waste_seq_free(s);
}

static void saved_clear(saved *k)
{
    size_t i;
    int list;

    for (list = 0; list < 3; list++) {
        for (i = 0; i < k->n[list]; i++) free(k->data[list][i]);
        waste_seq_parts_free(k->part[list]);
    }
}

static waste_status put(waste_seq *s, const saved *k, int list, size_t i, waste_error *e)
{
    return waste_seq_put(s, &k->part[list][i], k->tokens[list], k->data[list][i],
                         k->part[list][i].bytes, k->check[list][i], e);
}

static waste_seq *load(waste_model *m, const saved *k, int end)
{
    waste_error e = {0};
    waste_seq *s;
    size_t i;
    int list;

    if (waste_seq_load(&s, m, end, &e)) fail_msg("%s", e.text);
    for (list = 0; list < 3; list++)
        for (i = 0; i < k->n[list]; i++)
            if (put(s, k, list, i, &e)) fail_msg("%s", e.text);
    if (waste_seq_loaded(s, &e)) fail_msg("%s", e.text);
    return s;
}

static void loaded_equals_computed(void **state)
{
    static const int at[][2] = {{1, 2}, {40, 100}, {64, 128}, {65, 70}, {100, 140}};
    float got[VOCAB], want[VOCAB];
    saved kept;
    size_t i;
    int k;

    (void)state;
    for (k = 0; k < 6; k += emulated() ? 3 : 1) {
        const waste_kv kv = k < 3 ? WASTE_KV_F32 : WASTE_KV_F16;

        for (i = 0; i < sizeof at / sizeof *at; i += emulated() ? 2 : 1) {
            waste_model *m = open_as(&files[k % 3], WASTE_PRECISION_FAST, kv), *later;
            waste_seq *s = open_seq(m);

            save_twice(&kept, m, at[i][0], at[i][1]);
            go_on(s, 0, at[i][1], NULL);
            go_on(s, 1, 70, want);
            waste_seq_free(s);
            waste_model_close(m);
            later = open_as(&files[k % 3], WASTE_PRECISION_FAST, kv);
            s = load(later, &kept, at[i][1]);
            assert_int_equal(waste_seq_length(s), at[i][1]);
            assert_int_equal(later->sequence_bytes,
                             waste_sequence_bytes(s->config, s->kv, at[i][1]));
            go_on(s, 1, 70, got);
            assert_memory_equal(got, want, sizeof want);
            waste_seq_free(s);
            assert_int_equal(later->sequence_bytes, 0);
            waste_model_close(later);
            saved_clear(&kept);
        }
    }
}

static void any_damaged_byte_is_noticed(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    waste_error e = {0};
    saved k;
    waste_seq *s;
    size_t i, b;
    int list;

    (void)state;
    save_twice(&k, m, 3, 6);
    assert_int_equal(waste_seq_load(&s, m, 6, NULL), WASTE_OK);
    for (list = 0; list < 3; list++) {
        for (i = 0; i < k.n[list]; i++) {
            for (b = 0; b < k.part[list][i].bytes; b += 1 + b / 16) {
                k.data[list][i][b] ^= 1;
                assert_int_equal(put(s, &k, list, i, NULL), WASTE_FORMAT);
                k.data[list][i][b] ^= 1;
            }
        }
    }
    k.check[0][0] ^= 1;
    assert_int_equal(put(s, &k, 0, 0, &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "fails its check"));
    k.check[0][0] ^= (uint64_t)1 << 63 | 1;
    assert_int_equal(put(s, &k, 0, 0, NULL), WASTE_FORMAT);
    k.check[0][0] ^= (uint64_t)1 << 63;
    k.tokens[0] ^= 1; /* the bytes are fine, but of another conversation */
    assert_int_equal(put(s, &k, 0, 0, NULL), WASTE_FORMAT);
    k.tokens[0] ^= 1;
    k.part[0][0].from++; /* or of another place in it */
    k.part[0][0].to++;
    assert_int_equal(put(s, &k, 0, 0, NULL), WASTE_FORMAT);
    k.part[0][0].from--;
    k.part[0][0].to--;
    assert_int_equal(put(s, &k, 0, 0, NULL), WASTE_OK);
    waste_seq_free(s);
    saved_clear(&k);
    waste_model_close(m);
}

static void another_model_is_noticed(void **state)
{
    waste_model *m[3] = {open_model(&files[MODEL_K3], WASTE_PRECISION_FAST),
                         open_model(&files[MODEL_K3], WASTE_PRECISION_EXACT),
                         open_as(&files[MODEL_K3], WASTE_PRECISION_FAST, WASTE_KV_F16)};
    waste_seq *s;
    saved k;
    int i, j;

    (void)state;
    for (i = 0; i < 3; i++) {
        save_twice(&k, m[i], 3, 6);
        for (j = 0; j < 3; j++) {
            assert_int_equal(waste_seq_load(&s, m[j], 6, NULL), WASTE_OK);
            assert_int_equal(put(s, &k, 0, 0, NULL), i == j ? WASTE_OK : WASTE_FORMAT);
            assert_int_equal(put(s, &k, 2, 0, NULL), i == j ? WASTE_OK : WASTE_FORMAT);
            waste_seq_free(s);
        }
        saved_clear(&k);
    }
    for (i = 0; i < 3; i++) waste_model_close(m[i]);
}

static void incomplete_and_misplaced_parts_are_refused(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    waste_error e = {0};
    waste_seq_part p;
    waste_seq *s;
    float x;
    saved k;
    uint64_t check;

    (void)state;
    save_twice(&k, m, 3, 6);
    assert_int_equal(waste_seq_load(&s, m, 6, NULL), WASTE_OK);
    assert_int_equal(put(s, &k, 0, 0, NULL), WASTE_OK);
    assert_int_equal(waste_seq_loaded(s, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "bytes of a sequence were loaded"));
    assert_int_equal(waste_step(m, (waste_row[]){{s, 1, NULL}}, 1, NULL, NULL, NULL), WASTE_ARG);
    waste_seq_free(s);

    memset(&e, 0, sizeof e);
    assert_int_equal(waste_seq_load(&s, m, 257, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "257 positions, the context has 256"));
    assert_int_equal(waste_seq_load(&s, m, -1, NULL), WASTE_ARG);

    s = open_seq(m);
    go_on(s, 0, 6, NULL);
    p = k.part[0][0];
    assert_int_equal(waste_seq_put(s, &p, k.tokens[0], k.data[0][0], p.bytes, k.check[0][0], NULL),
                     WASTE_ARG); /* not being loaded */
    p.layer = MODEL_LAYERS;
    assert_int_equal(waste_seq_save(s, &p, 0, &x, &check, NULL), WASTE_ARG);
    p = k.part[0][0];
    p.bytes -= 4;
    assert_int_equal(waste_seq_save(s, &p, 0, &x, &check, NULL), WASTE_ARG);
    p = k.part[0][0];
    p.from = 5, p.to = 8;
    assert_int_equal(waste_seq_save(s, &p, 0, &x, &check, NULL), WASTE_ARG);
    p = k.part[2][0];
    p.block = 1;
    assert_int_equal(waste_seq_save(s, &p, 0, &x, &check, NULL), WASTE_ARG);
    p = k.part[2][0];
    p.from = p.to = 5; /* KDA layers cannot go back */
    assert_int_equal(waste_seq_save(s, &p, 0, &x, &check, NULL), WASTE_ARG);
    waste_seq_free(s);
    saved_clear(&k);
    waste_model_close(m);
}

static void loading_without_memory_leaves_nothing(void **state)
{
    waste_model *m = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    const uint64_t held = waste_mem_used();
    waste_seq *s = NULL;
    int n;

    (void)state;
    for (n = 1; !s && n < 50; n++) {
        waste_mem_fail_at((uint64_t)n, 0);
        if (waste_seq_load(&s, m, 100, NULL)) {
            assert_null(s);
            assert_int_equal(waste_mem_used(), held);
            assert_int_equal(m->sequence_bytes, 0);
        }
    }
    waste_mem_fail_at(0, 0);
    assert_non_null(s);
    waste_seq_free(s);
    waste_model_close(m);
}

static void parts_of_the_largest_model_fit_rows(void **state)
{
    const int64_t to = 20000, from = 5;
    waste_config c;
    waste_seq_part *p;
    uint64_t kda = 0, latents = 0;
    int64_t next = from;
    size_t n, i;

    (void)state;
    memset(&c, 0, sizeof c);
    c.layers = 93;
    c.n_kda = 69;
    c.n_mla = 24;
    for (i = 0; i < 69; i++) c.is_kda[i] = 1;
    c.kda_heads = 96;
    c.kda_dim = 128;
    c.taps = 4;
    c.kv_rank = 512;
    c.rope_dim = 64;
    n = waste_state_parts(&c, from, to, 3, NULL);
    assert_int_equal(n, 69 * 2 + 24 * 3);
    p = calloc(n, sizeof *p);
    waste_state_parts(&c, from, to, 3, p);
    for (i = 0; i < n; i++) {
        assert_true(p[i].bytes > 0 && p[i].bytes <= WASTE_PART_BYTES);
        assert_int_equal(waste_state_check_part(&c, &p[i], NULL), WASTE_OK);
        if (p[i].kind != WASTE_PART_LATENTS) {
            kda += p[i].bytes;
            continue;
        }
        assert_int_equal(p[i].from, p[i].block ? next : from);
        next = p[i].to;
        latents += p[i].bytes;
    }
    assert_int_equal(next, to);
    assert_int_equal(kda, 69 * (uint64_t)(6291456 + 442368));
    assert_int_equal(latents, 24 * (uint64_t)(to - from) * 2304);

    c.kda_dim = 2048; /* one S of 1.5 GiB */
    n = waste_state_parts(&c, 0, 1, 1, NULL);
    assert_int_equal(n, 69 * (96 + 1));
    free(p);
}

/* ---- identity --------------------------------------------------------------------- */

static void identity_tells_models_apart(void **state)
{
    enum { N = 5 };
    waste_identity id[N], again;
    waste_model *m[N];
    model_files twin;
    FILE *f;
    int i, j;

    (void)state;
    model_write(&twin, MODEL_K3);
    m[0] = open_model(&files[MODEL_K3], WASTE_PRECISION_FAST);
    m[1] = open_model(&twin, WASTE_PRECISION_FAST);
    assert_int_equal(waste_model_identity(m[0], &id[0], NULL), WASTE_OK);
    assert_int_equal(waste_model_identity(m[1], &id[1], NULL), WASTE_OK);
    assert_int_equal(id[0].weights, id[1].weights); /* a copy is the same model */
    waste_model_close(m[1]);

    f = model_file(&twin, "trunk.bin", "r+b");
    assert_int_equal(fseek(f, 100, SEEK_SET), 0);
    model_put(f, "x", 1);
    assert_int_equal(fclose(f), 0);
    m[1] = open_model(&twin, WASTE_PRECISION_FAST);
    m[2] = open_model(&files[MODEL_K3], WASTE_PRECISION_EXACT);
    m[3] = open_model(&files[MODEL_PLAIN], WASTE_PRECISION_FAST);
    m[4] = open_as(&files[MODEL_K3], WASTE_PRECISION_FAST, WASTE_KV_F16);
    for (i = 0; i < N; i++) {
        assert_int_equal(waste_model_identity(m[i], &id[i], NULL), WASTE_OK);
        assert_int_equal(waste_model_identity(m[i], &again, NULL), WASTE_OK);
        assert_int_equal(again.weights, id[i].weights);
        for (j = 0; j < i; j++) assert_true(id[i].weights != id[j].weights);
    }
    for (i = 0; i < N; i++) waste_model_close(m[i]);
    model_remove(&twin);
}

static void hash_does_not_depend_on_pieces(void **state)
{
    int32_t ids[10];

    (void)state;
    ids_of(ids, 3, 10);
    assert_int_equal(waste_tokens_hash(waste_tokens_hash(0, ids, 4), ids + 4, 6),
                     waste_tokens_hash(0, ids, 10));
    assert_true(waste_tokens_hash(0, ids, 9) != waste_tokens_hash(0, ids, 10));
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
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_equals_a_run_of_its_own),
        cmocka_unit_test(fork_shares_full_blocks),
        cmocka_unit_test(latents_are_kept_as_asked),
        cmocka_unit_test(fork_without_memory_changes_nothing),
        cmocka_unit_test(generation_goes_on_with_a_sequence),
        cmocka_unit_test(loaded_equals_computed),
        cmocka_unit_test(any_damaged_byte_is_noticed),
        cmocka_unit_test(another_model_is_noticed),
        cmocka_unit_test(incomplete_and_misplaced_parts_are_refused),
        cmocka_unit_test(loading_without_memory_leaves_nothing),
        cmocka_unit_test(parts_of_the_largest_model_fit_rows),
        cmocka_unit_test(identity_tells_models_apart),
        cmocka_unit_test(hash_does_not_depend_on_pieces),
        cmocka_unit_test(tokens_decide_who_wakes),
        cmocka_unit_test(owner_keeps_one_and_the_longest_fits),
        cmocka_unit_test(resting_ones_make_room_oldest_first),
    };

    emulated_say("one model of three, cut at fewer places");
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
