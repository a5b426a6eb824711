/* store/cache: batches in completion order, who stays and who goes, and what is left after
 * reads that fail, hang or are given up. */
#include "cache_files.h"
#include "emulated.h"

/* ---- batches -------------------------------------------------------------- */

static void counts_hits_and_misses(void **state)
{
    static const int threads[] = {-1, 1, 2, 8};
    size_t t;
    (void)state;
    for (t = 0; t < 4; t++) {
        waste_cache_counts n;

        open_cache_with(3, threads[t]);
        assert_int_equal(waste_cache_threads(cache), threads[t] < 0 ? 0 : threads[t]);
        assert_false(use(1, 0));
        assert_false(use(2, 0));
        assert_true(use(1, 0));
        assert_true(use(2, 0));
        assert_true(use(2, 0));
        n = counts();
        assert_int_equal(n.misses, 2);
        assert_int_equal(n.hits, 3);
        assert_int_equal(n.bytes_read, 2 * 4096);
        assert_int_equal(n.used, 2);
        assert_int_equal(n.slots, 3);
        assert_int_equal(n.evictions, 0);
        assert_int_equal(n.guesses, 0);
        assert_true(n.io_ns > 0);
        close_cache();
    }
}

static void a_batch_may_be_larger_than_the_cache(void **state)
{
    static const int all[] = {3, 1, 4, 0, 5, 2, 7, 6};
    static const int threads[] = {-1, 1, 8};
    size_t t;
    uint64_t slots;
    (void)state;
    for (t = 0; t < 3; t++)
        for (slots = 1; slots < 10; slots++) {
            open_cache_with(slots, threads[t]);
            use_all(1, all, 8);
            use_all(2, all, 8);
            use_all(1, all, 8);
            assert_int_equal(counts().hits + counts().misses, 24);
            assert_true(counts().used <= slots);
            close_cache();
        }
}

static void what_is_there_comes_first(void **state)
{
    static const int ids[] = {0, 1, 2, 3};
    (void)state;
    open_cache(8);
    use(1, 3);
    kind[1][0] = kind[1][1] = kind[1][2] = GATED;
    set_gate(1);
    ask(1, ids, 4);
    assert_int_equal(take(1), 3);
    set_gate(0);
    assert_true(take(1) < 3);
    give_up();
    close_cache();
}

static void records_come_in_the_order_in_which_reads_end(void **state)
{
    static const int ids[] = {5, 6, 7};
    (void)state;
    open_cache(8);
    kind[2][5] = GATED;
    set_gate(1);
    ask(2, ids, 3);
    assert_int_equal(take(2), 6);
    assert_int_equal(take(2), 7);
    set_gate(0);
    assert_int_equal(take(2), 5);
    assert_int_equal(take(2), -1);
    assert_int_equal(take(2), -1);
    close_cache();
}

static void misuse_is_refused(void **state)
{
    static const int twice[] = {1, 2, 1}, wrong[] = {0, 8}, good[] = {0, 1, 2};
    waste_error e = {0};
    int expert;
    (void)state;
    open_cache(2);
    assert_int_equal(waste_cache_ask(cache, 1, twice, NULL, 3, 1, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "layer 1, expert 1"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_ask(cache, 1, wrong, NULL, 2, 1, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_ask(cache, 0, good, NULL, 1, 1, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_ask(cache, 3, good, NULL, 1, 1, &e), WASTE_ARG);
    ask(1, NULL, 0);
    assert_int_equal(take(1), -1);
    ask(1, good, 3); /* none of the above left a mark */
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_ask(cache, 2, good, NULL, 3, 1, &e), WASTE_BUSY);
    take(1);
    take(1);
    assert_int_equal(try_take(&expert, NULL, &e), WASTE_BUSY); /* both slots are held */
    assert_non_null(strstr(e.text, "layer 1, expert 2"));
    waste_cache_release(cache, 1, 0);
    waste_cache_release(cache, 1, 1);
    waste_cache_release(cache, 1, 1);
    waste_cache_release(cache, 1, 5);
    waste_cache_release(cache, 0, 0);
    use_all(1, good, 3);
    close_cache();
}

/* ---- who goes --------------------------------------------------------------- */

static void evicts_least_wanted(void **state)
{
    (void)state;
    open_cache(3);
    use(1, 0);
    use(1, 0);
    use(1, 1);
    use(1, 2);
    use(1, 2);
    use(1, 0);
    use(1, 3); /* takes the place of 1, wanted once */
    assert_true(use(1, 0));
    assert_true(use(1, 2));
    assert_true(use(1, 3));
    assert_false(use(1, 1));
    close_cache();
}

static void history_outlives_eviction(void **state)
{
    int i;
    (void)state;
    open_cache(2);
    for (i = 0; i < 20; i++) use(1, 0);
    use(1, 1);
    use(1, 2);
    use(1, 3);
    use(1, 4);
    assert_true(use(1, 0)); /* the others pass by */
    for (i = 0; i < 400; i++) use(1, 5 + i % 2);
    assert_false(use(1, 0)); /* fame fades */
    close_cache();
}

static void held_survives_pressure(void **state)
{
    static const int two[] = {0, 1};
    waste_error e = {0};
    const void *record;
    int i, expert;
    (void)state;
    open_cache(3);
    ask(1, two, 2);
    assert_int_equal(waste_cache_take(cache, &expert, &record, NULL, &e), WASTE_OK);
    give_up(); /* held all the same */
    for (i = 0; i < 40; i++) use(2, i % 8);
    assert_int_equal(((const unsigned char *)record)[48], 16 + expert);
    waste_cache_release(cache, 1, expert);
    for (i = 0; i < 40; i++) use(2, i % 8);
    assert_int_equal(counts().used, 3);
    close_cache();
}

/* ---- reads that fail, hang, are given up ------------------------------------ */

static void a_failed_read_ends_the_batch_and_nothing_else(void **state)
{
    static const int ids[] = {0, 1, 2}, threads[] = {-1, 1, 2};
    unsigned char wrong = 0;
    waste_error e;
    size_t t;
    int expert;
    (void)state;
    for (t = 0; t < 3; t++) {
        waste_status st;

        open_cache_with(2, threads[t]);
        fixture_patch(&box, "a.bin", 4096, &wrong, 1);
        ask(1, ids, 3);
        while (!(st = try_take(&expert, NULL, &e))) waste_cache_release(cache, 1, expert);
        assert_int_equal(st, WASTE_IO);
        assert_int_equal(expert, -1);
        assert_non_null(strstr(e.text, "layer 1, expert 1"));
        assert_non_null(strstr(e.text, "a.bin"));
        assert_int_equal(try_take(&expert, NULL, &e), WASTE_DONE);
        fixture_bank(&box, "a.bin", 1, 0);
        use_all(1, ids, 3); /* nothing remembers the failure */
        use_all(2, ids, 3);
        assert_int_equal(counts().used, 2);
        close_cache();
    }
}

static int told(void *ctx)
{
    return ++*(int *)ctx > 3;
}

/* As a caller whose read hangs would see it. */
static void cancelling_does_not_wait_for_the_disk(void **state)
{
    static const int ids[] = {0, 1, 2, 3, 4};
    int asked = 0, expert;
    const waste_cancel cancel = {told, &asked};
    waste_error e;
    uint64_t start;
    (void)state;
    open_cache(4);
    kind[1][0] = kind[1][1] = GATED;
    set_gate(1);
    ask(1, ids, 5);
    start = waste_clock_ns();
    assert_int_equal(try_take(&expert, &cancel, &e), WASTE_CANCELLED);
    assert_true(waste_clock_ns() - start < 1000000000);
    assert_int_equal(asked, 4);
    assert_non_null(strstr(e.text, "layer 1"));
    assert_int_equal(try_take(&expert, NULL, &e), WASTE_DONE);
    assert_true(counts().used <= 2); /* what had not begun was withdrawn */
    set_gate(0);
    kind[1][0] = kind[1][1] = NORMAL;
    use_all(1, ids, 5); /* those that had begun are there, and were not read again */
    assert_int_equal(reads[1][0], 1);
    close_cache();
}

static void a_cache_may_close_while_a_read_hangs(void **state)
{
    static const int ids[] = {0, 1, 2};
    (void)state;
    open_cache(4);
    kind[1][0] = GATED;
    set_gate(1);
    ask(1, ids, 3);
    give_up();
    close_cache();
}

/* ---- everything at once ---------------------------------------------------------- */

static _Atomic int stop;

static void *disturb(void *seed)
{
    uint32_t x = (uint32_t)(uintptr_t)seed;

    while (!stop) {
        waste_usage_row rows[8];
        int ids[8], i;

        for (i = 0; i < 8; i++) {
            x = x * 1664525u + 1013904223u;
            ids[i] = (int)(x >> 29);
            rows[i] = (waste_usage_row){1 + (int)(x >> 20 & 1), ids[i], x >> 8};
        }
        waste_cache_guess(cache, 1 + (int)(x >> 30 & 1), ids, NULL, 8);
        if (x >> 28 == 0) waste_cache_warm(cache, rows, 8);
        if (x >> 28 == 1) waste_cache_usage(cache, rows, 8);
        counts();
        for (i = 0; i < 2; i++)
            kind[1 + (x >> 15 & 1)][x >> 16 & 7] = x >> 20 & 15 ? NORMAL : FAILING;
    }
    return NULL;
}

/* Batches of all sizes by one thread at a time, some cancelled, some failing, while
 * others guess, warm and look. */
static void many_threads_and_failing_reads(void **state)
{
    static const uint64_t slots[] = {1, 2, 5, 16};
    static const int threads[] = {1, 2, 8};
    const int rounds = emulated() ? 50 : 150;
    size_t k, j;
    (void)state;
    for (k = 0; k < 4; k++)
        for (j = 0; j < 3; j++) {
            uint32_t x = 7;
            pthread_t t[2];
            int i, good = 0;

            open_cache_with(slots[k], threads[j]);
            stop = 0;
            for (i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&t[i], NULL, disturb, (void *)(uintptr_t)(i + 1)),
                                 0);
            for (i = 0; i < rounds; i++) {
                int ids[8], n = 0, e, layer, expert, never = -1000000;
                const waste_cancel cancel = {told, &never};
                waste_error err = {0};
                waste_status st;
                const void *r;

                x = x * 1664525u + 1013904223u;
                layer = 1 + (int)(x >> 31);
                for (e = 0; e < 8; e++)
                    if (x >> (8 + e) & 1) ids[n++] = e;
                st = waste_cache_ask(cache, layer, ids, NULL, (size_t)n, 1, &err);
                assert_int_equal(st, WASTE_OK);
                while (!(st = waste_cache_take(cache, &expert, &r, &cancel, &err))) {
                    assert_int_equal(((const unsigned char *)r)[48], layer * 16 + expert);
                    assert_int_equal(((const unsigned char *)r)[600], layer * 16 + expert);
                    waste_cache_release(cache, layer, expert);
                    good++;
                    if (x >> 24 == 5) { /* the next question is answered with yes */
                        never = 100;
                        pause_ms(50);
                    }
                }
                if (st != WASTE_DONE && st != WASTE_IO && (st != WASTE_CANCELLED || never < 0))
                    fail_msg("%d: %s", st, err.text);
            }
            stop = 1;
            for (i = 0; i < 2; i++) pthread_join(t[i], NULL);
            assert_true(good > rounds / 4);
            assert_true(counts().used <= slots[k]);
            close_cache();
        }
}

static void memory_is_reserved_and_counted(void **state)
{
    uint64_t before = waste_mem_used(), n;
    waste_error e = {0};
    waste_status st = WASTE_NOMEM;
    (void)state;
    open_cache(5);
    assert_int_equal(waste_mem_used() - before, 5 * 4096 + waste_cache_table_bytes(banks, 5));
    close_cache();
    assert_int_equal(waste_cache_open(&cache, banks, 0, 0, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_open(&cache, banks, 1, WASTE_READER_MOST + 1, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_open(&cache, banks, UINT64_MAX, 0, &e), WASTE_NOMEM);
    for (n = 1; st != WASTE_OK; n++) {
        memset(&e, 0, sizeof e);
        waste_mem_fail_at(n, 1);
        st = waste_cache_open(&cache, banks, 2, 0, &e);
        waste_mem_fail_at(0, 0);
        assert_int_equal(st, st ? WASTE_NOMEM : WASTE_OK);
        waste_cache_close(cache);
        assert_int_equal(waste_mem_used(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_hits_and_misses),
        cmocka_unit_test(a_batch_may_be_larger_than_the_cache),
        cmocka_unit_test(what_is_there_comes_first),
        cmocka_unit_test(records_come_in_the_order_in_which_reads_end),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(evicts_least_wanted),
        cmocka_unit_test(history_outlives_eviction),
        cmocka_unit_test(held_survives_pressure),
        cmocka_unit_test(a_failed_read_ends_the_batch_and_nothing_else),
        cmocka_unit_test(cancelling_does_not_wait_for_the_disk),
        cmocka_unit_test(a_cache_may_close_while_a_read_hangs),
        cmocka_unit_test(many_threads_and_failing_reads),
        cmocka_unit_test(memory_is_reserved_and_counted),
    };

    emulated_say("a third of the batches at once with everything");
    return cmocka_run_group_tests(tests, setup, teardown);
}
