/* Which process this is, and mutexes that survive its being forked. Any thread
 * may call. */
#ifndef WASTE_PROCESS_H
#define WASTE_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Differs between a process and the children it forked: whoever stored it can
 * tell that it is now the copy of somebody else's memory, whose threads are not
 * there. */
int64_t waste_process_id(void);

/* A thread that none of the host's signals reach. stack: its bytes, 0 for the system's
 * choice. 0, or why there is none (errno). */
int waste_process_thread(pthread_t *out, size_t stack, void *(*run)(void *), void *ctx);

/* Threads for a piece of work that waits more than it computes (work for the pool's is
 * in pool.h): part(ctx, 0) runs here, part(ctx, 1..n-1) on threads of their own, as far
 * as the system has room for them. Returns when all have ended. */
#define WASTE_PROCESS_TEAM 16 /* at most */
void waste_process_team(int n, void (*part)(void *ctx, int number), void *ctx);

/* A condition for waits that end after `ns` at the latest: by a clock that nobody sets,
 * where the system lets deadlines be on one. 0, or why there is none (errno). */
int waste_process_wait_init(pthread_cond_t *c);
void waste_process_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t ns);

/* This library stays in the process's memory, whatever the host unloads. */
void waste_process_stay_loaded(void);

/* Page faults so far that needed the disk; 0 where the system does not say. */
uint64_t waste_process_faults(void);

/* A mutex of static storage, and a condition for who waits with it, for waste_process_wait
 * too. In a forked child it may be held by a thread that only the parent has, and what it
 * guards is then the parent's. */
typedef struct waste_process_gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Atomic int64_t process; /* whose it is; 0: nobody's yet; negative: being made so */
} waste_process_gate;

#define WASTE_PROCESS_GATE                                     \
    {                                                          \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 \
    }

/* Takes the mutex. 1 for the first caller in a forked child, who has to start
 * what it guards anew; else 0. pthread_mutex_unlock(&g->mutex) ends it. */
int waste_process_enter(waste_process_gate *g);

#endif
