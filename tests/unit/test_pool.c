/* base/pool.h: the process's worker threads, and lists of CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include "base/mem.h"
#include "base/plat.h"
#include "base/pool.h"
#include "emulated.h"
#include "lib/portable.h"
#if HAS_FORK
#include <sys/resource.h>
#endif

#define ITEMS 10000

/* TSan does not let a child that was forked among threads start any. */
#if defined(__SANITIZE_THREAD__)
#define CHILD 1
#else
#define CHILD 2
#endif

static waste_pool *hold(int threads)
{
    waste_pool *p;
    char notice[100];
    waste_error e = {0};

    if (waste_pool_hold(&p, threads, NULL, notice, sizeof notice, &e)) fail_msg("%s", e.text);
    return p;
}

static void pause_ns(long ns)
{
    const struct timespec t = {0, ns};

    nanosleep(&t, NULL);
}

/* ---- jobs --------------------------------------------------------------------- */

typedef struct job {
    _Atomic int times[ITEMS]; /* done */
    _Atomic int within[WASTE_POOL_MOST];
    _Atomic int wrong, threads;
    int limit;
    int64_t grain, n;
    long slow; /* ns that a part takes */
} job;

static void count_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    job *j = ctx;
    const int alone = lo == 0 && hi == j->n;

    if (thread < 0 || thread >= j->limit || atomic_exchange(&j->within[thread], 1)) j->wrong++;
    if (!alone && (lo % j->grain || (hi % j->grain && hi != j->n))) j->wrong++;
    atomic_fetch_or(&j->threads, 1 << (thread & 31));
    if (j->slow) pause_ns(j->slow);
    for (; lo < hi; lo++) j->times[lo]++;
    atomic_store(&j->within[thread], 0);
}

static void run_job(job *j, const waste_pool_turn *t, int64_t n, int64_t grain)
{
    int64_t i;

    memset(j->times, 0, sizeof j->times);
    j->n = n;
    j->grain = grain;
    waste_pool_run(t, n, grain, count_part, j);
    for (i = 0; i < n; i++) assert_int_equal(j->times[i], 1);
    assert_int_equal(j->wrong, 0);
}

/* Jobs until these threads have come; on a busy machine one may be over before. */
static void run_until(job *j, const waste_pool_turn *t, int threads)
{
    j->threads = 0;
    for (int tries = 0; tries < 200 && j->threads != threads; tries++) run_job(j, t, 30, 1);
    assert_int_equal(j->threads, threads);
}

static void every_item_is_done_once(void **state)
{
    static const int sizes[] = {1, 2, 3, 8, WASTE_POOL_MOST};
    static job j;
    (void)state;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        waste_pool *p = hold(sizes[i]);
        waste_pool_turn t;

        j.limit = sizes[i];
        waste_pool_enter(&t, p, 0);
        for (int n = 0; n < 300; n++) run_job(&j, &t, n, n % 7 + 1);
        run_job(&j, &t, ITEMS, 1);
        run_job(&j, &t, ITEMS, ITEMS);
        run_job(&j, &t, ITEMS, 3 * ITEMS);
        waste_pool_leave(&t);
        waste_pool_release(p);
    }
    assert_int_equal(waste_mem_used(), 0);
}

static void all_threads_take_part(void **state)
{
    static job j;
    waste_pool *p = hold(3);
    waste_pool_turn t;
    (void)state;

    j.limit = 3;
    j.slow = 2000000;
    waste_pool_enter(&t, p, 0);
    run_until(&j, &t, 7);
    pause_ns(20000000); /* they are asleep by now */
    run_until(&j, &t, 7);
    waste_pool_leave(&t);
    waste_pool_release(p);
}

static void fewer_threads_than_the_pool_has(void **state)
{
    static job j;
    waste_pool *p = hold(4);
    waste_pool_turn t;
    (void)state;

    j.limit = 2;
    j.slow = 1000000;
    waste_pool_enter(&t, p, 2);
    assert_int_equal(t.threads, 2);
    run_until(&j, &t, 3);
    waste_pool_leave(&t);
    waste_pool_release(p);
}

typedef struct hold_up {
    _Atomic int64_t done;
    int64_t n;
} hold_up;

/* The piece that begins with item 0 ends when all others have. */
static void wait_for_the_rest(void *ctx, int thread, int64_t lo, int64_t hi)
{
    hold_up *j = ctx;
    (void)thread;

    while (lo == 0 && j->done < j->n - hi) pause_ns(100000);
    j->done += hi - lo;
}

static void the_rest_of_a_thread_that_is_held_up_is_done_by_others(void **state)
{
    waste_pool *p = hold(3);
    waste_pool_turn t;
    (void)state;

    waste_pool_enter(&t, p, 0);
    for (int64_t n = 1; n < 100; n += 7) {
        hold_up j = {0, n};

        waste_pool_run(&t, n, 1, wait_for_the_rest, &j);
        assert_int_equal(j.done, n);
    }
    waste_pool_leave(&t);
    waste_pool_release(p);
}

static void more_items_than_can_be_numbered(void **state)
{
    const int64_t n = ((int64_t)1 << 40) + 5;
    hold_up j = {.n = n};
    waste_pool *p = hold(3);
    waste_pool_turn t;
    (void)state;

    waste_pool_enter(&t, p, 0);
    waste_pool_run(&t, n, 1, wait_for_the_rest, &j);
    assert_true(j.done == n);
    waste_pool_leave(&t);
    waste_pool_release(p);
}

static void zeroed_turn_is_alone(void **state)
{
    static job j;
    waste_pool_turn t = {0};
    (void)state;

    j.limit = 1;
    run_job(&j, &t, 100, 3);
    waste_pool_enter(&t, NULL, 8);
    run_job(&j, &t, 100, 3);
    waste_pool_leave(&t);
}

/* ---- shares -------------------------------------------------------------------- */

static void one_pool_counted(void **state)
{
    waste_pool *a = hold(3), *b = hold(2), *c;
    char notice[100];
    waste_error e = {0};
    (void)state;

    assert_ptr_equal(a, b);
    assert_int_equal(waste_pool_threads(0, NULL), 3);
    assert_int_equal(waste_pool_threads(2, NULL), 2);
    assert_int_equal(waste_pool_threads(9, NULL), 3);
    assert_int_equal(waste_pool_hold(&c, 9, NULL, notice, sizeof notice, &e), WASTE_OK);
    assert_string_equal(notice, "threads: 9 were asked for, the pool of this process has 3");
    waste_pool_release(c);
    waste_pool_release(a);
    assert_int_equal(waste_pool_threads(9, NULL), 3);
    waste_pool_release(b);
    assert_int_equal(waste_pool_threads(9, NULL), 9);
    assert_int_equal(waste_pool_threads(1000, NULL), WASTE_POOL_MOST);
    assert_true(waste_pool_threads(0, NULL) >= 1);
    waste_pool_release(NULL);
    assert_int_equal(waste_mem_used(), 0);
}

static void out_of_memory_is_reported(void **state)
{
    waste_pool *p;
    waste_error e = {0};
    (void)state;

    waste_mem_fail_at(1, 0);
    assert_int_equal(waste_pool_hold(&p, 2, NULL, NULL, 0, &e), WASTE_NOMEM);
    assert_null(p);
    waste_pool_release(hold(2)); /* the gate is free */
    assert_int_equal(waste_mem_used(), 0);
}

typedef struct caller {
    waste_pool *pool;
    _Atomic int *running, *most;
    pthread_barrier_t *all;
    int rounds;
} caller;

static void busy_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    caller *c = ctx;
    const int n = atomic_fetch_add(c->running, 1) + 1;
    int seen = atomic_load(c->most);
    (void)thread;

    while (n > seen && !atomic_compare_exchange_weak(c->most, &seen, n)) continue;
    pause_ns(200000 * (hi - lo));
    atomic_fetch_sub(c->running, 1);
}

static void *call(void *arg)
{
    caller *c = arg;
    waste_pool_turn t;

    waste_pool_enter(&t, c->pool, 0);
    pthread_barrier_wait(c->all); /* until the others have theirs */
    while (c->rounds--) waste_pool_run(&t, 8, 1, busy_part, c);
    waste_pool_leave(&t);
    return NULL;
}

static void callers_share_the_threads(void **state)
{
    _Atomic int running = 0, most = 0;
    waste_pool *p = hold(3);
    caller c[3];
    pthread_t thread[3];
    pthread_barrier_t all;
    (void)state;

    pthread_barrier_init(&all, NULL, 3);
    for (int i = 0; i < 3; i++) c[i] = (caller){p, &running, &most, &all, 20};
    for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, call, &c[i]);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&all);
    waste_pool_release(p);
    assert_true(most <= 3);
}

typedef struct crowd {
    waste_pool *pool;
    pthread_barrier_t *all;
    _Atomic int *by_workers;
} crowd;

static void whose_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    crowd *c = ctx;
    (void)lo;
    (void)hi;

    if (thread) atomic_fetch_add(c->by_workers, 1);
}

static void *be_in_the_crowd(void *arg)
{
    crowd *c = arg;
    waste_pool_turn t;

    waste_pool_enter(&t, c->pool, 0);
    pthread_barrier_wait(c->all); /* all have their turn */
    for (int i = 0; i < 100; i++) waste_pool_run(&t, 50, 1, whose_part, c);
    pthread_barrier_wait(c->all); /* and keep it until here */
    waste_pool_leave(&t);
    return NULL;
}

/* As many callers as the pool has threads, and more: each computes alone. */
static void workers_stay_out_of_a_crowd(void **state)
{
    enum { SIZE = 3, MOST = 6 };
    waste_pool *p = hold(SIZE);
    pthread_t thread[MOST];
    (void)state;

    for (int n = SIZE; n <= MOST; n++) {
        _Atomic int by_workers = 0;
        pthread_barrier_t all;
        crowd c = {p, &all, &by_workers};

        pthread_barrier_init(&all, NULL, (unsigned)n);
        for (int i = 0; i < n; i++) pthread_create(&thread[i], NULL, be_in_the_crowd, &c);
        for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
        pthread_barrier_destroy(&all);
        assert_int_equal(by_workers, 0);
    }
    waste_pool_release(p);
}

static void *work_hard(void *arg)
{
    static const int64_t grains[] = {1, 3, 17, 100};
    job *j = calloc(1, sizeof *j);

    j->limit = WASTE_POOL_MOST;
    for (int round = 0; round < 40; round++) {
        waste_pool *p = hold(4);
        waste_pool_turn t;

        waste_pool_enter(&t, p, round % 5);
        for (int i = 0; i < 50; i++) run_job(j, &t, 100 + i, grains[i % 4]);
        waste_pool_leave(&t);
        waste_pool_release(p);
    }
    free(j);
    return arg;
}

static void many_callers_open_and_close(void **state)
{
    pthread_t thread[4];
    (void)state;

    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, work_hard, NULL);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    assert_int_equal(waste_mem_used(), 0);
}

/* ---- the process ------------------------------------------------------------------ */

#if HAS_FORK

static void idle_uses_no_cpu(void **state)
{
    static job j;
    waste_pool *p = hold(3);
    waste_pool_turn t;
    struct rusage before, after;
    long us;
    (void)state;

    j.limit = 3;
    waste_pool_enter(&t, p, 0);
    run_job(&j, &t, 1000, 10);
    pause_ns(50000000);
    getrusage(RUSAGE_SELF, &before);
    pause_ns(300000000);
    getrusage(RUSAGE_SELF, &after);
    us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000L + after.ru_utime.tv_usec -
         before.ru_utime.tv_usec;
    waste_pool_leave(&t);
    waste_pool_release(p);
    assert_true(us < 30000);
}

static void forked_child_has_no_workers(void **state)
{
    static job j;
    waste_pool *p;
    waste_pool_turn t;
    pid_t child;
    int how = -1;
    (void)state;

    emulated_skip("qemu cannot fork a process with threads");
    p = hold(3);
    j.limit = 1;
    child = fork();
    if (child == 0) {
        waste_pool *own;

        alarm(20);
        waste_pool_enter(&t, p, 0);
        run_job(&j, &t, 1000, 10); /* a worker would be thread 1 or 2 */
        waste_pool_leave(&t);
        waste_pool_release(p);
        own = hold(CHILD);
        if (own == p) _exit(2);
        waste_pool_release(own);
        _exit(j.threads == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    waste_pool_release(p);
}

#endif

/* ---- CPUs ---------------------------------------------------------------------------- */

static void lists_are_read(void **state)
{
    static const struct {
        const char *text;
        uint64_t low, high; /* CPUs 0..63, and 960..1023 */
    } good[] = {
        {"0", 1, 0},
        {"1,1,1", 2, 0},
        {"3-5", 0x38, 0},
        {"0 - 2 , 5,\t7-7", 0xA7, 0},
        {"5,0-1,4-5", 0x33, 0},
        {"1023", 0, (uint64_t)1 << 63},
        {"007", 0x80, 0},
    };
    static const char *const bad[] = {"",
                                      " ",
                                      ",",
                                      "0,",
                                      "0,,3",
                                      "5-0",
                                      "0 3",
                                      "-3",
                                      "3-",
                                      "1-2-3",
                                      "1024",
                                      "0-1024",
                                      "a",
                                      "0x1",
                                      "0,a",
                                      "1.5",
                                      "+1",
                                      "0;1",
                                      "99999999999999999999"};
    waste_cpus c;
    (void)state;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        waste_error e = {0};

        if (waste_cpus_parse(&c, good[i].text, &e) == WASTE_UNSUPPORTED) skip();
        assert_string_equal(e.text, "");
        assert_true(c.bit[0] == good[i].low && c.bit[15] == good[i].high);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        waste_error e = {0};

        assert_int_equal(waste_cpus_parse(&c, bad[i], &e), WASTE_ARG);
        assert_non_null(strstr(e.text, "cpus "));
    }
}

#if defined(__linux__)

static int first_allowed(void)
{
    cpu_set_t set;
    int i;

    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (i = 0; !CPU_ISSET(i, &set); i++) continue;
    return i;
}

static _Atomic int elsewhere;

static void where_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    cpu_set_t set;
    (void)thread;
    (void)lo;
    (void)hi;

    sched_getaffinity(0, sizeof set, &set);
    if (CPU_COUNT(&set) != 1 || !CPU_ISSET(*(int *)ctx, &set)) elsewhere++;
    pause_ns(1000000);
}

static void threads_are_bound_and_the_caller_for_its_turn(void **state)
{
    const int cpu = first_allowed();
    cpu_set_t before, after;
    char text[40], notice[100];
    waste_cpus list;
    waste_pool *p;
    waste_pool_turn t;
    waste_error e = {0};
    (void)state;

    sched_getaffinity(0, sizeof before, &before);
    snprintf(text, sizeof text, "%d", cpu);
    assert_int_equal(waste_cpus_parse(&list, text, &e), WASTE_OK);
    assert_int_equal(waste_pool_threads(0, &list), 1);
    assert_int_equal(waste_pool_hold(&p, 3, &list, notice, sizeof notice, &e), WASTE_OK);
    assert_string_equal(notice, "");
    waste_pool_enter(&t, p, 0);
    waste_pool_run(&t, 20, 1, where_part, (void *)(intptr_t)&cpu);
    waste_pool_leave(&t);
    assert_int_equal(elsewhere, 0);
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
    waste_pool_release(p);
}

static void a_refused_binding_is_told(void **state)
{
    char notice[100];
    waste_cpus list;
    waste_pool *p, *q;
    waste_error e = {0};
    (void)state;

    assert_int_equal(waste_cpus_parse(&list, "1022-1023", &e), WASTE_OK);
    assert_int_equal(waste_pool_hold(&p, 0, &list, notice, sizeof notice, &e), WASTE_OK);
    assert_string_equal(notice, "cpus: the system refused to bind a thread to CPU 1022");
    assert_int_equal(waste_pool_threads(0, NULL), 2);
    assert_int_equal(waste_cpus_parse(&list, "0", &e), WASTE_OK);
    assert_int_equal(waste_pool_hold(&q, 0, &list, notice, sizeof notice, &e), WASTE_OK);
    assert_string_equal(notice, "cpus: the threads of this process have others already");
    waste_pool_release(q);
    waste_pool_release(p);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(all_threads_take_part),
        cmocka_unit_test(fewer_threads_than_the_pool_has),
        cmocka_unit_test(the_rest_of_a_thread_that_is_held_up_is_done_by_others),
        cmocka_unit_test(more_items_than_can_be_numbered),
        cmocka_unit_test(zeroed_turn_is_alone),
        cmocka_unit_test(one_pool_counted),
        cmocka_unit_test(out_of_memory_is_reported),
        cmocka_unit_test(callers_share_the_threads),
        cmocka_unit_test(workers_stay_out_of_a_crowd),
        cmocka_unit_test(many_callers_open_and_close),
#if HAS_FORK
        cmocka_unit_test(idle_uses_no_cpu),
        cmocka_unit_test(forked_child_has_no_workers),
#endif
        cmocka_unit_test(lists_are_read),
#if defined(__linux__)
        cmocka_unit_test(threads_are_bound_and_the_caller_for_its_turn),
        cmocka_unit_test(a_refused_binding_is_told),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
