/* Sequences as parts, their checks, and the model's identity. */
#include "conversations.h"
#include "emulated.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_equals_computed),
        cmocka_unit_test(any_damaged_byte_is_noticed),
        cmocka_unit_test(another_model_is_noticed),
        cmocka_unit_test(incomplete_and_misplaced_parts_are_refused),
        cmocka_unit_test(loading_without_memory_leaves_nothing),
        cmocka_unit_test(parts_of_the_largest_model_fit_rows),
        cmocka_unit_test(identity_tells_models_apart),
        cmocka_unit_test(hash_does_not_depend_on_pieces),
    };

    emulated_say("one model of three, cut at fewer places");
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
