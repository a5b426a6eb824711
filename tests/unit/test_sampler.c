/* text/sampler.c: the generator, the order of the options, and each choice
 * against a slow sampler that sorts everything. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/sampler.h"

static waste_gen_params defaults(void)
{
    waste_gen_params p;

    memset(&p, 0, sizeof p);
    p.max_tokens = 1;
    p.top_p = 1;
    p.repetition_penalty = 1;
    return p;
}

static waste_sampler *open_sampler(const waste_gen_params *p, size_t n)
{
    waste_error e = {0};
    waste_sampler *s;

    assert_int_equal(waste_sampler_open(&s, p, n, &e), WASTE_OK);
    return s;
}

static int32_t pick(waste_sampler *s, const float *logits)
{
    waste_error e = {0};
    int32_t id = -7;

    assert_int_equal(waste_sampler_pick(s, logits, &id, &e), WASTE_OK);
    return id;
}

static int32_t pick_once(const waste_gen_params *p, const float *logits, size_t n)
{
    waste_sampler *s = open_sampler(p, n);
    int32_t id = pick(s, logits);

    waste_sampler_close(s);
    return id;
}

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 16;
}

/* ---- greedy -------------------------------------------------------------- */

static void greedy_takes_the_largest_and_the_lowest_id(void **state)
{
    const float a[] = {1, 3, NAN, 3, -INFINITY}, b[] = {-INFINITY, NAN, -5, -5};
    waste_gen_params p = defaults();
    (void)state;

    assert_int_equal(pick_once(&p, a, 5), 1);
    assert_int_equal(pick_once(&p, b, 4), 2);
}

static void bias_comes_before_everything(void **state)
{
    const float logits[] = {1, 2, 3};
    const waste_bias ban[] = {{2, -INFINITY}, {0, 0.5f}, {0, 1}};
    waste_gen_params p = defaults();
    (void)state;

    p.logit_bias = ban;
    p.n_logit_bias = 1;
    assert_int_equal(pick_once(&p, logits, 3), 1);
    p.n_logit_bias = 3; /* two for one token add up */
    assert_int_equal(pick_once(&p, logits, 3), 0);
}

static void penalties_count_what_they_say(void **state)
{
    const float up[] = {4, 3}, down[] = {-2, -3};
    waste_gen_params p = defaults();
    waste_sampler *s;
    (void)state;

    p.repetition_penalty = 2; /* positive logits are divided, others multiplied */
    s = open_sampler(&p, 2);
    assert_int_equal(pick(s, up), 0);
    waste_sampler_saw(s, 0, 0); /* in the prompt */
    assert_int_equal(pick(s, up), 1);
    assert_int_equal(pick(s, down), 1);
    waste_sampler_saw(s, 0, 1);
    waste_sampler_saw(s, 1, 0);
    assert_int_equal(pick(s, up), 0); /* 2 against 1.5: once per token, not per sight */
    waste_sampler_close(s);

    p = defaults();
    p.presence_penalty = 1.5;
    s = open_sampler(&p, 2);
    waste_sampler_saw(s, 0, 0); /* a prompt does not count here */
    assert_int_equal(pick(s, up), 0);
    waste_sampler_saw(s, 0, 1);
    assert_int_equal(pick(s, up), 1);
    waste_sampler_close(s);

    p = defaults();
    p.frequency_penalty = 0.6;
    s = open_sampler(&p, 2);
    waste_sampler_saw(s, 0, 0);
    waste_sampler_saw(s, 0, 1);
    assert_int_equal(pick(s, up), 0);
    waste_sampler_saw(s, 0, 1); /* 4 - 1.2 < 3 */
    assert_int_equal(pick(s, up), 1);
    waste_sampler_close(s);
}

/* ---- sampling ------------------------------------------------------------ */

static double draw(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (double)(*x >> 11) / 9007199254740992.0;
}

/* The same distribution, and a draw that follows the written generator: with
 * eight equal logits the three upper bits of the state are the token. */
static void follows_the_documented_generator(void **state)
{
    const float even[8] = {0};
    const uint64_t seeds[] = {0, 1, 42, UINT64_MAX};
    size_t i, n;
    (void)state;

    for (i = 0; i < 4; i++) {
        waste_gen_params p = defaults();
        uint64_t x = seeds[i] ? seeds[i] : 0x853c49e6748fea9bu;
        waste_sampler *s;

        p.temperature = 1;
        p.seed = seeds[i];
        s = open_sampler(&p, 8);
        for (n = 0; n < 200; n++) {
            draw(&x);
            assert_int_equal(pick(s, even), x >> 61);
        }
        waste_sampler_close(s);
    }
}

/* The first draws as calculated outside of this program (Python's integers). */
static void known_draws(void **state)
{
    static const int seed0[] = {0, 53, 15, 83, 86, 78, 5, 35, 46, 9},
                     seed1[] = {42, 50, 64, 38, 79, 50, 55, 6, 83, 19};
    float even[100] = {0};
    waste_gen_params p = defaults();
    waste_sampler *s;
    size_t i;
    (void)state;

    p.temperature = 0.7;
    s = open_sampler(&p, 100);
    for (i = 0; i < sizeof seed0 / sizeof *seed0; i++) assert_int_equal(pick(s, even), seed0[i]);
    waste_sampler_close(s);
    p.seed = 1;
    s = open_sampler(&p, 100);
    for (i = 0; i < sizeof seed1 / sizeof *seed1; i++) assert_int_equal(pick(s, even), seed1[i]);
    waste_sampler_close(s);
}

#define N_MAX 64

static float slow_logits[N_MAX];

static int by_logit(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    float p = slow_logits[x], q = slow_logits[y];

    return p != q ? (p > q ? -1 : 1) : x - y;
}

/* Sorts everything, then reads the definition aloud. */
static int slow(const waste_gen_params *p, const float *logits, size_t n, double u)
{
    int id[N_MAX];
    double w[N_MAX], sum = 0, cumulative = 0, at = 0;
    size_t i, k = 0, kept;

    memcpy(slow_logits, logits, n * sizeof *logits);
    for (i = 0; i < n; i++) {
        if (logits[i] > -INFINITY) id[k++] = (int)i;
    }
    qsort(id, k, sizeof *id, by_logit);
    if (p->top_k && (size_t)p->top_k < k) k = (size_t)p->top_k;
    for (i = 0; i < k; i++) {
        w[i] = exp(((double)logits[id[i]] - logits[id[0]]) / p->temperature);
        sum += w[i];
    }
    for (kept = 0; kept < k; kept++) {
        if (kept && cumulative >= p->top_p) break;
        if (w[kept] < p->min_p) break;
        cumulative += w[kept] / sum;
    }
    for (i = 0; i < kept; i++) {
        at += w[i] / sum;
        if (at >= u * cumulative) return id[i];
    }
    return id[kept - 1];
}

static void agrees_with_a_sampler_that_sorts(void **state)
{
    uint32_t seed = 11, round, other = 0;
    (void)state;

    for (round = 0; round < 4000; round++) {
        waste_gen_params p = defaults();
        float logits[N_MAX];
        size_t n = 1 + next_random(&seed) % N_MAX, i;
        uint64_t x;
        int want, got;

        for (i = 0; i < n; i++) logits[i] = (float)(next_random(&seed) % 16) / 4 - 2; /* ties */
        if (n > 2 && round % 3 == 0) logits[next_random(&seed) % n] = NAN;
        if (n > 2 && round % 5 == 0) logits[next_random(&seed) % n] = -INFINITY;
        p.temperature = 0.25 + next_random(&seed) % 8 * 0.25;
        if (round % 2) p.top_k = 1 + next_random(&seed) % n;
        if (round % 3) p.top_p = (1 + next_random(&seed) % 20) / 20.0;
        if (round % 7 == 0) p.min_p = next_random(&seed) % 20 / 20.0;
        if ((!p.top_k || (size_t)p.top_k == n) && p.top_p == 1 && p.min_p == 0) p.min_p = 0.01;
        p.seed = x = round + 1;
        want = slow(&p, logits, n, draw(&x));
        got = pick_once(&p, logits, n);
        assert_int_equal(got, want);
        other += got != 0;
    }
    assert_in_range(other, 1000, 4000);
}

static void walks_ids_when_nothing_is_cut(void **state)
{
    uint32_t seed = 5, round;
    (void)state;

    for (round = 0; round < 500; round++) {
        waste_gen_params p = defaults();
        float logits[20];
        double sum = 0, at = 0, target;
        uint64_t x = round + 1;
        int i;

        for (i = 0; i < 20; i++) logits[i] = (float)(next_random(&seed) % 100) / 10;
        p.temperature = 2;
        p.seed = x;
        if (round % 2) p.top_k = 20; /* the whole vocabulary is off, too */
        for (i = 0; i < 20; i++) sum += exp((double)logits[i] / 2);
        target = draw(&x) * sum;
        for (i = 0; i < 19; i++) {
            at += exp((double)logits[i] / 2);
            if (at >= target) break;
        }
        assert_int_equal(pick_once(&p, logits, 20), i);
    }
}

static void frequencies_are_the_probabilities(void **state)
{
    const float logits[] = {0, 1, 2, -INFINITY};
    double want[4], sum = 0;
    int count[4] = {0}, i;
    waste_gen_params p = defaults();
    waste_sampler *s;
    (void)state;

    p.temperature = 0.5;
    p.seed = 9;
    for (i = 0; i < 4; i++) sum += want[i] = exp(logits[i] / 0.5);
    s = open_sampler(&p, 4);
    for (i = 0; i < 100000; i++) count[pick(s, logits)]++;
    for (i = 0; i < 4; i++) assert_true(fabs(count[i] / 1e5 - want[i] / sum) < 0.006);
    assert_int_equal(count[3], 0);
    waste_sampler_close(s);
}

static void what_is_banned_is_never_drawn(void **state)
{
    const float logits[] = {NAN, -INFINITY, 1e30f, 0, INFINITY};
    const waste_bias ban = {4, -INFINITY};
    int64_t top_k;
    (void)state;

    for (top_k = 0; top_k < 4; top_k += 3) {
        waste_gen_params p = defaults();
        waste_sampler *s;
        int i;

        p.temperature = 1e-3;
        p.top_k = top_k;
        s = open_sampler(&p, 5);
        for (i = 0; i < 1000; i++) assert_int_equal(pick(s, logits), 4);
        waste_sampler_close(s);
        p.logit_bias = &ban; /* infinity minus infinity is no number: banned */
        p.n_logit_bias = 1;
        s = open_sampler(&p, 5);
        for (i = 0; i < 1000; i++) assert_int_equal(pick(s, logits), 2);
        waste_sampler_close(s);
    }
}

static void nothing_to_choose_is_an_error(void **state)
{
    const float dead[] = {NAN, -INFINITY, NAN}, fine[] = {1, 2, 3};
    const waste_bias all[] = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}};
    double temperature;
    (void)state;

    for (temperature = 0; temperature < 2; temperature++) {
        waste_gen_params p = defaults();
        waste_error e = {0};
        waste_sampler *s;
        int32_t id;

        p.temperature = temperature;
        s = open_sampler(&p, 3);
        assert_int_equal(waste_sampler_pick(s, dead, &id, &e), WASTE_FORMAT);
        assert_non_null(strstr(e.text, "NaN"));
        waste_sampler_close(s);
        p.logit_bias = all;
        p.n_logit_bias = 3;
        memset(&e, 0, sizeof e);
        s = open_sampler(&p, 3);
        assert_int_equal(waste_sampler_pick(s, fine, &id, &e), WASTE_ARG);
        assert_non_null(strstr(e.text, "logit_bias"));
        waste_sampler_close(s);
    }
}

/* ---- options and log-probabilities --------------------------------------- */

static void assert_refused(const waste_gen_params *p, const char *name, const char *found)
{
    waste_error e = {0};
    waste_sampler *s;

    assert_int_equal(waste_sampler_open(&s, p, 100, &e), WASTE_ARG);
    assert_null(s);
    assert_non_null(strstr(e.text, name));
    assert_non_null(strstr(e.text, found));
}

static void options_out_of_range_are_named(void **state)
{
    waste_bias b = {0, 0};
    waste_gen_params p;
    (void)state;

#define REFUSED(field, value, found)       \
    do {                                   \
        p = defaults();                    \
        p.field = (value);                 \
        assert_refused(&p, #field, found); \
    } while (0)
    REFUSED(temperature, -0.5, "-0.5");
    REFUSED(temperature, NAN, "nan");
    REFUSED(temperature, INFINITY, "inf");
    REFUSED(top_k, -1, "-1");
    REFUSED(top_p, 0, "0");
    REFUSED(top_p, 1.5, "1.5");
    REFUSED(top_p, NAN, "nan");
    REFUSED(min_p, -1, "-1");
    REFUSED(min_p, 1.25, "1.25");
    REFUSED(repetition_penalty, 0, "0");
    REFUSED(repetition_penalty, INFINITY, "inf");
    REFUSED(presence_penalty, NAN, "nan");
    REFUSED(frequency_penalty, -INFINITY, "-inf");
    p = defaults();
    p.logit_bias = &b;
    p.n_logit_bias = 1;
    b.token = 100;
    assert_refused(&p, "logit_bias", "100");
    b.token = -1;
    assert_refused(&p, "logit_bias", "-1");
    b.token = 7;
    b.bias = NAN;
    assert_refused(&p, "logit_bias", "token 7");
}

static void log_probabilities_are_those_of_the_model(void **state)
{
    const float logits[] = {1, 2, NAN, -INFINITY, 3};
    double sum = exp(1) + exp(2) + exp(3);
    const float large[] = {3e38f, 3e38f, 0};
    (void)state;

    assert_true(fabs(waste_sampler_logprob(logits, 5, 1) - log(exp(2) / sum)) < 1e-12);
    assert_true(fabs(waste_sampler_logprob(logits, 5, 4) - log(exp(3) / sum)) < 1e-12);
    assert_true(isinf(waste_sampler_logprob(logits, 5, 2)));
    assert_true(isinf(waste_sampler_logprob(logits, 5, 3)));
    assert_true(fabs(waste_sampler_logprob(large, 3, 0) - log(0.5)) < 1e-12);
}

/* K3's vocabulary: neither a small top_k nor top_p sorts it for every token. */
static void large_vocabularies_are_fast(void **state)
{
    const size_t n = 163840;
    float *logits = malloc(n * sizeof *logits);
    waste_gen_params p = defaults();
    waste_sampler *s;
    uint32_t seed = 1;
    size_t i;
    (void)state;

    assert_non_null(logits);
    for (i = 0; i < n; i++) logits[i] = (float)next_random(&seed) / 8192;
    p.temperature = 1;
    p.top_k = 40;
    s = open_sampler(&p, n);
    for (i = 0; i < 20; i++) assert_true(logits[pick(s, logits)] > 7.9f);
    waste_sampler_close(s);
    p.top_k = 0;
    p.top_p = 0.999999; /* the worst case ranks nearly all */
    s = open_sampler(&p, n);
    for (i = 0; i < 3; i++) pick(s, logits);
    waste_sampler_close(s);
    free(logits);
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    const waste_bias b = {1, 1};
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    waste_gen_params p = defaults();
    (void)state;

    p.temperature = 1;
    p.top_k = 3;
    p.logit_bias = &b;
    p.n_logit_bias = 1;
    for (n = 1; st == WASTE_NOMEM; n++) {
        waste_error e = {0};
        waste_sampler *s;

        waste_mem_fail_at(n, 1);
        st = waste_sampler_open(&s, &p, 8, &e);
        waste_mem_fail_at(0, 0);
        assert_int_equal(e.status, st);
        waste_sampler_close(s);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_int_equal(st, WASTE_OK);
    assert_int_equal(n, 10); /* eight allocations, each of which failed once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_id),
        cmocka_unit_test(bias_comes_before_everything),
        cmocka_unit_test(penalties_count_what_they_say),
        cmocka_unit_test(follows_the_documented_generator),
        cmocka_unit_test(known_draws),
        cmocka_unit_test(agrees_with_a_sampler_that_sorts),
        cmocka_unit_test(walks_ids_when_nothing_is_cut),
        cmocka_unit_test(frequencies_are_the_probabilities),
        cmocka_unit_test(what_is_banned_is_never_drawn),
        cmocka_unit_test(nothing_to_choose_is_an_error),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(log_probabilities_are_those_of_the_model),
        cmocka_unit_test(large_vocabularies_are_fast),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
