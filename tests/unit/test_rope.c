/* Rotary embedding: the published tables, the pairing, when it is off. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/rope.h"

static waste_config base(int rope_dim, double theta)
{
    waste_config c = {0};

    c.rotate = 1;
    c.rope_dim = rope_dim;
    c.rope_base = theta;
    c.rope_factor = 1;
    c.rope_beta_fast = 32;
    c.rope_beta_slow = 1;
    c.rope_original = 4096;
    return c;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 2e-6 * fabs(want))) fail_msg("got %.9g, wanted %.9g", got, want);
}

static void kimi_k2_table(void **state)
{
    waste_config c = base(64, 50000);
    float inv[32];
    (void)state;

    c.rope_factor = 32;
    c.rope_beta_fast = 1;
    c.rope_mscale_all = 1;
    near(waste_rope_table(&c, inv), 1.8132604);
    near(inv[0], 1);
    near(inv[1], 0.7131111);
    near(inv[19], 0.00162176);
    near(inv[20], 3.614047e-05);
    near(inv[31], 8.764413e-07);
}

static void deepseek_v3_table(void **state)
{
    waste_config c = base(64, 10000);
    float inv[32];
    (void)state;

    c.rope_factor = 40;
    c.rope_mscale_all = 1;
    near(waste_rope_table(&c, inv), 1.8738542);
    near(inv[1], 0.7498942);
    near(inv[10], 0.05623413);
    near(inv[11], 0.03900693);
    near(inv[16], 0.0055);
    near(inv[19], 0.001370514);
    near(inv[20], 0.0007905694);
    near(inv[31], 3.333804e-06);
}

static void plain_without_scaling(void **state)
{
    waste_config c = base(64, 10000);
    float inv[32];
    (void)state;

    assert_true(waste_rope_table(&c, inv) == 1.0f);
    near(inv[11], 0.04216965);
    near(inv[16], 0.01);
    c.rope_factor = 40; /* without mscale_all_dim the attention scale stays */
    assert_true(waste_rope_table(&c, inv) == 1.0f);
}

static void off_means_no_pair_and_no_factor(void **state)
{
    waste_config c = base(64, 10000);
    float none[1];
    (void)state;

    c.rope_factor = 40;
    c.rope_mscale_all = 1;
    assert_int_equal(waste_rope_pairs(&c), 32);
    c.rotate = 0;
    assert_int_equal(waste_rope_pairs(&c), 0);
    assert_true(waste_rope_table(&c, none) == 1.0f);
    c.rotate = 1;
    c.rope_dim = 1;
    assert_int_equal(waste_rope_pairs(&c), 0);
}

static void turns_neighbours(void **state)
{
    const float inv[2] = {1, 0.5f};
    float cs[4], x[4] = {1, 0, 0, 2}, still[4] = {1, 2, 3, 4};
    (void)state;

    waste_rope_angles(inv, 2, 3, cs);
    waste_rope_turn(x, cs, 2);
    near(x[0], cos(3));
    near(x[1], sin(3));
    near(x[2], -2 * sin(1.5));
    near(x[3], 2 * cos(1.5));
    waste_rope_angles(inv, 2, 0, cs);
    waste_rope_turn(still, cs, 2);
    assert_true(still[0] == 1 && still[1] == 2 && still[2] == 3 && still[3] == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kimi_k2_table),         cmocka_unit_test(deepseek_v3_table),
        cmocka_unit_test(plain_without_scaling), cmocka_unit_test(off_means_no_pair_and_no_factor),
        cmocka_unit_test(turns_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
