/* The process's worker threads: see pool.h.
 *
 * A job is announced in one word, `state`: its number, whether it is open and how many
 * threads may take part. Each thread has a place, a cache line of its own, with the
 * part of the job that is its to begin with and, for a worker, whether it is in. A
 * worker says that it is in and then looks whether the job is still open; only then it
 * reads the job's fields, which the caller writes while no worker is in. The caller
 * closes the job when nothing is left to begin, and then looks who is in: one of the
 * two sees the other, and no line is written by all threads. The mutex is for sleeping
 * and waking alone. */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"

/* state: number of the job, OPEN, limit of threads */
#define OPEN     ((uint64_t)1 << 31)
#define JOB(s)   ((s) >> 32)
#define LIMIT(s) ((int)((s)&0x7FFF))

/* A range of units, which are `grain` items each. */
#define RANGE(lo, hi) ((uint64_t)(hi) << 32 | (uint64_t)(lo))
#define LO(r)         ((int64_t)((r)&0xFFFFFFFF))
#define HI(r)         ((int64_t)((r) >> 32))
#define UNITS_MOST    ((int64_t)1 << 31)

#define LOOKS 32 /* between two looks at the clock */

typedef struct worker {
    waste_pool *pool;
    pthread_t thread;
    int number; /* the caller is 0 */
} worker;

typedef struct place {
    _Alignas(64) _Atomic uint64_t range; /* units that nobody has begun */
    _Atomic int in;                      /* the worker is in a job, or about to look */
} place;

struct waste_pool {
    _Alignas(64) _Atomic uint64_t state;
    /* of the job: written while no worker is in it */
    _Alignas(64) waste_pool_part part;
    void *ctx;
    int64_t n, grain;
    int limit;
    place place[WASTE_POOL_MOST];

    _Alignas(64) _Atomic int busy; /* a caller has the workers */
    _Atomic int callers;           /* who have their turn */
    _Atomic int sleepers;          /* workers that have to be woken */
    _Atomic int caller_sleeps;     /* until the last worker is out */
    _Atomic int quit;
    pthread_mutex_t mutex;
    pthread_cond_t start, end;
    /* constant once it is made */
    int size; /* workers and the caller */
    int64_t process;
    waste_cpus cpus; /* none: not bound */
    int refused;     /* CPU that the system did not let a thread have; -1: none */
    int users;       /* guarded by the gate */
    worker worker[WASTE_POOL_MOST];
};

static waste_process_gate gate = WASTE_PROCESS_GATE;
static waste_pool *the_pool; /* guarded by it */

/* ---- CPUs ------------------------------------------------------------------- */

static waste_cpus only(int cpu)
{
    waste_cpus c = {{0}};

    c.bit[cpu / 64] = (uint64_t)1 << cpu % 64;
    return c;
}

static int wanted(int threads, const waste_cpus *cpus)
{
    int n = threads > 0 ? threads : waste_cpus_count(cpus);

    if (n < 1) n = waste_cpus_cores();
    return n < 1 ? 1 : n > WASTE_POOL_MOST ? WASTE_POOL_MOST : n;
}

/* ---- workers -------------------------------------------------------------------- */

/* A store that no later load passes. Pairs of threads each write, then look at what the
 * other writes: in and state, state and sleepers, caller_sleeps and in. Sequentially
 * consistent stores and loads do by C11, but qemu 7.2 lets an AArch64 load pass such a
 * store, and a thread slept on. An exchange is what x86 makes of the store anyway. */
#define PUT(to, value) ((void)atomic_exchange(&(to), (value)))

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A quarter of what is left of the thread's own: who is held up holds up no more. */
static int take(place *own, int64_t *lo, int64_t *hi)
{
    uint64_t r = atomic_load_explicit(&own->range, memory_order_relaxed);

    do {
        if (LO(r) >= HI(r)) return 0;
        *lo = LO(r);
        *hi = *lo + (HI(r) - *lo + 3) / 4;
    } while (!atomic_compare_exchange_weak(&own->range, &r, RANGE(*hi, HI(r))));
    return 1;
}

/* The rear half of what another thread has left, or all of one that has not come,
 * piece by piece. `thread` itself has nothing left. */
static int steal(waste_pool *p, int thread)
{
    int i;

    for (i = 1; i < p->limit; i++) {
        place *from = &p->place[(thread + i) % p->limit];
        uint64_t r = atomic_load_explicit(&from->range, memory_order_relaxed);

        while (LO(r) < HI(r)) {
            const int64_t half = LO(r) + (HI(r) - LO(r)) / 2;

            if (!atomic_compare_exchange_weak(&from->range, &r, RANGE(LO(r), half))) continue;
            atomic_store_explicit(&p->place[thread].range, RANGE(half, HI(r)),
                                  memory_order_relaxed);
            return 1;
        }
    }
    return 0;
}

static void take_pieces(waste_pool *p, int thread)
{
    const int64_t n = p->n, grain = p->grain;
    int64_t lo, hi;

    do {
        while (take(&p->place[thread], &lo, &hi))
            p->part(p->ctx, thread, lo * grain, hi * grain < n ? hi * grain : n);
    } while (steal(p, thread));
}

/* Whether state s tells of a job that this worker has not seen. */
static int is_new(uint64_t s, uint64_t seen)
{
    return (s & OPEN) && JOB(s) != seen;
}

/* Takes part in the job, if it is still open. */
static void join(waste_pool *p, int number_of, uint64_t job)
{
    place *own = &p->place[number_of];
    uint64_t s;

    PUT(own->in, 1);
    s = atomic_load(&p->state);
    if ((s & OPEN) && JOB(s) == job) take_pieces(p, number_of);
    PUT(own->in, 0);
    if (atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_signal(&p->end);
        pthread_mutex_unlock(&p->mutex);
    }
}

static void sleep_until(waste_pool *p, uint64_t seen)
{
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->sleepers, 1);
    while (!is_new(atomic_load(&p->state), seen) && !atomic_load(&p->quit))
        pthread_cond_wait(&p->start, &p->mutex);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->mutex);
}

static void *work(void *arg)
{
    const worker *w = arg;
    waste_pool *p = w->pool;
    uint64_t seen = 0, idle = waste_clock_ns(), ended = idle, now;
    unsigned looks = 0;

    while (!atomic_load_explicit(&p->quit, memory_order_relaxed)) {
        const uint64_t s = atomic_load_explicit(&p->state, memory_order_acquire);

        if (is_new(s, seen)) {
            seen = JOB(s);
            if (w->number < LIMIT(s)) join(p, w->number, seen);
            idle = ended = waste_clock_ns();
        } else if (++looks % LOOKS) {
            relax();
        } else {
            now = waste_clock_ns();
            if (atomic_load_explicit(&p->busy, memory_order_relaxed)) ended = now;
            if (now - ended <= WASTE_POOL_WATCH_NS && now - idle <= WASTE_POOL_STAY_NS) continue;
            sleep_until(p, seen);
            idle = ended = waste_clock_ns();
        }
    }
    return NULL;
}

/* Fewer than asked for is no error. */
static void start_workers(waste_pool *p, int threads)
{
    while (p->size < threads) {
        worker *w = p->worker + p->size;

        w->pool = p;
        w->number = p->size;
        if (waste_process_thread(&w->thread, 0, work, w) != 0) break;
        p->size++;
    }
}

/* Every thread to its CPU; the caller's is only tried. */
static void bind_all(waste_pool *p)
{
    waste_cpus before, its;
    int i;

    for (i = 1; i < p->size; i++) {
        its = only(waste_cpus_pick(&p->cpus, i));
        if (waste_cpus_bind(p->worker[i].thread, &its) && p->refused < 0)
            p->refused = waste_cpus_pick(&p->cpus, i);
    }
    its = only(waste_cpus_pick(&p->cpus, 0));
    if (waste_cpus_allowed(&before)) return;
    if (waste_cpus_bind(pthread_self(), &its))
        p->refused = waste_cpus_pick(&p->cpus, 0);
    else
        waste_cpus_bind(pthread_self(), &before);
}

/* ---- shares ---------------------------------------------------------------------- */

static void stop(waste_pool *p)
{
    int i;

    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->quit, 1);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->mutex);
    for (i = 1; i < p->size; i++) pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->end);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->mutex);
    waste_mem_free(p);
}

static waste_status make(waste_pool **out, int threads, const waste_cpus *cpus, waste_error *err)
{
    waste_pool *p = waste_mem_aligned(64, sizeof *p);

    if (!p) return waste_fail(err, WASTE_NOMEM, "out of memory for %d threads", threads);
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->end, NULL);
    p->process = waste_process_id();
    p->refused = -1;
    p->size = 1;
    start_workers(p, threads);
    if (cpus) {
        p->cpus = *cpus;
        bind_all(p);
    }
    *out = p;
    return WASTE_OK;
}

/* What differs between what is wanted and what there is. */
static void tell(const waste_pool *p, int threads, const waste_cpus *cpus, char *to, size_t room)
{
    if (cpus && memcmp(cpus, &p->cpus, sizeof *cpus) != 0)
        snprintf(to, room, "cpus: the threads of this process have %s already",
                 waste_cpus_count(&p->cpus) ? "others" : "none");
    else if (threads > p->size)
        snprintf(to, room, "threads: %d were asked for, the pool of this process has %d", threads,
                 p->size);
    else if (cpus && p->refused >= 0)
        snprintf(to, room, "cpus: the system refused to bind a thread to CPU %d", p->refused);
}

waste_status waste_pool_hold(waste_pool **out, int threads, const waste_cpus *cpus, char *notice,
                             size_t room, waste_error *err)
{
    waste_status st = WASTE_OK;

    *out = NULL;
    if (room) notice[0] = 0;
    if (waste_process_enter(&gate)) the_pool = NULL; /* the parent's */
    if (!the_pool) st = make(&the_pool, wanted(threads, cpus), cpus, err);
    if (!st) {
        the_pool->users++;
        *out = the_pool;
        tell(the_pool, threads > WASTE_POOL_MOST ? WASTE_POOL_MOST : threads, cpus, notice, room);
    }
    pthread_mutex_unlock(&gate.mutex);
    return st;
}

void waste_pool_release(waste_pool *p)
{
    if (!p || p->process != waste_process_id()) return;
    waste_process_enter(&gate);
    if (--p->users == 0) {
        the_pool = NULL;
        stop(p); /* workers never ask for the gate */
    }
    pthread_mutex_unlock(&gate.mutex);
}

int waste_pool_threads(int threads, const waste_cpus *cpus)
{
    int n;

    if (waste_process_enter(&gate)) the_pool = NULL;
    if (the_pool)
        n = threads > 0 && threads < the_pool->size ? threads : the_pool->size;
    else
        n = wanted(threads, cpus);
    pthread_mutex_unlock(&gate.mutex);
    return n;
}

/* ---- jobs ------------------------------------------------------------------------- */

void waste_pool_enter(waste_pool_turn *t, waste_pool *p, int threads)
{
    waste_cpus before, its;

    memset(t, 0, sizeof *t);
    if (!p || p->process != waste_process_id()) return;
    t->pool = p;
    t->threads = threads > 0 && threads < p->size ? threads : p->size;
    atomic_fetch_add(&p->callers, 1);
    if (!waste_cpus_count(&p->cpus) || waste_cpus_allowed(&before)) return;
    its = only(waste_cpus_pick(&p->cpus, 0));
    if (waste_cpus_bind(pthread_self(), &its)) return;
    memcpy(t->before, before.bit, sizeof t->before);
    t->bound = 1;
}

void waste_pool_leave(waste_pool_turn *t)
{
    waste_cpus before;

    if (!t->pool) return;
    atomic_fetch_sub(&t->pool->callers, 1);
    memcpy(before.bit, t->before, sizeof before.bit);
    if (t->bound) waste_cpus_bind(pthread_self(), &before);
    memset(t, 0, sizeof *t);
}

/* Until the worker is out of the closed job: watching, then asleep. */
static void wait_for(waste_pool *p, const place *of)
{
    const uint64_t since = waste_clock_ns();
    unsigned looks = 0;

    while (atomic_load(&of->in)) {
        if (++looks % LOOKS || waste_clock_ns() - since <= WASTE_POOL_WATCH_NS) {
            relax();
            continue;
        }
        pthread_mutex_lock(&p->mutex);
        PUT(p->caller_sleeps, 1);
        while (atomic_load(&of->in)) pthread_cond_wait(&p->end, &p->mutex);
        atomic_store(&p->caller_sleeps, 0);
        pthread_mutex_unlock(&p->mutex);
    }
}

static void run(waste_pool *p, int limit, int64_t units)
{
    const uint64_t job = JOB(atomic_load_explicit(&p->state, memory_order_relaxed)) + 1;
    int i;

    p->limit = limit;
    for (i = 0; i < limit; i++)
        atomic_store_explicit(&p->place[i].range, RANGE(units * i / limit, units * (i + 1) / limit),
                              memory_order_relaxed);
    PUT(p->state, job << 32 | OPEN | (uint64_t)limit);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->mutex);
    }
    take_pieces(p, 0);
    PUT(p->state, job << 32 | (uint64_t)limit);
    for (i = 1; i < limit; i++) wait_for(p, &p->place[i]);
}

void waste_pool_run(const waste_pool_turn *t, int64_t n, int64_t grain, waste_pool_part part,
                    void *ctx)
{
    waste_pool *p = t->pool;
    int limit = t->threads, others, idle = 0;
    int64_t units;

    if (n <= 0) return;
    if (p) {
        others = atomic_load_explicit(&p->callers, memory_order_relaxed) - 1;
        if (limit > p->size - others) limit = p->size - others;
    }
    if (!p || limit < 2 || n <= grain || !atomic_compare_exchange_strong(&p->busy, &idle, 1)) {
        part(ctx, 0, 0, n);
        return;
    }
    if (grain < 1) grain = 1;
    if (n / grain >= UNITS_MOST) grain = n / UNITS_MOST + 1;
    units = (n - 1) / grain + 1;
    p->part = part;
    p->ctx = ctx;
    p->n = n;
    p->grain = grain;
    run(p, limit < units ? limit : (int)units, units);
    atomic_store_explicit(&p->busy, 0, memory_order_release);
}
