/* base/plat and base/mem: files, names, reads past the page cache, memory in pages. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"
#include "lib/portable.h"

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

#if HAS_FORK /* and so descriptors */

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

#endif

/* ---- names ---- */

static char box[256];

static int make_box(void **state)
{
    (void)state;
    snprintf(box, sizeof box, "%s/tests/unit/plat-XXXXXX", TEST_BUILD);
    return mkdtemp(box) == NULL;
}

static int remove_box(void **state)
{
    (void)state;
    waste_dir_remove(box);
    return waste_path_exists(box);
}

static const char *in_box(const char *name)
{
    static char paths[4][WASTE_PATH_MAX];
    static int next;

    next = (next + 1) % 4;
    assert_int_equal(waste_path_join(paths[next], WASTE_PATH_MAX, box, name, NULL), WASTE_OK);
    return paths[next];
}

static void put(const char *name, const char *text)
{
    waste_error e = {0};

    if (waste_file_publish(in_box(name), text, strlen(text), &e)) fail_msg("%s", e.text);
}

static void has(const char *name, const char *text)
{
    waste_error e = {0};
    char *data;
    size_t n;

    if (waste_file_load(in_box(name), 1000, &data, &n, &e)) fail_msg("%s", e.text);
    assert_string_equal(data, text);
    waste_mem_free(data);
}

static void files_are_written_where_they_are_told_to(void **state)
{
    waste_error e = {0};
    waste_file f;
    (void)state;
    put("a", "0123456789");
    assert_int_equal(waste_file_open_at(&f, in_box("a"), 0, 4, &e), WASTE_OK);
    assert_int_equal(waste_file_cut(&f, "a", 4, &e), WASTE_OK);
    assert_int_equal(waste_file_write(&f, "a", "xy", 2, &e), WASTE_OK);
    assert_int_equal(waste_file_sync(&f, "a", &e), WASTE_OK);
    waste_file_close(&f);
    has("a", "0123xy");
    assert_int_equal(waste_file_append(&f, in_box("a"), &e), WASTE_OK);
    assert_int_equal(waste_file_write(&f, "a", "end", 3, &e), WASTE_OK);
    assert_int_equal(waste_file_sync(&f, "a", &e), WASTE_OK);
    waste_file_close(&f);
    has("a", "0123xyend");
    assert_int_equal(waste_file_open_at(&f, in_box("b"), 0, 0, &e), WASTE_IO); /* not there */
    assert_non_null(strstr(e.text, in_box("b")));
    assert_int_equal(waste_file_open_at(&f, in_box("b"), 1, 2, NULL), WASTE_OK);
    assert_int_equal(waste_file_write(&f, "b", "c", 1, NULL), WASTE_OK);
    waste_file_close(&f);
    put("a", "new"); /* renaming replaces what is there */
    has("a", "new");
    assert_int_equal(waste_path_delete(in_box("a"), &e), WASTE_OK);
    assert_int_equal(waste_path_delete(in_box("a"), NULL), WASTE_IO);
    waste_path_remove(in_box("b"));
}

typedef struct found {
    int n, stop_after;
    uint64_t bytes;
} found;

static int note(void *ctx, const char *name, uint64_t bytes)
{
    found *f = ctx;

    assert_true(waste_path_exists(name));
    f->bytes += bytes;
    return ++f->n == f->stop_after ? 7 : 0;
}

static int clear(void *ctx, const char *name, uint64_t bytes)
{
    (void)ctx, (void)bytes;
    waste_path_remove(name);
    return 0;
}

static void a_directory_has_its_plain_files(void **state)
{
    found f = {0, 0, 0}, first = {0, 1, 0};
    (void)state;
    put("one", "1");
    put("\xc3\xbc\xe6\xbc\xa2", "22"); /* names are UTF-8 */
    assert_int_equal(waste_path_make_dir(in_box("sub"), NULL), WASTE_OK);
    assert_int_equal(waste_path_make_dir(in_box("sub"), NULL), WASTE_OK);
    assert_int_equal(waste_path_make_dir(in_box("one"), NULL), WASTE_IO);
    assert_int_equal(waste_dir_each(box, note, &f), 0);
    assert_int_equal(f.n, 2);
    assert_int_equal(f.bytes, 3);
    assert_int_equal(waste_dir_each(box, note, &first), 7);
    assert_int_equal(first.n, 1);
    assert_int_equal(waste_dir_each(in_box("none"), note, &f), 0);
    has("\xc3\xbc\xe6\xbc\xa2", "22");
    waste_dir_sync(box);
    assert_int_equal(waste_dir_each(box, clear, NULL), 0);
    waste_dir_remove(in_box("sub"));
    f = (found){0, 0, 0};
    assert_int_equal(waste_dir_each(box, note, &f), 0);
    assert_int_equal(f.n, 0);
}

static void a_path_says_what_it_names(void **state)
{
    waste_path_info i, again;
    char full[WASTE_PATH_MAX], real[WASTE_PATH_MAX];
    uint64_t id[2], bytes = 0;
    const uint64_t now = (uint64_t)time(NULL) * 1000000000u, hour = 3600000000000u;
    (void)state;
    put("one", "1");
    assert_int_equal(waste_path_stat(&i, in_box("one"), NULL), WASTE_OK);
    assert_true(i.is_file && !i.is_dir && i.bytes == 1);
    assert_true(i.modified_ns > now - hour && i.modified_ns < now + hour);
    assert_int_equal(waste_path_stat(&again, in_box("./one"), NULL), WASTE_OK);
    assert_memory_equal(i.id, again.id, sizeof i.id);
    assert_int_equal(waste_path_identity(box, id, NULL), WASTE_OK);
    assert_memory_not_equal(i.id, id, sizeof id);
    assert_true(waste_path_is_dir(box) && !waste_path_is_dir(in_box("one")));
    assert_false(waste_path_exists(in_box("two")));
    assert_int_equal(waste_path_absolute(full, in_box("one"), NULL), WASTE_OK);
    assert_true(waste_path_root(full) > 0 && waste_path_root(in_box("one")) == 0);
    assert_int_equal(waste_path_real(real, in_box("./one"), NULL), WASTE_OK);
    assert_int_equal(waste_path_identity(full, id, NULL), WASTE_OK);
    assert_memory_equal(i.id, id, sizeof id);
    assert_int_equal(waste_path_identity(real, id, NULL), WASTE_OK);
    assert_memory_equal(i.id, id, sizeof id);
    assert_null(strchr(real, '\\'));
    assert_null(strstr(real, "/./"));
    assert_int_equal(waste_path_real(real, in_box("two"), NULL), WASTE_IO);
    assert_int_equal(waste_path_free(box, &bytes), 0);
    assert_true(bytes > 0 && bytes < UINT64_MAX / 2);
    waste_path_remove(in_box("one"));
}

static void paths_may_be_long(void **state)
{
    char name[101], dir[3][WASTE_PATH_MAX];
    int i;
    (void)state;
    memset(name, 'n', 100);
    name[100] = 0;
    for (i = 0; i < 3; i++) {
        assert_int_equal(waste_path_join(dir[i], WASTE_PATH_MAX, i ? dir[i - 1] : box, name, NULL),
                         WASTE_OK);
        assert_int_equal(waste_path_make_dir(dir[i], NULL), WASTE_OK);
    }
    assert_int_equal(waste_path_join(dir[0], WASTE_PATH_MAX, dir[2], "file", NULL), WASTE_OK);
    assert_true(strlen(dir[0]) > 300);
    assert_int_equal(waste_file_publish(dir[0], "x", 1, NULL), WASTE_OK);
    assert_true(waste_path_exists(dir[0]));
    assert_int_equal(waste_path_delete(dir[0], NULL), WASTE_OK);
    for (i = 2; i >= 0; i--) {
        waste_dir_remove(dir[2]);
        assert_false(waste_path_exists(dir[2]));
        dir[2][strlen(dir[2]) - 101] = 0;
    }
}

/* ---- many readers of one file ---- */

static waste_file shared;
static _Atomic int wrong;

static void read_alone(void *ctx, int number)
{
    unsigned char *to = waste_mem_aligned(BLOCK, RECORD);
    int n, i;
    (void)ctx;

    for (n = 0; n < 200; n++) {
        const int at = (n * 3 + number) % 5 * RECORD;

        if (waste_file_read_blocks(&shared, path, to, RECORD, (uint64_t)at, NULL)) wrong = 1;
        for (i = 0; i < RECORD; i += 97)
            if (to[i] != byte_at(at + i)) wrong = 1;
    }
    waste_mem_free(to);
}

static void threads_read_one_file_side_by_side(void **state)
{
    int want, direct;
    (void)state;
    make_file("/tmp");
    for (want = 0; want < 2; want++) {
        assert_int_equal(waste_file_open_direct(&shared, path, RECORD, want, &direct, NULL),
                         WASTE_OK);
        waste_process_team(4, read_alone, NULL);
        waste_file_close(&shared);
        assert_false(wrong);
    }
    waste_path_remove(path);
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

static void the_machine_says_what_it_has(void **state)
{
    const uint64_t bytes = waste_pages_physical(), then = waste_clock_ns();
    (void)state;
    assert_true(bytes > 16 << 20 && bytes < UINT64_MAX / 2);
    while (waste_clock_ns() == then) continue;
    assert_true(waste_clock_ns() > then);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_and_buffered_files_read_alike),
        cmocka_unit_test(opening_fails_cleanly),
#if HAS_FORK
        cmocka_unit_test(descriptor_zero_is_a_file),
#endif
        cmocka_unit_test_setup_teardown(files_are_written_where_they_are_told_to, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(a_directory_has_its_plain_files, make_box, remove_box),
        cmocka_unit_test_setup_teardown(a_path_says_what_it_names, make_box, remove_box),
        cmocka_unit_test_setup_teardown(paths_may_be_long, make_box, remove_box),
        cmocka_unit_test(threads_read_one_file_side_by_side),
        cmocka_unit_test(regions_are_zeroed_and_counted),
        cmocka_unit_test(the_machine_says_what_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
