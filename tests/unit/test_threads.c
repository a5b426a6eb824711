/* The forward pass on several threads: their number, and what else runs at the same
 * time, changes no bit; cancelling and failing are as on one. Parts are made as small
 * as can be, so that the small models here are cut as large ones are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "emulated.h"
#include "internal.h"
#include "model_files.h"

/* TSan has a thread of its own, from when the first other is started; and it lets no
 * child that was forked among threads start any. */
#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#else
#define TSAN 0
#endif

enum { LENGTH = 130, VOCAB = MODEL_VOCAB }; /* more than two chunks and latent blocks */

static const model_kind kinds[] = {MODEL_K3, MODEL_PLAIN, MODEL_KDA};

static waste_model *open_with(const model_files *f, const waste_model_options *o)
{
    waste_error e = {0};
    waste_model *m;

    if (waste_model_open(&m, f->dir, o, &e)) fail_msg("%s", e.text);
    m->least = 1;
    return m;
}

static waste_model *open_model(const model_files *f, int threads, const char *kernels)
{
    const waste_model_options o = {.context = LENGTH, .threads = threads, .kernels = kernels};

    return open_with(f, &o);
}

static int32_t token(int i)
{
    return (i * 17 + i / 7) % VOCAB;
}

/* Logits of every position, `by` rows to a step; a second sequence has a row in
 * every step but the first. */
static void run(waste_model *m, float *logits, int by)
{
    waste_seq *s, *other;
    waste_row rows[LENGTH + 1];
    waste_error e = {0};
    int i, n;

    assert_int_equal(waste_seq_new(&s, m, NULL), WASTE_OK);
    assert_int_equal(waste_seq_new(&other, m, NULL), WASTE_OK);
    for (i = 0; i < LENGTH; i += n) {
        for (n = 0; i + n < LENGTH && n < by; n++)
            rows[n] = (waste_row){s, token(i + n), logits + (i + n) * VOCAB};
        if (i) rows[n] = (waste_row){other, token(3 * i), NULL};
        if (waste_step(m, rows, (size_t)n + (i > 0), NULL, NULL, &e)) fail_msg("%s", e.text);
    }
    waste_seq_free(other);
    waste_seq_free(s);
}

static void threads_change_no_bit(void **state)
{
    static const int threads[] = {2, 3, 8, 64};
    static const char *const kernels[] = {"plain", NULL};
    static const int by[] = {1, 7, LENGTH};
    const size_t bytes = LENGTH * VOCAB * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    model_files f;
    (void)state;

    for (size_t i = 0; i < (emulated() ? 1 : 3); i++) {
        model_write(&f, kinds[i]);
        for (size_t k = 0; k < 2; k++) {
            waste_model *m = open_model(&f, 1, kernels[k]);

            assert_int_equal(m->threads, 1);
            run(m, want, LENGTH);
            waste_model_close(m);
            for (size_t t = 0; t < sizeof threads / sizeof *threads; t += emulated() ? 2 : 1) {
                waste_model_stats stats;

                m = open_model(&f, threads[t], kernels[k]);
                waste_model_stats_get(m, &stats);
                assert_int_equal(stats.threads, threads[t]);
                assert_string_equal(stats.notice, "");
                for (size_t j = 0; j < (threads[t] == 64 ? 1 : 3); j += emulated() ? 2 : 1) {
                    run(m, got, by[j]);
                    assert_memory_equal(got, want, bytes);
                }
                waste_model_close(m);
            }
        }
        model_remove(&f);
    }
    free(want);
    free(got);
    assert_int_equal(waste_mem_used(), 0);
}

/* A thread that rounds upward opens the model and steps: it has that back afterwards, and
 * its exception flags. Table by table, since each rounds in its own way. */
static void the_hosts_rounding_changes_no_bit(void **state)
{
    static const char *const kernels[] = {"plain", NULL};
    const size_t bytes = LENGTH * VOCAB * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    model_files f;
    (void)state;

    for (size_t i = 0; i < (emulated() ? 1 : 3); i++) {
        model_write(&f, kinds[i]);
        for (size_t k = 0; k < 2; k++) {
            waste_model *m = open_model(&f, 1, kernels[k]);

            run(m, want, LENGTH);
            waste_model_close(m);
            for (int threads = 1; threads <= 3; threads += 2) {
                assert_int_equal(fesetround(FE_UPWARD), 0);
                feclearexcept(FE_ALL_EXCEPT);
                m = open_model(&f, threads, kernels[k]);
                run(m, got, 9);
                assert_int_equal(fegetround(), FE_UPWARD);
                assert_int_equal(fetestexcept(FE_ALL_EXCEPT), 0);
                waste_model_close(m);
                assert_int_equal(fesetround(FE_TONEAREST), 0);
                assert_memory_equal(got, want, bytes);
            }
        }
        model_remove(&f);
    }
    free(want);
    free(got);
}

typedef struct user {
    waste_model *m;
    float logits[LENGTH * VOCAB];
} user;

static void *use(void *arg)
{
    user *u = arg;

    for (int i = 0; i < (emulated() ? 1 : 3); i++) run(u->m, u->logits, 5 + i);
    return NULL;
}

static void models_share_the_pool(void **state)
{
    model_files first, second;
    user *u = calloc(4, sizeof *u), *alone = calloc(2, sizeof *alone);
    pthread_t thread[4];
    (void)state;

    model_write(&first, kinds[0]);
    model_write(&second, kinds[1]);
    for (int i = 0; i < 2; i++) {
        u[i].m = open_model(i ? &second : &first, 3, NULL);
        u[i + 2].m = u[i].m;
        run(u[i].m, alone[i].logits, LENGTH);
    }
    assert_ptr_equal(u[0].m->pool, u[1].m->pool);
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, use, &u[i]);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(u[i].logits, alone[i % 2].logits, sizeof u[i].logits);
    for (int i = 0; i < 2; i++) waste_model_close(u[i].m);
    model_remove(&first);
    model_remove(&second);
    free(u);
    free(alone);
    assert_int_equal(waste_mem_used(), 0);
}

#if defined(__linux__)

/* Threads of this process. */
static int tasks(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A thread that was joined, or that reads beside a step, may be seen for a moment. */
static void settle(int n)
{
    for (int i = 0; i < 10000 && tasks() != n; i++) usleep(1000);
    assert_int_equal(tasks(), n);
}

/* More models do not mean more threads that compute, nor do their steps leave any; each
 * has a reader of its own. (How many compute at a time: test_pool.) */
static void the_process_has_one_set_of_workers(void **state)
{
    const waste_model_options o = {.context = LENGTH, .threads = 4, .io_threads = 1};
    const int before = tasks() + TSAN;
    model_files first, second;
    user *u = calloc(4, sizeof *u);
    pthread_t thread[4];
    (void)state;

    model_write(&first, kinds[0]);
    model_write(&second, kinds[1]);
    for (int i = 0; i < 4; i++) {
        u[i].m = open_with(i % 2 ? &second : &first, &o);
        settle(before + 3 + i + 1);
    }
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, use, &u[i]);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    settle(before + 3 + 4);
    for (int i = 0; i < 4; i++) {
        waste_model_close(u[i].m);
        settle(before + (i < 3 ? 3 + 3 - i : 0));
    }
    model_remove(&first);
    model_remove(&second);
    free(u);
    assert_int_equal(waste_mem_used(), 0);
}

#endif

static void a_smaller_pool_is_told(void **state)
{
    waste_model_options o = {.context = 8, .threads = 2};
    waste_model_stats stats;
    model_files f;
    waste_model *a, *b;
    (void)state;

    model_write(&f, MODEL_K3);
    a = open_with(&f, &o);
    o.threads = 5;
    b = open_with(&f, &o);
    waste_model_stats_get(b, &stats);
    assert_int_equal(stats.threads, 2);
    assert_non_null(strstr(stats.notice, "threads: 5 were asked for"));
    waste_model_close(a);
    waste_model_close(b);
    a = open_with(&f, &o);
    assert_int_equal(a->threads, 5);
    waste_model_close(a);
    model_remove(&f);
}

static void refused(const model_files *f, waste_model_options o, const char *text)
{
    waste_model *m;
    waste_plan_report r;
    waste_error e = {0}, again = {0};

    assert_int_equal(waste_model_open(&m, f->dir, &o, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, text));
    assert_int_equal(waste_plan_make(&r, f->dir, &o, 0, &again), WASTE_ARG);
    assert_string_equal(again.text, e.text);
}

static void wrong_options_are_named(void **state)
{
    model_files f;
    (void)state;

    model_write(&f, MODEL_K3);
    refused(&f, (waste_model_options){.threads = -1}, "threads -1 is not in 0..64");
    refused(&f, (waste_model_options){.threads = 65}, "threads 65 is not in 0..64");
    refused(&f, (waste_model_options){.cpus = "0,"}, "cpus '0,' is not a list");
    refused(&f, (waste_model_options){.cpus = ""}, "cpus '' is not a list");
    model_remove(&f);
    assert_int_equal(waste_mem_used(), 0);
}

static void the_plan_counts_lanes(void **state)
{
    waste_model_options o = {.context = 64, .threads = 1};
    waste_plan_report one, eight;
    model_files f;
    size_t i;
    (void)state;

    model_write(&f, MODEL_K3);
    assert_int_equal(waste_plan_make(&one, f.dir, &o, 0, NULL), WASTE_OK);
    o.threads = 8;
    assert_int_equal(waste_plan_make(&eight, f.dir, &o, 0, NULL), WASTE_OK);
    for (i = 0; strcmp(one.row[i].part, "scratch") != 0; i++) continue;
    assert_true(eight.row[i].value > one.row[i].value);
    waste_plan_clear(&one);
    waste_plan_clear(&eight);
    model_remove(&f);
}

static int after_some(void *ctx)
{
    return --*(int *)ctx < 0;
}

static void cancelling_ends_a_step(void **state)
{
    const size_t bytes = LENGTH * VOCAB * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    model_files f;
    waste_model *m;
    (void)state;

    model_write(&f, MODEL_PLAIN);
    m = open_model(&f, 3, NULL);
    run(m, want, LENGTH);
    for (int when = 0; when < MODEL_LAYERS; when++) {
        int left = when;
        waste_cancel cancel = {after_some, &left};
        waste_row rows[LENGTH];
        waste_seq *s;
        waste_error e = {0};

        assert_int_equal(waste_seq_new(&s, m, NULL), WASTE_OK);
        for (int i = 0; i < LENGTH; i++) rows[i] = (waste_row){s, token(i), NULL};
        assert_int_equal(waste_step(m, rows, LENGTH, &cancel, NULL, &e), WASTE_CANCELLED);
        waste_seq_free(s);
    }
    run(m, got, 9);
    assert_memory_equal(got, want, bytes);
    waste_model_close(m);
    model_remove(&f);
    free(want);
    free(got);
}

#if HAS_FORK

static void a_forked_child_is_refused_and_may_open(void **state)
{
    model_files f;
    waste_model *m;
    pid_t child;
    int how = -1;
    (void)state;
    emulated_skip("qemu cannot fork a process with threads");

    model_write(&f, MODEL_KDA);
    m = open_model(&f, 3, NULL);
    child = fork();
    if (child == 0) {
        const waste_model_options o = {.context = 8, .threads = 2};
        waste_model *own = NULL;
        waste_seq *s = NULL;

        alarm(20);
        if (waste_seq_new(&s, m, NULL) != WASTE_BUSY) _exit(1);
        waste_model_close(m);
        if (TSAN) _exit(0);
        if (waste_model_open(&own, f.dir, &o, NULL) || own->threads != 2) _exit(2);
        if (waste_seq_new(&s, own, NULL)) _exit(3);
        if (waste_step(own, &(waste_row){s, 1, NULL}, 1, NULL, NULL, NULL)) _exit(4);
        waste_seq_free(s);
        waste_model_close(own);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    waste_model_close(m);
    model_remove(&f);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__linux__)
        cmocka_unit_test(the_process_has_one_set_of_workers), /* first: it counts threads */
#endif
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(the_hosts_rounding_changes_no_bit),
        cmocka_unit_test(models_share_the_pool),
        cmocka_unit_test(a_smaller_pool_is_told),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(the_plan_counts_lanes),
        cmocka_unit_test(cancelling_ends_a_step),
#if HAS_FORK
        cmocka_unit_test(a_forked_child_is_refused_and_may_open),
#endif
    };

    emulated_say("one model of three, two numbers of threads of four");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
