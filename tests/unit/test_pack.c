/* A model opened with each kernel table: which one is in force, that weights in its
 * order give what plain C gives, and that nothing of it is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "internal.h"
#include "model/pack.h"
#include "model/scratch.h"
#include "model_files.h"

enum { LENGTH = 70, VOCAB = MODEL_VOCAB };

/* The fast tables of this architecture. */
#if defined(__aarch64__)
static const char *const names[] = {"neon-dotprod", "neon"};
#else
static const char *const names[] = {"avx512", "avx512bw", "avx2"};
#endif

/* NULL when there is no such table here. */
static waste_model *open_model(const model_files *f, const char *kernels)
{
    const waste_model_options o = {.context = LENGTH, .verify = 1, .kernels = kernels};
    waste_kernels k;
    waste_error e = {0};
    waste_model *m;

    if (kernels && !waste_kernels_named(&k, kernels, waste_cpu_features())) {
        print_message("SKIP: no kernel table \"%s\" for this CPU, or not in this build\n", kernels);
        return NULL;
    }
    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

static const char *kernels_of(waste_model *m)
{
    waste_model_stats s;

    waste_model_stats_get(m, &s);
    return s.kernels;
}

static void run(waste_model *m, float *logits)
{
    waste_row rows[LENGTH];
    waste_error e = {0};
    waste_seq *s;

    assert_int_equal(waste_seq_new(&s, m, &e), WASTE_OK);
    for (int i = 0; i < LENGTH; i++)
        rows[i] = (waste_row){s, (i * 17 + i / 7) % VOCAB, logits + i * VOCAB};
    if (waste_step(m, rows, LENGTH, NULL, NULL, &e)) fail_msg("%s", e.text);
    waste_seq_free(s);
}

/* The largest difference, relative to the largest logit. */
static double distance(const float *got, const float *want)
{
    double worst = 0, largest = 0;

    for (int i = 0; i < LENGTH * VOCAB; i++) {
        const double d = fabs((double)got[i] - want[i]);

        if (!(d <= worst)) worst = d;
        if (fabs((double)want[i]) > largest) largest = fabs((double)want[i]);
    }
    return worst / largest;
}

static void every_table_gives_what_plain_c_gives(void **state)
{
    static const model_kind kinds[] = {MODEL_K3, MODEL_PLAIN, MODEL_KDA};
    static float want[LENGTH * VOCAB], got[LENGTH * VOCAB];
    const uint64_t before = waste_mem_used();
    model_files f;
    waste_model *m;
    (void)state;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        model_write(&f, kinds[i]);
        m = open_model(&f, "plain");
        assert_string_equal(kernels_of(m), "plain");
        run(m, want);
        waste_model_close(m);
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
            m = open_model(&f, names[j]);
            if (!m) continue;
            assert_string_equal(kernels_of(m), names[j]);
            run(m, got);
            /* the experts of the first are wide, and all else is small */
            assert_true(distance(got, want) < (kinds[i] == MODEL_K3 ? 2e-3 : 1e-5));
            /* all matrices of the third are too small to be rearranged */
            assert_true(memcmp(got, want, sizeof want) != 0 || kinds[i] == MODEL_KDA);
            waste_model_close(m);
        }
        assert_int_equal(waste_mem_used(), before);
        model_remove(&f);
    }
}

static void exact_is_plain_and_fast_is_the_cpus_best(void **state)
{
    waste_model_options o = {.context = LENGTH, .precision = WASTE_PRECISION_EXACT};
    waste_kernels best;
    waste_error e = {0};
    model_files f;
    waste_model *m;
    (void)state;

    model_write(&f, MODEL_PLAIN);
    waste_kernels_pick(&best, waste_cpu_features());
    m = open_model(&f, NULL);
    assert_string_equal(kernels_of(m), best.name);
    waste_model_close(m);
    assert_int_equal(waste_model_open(&m, f.dir, &o, &e), WASTE_OK);
    assert_string_equal(kernels_of(m), "plain");
    waste_model_close(m);
    o.kernels = "plain";
    assert_int_equal(waste_model_open(&m, f.dir, &o, &e), WASTE_OK);
    waste_model_close(m);
    if (best.pack_matrix) {
        o.kernels = best.name;
        assert_int_equal(waste_model_open(&m, f.dir, &o, &e), WASTE_ARG);
        assert_non_null(strstr(e.text, "precision exact"));
        memset(&e, 0, sizeof e);
    }
    o.precision = WASTE_PRECISION_FAST;
    o.kernels = "abacus";
    assert_int_equal(waste_model_open(&m, f.dir, &o, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "abacus"));
    model_remove(&f);
}

static void memory_that_runs_out_is_an_error(void **state)
{
    const waste_model_options o = {.context = LENGTH};
    const uint64_t before = waste_mem_used();
    model_files f;
    int opened = 0;
    (void)state;

    model_write(&f, MODEL_K3);
    const uint64_t with_files = waste_mem_used();
    for (uint64_t n = 1; n < 100000 && !opened; n += n / 16 + 1) {
        waste_error e = {0};
        waste_model *m;
        waste_status st;

        waste_mem_fail_at(n, 1);
        st = waste_model_open(&m, f.dir, &o, &e);
        waste_mem_fail_at(0, 0);
        opened = st == WASTE_OK;
        if (opened)
            waste_model_close(m);
        else
            assert_true(e.text[0] != 0);
        assert_int_equal(waste_mem_used(), with_files);
    }
    assert_true(opened);
    model_remove(&f);
    assert_int_equal(waste_mem_used(), before);
}

/* The packed codebooks of a layer stay below what the plan counts. */
static void the_plan_counts_the_books(void **state)
{
    static const waste_quant q[] = {
        {3, 8, 256, 64, 8, 3}, {2, 8, 256, 64, 8, 2}, {4, 8, 64, 64, 6, 3}};
    waste_kernels k;
    (void)state;

    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
            const waste_vq_geometry g = {q[i].stages, q[i].vec_dim, q[i].index_block,
                                         q[i].index_bits, q[i].vector_bytes};

            if (!waste_kernels_named(&k, names[j], waste_cpu_features())) continue;
            assert_true(3 * (k.books_bytes(&g, 4096, 4096) + 63) / 64 * 64 <=
                        waste_pack_layer_bytes(&q[i]));
            for (int64_t cols = 8; cols < 8000; cols += 200)
                assert_true(k.tables_bytes(&g, cols) <= waste_kernels_tables_most(cols));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_gives_what_plain_c_gives),
        cmocka_unit_test(exact_is_plain_and_fast_is_the_cpus_best),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
        cmocka_unit_test(the_plan_counts_the_books),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
