/* Each slot of the kernel table against the formula in f64 or a worked example
 * of docs/model.md, and that neither company nor cuts change a bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/kernels_work.h"
#include "kernels/quant.h"
#include "store/record.h"

static waste_kernels k;
static uint64_t seed = 1;

static float noise(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(seed >> 32)) * 0x1p-31f;
}

static float *floats(size_t n)
{
    float *p = malloc(n * sizeof *p);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = noise();
    return p;
}

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("got %.9g, wanted %.9g", got, want);
}

/* ---- trunk -------------------------------------------------------------- */

static void check_matmul(waste_fmt fmt, int rows, int cols, int group)
{
    enum { BATCH = 5 };
    const int groups = (cols + group - 1) / group;
    const size_t row_bytes = (size_t)waste_quant_row_bytes(fmt, cols, group);
    char *data = calloc((size_t)rows, row_bytes);
    uint16_t *scales = calloc((size_t)rows * (size_t)groups, sizeof *scales);
    float *x = floats(BATCH * (size_t)cols), *y = floats(BATCH * (size_t)rows),
          *w = floats((size_t)cols);
    float *one = floats((size_t)rows), *decoded = floats((size_t)cols), *to[1] = {one};
    waste_matmul a = {.n = BATCH,
                      .x = x,
                      .x_stride = (size_t)cols,
                      .y = y,
                      .y_stride = (size_t)rows,
                      .decoded = decoded};
    int r, t, i;

    for (r = 0; r < rows; r++) {
        for (i = 0; i < cols; i++) w[i] = noise();
        if (fmt == WASTE_FMT_F32)
            memcpy(data + (size_t)r * row_bytes, w, row_bytes);
        else
            waste_quant_encode_row(fmt, w, cols, group, data + (size_t)r * row_bytes,
                                   scales + r * groups);
    }
    a.w = (waste_matrix){fmt, data, scales, rows, cols, group, groups, (int64_t)row_bytes, 0};
    k.matmul(&a, 0, rows);
    for (r = 0; r < rows; r++) {
        waste_quant_decode_row(fmt, data + (size_t)r * row_bytes, scales + r * groups, cols, group,
                               w);
        for (t = 0; t < BATCH; t++) {
            double sum = 0;
            for (i = 0; i < cols; i++) sum += (double)w[i] * x[t * cols + i];
            near(y[t * rows + r], sum, 1e-6 * sqrt(cols));
        }
    }
    /* alone, in two parts, into a row of its own */
    a.n = 1;
    a.y = NULL;
    a.y_rows = to;
    for (t = 0; t < BATCH; t++) {
        a.x = x + t * cols;
        k.matmul(&a, rows / 3, rows);
        k.matmul(&a, 0, rows / 3);
        assert_memory_equal(one, y + t * rows, (size_t)rows * sizeof *one);
    }
    free(data);
    free(scales);
    free(x);
    free(y);
    free(w);
    free(one);
    free(decoded);
}

static void matmul_of_every_format(void **state)
{
    static const waste_fmt formats[] = {WASTE_FMT_F32, WASTE_FMT_Q8G, WASTE_FMT_Q4G, WASTE_FMT_Q3G};
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        check_matmul(formats[i], 7, 256, 128);
        check_matmul(formats[i], 5, 203, 128);
        check_matmul(formats[i], 4, 40, 32);
        check_matmul(formats[i], 3, 1, 16);
    }
}

static void rmsnorm_of_strided_rows(void **state)
{
    float x[6] = {3, 4, 9, 6, 8, 9};
    const float w[2] = {1, 2};
    waste_rmsnorm a = {x, w, x, 2, 3, 3, 1e-5f};
    (void)state;

    k.rmsnorm(&a, 0, 2);
    near(x[0], 3 / sqrt(12.5 + 1e-5), 1e-6);
    near(x[1], 8 / sqrt(12.5 + 1e-5), 1e-6);
    near(x[3], 6 / sqrt(50 + 1e-5), 1e-6);
    near(x[4], 16 / sqrt(50 + 1e-5), 1e-6);
    assert_true(x[2] == 9 && x[5] == 9);
}

static void activations_of_the_table(void **state)
{
    const float g[5] = {1, -1, 0, 10, -3}, u[5] = {2, 2, 5, 30, -40};
    const double situ[5] = {1.4293511, -0.5258289, 0, 82.245822, 2.7762955};
    const double silu[5] = {1.4621172, -0.5378828, 0, 299.98638, 5.6911048};
    float y[5];
    waste_act a = {{1, 4, 25}, g, u, y};
    (void)state;

    k.act(&a, 0, 5);
    for (int i = 0; i < 5; i++) near(y[i], situ[i], 1e-6 * fabs(situ[i]) + 1e-9);
    a.kind.linear_beta = 0; /* u as it is */
    k.act(&a, 3, 4);
    near(y[3], 4 * tanh(2.5) / (1 + exp(-10)) * 30, 1e-4);
    a.kind.situ = 0;
    k.act(&a, 0, 5);
    for (int i = 0; i < 5; i++) near(y[i], silu[i], 1e-6 * fabs(silu[i]) + 1e-9);
}

static void activations_stay_finite(void **state)
{
    const float g[2] = {-200, 200}, u[2] = {1e4f, -1e4f};
    float y[2] = {1, 1};
    waste_act a = {{0, 0, 0}, g, u, y};
    waste_gate gate = {g, y};
    (void)state;

    k.act(&a, 0, 2);
    near(y[0], 0, 1e-30);
    near(y[1], -2e6, 1);
    y[0] = y[1] = 3;
    k.gate(&gate, 0, 2);
    near(y[0], 0, 1e-30);
    near(y[1], 3, 0);
}

/* ---- KDA ---------------------------------------------------------------- */

static void conv_example(void **state)
{
    const float w[8] = {.1f, .2f, .3f, .4f, 0, 0, 0, 1};
    float ring[6] = {1, 2, 3, 7, 8, 9}, x[2] = {4, 5}, *rings[1] = {ring};
    waste_conv a = {1, 2, 4, w, x, rings};
    (void)state;

    k.conv(&a, 0, 1);
    near(x[0], 2.8577224, 1e-6);
    assert_true(ring[0] == 2 && ring[1] == 3 && ring[2] == 4);
    assert_true(x[1] == 5 && ring[3] == 7); /* another channel */
    k.conv(&a, 1, 2);
    near(x[1], 5 / (1 + exp(-5)), 1e-6);
}

static void conv_of_one_tap_keeps_nothing(void **state)
{
    const float w[1] = {2};
    float x[1] = {1}, *rings[1] = {NULL};
    waste_conv a = {1, 1, 1, w, x, rings};
    (void)state;

    k.conv(&a, 0, 1);
    near(x[0], 2 / (1 + exp(-2)), 1e-6);
}

/* With k = 0 and v = 0 a state of 1 becomes exp(g). */
static double decay(float a_log, float z, float bound)
{
    const float zero[1] = {0}, half = z / 2;
    float s[1] = {1}, o[1], scratch[WASTE_KDA_FLOATS(1)], *states[1] = {s};
    waste_kda a = {1,    1,      1,     zero,  zero,   zero, &half,
                   zero, &a_log, &half, bound, states, o,    scratch};

    k.kda(&a, 0, 1);
    return log(s[0]);
}

static void decay_gates_of_the_table(void **state)
{
    const float a_log[4] = {0, 0.5f, -1, 0}, z[4] = {0, 1, -2, 25};
    const double soft[4] = {-0.6931472, -2.1652025, -0.0466942, -25};
    const double bounded[4] = {-2.5, -4.1935906, -1.6196613, -5};
    (void)state;

    for (int i = 0; i < 4; i++) {
        near(decay(a_log[i], z[i], 0), soft[i], 1e-5);
        near(decay(a_log[i], z[i], -5), bounded[i], 1e-5);
    }
}

static void kda_example(void **state)
{
    const float q[2] = {3, 4}, key[2] = {1, 0}, v[2] = {5, 6}, z[2] = {0, -100}, zero[2] = {0, 0};
    float s[4] = {1, 2, 3, 4}, o[2], scratch[WASTE_KDA_FLOATS(2)], *states[1] = {s};
    waste_kda a = {1, 1, 2, q, key, v, z, zero, zero, zero, 0, states, o, scratch};
    (void)state;

    k.kda(&a, 0, 1);
    near(s[0], 2.75, 1e-6);
    near(s[1], 3.5, 1e-6);
    near(s[2], 3, 1e-6);
    near(s[3], 4, 1e-6);
    near(o[0], 2.8637825, 1e-6);
    near(o[1], 3.7476659, 1e-6);
}

/* Two sequences in one call give what each gives alone. */
static void kda_rows_know_their_sequence(void **state)
{
    enum { HEADS = 3, DIM = 20, C = HEADS * DIM, S = HEADS * DIM * DIM, N = 6 };
    static const int of[N] = {0, 1, 1, 0, 1, 0};
    float *q = floats(N * C), *key = floats(N * C), *v = floats(N * C), *z = floats(N * C);
    float *beta = floats(N * HEADS), *a_log = floats(HEADS), *dt = floats(C),
          *s = calloc(4, S * sizeof *s);
    float *o = floats(N * C), *alone = floats(C), scratch[WASTE_KDA_FLOATS(DIM)], *states[N], *own;
    waste_kda a = {N, HEADS, DIM, q, key, v, z, beta, a_log, dt, -5, states, o, scratch};
    (void)state;

    for (int i = 0; i < N; i++) states[i] = s + of[i] * S;
    k.kda(&a, 2, 3);
    k.kda(&a, 0, 2);
    for (int i = 0; i < N; i++) {
        own = s + (2 + of[i]) * S;
        waste_kda b = {
            1,     HEADS, DIM, q + i * C, key + i * C, v + i * C, z + i * C, beta + i * HEADS,
            a_log, dt,    -5,  &own,      alone,       scratch};
        k.kda(&b, 0, HEADS);
        assert_memory_equal(alone, o + i * C, C * sizeof *o);
    }
    assert_memory_equal(s, s + 2 * S, 2 * S * sizeof *s);
    free(q);
    free(key);
    free(v);
    free(z);
    free(beta);
    free(a_log);
    free(dt);
    free(s);
    free(o);
    free(alone);
}

/* ---- MLA ---------------------------------------------------------------- */

enum { NOPE = 6, ROPE = 4, RANK = 24, VDIM = 5, HEADS = 2, PAST = 150 };

/* The expanded form, which the absorbed one must equal: keys and values of every
 * position from kv_b, softmax in one piece. */
static void attend_f64(const float *kv_b, const float *latent, const float *q, int h, double scale,
                       int last, double *o)
{
    double s[PAST], top = -1e300, sum = 0;
    int t, i, r;

    for (t = 0; t <= last; t++) {
        const float *c = latent + t * (RANK + ROPE);
        s[t] = 0;
        for (i = 0; i < NOPE; i++)
            for (r = 0; r < RANK; r++)
                s[t] += (double)q[i] * kv_b[(h * (NOPE + VDIM) + i) * RANK + r] * c[r];
        for (i = 0; i < ROPE; i++) s[t] += (double)q[NOPE + i] * c[RANK + i];
        s[t] *= scale;
        if (s[t] > top) top = s[t];
    }
    for (i = 0; i < VDIM; i++) o[i] = 0;
    for (t = 0; t <= last; t++) sum += s[t] = exp(s[t] - top);
    for (t = 0; t <= last; t++)
        for (i = 0; i < VDIM; i++)
            for (r = 0; r < RANK; r++)
                o[i] += s[t] / sum * kv_b[(h * (NOPE + VDIM) + NOPE + i) * RANK + r] *
                        latent[t * (RANK + ROPE) + r];
}

static void absorbed_attention_equals_expanded(void **state)
{
    enum { N = 4, WIDTH = RANK + ROPE, Q = HEADS * (NOPE + ROPE), O = HEADS * VDIM };
    static const int64_t last[N] = {0, 63, 64, PAST - 1};
    float *kv_b = floats(HEADS * (NOPE + VDIM) * RANK), *latent = floats(192 * WIDTH),
          *q = floats(N * Q);
    float o[N * O], one[O], decoded[RANK], scratch[2 * N * RANK];
    void *blocks[3] = {latent, latent + 64 * WIDTH, latent + 128 * WIDTH};
    void *const *tables[N] = {blocks, blocks, blocks, blocks};
    waste_mla a = {.n = N,
                   .heads = HEADS,
                   .nope = NOPE,
                   .rope = ROPE,
                   .rank = RANK,
                   .v = VDIM,
                   .scale = 0.7f,
                   .q = q,
                   .block = tables,
                   .last = last,
                   .o = o,
                   .decoded = decoded,
                   .latent = scratch};
    double want[VDIM];
    (void)state;

    for (int i = 0; i < N * Q; i++) q[i] *= 4; /* peaked enough for the maximum to move */
    a.kv_b =
        (waste_matrix){WASTE_FMT_F32, kv_b, NULL, HEADS * (NOPE + VDIM), RANK, 0, 0, RANK * 4, 0};
    k.mla(&a, 1, 2);
    k.mla(&a, 0, 1);
    for (int t = 0; t < N; t++)
        for (int h = 0; h < HEADS; h++) {
            attend_f64(kv_b, latent, q + t * Q + h * (NOPE + ROPE), h, 0.7f, (int)last[t], want);
            for (int i = 0; i < VDIM; i++) near(o[t * O + h * VDIM + i], want[i], 2e-6);
        }
    a.n = 1;
    a.o = one;
    for (int t = 0; t < N; t++) {
        a.q = q + t * Q;
        a.last = last + t;
        k.mla(&a, 0, HEADS);
        assert_memory_equal(one, o + t * O, sizeof one);
    }
    free(kv_b);
    free(latent);
    free(q);
}

/* ---- attention residuals -------------------------------------------------- */

static void ares_example(void **state)
{
    const float blocks[2] = {3, 4}, norm[2] = {1, 1}, proj[2] = {1, 0};
    float p[2] = {1, 0}, scratch[4];
    waste_ares a = {1, 2, blocks, p, norm, proj, p, 2, 1e-5f, scratch};
    (void)state;

    k.ares(&a, 0, 1); /* in place: the old p is part of the sum */
    near(p[0], 1.7244723, 1e-6);
    near(p[1], 1.4489447, 1e-6);
}

/* ---- experts -------------------------------------------------------------- */

/* Weight (row, col) as docs/format.md 5.2, 5.4, 5.5 define it. */
static double weight(const waste_quant *q, const waste_vq_matrix *m, int row, int col)
{
    const unsigned char *p =
        m->index + waste_record_index_pos(q, m->cols / q->vec_dim, row, col / q->vec_dim);
    double sum = 0;

    for (int s = 0; s < q->stages; s++) {
        const int e = q->index_bits == 6 ? (p[0] | p[1] << 8 | p[2] << 16) >> 6 * s & 63 : p[s];
        sum += m->book[s][e * q->vec_dim + col % q->vec_dim];
    }
    return sum * waste_f16_to_f32((uint16_t)(m->scale[2 * row] | m->scale[2 * row + 1] << 8));
}

static void check_expert(waste_quant q, int width, int input)
{
    enum { N = 3, PLACES = 7 };
    static const int x_row[N] = {4, 0, 2}, y_row[N] = {6, 1, 3};
    const size_t book = 256 * (size_t)q.vec_dim;
    waste_record_layout at;
    float *books = floats(3 * 8 * book), *x = floats(5 * (size_t)input),
          *h = floats(N * (size_t)width);
    float *y = floats(PLACES * (size_t)input), *one = floats(PLACES * (size_t)input);
    float *decoded = floats(2 * (size_t)(width > input ? width : input));
    double *mid = calloc((size_t)width, sizeof *mid);
    unsigned char *record;
    waste_expert a = {
        .geometry = {q.stages, q.vec_dim, q.index_block, q.index_bits, q.vector_bytes},
        .act = {1, 4, 25},
        .n = N,
        .x = x,
        .x_row = x_row,
        .h = h,
        .y = y,
        .y_row = y_row,
        .decoded = decoded};
    waste_vq_matrix *m[3] = {&a.gate, &a.up, &a.down};
    uint64_t i;

    waste_record_layout_of(&at, &q, width, input);
    record = calloc(1, (size_t)at.bytes);
    for (i = at.gate_off; i < at.scale_off; i++)
        record[i] = (unsigned char)(int)(128 + 127 * noise());
    for (i = at.scale_off; i < at.scale_end; i += 2) {
        uint16_t s = waste_f32_to_f16(0.2f * noise());
        memcpy(record + i, &s, 2);
    }
    const uint64_t off[3] = {at.gate_off, at.up_off, at.down_off};
    for (int j = 0; j < 3; j++) {
        m[j]->index = record + off[j];
        m[j]->scale = record + at.scale_off + 2 * width * j;
        m[j]->rows = j < 2 ? width : input;
        m[j]->cols = j < 2 ? input : width;
        for (int s = 0; s < q.stages; s++) m[j]->book[s] = books + (size_t)(j * 8 + s) * book;
    }
    k.expert_up(&a, 0, width);
    k.expert_down(&a, 0, input);
    for (int t = 0; t < N; t++) {
        for (int r = 0; r < width; r++) {
            double g = 0, u = 0;
            for (int c = 0; c < input; c++) {
                g += weight(&q, &a.gate, r, c) * x[x_row[t] * input + c];
                u += weight(&q, &a.up, r, c) * x[x_row[t] * input + c];
            }
            mid[r] = 4 * tanh(g / 4) / (1 + exp(-g)) * 25 * tanh(u / 25);
            near(h[t * width + r], mid[r], 1e-5);
        }
        for (int r = 0; r < input; r++) {
            double sum = 0;
            for (int c = 0; c < width; c++) sum += weight(&q, &a.down, r, c) * mid[c];
            near(y[y_row[t] * input + r], sum, 1e-5);
        }
    }
    /* each row alone, in two parts, gives the same bits */
    a.n = 1;
    a.y = one;
    for (int t = 0; t < N; t++) {
        a.x_row = x_row + t;
        a.y_row = y_row + t;
        k.expert_up(&a, 3, width);
        k.expert_up(&a, 0, 3);
        k.expert_down(&a, 1, input);
        k.expert_down(&a, 0, 1);
        assert_memory_equal(one + y_row[t] * input, y + y_row[t] * input,
                            (size_t)input * sizeof *y);
    }
    free(record);
    free(books);
    free(x);
    free(h);
    free(y);
    free(one);
    free(decoded);
    free(mid);
}

static void experts_of_every_geometry(void **state)
{
    (void)state;
    check_expert((waste_quant){3, 8, 256, 64, 8, 3}, 72, 88);
    check_expert((waste_quant){3, 8, 256, 0, 8, 3}, 24, 16);
    check_expert((waste_quant){2, 8, 256, 64, 8, 2}, 64, 40);
    check_expert((waste_quant){4, 8, 64, 64, 6, 3}, 72, 136);
    check_expert((waste_quant){4, 8, 64, 0, 6, 3}, 16, 24);
    check_expert((waste_quant){2, 4, 16, 64, 8, 2}, 12, 20);
    check_expert((waste_quant){8, 5, 256, 0, 8, 8}, 15, 10);
    check_expert((waste_quant){1, 1, 256, 64, 8, 1}, 7, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_of_every_format),
        cmocka_unit_test(rmsnorm_of_strided_rows),
        cmocka_unit_test(activations_of_the_table),
        cmocka_unit_test(activations_stay_finite),
        cmocka_unit_test(conv_example),
        cmocka_unit_test(conv_of_one_tap_keeps_nothing),
        cmocka_unit_test(decay_gates_of_the_table),
        cmocka_unit_test(kda_example),
        cmocka_unit_test(kda_rows_know_their_sequence),
        cmocka_unit_test(absorbed_attention_equals_expanded),
        cmocka_unit_test(ares_example),
        cmocka_unit_test(experts_of_every_geometry),
    };

    waste_kernels_pick(&k, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
