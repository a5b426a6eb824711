/* convert/source: shards by index, MXFP4 pairs, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/source.h"
#include "lib/checkpoint.h"

static char dir[256];

static int make_dir(void **state)
{
    (void)state;
    test_dir(dir);
    test_text(dir, "config.json", "{}");
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    test_dir_remove(dir);
    return 0;
}

static void expect(waste_status got, waste_status want, waste_error *err, const char *about)
{
    assert_int_equal(got, want);
    if (!strstr(err->text, about)) fail_msg("\"%s\" does not say \"%s\"", err->text, about);
    memset(err, 0, sizeof *err);
}

static void single(const char *head, const void *payload, size_t n)
{
    test_safetensors(dir, "model.safetensors", head, payload, n);
}

static void decodes_plain_dtypes(void **state)
{
    static const unsigned char payload[12] = {0,    0,    0xC0, 0x3F, 0xC0, 0xBF,
                                              0x01, 0x00, 0,    0,    0,    0x80};
    waste_source *s;
    waste_weight w;
    waste_error err = {0};
    float x[2];
    (void)state;
    single("{\"f\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
           "\"b\":{\"dtype\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[4,6]},"
           "\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[6,8]}}",
           payload, 8);
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_int_equal(waste_weight_find(s, "f", &w, &err), WASTE_OK);
    assert_int_equal(w.dims, 1);
    assert_int_equal(w.rows * w.cols, 1);
    assert_int_equal(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_OK);
    assert_true(x[0] == 1.5f);
    assert_int_equal(waste_weight_find(s, "b", &w, &err), WASTE_OK);
    assert_int_equal(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_OK);
    assert_true(x[0] == -1.5f);
    assert_int_equal(waste_weight_find(s, "h", &w, &err), WASTE_OK);
    assert_int_equal(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_OK);
    assert_true(x[0] == 0x1p-24f);
    expect(waste_weight_find(s, "none", &w, &err), WASTE_FORMAT, &err, "no tensor none");
    waste_source_close(s);
}

/* Byte 0x2B at scale 1/2 (docs/convert.md 2.2), and every code at scale 1. */
static void decodes_mxfp4_pairs(void **state)
{
    static const float magnitude[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    unsigned char payload[2 * 16 + 2];
    waste_source *s;
    waste_weight w;
    waste_error err = {0};
    float x[32];
    int i;
    (void)state;
    memset(payload, 0x2B, 16);
    for (i = 0; i < 16; i++) payload[16 + i] = (unsigned char)(i | (15 - i) << 4);
    payload[32] = 0x7E;
    payload[33] = 127;
    single("{\"x.weight_packed\":{\"dtype\":\"U8\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
           "\"x.weight_scale\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[32,34]}}",
           payload, sizeof payload);
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_true(waste_source_has(s, "x.weight"));
    assert_int_equal(waste_weight_find(s, "x.weight", &w, &err), WASTE_OK);
    assert_int_equal(w.rows, 2);
    assert_int_equal(w.cols, 32);
    assert_int_equal(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_OK);
    for (i = 0; i < 32; i += 2) assert_true(x[i] == -0.75f && x[i + 1] == 0.5f);
    assert_int_equal(waste_weight_rows(s, &w, 1, 1, x, &err), WASTE_OK);
    for (i = 0; i < 16; i++) {
        assert_true(x[2 * i] == (i & 8 ? -1.0f : 1.0f) * magnitude[i & 7]);
        assert_true(x[2 * i + 1] == ((15 - i) & 8 ? -1.0f : 1.0f) * magnitude[(15 - i) & 7]);
    }
    waste_source_close(s);

    /* e = 0 is zero, not 2^-127; e = 254 is the largest scale */
    payload[32] = 0;
    payload[33] = 254;
    single("{\"x.weight_packed\":{\"dtype\":\"U8\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
           "\"x.weight_scale\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[32,34]}}",
           payload, sizeof payload);
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_int_equal(waste_weight_find(s, "x.weight", &w, &err), WASTE_OK);
    assert_int_equal(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_OK);
    for (i = 0; i < 32; i++) assert_true(x[i] == 0);
    expect(waste_weight_rows(s, &w, 1, 1, x, &err), WASTE_FORMAT, &err, "not finite");
    waste_source_close(s);
}

static void refuses_what_mxfp4_does_not_allow(void **state)
{
    unsigned char payload[34];
    waste_source *s;
    waste_weight w;
    waste_error err = {0};
    float x[64];
    (void)state;
    memset(payload, 0, sizeof payload);
    payload[33] = 255;
    single("{\"x_packed\":{\"dtype\":\"U8\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
           "\"x_scale\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[32,34]},"
           "\"y_packed\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
           "\"z_packed\":{\"dtype\":\"U8\",\"shape\":[0,16],\"data_offsets\":[0,0]},"
           "\"z_scale\":{\"dtype\":\"U8\",\"shape\":[0,2],\"data_offsets\":[0,0]},"
           "\"i_packed\":{\"dtype\":\"I32\",\"shape\":[0,16],\"data_offsets\":[0,0]},"
           "\"i_scale\":{\"dtype\":\"BF16\",\"shape\":[0,2],\"data_offsets\":[0,0]}}",
           payload, sizeof payload);
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_int_equal(waste_weight_find(s, "x", &w, &err), WASTE_OK);
    assert_int_equal(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_OK);
    expect(waste_weight_rows(s, &w, 0, 2, x, &err), WASTE_FORMAT, &err, "x_scale has a scale");
    expect(waste_weight_find(s, "y", &w, &err), WASTE_FORMAT, &err, "y_packed has no y_scale");
    expect(waste_weight_find(s, "z", &w, &err), WASTE_FORMAT, &err, "[rows, cols/32]");
    expect(waste_weight_find(s, "i", &w, &err), WASTE_UNSUPPORTED, &err, "i_packed is I32");
    waste_source_close(s);
}

static void names_tensors_that_cannot_be_used(void **state)
{
    static const unsigned char payload[16] = {0, 0, 0x80, 0x7F, 0, 0, 0xC0, 0xFF};
    waste_source *s;
    waste_weight w;
    waste_error err = {0};
    float x[4];
    (void)state;
    single("{\"inf\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"nan\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
           "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,2],\"data_offsets\":[8,16]},"
           "\"none\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[16,16]},"
           "\"five\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,0],\"data_offsets\":[16,16]}}",
           payload, sizeof payload);
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_int_equal(waste_weight_find(s, "inf", &w, &err), WASTE_OK);
    expect(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_FORMAT, &err, "tensor inf");
    assert_int_equal(waste_weight_find(s, "nan", &w, &err), WASTE_OK);
    expect(waste_weight_rows(s, &w, 0, 1, x, &err), WASTE_FORMAT, &err, "tensor nan");
    expect(waste_weight_find(s, "f8", &w, &err), WASTE_FORMAT, &err,
           "tensor f8 is F8_E4M3 and has no f8_scale_inv");
    expect(waste_weight_find(s, "none", &w, &err), WASTE_FORMAT, &err, "dimension 0 of tensor");
    expect(waste_weight_find(s, "five", &w, &err), WASTE_FORMAT, &err, "5 dimensions");
    waste_source_close(s);
}

#define ONE "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"

static void shard(const char *file, const char *tensor)
{
    char head[256];

    snprintf(head, sizeof head, ONE, tensor);
    test_safetensors(dir, file, head, "x", 1);
}

static void index_is(const char *map)
{
    char text[1024];

    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":2},\"weight_map\":%s}", map);
    test_text(dir, "model.safetensors.index.json", text);
}

static void follows_the_index(void **state)
{
    waste_source *s;
    waste_error err = {0};
    (void)state;
    shard("one.safetensors", "b");
    shard("two.safetensors", "a");
    index_is("{\"b\":\"one.safetensors\",\"a\":\"two.safetensors\"}");
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    assert_int_equal(waste_source_count(s), 2);
    assert_string_equal(waste_source_at(s, 0)->name, "a");
    assert_non_null(strstr(waste_safetensors_path(waste_source_find(s, "b")->file), "one."));
    assert_null(waste_source_find(s, "x")); /* what the index does not name is not there */
    waste_source_close(s);

    index_is("{\"b\":\"two.safetensors\",\"a\":\"two.safetensors\"}");
    expect(waste_source_open(&s, dir, &err), WASTE_FORMAT, &err, "tensor b is not in");
    index_is("{\"b\":\"nine.safetensors\",\"a\":\"two.safetensors\"}");
    expect(waste_source_open(&s, dir, &err), WASTE_IO, &err,
           "nine.safetensors is missing (1 of 2 shards");
    index_is("{\"b\":\"../one.safetensors\"}");
    expect(waste_source_open(&s, dir, &err), WASTE_FORMAT, &err, "shard of b is not a file name");
    index_is("{\"b\":7}");
    expect(waste_source_open(&s, dir, &err), WASTE_FORMAT, &err, "shard of b is not a file name");
    index_is("{}");
    expect(waste_source_open(&s, dir, &err), WASTE_FORMAT, &err, "names no tensors");
    index_is("[]");
    expect(waste_source_open(&s, dir, &err), WASTE_FORMAT, &err, "weight_map");
}

static void leaves_unfinished_downloads_alone(void **state)
{
    waste_source *s;
    waste_error err = {0};
    (void)state;
    index_is("{\"b\":\"one.safetensors\",\"a\":\"two.safetensors\"}");
    test_text(dir, ".download-state", "one.safetensors\r\n");
    expect(waste_source_open(&s, dir, &err), WASTE_FORMAT, &err,
           "two.safetensors is not listed in .download-state");
    test_text(dir, ".download-state", "two.safetensors\none.safetensors");
    assert_int_equal(waste_source_open(&s, dir, &err), WASTE_OK);
    waste_source_close(s);
}

static void says_what_is_missing(void **state)
{
    waste_source *s;
    waste_error err = {0};
    char empty[256], path[512];
    (void)state;
    test_dir(empty);
    expect(waste_source_open(&s, empty, &err), WASTE_IO, &err, "config.json");
    test_text(empty, "config.json", "[]");
    expect(waste_source_open(&s, empty, &err), WASTE_FORMAT, &err, "not a JSON object");
    test_text(empty, "config.json", "{}");
    expect(waste_source_open(&s, empty, &err), WASTE_IO, &err,
           "neither model.safetensors.index.json nor model.safetensors");
    snprintf(path, sizeof path, "%s/config.json", empty);
    expect(waste_source_open(&s, path, &err), WASTE_IO, &err, "is not a directory");
    assert_null(s);
    test_dir_remove(empty);
}

static void leaves_nothing_behind_when_memory_runs_out(void **state)
{
    waste_source *s = NULL;
    uint64_t n, before = waste_mem_used();
    (void)state;
    for (n = 1; n < 1000; n++) {
        waste_error err = {0};
        waste_mem_fail_at(n, 1);
        waste_status st = waste_source_open(&s, dir, &err);
        waste_mem_fail_at(0, 0);
        if (!st) break;
        assert_null(s);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_in_range(n, 10, 999);
    waste_source_close(s);
    assert_int_equal(waste_mem_used(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_plain_dtypes),
        cmocka_unit_test(decodes_mxfp4_pairs),
        cmocka_unit_test(refuses_what_mxfp4_does_not_allow),
        cmocka_unit_test(names_tensors_that_cannot_be_used),
        cmocka_unit_test(follows_the_index),
        cmocka_unit_test(leaves_unfinished_downloads_alone),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(leaves_nothing_behind_when_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
