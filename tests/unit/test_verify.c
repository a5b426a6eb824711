/* verify: a sound container has no findings, and every kind of damage is one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/plat.h"
#include "lib/checkpoint.h"

static char source[256], target[300];

static int make_container(void **state)
{
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    (void)state;
    test_dir(source);
    snprintf(target, sizeof target, "%s.waste", source);
    ckpt_model(source, CKPT_NESTED | CKPT_PACKED, NULL);
    if (waste_convert_open(&c, source, target, NULL, &err)) return -1;
    while (waste_convert_next(c, &row, &err) == WASTE_OK) continue;
    waste_convert_close(c);
    return err.status;
}

static int remove_dirs(void **state)
{
    (void)state;
    test_dir_remove(source);
    test_dir_remove(target);
    return 0;
}

/* Rows that are not ok; the last of them in *bad. */
static int findings(const char *with, waste_verify_row *bad, int *rows)
{
    waste_verify *v;
    waste_verify_row row;
    waste_error err = {0};
    waste_status st;
    int n = 0;

    *rows = 0;
    if (waste_verify_open(&v, target, with, NULL, &err)) fail_msg("%s", err.text);
    while ((st = waste_verify_next(v, &row, &err)) == WASTE_OK) {
        ++*rows;
        if (row.ok) continue;
        *bad = row;
        bad->name = NULL;
        n++;
    }
    if (st != WASTE_DONE) fail_msg("%s", err.text);
    waste_verify_close(v);
    return n;
}

static void a_sound_container_has_none(void **state)
{
    waste_verify *v;
    waste_verify_row row, bad;
    waste_error err = {0};
    int n, tensors = 0, records = 0;
    (void)state;
    assert_int_equal(findings(NULL, &bad, &n), 0);
    assert_int_equal(findings(source, &bad, &n), 0);
    assert_int_equal(waste_verify_open(&v, target, source, NULL, &err), WASTE_OK);
    assert_int_equal(waste_verify_next(v, &row, &err), WASTE_OK);
    assert_string_equal(row.part, "census");
    assert_non_null(strstr(row.note, "3 layers, 2 of them with 4 experts each, 8 records"));
    while (waste_verify_next(v, &row, &err) == WASTE_OK) {
        if (strcmp(row.part, "tensor") == 0) {
            tensors++;
            assert_non_null(row.name);
            assert_true(row.error >= 0 && row.error < 0.2);
            assert_int_equal(row.layer, -1);
        } else if (strcmp(row.part, "record") == 0) {
            records++;
            assert_true(row.error > 0.05 && row.error < 0.3);
            assert_true(row.gate > 0.05 && row.up > 0.05 && row.down > 0.05);
            assert_in_range(row.layer, 1, 2);
            assert_in_range(row.expert, 0, 3);
        }
    }
    waste_verify_close(v);
    assert_int_equal(records, 8);
    assert_int_equal(tensors + records + 2 + 1, n);
}

/* One byte of one file changed (with < 0: set to -with), and what is said of it. */
static void damage(const char *name, long at, int with, const char *part, const char *about)
{
    char path[600];
    waste_verify_row bad = {0};
    FILE *f;
    int c, rows;

    snprintf(path, sizeof path, "%s/%s", target, name);
    f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(with < 0 ? -with : c ^ with, f);
    fclose(f);
    assert_int_equal(findings(NULL, &bad, &rows), 1);
    assert_string_equal(bad.part, part);
    if (!strstr(bad.note, about)) fail_msg("\"%s\" does not say \"%s\"", bad.note, about);
    f = fopen(path, "r+b");
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    fputc(c, f);
    fclose(f);
    assert_int_equal(findings(NULL, &bad, &rows), 0);
}

static void damage_is_found(void **state)
{
    (void)state;
    damage("experts-L1.bin", 0, 1, "record", "layer 1, expert 0: record header has magic");
    damage("experts-L1.bin", 6, 1, "record", "expert_id");
    damage("experts-L2.bin", 12, 1, "record", "lowrank_id");
    damage("experts-L2.bin", 49, 128, "record", "layer 2, expert 0: the checksum does not fit");
    damage("codebooks.bin", 0, 1, "codebooks", "the header of codebook 0");
    damage("codebooks.bin", 8, 1, "codebooks", "the header of codebook 0");
    damage("codebooks.bin", 17, -0x7C, "codebooks", "codebook 0 holds a number that is not finite");
}

static void another_source_is_found(void **state)
{
    char other[256];
    waste_verify_row bad = {0};
    int n, rows;
    (void)state;
    test_dir(other);
    ckpt_model(other, CKPT_NESTED, NULL); /* the same shapes, other experts */
    n = findings(other, &bad, &rows);
    assert_true(n >= 8);
    assert_string_equal(bad.part, "record");
    if (!strstr(bad.note, "relative error")) fail_msg("%s", bad.note);
    test_dir_remove(other);
}

static void what_is_no_container_is_said(void **state)
{
    char path[600], *manifest;
    waste_verify *v;
    waste_verify_row bad = {0};
    waste_error err = {0};
    size_t n;
    int rows;
    (void)state;
    assert_int_equal(waste_verify_open(&v, "/no/where", NULL, NULL, &err), WASTE_IO);
    assert_non_null(strstr(err.text, "/no/where"));
    memset(&err, 0, sizeof err);
    assert_int_equal(waste_verify_open(&v, target, "/no/source", NULL, &err), WASTE_IO);
    assert_null(v);
    snprintf(path, sizeof path, "%s/manifest.json", target);
    assert_int_equal(waste_file_load(path, 1 << 26, &manifest, &n, NULL), WASTE_OK);
    test_write(target, "manifest.json", manifest, n - 20);
    assert_int_equal(findings(NULL, &bad, &rows), 1);
    assert_int_equal(rows, 1);
    assert_string_equal(bad.part, "census");
    test_write(target, "manifest.json", manifest, n);
    waste_mem_free(manifest);
    waste_verify_close(NULL);
}

static int yes(void *ctx)
{
    return --*(int *)ctx < 0;
}

static void stops_when_asked_and_survives_want_of_memory(void **state)
{
    int left = 5;
    const waste_cancel cancel = {yes, &left};
    const uint64_t before = waste_mem_used();
    waste_verify *v;
    waste_verify_row row;
    waste_error err = {0};
    waste_status st;
    uint64_t n;
    (void)state;
    assert_int_equal(waste_verify_open(&v, target, source, &cancel, &err), WASTE_OK);
    while ((st = waste_verify_next(v, &row, &err)) == WASTE_OK) continue;
    waste_verify_close(v);
    assert_int_equal(st, WASTE_CANCELLED);
    for (n = 1; n < 100000; n += n < 60 ? 1 : n / 8) {
        memset(&err, 0, sizeof err);
        waste_mem_fail_at(n, 1);
        st = waste_verify_open(&v, target, source, NULL, &err);
        while (!st) st = waste_verify_next(v, &row, &err);
        waste_verify_close(v);
        waste_mem_fail_at(0, 0);
        assert_int_equal(waste_mem_used(), before);
        if (st == WASTE_DONE) break;
        assert_int_equal(st, WASTE_NOMEM);
    }
    assert_in_range(n, 20, 99999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_container_has_none),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(another_source_is_found),
        cmocka_unit_test(what_is_no_container_is_said),
        cmocka_unit_test(stops_when_asked_and_survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, make_container, remove_dirs);
}
