/* store/cache: guesses, and warming. */
#include "cache_files.h"

/* ---- guesses ------------------------------------------------------------------ */

/* Until `done` reads have ended well and so many records are there or awaited. */
static void settle(uint64_t done, uint64_t used)
{
    waste_cache_counts n = counts();
    int i;

    for (i = 0; i < 60000 && (n.bytes_read / 4096 + n.warmed != done || n.used != used); i++) {
        pause_ms(1);
        n = counts();
    }
    assert_int_equal(n.bytes_read / 4096 + n.warmed, done);
    assert_int_equal(n.used, used);
}

static void a_confirmed_guess_is_a_hit(void **state)
{
    static const int ids[] = {2, 3}, now[] = {0};
    waste_cache_counts n;
    (void)state;
    open_cache(8);
    ask(1, now, 1);
    waste_cache_guess(cache, 2, ids, NULL, 2);
    while (take(1) >= 0) waste_cache_release(cache, 1, 0);
    settle(3, 3);
    assert_true(use(2, 2));
    n = counts();
    assert_int_equal(n.guesses, 2);
    assert_int_equal(n.guesses_used, 1);
    assert_int_equal(n.hits, 1);
    assert_int_equal(n.misses, 1);
    assert_int_equal(n.bytes_read, 3 * 4096);
    assert_true(use(2, 2)); /* that hit is no guess's merit any more */
    assert_true(use(2, 3));
    assert_int_equal(counts().guesses_used, 2);
    close_cache();
}

static void a_guess_on_its_way_is_waited_for_and_read_once(void **state)
{
    static const int ids[] = {5, 8, -1};
    int five = 5;
    (void)state;
    open_cache(8);
    kind[2][5] = GATED;
    set_gate(1);
    waste_cache_guess(cache, 2, ids, NULL, 3); /* ids that do not exist are skipped */
    waste_cache_guess(cache, 7, ids, NULL, 3);
    waste_cache_guess(cache, 2, ids, NULL, 1);
    ask(2, &five, 1);
    assert_int_equal(counts().hits, 1);
    assert_int_equal(counts().misses, 0);
    assert_int_equal(counts().guesses_used, 1);
    set_gate(0);
    assert_int_equal(take(2), 5);
    assert_int_equal(reads[2][5], 1);
    assert_int_equal(take(2), -1);
    close_cache();
}

/* Called by a taker that has waited for a while. */
static int opens_the_gate(void *ctx)
{
    (void)ctx;
    set_gate(0);
    return 0;
}

/* A batch of one whose read does not end before the taker waits; guessed before or not.
 * What it adds to the counts. */
static waste_cache_counts waited_for(int expert, int guessed)
{
    const waste_cancel cancel = {opens_the_gate, NULL};
    waste_cache_counts n, before = counts();
    waste_error e;
    int got;

    kind[2][expert] = GATED;
    set_gate(1);
    if (guessed) waste_cache_guess(cache, 2, &expert, NULL, 1);
    ask(2, &expert, 1);
    assert_int_equal(try_take(&got, &cancel, &e), WASTE_OK);
    assert_int_equal(got, expert);
    waste_cache_release(cache, 2, got);
    assert_int_equal(take(2), -1);
    n = counts();
    n.io_ns -= before.io_ns;
    n.known_ns -= before.known_ns;
    n.disk_ns -= before.disk_ns;
    return n;
}

static void waiting_is_known_by_whose_read_ended_it(void **state)
{
    static const int both[] = {6, 7};
    const waste_cancel cancel = {opens_the_gate, NULL};
    waste_cache_counts n, before;
    waste_error e;
    int got;
    (void)state;
    open_cache(8);
    n = waited_for(1, 0);
    assert_true(n.io_ns > 0);
    assert_int_equal(n.known_ns, 0);
    assert_true(n.disk_ns > 0);
    n = waited_for(2, 1);
    assert_true(n.io_ns > 0);
    assert_int_equal(n.known_ns, n.io_ns);
    /* of a guess and a demand the one that ends the wait decides */
    kind[2][6] = GATED;
    kind[2][7] = NORMAL;
    set_gate(1);
    waste_cache_guess(cache, 2, both, NULL, 1);
    ask(2, both, 2);
    before = counts();
    assert_int_equal(try_take(&got, NULL, &e), WASTE_OK);
    assert_int_equal(got, 7); /* the gate holds 6 */
    assert_int_equal(counts().known_ns, before.known_ns);
    assert_int_equal(try_take(&got, &cancel, &e), WASTE_OK);
    assert_int_equal(got, 6);
    n = counts();
    assert_true(n.known_ns > before.known_ns);
    assert_true(n.io_ns >= n.known_ns);
    assert_int_equal(take(2), -1);
    waste_cache_release(cache, 2, 6);
    waste_cache_release(cache, 2, 7);
    /* nothing is read, and time passes */
    before = counts();
    pause_ms(5);
    assert_int_equal(counts().disk_ns, before.disk_ns);
    close_cache();
}

static void unconfirmed_guesses_are_not_read(void **state)
{
    static const int ids[] = {0, 1, 2, 3, 4};
    (void)state;
    open_cache(8);
    kind[2][0] = GATED;
    set_gate(1);
    waste_cache_guess(cache, 2, ids, NULL, 5);
    while (!begun) pause_ms(1);
    assert_int_equal(counts().guesses, 5);
    assert_int_equal(counts().used, 5);
    use(2, 7);
    assert_int_equal(counts().guesses, 1); /* the one that had begun */
    assert_int_equal(counts().used, 2);
    assert_int_equal(reads[2][1] + reads[2][2] + reads[2][3] + reads[2][4], 0);
    close_cache();
}

static void guesses_displace_nothing_that_is_likelier(void **state)
{
    static const int both[] = {0, 1}, guess[] = {2, 3};
    int i, rank;
    (void)state;
    open_cache(4);
    for (i = 0; i < 60; i++) {
        use_all(1, both, 2);
        use_all(2, both, 2); /* every record in use, every time */
    }
    for (i = 0; i < 300; i++) { /* guesses that never come true */
        waste_cache_guess(cache, 1, guess, NULL, 2);
        use_all(1, both, 2);
        use_all(2, both, 2);
    }
    i = reads[1][2] + reads[1][3];
    rank = reads[1][0] + reads[1][1] + reads[2][0] + reads[2][1];
    waste_cache_guess(cache, 1, guess, NULL, 2);
    pause_ms(20);
    use_all(1, both, 2);
    use_all(2, both, 2);
    assert_int_equal(reads[1][2] + reads[1][3], i);
    assert_int_equal(reads[1][0] + reads[1][1] + reads[2][0] + reads[2][1], rank);
    close_cache();
}

/* Guesses for several rows come in one list: what a guess is worth is up to its rank for
 * its row, and not to its place. */
static void a_guess_is_worth_what_its_rank_says(void **state)
{
    static const int ids[] = {2, 3}, hopeless = WASTE_POLICY_RANKS;
    const int none = 0, five = 5, six = 6, seven = 7, last[] = {hopeless, hopeless},
              mixed[] = {hopeless, 0};
    int i;
    (void)state;
    open_cache(2);
    use(1, 0);
    use(1, 1);
    waste_cache_guess(cache, 2, ids, last, 2);
    assert_int_equal(counts().guesses, 0);
    waste_cache_guess(cache, 2, ids, mixed, 2);
    assert_int_equal(counts().guesses, 1);
    use(2, 3);
    assert_int_equal(counts().guesses_used, 1);
    close_cache();

    open_cache(2); /* rank 5 is always wrong; rank 0 is not worth less for it */
    for (i = 0; i < 400; i++) {
        waste_cache_guess(cache, 2, &seven, &five, 1);
        use(2, i % 4);
        use(1, i % 4);
    }
    i = (int)counts().guesses;
    waste_cache_guess(cache, 2, &six, &five, 1);
    assert_int_equal(counts().guesses, i);
    waste_cache_guess(cache, 2, &six, &none, 1);
    assert_int_equal(counts().guesses, i + 1);
    close_cache();
}

static void a_guess_keeps_what_is_there(void **state)
{
    int three = 3, i;
    (void)state;
    open_cache(2);
    use(2, 3);
    for (i = 0; i < 30; i++) {
        ask(1, &i, 0);
        waste_cache_guess(cache, 2, &three, NULL, 1);
        use(1, i % 8);
        waste_cache_guess(cache, 2, &three, NULL, 1);
    }
    use(2, 3);
    assert_true(use(2, 3));
    close_cache();
}

static void guesses_never_take_what_the_batch_needs(void **state)
{
    static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    int expert, i;
    (void)state;
    for (i = 1; i < 10; i++) {
        open_cache((uint64_t)i);
        ask(1, all, 8);
        waste_cache_guess(cache, 2, all, NULL, 8);
        while ((expert = take(1)) >= 0) {
            waste_cache_guess(cache, 2, all, NULL, 8);
            waste_cache_release(cache, 1, expert);
        }
        use_all(2, all, 8);
        close_cache();
    }
}

static void a_failed_guess_is_no_error(void **state)
{
    static const int ids[] = {1, 2};
    (void)state;
    open_cache(4);
    kind[2][1] = FAILING;
    waste_cache_guess(cache, 2, ids, NULL, 2);
    settle(1, 1);
    kind[2][1] = NORMAL;
    assert_false(use(2, 1));
    close_cache();
}

/* Demand that meets a read which then fails makes one of its own. */
static void a_guess_that_fails_under_a_demand_is_tried_again(void **state)
{
    int one = 1, expert;
    waste_error e;
    (void)state;
    open_cache(4);
    kind[2][1] = GATED;
    failing_gate = 1;
    set_gate(1);
    waste_cache_guess(cache, 2, &one, NULL, 1);
    while (!begun) pause_ms(1);
    ask(2, &one, 1);
    kind[2][1] = NORMAL;
    set_gate(0);
    assert_int_equal(take(2), 1);
    assert_int_equal(reads[2][1], 2);
    assert_int_equal(take(2), -1);
    close_cache();

    open_cache(4);
    kind[2][1] = GATED;
    set_gate(1);
    waste_cache_guess(cache, 2, &one, NULL, 1);
    while (!begun) pause_ms(1);
    ask(2, &one, 1);
    kind[2][1] = FAILING; /* and again */
    set_gate(0);
    assert_int_equal(try_take(&expert, NULL, &e), WASTE_IO);
    assert_int_equal(reads[2][1], 2);
    close_cache();
    failing_gate = 0;
}

static void without_threads_nothing_is_read_ahead(void **state)
{
    static const int ids[] = {1, 2};
    static const waste_usage_row rows[] = {{1, 1, 5}};
    (void)state;
    open_cache_with(4, -1);
    waste_cache_guess(cache, 2, ids, NULL, 2);
    waste_cache_warm(cache, rows, 1);
    assert_int_equal(counts().used, 0);
    assert_int_equal(counts().guesses, 0);
    assert_false(use(2, 1));
    close_cache();
}

static void where_all_is_in_memory_there_is_nothing_to_guess(void **state)
{
    int e;

    (void)state;
    open_cache(2 * FIXTURE_EXPERTS);
    assert_true(waste_cache_may_lack(cache, 1));
    for (e = 0; e < FIXTURE_EXPERTS; e++) {
        assert_true(waste_cache_may_lack(cache, 1));
        use(1, e);
    }
    assert_false(waste_cache_may_lack(cache, 1));
    assert_true(waste_cache_may_lack(cache, 2)); /* of it nothing is there */
    close_cache();
    open_cache(FIXTURE_EXPERTS); /* no slot for each: what is there may have to go */
    for (e = 0; e < FIXTURE_EXPERTS; e++) use(1, e);
    assert_true(waste_cache_may_lack(cache, 1));
    close_cache();
}

/* ---- warming ------------------------------------------------------------------ */

static void warming_fills_empty_slots_only(void **state)
{
    static const waste_usage_row rows[] = {{1, 0, 900}, {1, 9, 1},   {0, 0, 1},  {2, 1, 800},
                                           {1, 2, 700}, {1, 3, 600}, {1, 4, 500}};
    static const int next[] = {3, 4};
    waste_usage_row out[16];
    size_t n;
    (void)state;
    open_cache(4);
    use(2, 7);
    waste_cache_warm(cache, rows, 7);
    settle(4, 4);
    assert_int_equal(counts().warmed, 3);
    assert_int_equal(counts().evictions, 0);
    assert_int_equal(counts().bytes_read, 4096);
    assert_true(use(1, 0));
    assert_true(use(2, 1));
    assert_true(use(2, 7));
    use_all(1, next, 2);
    n = waste_cache_usage(cache, out, 16);
    assert_int_equal(n, 6); /* also those that there was no room for */
    assert_int_equal(waste_cache_usage(cache, out, 2), 2);
    waste_cache_warm(cache, rows, 0);
    close_cache();
}

static void warming_goes_on_in_the_background(void **state)
{
    waste_usage_row rows[16];
    int i, five = 5;
    (void)state;
    for (i = 0; i < 16; i++) rows[i] = (waste_usage_row){1 + i / 8, i % 8, 1};
    open_cache(16);
    kind[1][0] = GATED;
    set_gate(1);
    waste_cache_warm(cache, rows, 16);
    waste_cache_warm(cache, rows, 16); /* busy with the first */
    ask(2, &five, 1);
    assert_int_equal(take(2), 5);
    assert_int_equal(take(2), -1);
    waste_cache_release(cache, 2, 5);
    set_gate(0);
    settle(16, 16);
    for (i = 0; i < 16; i++) assert_int_equal(reads[1 + i / 8][i % 8], 1);
    close_cache();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_confirmed_guess_is_a_hit),
        cmocka_unit_test(a_guess_on_its_way_is_waited_for_and_read_once),
        cmocka_unit_test(waiting_is_known_by_whose_read_ended_it),
        cmocka_unit_test(unconfirmed_guesses_are_not_read),
        cmocka_unit_test(guesses_displace_nothing_that_is_likelier),
        cmocka_unit_test(a_guess_is_worth_what_its_rank_says),
        cmocka_unit_test(a_guess_keeps_what_is_there),
        cmocka_unit_test(guesses_never_take_what_the_batch_needs),
        cmocka_unit_test(a_failed_guess_is_no_error),
        cmocka_unit_test(a_guess_that_fails_under_a_demand_is_tried_again),
        cmocka_unit_test(without_threads_nothing_is_read_ahead),
        cmocka_unit_test(where_all_is_in_memory_there_is_nothing_to_guess),
        cmocka_unit_test(warming_fills_empty_slots_only),
        cmocka_unit_test(warming_goes_on_in_the_background),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
