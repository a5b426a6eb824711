/* Work that may hang: see aside.h. Owns the list of what was left behind, under one
 * mutex, which is never held while something works or is asked. Whoever comes by joins
 * the threads that have ended. A forked child has none of them. */
#include "base/aside.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/process.h"

#define STACK_BYTES  ((size_t)1 << 20)
#define ASK_EVERY_NS 20000000 /* between two questions to the caller */

typedef struct job {
    struct job *next; /* left behind */
    uint64_t key;
    waste_aside_work *work;
    waste_aside_drop *drop;
    void *ctx;
    waste_status status;
    waste_error error;
    int left; /* the caller has gone: ctx is the thread's to drop */
    int over; /* nothing of it is used any more but this */
    pthread_t thread;
} job;

static waste_process_gate gate = WASTE_PROCESS_GATE;
static job *behind;

static void enter(void)
{
    if (waste_process_enter(&gate)) behind = NULL;
}

static void leave(void)
{
    pthread_mutex_unlock(&gate.mutex);
}

/* ---- the thread --------------------------------------------------------------- */

static int has_left(void *ctx)
{
    const job *j = ctx;
    int yes;

    enter();
    yes = j->left;
    leave();
    return yes;
}

static void *run(void *ctx)
{
    job *j = ctx;
    const waste_cancel left = {has_left, j};
    const waste_status st = j->work(j->ctx, &left, &j->error);

    enter();
    if (j->left) {
        leave();
        j->drop(j->ctx);
        enter();
    }
    j->status = st;
    j->over = 1;
    pthread_cond_broadcast(&gate.changed);
    leave();
    return NULL;
}

/* ---- waiting; with the lock --------------------------------------------------- */

/* Until something has changed, or for a moment. */
static void wait_a_moment(void)
{
    waste_process_wait(&gate.changed, &gate.mutex, ASK_EVERY_NS);
}

static int says_stop(const waste_cancel *cancel)
{
    int yes;

    leave();
    yes = cancel->asked(cancel->ctx);
    enter();
    return yes;
}

/* Joins what has ended; 1 if there is still some of this key. */
static int still_running(uint64_t key)
{
    job **at = &behind, *j;
    int some = 0;

    while ((j = *at) != NULL) {
        if (!j->over) {
            some |= !key || j->key == key;
            at = &j->next;
            continue;
        }
        *at = j->next;
        pthread_join(j->thread, NULL); /* it does no more than return */
        waste_mem_free(j);
    }
    return some;
}

/* ---- the caller --------------------------------------------------------------- */

static waste_status cancelled(waste_error *err)
{
    return waste_fail(err, WASTE_CANCELLED, "cancelled while reading");
}

/* On this thread. */
static waste_status here(waste_aside_work *work, waste_aside_drop *drop, void *ctx,
                         const waste_cancel *cancel, waste_error *err)
{
    const waste_status st = work(ctx, cancel, err);

    if (st) drop(ctx);
    return st;
}

/* Until the job is over, or is left behind, which is 1. */
static int wait_for(job *j, const waste_cancel *cancel)
{
    while (!j->over) {
        wait_a_moment();
        if (j->over || !says_stop(cancel) || j->over) continue;
        j->left = 1;
        j->next = behind;
        behind = j;
        return 1;
    }
    return 0;
}

waste_status waste_aside_run(uint64_t key, waste_aside_work *work, waste_aside_drop *drop,
                             void *ctx, const waste_cancel *cancel, waste_error *err)
{
    job *j = cancel && cancel->asked ? waste_mem_zero(sizeof *j) : NULL;
    int stop = 0;
    waste_status st;

    if (!j) return here(work, drop, ctx, cancel, err);
    j->key = key;
    j->work = work;
    j->drop = drop;
    j->ctx = ctx;
    enter();
    while (still_running(key) && key && !stop) {
        wait_a_moment();
        stop = says_stop(cancel);
    }
    if (!stop && waste_process_thread(&j->thread, STACK_BYTES, run, j) != 0) {
        leave();
        waste_mem_free(j);
        return here(work, drop, ctx, cancel, err);
    }
    if (!stop && wait_for(j, cancel)) {
        leave();
        return cancelled(err);
    }
    leave();
    if (!stop) pthread_join(j->thread, NULL);
    st = stop ? cancelled(err) : j->status;
    if (st) drop(ctx);
    if (st && !stop) waste_fail(err, st, "%s", j->error.text);
    waste_mem_free(j);
    return st;
}

void waste_aside_settle(uint64_t key)
{
    enter();
    while (still_running(key)) pthread_cond_wait(&gate.changed, &gate.mutex);
    leave();
}
