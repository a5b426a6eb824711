/* POSIX process facts: see process.h. Owns no state. */
#include "base/process.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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
