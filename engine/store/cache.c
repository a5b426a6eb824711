/* The expert cache: see cache.h. One mutex guards all of it and is never held
 * across a read or a question to the caller; the reader's own is taken inside it,
 * never the other way round.
 *
 * What always holds
 *  - where[record] names the slot that holds or is reading that record, or NONE;
 *    so no record is read twice at once.
 *  - A slot is empty (in the free list), reading (the reader has its request), or
 *    ready. One that is ready and neither asked for, held nor kept is offered to
 *    the policy, and only those are: nothing else can be evicted.
 *  - `asked` slots belong to the open batch: they are in its ready list or will be
 *    when their read ends. `kept` slots are guesses for the next batch.
 *  - Each expert of the batch is in ids once, and in missing from the ask on if it
 *    was not in a slot then; missing[0..issued) have one by now. */
#include "store/cache.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/plat.h"
#include "store/policy.h"
#include "store/reader.h"

#define NONE         (-1)
#define GUESSES      WASTE_POLICY_RANKS
#define ASK_EVERY_NS 20000000 /* between two questions about cancelling */

typedef enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY } slot_state;

typedef struct slot {
    waste_read read; /* whose record it is; first, since reads come back as this */
    slot_state state;
    unsigned char asked, held, kept;
    unsigned char joined;  /* asked for while it was being read for something else */
    unsigned char guessed; /* read on a guess and not asked for since */
    unsigned char warming; /* being read for waste_cache_warm */
    int32_t next_free;
} slot;

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
    int first_layer, layers, experts; /* layers: that have experts */
    uint64_t slot_bytes, n_slots;
    char *memory;
    slot *slots;
    int32_t *where;     /* [layers][experts] */
    int32_t first_free; /* list of empty slots */
    size_t reading;     /* slots in that state */
    waste_policy *policy;
    waste_reader *reader;
    batch batch;
    int guess_layer; /* that guess[0..n_guesses) are for */
    size_t n_guesses;
    int guess[GUESSES];
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

static waste_status reserve(waste_cache *c, waste_error *err)
{
    const size_t e = (size_t)c->experts, records = (size_t)c->layers * e;
    batch *b = &c->batch;
    size_t i;

    /* the links between slots are 32 bits wide */
    if (c->n_slots > INT32_MAX || c->n_slots > SIZE_MAX / 2 / c->slot_bytes)
        return waste_fail(err, WASTE_NOMEM, "an expert cache of %llu records fits no memory",
                          (unsigned long long)c->n_slots);
    c->slots = waste_mem_array((size_t)c->n_slots, sizeof *c->slots);
    c->where = waste_mem_array(records, sizeof *c->where);
    b->ids = waste_mem_array(e, sizeof *b->ids);
    b->named = waste_mem_array(e, sizeof *b->named);
    b->missing = waste_mem_array(e, sizeof *b->missing);
    b->ready = waste_mem_array(e, sizeof *b->ready);
    c->memory = waste_mem_region((size_t)(c->n_slots * c->slot_bytes));
    if (!c->slots || !c->where || !b->ids || !b->named || !b->missing || !b->ready || !c->memory)
        return waste_fail(err, WASTE_NOMEM, "no memory for an expert cache of %llu records of %llu",
                          (unsigned long long)c->n_slots, (unsigned long long)c->slot_bytes);
    for (i = 0; i < records; i++) c->where[i] = NONE;
    for (i = 0; i < c->n_slots; i++) c->slots[i].next_free = (int32_t)i + 1;
    c->slots[c->n_slots - 1].next_free = NONE;
    return WASTE_OK;
}

uint64_t waste_cache_table_bytes(const waste_banks *banks, uint64_t slots)
{
    const waste_bank_shape *s = waste_banks_shape(banks);
    const int layers = s->layers - s->first_moe;
    const uint64_t e = (uint64_t)s->experts;
    const batch *b = NULL;

    return sizeof(waste_cache) + slots * sizeof(slot) + (uint64_t)layers * e * sizeof(int32_t) +
           e * (sizeof *b->ids + sizeof *b->named + sizeof *b->missing + sizeof *b->ready) +
           waste_policy_bytes(layers, s->experts) + waste_reader_bytes();
}

/* Deadlines are on the clock that nobody sets, where the system lets them. */
static int open_lock(waste_cache *c)
{
    pthread_condattr_t a;

    c->has_lock = pthread_mutex_init(&c->lock, NULL) == 0;
    if (!c->has_lock || pthread_condattr_init(&a) != 0) return 0;
#if !defined(__APPLE__)
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
#endif
    c->has_change = pthread_cond_init(&c->change, &a) == 0;
    pthread_condattr_destroy(&a);
    return c->has_change;
}

static void read_done(void *ctx, waste_read *q, waste_status st, const waste_error *err);

waste_status waste_cache_open(waste_cache **out, const waste_banks *banks, uint64_t slots,
                              int io_threads, waste_error *err)
{
    const waste_bank_shape *shape = waste_banks_shape(banks);
    const int threads = io_threads ? io_threads : WASTE_READER_THREADS;
    waste_cache *c;
    waste_status st;

    *out = NULL;
    if (slots == 0 || waste_banks_slot_bytes(banks) == 0)
        return waste_fail(err, WASTE_ARG, "an expert cache of %llu slots of %llu bytes",
                          (unsigned long long)slots,
                          (unsigned long long)waste_banks_slot_bytes(banks));
    c = waste_mem_zero(sizeof *c);
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory opening the expert cache");
    c->banks = banks;
    c->first_layer = shape->first_moe;
    c->layers = shape->layers - shape->first_moe;
    c->experts = shape->experts;
    c->slot_bytes = waste_banks_slot_bytes(banks);
    c->n_slots = slots;
    c->counts.slots = slots;
    st = open_lock(c) ? reserve(c, err) : waste_fail(err, WASTE_NOMEM, "no lock for the cache");
    if (!st) st = waste_policy_open(&c->policy, c->layers, c->experts, err);
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
    waste_policy_close(c->policy);
    if (c->has_change) pthread_cond_destroy(&c->change);
    if (c->has_lock) pthread_mutex_destroy(&c->lock);
    waste_mem_region_free(c->memory, (size_t)(c->n_slots * c->slot_bytes));
    waste_mem_free(c->warm);
    waste_mem_free(c->batch.ready);
    waste_mem_free(c->batch.missing);
    waste_mem_free(c->batch.named);
    waste_mem_free(c->batch.ids);
    waste_mem_free(c->where);
    waste_mem_free(c->slots);
    waste_mem_free(c);
}

/* ---- slots, all under the lock ------------------------------------------ */

static int exists(const waste_cache *c, int layer, int expert)
{
    return layer >= c->first_layer && layer - c->first_layer < c->layers && expert >= 0 &&
           expert < c->experts;
}

static int32_t record_of(const waste_cache *c, int layer, int expert)
{
    return (layer - c->first_layer) * c->experts + expert;
}

static int32_t record_in(const waste_cache *c, const slot *s)
{
    return record_of(c, s->read.layer, s->read.expert);
}

/* The slot of a record, or NULL. */
static slot *slot_of(const waste_cache *c, int layer, int expert)
{
    const int32_t i = c->where[record_of(c, layer, expert)];

    return i == NONE ? NULL : &c->slots[i];
}

static int32_t number(const waste_cache *c, const slot *s)
{
    return (int32_t)(s - c->slots);
}

static char *bytes_of(const waste_cache *c, const slot *s)
{
    return c->memory + (uint64_t)number(c, s) * c->slot_bytes;
}

/* The record goes and the slot is free. */
static void empty(waste_cache *c, slot *s)
{
    waste_policy_withhold(c->policy, record_in(c, s));
    c->where[record_in(c, s)] = NONE;
    s->state = SLOT_EMPTY;
    s->asked = s->held = s->kept = s->joined = s->guessed = 0;
    s->next_free = c->first_free;
    c->first_free = number(c, s);
    c->counts.used--;
}

/* Lets the record of a slot go, if nothing speaks against it. */
static void offer(waste_cache *c, const slot *s)
{
    if (s->state == SLOT_READY && !s->asked && !s->held && !s->kept)
        waste_policy_offer(c->policy, record_in(c, s));
}

/* An empty slot, made so if a record of an index below `than` can go; or NULL. */
static slot *get_slot(waste_cache *c, float than)
{
    int32_t victim;
    slot *s;

    if (c->first_free == NONE) {
        victim = waste_policy_least(c->policy, than);
        if (victim < 0) return NULL;
        empty(c, &c->slots[c->where[victim]]);
        c->counts.evictions++;
    }
    s = &c->slots[c->first_free];
    c->first_free = s->next_free;
    c->counts.used++;
    return s;
}

static void start_read(waste_cache *c, slot *s, int layer, int expert, waste_urgency urgency)
{
    s->read.layer = layer;
    s->read.expert = expert;
    s->read.to = bytes_of(c, s);
    s->state = SLOT_READING;
    c->where[record_of(c, layer, expert)] = number(c, s);
    c->reading++;
    waste_reader_ask(c->reader, &s->read, urgency);
}

/* Empties a slot whose read has not begun; one that is being read, or that warming
 * wants, stays. */
static void withdraw(waste_cache *c, slot *s)
{
    if (s->warming || !waste_reader_withdraw(c->reader, &s->read)) return;
    c->reading--;
    c->counts.guesses -= s->guessed;
    empty(c, s);
}

/* ---- the batch, under the lock -------------------------------------------- */

/* A record of the batch that has a slot. */
static void want(waste_cache *c, slot *s)
{
    s->asked = 1;
    waste_policy_withhold(c->policy, record_in(c, s));
    c->counts.guesses_used += s->guessed;
    s->guessed = 0;
    s->joined = s->state == SLOT_READING;
    if (s->joined)
        waste_reader_promote(c->reader, &s->read, WASTE_URGENCY_DEMAND);
    else
        c->batch.ready[c->batch.n_ready++] = number(c, s);
}

/* Sends the reads of what is missing, as far as there are slots. */
static void issue(waste_cache *c)
{
    batch *b = &c->batch;

    for (; b->open && b->issued < b->n_missing; b->issued++) {
        const int expert = b->missing[b->issued];
        slot *s = slot_of(c, b->layer, expert);

        if (s) {
            want(c, s);
            continue;
        }
        s = get_slot(c, INFINITY);
        if (!s) return;
        s->asked = 1;
        start_read(c, s, b->layer, expert, WASTE_URGENCY_DEMAND);
    }
}

/* What was guessed and not confirmed is like any other record again. */
static void drop_guesses(waste_cache *c)
{
    size_t i;

    for (i = 0; i < c->n_guesses; i++) {
        slot *s = slot_of(c, c->guess_layer, c->guess[i]);

        if (!s || !s->kept) continue;
        s->kept = 0;
        if (s->asked) continue;
        if (s->state == SLOT_READING)
            withdraw(c, s);
        else
            offer(c, s);
    }
    c->n_guesses = 0;
}

static void end(waste_cache *c)
{
    batch *b = &c->batch;
    size_t i;

    for (i = 0; i < b->n; i++) {
        slot *s = slot_of(c, b->layer, b->ids[i]);

        b->named[b->ids[i]] = 0;
        if (!s || !s->asked) continue;
        s->asked = s->joined = 0;
        if (s->state == SLOT_READING)
            withdraw(c, s);
        else
            offer(c, s);
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
        slot *s;

        if (c->first_free == NONE) {
            c->warm_at = c->n_warm;
            return;
        }
        if (!exists(c, row->layer, row->expert) || slot_of(c, row->layer, row->expert)) continue;
        s = get_slot(c, -INFINITY);
        s->warming = 1;
        c->warming++;
        start_read(c, s, row->layer, row->expert, WASTE_URGENCY_WARM);
    }
}

static void arrived(waste_cache *c, slot *s)
{
    s->state = SLOT_READY;
    s->joined = 0;
    if (s->warming)
        c->counts.warmed++;
    else
        c->counts.bytes_read += waste_banks_record_bytes(c->banks, s->read.layer);
    if (s->asked)
        c->batch.ready[c->batch.n_ready++] = number(c, s);
    else
        offer(c, s);
}

/* The batch fails by a read of its own only: that a guess, or a read which an
 * earlier batch left behind, has failed means that it is tried once more. */
static void failed(waste_cache *c, slot *s, waste_status st, const waste_error *err)
{
    batch *b = &c->batch;

    if (s->warming) c->warm_at = c->n_warm;
    if (s->joined) {
        s->joined = 0;
        start_read(c, s, s->read.layer, s->read.expert, WASTE_URGENCY_DEMAND);
        return;
    }
    if (s->asked && !b->failed) {
        b->failed = st;
        b->error = *err;
    }
    empty(c, s);
}

/* From the thread that read. */
static void read_done(void *ctx, waste_read *q, waste_status st, const waste_error *err)
{
    waste_cache *c = ctx;
    slot *s = (slot *)q;

    pthread_mutex_lock(&c->lock);
    c->reading--;
    if (st)
        failed(c, s, st, err);
    else
        arrived(c, s);
    if (s->warming) c->warming--;
    s->warming = 0;
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
        if (!exists(c, layer, ids[i]))
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
        if (exists(c, layer, ids[i])) b->named[ids[i]] = 0;
    return st;
}

/* What the guesses for this layer were worth. */
static void learn(waste_cache *c, int layer, size_t rows)
{
    size_t i;

    if (rows != 1 || layer != c->guess_layer) return;
    for (i = 0; i < c->n_guesses; i++)
        waste_policy_guessed(c->policy, (int)i, c->batch.named[c->guess[i]]);
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
        waste_policy_pass(c->policy, layer - c->first_layer, ids, uses, n, rows);
        for (i = 0; i < n; i++) {
            slot *s = slot_of(c, layer, ids[i]);

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
    struct timespec t;

    if (waste_reader_threads(c->reader) == 0) {
        pthread_mutex_unlock(&c->lock);
        (void)waste_reader_serve(c->reader);
        pthread_mutex_lock(&c->lock);
        return;
    }
#if defined(__APPLE__)
    clock_gettime(CLOCK_REALTIME, &t);
#else
    clock_gettime(CLOCK_MONOTONIC, &t);
#endif
    t.tv_nsec += ASK_EVERY_NS;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&c->change, &c->lock, &t);
}

/* Until the batch has a record ready. Called and left with the lock. */
static waste_status wait_ready(waste_cache *c, const waste_cancel *cancel, waste_error *err)
{
    batch *b = &c->batch;
    waste_status st = ask_cancel(c, cancel, err);
    uint64_t start = 0, now;

    while (!st && !b->failed && b->n_ready == b->n_taken) {
        if (c->reading == 0)
            return waste_fail(err, WASTE_BUSY,
                              "layer %d, expert %d: all %llu slots of the expert cache are held",
                              b->layer, (int)b->missing[b->issued], (unsigned long long)c->n_slots);
        start = waste_clock_ns();
        wait_a_moment(c);
        now = waste_clock_ns();
        c->counts.io_ns += now - start;
        st = ask_cancel(c, cancel, err);
    }
    if (!st && b->failed) st = waste_fail(err, b->failed, "%s", b->error.text);
    return st;
}

waste_status waste_cache_take(waste_cache *c, int *expert, const void **record,
                              const waste_cancel *cancel, waste_error *err)
{
    batch *b = &c->batch;
    waste_status st = WASTE_DONE;
    slot *s;

    *record = NULL;
    *expert = -1;
    pthread_mutex_lock(&c->lock);
    if (b->open && b->n_taken < b->n) st = wait_ready(c, cancel, err);
    if (!st) {
        s = &c->slots[b->ready[b->n_taken++]];
        s->asked = 0;
        s->held = 1;
        *expert = s->read.expert;
        *record = bytes_of(c, s);
    } else if (b->open) {
        end(c);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

void waste_cache_release(waste_cache *c, int layer, int expert)
{
    slot *s;

    if (!exists(c, layer, expert)) return;
    pthread_mutex_lock(&c->lock);
    s = slot_of(c, layer, expert);
    if (s && s->held) {
        s->held = 0;
        offer(c, s);
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

void waste_cache_end(waste_cache *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->batch.open) end(c);
    pthread_mutex_unlock(&c->lock);
}

/* ---- guesses ------------------------------------------------------------------ */

static void guess_one(waste_cache *c, int layer, int expert, int rank)
{
    slot *s = slot_of(c, layer, expert);

    c->guess[c->n_guesses++] = expert;
    if (!s) {
        if (waste_reader_threads(c->reader) == 0) return;
        s = get_slot(c, waste_policy_guess(c->policy, layer - c->first_layer, rank));
        if (!s) return;
        s->guessed = 1;
        c->counts.guesses++;
        start_read(c, s, layer, expert, WASTE_URGENCY_GUESS);
    } else if (s->state == SLOT_READING) {
        waste_reader_promote(c->reader, &s->read, WASTE_URGENCY_GUESS);
    }
    s->kept = 1;
    waste_policy_withhold(c->policy, record_in(c, s));
}

void waste_cache_guess(waste_cache *c, int layer, const int *ids, size_t n)
{
    size_t i;

    pthread_mutex_lock(&c->lock);
    drop_guesses(c);
    c->guess_layer = layer;
    /* A demand that still has no slot comes before any guess. */
    for (i = 0; i < n && c->n_guesses < GUESSES && c->batch.issued == c->batch.n_missing; i++)
        if (exists(c, layer, ids[i])) guess_one(c, layer, ids[i], (int)i);
    pthread_mutex_unlock(&c->lock);
}

/* ---- what was learned ----------------------------------------------------------- */

size_t waste_cache_usage(waste_cache *c, waste_usage_row *out, size_t max)
{
    const int32_t records = c->layers * c->experts;
    size_t n = 0;
    int32_t i;

    pthread_mutex_lock(&c->lock);
    for (i = 0; i < records && n < max; i++) {
        const uint32_t hits = waste_policy_hits(c->policy, i);

        if (!hits) continue;
        out[n].layer = c->first_layer + i / c->experts;
        out[n].expert = i % c->experts;
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
            if (exists(c, rows[i].layer, rows[i].expert))
                waste_policy_seed(c->policy, record_of(c, rows[i].layer, rows[i].expert),
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
