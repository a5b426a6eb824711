/* The public interface for models and sequences: what is refused, what stays
 * usable after a failure, budgets, turns, and waste_top. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include "internal.h"
#include "model/sequence.h"
#include "model_files.h"

enum { VOCAB = MODEL_VOCAB };

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

static waste_model *open_model(const model_files *f, int64_t context)
{
    waste_model_options o = {.context = context};
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

static waste_seq *open_seq(waste_model *m)
{
    waste_seq *s;

    assert_int_equal(waste_seq_new(&s, m, NULL), WASTE_OK);
    return s;
}

static void refuses(waste_model *m, const waste_row *rows, size_t n, const char *said)
{
    waste_error e = {0};

    assert_int_equal(waste_step(m, rows, n, NULL, NULL, &e), WASTE_ARG);
    if (!strstr(e.text, said)) fail_msg("%s", e.text);
}

static void bad_rows_change_nothing(void **state)
{
    waste_model *m = open_model(&k3, 8), *other = open_model(&k3, 8);
    waste_seq *s = open_seq(m), *t = open_seq(m), *foreign = open_seq(other);
    float a[VOCAB], b[VOCAB];
    waste_row good[] = {{s, 3, NULL}, {s, 4, a}};
    (void)state;

    refuses(m, (waste_row[]){{s, 1, NULL}, {s, VOCAB, NULL}}, 2,
            "token 40 of row 1 is not in 0..39");
    refuses(m, (waste_row[]){{s, -1, NULL}}, 1, "token -1");
    refuses(m, (waste_row[]){{s, 1, NULL}, {NULL, 1, NULL}}, 2, "row 1 has no sequence");
    refuses(m, (waste_row[]){{s, 1, NULL}, {foreign, 1, NULL}}, 2, "another model");
    refuses(m, NULL, 1, "no rows");
    refuses(NULL, good, 2, "no model");
    assert_int_equal(waste_step(m, NULL, 0, NULL, NULL, NULL), WASTE_OK);
    assert_int_equal(waste_seq_length(s), 0);
    assert_int_equal(waste_step(m, good, 2, NULL, NULL, NULL), WASTE_OK);
    good[0].seq = good[1].seq = t;
    good[1].logits = b;
    assert_int_equal(waste_step(m, good, 2, NULL, NULL, NULL), WASTE_OK);
    assert_memory_equal(a, b, sizeof a);
    waste_seq_free(s);
    waste_seq_free(t);
    waste_seq_free(foreign);
    waste_model_close(m);
    waste_model_close(other);
}

static void a_full_context_is_refused_whole(void **state)
{
    waste_model *m = open_model(&k3, 5), *free_of_it = open_model(&kda, 5);
    waste_seq *s = open_seq(m), *t = open_seq(m), *u = open_seq(free_of_it);
    waste_row rows[8];
    (void)state;

    assert_int_equal(waste_model_context(m), 5);
    for (int i = 0; i < 8; i++) rows[i] = (waste_row){i < 6 ? s : t, i, NULL};
    refuses(m, rows, 8, "context of 5 positions is full: 0 used, 6 more");
    assert_int_equal(waste_seq_length(s), 0);
    assert_int_equal(waste_step(m, rows + 1, 7, NULL, NULL, NULL), WASTE_OK);
    assert_int_equal(waste_seq_length(s), 5);
    assert_int_equal(waste_seq_length(t), 2);
    refuses(m, rows, 1, "5 used, 1 more");
    for (int i = 0; i < 8; i++) rows[i].seq = u; /* no MLA layer, no limit */
    assert_int_equal(waste_step(free_of_it, rows, 8, NULL, NULL, NULL), WASTE_OK);
    waste_seq_free(s);
    waste_seq_free(t);
    waste_seq_free(u);
    waste_model_close(m);
    waste_model_close(free_of_it);
}

static int when_zero(void *left)
{
    return (*(int *)left)-- == 0;
}

typedef struct progress {
    waste_model *m;
    uint64_t before;
} progress;

static uint64_t wanted(waste_model *m)
{
    waste_model_stats s;

    waste_model_stats_get(m, &s);
    return s.hits + s.misses;
}

/* Reading the rows of the embedding may ask any number of times before. */
static int when_experts_are_wanted(void *ctx)
{
    const progress *p = ctx;

    return wanted(p->m) > p->before;
}

static void cancelling_half_way_breaks_the_batch(void **state)
{
    waste_model *m = open_model(&k3, 8);
    waste_seq *s = open_seq(m), *t = open_seq(m);
    waste_row rows[] = {{s, 3, NULL}, {t, 4, NULL}};
    waste_error e = {0};
    int left = 0;
    progress p = {m, 0};
    waste_cancel c = {when_zero, &left}, half_way = {when_experts_are_wanted, &p};
    (void)state;

    /* asked before the first layer: nothing has happened */
    assert_int_equal(waste_step(m, rows, 2, &c, NULL, &e), WASTE_CANCELLED);
    assert_int_equal(e.status, WASTE_CANCELLED);
    assert_int_equal(waste_step(m, rows, 1, NULL, NULL, NULL), WASTE_OK);
    p.before = wanted(m);
    assert_int_equal(waste_step(m, rows, 2, &half_way, NULL, NULL), WASTE_CANCELLED);
    refuses(m, rows, 1, "broken");
    refuses(m, rows + 1, 1, "broken");
    waste_seq_free(t);
    rows[1].seq = t = open_seq(m);
    left = 1000; /* asked once per layer at least */
    assert_int_equal(waste_step(m, rows + 1, 1, &c, NULL, NULL), WASTE_OK);
    assert_true(1000 - left >= MODEL_LAYERS);
    waste_seq_free(s);
    waste_seq_free(t);
    waste_model_close(m);
}

static void a_bad_record_breaks_the_batch_and_is_named(void **state)
{
    model_files f;
    waste_model *m;
    waste_seq *s;
    waste_error e = {0};
    FILE *bank;
    (void)state;

    model_write(&f, MODEL_K3);
    bank = model_file(&f, "experts-L2.bin", "r+b");
    for (long i = 0; i < MODEL_EXPERTS; i++) {
        assert_int_equal(fseek(bank, i * MODEL_RECORD, SEEK_SET), 0);
        model_put(bank, "none", 4);
    }
    assert_int_equal(fclose(bank), 0);
    m = open_model(&f, 8);
    s = open_seq(m);
    waste_row row = {s, 3, NULL};
    assert_int_equal(waste_step(m, &row, 1, NULL, NULL, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "experts-L2.bin"));
    refuses(m, &row, 1, "broken");
    waste_seq_free(s);
    waste_model_close(m);
    model_remove(&f);
}

/* ---- memory ------------------------------------------------------------------ */

static void below_the_floor_is_refused_and_at_it_all_fits(void **state)
{
    uint64_t before = waste_mem_used(), floor;
    waste_model_options o = {.budget = 1, .context = 100};
    waste_model_stats stats;
    waste_error e = {0};
    waste_model *m;
    waste_seq *s, *t;
    waste_row rows[100];
    const char *at;
    (void)state;

    assert_int_equal(waste_model_open(&m, k3.dir, &o, &e), WASTE_RAM_BUDGET);
    assert_null(m);
    assert_int_equal(waste_mem_used(), before);
    at = strstr(e.text, "floor of ");
    assert_non_null(at);
    floor = strtoull(at + 9, NULL, 10);
    o.budget = floor - 1;
    assert_int_equal(waste_model_open(&m, k3.dir, &o, NULL), WASTE_RAM_BUDGET);
    o.budget = floor;
    assert_int_equal(waste_model_open(&m, k3.dir, &o, NULL), WASTE_OK);
    s = open_seq(m);
    for (int i = 0; i < 100; i++) rows[i] = (waste_row){s, i % VOCAB, NULL};
    assert_int_equal(waste_step(m, rows, 100, NULL, NULL, NULL), WASTE_OK);
    waste_model_stats_get(m, &stats);
    assert_true(stats.memory_bytes - before <= floor);
    assert_int_equal(stats.cache_slots, 4);

    /* all that was planned for sequences is in use */
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_seq_new(&t, m, &e), WASTE_RAM_BUDGET);
    assert_null(t);
    waste_seq_free(s);
    assert_int_equal(waste_seq_new(&t, m, NULL), WASTE_OK);
    waste_seq_free(t);
    waste_model_close(m);
    assert_int_equal(waste_mem_used(), before);
}

static void options_are_checked(void **state)
{
    waste_model_options o = {.context = -1};
    waste_error e = {0};
    waste_model *m;
    (void)state;

    assert_int_equal(waste_model_open(&m, k3.dir, &o, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "context"));
    o.context = 0;
    o.precision = (waste_precision)7;
    assert_int_equal(waste_model_open(&m, k3.dir, &o, NULL), WASTE_ARG);
    o.precision = WASTE_PRECISION_FAST;
    o.kv = (waste_kv)2;
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_model_open(&m, k3.dir, &o, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "kv 2 is neither"));
    assert_int_equal(waste_model_open(&m, NULL, NULL, NULL), WASTE_ARG);
    assert_int_equal(waste_model_open(&m, k3.dir, NULL, NULL), WASTE_OK);
    assert_int_equal(waste_model_context(m), 4096);
    waste_model_close(m);
    waste_model_close(NULL);
    waste_seq_free(NULL);
}

static void failed_allocations_leave_nothing_behind(void **state)
{
    uint64_t before = waste_mem_used();
    waste_model *m = NULL;
    waste_status st = WASTE_NOMEM;
    (void)state;

    for (uint64_t n = 1; st; n += emulated() ? 17 : 1) {
        waste_error e = {0};

        assert_true(n < 10000);
        waste_mem_fail_at(n, 1);
        st = waste_model_open(&m, k3.dir, NULL, &e);
        waste_mem_fail_at(0, 0);
        if (!st) break;
        assert_null(m);
        assert_int_not_equal(e.status, WASTE_OK);
        assert_int_equal(waste_mem_used(), before);
    }
    waste_model_close(m);
    assert_int_equal(waste_mem_used(), before);
}

static void running_out_of_memory_breaks_no_sequence(void **state)
{
    waste_model *m = open_model(&k3, 200);
    waste_seq *s = open_seq(m), *t = open_seq(m);
    float a[VOCAB], b[VOCAB];
    waste_row rows[140];
    uint64_t n;
    waste_status st;
    (void)state;

    for (int i = 0; i < 140; i++) rows[i] = (waste_row){s, i % VOCAB, i == 139 ? a : NULL};
    /* While room is made; what has been made stays. */
    for (n = 1; !s->reserved; n++) {
        waste_mem_fail_at(n, 1);
        st = waste_step(m, rows, 140, NULL, NULL, NULL);
        waste_mem_fail_at(0, 0);
        assert_int_equal(st, WASTE_NOMEM);
        assert_int_equal(waste_seq_length(s), 0);
    }
    assert_true(n > 2);
    /* while the first rows are looked up, all of a pass at once */
    waste_mem_fail_at(1, 1);
    st = waste_step(m, rows, 140, NULL, NULL, NULL);
    waste_mem_fail_at(0, 0);
    assert_int_equal(st, WASTE_NOMEM);
    assert_int_equal(waste_step(m, rows, 140, NULL, NULL, NULL), WASTE_OK);
    for (int i = 0; i < 140; i++) rows[i].seq = t;
    rows[139].logits = b;
    assert_int_equal(waste_step(m, rows, 140, NULL, NULL, NULL), WASTE_OK);
    assert_memory_equal(a, b, sizeof a);
    waste_seq_free(s);
    waste_seq_free(t);
    for (n = 1; n < 4; n++) {
        waste_mem_fail_at(n, 1);
        st = waste_seq_new(&s, m, NULL);
        waste_mem_fail_at(0, 0);
        if (st) assert_null(s);
        waste_seq_free(s);
    }
    waste_model_close(m);
}

static void counts_what_it_did(void **state)
{
    const waste_model_options o = {.context = 8, .lookahead = -1}; /* what is demanded, no more */
    waste_model *m;
    waste_seq *s;
    waste_step_stats one, two;
    waste_model_stats all;
    (void)state;

    assert_int_equal(waste_model_open(&m, k3.dir, &o, NULL), WASTE_OK);
    s = open_seq(m);
    waste_row rows[] = {{s, 3, NULL}, {s, 4, NULL}};
    assert_int_equal(waste_step(m, rows, 1, NULL, &one, NULL), WASTE_OK);
    assert_int_equal(one.misses, 2 * (MODEL_LAYERS - 1));
    assert_int_equal(one.hits, 0);
    assert_int_equal(one.bytes_read, one.misses * MODEL_RECORD);
    assert_int_equal(waste_step(m, rows, 2, NULL, &two, NULL), WASTE_OK);
    waste_model_stats_get(m, &all);
    assert_int_equal(all.tokens, 3);
    assert_int_equal(all.hits, two.hits);
    assert_int_equal(all.misses, one.misses + two.misses);
    assert_int_equal(all.bytes_read, one.bytes_read + two.bytes_read);
    assert_int_equal(all.cache_used, all.misses); /* all experts fit */
    assert_true(all.step_ns > 0 && all.memory_bytes > 0);
    waste_seq_free(s);
    waste_model_close(m);
}

/* ---- turns ------------------------------------------------------------------- */

typedef struct worker {
    waste_model *m;
    waste_seq *s;
    atomic_int inside, leave;
    float logits[VOCAB];
    waste_status st;
} worker;

/* Stays inside the step until told to leave. */
static int hold_on(void *ctx)
{
    worker *w = ctx;

    atomic_store(&w->inside, 1);
    while (!atomic_load(&w->leave)) usleep(1000);
    return 0;
}

static void *work(void *ctx)
{
    worker *w = ctx;
    waste_row row = {w->s, 5, w->logits};
    waste_cancel c = {hold_on, w};

    w->st = waste_step(w->m, &row, 1, &c, NULL, NULL);
    return NULL;
}

static void who_waits_for_the_model_can_be_cancelled(void **state)
{
    worker w = {.m = open_model(&k3, 8)};
    waste_seq *s = open_seq(w.m);
    float logits[VOCAB];
    waste_row row = {s, 5, logits};
    waste_error e = {0};
    waste_model_stats stats;
    int left = 2;
    waste_cancel c = {when_zero, &left};
    pthread_t thread;
    (void)state;

    w.s = open_seq(w.m);
    assert_int_equal(pthread_create(&thread, NULL, work, &w), 0);
    while (!atomic_load(&w.inside)) usleep(1000);
    assert_int_equal(waste_step(w.m, &row, 1, &c, NULL, &e), WASTE_CANCELLED);
    assert_non_null(strstr(e.text, "waiting"));
    waste_model_stats_get(w.m, &stats); /* does not wait for the step */
    assert_int_equal(stats.tokens, 0);
    atomic_store(&w.leave, 1);
    assert_int_equal(waste_step(w.m, &row, 1, NULL, NULL, NULL), WASTE_OK); /* not broken */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.st, WASTE_OK);
    assert_memory_equal(logits, w.logits, sizeof logits);
    waste_seq_free(s);
    waste_seq_free(w.s);
    waste_model_close(w.m);
}

/* ---- the largest logits -------------------------------------------------------- */

static void top_orders_and_normalises(void **state)
{
    const float l[6] = {1, 3, -2, 3, NAN, 0};
    const double sum = exp(1) + 2 * exp(3) + exp(-2) + 1;
    static const int32_t order[6] = {1, 3, 0, 5, 2, 4};
    waste_logprob top[6];
    double total = 0;
    (void)state;

    for (size_t n = 1; n <= 6; n++) {
        assert_int_equal(waste_top(l, 6, n, top, NULL), WASTE_OK);
        for (size_t i = 0; i < n; i++) assert_int_equal(top[i].token, order[i]);
    }
    for (int i = 0; i < 5; i++) {
        assert_true(fabs(top[i].logprob - (l[order[i]] - log(sum))) < 1e-12);
        assert_true(top[i].logit == l[order[i]]);
        total += exp(top[i].logprob);
    }
    assert_true(fabs(total - 1) < 1e-12);
    assert_true(top[5].logprob == -INFINITY);
}

static void top_of_many(void **state)
{
    enum { N = 5000, K = 100 };
    static float l[N];
    waste_logprob all[N], some[K];
    (void)state;

    for (int i = 0; i < N; i++) l[i] = (float)(i * 7919 % 1009);
    assert_int_equal(waste_top(l, N, N, all, NULL), WASTE_OK);
    for (int i = 1; i < N; i++)
        assert_true(all[i - 1].logit > all[i].logit ||
                    (all[i - 1].logit == all[i].logit && all[i - 1].token < all[i].token));
    assert_int_equal(waste_top(l, N, K, some, NULL), WASTE_OK);
    for (int i = 0; i < K; i++) {
        assert_int_equal(some[i].token, all[i].token);
        assert_true(some[i].logprob == all[i].logprob);
    }
}

static void top_at_the_edges(void **state)
{
    const float infinite[3] = {1, INFINITY, INFINITY}, none[2] = {-INFINITY, -INFINITY};
    waste_logprob top[3];
    waste_error e = {0};
    (void)state;

    assert_int_equal(waste_top(infinite, 3, 4, top, &e), WASTE_ARG);
    assert_int_equal(waste_top(infinite, 3, 0, NULL, NULL), WASTE_OK);
    assert_int_equal(waste_top(infinite, 3, 3, top, NULL), WASTE_OK);
    assert_int_equal(top[0].token, 1);
    assert_true(fabs(top[0].logprob + log(2)) < 1e-12);
    assert_true(top[2].logprob == -INFINITY);
    assert_int_equal(waste_top(none, 2, 2, top, NULL), WASTE_OK);
    assert_int_equal(top[0].token, 0);
    assert_true(fabs(top[0].logprob + log(2)) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_rows_change_nothing),
        cmocka_unit_test(a_full_context_is_refused_whole),
        cmocka_unit_test(cancelling_half_way_breaks_the_batch),
        cmocka_unit_test(a_bad_record_breaks_the_batch_and_is_named),
        cmocka_unit_test(below_the_floor_is_refused_and_at_it_all_fits),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(failed_allocations_leave_nothing_behind),
        cmocka_unit_test(running_out_of_memory_breaks_no_sequence),
        cmocka_unit_test(counts_what_it_did),
        cmocka_unit_test(who_waits_for_the_model_can_be_cancelled),
        cmocka_unit_test(top_orders_and_normalises),
        cmocka_unit_test(top_of_many),
        cmocka_unit_test(top_at_the_edges),
    };

    emulated_say("one allocation in 17 fails");
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
