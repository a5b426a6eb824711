/* store/bank: whole records, checked; codebooks as floats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "store/bank.h"

static fixture box;
static waste_manifest *manifest;
static const waste_bank_shape shape = {3, 1, FIXTURE_EXPERTS, FIXTURE_WIDTH, FIXTURE_HIDDEN};

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

static waste_banks *opened(int verify)
{
    waste_error e = {0};
    waste_banks *b;

    assert_int_equal(waste_banks_open(&b, manifest, &shape, verify, NULL, &e), WASTE_OK);
    return b;
}

static waste_status read_record(const waste_banks *b, int layer, int expert, unsigned char *to,
                                waste_error *e)
{
    memset(e, 0, sizeof *e);
    return waste_banks_read(b, layer, expert, to, e);
}

static void reads_whole_records(void **state)
{
    waste_banks *b = opened(1);
    unsigned char *r = waste_mem_aligned(4096, 4096);
    waste_error e;
    int layer, expert;
    (void)state;
    assert_int_equal(waste_banks_slot_bytes(b), 4096);
    assert_int_equal(waste_banks_record_bytes(b, 0), 0);
    assert_int_equal(waste_banks_record_bytes(b, 2), 4096);
    assert_null(waste_banks_layout(b, 0));
    assert_int_equal(waste_banks_layout(b, 1)->bytes, 4096);
    assert_int_equal(waste_banks_shape(b)->experts, 8);
    for (layer = 1; layer < 3; layer++)
        for (expert = 0; expert < 8; expert++) {
            assert_int_equal(read_record(b, layer, expert, r, &e), WASTE_OK);
            assert_int_equal(r[48], layer * 16 + expert);
        }
    waste_mem_free(r);
    waste_banks_close(b);
}

static void records_that_do_not_exist_are_refused(void **state)
{
    static const int bad[][2] = {{0, 0}, {-1, 0}, {3, 0}, {1, -1}, {1, 8}};
    waste_banks *b = opened(0);
    _Alignas(4096) unsigned char r[4096];
    waste_error e;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_record(b, bad[i][0], bad[i][1], r, &e), WASTE_ARG);
    waste_banks_close(b);
}

static void damaged_headers_are_always_found(void **state)
{
    waste_banks *b = opened(0);
    _Alignas(4096) unsigned char r[4096], magic = 0;
    waste_error e;
    (void)state;
    fixture_patch(&box, "a.bin", 3 * 4096, &magic, 1);
    assert_int_equal(read_record(b, 1, 2, r, &e), WASTE_OK);
    assert_int_equal(read_record(b, 1, 3, r, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "a.bin: layer 1, expert 3"));
    assert_non_null(strstr(e.text, "magic"));
    fixture_bank(&box, "a.bin", 2, 10); /* the bank of another layer */
    assert_int_equal(read_record(b, 1, 3, r, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "has layer 2"));
    fixture_bank(&box, "a.bin", 1, 1);
    assert_int_equal(read_record(b, 1, 3, r, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "codebook_id 1"));
    fixture_bank(&box, "a.bin", 1, 0);
    waste_banks_close(b);
}

static void damaged_payload_is_found_on_request(void **state)
{
    waste_banks *plain = opened(0), *strict = opened(1);
    _Alignas(4096) unsigned char r[4096], bit = 1;
    waste_error e;
    (void)state;
    fixture_patch(&box, "b.bin", 5 * 4096 + 100, &bit, 1);
    fixture_patch(&box, "b.bin", 7 * 4096 - 1, &bit, 1); /* padding of 6: covered by nothing */
    assert_int_equal(read_record(plain, 2, 5, r, &e), WASTE_OK);
    assert_int_equal(read_record(strict, 2, 6, r, &e), WASTE_OK);
    assert_int_equal(read_record(strict, 2, 5, r, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "b.bin: layer 2, expert 5: checksum"));
    fixture_bank(&box, "b.bin", 2, 10);
    waste_banks_close(plain);
    waste_banks_close(strict);
}

static void short_and_missing_banks_are_named(void **state)
{
    waste_error e = {0};
    waste_banks *b;
    _Alignas(4096) unsigned char r[4096];
    (void)state;
    assert_int_equal(truncate(fixture_path(&box, "b.bin"), 32767), 0);
    assert_int_equal(waste_banks_open(&b, manifest, &shape, 0, NULL, &e), WASTE_FORMAT);
    assert_null(b);
    assert_non_null(strstr(e.text, "b.bin (layer 2) has 32767 bytes, wanted 32768"));
    memset(&e, 0, sizeof e);
    waste_path_remove(fixture_path(&box, "b.bin"));
    assert_int_equal(waste_banks_open(&b, manifest, &shape, 0, NULL, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "layer 2"));
    assert_non_null(strstr(e.text, "b.bin"));
    fixture_bank(&box, "b.bin", 2, 10);
    b = opened(0);
    assert_int_equal(truncate(fixture_path(&box, "b.bin"), 32767), 0);
    assert_int_equal(read_record(b, 2, 7, r, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "layer 2, expert 7"));
    fixture_bank(&box, "b.bin", 2, 10);
    waste_banks_close(b);
}

/* Entries are f16 subnormals, true to their value; past `entries` there are
 * zeros for every index a byte can hold. Book 9 is zeros and nobody minds. */
static void codebooks_are_exact_and_complete(void **state)
{
    waste_banks *b = opened(0);
    int layer, kind, stage, i;
    (void)state;
    for (layer = 1; layer < 3; layer++)
        for (kind = 0; kind < 3; kind++)
            for (stage = 0; stage < 3; stage++) {
                const float *book = waste_banks_codebook(b, layer, kind, stage);
                int id = (layer == 1 ? 0 : 10) + kind * 3 + stage;
                assert_ptr_equal(book, waste_banks_codebook(b, layer, 0, 0) +
                                           (kind * 3 + stage) * 256 * 8);
                for (i = 0; i < 256 * 8; i++)
                    assert_true(book[i] ==
                                (i / 8 < 16 ? (float)(id + i / 8 + i % 8) * 0x1p-24f : 0));
            }
    assert_null(waste_banks_codebook(b, 0, 0, 0));
    assert_null(waste_banks_codebook(b, 1, 3, 0));
    assert_null(waste_banks_codebook(b, 1, 0, 3));
    waste_banks_close(b);
}

static void damaged_codebooks_are_refused(void **state)
{
    static const struct {
        long at;
        const char *says;
    } rows[] = {{0, "magic"}, {4, "codebook_id"}, {7, "vec_dim"}, {8, "n_entries"}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        waste_error e = {0};
        waste_banks *b;
        unsigned char other = 0xAA;
        fixture_patch(&box, "codebooks.bin", 12 * 272 + rows[i].at, &other, 1);
        assert_int_equal(waste_banks_open(&b, manifest, &shape, 0, NULL, &e), WASTE_FORMAT);
        assert_non_null(strstr(e.text, "codebooks.bin: codebook 12 (of layer 2)"));
        assert_non_null(strstr(e.text, rows[i].says));
        fixture_codebooks(&box);
    }
}

static void a_dense_model_has_no_banks(void **state)
{
    static const waste_bank_shape dense = {3, 3, 0, 0, 16};
    waste_error e = {0};
    waste_banks *b;
    (void)state;
    assert_int_equal(waste_banks_open(&b, manifest, &dense, 0, NULL, &e), WASTE_OK);
    assert_int_equal(waste_banks_slot_bytes(b), 0);
    waste_banks_close(b);
}

static void failed_allocations_leave_nothing(void **state)
{
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;
    for (n = 1; st != WASTE_OK; n++) {
        waste_error e = {0};
        waste_banks *b;
        waste_mem_fail_at(n, 1);
        st = waste_banks_open(&b, manifest, &shape, 0, NULL, &e);
        waste_mem_fail_at(0, 0);
        assert_int_equal(st, st ? WASTE_NOMEM : WASTE_OK);
        waste_banks_close(b);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_whole_records),
        cmocka_unit_test(records_that_do_not_exist_are_refused),
        cmocka_unit_test(damaged_headers_are_always_found),
        cmocka_unit_test(damaged_payload_is_found_on_request),
        cmocka_unit_test(short_and_missing_banks_are_named),
        cmocka_unit_test(codebooks_are_exact_and_complete),
        cmocka_unit_test(damaged_codebooks_are_refused),
        cmocka_unit_test(a_dense_model_has_no_banks),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
