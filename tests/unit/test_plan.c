/* How large the parts are, how a budget is divided, and that opening a model
 * reserves what was planned. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include "internal.h"
#include "model/forward.h"
#include "model_files.h"

#define NO_RAM WASTE_RAM_UNKNOWN
#define GiB    ((uint64_t)1 << 30)

/* ---- the division ----------------------------------------------------------- */

static waste_plan example(void)
{
    waste_plan p = {0};

    p.trunk = 900;
    p.codebooks = 100;
    p.tables = 40;
    p.generation = 10;
    p.scratch = 300;
    p.state = 200;
    p.count = 1;
    p.record = 9;
    p.slot = 10;
    p.records = 100;
    p.top_k = 4;
    p.moe_layers = 5;
    p.working_set = 180;
    return p;
}

static void floor_is_named(void **state)
{
    waste_plan p = example();
    waste_error e = {0};
    (void)state;

    assert_int_equal(waste_plan_divide(&p, 1629, NO_RAM, &e), WASTE_RAM_BUDGET);
    assert_non_null(strstr(e.text, "floor of 1630"));
    assert_non_null(strstr(e.text, "1629"));
    assert_int_equal(p.floor, 1630);
    assert_int_equal(p.slots, 0);
    assert_int_equal(p.sequences, 0);
    assert_int_equal(waste_plan_divide(&p, 1630, NO_RAM, NULL), WASTE_OK);
    assert_int_equal(p.slots, 8);
    assert_int_equal(p.min_cache, 80);
    assert_int_equal(p.sequences, 200);
}

static void many_sequences_are_part_of_the_floor(void **state)
{
    waste_plan p = example(), one = example();
    waste_error e = {0};
    (void)state;

    p.count = 3;
    assert_int_equal(waste_plan_divide(&p, 2049, NO_RAM, &e), WASTE_RAM_BUDGET);
    assert_non_null(strstr(e.text, "floor of 2050"));
    assert_non_null(strstr(e.text, "state 600, generation 30"));
    assert_non_null(strstr(e.text, "3 sequences"));
    assert_int_equal(waste_plan_divide(&p, 2050, NO_RAM, NULL), WASTE_OK);
    assert_int_equal(p.slots, 8);
    assert_int_equal(p.sequences, 600 + 20); /* the first generation's buffers are apart */
    assert_int_equal(waste_plan_divide(&p, 2500, NO_RAM, NULL), WASTE_OK);
    assert_int_equal(waste_plan_divide(&one, 2500 - 420, NO_RAM, NULL), WASTE_OK);
    assert_int_equal(p.slots, one.slots);
    assert_int_equal(p.sequences, one.sequences + 420);
}

static void a_given_budget_is_used_exactly_up_to_all_experts(void **state)
{
    waste_plan p = example();
    (void)state;

    assert_int_equal(waste_plan_divide(&p, 1777, 100, NULL), WASTE_OK); /* RAM or no RAM */
    assert_int_equal(p.budget, 1777);
    assert_int_equal(p.limit, 1777);
    assert_int_equal(p.slots, 22);
    assert_int_equal(p.sequences, 207);
    assert_int_equal(waste_plan_divide(&p, 100000, NO_RAM, NULL), WASTE_OK);
    assert_int_equal(p.slots, 100);
    assert_int_equal(p.sequences, 100000 - 1350 - 1000);
}

/* The budget that is chosen with this much RAM, and by how many working sets. */
static void chosen(waste_plan p, uint64_t usable, uint64_t budget, int sets)
{
    assert_int_equal(waste_plan_divide(&p, 0, usable, NULL), WASTE_OK);
    assert_int_equal(p.budget, budget);
    assert_int_equal(p.sets, sets);
    assert_int_equal(p.limit,
                     waste_plan_cliff(usable) > budget ? waste_plan_cliff(usable) : budget);
    assert_true(p.slots * p.slot <= p.budget - p.floor + p.min_cache);
    assert_true(p.sequences >= p.state);
}

static void whole_working_sets_within_three_quarters(void **state)
{
    waste_plan p = example();
    (void)state;

    chosen(p, NO_RAM, 1630 + 540, 3);
    chosen(p, 2896, 1630 + 540, 3); /* 3/4 of it are 2172 */
    chosen(p, 2892, 1630 + 360, 2); /* 2169 */
    chosen(p, 2652, 1630 + 180, 1); /* 1989 */
    chosen(p, 2412, 1630, 0);       /* 1809 */
    chosen(p, 10, 1630, 0);         /* the floor, if nothing fits */
    p.working_set = 400;            /* three of them are more than all experts */
    chosen(p, NO_RAM, 1630 + 1000, 3);
    p.working_set = p.records = p.record = p.slot = 0;
    chosen(p, NO_RAM, 1550, 0);
}

/* Rows and bytes of the chunk that a budget pays for. */
static void chunk_is(const waste_plan *p, int rows, uint64_t bytes)
{
    assert_int_equal(p->rows, rows);
    assert_int_equal(p->chunk, bytes);
}

static void longer_chunks_for_an_eighth_of_what_is_left(void **state)
{
    waste_plan p = example();
    (void)state;

    p.more[0] = 10;
    p.more[1] = 30;
    p.more[2] = 70;
    assert_int_equal(waste_plan_divide(&p, 1000, NO_RAM, NULL), WASTE_RAM_BUDGET);
    chunk_is(&p, 64, 0);
    assert_int_equal(waste_plan_divide(&p, 1630 + 79, NO_RAM, NULL), WASTE_OK);
    chunk_is(&p, 64, 0);
    assert_int_equal(p.slots, 15);
    assert_int_equal(waste_plan_divide(&p, 1630 + 80, NO_RAM, NULL), WASTE_OK);
    chunk_is(&p, 128, 10); /* one slot */
    assert_int_equal(p.slots, 15);
    assert_int_equal(p.sequences, 200);
    assert_int_equal(waste_plan_divide(&p, 1630 + 560, NO_RAM, NULL), WASTE_OK);
    chunk_is(&p, 512, 70);
    assert_int_equal(p.slots, 8 + 49);
    assert_int_equal(p.sequences, 200);
    /* all experts: what is over them, first */
    assert_int_equal(waste_plan_divide(&p, 1630 + 1000, NO_RAM, NULL), WASTE_OK);
    chunk_is(&p, 512, 70);
    assert_int_equal(p.slots, 100);
    assert_int_equal(waste_plan_divide(&p, 1630 + 1029, NO_RAM, NULL), WASTE_OK);
    chunk_is(&p, 128, 10);
    assert_int_equal(p.slots, 100);
    /* chosen: the budget grows, up to what may be taken */
    chosen(p, NO_RAM, 1630 + 540 + 30, 3); /* an eighth is 67 */
    assert_int_equal(waste_plan_divide(&p, 0, 2896, NULL), WASTE_OK);
    chunk_is(&p, 64, 0); /* 2172 is the limit */
    assert_int_equal(waste_plan_divide(&p, 0, 2908, NULL), WASTE_OK);
    chunk_is(&p, 128, 10);
    assert_int_equal(p.slots, 8 + 54);
    chosen(p, 10, 1630, 0);
}

/* docs/memory.md */
static void published_figures(void **state)
{
    const waste_plan k3 = {.trunk = 31345840544 - 397017088,
                           .record = 12406784,
                           .slot = 12406784,
                           .records = 93 * 896,
                           .top_k = 16,
                           .moe_layers = 93,
                           .working_set = 18461294592};
    const waste_plan kl = {.trunk = 1414775120 - 42663936,
                           .record = 2666496,
                           .slot = 2666496,
                           .records = 27 * 256,
                           .top_k = 8,
                           .moe_layers = 27,
                           .working_set = 575963136};
    waste_plan p = k3;
    (void)state;

    assert_int_equal(waste_plan_divide(&p, 0, 64 * GiB, NULL), WASTE_OK);
    assert_int_equal(p.floor, 31345840544);
    assert_int_equal(p.budget, 31345840544 + 18461294592);
    assert_int_equal(p.sets, 1);
    assert_int_equal(p.slots, 32 + 1488);
    chosen(k3, 128 * GiB, 86729724320, 3);
    chosen(kl, 64 * GiB, 3142664528, 3);
    p = k3; /* K lowered to 8 */
    p.top_k = 8;
    p.working_set /= 2;
    assert_int_equal(waste_plan_divide(&p, 0, 64 * GiB, NULL), WASTE_OK);
    assert_int_equal(p.sets, 2);
    assert_int_equal(p.budget, 31345840544 - 397017088 / 2 + 18461294592);
}

static void no_experts_no_slots(void **state)
{
    waste_plan p = example();
    (void)state;

    p.record = p.slot = p.records = p.working_set = 0;
    assert_int_equal(waste_plan_divide(&p, 1550, NO_RAM, NULL), WASTE_OK);
    assert_int_equal(p.slots, 0);
    assert_int_equal(p.floor, 1550);
    assert_int_equal(p.sequences, 200);
}

/* ---- a container ---------------------------------------------------------------- */

static model_files k3, kda;

static int write_models(void **state)
{
    (void)state;
    model_write(&k3, MODEL_K3);
    model_write(&kda, MODEL_KDA);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    model_remove(&k3);
    model_remove(&kda);
    return 0;
}

static waste_model *open_model(const model_files *f, uint64_t budget, int64_t context)
{
    waste_model_options o = {.budget = budget, .context = context};
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

static double row_of(const waste_plan_report *r, const char *part)
{
    size_t i;

    for (i = 0; i < r->n; i++)
        if (strcmp(r->row[i].part, part) == 0) return r->row[i].value;
    fail_msg("the plan has no row %s", part);
    return 0;
}

static const char *why_of(const waste_plan_report *r, const char *part)
{
    size_t i;

    for (i = 0; i < r->n; i++)
        if (strcmp(r->row[i].part, part) == 0) return r->row[i].why;
    return "";
}

static waste_plan_report report(const model_files *f, uint64_t budget, int64_t context, int probe)
{
    waste_model_options o = {.budget = budget, .context = context};
    waste_plan_report r;
    waste_error e = {0};

    if (waste_plan_make(&r, f->dir, &o, probe, &e)) fail_msg("%s", e.text);
    return r;
}

/* model_files.h: layers 1 and 3 KDA, 2 and 4 MLA; layers 2 to 4 have 6 experts of
 * MODEL_RECORD bytes, of which 2 are picked; 3 stages of 256 entries of 8. */
static void sizes_by_hand(void **state)
{
    const double kda_floats = 2 * (3 * 8 * 8 + 3 * 24 * 3), block = 64 * (16 + 4);
    const waste_model_options half = {.context = 100, .kv = WASTE_KV_F16};
    waste_plan_report r = report(&k3, 0, 100, 0);
    double floor = 0;
    size_t i;
    (void)state;

    assert_true(row_of(&r, "codebooks") == 3 * 9 * 256 * 8 * 4);
    assert_true(row_of(&r, "working_set") == 3 * 2 * MODEL_RECORD);
    assert_true(row_of(&r, "slots") == 18);
    assert_true(row_of(&r, "expert_set") >= 18 * MODEL_RECORD);
    assert_true(row_of(&r, "min_cache") * 18 == row_of(&r, "expert_set") * 4);
    assert_true(row_of(&r, "state") ==
                (double)sizeof(waste_seq) + 4 * kda_floats + 2 * 2 * (64 + 4 * block + 2 * 8));
    assert_true(row_of(&r, "cache") == row_of(&r, "expert_set"));
    for (i = 0; i < r.n && strcmp(r.row[i].part, "floor") != 0; i++) {
        assert_string_equal(r.row[i].unit, "bytes");
        assert_true(r.row[i].why[0] != 0);
        floor += r.row[i].value;
    }
    assert_true(row_of(&r, "floor") == floor);
    assert_true(row_of(&r, "budget") == floor + 3 * row_of(&r, "working_set"));
    assert_non_null(strstr(why_of(&r, "budget"), "3 working sets"));
    waste_plan_clear(&r);
    waste_plan_clear(&r);

    assert_int_equal(waste_plan_make(&r, k3.dir, &half, 0, NULL), WASTE_OK);
    assert_true(row_of(&r, "state") ==
                (double)sizeof(waste_seq) + 4 * kda_floats + 2 * 2 * (64 + 2 * block + 2 * 8));
    waste_plan_clear(&r);

    r = report(&kda, 0, 0, 0);
    assert_true(row_of(&r, "slots") == 0 && row_of(&r, "working_set") == 0);
    assert_true(row_of(&r, "budget") == row_of(&r, "floor"));
    waste_plan_clear(&r);
}

static void the_report_is_what_opening_reserves(void **state)
{
    const uint64_t before = waste_mem_used();
    uint64_t used, exact;
    waste_plan_report r = report(&k3, 0, 0, 0);
    const uint64_t floor = (uint64_t)row_of(&r, "floor");
    size_t i;
    (void)state;

    const uint64_t budgets[] = {0, floor, floor + 3 * MODEL_RECORD + 1000, 2 * floor};
    waste_plan_clear(&r);
    assert_int_equal(waste_mem_used(), before);
    for (i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        waste_model *m = open_model(&k3, budgets[i], 0);
        waste_model_stats s;

        used = waste_mem_used() - before;
        waste_model_stats_get(m, &s);
        r = report(&k3, budgets[i], 0, 0);
        assert_true(row_of(&r, "budget") == (double)m->plan.budget);
        assert_true(row_of(&r, "slots") == (double)s.cache_slots);
        assert_true(row_of(&r, "scratch") + row_of(&r, "chunk") == (double)m->scratch->bytes);
        assert_int_equal(m->scratch->rows, m->plan.rows);
        assert_true(row_of(&r, "trunk") == (double)m->weights->resident);
        exact = m->plan.trunk + m->plan.codebooks + m->scratch->bytes +
                s.cache_slots * waste_banks_slot_bytes(m->banks);
        assert_true(used >= exact);
        assert_true(used - exact <=
                    m->plan.tables + s.cache_slots * (m->plan.slot - m->plan.record));
        assert_true(used + m->plan.state + m->plan.generation <= m->plan.budget);
        assert_true(waste_banks_slot_bytes(m->banks) <= m->plan.slot);
        assert_true(s.cache_slots * waste_banks_slot_bytes(m->banks) +
                        waste_cache_table_bytes(m->banks, s.cache_slots) <=
                    s.cache_slots * m->plan.slot + m->plan.tables);
        assert_string_equal(s.notice, "");
        waste_plan_clear(&r);
        waste_model_close(m);
        assert_int_equal(waste_mem_used(), before);
    }
}

static void below_the_floor_is_a_row_and_a_refusal(void **state)
{
    waste_model_options o = {.budget = 1000};
    waste_plan_report r = report(&k3, 1000, 0, 0);
    waste_error e = {0};
    waste_model *m;
    char floor[64];
    (void)state;

    assert_true(row_of(&r, "budget") == 1000);
    assert_non_null(strstr(why_of(&r, "budget"), "below the floor"));
    assert_true(row_of(&r, "slots") == 0 && row_of(&r, "sequences") == 0);
    snprintf(floor, sizeof floor, "floor of %.0f", row_of(&r, "floor"));
    assert_int_equal(waste_model_open(&m, k3.dir, &o, &e), WASTE_RAM_BUDGET);
    assert_non_null(strstr(e.text, floor));
    waste_plan_clear(&r);
}

static void what_cannot_be_planned_is_an_error(void **state)
{
    waste_model_options o = {.context = -1};
    waste_plan_report r = {(waste_plan_row *)&o, 7};
    waste_error e = {0};
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;

    assert_int_equal(waste_plan_make(&r, k3.dir, &o, 0, &e), WASTE_ARG);
    assert_true(!r.row && !r.n);
    assert_int_equal(waste_plan_make(&r, "/no/such/container", NULL, 0, NULL), WASTE_IO);
    assert_int_equal(waste_plan_make(&r, NULL, NULL, 0, NULL), WASTE_ARG);
    assert_int_equal(waste_plan_make(NULL, k3.dir, NULL, 0, NULL), WASTE_ARG);
    for (n = 1; st; n += emulated() ? 17 : 1) {
        assert_true(n < 10000);
        waste_mem_fail_at(n, 1);
        st = waste_plan_make(&r, k3.dir, NULL, 0, NULL);
        waste_mem_fail_at(0, 0);
        if (st) assert_true(!r.row && !r.n && waste_mem_used() == before);
    }
    waste_plan_clear(&r);
    assert_int_equal(waste_mem_used(), before);
}

static void a_probe_gives_speeds(void **state)
{
    waste_plan_report r = report(&k3, 0, 0, 1);
    double disk = row_of(&r, "disk"), floor = row_of(&r, "floor"), cold;
    uint64_t some = (uint64_t)(floor + 5 * row_of(&r, "min_cache") / 4), i;
    (void)state;

    assert_true(disk > 0);
    assert_true(row_of(&r, "cold") == disk / row_of(&r, "working_set"));
    assert_true(isnan(row_of(&r, "warm"))); /* all experts fit */
    waste_plan_clear(&r);
    r = report(&k3, some, 0, 1); /* 9 of 18 records */
    cold = row_of(&r, "cold");
    assert_true(row_of(&r, "slots") == 9);
    assert_true(fabs(row_of(&r, "warm") / cold - 2) < 1e-9);
    assert_non_null(strstr(why_of(&r, "warm"), "50.0 %"));
    waste_plan_clear(&r);
    r = report(&kda, 0, 0, 1); /* no banks, no disk */
    for (i = 0; i < r.n; i++) assert_string_not_equal(r.row[i].part, "disk");
    waste_plan_clear(&r);
}

/* ---- the ceiling -------------------------------------------------------------------- */

static void sequences_get_what_is_left(void **state)
{
    waste_plan_report r = report(&k3, 0, 64, 0);
    const uint64_t all = (uint64_t)(row_of(&r, "floor") + row_of(&r, "expert_set"));
    waste_model *m = open_model(&k3, all, 64), *chose = open_model(&k3, 0, 64);
    waste_seq *s[64];
    waste_error e = {0};
    uint64_t got = 0;
    int n, i;
    (void)state;

    waste_plan_clear(&r);
    for (n = 0; n < 64 && !waste_seq_new(&s[n], m, &e); n++)
        got += waste_sequence_bytes(&m->container->config, WASTE_KV_F32, 0);
    assert_int_equal(e.status, WASTE_RAM_BUDGET);
    assert_true(n > 1 && n < 64);
    assert_true(got <= m->plan.sequences);
    char said[200];
    snprintf(said, sizeof said, "budget of %llu bytes leaves %llu for sequences, %llu more",
             (unsigned long long)all, (unsigned long long)(m->plan.sequences - got),
             (unsigned long long)waste_sequence_bytes(&m->container->config, WASTE_KV_F32, 0));
    if (!strstr(e.text, said)) fail_msg("%s", e.text);
    for (i = 0; i < n; i++) waste_seq_free(s[i]);
    assert_int_equal(m->sequence_bytes, 0);

    /* without a budget there is a limit too */
    assert_true(chose->plan.sequences < WASTE_RAM_UNKNOWN / 2);
    chose->plan.sequences = 10;
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_seq_new(&s[0], chose, &e), WASTE_RAM_BUDGET);
    assert_non_null(strstr(e.text, "leaves 10 for sequences"));
    waste_model_close(m);
    waste_model_close(chose);
}

static void the_first_generation_has_its_part_the_others_share(void **state)
{
    const int32_t ids[] = {1, 2, 3};
    const waste_prompt prompt = {.tokens = ids, .n_tokens = 3};
    waste_model *m = open_model(&k3, 0, 64);
    waste_gen_params params;
    waste_gen *a, *b, *c = NULL;
    waste_error e = {0};
    const uint64_t one = waste_plan_generation(MODEL_VOCAB, 3);
    (void)state;

    waste_gen_params_init(&params);
    m->plan.sequences = 2 * waste_sequence_bytes(&m->container->config, WASTE_KV_F32, 64) + one;
    assert_int_equal(waste_gen_open(&a, m, &prompt, &params, NULL), WASTE_OK);
    assert_int_equal(m->generation_bytes, one);
    assert_int_equal(waste_gen_open(&b, m, &prompt, &params, NULL), WASTE_OK);
    assert_int_equal(m->generation_bytes, 2 * one);
    assert_int_equal(waste_gen_open(&c, m, &prompt, &params, &e), WASTE_RAM_BUDGET);
    assert_null(c);
    assert_int_equal(m->generation_bytes, 2 * one);
    waste_gen_close(a);
    assert_int_equal(waste_gen_open(&c, m, &prompt, &params, NULL), WASTE_OK);
    waste_gen_close(b);
    waste_gen_close(c);
    assert_int_equal(m->generation_bytes, 0);
    assert_int_equal(m->sequence_bytes, 0);
    waste_model_close(m);
}

/* The n-th allocation fails, for every n: opening fails cleanly, or the cache
 * gave way and a notice says so. */
static void a_failing_allocation_lowers_the_cache(void **state)
{
    uint64_t before = waste_mem_used(), n, lowered = 0;
    waste_model_options o = {.context = 64};
    waste_model_stats s;
    waste_model *m;
    waste_seq *seq;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);

    for (n = 1;; n++) {
        waste_error e = {0};
        waste_status st;

        assert_true(n < 10000);
        waste_mem_fail_at(n, 0);
        st = waste_model_open(&m, k3.dir, &o, &e);
        waste_mem_fail_at(0, 0);
        if (st) {
            assert_null(m);
            assert_int_equal(e.status, st);
            assert_int_equal(waste_mem_used(), before);
            continue;
        }
        waste_model_stats_get(m, &s);
        if (!s.notice[0]) break; /* n is past the last of them */
        lowered++;
        assert_string_equal(s.notice,
                            "memory ran out while opening: the cache has 9 slots instead of 18");
        assert_int_equal(s.cache_slots, 9);
        assert_int_equal(waste_seq_new(&seq, m, NULL), WASTE_OK);
        assert_int_equal(waste_step(m, (waste_row[]){{seq, 3, NULL}}, 1, NULL, NULL, NULL),
                         WASTE_OK);
        waste_seq_free(seq);
        waste_model_close(m);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(lowered > 0);
    waste_model_close(m);
    assert_int_equal(waste_mem_used(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floor_is_named),
        cmocka_unit_test(many_sequences_are_part_of_the_floor),
        cmocka_unit_test(a_given_budget_is_used_exactly_up_to_all_experts),
        cmocka_unit_test(whole_working_sets_within_three_quarters),
        cmocka_unit_test(longer_chunks_for_an_eighth_of_what_is_left),
        cmocka_unit_test(published_figures),
        cmocka_unit_test(no_experts_no_slots),
        cmocka_unit_test(sizes_by_hand),
        cmocka_unit_test(the_report_is_what_opening_reserves),
        cmocka_unit_test(below_the_floor_is_a_row_and_a_refusal),
        cmocka_unit_test(what_cannot_be_planned_is_an_error),
        cmocka_unit_test(a_probe_gives_speeds),
        cmocka_unit_test(sequences_get_what_is_left),
        cmocka_unit_test(the_first_generation_has_its_part_the_others_share),
        cmocka_unit_test(a_failing_allocation_lowers_the_cache),
    };

    emulated_say("one allocation in 17 fails");
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
