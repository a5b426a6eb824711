/* store/usage, and waste_usage_* over it: hotlists survive the disk, and what is
 * wrong with one is nobody's problem. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "emulated.h"
#include "fixture_files.h"
#include "internal.h"
#include "lib/portable.h"
#include "model_files.h"
#include "store/usage.h"

static const waste_bank_shape shape = {3, 1, FIXTURE_EXPERTS, FIXTURE_WIDTH, FIXTURE_HIDDEN};
static fixture box;
static const char *path;
static model_files files;
static char hot[MODEL_PATH + 32];

static int setup(void **state)
{
    (void)state;
    fixture_make(&box);
    model_write(&files, MODEL_K3);
    snprintf(hot, sizeof hot, "%s.hot", files.dir);
    path = strdup(fixture_path(&box, WASTE_USAGE_NAME));
    return path == NULL;
}

static int teardown(void **state)
{
    (void)state;
    fixture_remove(&box);
    model_remove(&files);
    unlink(hot);
    free((void *)path);
    return 0;
}

/* A file of the given bytes, cut or lengthened to `bytes`. */
static void put_file(const unsigned char *head, size_t have, size_t bytes)
{
    unsigned char all[256] = {0};

    memcpy(all, head, have < sizeof all ? have : sizeof all);
    fixture_put(&box, WASTE_USAGE_NAME, all, bytes);
}

/* Two entries: layer 1, expert 2, 5 hits; layer 2, expert 7, 9 hits. */
static const unsigned char two[48] = {
    'W', 'U', 'S', 'G', 1, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, /* header */
    1,   0,   2,   0,   5, 0, 0, 0, 3,  0, 0, 0, 0, 0, 0, 0, /* entry */
    2,   0,   7,   0,   9, 0, 0, 0, 4,  0, 0, 0, 0, 0, 0, 0};

static void expect_rows(size_t want)
{
    waste_usage_row *rows;

    assert_int_equal(waste_usage_read(&rows, path, &shape), want);
    if (want)
        assert_non_null(rows);
    else
        assert_null(rows);
    waste_mem_free(rows);
}

/* ---- files ---- */

static void comes_back_as_it_went(void **state)
{
    const waste_usage_row rows[] = {{2, 7, UINT32_MAX}, {1, 0, 70000}, {1, 1, 1}};
    waste_usage_row *got;
    waste_error e = {0};
    (void)state;
    assert_int_equal(waste_usage_write(path, rows, 3, 12345, &e), WASTE_OK);
    assert_int_equal(waste_usage_read(&got, path, &shape), 3);
    assert_memory_equal(got, rows, sizeof rows);
    waste_mem_free(got);
}

static void bytes_are_those_of_the_format(void **state)
{
    const waste_usage_row rows[] = {{2, 7, 0x01020304}};
    static const unsigned char want[32] = {'W', 'U', 'S', 'G', 1, 0, 0, 0, 0xef, 0xcd, 0xab,
                                           0,   0,   0,   0,   0, 2, 0, 7, 0,    4,    3,
                                           2,   1,   0,   0,   0, 0, 0, 0, 0,    0};
    char *data;
    size_t n;
    waste_error e = {0};
    (void)state;
    assert_int_equal(waste_usage_write(path, rows, 1, 0xabcdef, &e), WASTE_OK);
    assert_int_equal(waste_file_load(path, 1000, &data, &n, &e), WASTE_OK);
    assert_int_equal(n, sizeof want);
    assert_memory_equal(data, want, sizeof want);
    waste_mem_free(data);
}

static void order_is_hits_then_layer_then_expert(void **state)
{
    waste_usage_row rows[] = {{2, 0, 5}, {1, 7, 5}, {1, 3, 5}, {2, 1, 6}, {1, 0, 1}};
    const waste_usage_row want[] = {{2, 1, 6}, {1, 3, 5}, {1, 7, 5}, {2, 0, 5}, {1, 0, 1}};
    waste_usage_row *got;
    waste_error e = {0};
    (void)state;
    assert_int_equal(waste_usage_write(path, rows, 5, 0, &e), WASTE_OK);
    assert_int_equal(waste_usage_read(&got, path, &shape), 5); /* whatever the file's order */
    assert_memory_equal(got, want, sizeof want);
    waste_mem_free(got);
    waste_usage_sort(rows, 5);
    assert_memory_equal(rows, want, sizeof want);
}

static void cut_files_give_what_is_whole(void **state)
{
    size_t n;
    (void)state;
    for (n = 0; n <= sizeof two; n++) {
        put_file(two, sizeof two, n);
        expect_rows(n < 32 ? 0 : n < 48 ? 1 : 2);
    }
    put_file(two, sizeof two, 55); /* bytes of a third entry */
    expect_rows(2);
}

static void other_files_are_no_hotlists(void **state)
{
    unsigned char b[48];
    (void)state;
    memcpy(b, two, sizeof b);
    b[3] = 'X';
    put_file(b, sizeof b, sizeof b);
    expect_rows(0);
    unlink(path);
    expect_rows(0);
    assert_int_equal(mkdir(path, 0755), 0);
    expect_rows(0);
    rmdir(path);
#if HAS_FORK
    assert_int_equal(mkfifo(path, 0600), 0); /* must not hang */
    expect_rows(0);
    unlink(path);
#endif
}

static void unknown_records_are_skipped(void **state)
{
    static const unsigned char wrong[][4] = {
        {0, 0, 1, 0}, {3, 0, 1, 0}, {255, 255, 0, 0}, {1, 0, 8, 0}, {2, 0, 255, 255}};
    unsigned char b[48];
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(b, two, sizeof b);
        memcpy(b + 16, wrong[i], 4);
        put_file(b, sizeof b, sizeof b);
        expect_rows(1);
    }
    memcpy(b, two, sizeof b);
    memset(b + 36, 0, 4); /* no hits */
    put_file(b, sizeof b, sizeof b);
    expect_rows(1);
}

static void nothing_else_is_overwritten(void **state)
{
    static const char text[] = "a file of somebody's";
    const waste_usage_row row = {1, 1, 1};
    waste_error e = {0};
    char *data;
    size_t n;
    (void)state;
    fixture_put(&box, WASTE_USAGE_NAME, text, sizeof text);
    assert_int_equal(waste_usage_write(path, &row, 1, 0, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, path));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_file_load(path, 1000, &data, &n, &e), WASTE_OK);
    assert_string_equal(data, text);
    waste_mem_free(data);
    put_file(two, sizeof two, 0); /* an empty one may be */
    assert_int_equal(waste_usage_write(path, &row, 1, 0, &e), WASTE_OK);
    expect_rows(1);
    assert_int_equal(waste_usage_write("/nowhere/at/all", &row, 1, 0, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "/nowhere/at/all"));
}

static void out_of_memory_is_an_empty_hotlist(void **state)
{
    const uint64_t before = waste_mem_used();
    waste_usage_row *rows;
    uint64_t n;
    (void)state;
    for (n = 1; n <= 2; n++) {
        put_file(two, sizeof two, sizeof two);
        waste_mem_fail_at(n, 0);
        assert_int_equal(waste_usage_read(&rows, path, &shape), 0);
        waste_mem_fail_at(0, 0);
        assert_int_equal(waste_mem_used(), before);
    }
}

/* ---- models ---- */

static waste_model *open_model(const char *usage)
{
    const waste_model_options o = {.context = 64, .lookahead = -1, .usage = usage};
    waste_error e = {0};
    waste_model *m;

    assert_int_equal(waste_model_open(&m, files.dir, &o, &e), WASTE_OK);
    return m;
}

static waste_model_stats stats(waste_model *m)
{
    waste_model_stats s;

    waste_model_stats_get(m, &s);
    return s;
}

/* A few tokens; the logits of the last. */
static void run(waste_model *m, float *logits)
{
    waste_seq *seq;
    waste_error e = {0};
    int i;

    assert_int_equal(waste_seq_new(&seq, m, &e), WASTE_OK);
    for (i = 0; i < 4; i++) {
        const waste_row row = {seq, i * 7 % MODEL_VOCAB, logits};
        assert_int_equal(waste_step(m, &row, 1, NULL, NULL, &e), WASTE_OK);
    }
    waste_seq_free(seq);
}

static void wait_warm(waste_model *m, uint64_t n)
{
    const struct timespec ms = {0, 1000000};
    int i;

    for (i = 0; i < 10000 && stats(m).warmed < n; i++) nanosleep(&ms, NULL);
    assert_int_equal(stats(m).warmed, n);
}

static void a_warm_open_hits_what_a_cold_one_misses(void **state)
{
    float cold[MODEL_VOCAB], warm[MODEL_VOCAB];
    waste_error e = {0};
    waste_usage_row *rows;
    waste_model *m = open_model(hot); /* not there yet: fine */
    uint64_t wanted;
    size_t n;
    (void)state;
    run(m, cold);
    wanted = stats(m).hits + stats(m).misses;
    assert_true(stats(m).misses > 0);
    assert_int_equal(waste_usage_save(m, hot, &e), WASTE_OK);
    waste_model_close(m);

    m = open_model(hot);
    n = waste_usage_read(&rows, hot, waste_banks_shape(m->banks));
    waste_mem_free(rows);
    assert_true(n > 0);
    wait_warm(m, n);
    assert_int_equal(stats(m).misses + stats(m).hits + stats(m).bytes_read, 0);
    assert_int_equal(stats(m).cache_used, n);
    run(m, warm);
    assert_int_equal(stats(m).misses, 0);
    assert_int_equal(stats(m).hits, wanted);
    assert_memory_equal(cold, warm, sizeof cold);
    waste_model_close(m);
}

static void most_wanted_comes_first_and_no_more_than_asked_for(void **state)
{
    waste_usage_row rows[64], few[3];
    float logits[MODEL_VOCAB];
    waste_error e = {0};
    waste_model *m = open_model(NULL);
    size_t n, k, i;
    (void)state;
    assert_int_equal(waste_usage_get(m, rows, 64, &n, &e), WASTE_OK);
    assert_int_equal(n, 0); /* nothing was wanted */
    run(m, logits);
    assert_int_equal(waste_usage_get(m, rows, 64, &n, &e), WASTE_OK);
    assert_true(n > 3);
    for (i = 1; i < n; i++) assert_true(rows[i].hits <= rows[i - 1].hits);
    assert_int_equal(waste_usage_get(m, few, 3, &k, &e), WASTE_OK);
    assert_int_equal(k, 3);
    assert_memory_equal(few, rows, sizeof few);
    waste_model_close(m);
}

static void rows_of_no_record_are_skipped(void **state)
{
    const waste_usage_row rows[] = {{0, 0, 9},  {99, 0, 9}, {-1, 0, 9},
                                    {1, -1, 9}, {1, 99, 9}, {INT32_MAX, INT32_MAX, 9},
                                    {1, 3, 5}};
    waste_error e = {0};
    waste_model *m = open_model(NULL);
    (void)state;
    assert_int_equal(waste_usage_warm(m, rows, 0, &e), WASTE_OK);
    assert_int_equal(waste_usage_warm(m, rows, sizeof rows / sizeof *rows, &e), WASTE_OK);
    wait_warm(m, 1);
    waste_model_close(m);
}

static void learning_survives_a_restart_without_use(void **state)
{
    waste_usage_row before[64], after[64];
    float logits[MODEL_VOCAB];
    waste_error e = {0};
    waste_model *m = open_model(NULL);
    size_t n, k;
    (void)state;
    run(m, logits);
    assert_int_equal(waste_usage_get(m, before, 64, &n, &e), WASTE_OK);
    assert_int_equal(waste_usage_save(m, hot, &e), WASTE_OK);
    waste_model_close(m);
    m = open_model(hot);
    wait_warm(m, n);
    assert_int_equal(waste_usage_get(m, after, 64, &k, &e), WASTE_OK);
    assert_int_equal(k, n);
    assert_int_equal(after[0].layer, before[0].layer);
    assert_int_equal(after[0].expert, before[0].expert);
    waste_model_close(m);
}

static void closing_while_warming(void **state)
{
    float logits[MODEL_VOCAB];
    waste_usage_row rows[64];
    int i;
    (void)state;
    for (i = 0; i < 64; i++) rows[i] = (waste_usage_row){i / MODEL_EXPERTS, i % MODEL_EXPERTS, 5};
    for (i = 0; i < 40; i++) {
        waste_error e = {0};
        waste_model *m = open_model(NULL);
        assert_int_equal(waste_usage_warm(m, rows, 64, &e), WASTE_OK);
        if (i % 2) run(m, logits);
        waste_model_close(m);
    }
}

static void saving_fails_cleanly(void **state)
{
    const uint64_t before = waste_mem_used();
    waste_error e = {0};
    waste_model *m = open_model(NULL);
    waste_usage_row row;
    float logits[MODEL_VOCAB];
    uint64_t i;
    size_t n;
    (void)state;
    run(m, logits);
    assert_int_equal(waste_usage_save(m, "", &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_usage_save(m, "/nowhere/x", &e), WASTE_IO);
    for (i = 1; i <= 2; i++) {
        const uint64_t used = waste_mem_used();
        memset(&e, 0, sizeof e);
        waste_mem_fail_at(i, 1);
        assert_int_equal(waste_usage_save(m, hot, &e), WASTE_NOMEM);
        waste_mem_fail_at(0, 0);
        assert_int_equal(waste_mem_used(), used);
    }
    memset(&e, 0, sizeof e);
    waste_mem_fail_at(1, 0);
    assert_int_equal(waste_usage_get(m, &row, 1, &n, &e), WASTE_NOMEM);
    waste_mem_fail_at(0, 0);
    waste_model_close(m);
    assert_int_equal(waste_mem_used(), before);
}

/* ---- a forked child ---- */

#if HAS_FORK

static int child_of(waste_model *m, waste_seq *seq)
{
    const waste_row row = {seq, 1, NULL};
    waste_model_stats s;
    waste_usage_row one;
    waste_error e = {0}, f = {0}, g = {0};
    waste_seq *fresh;
    size_t n;

    alarm(30);
    if (waste_step(m, &row, 1, NULL, NULL, &e) != WASTE_BUSY) return 1;
    if (!strstr(e.text, "forked") || !strstr(e.text, files.dir)) return 2;
    if (waste_seq_new(&fresh, m, &f) != WASTE_BUSY) return 3;
    if (waste_usage_get(m, &one, 1, &n, &g) != WASTE_BUSY) return 4;
    waste_model_stats_get(m, &s);
    waste_seq_free(seq);
    waste_model_close(m);
/* TSan cannot start threads after a fork, and ASan's allocator is locked for ever when one
 * of the parent's threads was in it. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    {
        waste_model *own = open_model(NULL); /* of its own it may have one */
        waste_model_close(own);
    }
#endif
    return 0;
}

/* Also when the model's threads hold its locks at that moment. */
static void is_told_what_happened(void **state)
{
    float logits[MODEL_VOCAB];
    waste_error e = {0};
    waste_usage_row rows[64];
    waste_model *m = open_model(NULL);
    waste_seq *seq;
    pid_t child;
    int i, got;
    (void)state;
    emulated_skip("qemu cannot fork a process with threads");
    for (i = 0; i < 64; i++) rows[i] = (waste_usage_row){i / MODEL_EXPERTS, i % MODEL_EXPERTS, 5};
    assert_int_equal(waste_seq_new(&seq, m, &e), WASTE_OK);
    assert_int_equal(waste_usage_warm(m, rows, 64, &e), WASTE_OK);
    pthread_mutex_lock(&m->turn);
    child = fork();
    if (child == 0) _exit(child_of(m, seq));
    pthread_mutex_unlock(&m->turn);
    assert_int_equal(waitpid(child, &got, 0), child);
    assert_true(WIFEXITED(got));
    assert_int_equal(WEXITSTATUS(got), 0);
    run(m, logits); /* the parent goes on */
    waste_seq_free(seq);
    waste_model_close(m);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_as_it_went),
        cmocka_unit_test(bytes_are_those_of_the_format),
        cmocka_unit_test(order_is_hits_then_layer_then_expert),
        cmocka_unit_test(cut_files_give_what_is_whole),
        cmocka_unit_test(other_files_are_no_hotlists),
        cmocka_unit_test(unknown_records_are_skipped),
        cmocka_unit_test(nothing_else_is_overwritten),
        cmocka_unit_test(out_of_memory_is_an_empty_hotlist),
        cmocka_unit_test(a_warm_open_hits_what_a_cold_one_misses),
        cmocka_unit_test(most_wanted_comes_first_and_no_more_than_asked_for),
        cmocka_unit_test(rows_of_no_record_are_skipped),
        cmocka_unit_test(learning_survives_a_restart_without_use),
        cmocka_unit_test(closing_while_warming),
        cmocka_unit_test(saving_fails_cleanly),
#if HAS_FORK
        cmocka_unit_test(is_told_what_happened),
#endif
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
