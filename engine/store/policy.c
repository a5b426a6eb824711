/* Worth of records and the choice of the one to go: see policy.h. Used by the
 * cache under its lock.
 *
 * Within a layer all records share the distance, and their order changes only when
 * the layer is passed. So the offered ones of a layer are a heap, put in order
 * again at each pass, and the least of all is the least of the heaps' tops: exact,
 * without looking at any slot. */
#include "store/policy.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define COUNTS   3     /* decayed counts per record */
#define UNKNOWN  0.01f /* added to every worth: a record never wanted may be */
#define LEARNING 0.02f /* weight of one guess in its rank's precision */
#define NOTHING \
    1e-7f /* a count below is 0: no hit any more, and never a subnormal
                        * number, which some processors take a hundred times as long for */

/* Per pass of one row; and what each count adds to the worth. */
static const float decay[COUNTS] = {0.5f, 0.9f, 0.995f};
static const float weight[COUNTS] = {0.2f, 0.2f, 0.6f};

typedef struct record {
    float count[COUNTS]; /* 0..1 each; the last is what is saved */
    float worth;
    int32_t place; /* in the heap of its layer, or -1: not offered */
} record;

struct waste_policy {
    int layers, experts;
    int at;          /* the layer passed last */
    record *record;  /* [layers][experts] */
    int32_t *heap;   /* [layers][experts]: experts of the layer, least worth on top */
    int32_t *size;   /* [layers] */
    float *nearness; /* [layers]: 1 / sqrt(part of a cycle), by layers to go - 1 */
    float precision[WASTE_POLICY_RANKS];
};

/* ---- open, close ------------------------------------------------------------ */

uint64_t waste_policy_bytes(int layers, int experts)
{
    const uint64_t l = (uint64_t)layers, n = l * (uint64_t)experts;

    return sizeof(waste_policy) + n * (sizeof(record) + sizeof(int32_t)) +
           l * (sizeof(int32_t) + sizeof(float));
}

waste_status waste_policy_open(waste_policy **out, int layers, int experts, waste_error *err)
{
    const size_t l = layers > 0 ? (size_t)layers : 0, e = experts > 0 ? (size_t)experts : 0;
    waste_policy *p;
    size_t i;

    *out = NULL;
    if (!l || !e || e > (size_t)INT32_MAX / l)
        return waste_fail(err, WASTE_ARG, "a cache of %d layers of %d experts", layers, experts);
    p = waste_mem_zero(sizeof *p);
    if (p) {
        p->layers = layers;
        p->experts = experts;
        p->record = waste_mem_array(l * e, sizeof *p->record);
        p->heap = waste_mem_array(l * e, sizeof *p->heap);
        p->size = waste_mem_array(l, sizeof *p->size);
        p->nearness = waste_mem_array(l, sizeof *p->nearness);
    }
    if (!p || !p->record || !p->heap || !p->size || !p->nearness) {
        waste_policy_close(p);
        return waste_fail(err, WASTE_NOMEM, "out of memory for the tables of the expert cache");
    }
    for (i = 0; i < l * e; i++) {
        p->record[i].worth = UNKNOWN;
        p->record[i].place = -1;
    }
    for (i = 0; i < l; i++) p->nearness[i] = sqrtf((float)l / (float)(i + 1));
    for (i = 0; i < WASTE_POLICY_RANKS; i++) p->precision[i] = 0.9f / (1 + 0.08f * (float)i);
    *out = p;
    return WASTE_OK;
}

void waste_policy_close(waste_policy *p)
{
    if (!p) return;
    waste_mem_free(p->record);
    waste_mem_free(p->heap);
    waste_mem_free(p->size);
    waste_mem_free(p->nearness);
    waste_mem_free(p);
}

/* ---- the heap of a layer ---------------------------------------------------- */

typedef struct heap {
    record *record; /* of the layer */
    int32_t *expert;
    int32_t *size;
} heap;

static heap heap_of(const waste_policy *p, int layer)
{
    const size_t first = (size_t)layer * (size_t)p->experts;
    const heap h = {p->record + first, p->heap + first, p->size + layer};

    return h;
}

static void put(const heap *h, int32_t place, int32_t expert)
{
    h->expert[place] = expert;
    h->record[expert].place = place;
}

static void sift_down(const heap *h, int32_t place)
{
    const int32_t x = h->expert[place];
    int32_t child;

    while ((child = 2 * place + 1) < *h->size) {
        if (child + 1 < *h->size &&
            h->record[h->expert[child + 1]].worth < h->record[h->expert[child]].worth)
            child++;
        if (h->record[x].worth <= h->record[h->expert[child]].worth) break;
        put(h, place, h->expert[child]);
        place = child;
    }
    put(h, place, x);
}

static void sift_up(const heap *h, int32_t place)
{
    const int32_t x = h->expert[place];

    while (place > 0) {
        const int32_t parent = (place - 1) / 2;

        if (h->record[h->expert[parent]].worth <= h->record[x].worth) break;
        put(h, place, h->expert[parent]);
        place = parent;
    }
    put(h, place, x);
}

void waste_policy_offer(waste_policy *p, int32_t n)
{
    const heap h = heap_of(p, n / p->experts);

    if (p->record[n].place >= 0) return;
    put(&h, *h.size, n % p->experts);
    sift_up(&h, (*h.size)++);
}

void waste_policy_withhold(waste_policy *p, int32_t n)
{
    const heap h = heap_of(p, n / p->experts);
    const int32_t place = p->record[n].place;
    int32_t last;

    if (place < 0) return;
    p->record[n].place = -1;
    last = h.expert[--*h.size];
    if (place == *h.size) return;
    put(&h, place, last);
    sift_up(&h, place);
    sift_down(&h, h.record[last].place);
}

/* ---- worth ------------------------------------------------------------------ */

static void set_worth(record *r)
{
    int i;

    r->worth = UNKNOWN;
    for (i = 0; i < COUNTS; i++) r->worth += weight[i] * r->count[i];
}

void waste_policy_pass(waste_policy *p, int layer, const int *ids, const int *uses, size_t n,
                       size_t rows)
{
    const heap h = heap_of(p, layer);
    float keep[COUNTS], share;
    size_t i;
    int32_t k;
    int e, c;

    if (rows == 0) return;
    p->at = layer;
    for (c = 0; c < COUNTS; c++) keep[c] = powf(decay[c], (float)rows);
    for (e = 0; e < p->experts; e++)
        for (c = 0; c < COUNTS; c++) {
            const float left = h.record[e].count[c] * keep[c];

            h.record[e].count[c] = left < NOTHING ? 0 : left;
        }
    for (i = 0; i < n; i++) {
        share = (float)(uses ? uses[i] : 1) / (float)rows;
        for (c = 0; c < COUNTS; c++) h.record[ids[i]].count[c] += (1 - keep[c]) * share;
    }
    for (e = 0; e < p->experts; e++) set_worth(&h.record[e]);
    for (k = *h.size / 2; k-- > 0;) sift_down(&h, k);
}

void waste_policy_seed(waste_policy *p, int32_t n, uint32_t hits)
{
    const heap h = heap_of(p, n / p->experts);
    record *r = &p->record[n];
    const float known = fminf((float)hits / WASTE_POLICY_UNIT, 1);

    if (known <= r->count[COUNTS - 1]) return;
    r->count[COUNTS - 1] = known;
    set_worth(r);
    if (r->place >= 0) sift_down(&h, r->place); /* worth only grew */
}

uint32_t waste_policy_hits(const waste_policy *p, int32_t n)
{
    return (uint32_t)(p->record[n].count[COUNTS - 1] * WASTE_POLICY_UNIT + 0.5f);
}

/* ---- the choice --------------------------------------------------------------- */

/* Of a record of that worth in that layer. */
static float index_of(const waste_policy *p, int layer, float worth)
{
    const int to_go = layer > p->at ? layer - p->at : layer - p->at + p->layers;

    return worth * p->nearness[to_go - 1];
}

int32_t waste_policy_least(const waste_policy *p, float than)
{
    int32_t best = -1;
    int layer;

    for (layer = 0; layer < p->layers; layer++) {
        const heap h = heap_of(p, layer);
        float index;

        if (!*h.size) continue;
        index = index_of(p, layer, h.record[h.expert[0]].worth);
        if (!(index < than)) continue;
        than = index;
        best = layer * p->experts + h.expert[0];
    }
    return best;
}

float waste_policy_guess(const waste_policy *p, int layer, int rank)
{
    return index_of(p, layer, rank < WASTE_POLICY_RANKS ? p->precision[rank] : 0);
}

void waste_policy_guessed(waste_policy *p, int rank, int came_true)
{
    if (rank < WASTE_POLICY_RANKS)
        p->precision[rank] += LEARNING * ((float)(came_true != 0) - p->precision[rank]);
}
