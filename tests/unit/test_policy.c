/* store/policy: what a record is worth, and which one goes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store/policy.h"

enum { LAYERS = 4, EXPERTS = 32 };

static waste_policy *p;

static int setup(void **state)
{
    waste_error e = {0};
    (void)state;
    return waste_policy_open(&p, LAYERS, EXPERTS, &e);
}

static int teardown(void **state)
{
    (void)state;
    waste_policy_close(p);
    return 0;
}

static void pass(int layer, int expert)
{
    waste_policy_pass(p, layer, &expert, NULL, 1, 1);
}

static int32_t record(int layer, int expert)
{
    return layer * EXPERTS + expert;
}

static void only_offered_records_go(void **state)
{
    (void)state;
    assert_int_equal(waste_policy_least(p, INFINITY), -1);
    waste_policy_offer(p, record(1, 3));
    waste_policy_offer(p, record(1, 3));
    assert_int_equal(waste_policy_least(p, INFINITY), record(1, 3));
    waste_policy_withhold(p, record(1, 3));
    waste_policy_withhold(p, record(1, 3));
    waste_policy_withhold(p, record(2, 0));
    assert_int_equal(waste_policy_least(p, INFINITY), -1);
}

static void the_less_used_goes(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 6; i++) pass(0, i % 3 ? 1 : 2);
    waste_policy_offer(p, record(0, 1));
    waste_policy_offer(p, record(0, 2));
    assert_int_equal(waste_policy_least(p, INFINITY), record(0, 2));
    waste_policy_offer(p, record(0, 5)); /* never used */
    assert_int_equal(waste_policy_least(p, INFINITY), record(0, 5));
}

static void of_equals_the_layer_needed_later_goes(void **state)
{
    int i, layer;
    (void)state;
    for (i = 0; i < 5; i++)
        for (layer = 0; layer < LAYERS; layer++) pass(layer, 7);
    for (layer = 0; layer < LAYERS; layer++) waste_policy_offer(p, record(layer, 7));
    pass(0, 7);
    pass(1, 7); /* now layer 2 is next, layer 1 is a whole cycle away */
    waste_policy_withhold(p, record(0, 7));
    assert_int_equal(waste_policy_least(p, INFINITY), record(1, 7));
    waste_policy_withhold(p, record(1, 7));
    assert_int_equal(waste_policy_least(p, INFINITY), record(3, 7));
}

static void history_outlives_eviction_and_fades(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 50; i++) pass(0, 1);
    waste_policy_offer(p, record(0, 1));
    waste_policy_withhold(p, record(0, 1)); /* evicted */
    pass(0, 2);
    waste_policy_offer(p, record(0, 1));
    waste_policy_offer(p, record(0, 2));
    assert_int_equal(waste_policy_least(p, INFINITY), record(0, 2));
    for (i = 0; i < 200; i++) pass(0, 2);
    assert_int_equal(waste_policy_least(p, INFINITY), record(0, 1));
}

static void a_pass_of_many_rows_counts_their_share(void **state)
{
    const int ids[] = {1, 2}, uses[] = {2, 60};
    (void)state;
    waste_policy_pass(p, 0, ids, uses, 2, 64);
    waste_policy_offer(p, record(0, 1));
    waste_policy_offer(p, record(0, 2));
    assert_int_equal(waste_policy_least(p, INFINITY), record(0, 1));
    assert_in_range(waste_policy_hits(p, record(0, 2)), 200000, 300000); /* 60/64 of 64 passes */
    waste_policy_pass(p, 1, ids, uses, 2, 0);                            /* nothing happened */
    assert_int_equal(waste_policy_hits(p, record(1, 2)), 0);
}

static void nothing_goes_for_what_is_worth_less(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 40; i++) pass(1, 4);
    waste_policy_offer(p, record(1, 4));
    assert_int_equal(waste_policy_least(p, 0), -1);
    /* the likeliest guess for the next layer is worth it, a hopeless one is not */
    assert_int_equal(waste_policy_least(p, waste_policy_guess(p, 2, 0)), record(1, 4));
    assert_int_equal(waste_policy_least(p, waste_policy_guess(p, 2, WASTE_POLICY_RANKS)), -1);
    for (i = 0; i < 400; i++) waste_policy_guessed(p, 0, 0);
    assert_int_equal(waste_policy_least(p, waste_policy_guess(p, 2, 0)), -1);
    for (i = 0; i < 400; i++) waste_policy_guessed(p, 0, 1);
    assert_int_equal(waste_policy_least(p, waste_policy_guess(p, 2, 0)), record(1, 4));
    waste_policy_guessed(p, WASTE_POLICY_RANKS, 1);
}

static void seeds_are_hits_again(void **state)
{
    int i;
    uint32_t hits;
    (void)state;
    assert_int_equal(waste_policy_hits(p, record(3, 1)), 0);
    waste_policy_seed(p, record(3, 1), 1234);
    assert_int_equal(waste_policy_hits(p, record(3, 1)), 1234);
    waste_policy_seed(p, record(3, 1), 1000); /* what is known stays */
    assert_int_equal(waste_policy_hits(p, record(3, 1)), 1234);
    waste_policy_seed(p, record(3, 2), UINT32_MAX);
    assert_int_equal(waste_policy_hits(p, record(3, 2)), 1000000);
    for (i = 0; i < 3; i++) pass(3, 5);
    hits = waste_policy_hits(p, record(3, 5));
    assert_true(hits > 10000 && hits < 20000);
    waste_policy_offer(p, record(3, 1));
    waste_policy_offer(p, record(3, 2));
    waste_policy_offer(p, record(3, 5));
    assert_int_equal(waste_policy_least(p, INFINITY), record(3, 1));
    waste_policy_seed(p, record(3, 1), 1000000); /* while it is on offer */
    assert_int_equal(waste_policy_least(p, INFINITY), record(3, 5));
}

/* A record's index, exactly: the largest bound that it is not below, all others being
 * withheld. Numbers from 0 up are in the order of their bits. */
static float index_in(waste_policy *q, int32_t r)
{
    uint32_t lo = 0, hi = 0x7f800000; /* infinity, which it is below */
    float than;

    waste_policy_offer(q, r);
    while (hi - lo > 1) {
        const uint32_t mid = lo + (hi - lo) / 2;

        memcpy(&than, &mid, sizeof than);
        if (waste_policy_least(q, than) < 0)
            lo = mid;
        else
            hi = mid;
    }
    waste_policy_withhold(q, r);
    memcpy(&than, &lo, sizeof than);
    return than;
}

/* Against a search of everything, through random offers, uses and evictions. */
static void the_least_is_the_least_of_all(void **state)
{
    unsigned char offered[LAYERS * EXPERTS] = {0};
    waste_error e = {0};
    waste_policy *q; /* of the same passes, where records are looked at one by one */
    uint32_t x = 1;
    float min, index[LAYERS * EXPERTS];
    int i, j;
    (void)state;
    assert_int_equal(waste_policy_open(&q, LAYERS, EXPERTS, &e), WASTE_OK);
    for (i = 0; i < 4000; i++) {
        int32_t r, least;

        x = x * 1664525u + 1013904223u;
        r = (int32_t)(x >> 25);
        if (x >> 9 & 1) {
            waste_policy_offer(p, r);
            offered[r] = 1;
        } else {
            waste_policy_withhold(p, r);
            offered[r] = 0;
        }
        if (i % 3 == 0) {
            int ids[3] = {(int)(x >> 5 & 7), 8 + (int)(x >> 12 & 7), 16 + (int)(x >> 18 & 15)};
            waste_policy_pass(p, i / 3 % LAYERS, ids, NULL, 3, 1 + (x >> 8 & 1) * 7);
            waste_policy_pass(q, i / 3 % LAYERS, ids, NULL, 3, 1 + (x >> 8 & 1) * 7);
            for (j = 0; j < LAYERS * EXPERTS; j++) index[j] = index_in(q, j);
        }
        least = waste_policy_least(p, INFINITY);
        min = INFINITY;
        for (j = 0; j < LAYERS * EXPERTS; j++)
            if (offered[j]) min = fminf(min, index[j]);
        assert_int_equal(least >= 0, min < INFINITY);
        if (least < 0) continue;
        assert_true(offered[least] && index[least] <= min);
        assert_int_equal(waste_policy_least(p, min), -1); /* strictly below */
    }
    waste_policy_close(q);
}

/* In the end there is nothing left of a use: the index is that of a record that was
 * never wanted, not a number that shrinks for ever. */
static void what_is_forgotten_is_zero(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 2000; i++) pass(0, 1);
    assert_int_equal(waste_policy_hits(p, record(0, 1)), 999956); /* of WASTE_POLICY_UNIT */
    for (i = 0; i < 2600; i++) pass(0, 2);
    assert_int_equal(waste_policy_hits(p, record(0, 1)), 2);
    assert_true(index_in(p, record(0, 1)) > index_in(p, record(0, 3)));
    for (i = 0; i < 1000; i++) pass(0, 2);
    assert_int_equal(waste_policy_hits(p, record(0, 1)), 0);
    assert_true(index_in(p, record(0, 1)) == index_in(p, record(0, 3)));
    assert_true(index_in(p, record(0, 2)) > index_in(p, record(0, 1)));
}

static void memory_is_what_was_said(void **state)
{
    const uint64_t before = waste_mem_used();
    waste_error e = {0};
    waste_policy *q;
    uint64_t n;
    waste_status st = WASTE_NOMEM;
    (void)state;
    assert_int_equal(waste_policy_open(&q, 92, 896, &e), WASTE_OK);
    assert_int_equal(waste_mem_used() - before, waste_policy_bytes(92, 896));
    waste_policy_close(q);
    assert_int_equal(waste_policy_open(&q, 0, 8, &e), WASTE_ARG);
    assert_int_equal(waste_policy_open(&q, 65536, 65536, &e), WASTE_ARG);
    for (n = 1; st; n++) {
        waste_mem_fail_at(n, 0);
        memset(&e, 0, sizeof e);
        st = waste_policy_open(&q, 2, 2, &e);
        waste_mem_fail_at(0, 0);
        assert_int_equal(st, st ? WASTE_NOMEM : WASTE_OK);
        waste_policy_close(q);
        assert_int_equal(waste_mem_used(), before);
    }
}

#define EACH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(only_offered_records_go),
        EACH(the_less_used_goes),
        EACH(of_equals_the_layer_needed_later_goes),
        EACH(history_outlives_eviction_and_fades),
        EACH(a_pass_of_many_rows_counts_their_share),
        EACH(nothing_goes_for_what_is_worth_less),
        EACH(seeds_are_hits_again),
        EACH(the_least_is_the_least_of_all),
        EACH(what_is_forgotten_is_zero),
        EACH(memory_is_what_was_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
