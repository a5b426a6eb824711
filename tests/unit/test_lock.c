/* base/lock and base/process: one owner among processes, many within one, and
 * what a forked child has of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/process.h"
#include "lib/portable.h"
#if !HAS_FORK
#include <process.h>
#endif

static char dir[] = "/tmp/waste-lock-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

/* What this process gets, which is not the first. */
static waste_status attempt(void)
{
    waste_lock *l;
    waste_error e = {0};
    waste_status st = waste_lock_take(&l, dir, &e);

    return st == WASTE_BUSY && !strstr(e.text, dir) ? WASTE_ARG : st;
}

#if HAS_FORK

/* What another process gets: the status of taking, or of what it does first. */
static waste_status elsewhere(void (*first)(void))
{
    int got;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        if (first) first();
        _exit(-attempt());
    }
    assert_int_equal(waitpid(child, &got, 0), child);
    assert_true(WIFEXITED(got));
    return (waste_status)-WEXITSTATUS(got);
}

#else

static const char *program;

/* The same of this program, started once more; see main. */
static waste_status elsewhere(void (*first)(void))
{
    assert_null(first);
    return (waste_status)-_spawnl(_P_WAIT, program, "test_lock", dir, (char *)NULL);
}

#endif

static waste_lock *held;

#if HAS_FORK
static void release_held(void)
{
    waste_lock_release(held);
}
#endif

static void others_are_refused_while_it_is_held(void **state)
{
    waste_lock *again;
    waste_error e = {0};
    (void)state;
    assert_int_equal(elsewhere(NULL), WASTE_OK);
    assert_int_equal(waste_lock_take(&held, dir, &e), WASTE_OK);
    assert_int_equal(elsewhere(NULL), WASTE_BUSY);
    assert_int_equal(waste_lock_take(&again, dir, &e), WASTE_OK); /* within a process, shared */
    waste_lock_release(held);
    assert_int_equal(elsewhere(NULL), WASTE_BUSY);
    waste_lock_release(again);
    assert_int_equal(elsewhere(NULL), WASTE_OK);
}

#if HAS_FORK

static void a_child_owns_nothing_and_releases_nothing(void **state)
{
    waste_error e = {0};
    (void)state;
    assert_int_equal(waste_lock_take(&held, dir, &e), WASTE_OK);
    assert_int_equal(elsewhere(release_held), WASTE_BUSY);
    assert_int_equal(elsewhere(NULL), WASTE_BUSY); /* the parent's is as it was */
    waste_lock_release(held);
    assert_int_equal(elsewhere(NULL), WASTE_OK);
}

static void a_child_that_lives_on_keeps_no_lock(void **state)
{
    waste_error e = {0};
    int go[2];
    pid_t child;
    (void)state;
    assert_int_equal(pipe(go), 0);
    assert_int_equal(waste_lock_take(&held, dir, &e), WASTE_OK);
    child = fork();
    if (child == 0) { /* has the descriptor, and never comes here */
        char c;
        close(go[1]);
        _exit(read(go[0], &c, 1) != 0);
    }
    waste_lock_release(held);
    assert_int_equal(elsewhere(NULL), WASTE_OK);
    close(go[1]);
    waitpid(child, NULL, 0);
    close(go[0]);
}

static void a_link_is_the_same_directory(void **state)
{
    char other[64];
    waste_error e = {0};
    waste_lock *a, *b;
    (void)state;
    snprintf(other, sizeof other, "%s-link", dir);
    assert_int_equal(symlink(dir, other), 0);
    assert_int_equal(waste_lock_take(&a, dir, &e), WASTE_OK);
    assert_int_equal(waste_lock_take(&b, other, &e), WASTE_OK);
    assert_ptr_equal(a, b);
    waste_lock_release(a);
    assert_int_equal(elsewhere(NULL), WASTE_BUSY);
    waste_lock_release(b);
    unlink(other);
}

#endif

static void what_cannot_be_locked_is_granted(void **state)
{
    waste_error e = {0};
    waste_lock *l;
    (void)state;
#if HAS_FORK
    assert_int_equal(waste_lock_take(&l, "/proc/self", &e), WASTE_OK);
    waste_lock_release(l);
    assert_int_equal(chmod(dir, 0), 0); /* root may still, others not: granted both ways */
    assert_int_equal(waste_lock_take(&l, dir, &e), WASTE_OK);
    waste_lock_release(l);
    assert_int_equal(chmod(dir, 0755), 0);
#endif
    assert_int_equal(waste_lock_take(&l, "/nowhere", &e), WASTE_IO);
    assert_null(l);
    assert_non_null(strstr(e.text, "/nowhere"));
    waste_lock_release(NULL);
}

/* ---- the gate ---- */

#if HAS_FORK

static waste_process_gate gate = WASTE_PROCESS_GATE;

static void a_child_passes_a_gate_that_was_shut(void **state)
{
    int got;
    pid_t child;
    (void)state;
    assert_int_equal(waste_process_enter(&gate), 0);
    child = fork();
    if (child == 0) {
        int first, second;
        alarm(20);
        first = waste_process_enter(&gate);
        pthread_mutex_unlock(&gate.mutex);
        second = waste_process_enter(&gate);
        pthread_mutex_unlock(&gate.mutex);
        _exit(first * 2 + second);
    }
    assert_int_equal(waitpid(child, &got, 0), child);
    pthread_mutex_unlock(&gate.mutex);
    assert_true(WIFEXITED(got));
    assert_int_equal(WEXITSTATUS(got), 2);
    assert_int_equal(waste_process_enter(&gate), 0);
    pthread_mutex_unlock(&gate.mutex);
}

#endif

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_refused_while_it_is_held),
#if HAS_FORK
        cmocka_unit_test(a_child_owns_nothing_and_releases_nothing),
        cmocka_unit_test(a_child_that_lives_on_keeps_no_lock),
        cmocka_unit_test(a_link_is_the_same_directory),
        cmocka_unit_test(a_child_passes_a_gate_that_was_shut),
#endif
        cmocka_unit_test(what_cannot_be_locked_is_granted),
    };

    (void)argc;
#if HAS_FORK
    (void)argv;
#else
    program = argv[0];
    if (argc > 1) {
        snprintf(dir, sizeof dir, "%s", argv[1]);
        return -attempt();
    }
#endif
    return cmocka_run_group_tests(tests, setup, teardown);
}
