/* base/aside: work that hangs is left behind, and nothing it uses goes away. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/aside.h"
#include "base/mem.h"
#include "lib/portable.h"

/* Work that counts, waits at a gate if it is told to, and uses its memory afterwards. */
typedef struct work {
    int waits;
    waste_status gives;
    pthread_t ran_on;
    int signals; /* that reach it */
    int told;    /* that its caller has gone */
    char text[64];
} work;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int shut, begun, ended, dropped, told;

static void reset(int closed)
{
    pthread_mutex_lock(&lock);
    shut = closed;
    begun = ended = dropped = told = 0;
    pthread_mutex_unlock(&lock);
}

static void open_gate(void)
{
    pthread_mutex_lock(&lock);
    shut = 0;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static int get(const int *what)
{
    int n;

    pthread_mutex_lock(&lock);
    n = *what;
    pthread_mutex_unlock(&lock);
    return n;
}

static waste_status run(void *ctx, const waste_cancel *left, waste_error *err)
{
    work *w = ctx;

    w->ran_on = pthread_self();
    w->signals = open_signals();
    pthread_mutex_lock(&lock);
    begun++;
    pthread_cond_broadcast(&change);
    while (w->waits && shut) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    strcpy(w->text, "used");
    w->told = waste_asked(left);
    pthread_mutex_lock(&lock);
    ended++;
    told += w->told;
    pthread_mutex_unlock(&lock);
    return w->gives ? waste_fail(err, w->gives, "no luck") : WASTE_OK;
}

static void drop(void *ctx)
{
    pthread_mutex_lock(&lock);
    dropped++;
    pthread_mutex_unlock(&lock);
    waste_mem_free(ctx);
}

static work *new_work(int waits, waste_status gives)
{
    work *w = waste_mem_zero(sizeof *w);

    assert_non_null(w);
    w->waits = waits;
    w->gives = gives;
    return w;
}

/* Says stop as soon as so many have begun; never with 0. */
static int when_begun(void *n)
{
    return *(int *)n && get(&begun) >= *(int *)n;
}

static void without_a_cancel_the_caller_works(void **state)
{
    waste_error e = {0};
    work *w = new_work(0, WASTE_OK);
    (void)state;

    reset(0);
    assert_int_equal(waste_aside_run(1, run, drop, w, NULL, &e), WASTE_OK);
    assert_true(pthread_equal(w->ran_on, pthread_self()));
    assert_int_equal(get(&dropped), 0);
    assert_string_equal(w->text, "used");
    waste_mem_free(w);
    assert_int_equal(waste_aside_run(1, run, drop, new_work(0, WASTE_FORMAT), NULL, &e),
                     WASTE_FORMAT);
    assert_string_equal(e.text, "no luck");
    assert_int_equal(get(&dropped), 1);
}

static void with_one_a_thread_of_its_own(void **state)
{
    const uint64_t before = waste_mem_used();
    int never = 0;
    const waste_cancel cancel = {when_begun, &never};
    waste_error e = {0};
    work *w = new_work(0, WASTE_OK);
    (void)state;

    reset(0);
    assert_int_equal(waste_aside_run(1, run, drop, w, &cancel, &e), WASTE_OK);
    assert_false(pthread_equal(w->ran_on, pthread_self()));
    assert_int_equal(w->signals, 0);
    assert_int_equal(w->told, 0);
    assert_int_equal(get(&dropped), 0);
    waste_mem_free(w);
    assert_int_equal(waste_aside_run(1, run, drop, new_work(0, WASTE_FORMAT), &cancel, &e),
                     WASTE_FORMAT);
    assert_string_equal(e.text, "no luck");
    assert_int_equal(get(&dropped), 1);
    assert_int_equal(waste_mem_used(), before);
}

static void what_hangs_is_left_behind(void **state)
{
    const uint64_t before = waste_mem_used();
    int one = 1;
    const waste_cancel cancel = {when_begun, &one};
    waste_error e = {0};
    (void)state;

    reset(1);
    assert_int_equal(waste_aside_run(1, run, drop, new_work(1, WASTE_OK), &cancel, &e),
                     WASTE_CANCELLED);
    assert_int_equal(get(&ended), 0);
    assert_int_equal(get(&dropped), 0);
    assert_true(waste_mem_used() > before);
    waste_aside_settle(2); /* of another key: nothing to wait for */
    assert_int_equal(get(&ended), 0);
    open_gate();
    waste_aside_settle(1);
    assert_int_equal(get(&ended), 1);
    assert_int_equal(get(&dropped), 1);
    assert_int_equal(get(&told), 1);
    assert_int_equal(waste_mem_used(), before);
}

static void *opens_when_asked(void *ctx)
{
    (void)ctx;
    pthread_mutex_lock(&lock);
    while (begun < 1) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    usleep(50000); /* whoever does not wait would have begun by now */
    assert_int_equal(get(&begun), 1);
    open_gate();
    return NULL;
}

static void the_same_key_waits_for_it_and_another_does_not(void **state)
{
    const uint64_t before = waste_mem_used();
    int one = 1, two = 2, never = 0;
    const waste_cancel at_once = {when_begun, &one}, second = {when_begun, &two},
                       patient = {when_begun, &never};
    waste_error e = {0}, f = {0};
    pthread_t opener;
    work *w;
    (void)state;

    reset(1);
    assert_int_equal(waste_aside_run(1, run, drop, new_work(1, WASTE_OK), &at_once, &e),
                     WASTE_CANCELLED);
    /* one that is told to stop while it waits never begins */
    assert_int_equal(waste_aside_run(1, run, drop, new_work(0, WASTE_OK), &at_once, &f),
                     WASTE_CANCELLED);
    assert_int_equal(get(&begun), 1);
    assert_int_equal(get(&dropped), 1);
    /* key 0 and key 2 have nothing to do with it */
    w = new_work(0, WASTE_OK);
    assert_int_equal(waste_aside_run(0, run, drop, w, &patient, NULL), WASTE_OK);
    waste_mem_free(w);
    assert_int_equal(waste_aside_run(2, run, drop, new_work(1, WASTE_OK), &second, NULL),
                     WASTE_CANCELLED);
    open_gate();
    waste_aside_settle(0);
    assert_int_equal(get(&dropped), 3);

    reset(1);
    assert_int_equal(waste_aside_run(1, run, drop, new_work(1, WASTE_OK), &at_once, NULL),
                     WASTE_CANCELLED);
    assert_int_equal(pthread_create(&opener, NULL, opens_when_asked, NULL), 0);
    w = new_work(0, WASTE_OK);
    assert_int_equal(waste_aside_run(1, run, drop, w, &patient, NULL), WASTE_OK);
    assert_int_equal(get(&dropped), 1); /* of the first, before the second began */
    waste_mem_free(w);
    pthread_join(opener, NULL);
    assert_int_equal(waste_mem_used(), before);
}

#if HAS_FORK

static void a_forked_child_has_nothing_to_wait_for(void **state)
{
    int one = 1, got;
    const waste_cancel cancel = {when_begun, &one};
    pid_t child;
    (void)state;

    reset(1);
    assert_int_equal(waste_aside_run(1, run, drop, new_work(1, WASTE_OK), &cancel, NULL),
                     WASTE_CANCELLED);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        waste_aside_settle(0);
        _exit(7);
    }
    assert_int_equal(waitpid(child, &got, 0), child);
    assert_true(WIFEXITED(got) && WEXITSTATUS(got) == 7);
    open_gate();
    waste_aside_settle(0);
    assert_int_equal(get(&dropped), 1);
}

#endif

static void without_memory_the_caller_works(void **state)
{
    int never = 0;
    const waste_cancel cancel = {when_begun, &never};
    work *w = new_work(0, WASTE_OK);
    (void)state;

    reset(0);
    waste_mem_fail_at(1, 0);
    assert_int_equal(waste_aside_run(1, run, drop, w, &cancel, NULL), WASTE_OK);
    waste_mem_fail_at(0, 0);
    assert_true(pthread_equal(w->ran_on, pthread_self()));
    waste_mem_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_cancel_the_caller_works),
        cmocka_unit_test(with_one_a_thread_of_its_own),
        cmocka_unit_test(what_hangs_is_left_behind),
        cmocka_unit_test(the_same_key_waits_for_it_and_another_does_not),
#if HAS_FORK
        cmocka_unit_test(a_forked_child_has_nothing_to_wait_for),
#endif
        cmocka_unit_test(without_memory_the_caller_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
