/* Codebook training and encoding: see vq.h. Pure functions; the caller's thread.
 *
 * Nearest entry: argmin |x - c|^2 = argmin |c|^2/2 - x.c, for LANES entries side
 * by side in the compiler's portable vectors (no instruction set is named: left
 * to itself gcc does not vectorise the argmin). The sum over the components
 * always runs 0..7, hence the same bits on every machine. */
#include "convert/vq.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "convert/convert.h"
#include "kernels/quant.h"

#define ROUNDS 10 /* of k-means per stage */
#define LANES  8  /* two vectors of four, so that two chains of sums overlap */

typedef float vec_f __attribute__((vector_size(16)));
typedef int32_t vec_i __attribute__((vector_size(16)));

/* ---- random numbers -------------------------------------------------------- */

uint64_t waste_vq_next(waste_vq_random *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t waste_vq_below(waste_vq_random *r, uint64_t n)
{
    return waste_vq_next(r) % n; /* the bias is n / 2^64 */
}

/* ---- nearest entry ---------------------------------------------------------- */

static inline vec_f load(const float *p)
{
    vec_f v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* A lane sees its entries in ascending order and keeps the first of equals; the
 * lanes then settle on the lowest entry of the best score. */
static int nearest(const waste_vq_book *b, int entries, const float *x)
{
    const vec_f worst = {FLT_MAX, FLT_MAX, FLT_MAX, FLT_MAX};
    vec_f low[2] = {worst, worst}, xs[WASTE_VQ_DIM];
    vec_i at[2] = {{0, 1, 2, 3}, {4, 5, 6, 7}}, id[2] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    float score[LANES];
    int32_t entry[LANES];
    int c, d, h, l, best = 0;

    for (d = 0; d < WASTE_VQ_DIM; d++) xs[d] = (vec_f){x[d], x[d], x[d], x[d]};
    for (c = 0; c < entries; c += LANES)
        for (h = 0; h < 2; h++) {
            vec_f s = load(b->half + c + 4 * h);
            vec_i less;
            for (d = 0; d < WASTE_VQ_DIM; d++) s -= xs[d] * load(b->part[d] + c + 4 * h);
            less = s < low[h];
            low[h] = (vec_f)(((vec_i)s & less) | ((vec_i)low[h] & ~less));
            at[h] = (id[h] & less) | (at[h] & ~less);
            id[h] += LANES;
        }
    for (l = 0; l < LANES; l++) {
        score[l] = low[l / 4][l % 4];
        entry[l] = at[l / 4][l % 4];
    }
    for (l = 1; l < LANES; l++)
        if (score[l] < score[best] || (score[l] == score[best] && entry[l] < entry[best])) best = l;
    return entry[best];
}

static void subtract(const waste_vq_book *b, int entry, float *x)
{
    int d;

    for (d = 0; d < WASTE_VQ_DIM; d++) x[d] -= b->part[d][entry];
}

/* ---- training --------------------------------------------------------------- */

typedef struct clusters {
    double sum[WASTE_VQ_ENTRIES][WASTE_VQ_DIM];
    uint32_t count[WASTE_VQ_ENTRIES];
} clusters;

static void measure(waste_vq_book *b, int entries)
{
    int c, d;

    for (c = 0; c < WASTE_VQ_ENTRIES; c++) {
        float sum = 0;
        for (d = 0; d < WASTE_VQ_DIM; d++) sum += b->part[d][c] * b->part[d][c];
        b->half[c] = c < entries ? 0.5f * sum : FLT_MAX;
    }
}

/* Distinct samples, drawn by the first steps of a Fisher-Yates shuffle. */
static void start(waste_vq_book *b, int entries, const float *sample, uint32_t *order, size_t n,
                  waste_vq_random *r)
{
    size_t i, j;
    int c, d;

    memset(b, 0, sizeof *b);
    for (i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (i = 0; i < n && i < (size_t)entries; i++) {
        uint32_t t = order[i];
        j = i + (size_t)waste_vq_below(r, n - i);
        order[i] = order[j];
        order[j] = t;
    }
    for (c = 0; c < entries; c++)
        for (d = 0; d < WASTE_VQ_DIM; d++)
            b->part[d][c] = sample[order[(size_t)c % n] * WASTE_VQ_DIM + (size_t)d];
    measure(b, entries);
}

static void improve(waste_vq_book *b, int entries, const float *sample, size_t n, clusters *k)
{
    size_t i;
    int c, d;

    memset(k, 0, sizeof *k);
    for (i = 0; i < n; i++) {
        const float *x = sample + i * WASTE_VQ_DIM;
        c = nearest(b, entries, x);
        k->count[c]++;
        for (d = 0; d < WASTE_VQ_DIM; d++) k->sum[c][d] += (double)x[d];
    }
    for (c = 0; c < entries; c++)
        for (d = 0; d < WASTE_VQ_DIM && k->count[c]; d++) /* an empty cluster stays */
            b->part[d][c] = (float)(k->sum[c][d] / k->count[c]);
    measure(b, entries);
}

void waste_vq_book_round(waste_vq_book *b, int entries)
{
    int c, d;

    for (c = 0; c < entries; c++)
        for (d = 0; d < WASTE_VQ_DIM; d++)
            b->part[d][c] = waste_f16_to_f32(waste_f32_to_f16(b->part[d][c]));
    measure(b, entries);
}

waste_status waste_vq_train(waste_vq_books *b, const waste_quant *q, float *sample, size_t n,
                            waste_vq_random *r, const waste_cancel *cancel, waste_error *err)
{
    clusters *k = waste_mem_alloc(sizeof *k);
    uint32_t *order = waste_mem_array(n, sizeof *order);
    waste_status st = WASTE_OK;
    size_t i;
    int s, round;

    if (!k || !order) st = waste_fail(err, WASTE_NOMEM, "out of memory training codebooks");
    b->stages = q->stages;
    b->entries = q->entries;
    for (s = 0; !st && s < q->stages; s++) {
        waste_vq_book *book = b->book + s;
        start(book, q->entries, sample, order, n, r);
        for (round = 0; !st && round < ROUNDS; round++) {
            improve(book, q->entries, sample, n, k);
            st = waste_convert_asked(cancel, err);
        }
        waste_vq_book_round(book, q->entries);
        for (i = 0; !st && i < n; i++) {
            float *x = sample + i * WASTE_VQ_DIM;
            subtract(book, nearest(book, q->entries, x), x);
        }
    }
    waste_mem_free(order);
    waste_mem_free(k);
    return st;
}

size_t waste_vq_book_bytes(const waste_quant *q)
{
    return WASTE_CODEBOOK_HEADER + (size_t)q->entries * WASTE_VQ_DIM * 2;
}

void waste_vq_book_write(const waste_vq_book *b, const waste_quant *q, unsigned id,
                         unsigned char *to)
{
    waste_codebook_header h;
    int c, d;

    memset(&h, 0, sizeof h);
    h.magic = WASTE_CODEBOOK_MAGIC;
    h.id = (uint16_t)id;
    h.fmt = WASTE_FMT_VQ3R; /* whatever the geometry */
    h.vec_dim = WASTE_VQ_DIM;
    h.entries = (uint32_t)q->entries;
    memcpy(to, &h, sizeof h);
    to += sizeof h;
    for (c = 0; c < q->entries; c++)
        for (d = 0; d < WASTE_VQ_DIM; d++, to += 2) {
            uint16_t v = waste_f32_to_f16(b->part[d][c]);
            memcpy(to, &v, sizeof v);
        }
}

/* ---- encoding ---------------------------------------------------------------- */

uint16_t waste_vq_row_scale(const float *row, int64_t cols)
{
    float a = 1e-8f;
    int64_t i;

    for (i = 0; i < cols; i++) {
        float m = row[i] < 0 ? -row[i] : row[i];
        a = m > a ? m : a;
    }
    return waste_f32_to_f16(a);
}

/* cols is a multiple of 8: one sum per place in a vector, in this order. */
uint16_t waste_vq_row_rms(const float *row, int64_t cols)
{
    double sum[WASTE_VQ_DIM] = {0}, all = 0, rms;
    int64_t i;
    int d;

    for (i = 0; i < cols; i += WASTE_VQ_DIM)
        for (d = 0; d < WASTE_VQ_DIM; d++) sum[d] += (double)row[i + d] * (double)row[i + d];
    for (d = 0; d < WASTE_VQ_DIM; d++) all += sum[d];
    rms = sqrt(all / (double)cols);
    return waste_f32_to_f16((float)(rms > 1e-8 ? rms : 1e-8));
}

void waste_vq_normalise(const float *row, int64_t cols, uint16_t scale, float *to)
{
    float s = waste_f16_to_f32(scale);
    int64_t i;

    if (s == 0) {
        memset(to, 0, (size_t)cols * sizeof *to);
        return;
    }
    for (i = 0; i < cols; i++) to[i] = row[i] / s;
}

void waste_vq_encode(const waste_vq_books *b, float *vector, size_t n, uint8_t *index)
{
    size_t v;
    int s;

    for (v = 0; v < n; v++, vector += WASTE_VQ_DIM)
        for (s = 0; s < b->stages; s++) {
            int c = nearest(b->book + s, b->entries, vector);
            *index++ = (uint8_t)c;
            subtract(b->book + s, c, vector);
        }
}

void waste_vq_pack(const waste_quant *q, const uint8_t *index, uint8_t *to)
{
    uint32_t u;

    if (q->index_bits == 8) {
        memcpy(to, index, (size_t)q->stages);
        return;
    }
    u = (uint32_t)index[0] | (uint32_t)index[1] << 6 | (uint32_t)index[2] << 12 |
        (uint32_t)index[3] << 18;
    to[0] = (uint8_t)u;
    to[1] = (uint8_t)(u >> 8);
    to[2] = (uint8_t)(u >> 16);
}
