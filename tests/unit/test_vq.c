/* convert/vq: the examples of docs/convert.md, training in corner cases, figures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/vq.h"
#include "emulated.h"
#include "kernels/quant.h"

static const waste_quant vq3r = {3, 8, 256, 64, 8, 3}, vq4p = {4, 8, 64, 64, 6, 3};

/* Steele, Lea and Flood's generator from state 0. */
static void random_numbers_are_splitmix64(void **state)
{
    waste_vq_random r = {0};
    (void)state;
    assert_true(waste_vq_next(&r) == 0xE220A8397B1DCDAFu);
    assert_true(waste_vq_next(&r) == 0x6E789E6AA1B965F4u);
    assert_true(waste_vq_next(&r) == 0x06C45D188009454Fu);
    assert_true(waste_vq_below(&r, 1) == 0);
}

static waste_vq_books *books_of(int stages, int entries)
{
    waste_vq_books *b = calloc(1, sizeof *b);
    int s, c;

    b->stages = stages;
    b->entries = entries;
    for (s = 0; s < stages; s++)
        for (c = 0; c < WASTE_VQ_ENTRIES; c++) b->book[s].half[c] = 3e38f;
    return b;
}

static void set_entry(waste_vq_books *b, int stage, int c, float v)
{
    int d;

    for (d = 0; d < 8; d++) b->book[stage].part[d][c] = v;
    b->book[stage].half[c] = 4 * v * v;
}

/* docs/convert.md 6.1: two stages of two entries, a vector of 0.4s. */
static void encodes_the_toy_example(void **state)
{
    waste_vq_books *b = books_of(2, 8);
    float x[8];
    uint8_t index[2];
    int d;
    (void)state;
    set_entry(b, 0, 0, 0);
    set_entry(b, 0, 1, 0.5f);
    set_entry(b, 1, 0, 0);
    set_entry(b, 1, 1, -0.1f);
    for (d = 0; d < 8; d++) x[d] = 0.4f;
    waste_vq_encode(b, x, 1, index);
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], 1);
    for (d = 0; d < 8; d++) assert_true(fabsf(x[d]) < 1e-7f);
    free(b);
}

static void equals_go_to_the_lowest_entry(void **state)
{
    waste_vq_books *b = books_of(1, 256);
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    uint8_t index;
    (void)state;
    set_entry(b, 0, 200, 0.5f);
    set_entry(b, 0, 77, 0.5f);
    set_entry(b, 0, 13, 0.25f);
    set_entry(b, 0, 81, 0.5f); /* the same lane as another, and a lower lane */
    waste_vq_encode(b, x, 1, &index);
    assert_int_equal(index, 77);
    free(b);
}

/* docs/format.md 5.5 */
static void packs_six_bit_indices(void **state)
{
    static const struct {
        uint8_t index[4];
        const char *bytes;
    } want[] = {{{1, 2, 3, 4}, "\x81\x30\x10"},
                {{63, 0, 63, 0}, "\x3f\xf0\x03"},
                {{42, 21, 63, 1}, "\x6a\xf5\x07"}};
    uint8_t to[3];
    size_t i;
    (void)state;
    for (i = 0; i < 3; i++) {
        waste_vq_pack(&vq4p, want[i].index, to);
        assert_memory_equal(to, want[i].bytes, 3);
    }
    waste_vq_pack(&vq3r, want[0].index, to);
    assert_memory_equal(to, want[0].index, 3);
}

static void row_scales_are_f16_and_never_divide_by_zero(void **state)
{
    float row[8] = {0.1f, -0.7f, 0.3f, 0, 0, 0, 0, 0}, to[8];
    uint16_t s = waste_vq_row_scale(row, 8);
    (void)state;
    assert_int_equal(s, waste_f32_to_f16(0.7f));
    waste_vq_normalise(row, 8, s, to);
    assert_true(to[1] == -0.7f / waste_f16_to_f32(s)); /* by the rounded scale */
    memset(row, 0, sizeof row);
    s = waste_vq_row_scale(row, 8);
    assert_int_equal(s, 0);
    row[0] = 1e-9f;
    waste_vq_normalise(row, 8, s, to);
    assert_true(to[0] == 0);
    row[0] = 1e30f;
    assert_int_equal(waste_vq_row_scale(row, 8), 0x7C00);
}

static float *noise(size_t n, uint64_t seed)
{
    waste_vq_random r = {seed};
    float *x = malloc(n * sizeof *x);
    size_t i;
    int k;

    for (i = 0; i < n; i++) { /* near enough to normal */
        double s = -6;
        for (k = 0; k < 12; k++) s += (double)(waste_vq_next(&r) >> 11) * 0x1p-53;
        x[i] = (float)s * 0.25f;
    }
    return x;
}

static double energy(const float *x, size_t n)
{
    double s = 0;
    size_t i;

    for (i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    return s;
}

static void trains_to_the_error_the_recipe_gives(void **state)
{
    const size_t n = 20000;
    float *x = noise(n * 8, 1), *fresh = noise(n * 8, 2);
    uint8_t *index = malloc(n * 4);
    waste_vq_books *b = malloc(sizeof *b);
    waste_error err = {0};
    waste_vq_random r = {5};
    double before, e;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    before = energy(fresh, n * 8);
    assert_int_equal(waste_vq_train(b, &vq3r, x, n, &r, NULL, &err), WASTE_OK);
    waste_vq_encode(b, fresh, n, index);
    e = sqrt(energy(fresh, n * 8) / before);
    assert_true(e > 0.18 && e < 0.21);
    free(x);
    free(fresh);

    x = noise(n * 8, 1);
    fresh = noise(n * 8, 2);
    assert_int_equal(waste_vq_train(b, &vq4p, x, n, &r, NULL, &err), WASTE_OK);
    waste_vq_encode(b, fresh, n, index);
    e = sqrt(energy(fresh, n * 8) / before);
    assert_true(e > 0.20 && e < 0.22);
    for (size_t i = 0; i < n * 4; i++) assert_in_range(index[i], 0, 63);
    free(x);
    free(fresh);
    free(index);
    free(b);
}

static void same_input_gives_the_same_books(void **state)
{
    float *x = noise(3000 * 8, 1), *y = noise(3000 * 8, 1);
    waste_vq_books *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    waste_vq_random r = {5}, s = {5};
    waste_error err = {0};
    (void)state;
    memset(a, 0, sizeof *a);
    memset(b, 0xFF, sizeof *b);
    assert_int_equal(waste_vq_train(a, &vq3r, x, 3000, &r, NULL, &err), WASTE_OK);
    assert_int_equal(waste_vq_train(b, &vq3r, y, 3000, &s, NULL, &err), WASTE_OK);
    assert_memory_equal(a->book, b->book, 3 * sizeof a->book[0]);
    assert_memory_equal(x, y, 3000 * 8 * sizeof *x); /* the residuals */
    free(x);
    free(y);
    free(a);
    free(b);
}

/* Fewer vectors than entries, and all of them alike. */
static void trains_on_almost_nothing(void **state)
{
    float x[5 * 8], one[8], zero[300 * 8];
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_random r = {1};
    waste_error err = {0};
    uint8_t index[3];
    int i;
    (void)state;
    for (i = 0; i < 5 * 8; i++) x[i] = (float)(i * 7 % 16) / 16; /* f16 values */
    memcpy(one, x + 16, sizeof one);
    assert_int_equal(waste_vq_train(b, &vq3r, x, 5, &r, NULL, &err), WASTE_OK);
    for (i = 0; i < 5 * 8; i++) assert_true(x[i] == 0);
    waste_vq_encode(b, one, 1, index);
    for (i = 0; i < 8; i++) assert_true(one[i] == 0);
    memset(zero, 0, sizeof zero);
    assert_int_equal(waste_vq_train(b, &vq3r, zero, 300, &r, NULL, &err), WASTE_OK);
    for (i = 0; i < 8; i++) assert_true(b->book[2].part[i][255] == 0);
    free(b);
}

static void books_hold_f16_values_and_are_written_entry_by_entry(void **state)
{
    float *x = noise(2000 * 8, 3);
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_random r = {1};
    waste_error err = {0};
    unsigned char to[4112];
    int c, d;
    (void)state;
    assert_int_equal(waste_vq_train(b, &vq3r, x, 2000, &r, NULL, &err), WASTE_OK);
    assert_int_equal(waste_vq_book_bytes(&vq3r), 4112);
    assert_int_equal(waste_vq_book_bytes(&vq4p), 1040);
    waste_vq_book_write(&b->book[1], &vq3r, 0x1234, to);
    assert_memory_equal(to, "\x57\x43\x42\x4b\x34\x12\x04\x08\x00\x01\x00\x00\x00\x00\x00\x00", 16);
    for (c = 0; c < 256; c++)
        for (d = 0; d < 8; d++) {
            const unsigned char *p = to + 16 + 2 * (c * 8 + d);
            assert_true(waste_f16_to_f32((uint16_t)(p[0] | p[1] << 8)) == b->book[1].part[d][c]);
        }
    free(x);
    free(b);
}

static int at_third(void *ctx)
{
    return ++*(int *)ctx == 3;
}

static void stops_when_asked_and_when_memory_is_out(void **state)
{
    float *x = noise(100 * 8, 3);
    waste_vq_books *b = malloc(sizeof *b);
    int asked = 0;
    waste_cancel cancel = {at_third, &asked};
    waste_vq_random r = {1};
    waste_error err = {0};
    uint64_t before = waste_mem_used(), n;
    (void)state;
    assert_int_equal(waste_vq_train(b, &vq3r, x, 100, &r, &cancel, &err), WASTE_CANCELLED);
    assert_int_equal(asked, 3);
    assert_int_equal(waste_mem_used(), before);
    for (n = 1; n <= 2; n++) {
        memset(&err, 0, sizeof err);
        waste_mem_fail_at(n, 1);
        assert_int_equal(waste_vq_train(b, &vq3r, x, 100, &r, NULL, &err), WASTE_NOMEM);
        waste_mem_fail_at(0, 0);
        assert_int_equal(waste_mem_used(), before);
    }
    free(x);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers_are_splitmix64),
        cmocka_unit_test(encodes_the_toy_example),
        cmocka_unit_test(equals_go_to_the_lowest_entry),
        cmocka_unit_test(packs_six_bit_indices),
        cmocka_unit_test(row_scales_are_f16_and_never_divide_by_zero),
        cmocka_unit_test(trains_to_the_error_the_recipe_gives),
        cmocka_unit_test(same_input_gives_the_same_books),
        cmocka_unit_test(trains_on_almost_nothing),
        cmocka_unit_test(books_hold_f16_values_and_are_written_entry_by_entry),
        cmocka_unit_test(stops_when_asked_and_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
