/* convert/safetensors: what a header may say, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/safetensors.h"
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

static waste_status open_it(waste_safetensors **s, waste_error *err)
{
    char path[512];

    memset(err, 0, sizeof *err);
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    return waste_safetensors_open(s, path, err);
}

/* The header over 16 bytes of payload is refused, and the message says why. */
static void refuse(const char *head, waste_status want, const char *about)
{
    waste_safetensors *s;
    waste_error err;

    test_safetensors(dir, "a.safetensors", head, "0123456789abcdef", 16);
    assert_int_equal(open_it(&s, &err), want);
    assert_null(s);
    assert_non_null(strstr(err.text, "a.safetensors"));
    if (!strstr(err.text, about)) fail_msg("\"%s\" does not say \"%s\"", err.text, about);
}

static void finds_tensors_and_reads_ranges(void **state)
{
    waste_safetensors *s;
    const waste_st_tensor *t;
    waste_error err;
    char got[8] = {0};
    (void)state;
    test_safetensors(dir, "a.safetensors",
                     "{\"__metadata__\":{\"format\":\"pt\"},"
                     "\"z\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                     "\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]},"
                     "\"s\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[16,16]}}   ",
                     "0123456789abcdef", 16);
    assert_int_equal(open_it(&s, &err), WASTE_OK);
    assert_int_equal(waste_safetensors_count(s), 3);
    assert_string_equal(waste_safetensors_at(s, 0)->name, "a");
    assert_string_equal(waste_safetensors_at(s, 2)->name, "z");
    assert_null(waste_safetensors_find(s, "__metadata__"));
    t = waste_safetensors_find(s, "a");
    assert_non_null(t);
    assert_int_equal(t->dtype, WASTE_DTYPE_BF16);
    assert_int_equal(t->dims, 1);
    assert_int_equal(t->shape[0], 4);
    assert_int_equal(waste_safetensors_read(t, 2, got, 6, &err), WASTE_OK);
    assert_memory_equal(got, "abcdef", 6);
    assert_int_equal(waste_safetensors_read(t, 2, got, 7, &err), WASTE_ARG);
    assert_non_null(strstr(err.text, "not inside tensor a"));
    waste_safetensors_close(s);
}

static void refuses_headers_that_lie_about_the_payload(void **state)
{
    (void)state;
    refuse("{\"w\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}", WASTE_FORMAT,
           "tensor w has bytes 0 to 20 of a payload of 16");
    refuse("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", WASTE_FORMAT,
           "bytes 8 to 0");
    refuse("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", WASTE_FORMAT,
           "bytes -8 to 0");
    refuse("{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", WASTE_FORMAT,
           "its dtype F32 and shape need 12");
    refuse("{\"v\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]},"
           "\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
           WASTE_FORMAT, "tensors v and w overlap");
    refuse("{\"w\":{\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],"
           "\"data_offsets\":[0,16]}}",
           WASTE_FORMAT, "too large");
}

static void refuses_malformed_entries(void **state)
{
    (void)state;
    refuse("[]", WASTE_FORMAT, "not an object");
    refuse("{", WASTE_FORMAT, "not valid JSON");
    refuse("{\"w\":1}", WASTE_FORMAT, "tensor w has no dtype");
    refuse("{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", WASTE_FORMAT,
           "shape of tensor w");
    refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,16],\"data_offsets\":[0,16]}}",
           WASTE_FORMAT, "shape of tensor w");
    refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,16]}}", WASTE_FORMAT,
           "dimension 0 of tensor w");
    refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,16]}}", WASTE_FORMAT,
           "dimension 0 of tensor w");
    refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[16]}}", WASTE_FORMAT, "data_offsets of tensor w");
    refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0]}}", WASTE_FORMAT,
           "data_offsets of tensor w");
    refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},"
           "\"w\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}",
           WASTE_FORMAT, "duplicate");
    refuse("{\"\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}", WASTE_FORMAT,
           "name");
}

static void refuses_headers_longer_than_the_file(void **state)
{
    static const unsigned char huge[9] = {255, 255, 255, 255, 255, 255, 255, 255, '{'};
    static const unsigned char more[10] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    waste_safetensors *s;
    waste_error err;
    (void)state;
    test_write(dir, "a.safetensors", huge, sizeof huge);
    assert_int_equal(open_it(&s, &err), WASTE_FORMAT);
    assert_non_null(strstr(err.text, "a header of 18446744073709551615 bytes"));
    test_write(dir, "a.safetensors", more, sizeof more);
    assert_int_equal(open_it(&s, &err), WASTE_FORMAT);
    test_write(dir, "a.safetensors", more, 7);
    assert_int_equal(open_it(&s, &err), WASTE_FORMAT);
    assert_non_null(strstr(err.text, "too few"));
}

static void keeps_tensors_it_cannot_decode(void **state)
{
    waste_safetensors *s;
    waste_error err;
    (void)state;
    test_safetensors(dir, "a.safetensors",
                     "{\"w\":{\"dtype\":\"F8_E8M0\",\"shape\":[16],\"data_offsets\":[0,16]}}",
                     "0123456789abcdef", 16);
    assert_int_equal(open_it(&s, &err), WASTE_OK);
    assert_int_equal(waste_safetensors_at(s, 0)->dtype, WASTE_DTYPE_OTHER);
    assert_string_equal(waste_safetensors_at(s, 0)->dtype_name, "F8_E8M0");
    waste_safetensors_close(s);
}

static void leaves_nothing_behind_when_memory_runs_out(void **state)
{
    waste_safetensors *s = NULL;
    waste_error err;
    uint64_t n, before = waste_mem_used();
    (void)state;
    test_safetensors(dir, "a.safetensors",
                     "{\"v\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
                     "\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
                     "0123456789abcdef", 16);
    for (n = 1; n < 200; n++) {
        waste_mem_fail_at(n, 1);
        waste_status st = open_it(&s, &err);
        waste_mem_fail_at(0, 0);
        if (!st) break;
        assert_null(s);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_in_range(n, 5, 199);
    waste_safetensors_close(s);
    assert_int_equal(waste_mem_used(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_tensors_and_reads_ranges),
        cmocka_unit_test(refuses_headers_that_lie_about_the_payload),
        cmocka_unit_test(refuses_malformed_entries),
        cmocka_unit_test(refuses_headers_longer_than_the_file),
        cmocka_unit_test(keeps_tensors_it_cannot_decode),
        cmocka_unit_test(leaves_nothing_behind_when_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
