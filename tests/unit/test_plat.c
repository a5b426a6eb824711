/* base/plat and base/mem: reads past the page cache, and memory in pages. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/plat.h"

enum { BLOCK = 4096, RECORD = 3 * BLOCK, SIZE = 5 * RECORD + 100 };

static char path[64];

static unsigned char byte_at(int i)
{
    return (unsigned char)(i * 7 + i / BLOCK);
}

static void make_file(const char *folder)
{
    waste_error e = {0};
    unsigned char *b = malloc(SIZE);
    int i;

    snprintf(path, sizeof path, "%s/waste-plat-%ld", folder, (long)getpid());
    for (i = 0; i < SIZE; i++) b[i] = byte_at(i);
    if (waste_file_publish(path, b, SIZE, &e)) fail_msg("%s", e.text);
    free(b);
}

static void reads_records(const waste_file *f)
{
    unsigned char *to = waste_mem_aligned(BLOCK, RECORD);
    waste_error e = {0};
    int n, i;

    for (n = 4; n >= 0; n--) {
        assert_int_equal(waste_file_read_blocks(f, path, to, RECORD, (uint64_t)n * RECORD, &e),
                         WASTE_OK);
        for (i = 0; i < RECORD; i++) assert_int_equal(to[i], byte_at(n * RECORD + i));
    }
    /* the file ends inside the last one */
    assert_int_equal(waste_file_read_blocks(f, path, to, RECORD, 5 * RECORD, &e), WASTE_IO);
    assert_non_null(strstr(e.text, path));
    assert_non_null(strstr(e.text, "12188 bytes short"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_file_read_blocks(f, path, to, RECORD, 50 * RECORD, &e), WASTE_IO);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_file_read_blocks(f, path, to, RECORD, UINT64_MAX - 4095, &e), WASTE_IO);
    waste_mem_free(to);
}

static void direct_and_buffered_files_read_alike(void **state)
{
    static const char *const folders[] = {"/tmp", "/dev/shm"};
    waste_error e = {0};
    waste_file f;
    size_t i;
    int want, direct;
    (void)state;
    for (i = 0; i < 2; i++) {
        if (access(folders[i], W_OK)) continue;
        make_file(folders[i]);
        for (want = 0; want < 2; want++) {
            assert_int_equal(waste_file_open_direct(&f, path, RECORD, want, &direct, &e), WASTE_OK);
            assert_true(want || !direct);
            reads_records(&f);
            waste_file_ahead(&f, 0, 2 * RECORD);
            waste_file_drop(&f, 0, 0);
            waste_file_close(&f);
        }
        assert_int_equal(waste_file_open_direct(&f, path, BLOCK + 512, 1, &direct, &e), WASTE_OK);
        assert_false(direct); /* not whole blocks */
        waste_file_close(&f);
        unlink(path);
    }
}

static void opening_fails_cleanly(void **state)
{
    const uint64_t before = waste_mem_used();
    waste_error e = {0};
    waste_file f;
    int direct;
    (void)state;
    assert_int_equal(waste_file_open_direct(&f, "/tmp/no/such", RECORD, 1, &direct, &e), WASTE_IO);
    assert_int_equal(f.fd, WASTE_FILE_CLOSED);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_file_open_direct(&f, "/tmp", RECORD, 1, &direct, &e), WASTE_IO);
    assert_int_equal(f.fd, WASTE_FILE_CLOSED);
    make_file("/tmp");
    memset(&e, 0, sizeof e);
    waste_mem_fail_at(1, 0);
    /* a file system that does not take the flag needs no memory */
    if (waste_file_open_direct(&f, path, RECORD, 1, &direct, &e) == WASTE_OK) assert_false(direct);
    waste_mem_fail_at(0, 0);
    waste_file_close(&f);
    assert_int_equal(waste_mem_used(), before);
    unlink(path);
}

static void descriptor_zero_is_a_file(void **state)
{
    const int keep = dup(0);
    waste_error e = {0};
    waste_file f;
    int direct;
    (void)state;
    make_file("/tmp");
    close(0);
    assert_int_equal(waste_file_open_direct(&f, path, RECORD, 1, &direct, &e), WASTE_OK);
    assert_int_equal(f.fd, 0);
    reads_records(&f);
    waste_file_close(&f);
    assert_int_equal(f.fd, WASTE_FILE_CLOSED);
    assert_int_equal(fcntl(0, F_GETFD), -1); /* really closed */
    dup2(keep, 0);
    close(keep);
    unlink(path);
}

static void regions_are_zeroed_and_counted(void **state)
{
    const uint64_t before = waste_mem_used();
    const size_t size = 5 << 20;
    char *p = waste_mem_region(size);
    size_t i;
    (void)state;
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 4096, 0);
    assert_int_equal(waste_mem_used() - before, size);
    for (i = 0; i < size; i += 4096) assert_int_equal(p[i], 0);
    memset(p, 1, size);
    waste_mem_region_free(p, size);
    waste_mem_region_free(NULL, size);
    assert_int_equal(waste_mem_used(), before);
    assert_null(waste_mem_region(0));
    assert_null(waste_mem_region(SIZE_MAX));
    waste_mem_fail_at(1, 0);
    assert_null(waste_mem_region(4096));
    waste_mem_fail_at(0, 0);
    assert_int_equal(waste_mem_used(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_and_buffered_files_read_alike),
        cmocka_unit_test(opening_fails_cleanly),
        cmocka_unit_test(descriptor_zero_is_a_file),
        cmocka_unit_test(regions_are_zeroed_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
