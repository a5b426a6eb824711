/* convert/vq_pool: every part once, on whatever threads there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/vq_pool.h"
#include "lib/portable.h"

#define PARTS 1000

typedef struct job {
    atomic_int done[PARTS], inside[WASTE_VQ_THREADS];
    atomic_int clashes, open_signals;
    int size;
} job;

static void part(void *ctx, int worker, size_t i)
{
    job *j = ctx;
    volatile int k, spin = 0;

    if (worker < 0 || worker >= j->size || atomic_fetch_add(&j->inside[worker], 1))
        atomic_fetch_add(&j->clashes, 1);
    if (worker && open_signals()) atomic_fetch_add(&j->open_signals, 1);
    for (k = 0; k < 200; k++) spin += k;
    atomic_fetch_add(&j->done[i], 1);
    atomic_fetch_sub(&j->inside[worker], 1);
}

static void runs_every_part_once(void **state)
{
    static const int threads[] = {1, 2, 3, 8};
    static const size_t parts[] = {0, 1, 2, 7, PARTS};
    job *j = malloc(sizeof *j);
    waste_error err = {0};
    waste_vq_pool *p;
    size_t t, n, i;
    (void)state;
    for (t = 0; t < 4; t++) {
        assert_int_equal(waste_vq_pool_open(&p, threads[t], &err), WASTE_OK);
        assert_int_equal(waste_vq_pool_size(p), threads[t]);
        for (n = 0; n < 5; n++) {
            memset(j, 0, sizeof *j);
            j->size = threads[t];
            assert_int_equal(waste_vq_pool_run(p, part, j, parts[n], NULL, &err), WASTE_OK);
            for (i = 0; i < PARTS; i++) assert_int_equal(j->done[i], i < parts[n]);
            assert_int_equal(j->clashes, 0);
            assert_int_equal(j->open_signals, 0);
        }
        waste_vq_pool_close(p);
    }
    free(j);
}

static void the_caller_may_do_something_else_first(void **state)
{
    job *j = calloc(1, sizeof *j);
    waste_error err = {0};
    waste_vq_pool *p;
    size_t i;
    (void)state;
    assert_int_equal(waste_vq_pool_open(&p, 2, &err), WASTE_OK);
    j->size = 2;
    waste_vq_pool_start(p, part, j, PARTS);
    for (i = 0; i < PARTS; i++) waste_mem_free(waste_mem_alloc(64));
    assert_int_equal(waste_vq_pool_finish(p, NULL, &err), WASTE_OK);
    for (i = 0; i < PARTS; i++) assert_int_equal(j->done[i], 1);
    waste_vq_pool_close(p);
    free(j);
}

static int at_tenth(void *ctx)
{
    return ++*(int *)ctx >= 10;
}

static void leaves_the_rest_out_when_asked_to_stop(void **state)
{
    static const int threads[] = {1, 4};
    job *j = malloc(sizeof *j);
    waste_vq_pool *p;
    size_t t, i;
    (void)state;
    for (t = 0; t < 2; t++) {
        int asked = 0, ran = 0;
        waste_cancel cancel = {at_tenth, &asked};
        waste_error err = {0};
        memset(j, 0, sizeof *j);
        j->size = threads[t];
        assert_int_equal(waste_vq_pool_open(&p, threads[t], &err), WASTE_OK);
        if (waste_vq_pool_run(p, part, j, PARTS, &cancel, &err) == WASTE_OK)
            assert_true(threads[t] > 1); /* the others may have been that quick */
        for (i = 0; i < PARTS; i++) ran += j->done[i];
        if (threads[t] == 1) assert_int_equal(ran, 9);
        /* and the pool is as before */
        memset(&err, 0, sizeof err);
        memset(j, 0, sizeof *j);
        j->size = threads[t];
        assert_int_equal(waste_vq_pool_run(p, part, j, PARTS, NULL, &err), WASTE_OK);
        for (i = 0; i < PARTS; i++) assert_int_equal(j->done[i], 1);
        waste_vq_pool_close(p);
    }
    free(j);
}

static void opens_with_what_there_is(void **state)
{
    uint64_t before = waste_mem_used();
    waste_error err = {0};
    waste_vq_pool *p;
    (void)state;
    assert_int_equal(waste_vq_pool_open(&p, 0, &err), WASTE_OK);
    assert_in_range(waste_vq_pool_size(p), 1, WASTE_VQ_THREADS);
    waste_vq_pool_close(p);
    waste_vq_pool_close(NULL);
    waste_mem_fail_at(1, 1);
    assert_int_equal(waste_vq_pool_open(&p, 2, &err), WASTE_NOMEM);
    waste_mem_fail_at(0, 0);
    assert_null(p);
    assert_int_equal(waste_mem_used(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_every_part_once),
        cmocka_unit_test(the_caller_may_do_something_else_first),
        cmocka_unit_test(leaves_the_rest_out_when_asked_to_stop),
        cmocka_unit_test(opens_with_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
