/* Experts on AVX-512, tables of many inputs: see kernels_avx512_vq.h.
 *
 * Entry e of a stage is a vector over the inputs, so a row's lookup is one load for all
 * of them, where byte shuffles do an input at a time; and tables are made without a
 * shuffle, from products of broadcast entries. The tables of a block (384 KB for three
 * stages and 32 inputs) stay in L2. What an input gets is computed in its own lane by
 * the same operations as in _vq_one.c, which is what makes the bits equal. */
#include "kernels/kernels_avx512_vq.h"

#if WASTE_HAVE_AVX512BW

#include <string.h>

#define BLOCK WASTE_VQ_BLOCK
#define ROWS  WASTE_VQ_INDEX_ROWS
#define LEAST 24 /* inputs from which on this is faster than one at a time (docs/measured.md) */
#define LINE  64 /* bytes of an entry: 32 inputs of 16 bits */

size_t waste_vq_many(size_t n)
{
    if (n < LEAST) return 0;
    return n < WASTE_VQ_MANY ? n : WASTE_VQ_MANY;
}

/* ---- inputs ------------------------------------------------------------------------ */

/* Inputs of a block in 16 bits: [pair of columns 4 BLOCK][half 2][lane], and what a unit
 * is worth for each. */
typedef struct inputs {
    __m512i *pair;
    __m512 unit[2];
} inputs;

/* n columns of one input as pairs, in the lanes of two vectors. */
static void pairs_of(__m512 *lo, __m512 *hi, const float *x, __m512 by, int64_t n)
{
    __m512i q[4];
    int64_t k;

    for (k = 0; k < 4; k++)
        q[k] = n > 16 * k ? _mm512_cvtps_epi32(_mm512_mul_ps(
                                _mm512_maskz_loadu_ps(waste_lanes16(n - 16 * k), x + 16 * k), by))
                          : _mm512_setzero_si512();
    *lo = _mm512_castsi512_ps(waste_vq_join16(q[0], q[1]));
    *hi = _mm512_castsi512_ps(waste_vq_join16(q[2], q[3]));
}

/* n positions of block `block`. Lanes without an input are zero. */
static void quantise(inputs *to, const float *const *x, const waste_vq_scale *s, size_t n_inputs,
                     int64_t block, int64_t n)
{
    size_t i;
    int h, k;

    for (h = 0; h < 2; h++) {
        __m512 lo[16], hi[16];
        float unit[16] = {0};

        for (i = 0; i < 16; i++) {
            const size_t at = 16 * (size_t)h + i;

            lo[i] = hi[i] = _mm512_setzero_ps();
            if (at >= n_inputs) continue;
            pairs_of(&lo[i], &hi[i], x[at] + 8 * BLOCK * block, _mm512_set1_ps(s[at].x[block]),
                     8 * n);
            unit[i] = s[at].unit[block];
        }
        waste_transpose16(lo);
        waste_transpose16(hi);
        for (k = 0; k < 16; k++) {
            to->pair[2 * k + h] = _mm512_castps_si512(lo[k]);
            to->pair[2 * (16 + k) + h] = _mm512_castps_si512(hi[k]);
        }
        to->unit[h] = _mm512_loadu_ps(unit);
    }
}

/* ---- tables -------------------------------------------------------------------------- */

/* Products of one entry, with its pairs at q, q + 64, .., before the lower 15 bits go. */
INLINE __m512i product(const int32_t *q, const __m512i *x)
{
    __m512i a = _mm512_set1_epi32(1 << 14);
    int p;

#pragma GCC unroll 4
    for (p = 0; p < 4; p++) a = waste_vq_add_pairs(a, x[2 * p], _mm512_set1_epi32(q[64 * p]));
    return a;
}

/* [position][stage][entry][lane 32] of 16 bits; the first 16 inputs have the even lanes. */
static void build(char *to, const waste_vq_books *b, const inputs *in, int64_t positions,
                  int groups)
{
    const __mmask32 odd = 0xAAAAAAAA;
    int64_t v;
    int g, e, i;

    for (v = 0; v < positions; v++) {
        const int32_t *q = (const int32_t *)(const void *)b->q;
        __m512i x[8];

        for (i = 0; i < 8; i++) x[i] = in->pair[8 * v + i];
        for (g = 0; g < groups; g++, q += 256)
            for (e = 0; e < 64; e++, to += LINE)
                _mm512_storeu_si512(
                    to, _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(product(q + e, x), 15),
                                                _mm512_slli_epi32(product(q + e, x + 1), 1)));
    }
}

/* ---- lookups --------------------------------------------------------------------------- */

/* 64 indices as distances from a table's beginning. */
INLINE void put_places(uint16_t *to, __m512i index)
{
    const __m512i lo = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(index));
    const __m512i hi = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(index, 1));

    _mm512_storeu_si512(to, _mm512_slli_epi16(lo, 6));
    _mm512_storeu_si512(to + 32, _mm512_slli_epi16(hi, 6));
}

/* [position][stage][row], from the planes of a row block. */
INLINE void places(uint16_t *to, const unsigned char *p, int64_t n, const int kind)
{
    const __m512i low6 = _mm512_set1_epi8(63);
    __m512i i[4];
    int64_t v;
    int s;

    for (v = 0; v < n; v++) {
        if (kind == 6) {
            waste_vq_unpack6(p, i);
            for (s = 0; s < 4; s++, to += ROWS) put_places(to, _mm512_and_si512(i[s], low6));
            p += 3 * ROWS;
        } else {
            for (s = 0; s < kind; s++, to += ROWS, p += ROWS) put_places(to, waste_vq_load(p));
        }
    }
}

/* The rows of a row block over n positions. */
INLINE void rows64(float *acc, const char *table, const uint16_t *places, const __m512 *unit,
                   const int64_t n, const int stages, const int entries)
{
    const __m512i even = _mm512_set1_epi32(1), odd = _mm512_set1_epi32(1 << 16);
    int64_t v;
    int r, s;

    for (r = 0; r < ROWS; r++, places++, acc += 32) {
        __m512i sum0 = _mm512_setzero_si512(), sum1 = sum0;
        const uint16_t *p = places;
        const char *t = table;

#pragma GCC unroll 8
        for (v = 0; v < n; v++) {
            __m512i a = waste_vq_load(t + *p);

#pragma GCC unroll 4
            for (s = 1; s < stages; s++)
                a = _mm512_add_epi16(a, waste_vq_load(t + LINE * s * entries + p[s * ROWS]));
            sum0 = waste_vq_add_pairs(sum0, a, even);
            sum1 = waste_vq_add_pairs(sum1, a, odd);
            p += stages * ROWS;
            t += LINE * stages * entries;
        }
        waste_vq_add(acc, sum0, unit[0]);
        waste_vq_add(acc + 16, sum1, unit[1]);
    }
}

/* kind: 3 or 2 stages of bytes, 6: four of 6 bits. */
INLINE void run(const waste_vq_span *r, const float *const *x, const waste_vq_scale *s,
                size_t inputs_n, float *acc, void *work, const int kind)
{
    const int stages = kind == 6 ? 4 : kind, entries = kind == 6 ? 64 : 256;
    const int vb = kind == 2 ? 2 : 3;
    const int64_t nv = r->m->cols / 8;
    const size_t row_bytes = (size_t)(nv * ROWS * vb);
    const waste_vq_books *b = r->m->packed;
    char *table = work;
    uint16_t *at = (uint16_t *)(void *)(table + WASTE_VQ_MANY_TABLE + WASTE_VQ_MANY_INPUTS);
    inputs in = {(__m512i *)(void *)(table + WASTE_VQ_MANY_TABLE), {{0}, {0}}};
    int64_t v, n, k;

    for (v = 0; v < nv; v += BLOCK) {
        n = nv - v < BLOCK ? nv - v : BLOCK;
        quantise(&in, x, s, inputs_n, v / BLOCK, n);
        build(table, b, &in, n, stages * entries / 64);
        for (k = r->first; k < r->last; k++) {
            const unsigned char *p = r->m->index + (size_t)k * row_bytes + (size_t)(v * ROWS * vb);
            const size_t chunk = (size_t)(n * ROWS * vb);
            float *to = acc + (size_t)((k - r->first) * ROWS * 32);
            size_t line;

            /* the same rows in the next table block, which is after all others in this */
            for (line = 0; v + BLOCK < nv && line < chunk; line += 64)
                _mm_prefetch((const char *)p + chunk + line, _MM_HINT_T1);
            for (line = 0; v == 0 && k + 1 < r->last && line < chunk; line += 64)
                _mm_prefetch((const char *)p + row_bytes + line, _MM_HINT_T1);
            if (!r->planar) {
                waste_vq_planes(r->planes, p, n, vb);
                p = r->planes;
            }
            places(at, p, n, kind);
            if (n == BLOCK)
                rows64(to, table, at, in.unit, BLOCK, stages, entries);
            else
                rows64(to, table, at, in.unit, n, stages, entries);
        }
    }
}

void waste_vq_run_many(const waste_vq_geometry *g, const waste_vq_span *r, const float *const *x,
                       const waste_vq_scale *s, size_t n, float *acc, void *work)
{
    memset(acc, 0, (size_t)(r->last - r->first) * ROWS * WASTE_VQ_MANY * sizeof *acc);
    if (waste_vq_packed(g))
        run(r, x, s, n, acc, work, 6);
    else if (g->stages == 3)
        run(r, x, s, n, acc, work, 3);
    else
        run(r, x, s, n, acc, work, 2);
}

#endif
