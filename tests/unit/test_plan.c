/* The division of the budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/plan.h"

static waste_plan example(void)
{
    waste_plan p = {0};

    p.trunk = 1000;
    p.tables = 50;
    p.scratch = 300;
    p.state = 200;
    p.record = 10;
    p.records = 100;
    p.top_k = 4;
    return p;
}

static void floor_is_named(void **state)
{
    waste_plan p = example();
    waste_error e = {0};
    (void)state;

    assert_int_equal(waste_plan_divide(&p, 1629, &e), WASTE_RAM_BUDGET);
    assert_non_null(strstr(e.text, "1630"));
    assert_non_null(strstr(e.text, "1629"));
    assert_int_equal(waste_plan_divide(&p, 1630, NULL), WASTE_OK);
    assert_int_equal(p.slots, 8);
    assert_int_equal(p.sequences, 200);
}

static void what_is_left_becomes_cache_up_to_all_experts(void **state)
{
    waste_plan p = example();
    (void)state;

    assert_int_equal(waste_plan_divide(&p, 1777, NULL), WASTE_OK);
    assert_int_equal(p.slots, 22);
    assert_int_equal(p.sequences, 207);
    assert_int_equal(waste_plan_divide(&p, 100000, NULL), WASTE_OK);
    assert_int_equal(p.slots, 100);
    assert_int_equal(p.sequences, 100000 - 1350 - 1000);
}

static void chooses_when_not_told(void **state)
{
    waste_plan p = example();
    (void)state;

    assert_int_equal(waste_plan_divide(&p, 0, NULL), WASTE_OK);
    assert_int_equal(p.slots, 100);
    assert_true(p.sequences == UINT64_MAX);
    p.record = (uint64_t)1 << 50; /* one record is more than any RAM */
    assert_int_equal(waste_plan_divide(&p, 0, NULL), WASTE_OK);
    assert_int_equal(p.slots, 8);
}

static void no_experts_no_slots(void **state)
{
    waste_plan p = example();
    (void)state;

    p.record = p.records = 0;
    assert_int_equal(waste_plan_divide(&p, 1550, NULL), WASTE_OK);
    assert_int_equal(p.slots, 0);
    assert_int_equal(p.floor, 1550);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floor_is_named),
        cmocka_unit_test(what_is_left_becomes_cache_up_to_all_experts),
        cmocka_unit_test(chooses_when_not_told),
        cmocka_unit_test(no_experts_no_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
