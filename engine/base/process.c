/* POSIX process facts: see process.h. Owns no state. */
#include "base/process.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TEAM_STACK ((size_t)1 << 18)

int64_t waste_process_id(void)
{
    return (int64_t)getpid();
}

uint64_t waste_process_faults(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) == 0 && u.ru_majflt > 0 ? (uint64_t)u.ru_majflt : 0;
}

int waste_process_thread(pthread_t *out, size_t stack, void *(*run)(void *), void *ctx)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);

    if (rc) return rc;
    if (stack) (void)pthread_attr_setstacksize(&attr, stack);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(out, &attr, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

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

int waste_process_enter(waste_process_gate *g)
{
    const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    const int64_t me = waste_process_id();
    int64_t was;

    while ((was = atomic_load(&g->process)) != me) {
        if (was == -me) {
            sched_yield(); /* another thread of this process is at it */
        } else if (atomic_compare_exchange_strong(&g->process, &was, -me)) {
            if (was) memcpy(&g->mutex, &fresh, sizeof fresh);
            pthread_mutex_lock(&g->mutex);
            atomic_store(&g->process, me);
            return was != 0;
        }
    }
    pthread_mutex_lock(&g->mutex);
    return 0;
}
