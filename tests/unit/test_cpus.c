/* base/cpus: what the system has, and threads bound to it. How lists are read: test_pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpus.h"

static void cores_are_no_more_than_processors(void **state)
{
    const int cores = waste_cpus_cores(), processors = waste_cpus_processors();
    (void)state;

    assert_in_range(processors, 1, WASTE_CPUS_MOST);
    assert_in_range(cores, 1, processors);
}

static waste_cpus only(int cpu)
{
    waste_cpus c = {{0}};

    c.bit[cpu / 64] = (uint64_t)1 << cpu % 64;
    return c;
}

static void *what_is_allowed(void *to)
{
    return waste_cpus_allowed(to) ? NULL : to;
}

static void a_bound_thread_may_use_no_other(void **state)
{
    waste_cpus before, its, after, elsewhere;
    pthread_t thread;
    void *done;
    (void)state;

    if (!waste_cpus_can_bind()) skip();
    assert_int_equal(waste_cpus_allowed(&before), 0);
    assert_true(waste_cpus_count(&before) > 0);
    its = only(waste_cpus_pick(&before, waste_cpus_count(&before) - 1));
    assert_int_equal(waste_cpus_bind(pthread_self(), &its), 0);
    assert_int_equal(waste_cpus_allowed(&after), 0);
    assert_memory_equal(&after, &its, sizeof its);
    assert_int_equal(waste_cpus_bind(pthread_self(), &before), 0);
    assert_int_equal(pthread_create(&thread, NULL, what_is_allowed, &elsewhere), 0);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_non_null(done);
    assert_memory_equal(&elsewhere, &before, sizeof before);
    memset(&its, 0, sizeof its);
    assert_int_not_equal(waste_cpus_bind(pthread_self(), &its), 0); /* to none */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_no_more_than_processors),
        cmocka_unit_test(a_bound_thread_may_use_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
