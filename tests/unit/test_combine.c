/* combine.c: steps of many threads give what each gives alone, whoever leads, leaves
 * or is left over; and waste_batch, which steps many generations on one thread. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "emulated.h"
#include "internal.h"
#include "model_files.h"

enum { VOCAB = MODEL_VOCAB, THREADS = 8, LENGTH = 150 };

/* Of a sequence, at most LENGTH: more than one block of latents. */
static int length(void)
{
    return emulated() ? 70 : LENGTH;
}

static model_files k3, kda, plain;

static int write_models(void **state)
{
    (void)state;
    model_write(&k3, MODEL_K3);
    model_write(&kda, MODEL_KDA);
    model_write(&plain, MODEL_PLAIN);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    model_remove(&k3);
    model_remove(&kda);
    model_remove(&plain);
    return 0;
}

static waste_model *open_model(const model_files *f)
{
    waste_model_options o = {.context = 400};
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, &o, &e)) fail_msg("%s", e.text);
    return m;
}

/* A thread with a sequence of its own: the tokens of a seed, in steps of a size. */
typedef struct worker {
    waste_model *m;
    pthread_t thread;
    unsigned seed;
    int step;       /* rows */
    int stop_after; /* asks of its cancel; 0: never */
    int asked;
    waste_status st;
    int broken;
    float logits[LENGTH][VOCAB];
} worker;

static int32_t token_of(const worker *w, int i)
{
    return (int32_t)((w->seed * 31 + (unsigned)i * 7 + (unsigned)i * (unsigned)i) % VOCAB);
}

static int asked(void *ctx)
{
    worker *w = ctx;

    return ++w->asked == w->stop_after;
}

static void *work(void *ctx)
{
    worker *w = ctx;
    const waste_cancel cancel = {asked, w};
    waste_row rows[LENGTH];
    waste_seq *s = NULL;
    int at, i;

    w->st = waste_seq_new(&s, w->m, NULL);
    for (at = 0; at < length() && !w->st; at += w->step) {
        const int n = length() - at < w->step ? length() - at : w->step;

        for (i = 0; i < n; i++) rows[i] = (waste_row){s, token_of(w, at + i), w->logits[at + i]};
        w->st = waste_step(w->m, rows, (size_t)n, &cancel, NULL, NULL);
    }
    if (w->st) {
        waste_row row = {s, 1, NULL};

        w->broken = waste_step(w->m, &row, 1, NULL, NULL, NULL) == WASTE_ARG;
    }
    waste_seq_free(s);
    return NULL;
}

static const int steps[THREADS] = {1, 64, 1, 7, 150, 2, 33, 1};

static void run_alone(worker *want, const model_files *f)
{
    waste_model *m = open_model(f);
    int i;

    for (i = 0; i < THREADS; i++) {
        want[i] = (worker){.m = m, .seed = (unsigned)i, .step = 1};
        work(&want[i]);
        assert_int_equal(want[i].st, WASTE_OK);
    }
    waste_model_close(m);
}

static void run_together(worker *w, waste_model *m)
{
    int i;

    for (i = 0; i < THREADS; i++) {
        w[i].m = m;
        w[i].seed = (unsigned)i;
        w[i].step = steps[i];
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (i = 0; i < THREADS; i++) assert_int_equal(pthread_join(w[i].thread, NULL), 0);
}

static worker want[THREADS], got[THREADS];

static void same_bits(const model_files *f)
{
    waste_model *m = open_model(f);
    waste_model_stats s;
    const int rounds = emulated() ? 1 : 3;
    int i, round;

    run_alone(want, f);
    for (round = 0; round < rounds; round++) {
        memset(got, 0, sizeof got);
        run_together(got, m);
        for (i = 0; i < THREADS; i++) {
            assert_int_equal(got[i].st, WASTE_OK);
            assert_memory_equal(got[i].logits, want[i].logits, sizeof want[i].logits);
        }
    }
    waste_model_stats_get(m, &s);
    assert_int_equal(s.tokens, rounds * THREADS * length());
    waste_model_close(m);
}

static void threads_get_the_bits_of_one_alone(void **state)
{
    (void)state;
    same_bits(&k3);
    if (emulated()) return;
    same_bits(&kda);
    same_bits(&plain);
}

/* At whatever point somebody leaves, leading or not. */
static void who_is_cancelled_leaves_the_others_untouched(void **state)
{
    waste_model *m = open_model(&k3);
    uint64_t before;
    const int rounds = emulated() ? 2 : 30;
    int i, round, cancelled = 0;
    waste_model_stats s;
    (void)state;

    run_alone(want, &k3);
    waste_model_stats_get(m, &s);
    before = s.sequence_bytes;
    for (round = 0; round < rounds; round++) {
        memset(got, 0, sizeof got);
        for (i = 0; i < THREADS; i += 2) got[i].stop_after = 1 + (round * 5 + i * 3) % 40;
        run_together(got, m);
        for (i = 0; i < THREADS; i++) {
            if (got[i].st == WASTE_OK) {
                assert_memory_equal(got[i].logits, want[i].logits, sizeof want[i].logits);
                continue;
            }
            assert_int_equal(got[i].st, WASTE_CANCELLED);
            assert_int_equal(i % 2, 0);
            cancelled++;
        }
    }
    assert_true(cancelled > rounds);
    waste_model_stats_get(m, &s);
    assert_int_equal(s.sequence_bytes, before);
    waste_model_close(m);
}

static void a_step_cut_short_breaks_its_sequence(void **state)
{
    static worker w;
    waste_model *m = open_model(&k3);
    (void)state;

    w = (worker){.m = m, .step = 64, .stop_after = 3};
    work(&w);
    assert_int_equal(w.st, WASTE_CANCELLED);
    assert_true(w.broken);
    w = (worker){.m = m, .step = 64, .stop_after = 1}; /* before the first layer */
    work(&w);
    assert_int_equal(w.st, WASTE_CANCELLED);
    assert_false(w.broken);
    waste_model_close(m);
}

/* ---- while a read hangs --------------------------------------------------------- */

static atomic_int gate_open;

static waste_status gate(void *ctx, int layer, int expert, waste_error *err)
{
    (void)ctx;
    (void)layer;
    (void)expert;
    (void)err;
    while (!atomic_load(&gate_open)) usleep(300);
    return WASTE_OK;
}

/* A step of three rows that can be told to leave. */
typedef struct visitor {
    waste_model *m;
    pthread_t thread;
    int first; /* token */
    atomic_int asked, leave;
    waste_status st;
    float logits[3][VOCAB];
} visitor;

static int visitor_asked(void *ctx)
{
    visitor *v = ctx;

    atomic_fetch_add(&v->asked, 1);
    return atomic_load(&v->leave);
}

static void *visit(void *ctx)
{
    visitor *v = ctx;
    const waste_cancel cancel = {visitor_asked, v};
    waste_row rows[3];
    waste_seq *s;
    int i;

    v->st = waste_seq_new(&s, v->m, NULL);
    for (i = 0; i < 3; i++) rows[i] = (waste_row){s, v->first + i, v->logits[i]};
    if (!v->st) v->st = waste_step(v->m, rows, 3, &cancel, NULL, NULL);
    waste_seq_free(s);
    return NULL;
}

static void start(visitor *v, waste_model *m, int first)
{
    memset(v, 0, sizeof *v);
    v->m = m;
    v->first = first;
    assert_int_equal(pthread_create(&v->thread, NULL, visit, v), 0);
    while (!atomic_load(&v->asked)) usleep(300); /* leads, or waits in the list */
}

static void leaves(visitor *v)
{
    atomic_store(&v->leave, 1);
    assert_int_equal(pthread_join(v->thread, NULL), 0);
    assert_int_equal(v->st, WASTE_CANCELLED);
}

static int computing(waste_model *m)
{
    int yes;

    pthread_mutex_lock(&m->turn);
    yes = m->step_began != 0;
    pthread_mutex_unlock(&m->turn);
    return yes;
}

/* A pass hangs in its first expert layer until the gate opens. Whoever is told to go
 * returns before that, and those who stay get their bits. */
static void nobody_is_held_by_a_read_that_hangs(void **state)
{
    static visitor alone[3], v[3];
    waste_model *m = open_model(&plain);
    int i, who, round;
    (void)state;

    atomic_store(&gate_open, 1);
    for (i = 0; i < 3; i++) {
        alone[i].m = m;
        alone[i].first = i * 9;
        visit(&alone[i]);
        assert_int_equal(alone[i].st, WASTE_OK);
    }
    for (round = 0; round < 8; round++) {
        waste_model_close(m);
        m = open_model(&plain);
        waste_banks_fault(m->banks, gate, NULL);
        atomic_store(&gate_open, 0);
        for (i = 0; i < 3; i++) start(&v[i], m, i * 9);
        leaves(&v[0]); /* the next pass has both others, one leads */
        while (!computing(m)) usleep(300);
        who = 1 + round % 2;
        leaves(&v[who]);
        if (round >= 4) leaves(&v[3 - who]);
        atomic_store(&gate_open, 1);
        if (round < 4) {
            assert_int_equal(pthread_join(v[3 - who].thread, NULL), 0);
            assert_int_equal(v[3 - who].st, WASTE_OK);
            assert_memory_equal(v[3 - who].logits, alone[3 - who].logits, sizeof v[0].logits);
        }
        start(&v[0], m, 0);
        assert_int_equal(pthread_join(v[0].thread, NULL), 0);
        assert_int_equal(v[0].st, WASTE_OK);
        assert_memory_equal(v[0].logits, alone[0].logits, sizeof v[0].logits);
    }
    waste_model_close(m);
}

/* ---- batches ------------------------------------------------------------------ */

/* Tokens that a generation alone gives. */
static int64_t generate(waste_model *m, const int32_t *ids, size_t n, int64_t most)
{
    int64_t made = 0;
    waste_prompt p = {.tokens = ids, .n_tokens = n};
    waste_gen_params params;
    waste_gen_token t;
    waste_gen *g;

    waste_gen_params_init(&params);
    params.max_tokens = most;
    assert_int_equal(waste_gen_open(&g, m, &p, &params, NULL), WASTE_OK);
    while (!waste_gen_next(g, &t, NULL)) made++;
    waste_gen_close(g);
    return made;
}

static void a_batch_counts_and_ends_each(void **state)
{
    waste_model *m = open_model(&k3);
    uint64_t before = waste_mem_used();
    waste_batch *b;
    waste_batch_end end;
    waste_gen_params params;
    waste_usage u;
    int32_t ids[20][90];
    waste_error e = {0};
    waste_status st;
    int i, added = 0, ended = 0;
    (void)state;

    waste_gen_params_init(&params);
    for (i = 0; i < 20 * 90; i++) ids[i / 90][i % 90] = (i * 13 + i / 90) % VOCAB;
    assert_int_equal(waste_batch_open(&b, m, 0, NULL, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_batch_open(&b, m, 6, NULL, &e), WASTE_OK);
    assert_int_equal(waste_batch_next(b, &end, &e), WASTE_DONE);
    for (;;) {
        while (added < 20) {
            waste_prompt p = {.tokens = ids[added], .n_tokens = (size_t)(added * 4 + 1)};

            params.max_tokens = 1 + added % 5;
            st = waste_batch_add(b, &p, &params, ids[added], &e);
            if (st == WASTE_BUSY) break;
            assert_int_equal(st, WASTE_OK);
            added++;
        }
        memset(&e, 0, sizeof e);
        st = waste_batch_next(b, &end, &e);
        if (st == WASTE_DONE) break;
        assert_int_equal(st, WASTE_OK);
        assert_int_equal(end.error.status, WASTE_OK);
        waste_gen_usage(end.gen, &u);
        i = (int)((int32_t(*)[90])end.tag - ids);
        assert_int_equal(u.prompt_tokens, i * 4 + 1);
        assert_int_equal(u.completion_tokens,
                         generate(m, ids[i], (size_t)u.prompt_tokens, 1 + i % 5));
        waste_gen_close(end.gen);
        ended++;
    }
    assert_int_equal(ended, 20);
    waste_batch_close(b);
    assert_int_equal(waste_mem_used(), before);
    waste_model_close(m);
}

/* One record of the last layer cannot be read. */
static waste_status bad_record(void *ctx, int layer, int expert, waste_error *err)
{
    if (layer != MODEL_LAYERS - 1 || expert != *(const int *)ctx) return WASTE_OK;
    return waste_fail(err, WASTE_IO, "the disk does not give %d of %d", expert, layer);
}

static void a_record_that_fails_concerns_those_who_want_it(void **state)
{
    waste_model *m = open_model(&plain);
    int32_t ids[MODEL_VOCAB];
    waste_status st[MODEL_VOCAB];
    waste_gen_params params;
    waste_batch_end end;
    waste_batch *b;
    int expert, i, bad = 0;
    (void)state;

    waste_gen_params_init(&params);
    params.max_tokens = 2;
    for (expert = 0; expert < MODEL_EXPERTS && (bad == 0 || bad == VOCAB); expert++) {
        waste_model_close(m);
        m = open_model(&plain);
        waste_banks_fault(m->banks, bad_record, &expert);
        for (bad = i = 0; i < VOCAB; i++) {
            const waste_prompt p = {.tokens = &ids[i], .n_tokens = 1};
            waste_gen_token t;
            waste_gen *g;

            ids[i] = i;
            assert_int_equal(waste_gen_open(&g, m, &p, &params, NULL), WASTE_OK);
            while (!(st[i] = waste_gen_next(g, &t, NULL))) continue;
            bad += st[i] == WASTE_IO;
            waste_gen_close(g);
        }
        if (bad == 0 || bad == VOCAB) continue;
        assert_int_equal(waste_batch_open(&b, m, VOCAB, NULL, NULL), WASTE_OK);
        for (i = 0; i < VOCAB; i++) {
            const waste_prompt p = {.tokens = &ids[i], .n_tokens = 1};

            assert_int_equal(waste_batch_add(b, &p, &params, &ids[i], NULL), WASTE_OK);
        }
        while (!waste_batch_next(b, &end, NULL)) {
            i = (int)((int32_t *)end.tag - ids);
            assert_int_equal(end.error.status, st[i] == WASTE_IO ? WASTE_IO : WASTE_OK);
            waste_gen_close(end.gen);
        }
        waste_batch_close(b);
        break;
    }
    assert_true(bad > 0 && bad < VOCAB);
    waste_model_close(m);
}

static int yes(void *ctx)
{
    (void)ctx;
    return 1;
}

static void a_cancelled_batch_says_so(void **state)
{
    static const int32_t ids[] = {1, 2, 3};
    const waste_prompt p = {.tokens = ids, .n_tokens = 3};
    const waste_cancel cancel = {yes, NULL};
    waste_model *m = open_model(&k3);
    waste_gen_params params;
    waste_batch_end end;
    waste_batch *b;
    (void)state;

    waste_gen_params_init(&params);
    assert_int_equal(waste_batch_open(&b, m, 4, &cancel, NULL), WASTE_OK);
    assert_int_equal(waste_batch_add(b, &p, &params, NULL, NULL), WASTE_OK);
    assert_int_equal(waste_batch_add(b, &p, &params, NULL, NULL), WASTE_OK);
    assert_int_equal(waste_batch_next(b, &end, NULL), WASTE_CANCELLED);
    waste_batch_close(b);
    waste_batch_close(NULL);
    waste_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_get_the_bits_of_one_alone),
        cmocka_unit_test(who_is_cancelled_leaves_the_others_untouched),
        cmocka_unit_test(a_step_cut_short_breaks_its_sequence),
        cmocka_unit_test(nobody_is_held_by_a_read_that_hangs),
        cmocka_unit_test(a_batch_counts_and_ends_each),
        cmocka_unit_test(a_record_that_fails_concerns_those_who_want_it),
        cmocka_unit_test(a_cancelled_batch_says_so),
    };

    emulated_say("one model of three, shorter sequences, fewer rounds");
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
