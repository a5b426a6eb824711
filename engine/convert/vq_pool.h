/* The threads of one conversion: the caller and, beside it, workers that wait for
 * parts of a job. What a part does must not depend on who does it or when, so that
 * the number of threads never shows in a result.
 *
 * Not base/pool.h, the process's pool of the forward pass: a conversion computes for
 * hours in parts of milliseconds, and while it had those workers every generation of
 * the process would run on one thread. It also uses every CPU, not a thread for each
 * core, its caller reads the next file while a job runs (_start, _finish), and a cancel
 * is asked within a job. What that pool is for - microseconds between jobs, a thread's
 * own share - is of no use to it. */
#ifndef WASTE_VQ_POOL_H
#define WASTE_VQ_POOL_H

#include <stddef.h>

#include "base/error.h"

#define WASTE_VQ_THREADS 256 /* most that can be asked for */

typedef struct waste_vq_pool waste_vq_pool;

/* Part i of a job. `worker` < waste_vq_pool_size: no two parts run at the same time
 * with the same one, so it selects scratch. */
typedef void (*waste_vq_part)(void *ctx, int worker, size_t i);

/* threads 0: as many as the process may run on. Fewer than asked for is no error.
 * Workers block all signals. */
waste_status waste_vq_pool_open(waste_vq_pool **out, int threads, waste_error *err);
void waste_vq_pool_close(waste_vq_pool *p); /* no job may be running */
int waste_vq_pool_size(const waste_vq_pool *p);

/* Starts part(ctx, .., i) for 0 <= i < n on the workers, and returns: the caller has
 * time for something else, then must call _finish, which takes parts as well and
 * returns when all have ended. A cancel is asked between parts, on the caller's
 * thread; the rest of the job is then left out. */
void waste_vq_pool_start(waste_vq_pool *p, waste_vq_part part, void *ctx, size_t n);
waste_status waste_vq_pool_finish(waste_vq_pool *p, const waste_cancel *cancel, waste_error *err);
/* Both in one. */
waste_status waste_vq_pool_run(waste_vq_pool *p, waste_vq_part part, void *ctx, size_t n,
                               const waste_cancel *cancel, waste_error *err);

#endif
