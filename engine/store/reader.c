/* Reader threads and their queues: see reader.h. Owned by the cache. One mutex
 * guards the queues and is never held across a read or a call of `done`.
 *
 * Guesses and warming together never keep more than all but one thread, so that a
 * demand finds one free, unless there is one thread in all. */
#include "store/reader.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"

#define STACK_BYTES ((size_t)1 << 18)

typedef struct queue {
    waste_read *first, *last;
} queue;

struct waste_reader {
    const waste_banks *banks;
    waste_reader_done *done;
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t work;
    int has_lock, has_work;
    int stop;
    int background; /* reads of guesses and warming under way */
    queue queue[WASTE_URGENCIES];
    int n_threads;
    pthread_t thread[WASTE_READER_MOST];
};

/* ---- queues, all under the lock ------------------------------------------- */

static void append(waste_reader *r, waste_read *q, waste_urgency urgency)
{
    queue *to = &r->queue[urgency];

    q->urgency = urgency;
    q->queued = 1;
    q->next = NULL;
    q->prev = to->last;
    if (to->last)
        to->last->next = q;
    else
        to->first = q;
    to->last = q;
}

static void take_out(waste_reader *r, waste_read *q)
{
    queue *from = &r->queue[q->urgency];

    if (q->prev)
        q->prev->next = q->next;
    else
        from->first = q->next;
    if (q->next)
        q->next->prev = q->prev;
    else
        from->last = q->prev;
    q->next = q->prev = NULL;
    q->queued = 0;
}

/* The request whose turn it is, out of its queue. */
static waste_read *next_read(waste_reader *r)
{
    const int most = r->n_threads > 1 ? r->n_threads - 1 : 1;
    int i;

    for (i = 0; i < WASTE_URGENCIES; i++) {
        waste_read *q = r->queue[i].first;

        if (!q) continue;
        if (i != WASTE_URGENCY_DEMAND && r->background >= most) return NULL;
        take_out(r, q);
        return q;
    }
    return NULL;
}

/* Called and left with the lock, which is free while the disk works. */
static void read_one(waste_reader *r, waste_read *q)
{
    const int background = q->urgency != WASTE_URGENCY_DEMAND;
    waste_error err = {0};
    waste_status st;

    r->background += background;
    pthread_mutex_unlock(&r->lock);
    st = waste_banks_read(r->banks, q->layer, q->expert, q->to, &err);
    r->done(r->ctx, q, st, &err);
    pthread_mutex_lock(&r->lock);
    r->background -= background;
}

static void *reader_thread(void *ctx)
{
    waste_reader *r = ctx;

    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        waste_read *q = next_read(r);

        if (q)
            read_one(r, q);
        else
            pthread_cond_wait(&r->work, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- open, close ------------------------------------------------------------ */

static void start_threads(waste_reader *r, int threads)
{
    pthread_mutex_lock(&r->lock);
    while (r->n_threads < threads &&
           waste_process_thread(&r->thread[r->n_threads], STACK_BYTES, reader_thread, r) == 0)
        r->n_threads++;
    pthread_mutex_unlock(&r->lock);
}

waste_status waste_reader_open(waste_reader **out, const waste_banks *banks, int threads,
                               waste_reader_done *done, void *ctx, waste_error *err)
{
    waste_reader *r;

    *out = NULL;
    if (threads < 0 || threads > WASTE_READER_MOST)
        return waste_fail(err, WASTE_ARG, "%d reader threads are not in 0..%d", threads,
                          WASTE_READER_MOST);
    r = waste_mem_zero(sizeof *r);
    if (!r) return waste_fail(err, WASTE_NOMEM, "out of memory for the reader threads");
    r->banks = banks;
    r->done = done;
    r->ctx = ctx;
    r->has_lock = pthread_mutex_init(&r->lock, NULL) == 0;
    r->has_work = pthread_cond_init(&r->work, NULL) == 0;
    if (!r->has_lock || !r->has_work) {
        waste_reader_close(r);
        return waste_fail(err, WASTE_NOMEM, "no lock could be made for the reader threads");
    }
    if (threads) start_threads(r, threads);
    *out = r;
    return WASTE_OK;
}

void waste_reader_close(waste_reader *r)
{
    int i;

    if (!r) return;
    if (r->n_threads) {
        pthread_mutex_lock(&r->lock);
        r->stop = 1;
        pthread_cond_broadcast(&r->work);
        pthread_mutex_unlock(&r->lock);
        for (i = 0; i < r->n_threads; i++) pthread_join(r->thread[i], NULL);
    }
    if (r->has_work) pthread_cond_destroy(&r->work);
    if (r->has_lock) pthread_mutex_destroy(&r->lock);
    waste_mem_free(r);
}

uint64_t waste_reader_bytes(void)
{
    return sizeof(waste_reader);
}

int waste_reader_threads(const waste_reader *r)
{
    return r->n_threads;
}

/* ---- requests --------------------------------------------------------------- */

void waste_reader_ask(waste_reader *r, waste_read *q, waste_urgency urgency)
{
    pthread_mutex_lock(&r->lock);
    append(r, q, urgency);
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

void waste_reader_promote(waste_reader *r, waste_read *q, waste_urgency urgency)
{
    pthread_mutex_lock(&r->lock);
    if (q->queued && q->urgency > urgency) {
        take_out(r, q);
        append(r, q, urgency);
        pthread_cond_signal(&r->work);
    }
    pthread_mutex_unlock(&r->lock);
}

int waste_reader_withdraw(waste_reader *r, waste_read *q)
{
    int was;

    pthread_mutex_lock(&r->lock);
    was = q->queued;
    if (was) take_out(r, q);
    pthread_mutex_unlock(&r->lock);
    return was;
}

int waste_reader_serve(waste_reader *r)
{
    waste_read *q;

    pthread_mutex_lock(&r->lock);
    q = next_read(r);
    if (q) read_one(r, q);
    pthread_mutex_unlock(&r->lock);
    return q != NULL;
}
