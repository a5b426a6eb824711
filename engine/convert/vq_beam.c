/* Beam search on floats: see vq_beam.h. Owns the tables of the books at hand.
 *
 * Integers of 16 bits hold distances up to 64, and a row of RMS 1 has vectors of
 * squared length 8, so nearly all fit. Longer ones are searched at level l: they and
 * the books divided by 4^l, with tables of their own, made when one turns up. */
#include "convert/vq_beam.h"

#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"

#define DIM    WASTE_VQ_DIM
#define BATCH  256 /* vectors converted at a time */
#define LEVELS 7   /* the last one reaches |x|^2 = 28 * 16^6 */

struct waste_vq_coder {
    const waste_vq_core *core;
    const waste_vq_books *books;
    float g[DIM];
    int weighted;
    waste_vq_tables near, far; /* of level 0, and of far_level */
    int far_level;             /* 0: none */
    int16_t *plain;            /* entries in integers, [stages][entries][8] */
    void *block, *scratch;
    int16_t x[BATCH * DIM], y[BATCH * DIM];
    uint8_t level[BATCH], index[BATCH * WASTE_VQ_BEAM_STAGES];
};

/* ---- cores ------------------------------------------------------------------ */

static const struct {
    unsigned needs; /* CPU bits */
    const waste_vq_core *(*core)(void);
} cores[] = {/* the fastest first */
             {WASTE_CPU_AVX512, waste_vq_avx512},
             {WASTE_CPU_AVX2, waste_vq_avx2},
             {0, waste_vq_plain}};

const waste_vq_core *waste_vq_core_named(const char *name, unsigned cpu)
{
    size_t i;

    for (i = 0; i < sizeof cores / sizeof *cores; i++) {
        const waste_vq_core *c = cores[i].core();
        if (!c || (cores[i].needs & ~cpu)) continue;
        if (!name || strcmp(c->name, name) == 0) return c;
    }
    return NULL;
}

const waste_vq_core *waste_vq_core_pick(unsigned cpu)
{
    return waste_vq_core_named(NULL, cpu);
}

/* ---- opening ---------------------------------------------------------------- */

int waste_vq_beam_fits(const waste_quant *q)
{
    return q->vec_dim == DIM && q->stages >= 2 && q->stages <= WASTE_VQ_BEAM_STAGES &&
           (q->entries == 64 || q->entries == 256);
}

static char *carve(char *at, size_t bytes, void *to)
{
    memcpy(to, &at, sizeof at);
    return at + (bytes + 63) / 64 * 64;
}

static char *carve_tables(char *at, waste_vq_tables *t, const waste_quant *q)
{
    const size_t n = (size_t)q->stages * (size_t)q->entries;
    const size_t cross = (size_t)q->entries * (size_t)q->entries * sizeof(int16_t);
    int s, k;

    t->stages = q->stages;
    t->entries = q->entries;
    at = carve(at, n * DIM * sizeof(int16_t), &t->part);
    at = carve(at, n * sizeof(int32_t), &t->norm);
    for (s = 0; s < q->stages; s++)
        for (k = s + 1; k < q->stages; k++) at = carve(at, cross, &t->cross[s][k]);
    return at;
}

static size_t tables_bytes(const waste_quant *q)
{
    const size_t e = (size_t)q->entries, s = (size_t)q->stages;

    return s * e * (DIM * 2 + 4) + s * (s - 1) / 2 * e * e * 2 + 64 * 8;
}

waste_status waste_vq_coder_new(waste_vq_coder **out, const waste_vq_core *core,
                                const waste_quant *q, waste_error *err)
{
    const size_t plain = (size_t)q->stages * (size_t)q->entries * DIM * sizeof(int16_t);
    waste_vq_coder *c = waste_mem_zero(sizeof *c);
    char *at;

    *out = NULL;
    if (c) c->block = waste_mem_aligned(64, WASTE_VQ_SCRATCH + plain + 2 * tables_bytes(q));
    if (!c || !c->block) {
        waste_vq_coder_free(c);
        return waste_fail(err, WASTE_NOMEM, "out of memory for codebook tables");
    }
    c->core = core ? core : waste_vq_core_pick(waste_cpu_features());
    at = carve(c->block, WASTE_VQ_SCRATCH, &c->scratch);
    at = carve(at, plain, &c->plain);
    at = carve_tables(at, &c->near, q);
    carve_tables(at, &c->far, q);
    *out = c;
    return WASTE_OK;
}

void waste_vq_coder_free(waste_vq_coder *c)
{
    if (!c) return;
    waste_mem_free(c->block);
    waste_mem_free(c);
}

/* ---- tables ------------------------------------------------------------------ */

/* Nearest, ties to even, for |v| < 2^22: where a float's last bit is worth 1. The
 * same as the instruction for it, and compilers make vectors of it. */
static inline int32_t round_int(float v)
{
    const float big = 12582912.0f; /* 1.5 * 2^23 */

    v += big;
    return (int32_t)(v - big);
}

/* 2^(FINE - 2 level) */
static float unit(int level)
{
    return (float)(1 << WASTE_VQ_FINE) / (float)(1 << 2 * level);
}

/* Entry k as integers; 0 when this level does not reach it. */
static int entry_in(const waste_vq_coder *c, int s, int k, int level, int16_t *to)
{
    const float u = unit(level), most = WASTE_VQ_ENTRY * (float)(1 << 4 * level);
    float v[DIM], square = 0;
    int d;

    for (d = 0; d < DIM; d++) {
        v[d] = c->books->book[s].part[d][k] * c->g[d];
        square += v[d] * v[d];
    }
    if (!(square < most)) return 0;
    for (d = 0; d < DIM; d++) to[d] = (int16_t)round_int(v[d] * u);
    return 1;
}

static void place(const waste_vq_coder *c, waste_vq_tables *t, int s, int k, const int16_t *e,
                  int reached)
{
    const int lanes = c->core->lanes, n = t->entries;
    int32_t norm = 1 << (WASTE_VQ_SHIFT - 1);
    int d;

    for (d = 0; d < DIM; d++) {
        t->part[(size_t)(s * DIM * n) + waste_vq_place_part(lanes, n, k, d)] = (int16_t)(-2 * e[d]);
        norm += (int32_t)e[d] * e[d];
    }
    /* too long an entry is farther than anything */
    t->norm[s * n + (int)waste_vq_place_norm(lanes, k)] =
        reached ? norm : INT16_MAX << WASTE_VQ_SHIFT;
}

/* 2 c_s.c_t is the bracket of c_t for the vector -c_s, its norm left out. */
static void cross(const waste_vq_coder *c, waste_vq_tables *t)
{
    int32_t half[WASTE_VQ_WIDEST] __attribute__((aligned(64)));
    int16_t minus[DIM];
    int s, k, i, d, n = t->entries;

    for (k = 0; k < n; k++) half[k] = 1 << (WASTE_VQ_SHIFT - 1);
    for (s = 0; s < t->stages; s++)
        for (i = 0; i < n; i++) {
            for (d = 0; d < DIM; d++)
                minus[d] =
                    (int16_t)-c->plain[((size_t)s * (size_t)n + (size_t)i) * DIM + (size_t)d];
            for (k = s + 1; k < t->stages; k++)
                c->core->row(t->part + (size_t)(k * DIM * n), half, n, minus,
                             t->cross[s][k] + (size_t)i * (size_t)n);
        }
}

static void prepare(waste_vq_coder *c, waste_vq_tables *t, int level)
{
    int s, k;

    memset(c->plain, 0, (size_t)(t->stages * t->entries * DIM) * sizeof *c->plain);
    for (s = 0; s < t->stages; s++)
        for (k = 0; k < t->entries; k++) {
            int16_t *e = c->plain + (size_t)((s * t->entries + k) * DIM);
            place(c, t, s, k, e, entry_in(c, s, k, level, e));
        }
    cross(c, t);
}

void waste_vq_coder_set(waste_vq_coder *c, const waste_vq_books *b, const float *g)
{
    int d;

    c->books = b;
    c->weighted = g != NULL;
    for (d = 0; d < DIM; d++) c->g[d] = g ? g[d] : 1;
    c->far_level = 0;
    prepare(c, &c->near, 0);
}

/* ---- searching ---------------------------------------------------------------- */

static int level_of(float square)
{
    float reach = WASTE_VQ_REACH;
    int level = 0;

    while (!(square <= reach) && level < LEVELS - 1) {
        reach *= 16;
        level++;
    }
    return level;
}

/* Beyond the last level a component is cut off: such a vector is a row's only one. */
static void to_integers(const float *v, int level, int16_t *to)
{
    const float u = unit(level), most = 2.6f * (float)(1 << WASTE_VQ_FINE);
    int d;

    for (d = 0; d < DIM; d++) {
        float f = v[d] * u;
        if (level == LEVELS - 1) f = f > most ? most : f < -most ? -most : f;
        to[d] = (int16_t)round_int(f);
    }
}

static void weigh(const waste_vq_coder *c, const float *x, float *v)
{
    int d;

    for (d = 0; d < DIM; d++) v[d] = x[d] * c->g[d];
}

/* Vectors of one level above 0, out of a batch. */
static void search_far(waste_vq_coder *c, const float *x, size_t stride, size_t n, int level,
                       int beam, uint8_t *index)
{
    const size_t stages = (size_t)c->near.stages;
    size_t v, k = 0;
    float w[DIM];

    if (c->far_level != level) prepare(c, &c->far, level);
    c->far_level = level;
    for (v = 0; v < n; v++) {
        if (c->level[v] != level) continue;
        weigh(c, x + v * stride, w);
        to_integers(w, level, c->y + k++ * DIM);
    }
    c->core->search(&c->far, c->y, k, beam, c->scratch, c->index);
    for (v = k = 0; v < n; v++) {
        if (c->level[v] != level) continue;
        memcpy(index + v * stages, c->index + k++ * stages, stages);
    }
}

static void search_batch(waste_vq_coder *c, const float *x, size_t stride, size_t n, int beam,
                         uint8_t *index)
{
    unsigned far = 0; /* bit: a level above 0 that occurs */
    size_t v;
    int d, level;

    for (v = 0; v < n; v++) {
        float w[DIM], square = 0;
        weigh(c, x + v * stride, w);
        for (d = 0; d < DIM; d++) square += w[d] * w[d];
        c->level[v] = 0;
        if (square <= WASTE_VQ_REACH) {
            to_integers(w, 0, c->x + v * DIM);
            continue;
        }
        memset(c->x + v * DIM, 0, DIM * sizeof *c->x);
        c->level[v] = (uint8_t)level_of(square);
        far |= 1u << c->level[v];
    }
    c->core->search(&c->near, c->x, n, beam, c->scratch, index);
    for (level = 1; level < LEVELS; level++)
        if (far >> level & 1) search_far(c, x, stride, n, level, beam, index);
}

void waste_vq_coder_search(waste_vq_coder *c, const float *x, size_t stride, size_t n, int beam,
                           uint8_t *index)
{
    size_t v, k;

    for (v = 0; v < n; v += k) {
        k = n - v < BATCH ? n - v : BATCH;
        search_batch(c, x + v * stride, stride, k, beam, index + v * (size_t)c->near.stages);
    }
}

void waste_vq_decode(const waste_vq_books *b, const uint8_t *index, float *y)
{
    int d, s;

    for (d = 0; d < DIM; d++) y[d] = b->book[0].part[d][index[0]];
    for (s = 1; s < b->stages; s++)
        for (d = 0; d < DIM; d++) y[d] += b->book[s].part[d][index[s]];
}
