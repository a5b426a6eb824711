/* Batches, guesses and warming over the slots: see cache.h. One mutex guards all of it
 * and is never held across a read or a question to the caller; the reader's own is
 * taken inside it, never the other way round. Where a record is and which one goes is
 * in slots.c.
 *
 * What always holds
 *  - `asked` slots belong to the open batch: they are in its ready list or will be
 *    when their read ends. `kept` slots are guesses for the next batch.
 *  - Each expert of the batch is in ids once, and in missing from the ask on if it
 *    was not in a slot then; missing[0..issued) have one by now. */
#include "store/cache.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"
#include "store/slots.h"

#define GUESSES      WASTE_POLICY_RANKS
#define ASK_EVERY_NS 20000000 /* between two questions about cancelling */

/* The experts of one layer, while they are used. Arrays are [experts]. */
typedef struct batch {
    int open, layer;
    int *ids;
    unsigned char *named; /* by expert: is in ids */
    size_t n, n_missing, issued, n_ready, n_taken;
    int32_t *missing; /* experts */
    int32_t *ready;   /* slots, in the order in which they became so */
    waste_status failed;
    waste_error error;
} batch;

struct waste_cache {
    const waste_banks *banks;
    waste_slots slots;
    size_t reading;         /* slots in that state */
    uint64_t reading_since; /* some have been */
    waste_reader *reader;
    batch batch;
    int guess_layer; /* that guess[0..n_guesses) are for */
    size_t n_guesses;
    int guess[GUESSES], guess_rank[GUESSES];
    waste_usage_row *warm; /* what waste_cache_warm still has to read: from warm_at on */
    size_t n_warm, warm_at;
    int warming;       /* reads for it */
    uint64_t asked_ns; /* when the caller was last asked about cancelling */
    waste_cache_counts counts;
    int has_lock, has_change;
    pthread_mutex_t lock;
    pthread_cond_t change; /* of the batch */
};

/* ---- open, close ------------------------------------------------------ */

static waste_status open_batch(batch *b, size_t experts, waste_error *err)
{
    b->ids = waste_mem_array(experts, sizeof *b->ids);
    b->named = waste_mem_array(experts, sizeof *b->named);
    b->missing = waste_mem_array(experts, sizeof *b->missing);
    b->ready = waste_mem_array(experts, sizeof *b->ready);
    if (b->ids && b->named && b->missing && b->ready) return WASTE_OK;
    return waste_fail(err, WASTE_NOMEM, "out of memory for a batch of %zu experts", experts);
}

uint64_t waste_cache_table_bytes(const waste_banks *banks, uint64_t slots)
{
    const uint64_t e = (uint64_t)waste_banks_shape(banks)->experts;
    const batch *b = NULL;

    return sizeof(waste_cache) + waste_slots_table_bytes(banks, slots) +
           e * (sizeof *b->ids + sizeof *b->named + sizeof *b->missing + sizeof *b->ready) +
           waste_reader_bytes();
}

static int open_lock(waste_cache *c)
{
    c->has_lock = pthread_mutex_init(&c->lock, NULL) == 0;
    c->has_change = c->has_lock && waste_process_wait_init(&c->change) == 0;
    return c->has_change;
}

static void read_done(void *ctx, waste_read *q, waste_status st, const waste_error *err);

waste_status waste_cache_open(waste_cache **out, const waste_banks *banks, uint64_t slots,
                              int io_threads, waste_error *err)
{
    const int threads = io_threads ? io_threads : WASTE_READER_THREADS;
    waste_cache *c;
    waste_status st;

    *out = NULL;
    c = waste_mem_zero(sizeof *c);
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory opening the expert cache");
    c->banks = banks;
    st = open_lock(c) ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "no lock for the cache");
    if (!st) st = waste_slots_open(&c->slots, banks, slots, err);
    if (!st) st = open_batch(&c->batch, (size_t)c->slots.experts, err);
    if (!st)
        st = waste_reader_open(&c->reader, banks, threads < 0 ? 0 : threads, read_done, c, err);
    if (st) {
        waste_cache_close(c);
        return st;
    }
    *out = c;
    return WASTE_OK;
}

void waste_cache_close(waste_cache *c)
{
    if (!c) return;
    waste_reader_close(c->reader);
    if (c->has_change) pthread_cond_destroy(&c->change);
    if (c->has_lock) pthread_mutex_destroy(&c->lock);
    waste_mem_free(c->warm);
    waste_mem_free(c->batch.ready);
    waste_mem_free(c->batch.missing);
    waste_mem_free(c->batch.named);
    waste_mem_free(c->batch.ids);
    waste_slots_close(&c->slots);
    waste_mem_free(c);
}

/* ---- reads, under the lock -------------------------------------------------- */

/* One read more, or one less. */
static void count_read(waste_cache *c, int more)
{
    const size_t before = c->reading;

    c->reading += more ? 1 : (size_t)-1;
    if (before == 0)
        c->reading_since = waste_clock_ns();
    else if (c->reading == 0)
        c->counts.disk_ns += waste_clock_ns() - c->reading_since;
}

/* For a slot in state reading. */
static void start_read(waste_cache *c, waste_slot *s, waste_urgency urgency)
{
    s->known = 0;
    count_read(c, 1);
    waste_reader_ask(c->reader, &s->read, urgency);
}

/* Empties a slot whose read has not begun; one that is being read, or that warming
 * wants, stays. */
static void withdraw(waste_cache *c, waste_slot *s)
{
    if (s->warming || !waste_reader_withdraw(c->reader, &s->read)) return;
    count_read(c, 0);
    c->counts.guesses -= s->guessed;
    waste_slots_empty(&c->slots, s);
}

/* ---- the batch, under the lock -------------------------------------------- */

/* A record of the batch that has a slot. */
static void want(waste_cache *c, waste_slot *s)
{
    s->asked = 1;
    waste_slots_withhold(&c->slots, s);
    c->counts.guesses_used += s->guessed;
    s->guessed = 0;
    s->joined = s->known = s->state == WASTE_SLOT_READING;
    if (s->joined)
        waste_reader_promote(c->reader, &s->read, WASTE_URGENCY_DEMAND);
    else
        c->batch.ready[c->batch.n_ready++] = waste_slots_number(&c->slots, s);
}

/* Sends the reads of what is missing, as far as there are slots. */
static void issue(waste_cache *c)
{
    batch *b = &c->batch;

    for (; b->open && b->issued < b->n_missing; b->issued++) {
        const int expert = b->missing[b->issued];
        waste_slot *s = waste_slots_find(&c->slots, b->layer, expert);

        if (s) {
            want(c, s);
            continue;
        }
        s = waste_slots_take(&c->slots, b->layer, expert, INFINITY);
        if (!s) return;
        s->asked = 1;
        start_read(c, s, WASTE_URGENCY_DEMAND);
    }
}

/* What was guessed and not confirmed is like any other record again. */
static void drop_guesses(waste_cache *c)
{
    size_t i;

    for (i = 0; i < c->n_guesses; i++) {
        waste_slot *s = waste_slots_find(&c->slots, c->guess_layer, c->guess[i]);

        if (!s || !s->kept) continue;
        s->kept = 0;
        if (s->asked) continue;
        if (s->state == WASTE_SLOT_READING)
            withdraw(c, s);
        else
            waste_slots_offer(&c->slots, s);
    }
    c->n_guesses = 0;
}

static void end(waste_cache *c)
{
    batch *b = &c->batch;
    size_t i;

    for (i = 0; i < b->n; i++) {
        waste_slot *s = waste_slots_find(&c->slots, b->layer, b->ids[i]);

        b->named[b->ids[i]] = 0;
        if (!s || !s->asked) continue;
        s->asked = s->joined = 0;
        if (s->state == WASTE_SLOT_READING)
            withdraw(c, s);
        else
            waste_slots_offer(&c->slots, s);
    }
    b->open = 0;
    b->n = b->n_missing = b->issued = b->n_ready = b->n_taken = 0;
    b->failed = WASTE_OK;
    memset(&b->error, 0, sizeof b->error);
}

/* ---- warming and ends of reads, under the lock ------------------------------ */

/* Keeps as many reads of the hotlist going as there are threads for it. */
static void feed_warming(waste_cache *c)
{
    const int most = waste_reader_threads(c->reader);

    while (c->warm_at < c->n_warm && c->warming < most) {
        const waste_usage_row *row = &c->warm[c->warm_at++];
        waste_slot *s;

        if (!waste_slots_any_empty(&c->slots)) {
            c->warm_at = c->n_warm;
            return;
        }
        if (!waste_slots_exists(&c->slots, row->layer, row->expert) ||
            waste_slots_find(&c->slots, row->layer, row->expert))
            continue;
        s = waste_slots_take(&c->slots, row->layer, row->expert, -INFINITY);
        s->warming = 1;
        c->warming++;
        start_read(c, s, WASTE_URGENCY_WARM);
    }
}

static void arrived(waste_cache *c, waste_slot *s)
{
    s->state = WASTE_SLOT_READY;
    if (s->warming)
        c->counts.warmed++;
    else
        c->counts.bytes_read += waste_banks_record_bytes(c->banks, s->read.layer);
    s->joined = s->warming = 0;
    if (s->asked)
        c->batch.ready[c->batch.n_ready++] = waste_slots_number(&c->slots, s);
    else
        waste_slots_offer(&c->slots, s);
}

/* The batch fails by a read of its own only: that a guess, or a read which an
 * earlier batch left behind, has failed means that it is tried once more. */
static void failed(waste_cache *c, waste_slot *s, waste_status st, const waste_error *err)
{
    batch *b = &c->batch;

    if (s->warming) c->warm_at = c->n_warm;
    if (s->joined) {
        s->joined = s->warming = 0;
        start_read(c, s, WASTE_URGENCY_DEMAND);
        return;
    }
    if (s->asked && !b->failed) {
        b->failed = st;
        b->error = *err;
    }
    waste_slots_empty(&c->slots, s);
}

/* From the thread that read. */
static void read_done(void *ctx, waste_read *q, waste_status st, const waste_error *err)
{
    waste_cache *c = ctx;
    waste_slot *s = (waste_slot *)q;

    pthread_mutex_lock(&c->lock);
    count_read(c, 0);
    c->warming -= s->warming;
    if (st)
        failed(c, s, st, err);
    else
        arrived(c, s);
    issue(c);
    feed_warming(c);
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
}

/* ---- ask, take, release ----------------------------------------------------- */

static waste_status check_ids(waste_cache *c, int layer, const int *ids, size_t n, waste_error *err)
{
    batch *b = &c->batch;
    waste_status st = WASTE_OK;
    size_t i;

    if (b->open)
        return waste_fail(err, WASTE_BUSY, "the experts of layer %d are still in use", b->layer);
    for (i = 0; i < n && !st; i++) {
        if (!waste_slots_exists(&c->slots, layer, ids[i]))
            st =
                waste_fail(err, WASTE_ARG, "the model has no expert %d in layer %d", ids[i], layer);
        else if (b->named[ids[i]])
            st =
                waste_fail(err, WASTE_ARG, "layer %d, expert %d is asked for twice", layer, ids[i]);
        else
            b->named[ids[i]] = 1;
    }
    if (!st) return WASTE_OK;
    while (i-- > 0)
        if (waste_slots_exists(&c->slots, layer, ids[i])) b->named[ids[i]] = 0;
    return st;
}

/* What the guesses for this layer were worth. */
static void learn(waste_cache *c, int layer, size_t rows)
{
    size_t i;

    if (rows != 1 || layer != c->guess_layer) return;
    for (i = 0; i < c->n_guesses; i++)
        waste_policy_guessed(c->slots.policy, c->guess_rank[i], c->batch.named[c->guess[i]]);
}

waste_status waste_cache_ask(waste_cache *c, int layer, const int *ids, const int *uses, size_t n,
                             size_t rows, waste_error *err)
{
    batch *b = &c->batch;
    waste_status st;
    size_t i;

    pthread_mutex_lock(&c->lock);
    st = check_ids(c, layer, ids, n, err);
    if (!st && n) {
        b->open = 1;
        b->layer = layer;
        b->n = n;
        memcpy(b->ids, ids, n * sizeof *ids);
        waste_policy_pass(c->slots.policy, layer - c->slots.first_layer, ids, uses, n, rows);
        for (i = 0; i < n; i++) {
            waste_slot *s = waste_slots_find(&c->slots, layer, ids[i]);

            if (s) {
                c->counts.hits++;
                want(c, s);
            } else {
                c->counts.misses++;
                b->missing[b->n_missing++] = ids[i];
            }
        }
        learn(c, layer, rows);
        drop_guesses(c);
        issue(c);
        c->asked_ns = waste_clock_ns();
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* Called and left with the lock, which is free while the caller is asked. */
static waste_status ask_cancel(waste_cache *c, const waste_cancel *cancel, waste_error *err)
{
    const uint64_t now = waste_clock_ns();
    const int layer = c->batch.layer;
    int yes;

    if (!cancel || !cancel->asked || now - c->asked_ns < ASK_EVERY_NS) return WASTE_OK;
    c->asked_ns = now;
    pthread_mutex_unlock(&c->lock);
    yes = cancel->asked(cancel->ctx);
    pthread_mutex_lock(&c->lock);
    if (!yes) return WASTE_OK;
    return waste_fail(err, WASTE_CANCELLED, "cancelled in layer %d", layer);
}

/* A moment of waiting, or of reading when nobody else does. Called and left with
 * the lock. */
static void wait_a_moment(waste_cache *c)
{
    if (waste_reader_threads(c->reader) == 0) {
        pthread_mutex_unlock(&c->lock);
        (void)waste_reader_serve(c->reader);
        pthread_mutex_lock(&c->lock);
        return;
    }
    waste_process_wait(&c->change, &c->lock, ASK_EVERY_NS);
}

/* Until the batch has a record ready. Called and left with the lock. */
static waste_status wait_ready(waste_cache *c, const waste_cancel *cancel, waste_error *err)
{
    batch *b = &c->batch;
    waste_status st = ask_cancel(c, cancel, err);
    uint64_t start = 0, now, waited = 0;

    while (!st && !b->failed && b->n_ready == b->n_taken) {
        if (c->reading == 0) {
            st = waste_fail(err, WASTE_BUSY,
                            "layer %d, expert %d: all %llu slots of the expert cache are held",
                            b->layer, (int)b->missing[b->issued], (unsigned long long)c->slots.n);
            break;
        }
        start = waste_clock_ns();
        wait_a_moment(c);
        now = waste_clock_ns();
        waited += now - start;
        st = ask_cancel(c, cancel, err);
    }
    c->counts.io_ns += waited;
    if (b->n_ready > b->n_taken && c->slots.slot[b->ready[b->n_taken]].known)
        c->counts.known_ns += waited;
    if (!st && b->failed) st = waste_fail(err, b->failed, "%s", b->error.text);
    return st;
}

waste_status waste_cache_take(waste_cache *c, int *expert, const void **record,
                              const waste_cancel *cancel, waste_error *err)
{
    batch *b = &c->batch;
    waste_status st = WASTE_DONE;
    waste_slot *s;

    *record = NULL;
    *expert = -1;
    pthread_mutex_lock(&c->lock);
    if (b->open && b->n_taken < b->n) st = wait_ready(c, cancel, err);
    if (!st) {
        s = &c->slots.slot[b->ready[b->n_taken++]];
        s->asked = 0;
        s->held = 1;
        *expert = s->read.expert;
        *record = waste_slots_bytes(&c->slots, s);
    } else if (b->open) {
        end(c);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

void waste_cache_release(waste_cache *c, int layer, int expert)
{
    waste_slot *s;

    if (!waste_slots_exists(&c->slots, layer, expert)) return;
    pthread_mutex_lock(&c->lock);
    s = waste_slots_find(&c->slots, layer, expert);
    if (s && s->held) {
        s->held = 0;
        waste_slots_offer(&c->slots, s);
        issue(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void waste_cache_ready(waste_cache *c, size_t *ready, size_t *left)
{
    const batch *b = &c->batch;

    pthread_mutex_lock(&c->lock);
    *ready = b->open && !b->failed ? b->n_ready - b->n_taken : 0;
    *left = b->open ? b->n - b->n_taken : 0;
    pthread_mutex_unlock(&c->lock);
}

/* ---- guesses ------------------------------------------------------------------ */

static void guess_one(waste_cache *c, int layer, int expert, int rank)
{
    waste_slot *s = waste_slots_find(&c->slots, layer, expert);

    c->guess[c->n_guesses] = expert;
    c->guess_rank[c->n_guesses++] = rank;
    if (!s) {
        if (waste_reader_threads(c->reader) == 0) return;
        s = waste_slots_take(
            &c->slots, layer, expert,
            waste_policy_guess(c->slots.policy, layer - c->slots.first_layer, rank));
        if (!s) return;
        s->guessed = 1;
        c->counts.guesses++;
        start_read(c, s, WASTE_URGENCY_GUESS);
    } else if (s->state == WASTE_SLOT_READING) {
        waste_reader_promote(c->reader, &s->read, WASTE_URGENCY_GUESS);
    }
    s->kept = 1;
    waste_slots_withhold(&c->slots, s);
}

int waste_cache_may_lack(waste_cache *c, int layer)
{
    int keeps;

    pthread_mutex_lock(&c->lock);
    keeps = waste_slots_keep(&c->slots, layer);
    pthread_mutex_unlock(&c->lock);
    return !keeps;
}

void waste_cache_guess(waste_cache *c, int layer, const int *ids, const int *ranks, size_t n)
{
    size_t i;

    pthread_mutex_lock(&c->lock);
    drop_guesses(c);
    c->guess_layer = layer;
    /* A demand that still has no slot comes before any guess. */
    for (i = 0; i < n && c->n_guesses < GUESSES && c->batch.issued == c->batch.n_missing; i++)
        if (waste_slots_exists(&c->slots, layer, ids[i]))
            guess_one(c, layer, ids[i], ranks ? ranks[i] : (int)i);
    pthread_mutex_unlock(&c->lock);
}

/* ---- what was learned ----------------------------------------------------------- */

size_t waste_cache_usage(waste_cache *c, waste_usage_row *out, size_t max)
{
    const int experts = c->slots.experts, records = c->slots.layers * experts;
    size_t n = 0;
    int32_t i;

    pthread_mutex_lock(&c->lock);
    for (i = 0; i < records && n < max; i++) {
        const uint32_t hits = waste_policy_hits(c->slots.policy, i);

        if (!hits) continue;
        out[n].layer = c->slots.first_layer + i / experts;
        out[n].expert = i % experts;
        out[n++].hits = hits;
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

void waste_cache_warm(waste_cache *c, const waste_usage_row *rows, size_t n)
{
    waste_usage_row *copy = waste_mem_array(n, sizeof *copy), *old = NULL;
    size_t i;

    if (!copy) return;
    memcpy(copy, rows, n * sizeof *copy);
    pthread_mutex_lock(&c->lock);
    if (c->warming) {
        old = copy;
    } else {
        for (i = 0; i < n; i++)
            if (waste_slots_exists(&c->slots, rows[i].layer, rows[i].expert))
                waste_policy_seed(c->slots.policy,
                                  waste_slots_record(&c->slots, rows[i].layer, rows[i].expert),
                                  rows[i].hits);
        old = c->warm;
        c->warm = copy;
        c->n_warm = n;
        c->warm_at = 0;
        feed_warming(c);
    }
    pthread_mutex_unlock(&c->lock);
    waste_mem_free(old);
}

/* ---- counts ------------------------------------------------------------------------ */

void waste_cache_counts_get(waste_cache *c, waste_cache_counts *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->counts;
    out->slots = c->slots.n;
    out->used = c->slots.used;
    out->evictions = c->slots.evictions;
    if (c->reading) out->disk_ns += waste_clock_ns() - c->reading_since;
    pthread_mutex_unlock(&c->lock);
}

int waste_cache_threads(const waste_cache *c)
{
    return waste_reader_threads(c->reader);
}

const char *waste_cache_policy(void)
{
    return WASTE_POLICY_NAME;
}
