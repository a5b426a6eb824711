/* POSIX process facts: see process.h. Owns no state. */
#include "base/process.h"

#include <sched.h>
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
