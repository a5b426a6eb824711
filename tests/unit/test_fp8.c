/* convert/fp8 and fp8 tensors of a checkpoint: the check values of docs/convert.md 2,
 * blocks, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/fp8.h"
#include "convert/source.h"
#include "lib/checkpoint.h"

static char dir[256];

static int make_dir(void **state)
{
    (void)state;
    test_dir(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    test_dir_remove(dir);
    return 0;
}

static void values_are_those_of_the_formats(void **state)
{
    static const struct {
        waste_dtype dtype;
        unsigned char byte;
        float value;
    } want[] = {{WASTE_DTYPE_F8_E4M3, 0x01, 0x1p-9f},  {WASTE_DTYPE_F8_E4M3, 0x08, 0x1p-6f},
                {WASTE_DTYPE_F8_E4M3, 0x38, 1},        {WASTE_DTYPE_F8_E4M3, 0x7E, 448},
                {WASTE_DTYPE_F8_E4M3, 0xFE, -448},     {WASTE_DTYPE_F8_E4M3, 0x07, 7 * 0x1p-9f},
                {WASTE_DTYPE_F8_E4M3, 0x78, 256},      {WASTE_DTYPE_F8_E4M3, 0x80, 0},
                {WASTE_DTYPE_F8_E5M2, 0x01, 0x1p-16f}, {WASTE_DTYPE_F8_E5M2, 0x3C, 1},
                {WASTE_DTYPE_F8_E5M2, 0x7B, 57344},    {WASTE_DTYPE_F8_E5M2, 0x04, 0x1p-14f},
                {WASTE_DTYPE_F8_E5M2, 0xBD, -1.25f},   {WASTE_DTYPE_F8_E5M2, 0x7C, INFINITY},
                {WASTE_DTYPE_F8_E5M2, 0xFC, -INFINITY}};
    size_t i;
    int b, nan = 0;
    (void)state;
    for (i = 0; i < sizeof want / sizeof *want; i++)
        assert_true(waste_fp8_value(want[i].dtype, want[i].byte) == want[i].value);
    for (b = 0; b < 256; b++) nan += isnan(waste_fp8_value(WASTE_DTYPE_F8_E4M3, (unsigned char)b));
    assert_int_equal(nan, 2); /* 7F and FF */
    assert_true(isnan(waste_fp8_value(WASTE_DTYPE_F8_E5M2, 0x7D)));
    assert_true(signbit(waste_fp8_value(WASTE_DTYPE_F8_E4M3, 0x80)));
    /* the positive codes ascend: no exponent or mantissa bit is swapped */
    for (b = 1; b < 0x7F; b++)
        assert_true(waste_fp8_value(WASTE_DTYPE_F8_E4M3, (unsigned char)b) >
                    waste_fp8_value(WASTE_DTYPE_F8_E4M3, (unsigned char)(b - 1)));
    for (b = 1; b < 0x7D; b++)
        assert_true(waste_fp8_value(WASTE_DTYPE_F8_E5M2, (unsigned char)b) >
                    waste_fp8_value(WASTE_DTYPE_F8_E5M2, (unsigned char)(b - 1)));
}

/* [3, 5] of ones in blocks of (2, 3), as in docs/convert.md 2.1. */
static void put_example(const char *config, const char *scale_shape, const char *dtype)
{
    unsigned char payload[15 + 1 + 16];
    const float scale[4] = {2, 3, 5, 7};
    char head[512];

    memset(payload, 0x38, 15);
    memcpy(payload + 16, scale, sizeof scale);
    snprintf(head, sizeof head,
             "{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,5],\"data_offsets\":[0,15]},"
             "\"x_scale_inv\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[16,32]}}",
             dtype, scale_shape);
    test_safetensors(dir, "model.safetensors", head, payload, sizeof payload);
    test_text(dir, "config.json", config);
}

#define BLOCKS "{\"quantization_config\":{\"weight_block_size\":[2,3]}}"

static void each_block_has_its_scale(void **state)
{
    waste_source *s;
    waste_weight w;
    waste_error err = {0};
    float x[15];
    int r, c, first;
    (void)state;
    put_example(BLOCKS, "[2,2]", "F32");
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_int_equal(waste_weight_find(s, "x", &w, &err), WASTE_OK);
    for (first = 0; first < 3; first++) { /* wherever reading starts */
        assert_int_equal(waste_weight_rows(s, &w, first, 3 - first, x, &err), WASTE_OK);
        for (r = first; r < 3; r++)
            for (c = 0; c < 5; c++)
                assert_true(x[(r - first) * 5 + c] == (r < 2   ? c < 3 ? 2.0f : 3.0f
                                                       : c < 3 ? 5.0f
                                                               : 7.0f));
    }
    waste_source_close(s);
}

static void refuse(const char *about)
{
    waste_source *s;
    waste_weight w;
    waste_error err = {0};
    waste_status st = waste_source_open(&s, dir, &err);

    if (!st) st = waste_weight_find(s, "x", &w, &err);
    waste_source_close(s);
    assert_true(st < 0);
    if (!strstr(err.text, about)) fail_msg("\"%s\" does not say \"%s\"", err.text, about);
}

static void refuses_what_blocks_do_not_fit(void **state)
{
    static const unsigned char payload[16] = {0};
    (void)state;
    put_example("{}", "[2,2]", "F32"); /* 128 x 128 */
    refuse("x_scale_inv is not [1, 1], a scale for each block of 128 x 128 of [3, 5]");
    put_example(BLOCKS, "[4,1]", "F32");
    refuse("x_scale_inv is not [2, 2]");
    put_example(BLOCKS, "[2,2]", "I32");
    refuse("tensor x_scale_inv is I32");
    put_example("{\"quantization_config\":{\"weight_block_size\":[0,3]}}", "[2,2]", "F32");
    refuse("weight_block_size");
    put_example("{\"quantization_config\":{\"weight_block_size\":128}}", "[2,2]", "F32");
    refuse("weight_block_size");
    test_text(dir, "config.json", "{}");
    test_safetensors(dir, "model.safetensors",
                     "{\"x\":{\"dtype\":\"F8_E5M2\",\"shape\":[4,4],\"data_offsets\":[0,16]}}",
                     payload, 16);
    refuse("tensor x is F8_E5M2 and has no x_scale_inv");
}

static void not_a_number_is_named(void **state)
{
    unsigned char payload[8] = {0x38, 0x38, 0x7F, 0x38, 0, 0, 0x80, 0x3F};
    waste_source *s;
    waste_weight w;
    waste_error err = {0};
    float x[4];
    (void)state;
    test_text(dir, "config.json", "{}");
    test_safetensors(dir, "model.safetensors",
                     "{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[0,4]},"
                     "\"x_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]}}",
                     payload, 8);
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_int_equal(waste_weight_find(s, "x", &w, &err), WASTE_OK);
    assert_int_equal(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_OK);
    assert_int_equal(waste_weight_rows(s, &w, 1, 1, x, &err), WASTE_FORMAT);
    assert_non_null(strstr(err.text, "tensor x holds a weight that is not finite"));
    waste_source_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_formats),
        cmocka_unit_test(each_block_has_its_scale),
        cmocka_unit_test(refuses_what_blocks_do_not_fit),
        cmocka_unit_test(not_a_number_is_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
