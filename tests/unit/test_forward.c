/* The forward pass over whole small models: no grouping of rows, chunk size or
 * cache changes a bit; sequences are independent; shapes are held to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "emulated.h"
#include "internal.h"
#include "model/forward.h"
#include "model_files.h"

enum { LENGTH = 150, VOCAB = MODEL_VOCAB }; /* three chunks, three latent blocks */

static waste_model *open_as(const model_files *f, waste_kv kv)
{
    waste_model_options o = {.context = LENGTH, .verify = 1, .kv = kv};
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

static waste_model *open_model(const model_files *f)
{
    return open_as(f, WASTE_KV_F32);
}

static waste_seq *open_seq(waste_model *m)
{
    waste_seq *s;

    assert_int_equal(waste_seq_new(&s, m, NULL), WASTE_OK);
    return s;
}

static int32_t token(int i)
{
    return (i * 17 + i / 7) % VOCAB;
}

static void step(waste_model *m, const waste_row *rows, size_t n)
{
    waste_error e = {0};

    if (waste_step(m, rows, n, NULL, NULL, &e)) fail_msg("%s", e.text);
}

/* Logits of every position, `by` rows to a step; 0: all in one. */
static void run(waste_model *m, float *logits, int by)
{
    waste_seq *s = open_seq(m);
    waste_row rows[LENGTH];
    int i, n;

    for (i = 0; i < LENGTH; i += n) {
        for (n = 0; i + n < LENGTH && (!by || n < by); n++)
            rows[n] = (waste_row){s, token(i + n), logits + (i + n) * VOCAB};
        step(m, rows, (size_t)n);
    }
    assert_int_equal(waste_seq_length(s), LENGTH);
    waste_seq_free(s);
}

/* Among the rows of two other sequences, in chunks of `chunk`. */
static void run_mixed(waste_model *m, float *logits, int chunk)
{
    waste_seq *s[3] = {open_seq(m), open_seq(m), open_seq(m)};
    waste_scratch *own = m->scratch;
    waste_row rows[3 * LENGTH];
    int i, n = 0;

    assert_int_equal(
        waste_scratch_open(&m->scratch, &m->container->config, chunk, m->threads, NULL), WASTE_OK);
    for (i = 0; i < LENGTH; i++) {
        if (i % 3) rows[n++] = (waste_row){s[1], token(LENGTH - i), NULL};
        rows[n++] = (waste_row){s[0], token(i), logits + i * VOCAB};
        if (i % 5 == 0) rows[n++] = (waste_row){s[2], token(3 * i + 1), NULL};
    }
    step(m, rows, (size_t)n);
    waste_scratch_close(m->scratch);
    m->scratch = own;
    for (i = 0; i < 3; i++) waste_seq_free(s[i]);
}

/* Under an emulator the model of MLA alone has f16, those with KDA have f32. */
static int left_out(model_kind kind, waste_kv kv)
{
    return emulated() && (kind == MODEL_PLAIN) != (kv == WASTE_KV_F16);
}

static void check_grouping(waste_kv kv)
{
    static const model_kind kinds[] = {MODEL_K3, MODEL_PLAIN, MODEL_KDA};
    const size_t bytes = LENGTH * VOCAB * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    uint64_t before = waste_mem_used();
    model_files f;
    waste_model *m;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (left_out(kinds[i], kv)) continue;
        model_write(&f, kinds[i]);
        m = open_as(&f, kv);
        run(m, want, 0);
        for (int j = 0; j < LENGTH * VOCAB; j++) assert_true(want[j] > -1e6f && want[j] < 1e6f);
        run(m, got, 1);
        assert_memory_equal(got, want, bytes);
        run(m, got, 13);
        assert_memory_equal(got, want, bytes);
        run_mixed(m, got, 64);
        assert_memory_equal(got, want, bytes);
        run_mixed(m, got, 7);
        assert_memory_equal(got, want, bytes);
        run_mixed(m, got, 512);
        assert_memory_equal(got, want, bytes);
        if (m->cache) { /* one slot: every visit reads */
            waste_cache_close(m->cache);
            assert_int_equal(waste_cache_open(&m->cache, m->banks, 1, 0, NULL), WASTE_OK);
            run(m, got, 0);
            assert_memory_equal(got, want, bytes);
        }
        waste_model_close(m);
        model_remove(&f);
        assert_int_equal(waste_mem_used(), before);
    }
    free(want);
    free(got);
}

static void grouping_changes_no_bit(void **state)
{
    (void)state;
    check_grouping(WASTE_KV_F32);
    check_grouping(WASTE_KV_F16);
}

/* A budget decides how many rows go together, and thereby which forms of the kernels are
 * in use; the bits of each table of kernels are its own. */
static void no_budget_changes_a_bit(void **state)
{
#if defined(__aarch64__)
    static const char *const kernels[] = {"plain", "neon"};
#else
    static const char *const kernels[] = {"plain", "avx2", "avx512bw", "avx512"};
#endif
    const size_t bytes = LENGTH * VOCAB * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    (void)state;

    for (size_t i = 0; i < 2 * (sizeof kernels / sizeof *kernels); i++) {
        waste_model_options o = {.context = LENGTH, .kernels = kernels[i / 2]};
        model_files f;
        waste_model *m;
        waste_kernels k;

        if (!waste_kernels_named(&k, kernels[i / 2], waste_cpu_features())) {
            print_message("SKIP: no kernels \"%s\" for this CPU, or not in this build\n",
                          kernels[i / 2]);
            continue;
        }
        model_write(&f, i % 2 ? MODEL_K3 : MODEL_PLAIN);
        assert_int_equal(waste_model_open(&m, f.dir, &o, NULL), WASTE_OK);
        o.budget = m->plan.floor;
        waste_model_close(m);
        assert_int_equal(waste_model_open(&m, f.dir, &o, NULL), WASTE_OK);
        assert_int_equal(m->scratch->rows, 64);
        run(m, want, 0);
        for (int j = 0, rows = 128; j < WASTE_PLAN_CHUNKS; j++, rows *= 2) {
            o.budget = m->plan.floor + 10 * m->plan.more[j] + m->plan.records * m->plan.slot;
            waste_model_close(m);
            assert_int_equal(waste_model_open(&m, f.dir, &o, NULL), WASTE_OK);
            assert_int_equal(m->scratch->rows, rows);
            run(m, got, 0);
            assert_memory_equal(got, want, bytes);
            run(m, got, 100);
            assert_memory_equal(got, want, bytes);
        }
        waste_model_close(m);
        model_remove(&f);
    }
    free(want);
    free(got);
}

static void history_and_position_matter(void **state)
{
    float a[VOCAB], b[VOCAB], c[VOCAB];
    model_files f;
    waste_model *m;
    waste_seq *s, *t;
    (void)state;

    model_write(&f, MODEL_PLAIN);
    m = open_model(&f);
    s = open_seq(m);
    t = open_seq(m);
    waste_row rows[] = {{s, 1, a}, {s, 2, b}, {t, 2, c}};
    step(m, rows, 3);
    assert_memory_not_equal(b, c, sizeof b);
    waste_row again[] = {{t, 2, a}};
    step(m, again, 1); /* the same token one position on */
    assert_memory_not_equal(a, c, sizeof a);
    waste_seq_free(s);
    waste_seq_free(t);
    waste_model_close(m);
    model_remove(&f);
}

static void refused(model_kind kind, const char *skip, const char *cut, const char *said)
{
    uint64_t before = waste_mem_used();
    waste_error e = {0};
    waste_model *m;
    model_files f;

    model_write_but(&f, kind, skip, cut);
    assert_int_equal(waste_model_open(&m, f.dir, NULL, &e), WASTE_FORMAT);
    assert_null(m);
    if (!strstr(e.text, said)) fail_msg("%s", e.text);
    assert_int_equal(waste_mem_used(), before);
    model_remove(&f);
}

static void every_tensor_is_there_and_of_its_shape(void **state)
{
    static const char *const k3[] = {
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.norm.weight",
        "model.output_attn_res_proj.weight",
        "model.layers.0.self_attn.q_conv1d.weight",
        "model.layers.0.self_attn.dt_bias",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.self_attn.q_b_proj.weight",
        "model.layers.1.self_attn.kv_b_proj.weight",
        "model.layers.1.self_attn.g_proj.weight",
        "model.layers.2.self_attn.g_proj.weight",
        "model.layers.2.mlp_res_norm.weight",
        "model.layers.3.block_sparse_moe.gate.weight",
        "model.layers.3.block_sparse_moe.routed_expert_norm.weight",
        "model.layers.3.block_sparse_moe.shared_experts.up_proj.weight"};
    (void)state;

    for (size_t i = 0; i < sizeof k3 / sizeof *k3; i++) {
        refused(MODEL_K3, k3[i], NULL, k3[i]);
        refused(MODEL_K3, NULL, k3[i], k3[i]);
    }
    refused(MODEL_PLAIN, "model.layers.0.self_attn.g_b_proj.weight", NULL, "g_b_proj");
    refused(MODEL_PLAIN, NULL, "model.layers.0.self_attn.A_log", "A_log");
    refused(MODEL_PLAIN, NULL, "model.layers.3.self_attn.q_proj.weight", "q_proj");
}

static void the_routing_bias_is_optional(void **state)
{
    model_files f;
    waste_model *m;
    (void)state;

    model_write_but(&f, MODEL_K3, "model.layers.2.block_sparse_moe.gate.e_score_correction_bias",
                    NULL);
    m = open_model(&f);
    assert_null(m->weights->layer[2].router_bias);
    assert_non_null(m->weights->layer[1].router_bias);
    waste_model_close(m);
    model_remove(&f);
}

/* ---- streaming ------------------------------------------------------------ */

static waste_model *open_with(const model_files *f, int lookahead, int io_threads)
{
    const waste_model_options o = {
        .context = LENGTH, .lookahead = lookahead, .io_threads = io_threads};
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

static waste_model_stats stats_of(waste_model *m)
{
    waste_model_stats s;

    waste_model_stats_get(m, &s);
    return s;
}

static void lookahead_reads_ahead_and_changes_no_bit(void **state)
{
    static const int widths[] = {-1, 1, 6, 64};
    const size_t bytes = LENGTH * VOCAB * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    model_files f;
    waste_model *m;
    (void)state;

    model_write(&f, MODEL_K3);
    for (size_t i = 0; i < 4; i += emulated() ? 2 : 1) {
        waste_model_stats s;

        m = open_with(&f, widths[i], 0);
        waste_cache_close(m->cache);
        assert_int_equal(waste_cache_open(&m->cache, m->banks, 4, 2, NULL), WASTE_OK);
        run(m, i ? got : want, 1);
        if (i) assert_memory_equal(got, want, bytes);
        s = stats_of(m);
        assert_int_equal(s.lookahead, widths[i] < 0 ? 0 : widths[i]);
        assert_int_equal(s.guesses > 0, widths[i] > 0);
        assert_true(s.guesses_used <= s.guesses);
        assert_true(s.bytes_read >= 4096 * s.misses);
        run(m, got, 0); /* chunks of many rows, which want more than there are slots */
        assert_memory_equal(got, want, bytes);
        waste_model_close(m);
    }
    model_remove(&f);
    free(want);
    free(got);
}

/* Two of six experts for each of 50 rows: whichever is likely is so for several. */
static void rows_of_a_prompt_guess_together(void **state)
{
    const size_t bytes = LENGTH * VOCAB * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    model_files f;
    waste_model *m;
    (void)state;

    model_write(&f, MODEL_K3);
    for (int i = 0; i < 3; i++) {
        waste_model_stats s;

        m = open_with(&f, i - 1, 0); /* none, the default, 1 */
        run(m, i ? got : want, 50);
        if (i) assert_memory_equal(got, want, bytes);
        s = stats_of(m);
        assert_int_equal(s.guesses > 0, i > 0);
        assert_true(s.guesses_used <= s.guesses);
        if (i == 2)
            assert_true(s.guesses <= 4 * (MODEL_LAYERS - 1)); /* all is there after a chunk */
        waste_model_close(m);
    }
    model_remove(&f);
    free(want);
    free(got);
}

/* What the disk does in the tests below. */
static atomic_int hanging, failing;

static waste_status bad_disk(void *ctx, int layer, int expert, waste_error *err)
{
    const struct timespec ms = {0, 1000000};
    (void)ctx;

    for (int i = 0; i < 2000 && atomic_load(&hanging); i++) nanosleep(&ms, NULL);
    if (!atomic_load(&failing)) return WASTE_OK;
    return waste_fail(err, WASTE_IO, "the disk does not give %d of %d", expert, layer);
}

static int after_50_ms(void *ctx)
{
    return waste_clock_ns() - *(uint64_t *)ctx > 50000000;
}

static void a_hanging_read_does_not_delay_an_interrupt(void **state)
{
    uint64_t start;
    const waste_cancel cancel = {after_50_ms, &start};
    float logits[VOCAB], again[VOCAB];
    waste_error e = {0};
    model_files f;
    waste_model *m;
    waste_seq *s, *t;
    (void)state;

    model_write(&f, MODEL_K3);
    m = open_with(&f, 0, 0);
    s = open_seq(m);
    t = open_seq(m);
    waste_banks_fault(m->banks, bad_disk, NULL);
    atomic_store(&hanging, 1);
    waste_row row = {s, 5, logits};
    start = waste_clock_ns();
    assert_int_equal(waste_step(m, &row, 1, &cancel, NULL, &e), WASTE_CANCELLED);
    assert_true(waste_clock_ns() - start < 250000000);
    atomic_store(&hanging, 0);
    row.seq = t; /* the model is as good as before */
    step(m, &row, 1);
    waste_seq_free(s);
    waste_seq_free(t);
    waste_model_close(m);

    m = open_with(&f, 0, 0);
    s = open_seq(m);
    waste_row same = {s, 5, again};
    step(m, &same, 1);
    assert_memory_equal(again, logits, sizeof again);
    waste_seq_free(s);
    waste_model_close(m);
    model_remove(&f);
}

static void a_failing_read_breaks_the_sequence_alone(void **state)
{
    static const int threads[] = {0, 1, 2, 8};
    float logits[VOCAB];
    model_files f;
    (void)state;

    model_write(&f, MODEL_K3);
    for (size_t i = 0; i < 4; i++) {
        const uint64_t before = waste_mem_used();
        waste_model *m = open_with(&f, 0, threads[i]);
        waste_seq *s = open_seq(m), *t = open_seq(m);
        waste_row row = {s, 5, logits};
        waste_error e = {0};

        waste_banks_fault(m->banks, bad_disk, NULL);
        atomic_store(&failing, 1);
        assert_int_equal(waste_step(m, &row, 1, NULL, NULL, &e), WASTE_IO);
        assert_non_null(strstr(e.text, "layer 1, expert"));
        assert_non_null(strstr(e.text, "the disk does not give"));
        atomic_store(&failing, 0);
        assert_int_equal(waste_step(m, &row, 1, NULL, NULL, NULL), WASTE_ARG);
        row.seq = t;
        step(m, &row, 1);
        waste_seq_free(s);
        waste_seq_free(t);
        waste_model_close(m);
        assert_int_equal(waste_mem_used(), before);
    }
    model_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouping_changes_no_bit),
        cmocka_unit_test(no_budget_changes_a_bit),
        cmocka_unit_test(history_and_position_matter),
        cmocka_unit_test(every_tensor_is_there_and_of_its_shape),
        cmocka_unit_test(the_routing_bias_is_optional),
        cmocka_unit_test(lookahead_reads_ahead_and_changes_no_bit),
        cmocka_unit_test(rows_of_a_prompt_guess_together),
        cmocka_unit_test(a_hanging_read_does_not_delay_an_interrupt),
        cmocka_unit_test(a_failing_read_breaks_the_sequence_alone),
    };
    emulated_say("fewer combinations of models, latents and lookahead");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
