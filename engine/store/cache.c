/* The expert cache: see cache.h. Any thread may call anything here but open and
 * close. One mutex guards all of it and is never held across a read.
 *
 * What always holds
 *  - where[record] names the slot that holds or is reading that record, or NONE;
 *    so no two threads read the same record.
 *  - A slot with holds > 0 keeps its record and its bytes. Whoever waits for a
 *    read holds the slot already, so the record cannot go before it wakes.
 *  - A failed read takes the holds of those who wait with it (their `turn` tells
 *    them) and leaves the slot empty: each of them then tries by itself.
 *
 * Eviction: least wanted first. A record's frequency counts its demand accesses
 * and is halved for every HALF_LIFE x slots accesses of others since its last
 * one; ties go to the one unused for longest. Records that the latest want()
 * named go only when no other candidate can. A large cache draws its candidates. */
#include "store/cache.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"

#define NONE      (-1)
#define HALF_LIFE 2  /* in accesses per slot */
#define DRAWS     16 /* candidates per eviction; a smaller cache is scanned whole */

typedef enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY } slot_state;

typedef struct slot {
    slot_state state;
    int32_t layer, expert;
    uint32_t holds, freq;
    uint64_t last;   /* clock of the last demand access */
    uint64_t wanted; /* the want() that last named it */
    uint64_t turn;   /* counts failed reads: holds taken before are gone */
    int32_t next_free;
} slot;

struct waste_cache {
    const waste_banks *banks;
    int first_layer, layers, experts;
    uint64_t slot_bytes, n_slots;
    char *memory;
    slot *slots;
    int32_t *where;     /* [layers - first_layer][experts] */
    int32_t first_free; /* list of empty slots */
    uint64_t clock;     /* demand accesses */
    uint64_t wants;     /* want() calls */
    uint32_t random;
    waste_cache_counts counts;
    int has_lock;
    pthread_mutex_t lock;
    pthread_cond_t read_done;
};

/* ---- open, close ------------------------------------------------------ */

static waste_status reserve(waste_cache *c, waste_error *err)
{
    size_t records = (size_t)(c->layers - c->first_layer) * (size_t)c->experts, i;

    if (c->n_slots > SIZE_MAX / 2 / c->slot_bytes)
        return waste_fail(err, WASTE_NOMEM, "an expert cache of %llu records fits no memory",
                          (unsigned long long)c->n_slots);
    c->slots = waste_mem_array((size_t)c->n_slots, sizeof *c->slots);
    c->where = waste_mem_array(records, sizeof *c->where);
    c->memory = waste_mem_aligned(WASTE_RECORD_ALIGN, (size_t)(c->n_slots * c->slot_bytes));
    if (!c->slots || !c->where || !c->memory)
        return waste_fail(err, WASTE_NOMEM, "no memory for an expert cache of %llu MiB",
                          (unsigned long long)(c->n_slots * c->slot_bytes >> 20));
    for (i = 0; i < records; i++) c->where[i] = NONE;
    for (i = 0; i < c->n_slots; i++)
        c->slots[i].next_free = i + 1 < c->n_slots ? (int32_t)(i + 1) : NONE;
    return WASTE_OK;
}

uint64_t waste_cache_table_bytes(const waste_banks *banks, uint64_t slots)
{
    const waste_bank_shape *shape = waste_banks_shape(banks);
    uint64_t records = (uint64_t)(shape->layers - shape->first_moe) * (uint64_t)shape->experts;

    return sizeof(waste_cache) + slots * sizeof(slot) + records * sizeof(int32_t);
}

waste_status waste_cache_open(waste_cache **out, const waste_banks *banks, uint64_t slots,
                              waste_error *err)
{
    const waste_bank_shape *shape = waste_banks_shape(banks);
    waste_cache *c;
    waste_status st;

    *out = NULL;
    if (slots < 1 || slots > INT32_MAX || waste_banks_slot_bytes(banks) == 0)
        return waste_fail(err, WASTE_ARG,
                          "an expert cache of %llu slots of %llu bytes: wanted at least one slot "
                          "and a model with experts",
                          (unsigned long long)slots,
                          (unsigned long long)waste_banks_slot_bytes(banks));
    c = waste_mem_zero(sizeof *c);
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory opening the expert cache");
    c->banks = banks;
    c->first_layer = shape->first_moe;
    c->layers = shape->layers;
    c->experts = shape->experts;
    c->slot_bytes = waste_banks_slot_bytes(banks);
    c->n_slots = slots;
    c->counts.slots = slots;
    st = reserve(c, err);
    if (!st) {
        c->has_lock = pthread_mutex_init(&c->lock, NULL) == 0;
        if (c->has_lock && pthread_cond_init(&c->read_done, NULL) != 0) {
            pthread_mutex_destroy(&c->lock);
            c->has_lock = 0;
        }
        if (!c->has_lock) st = waste_fail(err, WASTE_NOMEM, "no lock for the expert cache");
    }
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
    if (c->has_lock) {
        pthread_cond_destroy(&c->read_done);
        pthread_mutex_destroy(&c->lock);
    }
    waste_mem_free(c->memory);
    waste_mem_free(c->where);
    waste_mem_free(c->slots);
    waste_mem_free(c);
}

/* ---- choosing a slot -------------------------------------------------- */

/* NULL when there is no such record. */
static int32_t *place_of(const waste_cache *c, int layer, int expert)
{
    if (layer < c->first_layer || layer >= c->layers || expert < 0 || expert >= c->experts)
        return NULL;
    return &c->where[(size_t)(layer - c->first_layer) * (size_t)c->experts + (size_t)expert];
}

static uint32_t worth(const waste_cache *c, const slot *s)
{
    uint64_t halvings = (c->clock - s->last) / (HALF_LIFE * c->n_slots);

    return halvings < 32 ? s->freq >> halvings : 0;
}

/* Whether `a` should go before `b`. */
static int less_wanted(const waste_cache *c, const slot *a, const slot *b)
{
    int hinted_a = c->wants && a->wanted == c->wants, hinted_b = c->wants && b->wanted == c->wants;
    uint32_t wa = worth(c, a), wb = worth(c, b);

    if (hinted_a != hinted_b) return hinted_b;
    return wa != wb ? wa < wb : a->last < b->last;
}

/* Whichever of `best` and slot i should go first; a slot that is held or being
 * read is no candidate. */
static int32_t first_to_go(const waste_cache *c, int32_t best, int32_t i)
{
    const slot *s = &c->slots[i];

    if (s->state != SLOT_READY || s->holds) return best;
    return best == NONE || less_wanted(c, s, &c->slots[best]) ? i : best;
}

/* The slot whose record goes, or NONE when none can. Drawing candidates also
 * keeps a cache below the working set from evicting each record right before its
 * next use, as a scan of all would. */
static int32_t victim(waste_cache *c)
{
    int32_t n = (int32_t)c->n_slots, best = NONE, i;

    for (i = 0; i < DRAWS && n > DRAWS; i++) {
        c->random = c->random * 1664525u + 1013904223u;
        best = first_to_go(c, best, (int32_t)((uint64_t)c->random * c->n_slots >> 32));
    }
    if (best == NONE)
        for (i = 0; i < n; i++) best = first_to_go(c, best, i);
    return best;
}

static void put_free(waste_cache *c, int32_t i)
{
    c->slots[i].state = SLOT_EMPTY;
    c->slots[i].holds = 0;
    c->slots[i].next_free = c->first_free;
    c->first_free = i;
    c->counts.used--;
}

/* An empty slot, made so if need be; NONE when there is none to be had. */
static int32_t take_slot(waste_cache *c)
{
    int32_t i = c->first_free;

    if (i == NONE) {
        i = victim(c);
        if (i == NONE) return NONE;
        *place_of(c, c->slots[i].layer, c->slots[i].expert) = NONE;
        put_free(c, i);
        c->counts.evictions++;
    }
    c->first_free = c->slots[i].next_free;
    c->counts.used++;
    return i;
}

static char *bytes_of(const waste_cache *c, int32_t i)
{
    return c->memory + (uint64_t)i * c->slot_bytes;
}

/* ---- hold, release ---------------------------------------------------- */

/* A record that is there or on its way: takes a hold, waits if need be. Zero
 * when the read failed and the hold is gone. Called and left with the lock. */
static int hold_known(waste_cache *c, slot *s)
{
    uint64_t turn = s->turn;

    s->holds++;
    while (s->state == SLOT_READING && s->turn == turn) pthread_cond_wait(&c->read_done, &c->lock);
    if (s->turn != turn) return 0;
    s->freq = worth(c, s);
    s->freq += s->freq < UINT32_MAX;
    s->last = ++c->clock;
    c->counts.hits++;
    return 1;
}

/* Reads a record into a slot of its own. Called and left with the lock, which is
 * free while the disk works. */
static waste_status hold_read(waste_cache *c, int layer, int expert, int32_t *where, int32_t *taken,
                              waste_error *err)
{
    int32_t i = take_slot(c);
    slot *s;
    uint64_t start;
    waste_status st;

    if (i == NONE)
        return waste_fail(err, WASTE_BUSY,
                          "layer %d, expert %d: all %llu slots of the expert cache are held", layer,
                          expert, (unsigned long long)c->n_slots);
    s = &c->slots[i];
    s->state = SLOT_READING;
    s->layer = layer;
    s->expert = expert;
    s->holds = 1;
    s->freq = 1;
    s->wanted = 0;
    s->last = ++c->clock;
    *where = *taken = i;
    c->counts.misses++;
    pthread_mutex_unlock(&c->lock);
    start = waste_clock_ns();
    st = waste_banks_read(c->banks, layer, expert, bytes_of(c, i), err);
    start = waste_clock_ns() - start;
    pthread_mutex_lock(&c->lock);
    c->counts.io_ns += start;
    if (st) {
        *where = NONE;
        s->turn++;
        put_free(c, i);
    } else {
        s->state = SLOT_READY;
        c->counts.bytes_read += waste_banks_record_bytes(c->banks, layer);
    }
    pthread_cond_broadcast(&c->read_done);
    return st;
}

waste_status waste_cache_hold(waste_cache *c, int layer, int expert, const void **record,
                              waste_error *err)
{
    int32_t *where = place_of(c, layer, expert), i = NONE;
    waste_status st = WASTE_OK;

    *record = NULL;
    if (!where)
        return waste_fail(err, WASTE_ARG, "the model has no expert %d in layer %d", expert, layer);
    pthread_mutex_lock(&c->lock);
    while (!st && i == NONE) {
        if (*where == NONE) {
            st = hold_read(c, layer, expert, where, &i, err);
        } else {
            int32_t known = *where;
            if (hold_known(c, &c->slots[known])) i = known;
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (!st) *record = bytes_of(c, i);
    return st;
}

void waste_cache_release(waste_cache *c, int layer, int expert)
{
    const int32_t *where = place_of(c, layer, expert);

    if (!where) return;
    pthread_mutex_lock(&c->lock);
    if (*where != NONE && c->slots[*where].holds > 0) c->slots[*where].holds--;
    pthread_mutex_unlock(&c->lock);
}

/* ---- hints, counts ---------------------------------------------------- */

void waste_cache_want(waste_cache *c, int layer, const int *experts, size_t n)
{
    size_t i;

    pthread_mutex_lock(&c->lock);
    c->wants++;
    for (i = 0; i < n; i++) {
        const int32_t *where = place_of(c, layer, experts[i]);
        if (where && *where != NONE) c->slots[*where].wanted = c->wants;
    }
    pthread_mutex_unlock(&c->lock);
}

void waste_cache_counts_get(waste_cache *c, waste_cache_counts *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->counts;
    pthread_mutex_unlock(&c->lock);
}
