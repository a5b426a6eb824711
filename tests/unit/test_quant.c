/* kernels/quant: f16, bf16 and the block formats, by the tables of docs/format.md. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/quant.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void f16_decodes_the_check_values(void **state)
{
    static const struct {
        uint16_t h;
        float f;
    } want[] = {
        {0x0001, 0x1p-24f},         {0x03FF, 1023 * 0x1p-24f}, {0x0400, 0x1p-14f},  {0x3C00, 1},
        {0x2E66, 0.0999755859375f}, {0x7BFF, 65504},           {0x8001, -0x1p-24f}, {0xBC00, -1},
    };
    size_t i;
    (void)state;
    for (i = 0; i < COUNT(want); i++) assert_true(waste_f16_to_f32(want[i].h) == want[i].f);
    assert_true(isinf(waste_f16_to_f32(0x7C00)) && waste_f16_to_f32(0xFC00) < 0);
    assert_true(isnan(waste_f16_to_f32(0x7C01)));
    assert_true(waste_f16_to_f32(0x8000) == 0 && signbit(waste_f16_to_f32(0x8000)));
}

/* Against the definition, and back again: every value of 16 bits. */
static void every_f16_survives_the_round_trip(void **state)
{
    uint32_t h;
    (void)state;
    for (h = 0; h < 65536; h++) {
        int e = h >> 10 & 31, m = h & 1023;
        float f = waste_f16_to_f32((uint16_t)h);
        if (e == 31 && m) {
            assert_true(isnan(f));
            assert_int_equal(waste_f32_to_f16(f), h | 0x200); /* stays a NaN, made quiet */
            continue;
        }
        if (e < 31) {
            double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
            assert_true(fabs((double)f) == v);
        }
        assert_int_equal(waste_f32_to_f16(f), h);
    }
}

/* Arrays of them are the same, but that no finite value becomes infinite. */
static void f16_arrays(void **state)
{
    enum { N = 65536 };
    uint16_t *h = malloc(2 * N * sizeof *h), *back = h + N;
    float *f = malloc(N * sizeof *f), one;
    const float edge[] = {65504, 65519, 65520, 3e38f, INFINITY, -65520, -3e38f, -INFINITY};
    const uint16_t kept[] = {0x7BFF, 0x7BFF, 0x7BFF, 0x7BFF, 0x7C00, 0xFBFF, 0xFBFF, 0xFC00};
    size_t i, n;
    (void)state;

    for (i = 0; i < N; i++) h[i] = (uint16_t)i;
    for (n = N - 40; n <= N; n += 5) { /* ends of every kind */
        memset(f, 0, N * sizeof *f);
        waste_f16_widen(h, n, f);
        for (i = 0; i < n; i++) {
            one = waste_f16_to_f32(h[i]);
            assert_memory_equal(&f[i], &one, sizeof one);
        }
        for (; i < N; i++) assert_true(f[i] == 0);
    }
    waste_f16_narrow(f, N, back);
    for (i = 0; i < N; i++) assert_int_equal(back[i], waste_f32_to_f16(f[i]));
    waste_f16_narrow(edge, 8, back);
    assert_memory_equal(back, kept, sizeof kept);
    free(h);
    free(f);
}

static void f16_rounds_to_nearest_even(void **state)
{
    uint32_t h;
    (void)state;
    for (h = 0; h < 0x7BFF; h++) {
        double a = (double)waste_f16_to_f32((uint16_t)h);
        double b = (double)waste_f16_to_f32((uint16_t)(h + 1));
        float mid = (float)((a + b) / 2); /* exact: one bit more than f16 has */
        assert_int_equal(waste_f32_to_f16(mid), h & 1 ? h + 1 : h);
        assert_int_equal(waste_f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(waste_f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(waste_f32_to_f16(-mid), 0x8000 | (h & 1 ? h + 1 : h));
    }
    assert_int_equal(waste_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(waste_f32_to_f16(65520), 0x7C00);
    assert_int_equal(waste_f32_to_f16(INFINITY), 0x7C00);
    assert_int_equal(waste_f32_to_f16(-1e30f), 0xFC00);
    assert_int_equal(waste_f32_to_f16(0x1p-25f), 0); /* half of the smallest: to even */
    assert_int_equal(waste_f32_to_f16(1e-40f), 0);
}

static void bf16_is_the_upper_half(void **state)
{
    (void)state;
    assert_true(waste_bf16_to_f32(0x3F80) == 1.0f);
    assert_true(waste_bf16_to_f32(0xC2F7) == -123.5f);
    assert_true(waste_bf16_to_f32(0x0001) == 0x1p-133f);
    assert_true(isnan(waste_bf16_to_f32(0x7FC0)));
}

static void row_bytes_follow_the_table(void **state)
{
    (void)state;
    assert_int_equal(waste_quant_row_bytes(WASTE_FMT_F32, 7, 0), 28);
    assert_int_equal(waste_quant_row_bytes(WASTE_FMT_Q8G, 129, 128), 256);
    assert_int_equal(waste_quant_row_bytes(WASTE_FMT_Q4G, 129, 128), 128);
    assert_int_equal(waste_quant_row_bytes(WASTE_FMT_Q3G, 129, 128), 97); /* 48 * 2 + 1 */
    assert_int_equal(waste_quant_row_bytes(WASTE_FMT_Q3G, 7168, 128), 48 * 56 + 1);
    assert_int_equal(waste_quant_row_bytes(WASTE_FMT_Q3G, 8, 32), 13);
}

/* The worked example: one row of 8 weights in one group. */
static void encodes_the_worked_example(void **state)
{
    static const float w[8] = {0.7f, -0.35f, 0.1f, 0, -0.7f, 0.05f, 0.349f, 0.55f};
    static const struct {
        waste_fmt fmt;
        uint16_t scale;
        int codes[8];
        const char *bytes;
        size_t n;
    } want[] = {
        {WASTE_FMT_Q8G,
         0x1DA5,
         {127, -64, 18, 0, -127, 9, 63, 100},
         "\x7f\xc0\x12\x00\x81\x09\x3f\x64",
         8},
        {WASTE_FMT_Q4G, 0x2E66, {7, -4, 1, 0, -7, 0, 3, 6}, "\x4f\x89\x81\xeb", 4},
        {WASTE_FMT_Q3G, 0x3377, {3, -2, 0, 0, -3, 0, 1, 2}, "\x17\x19\xd6", 3},
    };
    size_t i, j;
    (void)state;
    for (i = 0; i < COUNT(want); i++) {
        uint8_t row[128];
        uint16_t scale;
        float back[8];
        waste_quant_encode_row(want[i].fmt, w, 8, 128, row, &scale);
        assert_int_equal(scale, want[i].scale);
        assert_memory_equal(row, want[i].bytes, want[i].n);
        waste_quant_decode_row(want[i].fmt, row, &scale, 8, 128, back);
        for (j = 0; j < 8; j++)
            assert_true(back[j] == waste_f16_to_f32(scale) * (float)want[i].codes[j]);
    }
}

static void padding_holds_the_code_of_zero(void **state)
{
    float w[3] = {1, -1, 0.5f};
    uint8_t row[128];
    uint16_t scale;
    int i;
    (void)state;
    waste_quant_encode_row(WASTE_FMT_Q4G, w, 3, 128, row, &scale);
    assert_int_equal(row[1] >> 4, 8);
    for (i = 2; i < 64; i++) assert_int_equal(row[i], 0x88);
    waste_quant_encode_row(WASTE_FMT_Q3G, w, 3, 128, row, &scale);
    for (i = 3; i < 128; i++)
        assert_int_equal((row[3 * i / 8] | row[3 * i / 8 + 1] << 8) >> 3 * i % 8 & 7, 4);
    assert_int_equal(row[48], 0); /* the guard byte */
    waste_quant_encode_row(WASTE_FMT_Q8G, w, 3, 128, row, &scale);
    for (i = 3; i < 128; i++) assert_int_equal(row[i], 0);
}

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)*seed * 0x1p-31f;
}

/* The fast path, partial groups and odd group lengths against the definition. */
static void decodes_every_geometry_like_the_definition(void **state)
{
    static const waste_fmt fmts[] = {WASTE_FMT_Q8G, WASTE_FMT_Q4G, WASTE_FMT_Q3G};
    static const int64_t groups[] = {128, 32, 7, 1, 64, 200};
    static const int64_t cols[] = {1, 7, 8, 127, 128, 129, 256, 300, 384};
    uint32_t seed = 1;
    size_t f, g, c;
    (void)state;
    for (f = 0; f < COUNT(fmts); f++)
        for (g = 0; g < COUNT(groups); g++)
            for (c = 0; c < COUNT(cols); c++) {
                int64_t n = cols[c], k = groups[g], i, bytes;
                /* exact sizes, so that a sanitizer sees any byte too far */
                float *w = malloc((size_t)n * sizeof *w), *back = malloc((size_t)n * sizeof *back);
                uint16_t *scale = malloc((size_t)((n + k - 1) / k) * 2);
                uint8_t *row;
                bytes = waste_quant_row_bytes(fmts[f], n, k);
                row = malloc((size_t)bytes);
                for (i = 0; i < n; i++) w[i] = noise(&seed);
                waste_quant_encode_row(fmts[f], w, n, k, row, scale);
                waste_quant_decode_row(fmts[f], row, scale, n, k, back);
                for (i = 0; i < n; i++) {
                    float s = waste_f16_to_f32(scale[i / k]);
                    int v;
                    if (fmts[f] == WASTE_FMT_Q8G)
                        v = (int8_t)row[i];
                    else if (fmts[f] == WASTE_FMT_Q4G)
                        v = (i % 2 ? row[i / 2] >> 4 : row[i / 2] & 15) - 8;
                    else
                        v = ((row[3 * i / 8] >> 3 * i % 8 | row[3 * i / 8 + 1] << (8 - 3 * i % 8)) &
                             7) -
                            4;
                    assert_true(back[i] == s * (float)v);
                    /* half a step, and what rounding the scale to f16 adds (subnormal: 127 * 2^-25) */
                    assert_true(fabsf(back[i] - w[i]) <= 0.501f * s + fabsf(w[i]) * 0.001f + 1e-5f);
                }
                free(w);
                free(back);
                free(scale);
                free(row);
            }
}

static void scales_are_read_at_any_alignment(void **state)
{
    unsigned char scales[3] = {0, 0x00, 0xBC}; /* -1, at an odd address */
    uint8_t row[1] = {0x79};                   /* codes 1 and -1 */
    float back[2];
    (void)state;
    waste_quant_decode_row(WASTE_FMT_Q4G, row, scales + 1, 2, 2, back);
    assert_true(back[0] == -1 && back[1] == 1);
}

static void tiny_weights_become_zero_and_f32_is_copied(void **state)
{
    float w[4] = {1e-9f, -1e-9f, 0, 1e-10f}, back[4];
    uint8_t row[64];
    uint16_t scale;
    int i;
    (void)state;
    waste_quant_encode_row(WASTE_FMT_Q4G, w, 4, 128, row, &scale);
    assert_int_equal(scale, 0);
    waste_quant_decode_row(WASTE_FMT_Q4G, row, &scale, 4, 128, back);
    for (i = 0; i < 4; i++) assert_true(back[i] == 0);
    waste_quant_decode_row(WASTE_FMT_F32, w, NULL, 4, 0, back);
    assert_memory_equal(w, back, sizeof w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_decodes_the_check_values),
        cmocka_unit_test(every_f16_survives_the_round_trip),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(f16_arrays),
        cmocka_unit_test(bf16_is_the_upper_half),
        cmocka_unit_test(row_bytes_follow_the_table),
        cmocka_unit_test(encodes_the_worked_example),
        cmocka_unit_test(padding_holds_the_code_of_zero),
        cmocka_unit_test(decodes_every_geometry_like_the_definition),
        cmocka_unit_test(scales_are_read_at_any_alignment),
        cmocka_unit_test(tiny_weights_become_zero_and_f32_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
