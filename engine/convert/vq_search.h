/* The search of vq_core.h, written once: a core defines its vectors of 16-bit
 * integers and includes this file, so it is compiled for each instruction set.
 *
 *   TARGET                 attribute of every function; LANES of a vector, at most 64
 *   vec                    the type
 *   v_load, v_store        at 64-byte aligned addresses
 *   v_set(x)  v_adds(a, b) saturating  v_min(a, b)
 *   v_least(a)             lowest lane
 *   v_has(a, x)            nonzero when a lane equals x
 *   below(p, x)            bit l: p[l] <= x, for l < 64
 *   row                    the slot of the core
 *   cuts(w, beam)          sets w[u].cut from w[u].low, for u < TOGETHER
 *   collect(w)             sets hit, number and n from score, total and cut
 *
 * Where `lower` is a macro, cuts and collect come as cuts_by_count and
 * collect_by_bit: lower(p, x) is how many of p[0..64) are lower than x. */

#include <string.h>

#include "convert/vq_core.h"

/* Vectors are taken together, phase by phase: what one waits for hides behind the
 * others. */
#define TOGETHER 4
#define CLASSES  64
#define VECS     (CLASSES / LANES)

typedef struct path {
    int16_t score;
    uint8_t entry[WASTE_VQ_BEAM_STAGES];
} path;

typedef struct walk {
    int16_t score[WASTE_VQ_KEPT * WASTE_VQ_WIDEST]; /* of all extensions */
    int16_t q[WASTE_VQ_WIDEST];
    int16_t low[CLASSES];
    int16_t least[WASTE_VQ_KEPT * LANES];                        /* last stage: of each path */
    int16_t hit[WASTE_VQ_KEPT + 64], number[WASTE_VQ_KEPT + 64]; /* what is kept */
    path kept[WASTE_VQ_KEPT], next[WASTE_VQ_KEPT];
    const int16_t *x;
    int n;     /* paths in kept, or in hit */
    int total; /* extensions */
    int cut;
} __attribute__((aligned(64))) walk;

_Static_assert(sizeof(walk) * TOGETHER <= WASTE_VQ_SCRATCH, "scratch of the search");

#define ALWAYS static inline __attribute__((always_inline)) TARGET

static void TARGET cuts(walk *w, int beam);
static void TARGET collect(walk *w);

#ifdef lower
/* The beam-th lowest of the 64 is the highest number with fewer than `beam` of them
 * below it, which is found bit by bit. */
static void TARGET cuts_by_count(walk *w, int beam)
{
    int at[TOGETHER], u, bit;

    for (u = 0; u < TOGETHER; u++) at[u] = INT16_MIN;
    for (bit = 1 << 15; bit; bit >>= 1)
        for (u = 0; u < TOGETHER; u++) {
            int more = at[u] + bit;
            at[u] = lower(w[u].low, more) < beam ? more : at[u];
        }
    for (u = 0; u < TOGETHER; u++) w[u].cut = at[u];
}

/* Masks first, then bit by bit without asking whether a mask is used up: a branch
 * that depends on the data costs more than the work. */
static void TARGET collect_by_bit(walk *w)
{
    uint64_t mask[WASTE_VQ_KEPT * WASTE_VQ_WIDEST / CLASSES + 1], bits;
    uint16_t first[WASTE_VQ_KEPT * WASTE_VQ_WIDEST / CLASSES + 1];
    int i, n, hits = 0, m = 0;

    for (i = 0; i < w->total; i += CLASSES) {
        mask[m] = below(w->score + i, w->cut);
        first[m] = (uint16_t)i;
        hits += __builtin_popcountll(mask[m]);
        m += mask[m] != 0;
    }
    mask[m] = 0;
    w->n = hits < WASTE_VQ_KEPT ? hits : WASTE_VQ_KEPT;
    bits = mask[0];
    for (n = m = 0; n < w->n; n++) {
        int at = first[m] + __builtin_ctzll(bits);
        w->hit[n] = w->score[at];
        w->number[n] = (int16_t)at;
        bits &= bits - 1;
        m += bits == 0;
        bits = bits ? bits : mask[m];
    }
}
#endif

/* The first stage: the one empty path, whose score is |x|^2. */
ALWAYS void begin(const waste_vq_tables *t, walk *w, const int16_t *x, const int K)
{
    vec m[VECS], base;
    int32_t square = 0;
    int d, z, j;

    for (d = 0; d < 8; d++) square += (int32_t)x[d] * x[d];
    square >>= WASTE_VQ_SHIFT;
    w->x = x;
    memset(w->kept, 0, sizeof *w->kept);
    row(t->part, t->norm, K, x, w->q);
    base = v_set((int16_t)(square > INT16_MAX ? INT16_MAX : square));
    for (j = 0; j < VECS; j++) m[j] = v_set(INT16_MAX);
    for (z = 0; z < K; z += CLASSES)
        for (j = 0; j < VECS; j++) {
            vec a = v_adds(v_load(w->q + z + j * LANES), base);
            v_store(w->score + z + j * LANES, a);
            m[j] = v_min(m[j], a);
        }
    for (j = 0; j < VECS; j++) v_store(w->low + j * LANES, m[j]);
    w->total = K;
}

/* The brackets of stage s, in registers where these suffice. */
ALWAYS void brackets(const waste_vq_tables *t, walk *w, vec *q, const int s, const int K)
{
    int z;

    row(t->part + (size_t)s * 8 * K, t->norm + (size_t)s * K, K, w->x, w->q);
    for (z = 0; z < K; z += LANES) q[z / LANES] = v_load(w->q + z);
}

/* Bracket and cross terms of entries z.. of stage s after this path. */
ALWAYS vec terms(const waste_vq_tables *t, const vec *q, const path *p, int z, const int s,
                 const int K)
{
    vec a = v_adds(q[z / LANES], v_load(t->cross[0][s] + p->entry[0] * K + z));

    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; s is at most 3 */
    if (s > 1) a = v_adds(a, v_load(t->cross[1][s] + p->entry[1] * K + z));
    /* cppcheck-suppress arrayIndexOutOfBoundsCond */
    if (s > 2) a = v_adds(a, v_load(t->cross[2][s] + p->entry[2] * K + z));
    return a;
}

/* Every path by every entry of stage s. */
ALWAYS void extend(const waste_vq_tables *t, walk *w, const int s, const int K)
{
    vec m[VECS], q[WASTE_VQ_WIDEST / LANES];
    int b, z, j;

    brackets(t, w, q, s, K);
    for (j = 0; j < VECS; j++) m[j] = v_set(INT16_MAX);
    for (b = 0; b < w->n; b++) {
        const path *p = w->kept + b;
        const vec base = v_set(p->score);
        for (z = 0; z < K; z += CLASSES)
            for (j = 0; j < VECS; j++) {
                vec a = v_adds(terms(t, q, p, z + j * LANES, s, K), base);
                v_store(w->score + b * K + z + j * LANES, a);
                m[j] = v_min(m[j], a);
            }
    }
    for (j = 0; j < VECS; j++) v_store(w->low + j * LANES, m[j]);
    w->total = w->n * K;
}

/* What was collected becomes the paths. */
ALWAYS void adopt(walk *w, const int s, const int K)
{
    int a;

    for (a = 0; a < w->n; a++) {
        unsigned number = (uint16_t)w->number[a];
        w->next[a] = w->kept[number / (unsigned)K];
        w->next[a].entry[s] = (uint8_t)(number % (unsigned)K);
        w->next[a].score = w->hit[a];
    }
    memcpy(w->kept, w->next, (size_t)w->n * sizeof *w->kept);
}

/* The best extension by the last stage. The score of the path is added to the
 * lowest of its extensions: that is the lowest of the sums. */
ALWAYS void finish(const waste_vq_tables *t, walk *w, const int s, const int K, uint8_t *index)
{
    vec best = v_set(INT16_MAX), q[WASTE_VQ_WIDEST / LANES];
    const path *p = w->kept;
    uint64_t bits = 0;
    int b, z, j, lowest;

    brackets(t, w, q, s, K);
    for (b = 0; b < w->n; b++, p++) {
        vec m = v_set(INT16_MAX);
        for (z = 0; z < K; z += LANES) m = v_min(m, terms(t, q, p, z, s, K));
        m = v_adds(m, v_set(p->score));
        v_store(w->least + b * LANES, m);
        best = v_min(best, m);
    }
    lowest = v_least(best);
    for (b = 0; !v_has(v_load(w->least + b * LANES), lowest);) b++;
    p = w->kept + b;
    for (z = 0; z < K && !bits; z += CLASSES) {
        for (j = 0; j < CLASSES; j += LANES)
            v_store(w->score + j, v_adds(terms(t, q, p, z + j, s, K), v_set(p->score)));
        bits = below(w->score, lowest);
    }
    for (j = 0; j < s; j++) index[j] = p->entry[j];
    index[s] = (uint8_t)(z - CLASSES + __builtin_ctzll(bits));
}

ALWAYS void select_paths(walk *w, int beam, const int s, const int K)
{
    int u;

    cuts(w, beam);
    for (u = 0; u < TOGETHER; u++) {
        collect(w + u);
        adopt(w + u, s, K);
    }
}

ALWAYS void search_all(const waste_vq_tables *t, const int16_t *x, size_t n, int beam, walk *w,
                       uint8_t *index, const int S, const int K)
{
    size_t r;
    int u, m;

    for (r = 0; r < n; r += TOGETHER) {
        m = n - r < TOGETHER ? (int)(n - r) : TOGETHER;
        /* those too many repeat the first */
        for (u = 0; u < TOGETHER; u++) begin(t, w + u, x + 8 * (r + (size_t)(u < m ? u : 0)), K);
        select_paths(w, beam, 0, K);
        if (S > 2) {
            for (u = 0; u < TOGETHER; u++) extend(t, w + u, 1, K);
            select_paths(w, beam, 1, K);
        }
        if (S > 3) {
            for (u = 0; u < TOGETHER; u++) extend(t, w + u, 2, K);
            select_paths(w, beam, 2, K);
        }
        for (u = 0; u < m; u++) finish(t, w + u, S - 1, K, index + (r + (size_t)u) * (size_t)S);
    }
}

/* The geometries that converters write get loops of constant length. */
static void TARGET search(const waste_vq_tables *t, const int16_t *x, size_t n, int beam,
                          void *scratch, uint8_t *index)
{
    const int S = t->stages, K = t->entries;

    if (S == 3 && K == 256)
        search_all(t, x, n, beam, scratch, index, 3, 256);
    else if (S == 4 && K == 64)
        search_all(t, x, n, beam, scratch, index, 4, 64);
    else
        search_all(t, x, n, beam, scratch, index, S, K);
}
