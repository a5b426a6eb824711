/* store/tensors: handles, loading, single rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "store/tensors.h"

static fixture box;
static waste_manifest *manifest;

static int setup(void **state)
{
    waste_error e = {0};
    (void)state;
    fixture_make(&box);
    return waste_manifest_open(&manifest, box.dir, &e);
}

static int teardown(void **state)
{
    (void)state;
    waste_manifest_close(manifest);
    fixture_remove(&box);
    return 0;
}

static waste_tensors *opened(void)
{
    waste_error e = {0};
    waste_tensors *t;

    assert_int_equal(waste_tensors_open(&t, manifest, &e), WASTE_OK);
    return t;
}

static void loads_what_was_asked_for(void **state)
{
    waste_error e = {0};
    waste_tensors *t = opened();
    const waste_tensor *head, *again;
    const float *norm, *conv;
    uint16_t scale;
    (void)state;
    assert_int_equal(waste_tensors_vector(t, "t.model.norm.weight", 16, 1, &norm, &e), WASTE_OK);
    assert_int_equal(waste_tensors_matrix(t, "t.lm_head.weight", 20, 16, 0, &head, &e), WASTE_OK);
    assert_int_equal(waste_tensors_matrix(t, "t.lm_head.weight", 20, 16, 1, &again, &e), WASTE_OK);
    assert_int_equal(waste_tensors_vector(t, "t.conv.weight", 7, 0, &conv, &e), WASTE_OK);
    assert_ptr_equal(head, again);
    assert_null(norm);
    assert_null(head->data);
    assert_int_equal(waste_tensors_load(t, NULL, NULL, &e), WASTE_OK);
    assert_true(norm[0] == 0 && norm[15] == 15);
    assert_true(conv[7] == 7);
    assert_non_null(head->data); /* one of the two wanted it resident */
    assert_int_equal(head->row_bytes, 8);
    assert_int_equal(head->n_groups, 1);
    assert_int_equal(((const unsigned char *)head->data)[19 * 8 + 1], 0xBA);
    memcpy(&scale, head->scales + 19, sizeof scale);
    assert_int_equal(scale, 0x3800);
    assert_int_equal((uintptr_t)head->data % 64, 0);
    assert_int_equal((uintptr_t)head->scales % 64, 0);
    assert_int_equal((uintptr_t)norm % 64, 0);
    waste_tensors_close(t);
}

/* The head lies outside the file now: nobody asked for it, nobody notices. */
static void leaves_the_rest_of_the_trunk_alone(void **state)
{
    waste_error e = {0};
    waste_tensors *t = opened();
    const float *norm;
    const waste_tensor *head;
    (void)state;
    assert_int_equal(truncate(fixture_path(&box, "trunk.bin"), 424), 0);
    assert_int_equal(waste_tensors_vector(t, "t.model.norm.weight", 16, 1, &norm, &e), WASTE_OK);
    assert_int_equal(waste_tensors_load(t, NULL, NULL, &e), WASTE_OK);
    waste_tensors_close(t);

    t = opened();
    assert_int_equal(waste_tensors_matrix(t, "t.lm_head.weight", 20, 16, 0, &head, &e), WASTE_OK);
    assert_int_equal(waste_tensors_load(t, NULL, NULL, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "t.lm_head.weight"));
    assert_non_null(strstr(e.text, "trunk.bin"));
    waste_tensors_close(t);
    fixture_trunk(&box);
}

static waste_status row_of(const waste_tensors *t, const waste_tensor *x, int32_t row, float *to,
                           waste_error *e)
{
    return waste_tensors_rows(t, x, &row, 1, to, NULL, e);
}

static void rows_come_from_disk_and_memory_alike(void **state)
{
    waste_error e = {0};
    waste_tensors *t = opened();
    const waste_tensor *table, *head;
    float row[16];
    uint64_t used;
    (void)state;
    assert_int_equal(waste_tensors_matrix(t, "t.model.embed_tokens.weight", 20, 16, 1, &table, &e),
                     WASTE_OK);
    assert_int_equal(waste_tensors_matrix(t, "t.lm_head.weight", 20, 16, 0, &head, &e), WASTE_OK);
    assert_int_equal(waste_tensors_load(t, NULL, NULL, &e), WASTE_OK);
    assert_null(table->data);
    used = waste_mem_used();
    assert_int_equal(row_of(t, table, 19, row, &e), WASTE_OK);
    assert_true(row[0] == 38 && row[15] == 68); /* (r + c) * 2 on an odd row */
    assert_int_equal(row_of(t, table, 4, row, &e), WASTE_OK);
    assert_true(row[0] == 4 && row[15] == 19);
    assert_int_equal(row_of(t, head, 3, row, &e), WASTE_OK);
    assert_true(row[0] == 0 && row[1] == 0.5f && row[15] == 3.5f);
    assert_int_equal(waste_mem_used(), used);
    assert_int_equal(row_of(t, table, 20, row, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(row_of(t, table, -1, row, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(truncate(fixture_path(&box, "trunk.bin"), 100), 0);
    assert_int_equal(row_of(t, table, 19, row, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "row 19 of tensor t.model.embed_tokens.weight"));
    fixture_trunk(&box);
    waste_tensors_close(t);
}

static void an_f32_table_is_resident(void **state)
{
    waste_error e = {0};
    waste_manifest *m;
    waste_tensors *t;
    const waste_tensor *x;
    float row[4];
    (void)state;
    fixture_edit(&box, "{\"name\": \"vision.x\", \"off\": 656, \"shape\": [2]}",
                 "{\"name\": \"x\", \"off\": 360, \"shape\": [4, 4]}");
    assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_OK);
    assert_int_equal(waste_tensors_open(&t, m, &e), WASTE_OK);
    assert_int_equal(waste_tensors_matrix(t, "x", 4, 4, 1, &x, &e), WASTE_OK);
    assert_int_equal(waste_tensors_load(t, NULL, NULL, &e), WASTE_OK);
    assert_non_null(x->data);
    assert_int_equal(row_of(t, x, 2, row, &e), WASTE_OK);
    assert_true(row[0] == 8 && row[3] == 11);
    waste_tensors_close(t);
    waste_manifest_close(m);
    fixture_reset(&box);
}

#define LARGE_ROWS 1200
#define LARGE_COLS 1001
#define LARGE_AT   660 /* inside a block */

/* Counts what it is given, and leaves its mark. */
static void mark_rows(void *ctx, int thread, waste_tensor *rows)
{
    _Atomic int64_t *n = ctx;

    assert_true(thread >= 0 && thread < 3);
    assert_int_equal((int64_t) * (const float *)rows->data % 64, 0); /* the number of its row */
    *n += rows->rows;
    rows->tiled = 1;
}

/* Several slices, each more than a buffer's worth and none at a block's border. */
static void large_tensors_are_the_same_however_they_are_read(void **state)
{
    const size_t bytes = (size_t)LARGE_ROWS * LARGE_COLS * sizeof(float);
    float *want = malloc(bytes);
    FILE *f;
    int64_t i;
    int k;
    (void)state;

    for (i = 0; i < (int64_t)LARGE_ROWS * LARGE_COLS; i++)
        want[i] = (float)(i % LARGE_COLS ? i % 8191 : i / LARGE_COLS);
    f = fopen(fixture_path(&box, "trunk.bin"), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, LARGE_AT, SEEK_SET), 0);
    assert_int_equal(fwrite(want, 1, bytes, f), bytes);
    assert_int_equal(fwrite("the end", 1, 7, f), 7);
    assert_int_equal(fclose(f), 0);
    fixture_edit(&box, "{\"name\": \"vision.x\", \"off\": 656, \"shape\": [2]}",
                 "{\"name\": \"x\", \"off\": 660, \"shape\": [1200, 1001]}");
    for (k = 0; k < 8; k++) {
        _Atomic int64_t rows = 0;
        const waste_tensors_how how = {k & 1 ? 3 : 1, k & 2, mark_rows, &rows};
        waste_error e = {0};
        waste_manifest *m;
        waste_tensors *t;
        const waste_tensor *x;

        assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_OK);
        assert_int_equal(waste_tensors_open(&t, m, &e), WASTE_OK);
        assert_int_equal(waste_tensors_matrix(t, "x", LARGE_ROWS, LARGE_COLS, 0, &x, &e), WASTE_OK);
        if (k & 4) waste_tensors_arrange(t, x);
        assert_int_equal(waste_tensors_load(t, &how, NULL, &e), WASTE_OK);
        assert_memory_equal(x->data, want, bytes);
        assert_int_equal(rows, k & 4 ? LARGE_ROWS : 0);
        assert_int_equal(x->tiled, k & 4 ? 1 : 0);
        waste_tensors_close(t);
        waste_manifest_close(m);
    }
    free(want);
    fixture_reset(&box);
    fixture_trunk(&box);
}

static int at_once(void *ctx)
{
    ++*(int *)ctx;
    return 1;
}

static void loading_asks_whether_to_stop(void **state)
{
    int asked = 0;
    const waste_cancel cancel = {at_once, &asked};
    waste_error e = {0};
    waste_tensors *t = opened();
    const waste_tensor *head;
    (void)state;
    assert_int_equal(waste_tensors_matrix(t, "t.lm_head.weight", 20, 16, 0, &head, &e), WASTE_OK);
    assert_int_equal(waste_tensors_load(t, NULL, &cancel, &e), WASTE_CANCELLED);
    assert_int_equal(asked, 1);
    waste_tensors_close(t);
}

static void wrong_tensors_are_named(void **state)
{
    waste_error e = {0};
    waste_tensors *t = opened();
    const waste_tensor *x;
    const float *v;
    (void)state;
    assert_true(waste_tensors_has(t, "t.conv.weight"));
    assert_false(waste_tensors_has(t, "t.conv"));
    assert_int_equal(waste_tensors_matrix(t, "t.nothing", 1, 1, 0, &x, &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "t.nothing is missing"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_tensors_matrix(t, "t.lm_head.weight", 21, 16, 0, &x, &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "t.lm_head.weight has shape [20, 16], wanted [21, 16]"));
    assert_non_null(strstr(e.text, "manifest.json"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_tensors_matrix(t, "t.conv.weight", 4, 2, 0, &x, &e), WASTE_FORMAT);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_tensors_vector(t, "t.lm_head.weight", 320, 0, &v, &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "fmt 3"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_tensors_vector(t, "t.conv.weight", 7, 1, &v, &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "[4, 1, 2], wanted 7 elements"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_tensors_vector(t, "t.conv.weight", 9, 0, &v, &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "at least 9"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_tensors_load(t, NULL, NULL, &e),
                     WASTE_OK); /* nothing wanted, nothing read */
    assert_int_equal(waste_tensors_load(t, NULL, NULL, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_tensors_vector(t, "t.conv.weight", 8, 1, &v, &e), WASTE_ARG);
    waste_tensors_close(t);
}

static waste_status open_and_load(waste_tensors **t)
{
    waste_error e = {0};
    const waste_tensor *head;
    const float *norm;
    float row[16];
    waste_status st = waste_tensors_open(t, manifest, &e);

    if (!st) st = waste_tensors_vector(*t, "t.model.norm.weight", 16, 1, &norm, &e);
    if (!st) st = waste_tensors_matrix(*t, "t.model.embed_tokens.weight", 20, 16, 1, &head, &e);
    if (!st) st = waste_tensors_load(*t, NULL, NULL, &e);
    if (!st) st = row_of(*t, head, 0, row, &e);
    return st;
}

static void failed_allocations_leave_nothing(void **state)
{
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;
    for (n = 1; st != WASTE_OK; n++) {
        waste_tensors *t;
        waste_mem_fail_at(n, 1);
        st = open_and_load(&t);
        waste_mem_fail_at(0, 0);
        assert_int_equal(st, st ? WASTE_NOMEM : WASTE_OK);
        waste_tensors_close(t);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_what_was_asked_for),
        cmocka_unit_test(leaves_the_rest_of_the_trunk_alone),
        cmocka_unit_test(rows_come_from_disk_and_memory_alike),
        cmocka_unit_test(an_f32_table_is_resident),
        cmocka_unit_test(large_tensors_are_the_same_however_they_are_read),
        cmocka_unit_test(loading_asks_whether_to_stop),
        cmocka_unit_test(wrong_tensors_are_named),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
