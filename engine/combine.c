/* Steps that run together: see combine.h. Owns the pass that is under way.
 *
 * Every caller has a ticket, in one list by arrival. While `busy` is set some caller,
 * the leader, computes: pass and rows are its own, and only it takes tickets into the
 * pass. The list, and of tickets all that both sides see, is guarded by the model's
 * lock, which is never held while computing or while a callback runs.
 *
 * A caller that is cancelled only says so (`left`); the leader lets it go at the next
 * layer or, since that may take seconds, while the layer is at its experts, when nobody
 * looks at sequences. A leader that is cancelled does the same with itself and leaves the
 * pass where it is: the next in the list goes on with it. What always holds: if the list
 * is not empty, somebody leads or has been woken to. */
#include "combine.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"
#include "internal.h"
#include "model/forward.h"

#define ASK_EVERY_NS 50000000 /* how often a waiting caller is asked about cancelling */
#define SMALL        4        /* rows of a step that goes before long ones */
#define SMALL_ROWS   48       /* of a pass, while long steps wait */
#define LINGER_PART  16       /* of the last pass's time */
#define LINGER_NS    2000000  /* at most */

typedef struct ticket {
    struct ticket *next;
    const waste_row *rows;
    const waste_cancel *cancel;
    size_t n, done, in_pass; /* rows in all, computed, being computed */
    int left;                /* its caller has been cancelled */
    int over;                /* status and error are there; not in the list any more */
    waste_status status;
    waste_error error;
    waste_step_stats stats;
    pthread_cond_t wake;
} ticket;

struct waste_combine {
    ticket *first;
    int busy;
    int paused;    /* the pass is half-way and has no leader */
    int lingering; /* the leader waits for arrivals */
    pthread_cond_t arrival;
    int writers;         /* some step of the last pass was a short one */
    size_t last_tickets; /* in the last pass */
    uint64_t last_ns;    /* that it took, if it was not paused */
    /* the leader's */
    ticket *leader;
    waste_model *model;
    waste_pass pass;
    waste_row rows[WASTE_ROWS_MOST];
    ticket *owner[WASTE_ROWS_MOST]; /* NULL: has gone, the row is to be taken out */
    waste_error why;
    waste_cancel cancel;
    waste_cache_counts before;
};

/* ---- tickets; with the lock held --------------------------------------------------- */

static void enqueue(waste_combine *c, ticket *t)
{
    ticket **at = &c->first;

    while (*at) at = &(*at)->next;
    *at = t;
    if (c->lingering) pthread_cond_signal(&c->arrival);
}

static void finish(waste_combine *c, ticket *t, waste_status st, const char *why)
{
    ticket **at = &c->first;

    while (*at != t) at = &(*at)->next;
    *at = t->next;
    t->status = st;
    if (st) waste_fail(&t->error, st, "%s", why);
    t->in_pass = 0;
    t->over = 1;
    pthread_cond_signal(&t->wake);
}

/* Some of its rows may be computed, others never will be. */
static void fail(waste_combine *c, ticket *t, waste_status st, const char *why)
{
    size_t i;

    if (t->done || (t->in_pass && c->pass.touched))
        for (i = 0; i < t->n; i++) t->rows[i].seq->broken = 1;
    finish(c, t, st, why);
}

static int asks(const ticket *t)
{
    return t->cancel && t->cancel->asked;
}

/* The caller's callback, without the lock; whether it says stop for the first time. */
static int is_cancelled(waste_model *m, const ticket *t)
{
    int yes;

    if (t->left || t->over || !asks(t)) return 0;
    pthread_mutex_unlock(&m->turn);
    yes = t->cancel->asked(t->cancel->ctx);
    pthread_mutex_lock(&m->turn);
    return yes && !t->over;
}

/* ---- forming a pass; with the lock held ----------------------------------------------- */

static size_t count(const waste_combine *c)
{
    const ticket *t;
    size_t n = 0;

    for (t = c->first; t; t = t->next) n++;
    return n;
}

/* Those who have just got a token come back for the next one: a pass that did not wait
 * for them would leave them out every second time. */
static void linger(waste_combine *c)
{
    const uint64_t part = c->last_ns / LINGER_PART;
    const uint64_t until = waste_clock_ns() + (part < LINGER_NS ? part : LINGER_NS);
    uint64_t now;

    c->lingering = 1;
    while (count(c) < c->last_tickets && (now = waste_clock_ns()) < until)
        waste_process_wait(&c->arrival, &c->model->turn, until - now);
    c->lingering = 0;
}

static void take(waste_combine *c, ticket *t, size_t most)
{
    const size_t left = t->n - t->done, n = left < most ? left : most;
    size_t i;

    for (i = 0; i < n; i++) {
        c->rows[c->pass.n] = t->rows[t->done + i];
        c->owner[c->pass.n++] = t;
    }
    t->in_pass = n;
}

/* Short steps first, so that no prompt delays those who write by more than a pass; the
 * rest for long ones, the oldest first. Passes are short as long as somebody writes: whose
 * token is being sampled right now was in the last one. */
static void gather(waste_combine *c)
{
    const int wrote = c->writers;
    size_t all, limit;
    ticket *t;

    c->pass.n = 0;
    c->writers = 0;
    for (t = c->first; t; t = t->next) c->writers |= t->n <= SMALL;
    all = (size_t)c->pass.s->rows;
    if ((c->writers || wrote) && all > WASTE_ROWS_LEAST) all = WASTE_ROWS_LEAST;
    limit = all;
    for (t = c->first; t; t = t->next)
        if (t->n - t->done > SMALL) limit = SMALL_ROWS;
    for (t = c->first; t; t = t->next)
        if (!t->left && t->n - t->done <= SMALL && c->pass.n + t->n - t->done <= limit)
            take(c, t, SMALL);
    for (t = c->first; t; t = t->next)
        if (!t->left && !t->in_pass && c->pass.n < all) take(c, t, all - c->pass.n);
}

/* ---- the leader's work; without the lock --------------------------------------------- */

/* Those who have left get their end. With the lock held. */
static void release(waste_combine *c)
{
    ticket *t, *next;
    size_t i;

    for (i = 0; i < c->pass.n; i++) {
        if (!c->owner[i] || !c->owner[i]->left) continue;
        c->owner[i] = NULL;
        c->rows[i].seq = NULL;
    }
    for (t = c->first; t; t = next) {
        next = t->next;
        if (t->left) fail(c, t, WASTE_CANCELLED, "cancelled");
    }
}

/* Rows that somebody waits for. With the lock held. */
static size_t wanted(const waste_combine *c)
{
    size_t i, n = 0;

    for (i = 0; i < c->pass.n; i++) n += c->owner[i] != NULL;
    return n;
}

/* Asked within the pieces of a pass: whether to stop there. Experts go on for those who
 * stay, as long as the leader is one of them; what comes before the first layer is so
 * little that it begins anew without those who have left. */
static int stop(void *ctx)
{
    waste_combine *c = ctx;
    waste_model *m = c->model;
    size_t i;
    int yes = 0;

    pthread_mutex_lock(&m->turn);
    if (is_cancelled(m, c->leader)) c->leader->left = 1;
    if (c->pass.half) {
        release(c);
        yes = c->leader->over || !wanted(c);
    } else {
        for (i = 0; i < c->pass.n; i++) yes |= c->owner[i]->left;
        yes |= c->leader->left;
    }
    pthread_mutex_unlock(&m->turn);
    return yes;
}

/* Between layers: rows of those who have left go. WASTE_CANCELLED when there are none
 * any more, WASTE_BUSY when the leader has to go and others are to go on. */
static waste_status let_go(waste_combine *c)
{
    waste_model *m = c->model;
    unsigned char keep[WASTE_ROWS_MOST];
    waste_status st = WASTE_OK;
    size_t i, n = 0;

    pthread_mutex_lock(&m->turn);
    if (is_cancelled(m, c->leader)) c->leader->left = 1;
    release(c);
    for (i = 0; i < c->pass.n; i++) keep[i] = c->owner[i] != NULL;
    waste_forward_keep(&c->pass, c->rows, keep);
    for (i = 0; n < c->pass.n; i++)
        if (keep[i]) c->owner[n++] = c->owner[i];
    if (c->pass.n == 0)
        st = WASTE_CANCELLED;
    else if (c->leader->over)
        st = WASTE_BUSY;
    pthread_mutex_unlock(&m->turn);
    return st;
}

/* Begins the pass or goes on with it, to WASTE_DONE or whatever else ends it;
 * WASTE_BUSY: others are to go on. */
static waste_status compute(waste_combine *c, int resumed)
{
    waste_status st = WASTE_OK;

    if (!resumed) {
        c->pass.touched = 0;
        st = waste_forward_begin(&c->pass, c->rows, c->pass.n);
    }
    while (!st) {
        if (!c->pass.half) st = let_go(c);
        if (!st) st = waste_forward_layer(&c->pass);
    }
    if (st != WASTE_CANCELLED) return st;
    return c->pass.half && wanted(c) ? WASTE_BUSY : WASTE_CANCELLED;
}

/* ---- leading; with the lock held at both ends ------------------------------------------ */

/* A pass that was stopped before it changed anything: those who stay are in the next. */
static void dissolve(waste_combine *c)
{
    ticket *t;

    release(c);
    for (t = c->first; t; t = t->next) t->in_pass = 0;
}

/* Everybody in the pass gets what it has come to. */
static void deliver(waste_combine *c, waste_status st, const waste_step_stats *stats)
{
    ticket *t, *next;

    for (t = c->first; t; t = next) {
        next = t->next;
        if (!t->in_pass) continue;
        t->stats.hits += stats->hits;
        t->stats.misses += stats->misses;
        t->stats.bytes_read += stats->bytes_read;
        t->stats.io_ns += stats->io_ns;
        t->stats.known_ns += stats->known_ns;
        t->stats.disk_ns += stats->disk_ns;
        if (st != WASTE_DONE) {
            fail(c, t, st, c->why.text);
            continue;
        }
        t->done += t->in_pass;
        t->in_pass = 0;
        if (t->done == t->n) finish(c, t, WASTE_OK, NULL);
    }
}

static void end_pass(waste_combine *c, waste_status st)
{
    waste_model *m = c->model;
    waste_cache_counts after = {0};
    waste_step_stats stats = {0};

    if (m->cache) {
        waste_cache_counts_get(m->cache, &after);
        stats.hits = after.hits - c->before.hits;
        stats.misses = after.misses - c->before.misses;
        stats.bytes_read = after.bytes_read - c->before.bytes_read;
        stats.io_ns = after.io_ns - c->before.io_ns;
        stats.known_ns = after.known_ns - c->before.known_ns;
        stats.disk_ns = after.disk_ns - c->before.disk_ns;
    }
    if (st == WASTE_DONE) m->stats.tokens += c->pass.n;
    deliver(c, st, &stats);
}

static void begin_pass(waste_combine *c)
{
    const ticket *t;

    c->pass.s = c->model->scratch;
    if (c->last_tickets > 1) linger(c);
    gather(c);
    c->last_tickets = 0;
    for (t = c->first; t; t = t->next) c->last_tickets += t->in_pass > 0;
    memset(&c->why, 0, sizeof c->why);
    c->pass.least = c->model->least;
    c->pass.cache = c->model->cache;
    if (c->model->cache) waste_cache_counts_get(c->model->cache, &c->before);
}

static void lead(waste_combine *c, ticket *t)
{
    waste_model *m = c->model;
    const int resumed = c->paused;
    waste_status st;
    fenv_t host;

    c->busy = 1;
    c->paused = 0;
    c->leader = t;
    if (!resumed) begin_pass(c);
    m->step_began = waste_clock_ns();
    pthread_mutex_unlock(&m->turn);

    waste_fpenv_enter(&host);
    waste_pool_enter(&c->pass.turn, m->pool, m->threads);
    st = compute(c, resumed);
    waste_pool_leave(&c->pass.turn);
    waste_fpenv_leave(&host);

    pthread_mutex_lock(&m->turn);
    c->last_ns = waste_clock_ns() - m->step_began;
    m->stats.step_ns += c->last_ns;
    m->step_began = 0;
    c->leader = NULL;
    c->busy = 0;
    if (st == WASTE_BUSY)
        c->paused = 1;
    else if (st == WASTE_CANCELLED && !c->pass.touched)
        dissolve(c);
    else
        end_pass(c, st);
}

/* Until something has changed, or for a while. */
static void wait(waste_combine *c, ticket *t)
{
    waste_model *m = c->model;
    if (!asks(t) || t->left) {
        pthread_cond_wait(&t->wake, &m->turn);
        return;
    }
    waste_process_wait(&t->wake, &m->turn, ASK_EVERY_NS);
    if (t->over || !c->busy || !is_cancelled(m, t)) return;
    t->left = 1;
    if (!t->in_pass) fail(c, t, WASTE_CANCELLED, "cancelled while waiting for the model");
}

waste_status waste_combine_run(waste_model *m, const waste_row *rows, size_t n,
                               const waste_cancel *cancel, waste_step_stats *stats,
                               waste_error *err)
{
    waste_combine *c = m->combine;
    ticket t;

    memset(&t, 0, sizeof t);
    t.rows = rows;
    t.n = n;
    t.cancel = cancel;
    if (waste_process_wait_init(&t.wake))
        return waste_fail(err, WASTE_NOMEM, "no condition could be made for a step");
    pthread_mutex_lock(&m->turn);
    enqueue(c, &t);
    while (!t.over) {
        if (c->busy)
            wait(c, &t);
        else
            lead(c, &t);
    }
    if (!c->busy && c->first) pthread_cond_signal(&c->first->wake);
    pthread_mutex_unlock(&m->turn);
    pthread_cond_destroy(&t.wake);
    if (stats) *stats = t.stats;
    return t.status ? waste_fail(err, t.status, "%s", t.error.text) : WASTE_OK;
}

/* ---- opening ------------------------------------------------------------------------------ */

waste_status waste_combine_open(waste_combine **out, waste_model *m, waste_error *err)
{
    waste_combine *c = waste_mem_zero(sizeof *c);

    *out = NULL;
    if (!c || waste_process_wait_init(&c->arrival)) {
        waste_mem_free(c);
        return waste_fail(err, WASTE_NOMEM, "out of memory for the steps of a model");
    }
    c->model = m;
    c->cancel.asked = stop;
    c->cancel.ctx = c;
    c->pass.config = &m->container->config;
    c->pass.weights = m->weights;
    c->pass.tensors = m->tensors;
    c->pass.kernels = &m->kernels;
    c->pass.quant = &m->container->manifest->quant;
    c->pass.banks = m->banks;
    c->pass.lookahead = m->options.lookahead;
    c->pass.cancel = &c->cancel;
    c->pass.err = &c->why;
    *out = c;
    return WASTE_OK;
}

void waste_combine_close(waste_combine *c)
{
    if (!c) return;
    pthread_cond_destroy(&c->arrival);
    waste_mem_free(c);
}
