/* store/slots: which record is where, whose slot is free, who goes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "store/slots.h"

enum { FIRST = 1, LAYERS = 2, SLOTS = 3 };

static fixture box;
static waste_manifest *manifest;
static waste_banks *banks;
static waste_slots s;

static int setup(void **state)
{
    static const waste_bank_shape shape = {FIRST + LAYERS, FIRST, FIXTURE_EXPERTS, FIXTURE_WIDTH,
                                           FIXTURE_HIDDEN};
    waste_error e = {0};
    (void)state;
    fixture_make(&box);
    return waste_manifest_open(&manifest, box.dir, &e) ||
           waste_banks_open(&banks, manifest, &shape, 0, NULL, &e) ||
           waste_slots_open(&s, banks, SLOTS, &e);
}

static int teardown(void **state)
{
    (void)state;
    waste_slots_close(&s);
    waste_banks_close(banks);
    waste_manifest_close(manifest);
    fixture_remove(&box);
    return 0;
}

/* Read, as far as this file can see. */
static waste_slot *fill(int layer, int expert)
{
    waste_slot *x = waste_slots_take(&s, layer, expert, INFINITY);

    if (!x) return NULL;
    x->state = WASTE_SLOT_READY;
    waste_slots_offer(&s, x);
    return x;
}

/* Every record and every slot agree. */
static void consistent(void)
{
    uint64_t found = 0;
    int layer, e;

    for (layer = FIRST; layer < FIRST + LAYERS; layer++)
        for (e = 0; e < FIXTURE_EXPERTS; e++) {
            const waste_slot *x = waste_slots_find(&s, layer, e);

            if (!x) continue;
            found++;
            assert_int_not_equal(x->state, WASTE_SLOT_EMPTY);
            assert_int_equal(x->read.layer, layer);
            assert_int_equal(x->read.expert, e);
            assert_ptr_equal(x->read.to, waste_slots_bytes(&s, x));
        }
    assert_int_equal(found, s.used);
    assert_int_equal(waste_slots_any_empty(&s), s.used < s.n);
}

static void names_what_exists(void **state)
{
    (void)state;
    assert_true(waste_slots_exists(&s, FIRST, 0));
    assert_true(waste_slots_exists(&s, FIRST + LAYERS - 1, FIXTURE_EXPERTS - 1));
    assert_false(waste_slots_exists(&s, FIRST - 1, 0));
    assert_false(waste_slots_exists(&s, FIRST + LAYERS, 0));
    assert_false(waste_slots_exists(&s, FIRST, -1));
    assert_false(waste_slots_exists(&s, FIRST, FIXTURE_EXPERTS));
    assert_int_equal(waste_slots_record(&s, FIRST, 0), 0);
    assert_int_equal(waste_slots_record(&s, FIRST + 1, 2), FIXTURE_EXPERTS + 2);
}

static void slots_do_not_overlap(void **state)
{
    waste_slot *x[SLOTS];
    int i, j;
    (void)state;
    for (i = 0; i < SLOTS; i++) {
        x[i] = fill(FIRST, i);
        assert_non_null(x[i]);
        assert_int_equal((uintptr_t)waste_slots_bytes(&s, x[i]) % 4096, 0);
        memset(waste_slots_bytes(&s, x[i]), i + 1, (size_t)s.slot_bytes);
        consistent();
    }
    for (i = 0; i < SLOTS; i++)
        for (j = 0; j < (int)s.slot_bytes; j++)
            assert_int_equal(waste_slots_bytes(&s, x[i])[j], i + 1);
}

/* Each mark alone is enough, and so is a read that has not ended. */
static void what_is_marked_or_read_stays(void **state)
{
    waste_slot *x[SLOTS];
    int i;
    (void)state;
    for (i = 0; i < SLOTS; i++) x[i] = waste_slots_take(&s, FIRST, i, INFINITY);
    for (i = 0; i < SLOTS; i++) waste_slots_offer(&s, x[i]); /* being read */
    assert_null(waste_slots_take(&s, FIRST + 1, 0, INFINITY));
    x[0]->asked = x[1]->held = x[2]->kept = 1;
    for (i = 0; i < SLOTS; i++) {
        x[i]->state = WASTE_SLOT_READY;
        waste_slots_offer(&s, x[i]);
    }
    assert_null(waste_slots_take(&s, FIRST + 1, 0, INFINITY));
    assert_int_equal(s.evictions, 0);
    consistent();
    x[1]->held = 0;
    waste_slots_offer(&s, x[1]);
    assert_null(waste_slots_take(&s, FIRST + 1, 0, 0)); /* nothing is worth less than that */
    assert_ptr_equal(waste_slots_take(&s, FIRST + 1, 0, INFINITY), x[1]);
    assert_int_equal(s.evictions, 1);
    assert_null(waste_slots_find(&s, FIRST, 1));
    consistent();
}

static void an_emptied_slot_is_as_new(void **state)
{
    waste_slot *x;
    (void)state;
    x = fill(FIRST, 4);
    x->asked = x->held = x->kept = x->joined = x->guessed = x->warming = 1;
    waste_slots_empty(&s, x);
    consistent();
    assert_int_equal(s.used, 0);
    assert_null(waste_slots_find(&s, FIRST, 4));
    assert_ptr_equal(waste_slots_take(&s, FIRST + 1, 5, INFINITY), x);
    assert_int_equal(x->asked | x->held | x->kept | x->joined | x->guessed | x->warming, 0);
    assert_int_equal(x->state, WASTE_SLOT_READING);
    consistent();
}

static void stays_consistent(void **state)
{
    uint32_t r = 1;
    int i;
    (void)state;
    for (i = 0; i < 2000; i++) {
        int layer, expert;
        waste_slot *x;

        r = r * 1664525u + 1013904223u;
        layer = FIRST + (int)(r >> 31);
        expert = (int)(r >> 20) % FIXTURE_EXPERTS;
        x = waste_slots_find(&s, layer, expert);
        if (!x)
            assert_non_null(fill(layer, expert));
        else if (r >> 18 & 1)
            waste_slots_empty(&s, x);
        consistent();
    }
    assert_true(s.evictions > 0);
}

#define EACH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(names_what_exists),
        EACH(slots_do_not_overlap),
        EACH(what_is_marked_or_read_stays),
        EACH(an_emptied_slot_is_as_new),
        EACH(stays_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
