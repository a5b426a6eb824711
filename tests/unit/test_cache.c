/* store/cache: batches in completion order, who stays and who goes, guesses, and
 * what is left after reads that fail, hang or are given up. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "emulated.h"
#include "fixture_files.h"
#include "store/cache.h"
#include "store/policy.h"
#include "store/reader.h"

static fixture box;
static waste_manifest *manifest;
static waste_banks *banks;
static waste_cache *cache;

/* Per record: reads so far; what a read does; the gate that GATED ones wait at. */
enum { NORMAL, FAILING, GATED };
static _Atomic int reads[3][FIXTURE_EXPERTS], kind[3][FIXTURE_EXPERTS], begun;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int shut;
static _Atomic int failing_gate; /* who waited at the gate fails */

static waste_status on_read(void *ctx, int layer, int expert, waste_error *err)
{
    const int what = kind[layer][expert];
    (void)ctx;
    reads[layer][expert]++;
    begun++;
    if (what == FAILING) return waste_fail(err, WASTE_IO, "the disk says no");
    pthread_mutex_lock(&lock);
    while (what == GATED && shut) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    if (what == GATED && failing_gate) return waste_fail(err, WASTE_IO, "the gate says no");
    return WASTE_OK;
}

static void set_gate(int closed)
{
    pthread_mutex_lock(&lock);
    shut = closed;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static void pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static int setup(void **state)
{
    static const waste_bank_shape shape = {3, 1, FIXTURE_EXPERTS, FIXTURE_WIDTH, FIXTURE_HIDDEN};
    waste_error e = {0};
    (void)state;
    fixture_make(&box);
    return waste_manifest_open(&manifest, box.dir, &e) ||
           waste_banks_open(&banks, manifest, &shape, WASTE_BANKS_VERIFY, NULL, &e);
}

static int teardown(void **state)
{
    (void)state;
    waste_banks_close(banks);
    waste_manifest_close(manifest);
    fixture_remove(&box);
    return 0;
}

static void open_cache_with(uint64_t slots, int threads)
{
    waste_error e = {0};
    int i;

    for (i = 0; i < 3 * FIXTURE_EXPERTS; i++) (&reads[0][0])[i] = (&kind[0][0])[i] = 0;
    begun = shut = 0;
    waste_banks_fault(banks, on_read, NULL);
    if (waste_cache_open(&cache, banks, slots, threads, &e)) fail_msg("%s", e.text);
}

/* Two readers: one may be held up by a gate while the other goes on in order. */
static void open_cache(uint64_t slots)
{
    open_cache_with(slots, 2);
}

static waste_cache_counts counts(void)
{
    waste_cache_counts n;

    waste_cache_counts_get(cache, &n);
    return n;
}

static void ask(int layer, const int *ids, size_t n)
{
    waste_error e = {0};

    if (waste_cache_ask(cache, layer, ids, NULL, n, 1, &e)) fail_msg("%s", e.text);
}

/* Takes one and looks at its bytes; -1 at the end. */
static int take(int layer)
{
    waste_error e = {0};
    const unsigned char *r;
    const void *record;
    int expert;
    waste_status st = waste_cache_take(cache, &expert, &record, NULL, &e);

    if (st == WASTE_DONE) return -1;
    if (st) fail_msg("%s", e.text);
    r = record;
    assert_int_equal((uintptr_t)r % 4096, 0);
    assert_int_equal(r[48], layer * 16 + expert);
    return expert;
}

static void use_all(int layer, const int *ids, size_t n)
{
    int expert;
    size_t taken;

    ask(layer, ids, n);
    for (taken = 0; (expert = take(layer)) >= 0; taken++) waste_cache_release(cache, layer, expert);
    assert_int_equal(taken, n);
}

/* A batch of one; whether it was there already. */
static int use(int layer, int expert)
{
    const uint64_t before = counts().hits;

    use_all(layer, &expert, 1);
    return counts().hits > before;
}

static waste_status try_take(int *expert, const waste_cancel *cancel, waste_error *e)
{
    const void *record;

    memset(e, 0, sizeof *e);
    return waste_cache_take(cache, expert, &record, cancel, e);
}

static int yes(void *ctx)
{
    (void)ctx;
    return 1;
}

/* Gives up what was not taken: as an interrupt does, which is asked about every now
 * and then only. */
static void give_up(void)
{
    const waste_cancel cancel = {yes, NULL};
    waste_error e;
    int expert;

    pause_ms(50);
    assert_int_equal(try_take(&expert, &cancel, &e), WASTE_CANCELLED);
}

static void close_cache(void)
{
    set_gate(0);
    waste_cache_close(cache);
}

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
        cmocka_unit_test(warming_fills_empty_slots_only),
        cmocka_unit_test(warming_goes_on_in_the_background),
        cmocka_unit_test(many_threads_and_failing_reads),
        cmocka_unit_test(memory_is_reserved_and_counted),
    };

    emulated_say("a third of the batches at once with everything");
    return cmocka_run_group_tests(tests, setup, teardown);
}
