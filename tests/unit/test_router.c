/* Routing: order, ties, weights, and numbers that are none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/router.h"

static waste_config config(int experts, int top_k, int renorm, float scale)
{
    waste_config c = {0};

    c.experts = experts;
    c.top_k = top_k;
    c.renorm = renorm;
    c.route_scale = scale;
    return c;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6)) fail_msg("got %.9g, wanted %.9g", got, want);
}

static const float logits[4] = {2, 1, 1, -1}, bias[4] = {0, 0, 0, 0.9f};

static void bias_selects_and_does_not_weigh(void **state)
{
    waste_config c = config(4, 2, 1, 2.446f);
    int ids[2];
    float w[2];
    (void)state;

    waste_router_pick(&c, logits, bias, ids, w);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 0);
    near(w[0], 0.5721568);
    near(w[1], 1.8738432);
    c.renorm = 0;
    c.route_scale = 1;
    waste_router_pick(&c, logits, bias, ids, w);
    near(w[0], 0.2689414);
    near(w[1], 0.8807971);
}

static void ties_go_to_the_lower_id(void **state)
{
    waste_config c = config(4, 3, 0, 1);
    const float same[4] = {5, 5, 5, 5};
    int ids[4];
    float w[4];
    (void)state;

    waste_router_pick(&c, logits, bias, ids, w);
    assert_int_equal(ids[2], 1);
    c.top_k = 4;
    waste_router_pick(&c, same, NULL, ids, w);
    for (int i = 0; i < 4; i++) assert_int_equal(ids[i], i);
}

static void a_single_expert_is_not_renormalised(void **state)
{
    waste_config c = config(4, 1, 1, 2);
    int id;
    float w;
    (void)state;

    waste_router_pick(&c, logits, NULL, &id, &w);
    assert_int_equal(id, 0);
    near(w, 2 * 0.8807971);
}

static void what_is_not_a_number_comes_last(void **state)
{
    waste_config c = config(5, 3, 1, 1);
    const float bad[5] = {NAN, -3, NAN, 4, -2}, none[5] = {NAN, NAN, NAN, NAN, NAN};
    const float spoiled[5] = {0, NAN, 0, 0, 0};
    int ids[3];
    float w[3];
    (void)state;

    waste_router_pick(&c, bad, NULL, ids, w);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 4);
    assert_int_equal(ids[2], 1);
    waste_router_pick(&c, bad, spoiled, ids, w); /* NaN in the bias counts too */
    assert_int_equal(ids[2], 0);
    waste_router_pick(&c, none, NULL, ids, w);
    for (int i = 0; i < 3; i++) assert_int_equal(ids[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bias_selects_and_does_not_weigh),
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(a_single_expert_is_not_renormalised),
        cmocka_unit_test(what_is_not_a_number_comes_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
