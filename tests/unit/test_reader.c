/* store/reader: order of the queues, threads that end, errors that arrive. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "store/reader.h"

static fixture box;
static waste_manifest *manifest;
static waste_banks *banks;
static waste_reader *reader;

/* What has been done, in order; and a gate that reads wait at. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int done[64], n_done, begun, shut;
static waste_status status_of[64];
static char text_of[64][128];

static int setup(void **state)
{
    static const waste_bank_shape shape = {3, 1, FIXTURE_EXPERTS, FIXTURE_WIDTH, FIXTURE_HIDDEN};
    waste_error e = {0};
    (void)state;
    fixture_make(&box);
    return waste_manifest_open(&manifest, box.dir, &e) ||
           waste_banks_open(&banks, manifest, &shape, 1, NULL, &e);
}

static int teardown(void **state)
{
    (void)state;
    waste_banks_close(banks);
    waste_manifest_close(manifest);
    fixture_remove(&box);
    return 0;
}

/* Reads of layer 2 wait while the gate is shut. */
static waste_status gate(void *ctx, int layer, int expert, waste_error *err)
{
    (void)ctx, (void)expert, (void)err;
    pthread_mutex_lock(&lock);
    begun++;
    pthread_cond_broadcast(&change);
    while (layer == 2 && shut) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return WASTE_OK;
}

static void on_done(void *ctx, waste_read *r, waste_status st, const waste_error *err)
{
    (void)ctx;
    pthread_mutex_lock(&lock);
    status_of[n_done] = st;
    snprintf(text_of[n_done], sizeof text_of[0], "%.120s", err->text);
    done[n_done++] = r->layer * 16 + r->expert;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static void wait_for(const int *what, int n)
{
    pthread_mutex_lock(&lock);
    while (*what < n) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static void set_gate(int closed)
{
    pthread_mutex_lock(&lock);
    shut = closed;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static void open_reader(int threads)
{
    waste_error e = {0};

    n_done = begun = shut = 0;
    waste_banks_fault(banks, gate, NULL);
    assert_int_equal(waste_reader_open(&reader, banks, threads, on_done, NULL, &e), WASTE_OK);
    assert_int_equal(waste_reader_threads(reader), threads);
}

static waste_read request(int layer, int expert)
{
    const waste_read r = {.layer = layer, .expert = expert, .to = waste_mem_aligned(4096, 4096)};

    return r;
}

static void reads_what_was_asked(void **state)
{
    static const int threads[] = {1, 2, 8, WASTE_READER_MOST};
    waste_read r[16];
    size_t t;
    int i;
    (void)state;
    for (t = 0; t < sizeof threads / sizeof *threads; t++) {
        open_reader(threads[t]);
        for (i = 0; i < 16; i++) {
            r[i] = request(1 + i / 8, i % 8);
            waste_reader_ask(reader, &r[i], (waste_urgency)(i % WASTE_URGENCIES));
        }
        wait_for(&n_done, 16);
        for (i = 0; i < 16; i++) {
            assert_int_equal(status_of[i], WASTE_OK);
            assert_int_equal(((unsigned char *)r[i].to)[48], (1 + i / 8) * 16 + i % 8);
            assert_int_equal(waste_reader_withdraw(reader, &r[i]), 0);
            waste_mem_free(r[i].to);
        }
        waste_reader_close(reader);
    }
}

static void demand_goes_before_guesses_and_warming(void **state)
{
    static const int want[] = {32, 20, 21, 18, 19, 16};
    waste_read first = request(2, 0), r[8];
    int i;
    (void)state;
    open_reader(1);
    set_gate(1);
    waste_reader_ask(reader, &first, WASTE_URGENCY_DEMAND);
    wait_for(&begun, 1);
    for (i = 0; i < 6; i++) {
        r[i] = request(1, i);
        waste_reader_ask(reader, &r[i], (waste_urgency)(WASTE_URGENCY_WARM - i / 2));
    }
    assert_int_equal(waste_reader_withdraw(reader, &r[1]), 1);
    assert_int_equal(waste_reader_withdraw(reader, &r[1]), 0);
    assert_int_equal(waste_reader_withdraw(reader, &first), 0); /* it is being read */
    set_gate(0);
    wait_for(&n_done, 6);
    assert_memory_equal(done, want, sizeof want);
    waste_reader_close(reader);
    waste_mem_free(first.to);
    for (i = 0; i < 6; i++) waste_mem_free(r[i].to);
}

static void a_promoted_guess_is_a_demand(void **state)
{
    static const int want[] = {32, 17, 18, 16};
    waste_read first = request(2, 0), r[3];
    int i;
    (void)state;
    open_reader(1);
    set_gate(1);
    waste_reader_ask(reader, &first, WASTE_URGENCY_DEMAND);
    wait_for(&begun, 1);
    for (i = 0; i < 3; i++) {
        r[i] = request(1, i);
        waste_reader_ask(reader, &r[i], i == 1 ? WASTE_URGENCY_DEMAND : WASTE_URGENCY_GUESS);
    }
    waste_reader_promote(reader, &r[2], WASTE_URGENCY_DEMAND);
    waste_reader_promote(reader, &r[1], WASTE_URGENCY_GUESS); /* never down */
    waste_reader_promote(reader, &first, WASTE_URGENCY_DEMAND);
    set_gate(0);
    wait_for(&n_done, 4);
    assert_memory_equal(done, want, sizeof want);
    waste_reader_close(reader);
    waste_mem_free(first.to);
    for (i = 0; i < 3; i++) waste_mem_free(r[i].to);
}

static void guesses_leave_a_thread_for_demand(void **state)
{
    waste_read r[4];
    int i;
    (void)state;
    open_reader(2);
    set_gate(1);
    for (i = 0; i < 3; i++) {
        r[i] = request(2, i);
        waste_reader_ask(reader, &r[i], WASTE_URGENCY_GUESS);
    }
    r[3] = request(1, 3);
    waste_reader_ask(reader, &r[3], WASTE_URGENCY_DEMAND);
    wait_for(&n_done, 1); /* although a guess hangs and more of them wait */
    assert_int_equal(done[0], 19);
    set_gate(0);
    wait_for(&n_done, 4);
    waste_reader_close(reader);
    for (i = 0; i < 4; i++) waste_mem_free(r[i].to);
}

static void errors_belong_to_their_record(void **state)
{
    waste_read good = request(1, 2), bad = request(1, 1);
    unsigned char wrong = 0;
    int i;
    (void)state;
    fixture_patch(&box, "a.bin", 4096, &wrong, 1);
    open_reader(2);
    waste_reader_ask(reader, &bad, WASTE_URGENCY_DEMAND);
    waste_reader_ask(reader, &good, WASTE_URGENCY_DEMAND);
    wait_for(&n_done, 2);
    for (i = 0; i < 2; i++) {
        assert_int_equal(status_of[i], done[i] == 17 ? WASTE_IO : WASTE_OK);
        assert_int_equal(strstr(text_of[i], "layer 1, expert 1") != NULL, done[i] == 17);
    }
    waste_reader_close(reader);
    fixture_bank(&box, "a.bin", 1, 0);
    waste_mem_free(good.to);
    waste_mem_free(bad.to);
}

static void without_threads_the_caller_reads(void **state)
{
    waste_read a = request(1, 0), b = request(1, 1);
    (void)state;
    open_reader(0);
    assert_int_equal(waste_reader_serve(reader), 0);
    waste_reader_ask(reader, &a, WASTE_URGENCY_GUESS);
    waste_reader_ask(reader, &b, WASTE_URGENCY_DEMAND);
    assert_int_equal(n_done, 0);
    assert_int_equal(waste_reader_serve(reader), 1);
    assert_int_equal(done[0], 17);
    assert_int_equal(waste_reader_serve(reader), 1);
    assert_int_equal(waste_reader_serve(reader), 0);
    assert_int_equal(n_done, 2);
    waste_reader_close(reader);
    waste_mem_free(a.to);
    waste_mem_free(b.to);
}

static void *open_later(void *unused)
{
    const struct timespec t = {0, 50000000};
    (void)unused;
    nanosleep(&t, NULL);
    set_gate(0);
    return NULL;
}

static void closing_forgets_what_waits_and_ends_what_runs(void **state)
{
    waste_read r[4];
    pthread_t t;
    int i;
    (void)state;
    open_reader(1);
    set_gate(1);
    for (i = 0; i < 4; i++) {
        r[i] = request(2, i);
        waste_reader_ask(reader, &r[i], WASTE_URGENCY_DEMAND);
    }
    wait_for(&begun, 1);
    assert_int_equal(pthread_create(&t, NULL, open_later, NULL), 0);
    waste_reader_close(reader);
    assert_int_equal(n_done, 1);
    assert_int_equal(done[0], 32);
    pthread_join(t, NULL);
    for (i = 0; i < 4; i++) waste_mem_free(r[i].to);
    waste_reader_close(NULL);
}

static void numbers_of_threads_are_bounded(void **state)
{
    waste_error e = {0};
    uint64_t before = waste_mem_used();
    (void)state;
    assert_int_equal(waste_reader_open(&reader, banks, -1, on_done, NULL, &e), WASTE_ARG);
    assert_int_equal(waste_reader_open(&reader, banks, WASTE_READER_MOST + 1, on_done, NULL, &e),
                     WASTE_ARG);
    waste_mem_fail_at(1, 0);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_reader_open(&reader, banks, 1, on_done, NULL, &e), WASTE_NOMEM);
    waste_mem_fail_at(0, 0);
    assert_null(reader);
    assert_int_equal(waste_mem_used(), before);
    open_reader(3);
    assert_int_equal(waste_mem_used() - before, waste_reader_bytes());
    waste_reader_close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_asked),
        cmocka_unit_test(demand_goes_before_guesses_and_warming),
        cmocka_unit_test(a_promoted_guess_is_a_demand),
        cmocka_unit_test(guesses_leave_a_thread_for_demand),
        cmocka_unit_test(errors_belong_to_their_record),
        cmocka_unit_test(without_threads_the_caller_reads),
        cmocka_unit_test(closing_forgets_what_waits_and_ends_what_runs),
        cmocka_unit_test(numbers_of_threads_are_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
