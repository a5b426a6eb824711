/* store/cache: who stays, who goes, and what happens when threads meet. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "store/cache.h"

static fixture box;
static waste_manifest *manifest;
static waste_banks *banks;
static waste_cache *cache;

static int setup(void **state)
{
    static const waste_bank_shape shape = {3, 1, FIXTURE_EXPERTS, FIXTURE_WIDTH, FIXTURE_HIDDEN};
    waste_error e = {0};
    (void)state;
    fixture_make(&box);
    return waste_manifest_open(&manifest, box.dir, &e) ||
           waste_banks_open(&banks, manifest, &shape, 1, &e);
}

static int teardown(void **state)
{
    (void)state;
    waste_banks_close(banks);
    waste_manifest_close(manifest);
    fixture_remove(&box);
    return 0;
}

static void open_cache(uint64_t slots)
{
    waste_error e = {0};

    assert_int_equal(waste_cache_open(&cache, banks, slots, &e), WASTE_OK);
}

/* Holds and looks at the bytes; whether it was there already. */
static int hold(int layer, int expert)
{
    waste_error e = {0};
    waste_cache_counts before, after;
    const void *r;

    waste_cache_counts_get(cache, &before);
    assert_int_equal(waste_cache_hold(cache, layer, expert, &r, &e), WASTE_OK);
    assert_int_equal(((const unsigned char *)r)[48], layer * 16 + expert);
    assert_int_equal((uintptr_t)r % 4096, 0);
    waste_cache_counts_get(cache, &after);
    return after.hits > before.hits;
}

static int use(int layer, int expert)
{
    int hit = hold(layer, expert);

    waste_cache_release(cache, layer, expert);
    return hit;
}

static void counts_hits_and_misses(void **state)
{
    waste_cache_counts n;
    (void)state;
    open_cache(3);
    assert_false(use(1, 0));
    assert_false(use(2, 0));
    assert_true(use(1, 0));
    assert_true(use(2, 0));
    assert_true(use(2, 0));
    waste_cache_counts_get(cache, &n);
    assert_int_equal(n.misses, 2);
    assert_int_equal(n.hits, 3);
    assert_int_equal(n.bytes_read, 2 * 4096);
    assert_int_equal(n.used, 2);
    assert_int_equal(n.slots, 3);
    assert_int_equal(n.evictions, 0);
    waste_cache_close(cache);
}

static void evicts_least_wanted(void **state)
{
    (void)state;
    open_cache(3);
    use(1, 0);
    use(1, 0);
    use(1, 1);
    use(1, 2);
    use(1, 2);
    assert_false(use(1, 3)); /* takes the place of 1, wanted once */
    assert_true(use(1, 0));
    assert_true(use(1, 2));
    assert_true(use(1, 3));
    assert_false(use(1, 1));
    waste_cache_close(cache);
}

static void oldest_goes_among_equals(void **state)
{
    (void)state;
    open_cache(2);
    use(1, 0);
    use(1, 1);
    use(1, 2); /* 0 goes */
    assert_true(use(1, 1));
    assert_false(use(1, 0)); /* 2 goes: wanted once, like 1 before the last use */
    assert_true(use(1, 1));
    waste_cache_close(cache);
}

/* A record that was wanted often, long ago, makes room in the end. */
static void fame_fades(void **state)
{
    int i, gone = 0;
    (void)state;
    open_cache(2);
    for (i = 0; i < 20; i++) use(1, 0);
    for (i = 0; i < 200 && !gone; i++) {
        waste_cache_counts n;
        use(2, i % 2);
        waste_cache_counts_get(cache, &n);
        gone = n.evictions > 0 && use(2, 0) && use(2, 1);
    }
    assert_true(gone);
    assert_false(use(1, 0));
    waste_cache_close(cache);
}

static void held_survives_pressure(void **state)
{
    waste_error e = {0};
    const void *first, *r;
    int i;
    (void)state;
    open_cache(2);
    assert_int_equal(waste_cache_hold(cache, 1, 0, &first, &e), WASTE_OK);
    for (i = 0; i < 40; i++) use(2, i % 8);
    assert_int_equal(((const unsigned char *)first)[48], 16);
    assert_true(hold(1, 0)); /* two holds now */
    waste_cache_release(cache, 1, 0);
    for (i = 0; i < 40; i++) use(2, i % 8);
    assert_true(hold(1, 0));
    assert_int_equal(waste_cache_hold(cache, 1, 1, &r, &e), WASTE_OK);
    assert_int_equal(waste_cache_hold(cache, 1, 2, &r, &e), WASTE_BUSY); /* both are held */
    assert_null(r);
    assert_non_null(strstr(e.text, "layer 1, expert 2"));
    waste_cache_release(cache, 1, 1);
    assert_false(hold(1, 2));
    waste_cache_close(cache); /* still held: no matter */
}

static void wanted_records_go_last(void **state)
{
    static const int next[] = {0, 7, -4, 9};
    (void)state;
    open_cache(2);
    use(1, 0);
    use(1, 1);
    use(1, 1);
    waste_cache_want(cache, 1, next, 4); /* ids that do not exist are skipped */
    use(1, 7);
    assert_true(use(1, 0)); /* 1 went, although wanted more often */
    waste_cache_want(cache, 2, next, 1);
    use(2, 3);
    assert_true(use(1, 0));
    assert_false(use(1, 7));
    waste_cache_close(cache);
}

static void a_failed_read_leaves_nothing_behind(void **state)
{
    waste_error e = {0};
    waste_cache_counts n;
    const void *r;
    unsigned char wrong = 0;
    (void)state;
    open_cache(1);
    fixture_patch(&box, "a.bin", 4096, &wrong, 1);
    assert_int_equal(waste_cache_hold(cache, 1, 1, &r, &e), WASTE_IO);
    assert_null(r);
    assert_non_null(strstr(e.text, "layer 1, expert 1"));
    waste_cache_counts_get(cache, &n);
    assert_int_equal(n.used, 0);
    assert_int_equal(n.bytes_read, 0);
    assert_false(use(2, 2)); /* the slot is free */
    fixture_bank(&box, "a.bin", 1, 0);
    assert_false(use(1, 1)); /* nothing remembers the failure */
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_hold(cache, 0, 0, &r, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_cache_hold(cache, 1, 8, &r, &e), WASTE_ARG);
    waste_cache_release(cache, 0, 0);
    waste_cache_release(cache, 1, 5);
    waste_cache_close(cache);
}

static void large_caches_fill_before_they_evict(void **state)
{
    waste_cache_counts n;
    int i;
    (void)state;
    open_cache(1000);
    for (i = 0; i < 64; i++) use(1 + i / 8 % 2, i % 8);
    waste_cache_counts_get(cache, &n);
    assert_int_equal(n.misses, 16);
    assert_int_equal(n.used, 16);
    waste_cache_close(cache);
}

/* Too many slots to look at each: candidates are drawn, held ones never among
 * them. */
static void a_large_cache_evicts_too(void **state)
{
    waste_bank_shape wide = {3, 1, 16, FIXTURE_WIDTH, FIXTURE_HIDDEN};
    waste_manifest *m;
    waste_banks *b;
    waste_error e = {0};
    waste_cache_counts n;
    int i, round;
    (void)state;
    for (i = 0; i < 2; i++) {
        fixture_edit(&box, "\"experts\": 8", "\"experts\": 16");
        fixture_edit(&box, "\"bytes\": 32768", "\"bytes\": 65536");
        fixture_bank_of(&box, i ? "b.bin" : "a.bin", 1 + i, 10 * i, 16);
    }
    assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_OK);
    assert_int_equal(waste_banks_open(&b, m, &wide, 1, &e), WASTE_OK);
    assert_int_equal(waste_cache_open(&cache, b, 20, &e), WASTE_OK);
    for (i = 0; i < 19; i++) hold(1 + i / 16, i % 16);
    for (i = 0; i < 13; i++) assert_false(use(2, 3 + i)); /* one slot is left to go round */
    for (i = 0; i < 19; i++) {
        assert_true(hold(1 + i / 16, i % 16));
        waste_cache_release(cache, 1 + i / 16, i % 16);
        waste_cache_release(cache, 1 + i / 16, i % 16);
    }
    for (round = 0; round < 10; round++)
        for (i = 0; i < 32; i++) use(1 + i / 16, i % 16);
    waste_cache_counts_get(cache, &n);
    assert_int_equal(n.used, 20);
    assert_int_equal(n.evictions, n.misses - 20);
    assert_true(n.hits > 19 + 19); /* going round and round still finds some */
    waste_cache_close(cache);
    waste_banks_close(b);
    waste_manifest_close(m);
    fixture_reset(&box);
    fixture_bank(&box, "a.bin", 1, 0);
    fixture_bank(&box, "b.bin", 2, 10);
}

static void *many_holds(void *seed)
{
    uint32_t x = (uint32_t)(uintptr_t)seed;
    intptr_t wrong = 0;
    int i;

    for (i = 0; i < 3000; i++) {
        int layer, expert;
        waste_error e = {0};
        const void *r;
        x = x * 1664525u + 1013904223u;
        layer = 1 + (int)(x >> 31);
        expert = (int)(x >> 28 & 7);
        if (waste_cache_hold(cache, layer, expert, &r, &e)) {
            wrong++;
            continue;
        }
        wrong += ((const unsigned char *)r)[48] != layer * 16 + expert;
        wrong += ((const unsigned char *)r)[600] != layer * 16 + expert;
        waste_cache_release(cache, layer, expert);
    }
    return (void *)wrong;
}

static void threads_share_reads_and_never_see_half_a_record(void **state)
{
    static const uint64_t slots[] = {16, 9}; /* all records; less, but one for each thread */
    pthread_t t[8];
    uintptr_t i;
    size_t k;
    (void)state;
    for (k = 0; k < 2; k++) {
        waste_cache_counts n;
        open_cache(slots[k]);
        for (i = 0; i < 8; i++)
            assert_int_equal(pthread_create(&t[i], NULL, many_holds, (void *)(i + 1)), 0);
        for (i = 0; i < 8; i++) {
            void *wrong;
            assert_int_equal(pthread_join(t[i], &wrong), 0);
            assert_null(wrong);
        }
        waste_cache_counts_get(cache, &n);
        assert_int_equal(n.hits + n.misses, 8 * 3000);
        assert_int_equal(n.bytes_read, n.misses * 4096);
        if (k == 0) assert_int_equal(n.misses, 16); /* no record was read twice */
        waste_cache_close(cache);
    }
}

static void *failing_hold(void *unused)
{
    waste_error e = {0};
    const void *r;
    (void)unused;
    if (waste_cache_hold(cache, 1, 4, &r, &e) != WASTE_IO) return NULL;
    return (void *)(intptr_t)(strstr(e.text, "expert 4") != NULL);
}

/* One slot, eight threads, a record that cannot be read: each is told so. */
static void everyone_learns_of_a_failed_read(void **state)
{
    unsigned char wrong = 0;
    pthread_t t[8];
    int i, round;
    (void)state;
    fixture_patch(&box, "a.bin", 4 * 4096, &wrong, 1);
    for (round = 0; round < 50; round++) {
        waste_cache_counts n;
        open_cache(8);
        for (i = 0; i < 8; i++)
            assert_int_equal(pthread_create(&t[i], NULL, failing_hold, NULL), 0);
        for (i = 0; i < 8; i++) {
            void *told;
            assert_int_equal(pthread_join(t[i], &told), 0);
            assert_non_null(told);
        }
        waste_cache_counts_get(cache, &n);
        assert_int_equal(n.used, 0);
        assert_false(use(1, 5));
        waste_cache_close(cache);
    }
    fixture_bank(&box, "a.bin", 1, 0);
}

static void memory_is_reserved_and_counted(void **state)
{
    uint64_t before = waste_mem_used(), n;
    waste_error e = {0};
    waste_status st = WASTE_NOMEM;
    (void)state;
    open_cache(5);
    assert_int_equal(waste_mem_used() - before, 5 * 4096 + waste_cache_table_bytes(banks, 5));
    waste_cache_close(cache);
    assert_int_equal(waste_cache_open(&cache, banks, 0, &e), WASTE_ARG);
    for (n = 1; st != WASTE_OK; n++) {
        memset(&e, 0, sizeof e);
        waste_mem_fail_at(n, 1);
        st = waste_cache_open(&cache, banks, 2, &e);
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
        cmocka_unit_test(evicts_least_wanted),
        cmocka_unit_test(oldest_goes_among_equals),
        cmocka_unit_test(fame_fades),
        cmocka_unit_test(held_survives_pressure),
        cmocka_unit_test(wanted_records_go_last),
        cmocka_unit_test(a_failed_read_leaves_nothing_behind),
        cmocka_unit_test(large_caches_fill_before_they_evict),
        cmocka_unit_test(a_large_cache_evicts_too),
        cmocka_unit_test(threads_share_reads_and_never_see_half_a_record),
        cmocka_unit_test(everyone_learns_of_a_failed_read),
        cmocka_unit_test(memory_is_reserved_and_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
