/* convert/vq_rows: whole rows - scales, loss, bytes - and what the encoder reaches on
 * each kind of weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "convert/vq_books.h"
#include "convert/vq_choice.h"
#include "convert/vq_rows.h"
#include "emulated.h"
#include "kernels/quant.h"
#include "lib/weights.h"
#include "store/record.h"

static const waste_quant vq3r = {3, 8, 256, 64, 8, 3}, vq4p = {4, 8, 64, 64, 6, 3};

#define ROWS 70 /* more than a block of indices, and not a multiple */
#define COLS 128

/* An encoded matrix. */
typedef struct coded {
    int64_t rows, cols;
    unsigned char *indices;
    size_t bytes;
    uint16_t *scale;
    waste_convert_loss loss;
} coded;

static coded encode(const waste_quant *q, const waste_vq_books *b, int beam,
                    const waste_vq_weights *weights, const float *w, int64_t rows, int64_t cols,
                    int threads, const char *core)
{
    coded c = {.rows = rows, .cols = cols};
    float *copy = malloc((size_t)(rows * cols) * sizeof *copy);
    waste_vq_job job = {q, b, beam, weights, copy, rows, cols, 0, NULL, NULL};
    waste_error err = {0};
    waste_vq_team team;
    waste_vq_rows *e;

    memcpy(copy, w, (size_t)(rows * cols) * sizeof *copy);
    c.bytes = (size_t)((rows + 63) / 64 * 64 * (cols / 8) * q->vector_bytes);
    c.indices = job.indices = calloc(1, c.bytes);
    c.scale = job.scale = calloc((size_t)rows, sizeof *c.scale);
    assert_int_equal(waste_vq_team_init(&team, q, threads,
                                        waste_vq_core_named(core, waste_cpu_features()), &err),
                     WASTE_OK);
    assert_int_equal(waste_vq_rows_open(&e, q, &team, rows, rows * cols, &err), WASTE_OK);
    assert_int_equal(waste_vq_rows_start(e, &job, NULL, &err), WASTE_OK);
    assert_int_equal(waste_vq_rows_finish(e, &c.loss, NULL, &err), WASTE_OK);
    waste_vq_rows_close(e);
    waste_vq_team_clear(&team);
    free(copy);
    return c;
}

static void clear(coded *c)
{
    free(c->indices);
    free(c->scale);
}

static void same(coded *a, coded *b)
{
    assert_memory_equal(a->indices, b->indices, a->bytes);
    assert_memory_equal(a->scale, b->scale, (size_t)a->rows * sizeof *a->scale);
    assert_true(a->loss.wrong == b->loss.wrong && a->loss.all == b->loss.all);
}

/* What a reader makes of it. */
static void decode_row(const coded *c, const waste_quant *q, const waste_vq_books *b, int64_t r,
                       double scale, double *to)
{
    int64_t v;
    int s, d;

    for (v = 0; v < c->cols / 8; v++) {
        const unsigned char *p = c->indices + waste_record_index_pos(q, c->cols / 8, r, v);
        uint32_t u =
            q->index_bits == 6 ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 : 0;
        for (d = 0; d < 8; d++) {
            to[v * 8 + d] = 0;
            for (s = 0; s < q->stages; s++)
                to[v * 8 + d] +=
                    (double)b->book[s].part[d][q->index_bits == 6 ? u >> 6 * s & 63 : p[s]];
            to[v * 8 + d] *= scale;
        }
    }
}

/* sum of h (w - what)^2 over a row; h NULL: ones. */
static double wrong_of_row(const coded *c, const waste_quant *q, const waste_vq_books *b,
                           const float *w, const float *h, int64_t r, uint16_t scale)
{
    double *y = malloc((size_t)c->cols * sizeof *y), sum = 0;
    int64_t i;

    decode_row(c, q, b, r, (double)waste_f16_to_f32(scale), y);
    for (i = 0; i < c->cols; i++)
        sum += (h ? (double)h[i] : 1) * pow((double)w[r * c->cols + i] - y[i], 2);
    free(y);
    return sum;
}

static double wrong_of(const coded *c, const waste_quant *q, const waste_vq_books *b,
                       const float *w, const float *h)
{
    double sum = 0;
    int64_t r;

    for (r = 0; r < c->rows; r++) sum += wrong_of_row(c, q, b, w, h, r, c->scale[r]);
    return sum;
}

static waste_vq_books *greedy_books(const waste_quant *q, const float *w, int64_t rows,
                                    int64_t cols)
{
    waste_vq_books *b = malloc(sizeof *b);
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    waste_vq_random r = {1};
    waste_error err = {0};
    int64_t i;

    for (i = 0; i < rows; i++)
        waste_vq_normalise(w + i * cols, cols, waste_vq_row_scale(w + i * cols, cols),
                           x + i * cols);
    assert_int_equal(waste_vq_train(b, q, x, (size_t)(rows * cols / 8), &r, NULL, &err), WASTE_OK);
    free(x);
    return b;
}

static waste_vq_books *universal(const waste_quant *q)
{
    waste_vq_books *b = malloc(sizeof *b);

    assert_int_equal(waste_vq_books_universal(b, q), 0);
    return b;
}

/* ---- what is stored --------------------------------------------------------------------- */

/* Row by row, with nothing but the parts that vq.h has. */
static void beam_0_is_the_greedy_encoding(void **state)
{
    const waste_quant *q[] = {&vq3r, &vq4p};
    float *w = weights_make(WEIGHTS_NORMAL, ROWS, COLS, 1), x[COLS];
    uint8_t index[COLS / 8 * 4];
    int64_t r, v;
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        waste_vq_books *b = greedy_books(q[i], w, ROWS, COLS);
        coded c = encode(q[i], b, 0, NULL, w, ROWS, COLS, 2, NULL);
        unsigned char *want = calloc(1, c.bytes);
        for (r = 0; r < ROWS; r++) {
            uint16_t s = waste_vq_row_scale(w + r * COLS, COLS);
            assert_int_equal(c.scale[r], s);
            waste_vq_normalise(w + r * COLS, COLS, s, x);
            waste_vq_encode(b, x, COLS / 8, index);
            for (v = 0; v < COLS / 8; v++)
                waste_vq_pack(q[i], index + v * q[i]->stages,
                              want + waste_record_index_pos(q[i], COLS / 8, r, v));
        }
        assert_memory_equal(c.indices, want, c.bytes);
        free(want);
        free(b);
        clear(&c);
    }
    free(w);
}

static waste_vq_weights some_weights(float *scale, float *g)
{
    waste_vq_weights w = {scale, g};
    int i, d;

    for (i = 0; i < COLS; i += 8)
        for (d = 0; d < 8; d++) {
            scale[i + d] = d == i / 8 % 8 ? 9.0f : 1.0f;
            g[i + d] = d == i / 8 % 8 ? sqrtf(4.5f) : sqrtf(0.5f);
        }
    return w;
}

static void the_loss_is_that_of_the_stored_matrix(void **state)
{
    const waste_quant *q[] = {&vq3r, &vq4p};
    float *w = weights_make(WEIGHTS_T6, ROWS, COLS, 1), scale[COLS], g[COLS];
    waste_vq_weights weights = some_weights(scale, g);
    double all = 0, wrong;
    int i, how;
    (void)state;
    for (i = 0; i < ROWS * COLS; i++) all += (double)w[i] * (double)w[i];
    for (i = 0; i < 2; i++)
        for (how = 0; how < 3; how++) { /* greedy, beam, weighted */
            waste_vq_books *b = how ? universal(q[i]) : greedy_books(q[i], w, ROWS, COLS);
            coded c =
                encode(q[i], b, how ? 8 : 0, how == 2 ? &weights : NULL, w, ROWS, COLS, 2, NULL);
            wrong = wrong_of(&c, q[i], b, w, NULL);
            assert_true(fabs(c.loss.all / all - 1) < 1e-5);
            assert_true(fabs(c.loss.wrong / wrong - 1) < 1e-4);
            free(b);
            clear(&c);
        }
    free(w);
}

/* In f16 no neighbour of a scale is better, in the metric that was asked for. */
static void scales_fit_best(void **state)
{
    float *w = weights_make(WEIGHTS_COLUMNS, ROWS, COLS, 1), scale[COLS], g[COLS];
    waste_vq_weights weights = some_weights(scale, g);
    waste_vq_books *b = universal(&vq3r);
    int64_t r;
    int k;
    (void)state;
    for (k = 0; k < 2; k++) {
        const float *h = k ? scale : NULL;
        coded c = encode(&vq3r, b, 8, k ? &weights : NULL, w, ROWS, COLS, 2, NULL);
        for (r = 0; r < ROWS; r++) {
            double best = wrong_of_row(&c, &vq3r, b, w, h, r, c.scale[r]);
            assert_true(wrong_of_row(&c, &vq3r, b, w, h, r, c.scale[r] + 1) >= best * 0.999999);
            assert_true(wrong_of_row(&c, &vq3r, b, w, h, r, c.scale[r] - 1) >= best * 0.999999);
        }
        clear(&c);
    }
    free(w);
    free(b);
}

static void neither_threads_nor_cpu_change_a_byte(void **state)
{
    static const char *const cores[] = {"plain", "avx2", "avx512"};
    const waste_quant *q[] = {&vq3r, &vq4p};
    float *w = weights_make(WEIGHTS_T6, ROWS, COLS, 1), scale[COLS], g[COLS];
    waste_vq_weights weights = some_weights(scale, g);
    size_t i, k, n;
    (void)state;
    for (i = 0; i < 3 * COLS; i++) w[i] *= i % 97 ? 1 : 40; /* rows with vectors out of reach */
    for (i = 0; i < 2; i++)
        for (k = 0; k < 2; k++) {
            waste_vq_books *b = universal(q[i]);
            coded first = encode(q[i], b, 16, k ? &weights : NULL, w, ROWS, COLS, 1, cores[0]);
            for (n = 0; n < 3; n++) {
                coded c;
                if (!waste_vq_core_named(cores[n], waste_cpu_features())) continue;
                c = encode(q[i], b, 16, k ? &weights : NULL, w, ROWS, COLS, 3, cores[n]);
                same(&first, &c);
                clear(&c);
            }
            clear(&first);
            free(b);
        }
    free(w);
}

static void odd_rows_are_kept_apart(void **state)
{
    float *w = weights_make(WEIGHTS_NORMAL, 8, COLS, 1), kept[COLS];
    waste_vq_books *b = universal(&vq3r), *greedy = greedy_books(&vq3r, w, 8, COLS);
    double y[COLS];
    int i, k;
    (void)state;
    memcpy(kept, w + 7 * COLS, sizeof kept);
    for (i = 0; i < COLS; i++) {
        w[i] = 0;
        w[COLS + i] *= 1e-30f;    /* no f16 is that small */
        w[2 * COLS + i] *= 1e-4f; /* a subnormal scale */
        w[3 * COLS + i] *= 1e10f; /* too large for one */
        w[4 * COLS + i] = i == 5; /* all in one place */
        w[5 * COLS + i] = -1;
    }
    for (k = 0; k < 2; k++) {
        coded c = encode(&vq3r, k ? b : greedy, k ? 16 : 0, NULL, w, 8, COLS, 2, NULL);
        assert_int_equal(c.scale[0], 0);
        assert_int_equal(c.scale[1], 0);
        assert_int_equal(c.scale[3], 0x7C00);
        for (i = 0; i < COLS / 8 * 3; i++)
            assert_int_equal(
                c.indices[waste_record_index_pos(&vq3r, COLS / 8, 0, i / 3) + (size_t)i % 3], 0);
        assert_true(isfinite(c.loss.wrong) && isfinite(c.loss.all));
        if (k) { /* every other row is near what it was */
            assert_true(wrong_of_row(&c, &vq3r, b, w, NULL, 7, c.scale[7]) <
                        0.04 * (double)(COLS * 0.02 * 0.02) * 1.5);
            decode_row(&c, &vq3r, b, 4, (double)waste_f16_to_f32(c.scale[4]), y);
            assert_true(y[5] > 0.5 && fabs(y[77]) < 0.2);
        }
        assert_memory_equal(kept, w + 7 * COLS, sizeof kept);
        clear(&c);
    }
    free(w);
    free(b);
    free(greedy);
}

/* ---- what it reaches ---------------------------------------------------------------------- */

static double relative(const coded *c)
{
    return 100 * sqrt(c->loss.wrong / c->loss.all);
}

/* Books from one part of a matrix, errors on the other, for each kind: the goals of
 * the encoder against the greedy one, at sizes that a test can afford (at full size
 * both are a little better). */
static void reaches_its_goals_on_every_kind_of_weights(void **state)
{
    enum { train = 176, test = 48, cols = 1024 };
    const waste_quant *q[] = {&vq3r, &vq4p};
    static const double most[WEIGHTS_KINDS] = {16.2, 99, 99, 16.3};
    waste_error err = {0};
    int kind, i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    for (kind = 0; kind < WEIGHTS_KINDS; kind++) {
        float *w, *x;
        if (WEIGHTS_SLOW && kind != WEIGHTS_NORMAL) continue;
        w = weights_make((weights_kind)kind, train + test, cols, 7);
        x = malloc((size_t)train * cols * sizeof *x);
        for (i = 0; i < 2; i++) {
            waste_vq_books *b = greedy_books(q[i], w, train, cols);
            waste_vq_random r = {1};
            waste_vq_team team;
            double greedy, beam;
            int64_t k;
            coded c = encode(q[i], b, 0, NULL, w + train * cols, test, cols, 2, NULL);
            greedy = relative(&c);
            clear(&c);
            for (k = 0; k < train; k++)
                waste_vq_normalise(w + k * cols, cols, waste_vq_row_rms(w + k * cols, cols),
                                   x + k * cols);
            assert_int_equal(waste_vq_team_init(&team, q[i], 2, NULL, &err), WASTE_OK);
            assert_int_equal(
                waste_vq_choice_make(b, q[i], x, train * cols / 8, &r, &team, NULL, &err),
                WASTE_OK);
            waste_vq_team_clear(&team);
            c = encode(q[i], b, 16, NULL, w + train * cols, test, cols, 2, NULL);
            beam = relative(&c);
            clear(&c);
            print_message("# %s, %d stages: greedy %.2f %%, beam %.2f %%\n", weights_names[kind],
                          q[i]->stages, greedy, beam);
            if (beam > most[kind] || beam > 0.85 * greedy)
                fail_msg("%s, %d stages: greedy %.2f %%, beam %.2f %%", weights_names[kind],
                         q[i]->stages, greedy, beam);
            free(b);
        }
        free(w);
        free(x);
    }
}

/* Channels that differ as a lognormal with sigma 1: the error that counts falls. */
static void importance_lowers_the_error_that_counts(void **state)
{
    enum { rows = 128 };
    const waste_quant *q[] = {&vq3r, &vq4p};
    float *w = weights_make(WEIGHTS_NORMAL, rows, COLS, 1), h[COLS], scale[COLS], g[COLS];
    waste_vq_weights weights = {scale, g};
    waste_vq_random r = {4};
    double plain, heeded;
    int i, d;
    (void)state;
    for (i = 0; i < COLS; i++) {
        h[i] = (float)exp(weights_normal(&r));
        scale[i] = sqrtf(h[i]);
    }
    for (i = 0; i < COLS; i += 8) {
        float sum = 0;
        for (d = 0; d < 8; d++) sum += scale[i + d];
        for (d = 0; d < 8; d++) g[i + d] = sqrtf(scale[i + d] * 8 / sum);
    }
    for (i = 0; i < 2; i++) {
        waste_vq_books *b = universal(q[i]);
        coded c = encode(q[i], b, 16, NULL, w, rows, COLS, 2, NULL);
        plain = sqrt(wrong_of(&c, q[i], b, w, h));
        clear(&c);
        c = encode(q[i], b, 16, &weights, w, rows, COLS, 2, NULL);
        heeded = sqrt(wrong_of(&c, q[i], b, w, h));
        clear(&c);
        print_message("# %d stages: %.3f of the error that counts\n", q[i]->stages, heeded / plain);
        assert_true(heeded < 0.9 * plain);
        free(b);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beam_0_is_the_greedy_encoding),
        cmocka_unit_test(the_loss_is_that_of_the_stored_matrix),
        cmocka_unit_test(scales_fit_best),
        cmocka_unit_test(neither_threads_nor_cpu_change_a_byte),
        cmocka_unit_test(odd_rows_are_kept_apart),
        cmocka_unit_test(reaches_its_goals_on_every_kind_of_weights),
        cmocka_unit_test(importance_lowers_the_error_that_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
