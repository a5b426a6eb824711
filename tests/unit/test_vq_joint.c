/* convert/vq_joint and vq_choice: training, and which books a sample gets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/vq_books.h"
#include "convert/vq_choice.h"
#include "convert/vq_joint.h"
#include "emulated.h"
#include "kernels/quant.h"
#include "lib/weights.h"

static const waste_quant vq3r = {3, 8, 256, 64, 8, 3}, vq4p = {4, 8, 64, 64, 6, 3},
                         vq2r = {2, 8, 256, 64, 8, 2};

/* n vectors of rows with RMS 1. */
static float *sample(weights_kind kind, size_t n, uint64_t seed)
{
    const int64_t cols = 512, rows = (int64_t)n * 8 / cols;
    float *w = weights_make(kind, rows, cols, seed);
    int64_t r;

    for (r = 0; r < rows; r++)
        waste_vq_normalise(w + r * cols, cols, waste_vq_row_rms(w + r * cols, cols), w + r * cols);
    return w;
}

static waste_vq_team team_of(const waste_quant *q, int threads)
{
    waste_vq_team t;
    waste_error err = {0};

    assert_int_equal(waste_vq_team_init(&t, q, threads, NULL, &err), WASTE_OK);
    return t;
}

static double error_of(const waste_vq_books *b, const float *x, size_t n, waste_vq_team *t)
{
    waste_error err = {0};
    double e = 0;

    assert_int_equal(waste_vq_joint_error(b, x, n, 16, t, &e, NULL, &err), WASTE_OK);
    return e;
}

static void universal_books_have_the_error_they_claim(void **state)
{
    const waste_quant *q[] = {&vq3r, &vq4p, &vq2r};
    const waste_quant none = {3, 8, 64, 64, 8, 3};
    const size_t n = 16384;
    float *x = sample(WEIGHTS_NORMAL, n, 1);
    waste_vq_books *b = malloc(sizeof *b);
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        waste_vq_team t = team_of(q[i], 2);
        double e;
        assert_int_equal(waste_vq_books_universal(b, q[i]), 0);
        e = error_of(b, x, n, &t) / waste_vq_books_normal_error(q[i]);
        if (e < 0.993 || e > 1.007) fail_msg("%d stages: %g of the error", q[i]->stages, e);
        waste_vq_team_clear(&t);
    }
    assert_int_not_equal(waste_vq_books_universal(b, &none), 0);
    free(x);
    free(b);
}

static void books_are_f16_and_centred(const waste_vq_books *b)
{
    int s, d, k;

    for (s = 0; s < b->stages; s++)
        for (d = 0; d < 8; d++) {
            double mean = 0;
            for (k = 0; k < b->entries; k++) {
                float v = b->book[s].part[d][k];
                assert_true(waste_f16_to_f32(waste_f32_to_f16(v)) == v);
                mean += (double)v;
            }
            if (s) assert_true(fabs(mean / b->entries) < 1e-3);
        }
}

static void training_beats_where_it_started(void **state)
{
    const waste_vq_schedule how = {12, 8, 12000};
    const size_t n = WEIGHTS_SLOW ? 8192 : 16384;
    float *x = sample(WEIGHTS_T6, n, 1), *unseen = sample(WEIGHTS_T6, n / 2, 2),
          *copy = malloc(n * 32);
    waste_vq_books *b = malloc(sizeof *b);
    waste_error err = {0};
    const waste_quant *q[] = {&vq3r, &vq4p};
    int i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    for (i = 0; i < 2; i++) {
        waste_vq_team t = team_of(q[i], 2);
        waste_vq_random r = {1};
        double before, after;
        memcpy(copy, x, n * 32);
        assert_int_equal(waste_vq_train(b, q[i], copy, n, &r, NULL, &err), WASTE_OK);
        before = error_of(b, unseen, n / 2, &t);
        assert_int_equal(waste_vq_joint_train(b, x, n, &how, &r, &t, NULL, &err), WASTE_OK);
        after = error_of(b, unseen, n / 2, &t);
        if (after > 0.985 * before) fail_msg("%g, before %g", after, before);
        books_are_f16_and_centred(b);
        waste_vq_team_clear(&t);
    }
    free(x);
    free(unseen);
    free(copy);
    free(b);
}

static void threads_do_not_change_the_books(void **state)
{
    const waste_vq_schedule how = {4, 8, 6000};
    const size_t n = 8192;
    float *x = sample(WEIGHTS_COLUMNS, n, 1);
    waste_vq_books *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    waste_error err = {0};
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        waste_vq_team t = team_of(&vq4p, i ? 5 : 1);
        waste_vq_random r = {1};
        waste_vq_books_universal(i ? b : a, &vq4p);
        assert_int_equal(waste_vq_joint_train(i ? b : a, x, n, &how, &r, &t, NULL, &err), WASTE_OK);
        waste_vq_team_clear(&t);
    }
    assert_memory_equal(a, b, sizeof *a);
    free(x);
    free(a);
    free(b);
}

/* Entries that no vector uses, fewer vectors than entries, one vector many times. */
static void trains_on_almost_nothing(void **state)
{
    const waste_vq_schedule how = {3, 4, 1000};
    float x[64 * 8];
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_team t = team_of(&vq3r, 2);
    waste_vq_random r = {1};
    waste_error err = {0};
    int i, d;
    (void)state;
    for (i = 0; i < 64 * 8; i++) x[i] = i < 256 ? 0 : 1.25f;
    waste_vq_books_universal(b, &vq3r);
    assert_int_equal(waste_vq_joint_train(b, x, 64, &how, &r, &t, NULL, &err), WASTE_OK);
    for (i = 0; i < 256; i++)
        for (d = 0; d < 8; d++) assert_true(fabsf(b->book[1].part[d][i]) < 10);
    assert_true(error_of(b, x, 64, &t) < 0.01);
    waste_vq_team_clear(&t);
    free(b);
}

static waste_vq_books *choose(const waste_quant *q, weights_kind kind, size_t n)
{
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_team t = team_of(q, 2);
    waste_vq_random r = {1};
    waste_error err = {0};
    float *x = sample(kind, n, 3);

    assert_int_equal(waste_vq_choice_make(b, q, x, n, &r, &t, NULL, &err), WASTE_OK);
    waste_vq_team_clear(&t);
    free(x);
    return b;
}

static void only_heavy_tails_get_books_of_their_own(void **state)
{
    static const struct {
        weights_kind kind;
        size_t n;
        int own;
    } want[] = {{WEIGHTS_NORMAL, 24576, 0},
                {WEIGHTS_MXFP4, 24576, 0},
                {WEIGHTS_T6, 24576, 1},
                {WEIGHTS_T6, 8192, 0}}; /* too few to learn from */
    waste_vq_books *universal = malloc(sizeof *universal), *b;
    int i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    waste_vq_books_universal(universal, &vq4p);
    for (i = 0; i < 4; i++) {
        if (WEIGHTS_SLOW && want[i].own) continue;
        b = choose(&vq4p, want[i].kind, want[i].n);
        assert_int_equal(memcmp(b, universal, sizeof *b) != 0, want[i].own);
        free(b);
    }
    free(universal);
}

static int at_fifth(void *ctx)
{
    return ++*(int *)ctx >= 5;
}

static void stops_when_asked_and_when_memory_is_out(void **state)
{
    const size_t n = 20480;
    float *x = sample(WEIGHTS_T6, n, 1);
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_team t = team_of(&vq4p, 2);
    uint64_t before = waste_mem_used(), k;
    int asked = 0;
    waste_cancel cancel = {at_fifth, &asked};
    waste_vq_random r = {1};
    waste_error err = {0};
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    assert_int_equal(waste_vq_choice_make(b, &vq4p, x, n, &r, &t, &cancel, &err), WASTE_CANCELLED);
    assert_int_equal(waste_mem_used(), before);
    for (k = 1; k <= 6; k++) {
        memset(&err, 0, sizeof err);
        waste_mem_fail_at(k, 1);
        assert_int_equal(waste_vq_choice_make(b, &vq4p, x, n, &r, &t, NULL, &err), WASTE_NOMEM);
        waste_mem_fail_at(0, 0);
        assert_int_equal(waste_mem_used(), before);
    }
    waste_vq_team_clear(&t);
    for (k = 1; k <= 6; k++) {
        memset(&err, 0, sizeof err);
        waste_mem_fail_at(k, 1);
        assert_int_equal(waste_vq_team_init(&t, &vq4p, 2, NULL, &err), WASTE_NOMEM);
        waste_mem_fail_at(0, 0);
        waste_vq_team_clear(&t);
    }
    free(x);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(universal_books_have_the_error_they_claim),
        cmocka_unit_test(training_beats_where_it_started),
        cmocka_unit_test(threads_do_not_change_the_books),
        cmocka_unit_test(trains_on_almost_nothing),
        cmocka_unit_test(only_heavy_tails_get_books_of_their_own),
        cmocka_unit_test(stops_when_asked_and_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
