/* convert/vq_importance: what a file gives, and what is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/vq_importance.h"
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

/* Layers 1 and 2 of a model with 16 inputs and 8 rows. */
static waste_status open_text(waste_vq_importance **m, const char *text, waste_error *err)
{
    char path[300];

    test_text(dir, "importance.json", text);
    snprintf(path, sizeof path, "%s/importance.json", dir);
    memset(err, 0, sizeof *err);
    return waste_vq_importance_open(m, path, 1, 3, 16, 8, err);
}

#define ONES   "1,1,1,1,1,1,1,1"
#define DOWN   "\"down\":[" ONES "]"
#define SQUARE "16,1,1,1,1,1,1,1," ONES

static void weights_are_roots(void **state)
{
    waste_vq_importance *m;
    waste_vq_weights w;
    waste_error err;
    double sum = 0;
    int d;
    (void)state;
    if (open_text(&m, "{\"layers\":{\"2\":{\"gate_up\":[" SQUARE "]," DOWN "}}}", &err))
        fail_msg("%s", err.text);
    assert_int_equal(waste_vq_importance_get(m, 1, 0, &w), 0);
    assert_int_equal(waste_vq_importance_get(m, 2, 0, &w), 1);
    assert_true(fabsf(w.scale[0] / w.scale[1] - 4) < 1e-5f); /* of squared errors */
    assert_true(fabsf(w.g[0] / w.g[1] - 2) < 1e-5f);         /* of errors */
    for (d = 0; d < 8; d++) sum += (double)w.g[d] * (double)w.g[d];
    assert_true(fabs(sum - 8) < 1e-5);
    for (d = 8; d < 16; d++) assert_true(fabsf(w.g[d] - 1) < 1e-6f);
    assert_int_equal(waste_vq_importance_get(m, 2, 1, &w), 1);
    for (d = 0; d < 8; d++) assert_true(w.g[d] == 1);
    waste_vq_importance_close(m);
    assert_int_equal(waste_vq_importance_get(NULL, 2, 0, &w), 0);
    waste_vq_importance_close(NULL);
}

static void a_channel_that_is_never_used_weighs_something(void **state)
{
    waste_vq_importance *m;
    waste_vq_weights w;
    waste_error err;
    int d;
    (void)state;
    assert_int_equal(open_text(&m,
                               "{\"layers\":{\"1\":{\"gate_up\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"
                               "\"down\":[0,1e30,1,1,1,1,1,1]}}}",
                               &err),
                     WASTE_OK);
    waste_vq_importance_get(m, 1, 0, &w);
    for (d = 0; d < 16; d++) assert_true(w.g[d] == 1 && w.scale[d] == 1);
    waste_vq_importance_get(m, 1, 1, &w);
    for (d = 0; d < 8; d++) assert_true(w.g[d] > 0 && w.scale[d] > 0 && w.g[d] < 3);
    waste_vq_importance_close(m);
}

static void refuses_by_name(void **state)
{
    static const struct {
        const char *text, *about;
    } bad[] = {
        {"{}", "\"layers\""},
        {"[]", "\"layers\""},
        {"{\"layers\":[]}", "\"layers\""},
        {"{\"layers\":{\"0\":{}}}", "\"0\" is no layer with experts"},
        {"{\"layers\":{\"3\":{}}}", "\"3\" is no layer with experts"},
        {"{\"layers\":{\"1x\":{}}}", "\"1x\" is no layer"},
        {"{\"layers\":{\"1\":[]}}", "layer 1 is no object"},
        {"{\"layers\":{\"1\":{}}}", "\"gate_up\" of layer 1 is no list of 16 numbers"},
        {"{\"layers\":{\"1\":{\"gate_up\":[1,2]}}}", "\"gate_up\" of layer 1 is no list of 16"},
        {"{\"layers\":{\"1\":{\"gate_up\":[" SQUARE "],\"down\":7}}}", "\"down\" of layer 1"},
        {"{\"layers\":{\"1\":{\"gate_up\":[" SQUARE "],\"down\":[1,1,-1,1,1,1,1,1]}}}",
         "number 2 of \"down\" of layer 1"},
        {"{\"layers\":{\"1\":{\"gate_up\":[" SQUARE "],\"down\":[1,1,1e31,1,1,1,1,1]}}}",
         "number 2 of \"down\""},
        {"{\"layers\":{\"1\":{\"gate_up\":[" SQUARE "],\"down\":[1,1,\"x\",1,1,1,1,1]}}}",
         "number 2 of \"down\""},
        {"{\"layers\":{\"1\":{\"gate_up\":[" SQUARE "]," DOWN "},\"01\":{\"gate_up\":[" SQUARE
         "]," DOWN "}}}",
         "stands twice"},
        {"{\"layers\":", "importance.json"},
    };
    uint64_t before = waste_mem_used();
    waste_vq_importance *m;
    waste_error err;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(open_text(&m, bad[i].text, &err) < 0);
        assert_null(m);
        if (!strstr(err.text, bad[i].about))
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].about);
        if (!strstr(err.text, "importance.json")) fail_msg("\"%s\" names no file", err.text);
        assert_int_equal(waste_mem_used(), before);
    }
    memset(&err, 0, sizeof err);
    assert_true(waste_vq_importance_open(&m, "/no/such/file", 1, 3, 16, 8, &err) < 0);
    assert_non_null(strstr(err.text, "/no/such/file"));
}

static void memory_that_runs_out_is_given_back(void **state)
{
    uint64_t before = waste_mem_used(), n;
    waste_vq_importance *m;
    waste_error err;
    waste_status st;
    (void)state;
    for (n = 1;; n++) {
        waste_mem_fail_at(n, 1);
        st = open_text(&m, "{\"layers\":{\"2\":{\"gate_up\":[" SQUARE "]," DOWN "}}}", &err);
        waste_mem_fail_at(0, 0);
        if (st == WASTE_OK) break;
        assert_int_equal(st, WASTE_NOMEM);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 4);
    waste_vq_importance_close(m);
    assert_int_equal(waste_mem_used(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_roots),
        cmocka_unit_test(a_channel_that_is_never_used_weighs_something),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(memory_that_runs_out_is_given_back),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
