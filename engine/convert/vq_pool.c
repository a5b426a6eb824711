/* Worker threads of a conversion: see vq_pool.h. Jobs are numbered; a worker sleeps
 * until the number changes. Parts are handed out by a counter. */
#include "convert/vq_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/cpus.h"
#include "base/mem.h"
#include "base/process.h"
#include "convert/convert.h"

typedef struct worker {
    struct waste_vq_pool *pool;
    pthread_t thread;
    int number; /* the caller is 0 */
} worker;

struct waste_vq_pool {
    pthread_mutex_t mutex;
    pthread_cond_t start, end;
    int size; /* workers and the caller */
    int64_t process;
    /* guarded by the mutex */
    uint64_t job; /* number of the latest */
    int busy;     /* workers that have not left it */
    int quit;
    /* of the job: written while nobody is busy */
    waste_vq_part part;
    void *ctx;
    size_t n;
    atomic_size_t next;
    worker worker[WASTE_VQ_THREADS];
};

static void take_parts(waste_vq_pool *p, int number)
{
    size_t i;

    while ((i = atomic_fetch_add(&p->next, 1)) < p->n) p->part(p->ctx, number, i);
}

static void *work(void *arg)
{
    worker *w = arg;
    waste_vq_pool *p = w->pool;
    uint64_t seen = 0;

    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (p->job == seen && !p->quit) pthread_cond_wait(&p->start, &p->mutex);
        if (p->quit) break;
        seen = p->job;
        pthread_mutex_unlock(&p->mutex);
        take_parts(p, w->number);
        pthread_mutex_lock(&p->mutex);
        if (--p->busy == 0) pthread_cond_signal(&p->end);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static int processors(void)
{
    const int n = waste_cpus_processors();

    return n < 1 ? 1 : n > WASTE_VQ_THREADS ? WASTE_VQ_THREADS : n;
}

static void start_workers(waste_vq_pool *p, int threads)
{
    while (p->size < threads) {
        worker *w = p->worker + p->size;

        w->pool = p;
        w->number = p->size;
        if (waste_process_thread(&w->thread, 0, work, w) != 0) break;
        p->size++;
    }
}

waste_status waste_vq_pool_open(waste_vq_pool **out, int threads, waste_error *err)
{
    waste_vq_pool *p = waste_mem_zero(sizeof *p);

    *out = NULL;
    if (!p) return waste_fail(err, WASTE_NOMEM, "out of memory starting threads");
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->end, NULL);
    p->process = waste_process_id();
    p->size = 1;
    start_workers(p, threads > 0 && threads <= WASTE_VQ_THREADS ? threads : processors());
    *out = p;
    return WASTE_OK;
}

void waste_vq_pool_close(waste_vq_pool *p)
{
    int i;

    if (!p) return;
    if (p->process == waste_process_id()) { /* a forked child has no workers to join */
        pthread_mutex_lock(&p->mutex);
        p->quit = 1;
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->mutex);
        for (i = 1; i < p->size; i++) pthread_join(p->worker[i].thread, NULL);
        pthread_cond_destroy(&p->start);
        pthread_cond_destroy(&p->end);
        pthread_mutex_destroy(&p->mutex);
    }
    waste_mem_free(p);
}

int waste_vq_pool_size(const waste_vq_pool *p)
{
    return p->size;
}

void waste_vq_pool_start(waste_vq_pool *p, waste_vq_part part, void *ctx, size_t n)
{
    p->part = part;
    p->ctx = ctx;
    p->n = n;
    atomic_store(&p->next, 0);
    if (p->size == 1) return;
    pthread_mutex_lock(&p->mutex);
    p->busy = p->size - 1;
    p->job++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->mutex);
}

waste_status waste_vq_pool_finish(waste_vq_pool *p, const waste_cancel *cancel, waste_error *err)
{
    waste_status st = WASTE_OK;
    size_t i;

    while (!st && (i = atomic_fetch_add(&p->next, 1)) < p->n) {
        st = waste_convert_asked(cancel, err);
        if (!st) p->part(p->ctx, 0, i);
    }
    if (st) atomic_store(&p->next, p->n); /* what is not begun is left out */
    if (p->size == 1) return st;
    pthread_mutex_lock(&p->mutex);
    while (p->busy) pthread_cond_wait(&p->end, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
    return st;
}

waste_status waste_vq_pool_run(waste_vq_pool *p, waste_vq_part part, void *ctx, size_t n,
                               const waste_cancel *cancel, waste_error *err)
{
    waste_vq_pool_start(p, part, ctx, n);
    return waste_vq_pool_finish(p, cancel, err);
}
