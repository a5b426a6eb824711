/* Worker threads of the process, for work that can be cut anywhere: one pool, made
 * by the first who holds it and joined when the last lets go. Whoever runs a job
 * takes part in it.
 *
 * Jobs are made of items 0..n-1. Each thread begins with its own even share, the same
 * in every job of that size, and takes it in contiguous pieces that become smaller;
 * who has finished takes half of what another has left. A part writes only what its
 * items stand for and reads nothing that others write, so that neither the number of
 * threads nor the cut shows in a result.
 *
 * Nobody waits for a worker that has not come: the others do its share. A worker
 * watches for the next job until WASTE_POOL_WATCH_NS after the end of the last, but no
 * longer than WASTE_POOL_STAY_NS after its own part of it, and then sleeps: an idle
 * process uses no CPU. A forked child has no workers. */
#ifndef WASTE_POOL_H
#define WASTE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpus.h"

#define WASTE_POOL_MOST     64      /* threads, the caller among them */
#define WASTE_POOL_WATCH_NS 30000   /* about what waking a sleeper costs (docs/measured.md) */
#define WASTE_POOL_STAY_NS  1000000 /* others may be at the last piece for so long */

typedef struct waste_pool waste_pool;

/* How many threads whoever holds the pool now would have: `threads` if given, else one
 * for each of `cpus`, else one for each physical core that the process
 * may use (fewer in a control group with less CPU time); never
 * more than a pool that is there already has. cpus may be NULL. */
int waste_pool_threads(int threads, const waste_cpus *cpus);

/* Takes a share in the pool. What was not done as asked for (another size or other
 * CPUs than the pool has, a binding that the system refused) goes as a sentence into
 * notice[0..room), which is else left empty. Worker i is bound to CPU i of the set, the
 * caller's CPU is the first; a set of fewer is gone through again. */
waste_status waste_pool_hold(waste_pool **out, int threads, const waste_cpus *cpus, char *notice,
                             size_t room, waste_error *err);
/* NULL is fine. The last release joins the workers; in a forked child nothing. */
void waste_pool_release(waste_pool *p);

/* A caller's time with the pool: several jobs, on one thread. Zeroed: alone. */
typedef struct waste_pool_turn {
    waste_pool *pool;                      /* NULL: alone */
    int threads;                           /* at most, the caller among them */
    int bound;                             /* the thread's CPUs are to be given back */
    uint64_t before[WASTE_CPUS_MOST / 64]; /* what they were */
} waste_pool_turn;

/* While several have their turn, each has so many workers less, so that no more
 * threads run than the pool has. With CPUs given the calling thread is bound to its
 * own until it leaves. pool may be NULL. */
void waste_pool_enter(waste_pool_turn *t, waste_pool *p, int threads);
void waste_pool_leave(waste_pool_turn *t);

/* Items lo..hi-1. `thread` < the turn's threads: no two parts run at the same time with
 * the same one, so it selects scratch; the caller's is 0. */
typedef void (*waste_pool_part)(void *ctx, int thread, int64_t lo, int64_t hi);

/* Returns when all items are done. Pieces are whole multiples of `grain` items, but for
 * the last item; no more threads take part than there are such. When another caller has
 * the workers at this moment, the calling thread does everything. Not from within a
 * part. */
void waste_pool_run(const waste_pool_turn *t, int64_t n, int64_t grain, waste_pool_part part,
                    void *ctx);

#endif
