/* Teams, and mutexes that survive a fork: see process.h. What the system is asked for is
 * in process_posix.c and process_win.c. Owns no state. */
#include "base/process.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define TEAM_STACK ((size_t)1 << 18)

typedef struct member {
    void (*part)(void *ctx, int number);
    void *ctx;
    int number;
    pthread_t thread;
} member;

static void *run_member(void *ctx)
{
    const member *m = ctx;

    m->part(m->ctx, m->number);
    return NULL;
}

void waste_process_team(int n, void (*part)(void *ctx, int number), void *ctx)
{
    member team[WASTE_PROCESS_TEAM];
    int started = 1, i;

    for (; started < n && started < WASTE_PROCESS_TEAM; started++) {
        team[started].part = part;
        team[started].ctx = ctx;
        team[started].number = started;
        if (waste_process_thread(&team[started].thread, TEAM_STACK, run_member, &team[started]))
            break;
    }
    part(ctx, 0);
    for (i = 1; i < started; i++) pthread_join(team[i].thread, NULL);
}

#if defined(__linux__)
#define DEADLINES CLOCK_MONOTONIC
#else
#define DEADLINES CLOCK_REALTIME /* macOS and winpthreads have no other */
#endif

int waste_process_wait_init(pthread_cond_t *c)
{
    pthread_condattr_t a;
    int rc = pthread_condattr_init(&a);

    if (rc) return rc;
#if defined(__linux__)
    rc = pthread_condattr_setclock(&a, DEADLINES);
#endif
    if (!rc) rc = pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
    return rc;
}

void waste_process_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t ns)
{
    struct timespec t;

    clock_gettime(DEADLINES, &t);
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec += (long)(ns % 1000000000u);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    (void)pthread_cond_timedwait(c, m, &t);
}

int waste_process_enter(waste_process_gate *g)
{
    const pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    const int64_t me = waste_process_id();
    int64_t was;

    while ((was = atomic_load(&g->process)) != me) {
        if (was == -me) {
            sched_yield(); /* another thread of this process is at it */
        } else if (atomic_compare_exchange_strong(&g->process, &was, -me)) {
            if (was) memcpy(&g->mutex, &mutex, sizeof mutex);
            /* without a clock of its own its waits end at once, and are asked again */
            if (waste_process_wait_init(&g->changed)) memcpy(&g->changed, &changed, sizeof changed);
            pthread_mutex_lock(&g->mutex);
            atomic_store(&g->process, me);
            return was != 0;
        }
    }
    pthread_mutex_lock(&g->mutex);
    return 0;
}
