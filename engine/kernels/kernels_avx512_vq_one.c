/* Experts on AVX-512, tables of one input: see kernels_avx512_vq.h.
 *
 * Entries in two byte planes, which stay in L1 while all rows pass over them; a lookup
 * of 64 rows is two vpermi2b per plane. */
#include "kernels/kernels_avx512_vq.h"

#if WASTE_HAVE_AVX512

#include <math.h>
#include <string.h>

#define AHEAD    8            /* row blocks that prefetching runs ahead */
#define TABLE    512          /* bytes of one position and stage: 256 high, 256 low */
#define POSITION (4 * 2 * 64) /* of a packed position: 4 stages, 64 high, 64 low */

size_t waste_vq_position_bytes(const waste_vq_geometry *g)
{
    return waste_vq_packed(g) ? POSITION : (size_t)g->stages * TABLE;
}

/* ---- tables ----------------------------------------------------------------------- */

/* 8 values of x in 16 bits, as four pairs in all lanes. */
typedef struct pairs {
    __m512i p[4];
} pairs;

static inline pairs quantise(const float *x, __m256 by)
{
    const __m128i q =
        _mm256_cvtepi32_epi16(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), by)));
    pairs r;

    r.p[0] = _mm512_broadcastd_epi32(q);
    r.p[1] = _mm512_broadcastd_epi32(_mm_srli_si128(q, 4));
    r.p[2] = _mm512_broadcastd_epi32(_mm_srli_si128(q, 8));
    r.p[3] = _mm512_broadcastd_epi32(_mm_srli_si128(q, 12));
    return r;
}

/* 16 entries, rounded, in the upper half of each lane. */
static inline __m512i dots(const pairs *x, __m512i w0, __m512i w1, __m512i w2, __m512i w3)
{
    __m512i a = _mm512_set1_epi32(1 << 14);

    a = _mm512_dpwssd_epi32(a, w0, x->p[0]);
    a = _mm512_dpwssd_epi32(a, w1, x->p[1]);
    a = _mm512_dpwssd_epi32(a, w2, x->p[2]);
    a = _mm512_dpwssd_epi32(a, w3, x->p[3]);
    return _mm512_add_epi32(a, a);
}

/* Byte 3 of each lane of two vectors, then byte 2. */
static const uint8_t HIGH_THEN_LOW[64] = {
    3,  7,  11, 15, 19, 23, 27, 31, 35, 39,  43,  47,  51,  55,  59,  63,
    67, 71, 75, 79, 83, 87, 91, 95, 99, 103, 107, 111, 115, 119, 123, 127,
    2,  6,  10, 14, 18, 22, 26, 30, 34, 38,  42,  46,  50,  54,  58,  62,
    66, 70, 74, 78, 82, 86, 90, 94, 98, 102, 106, 110, 114, 118, 122, 126};

/* The byte planes of 64 entries. */
static inline void put_planes(unsigned char *high, unsigned char *low, const __m512i *a,
                              __m512i pick)
{
    const __m512i p = _mm512_permutex2var_epi8(a[0], pick, a[1]);
    const __m512i q = _mm512_permutex2var_epi8(a[2], pick, a[3]);

    _mm512_storeu_si512(high, _mm512_shuffle_i64x2(p, q, 0x44));
    _mm512_storeu_si512(low, _mm512_shuffle_i64x2(p, q, 0xEE));
}

/* Tables of n positions; two at a time share the loads of the books. */
static inline __attribute__((always_inline)) void build(unsigned char *to, const waste_vq_books *b,
                                                        const float *x, float scale, int64_t n,
                                                        int stages, int groups)
{
    const __m256 by = _mm256_set1_ps(scale);
    const size_t plane = 64 * (size_t)groups, position = 2 * plane * (size_t)stages;
    const __m512i pick = waste_vq_load(HIGH_THEN_LOW);
    int64_t v;
    int s, g, k;

    for (v = 0; v < n; v += 2) {
        const int two = v + 1 < n;
        const pairs x0 = quantise(x + 8 * v, by), x1 = two ? quantise(x + 8 * v + 8, by) : x0;
        unsigned char *t0 = to + (size_t)v * position, *t1 = two ? t0 + position : t0;
        const int16_t *q = b->q;

        for (s = 0; s < stages; s++)
            for (g = 0; g < groups; g++, q += 512) {
                const size_t at = (size_t)s * 2 * plane + 64 * (size_t)g;
                __m512i a0[4], a1[4];

                for (k = 0; k < 4; k++) {
                    const __m512i w0 = waste_vq_load(q + 32 * k),
                                  w1 = waste_vq_load(q + 128 + 32 * k);
                    const __m512i w2 = waste_vq_load(q + 256 + 32 * k),
                                  w3 = waste_vq_load(q + 384 + 32 * k);

                    a0[k] = dots(&x0, w0, w1, w2, w3);
                    a1[k] = dots(&x1, w0, w1, w2, w3);
                }
                put_planes(t0 + at, t0 + at + plane, a0, pick);
                put_planes(t1 + at, t1 + at + plane, a1, pick);
            }
    }
}

void waste_vq_build(unsigned char *to, const waste_vq_geometry *g, const waste_vq_books *b,
                    const float *x, float by, int64_t n)
{
    if (waste_vq_packed(g))
        build(to, b, x, by, n, 4, 1);
    else if (g->stages == 3)
        build(to, b, x, by, n, 3, 4);
    else
        build(to, b, x, by, n, 2, 4);
}

/* ---- lookups ------------------------------------------------------------------------ */

/* gcc 12 loads a table again for each vpermt2b unless it believes that the registers
 * were just written. */
#if defined(__GNUC__) && !defined(__clang__)
#define KEEP(a, b, c, d) __asm__("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d))
#else
#define KEEP(a, b, c, d) (void)0
#endif

/* Sums of one row block over the positions of a table block: 32 bits each, rows in
 * the order that `rows_in_order` undoes. */
typedef struct sums {
    __m512i d[4];
} sums;

/* One stage of one row block: 64 lookups in both planes, joined to 16 bits. */
static inline __attribute__((always_inline)) void look(__m512i i, __m512i h0, __m512i h1,
                                                       __m512i h2, __m512i h3, __m512i l0,
                                                       __m512i l1, __m512i l2, __m512i l3,
                                                       int first, __m512i *lo, __m512i *hi)
{
    const __mmask64 upper = _mm512_movepi8_mask(i);
    const __m512i h = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(h0, i, h1),
                                             _mm512_permutex2var_epi8(h2, i, h3));
    const __m512i l = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(l0, i, l1),
                                             _mm512_permutex2var_epi8(l2, i, l3));
    const __m512i a = _mm512_unpacklo_epi8(l, h), b = _mm512_unpackhi_epi8(l, h);

    *lo = first ? a : _mm512_add_epi16(*lo, a);
    *hi = first ? b : _mm512_add_epi16(*hi, b);
}

static inline __attribute__((always_inline)) void widen(sums *s, __m512i lo, __m512i hi)
{
    const __m512i even = _mm512_set1_epi32(1), odd = _mm512_set1_epi32(1 << 16);

    s->d[0] = _mm512_dpwssd_epi32(s->d[0], lo, even);
    s->d[1] = _mm512_dpwssd_epi32(s->d[1], lo, odd);
    s->d[2] = _mm512_dpwssd_epi32(s->d[2], hi, even);
    s->d[3] = _mm512_dpwssd_epi32(s->d[3], hi, odd);
}

/* The lines of one position in two row blocks. A macro: gcc takes a function that does
 * nothing but prefetch for one without effect, and drops its calls. */
#define PREFETCH(p, row_bytes, lines)                                                \
    do {                                                                             \
        int line_;                                                                   \
        for (line_ = 0; line_ < (lines); line_++) {                                  \
            _mm_prefetch((const char *)(p) + 64 * line_, _MM_HINT_T0);               \
            _mm_prefetch((const char *)(p) + (row_bytes) + 64 * line_, _MM_HINT_T0); \
        }                                                                            \
    } while (0)

/* Two row blocks over n positions, byte indices. far: where to prefetch, or NULL. */
static inline __attribute__((always_inline)) void pass_bytes(
    sums *a, sums *b, const unsigned char *p0, const unsigned char *p1, const unsigned char *t,
    int64_t n, const unsigned char *far, size_t row_bytes, int stages)
{
    int64_t v;
    int s;

    for (v = 0; v < n;
         v++, p0 += WASTE_VQ_INDEX_ROWS * stages, p1 += WASTE_VQ_INDEX_ROWS * stages) {
        __m512i a_lo = _mm512_setzero_si512(), a_hi = a_lo, b_lo = a_lo, b_hi = a_lo;

        if (far) PREFETCH(far + v * WASTE_VQ_INDEX_ROWS * stages, row_bytes, stages);
#pragma GCC unroll 3
        for (s = 0; s < stages; s++, t += TABLE) {
            __m512i h0 = waste_vq_load(t), h1 = waste_vq_load(t + 64), h2 = waste_vq_load(t + 128),
                    h3 = waste_vq_load(t + 192);
            __m512i l0 = waste_vq_load(t + 256), l1 = waste_vq_load(t + 320),
                    l2 = waste_vq_load(t + 384), l3 = waste_vq_load(t + 448);

            KEEP(h0, h1, h2, h3);
            KEEP(l0, l1, l2, l3);
            look(waste_vq_load(p0 + WASTE_VQ_INDEX_ROWS * s), h0, h1, h2, h3, l0, l1, l2, l3,
                 s == 0, &a_lo, &a_hi);
            look(waste_vq_load(p1 + WASTE_VQ_INDEX_ROWS * s), h0, h1, h2, h3, l0, l1, l2, l3,
                 s == 0, &b_lo, &b_hi);
        }
        widen(a, a_lo, a_hi);
        widen(b, b_lo, b_hi);
    }
}

static inline __attribute__((always_inline)) void look64(__m512i i, __m512i h, __m512i l,
                                                         __m512i *lo, __m512i *hi, int first)
{
    const __m512i x = _mm512_permutexvar_epi8(i, h), y = _mm512_permutexvar_epi8(i, l);
    const __m512i a = _mm512_unpacklo_epi8(y, x), b = _mm512_unpackhi_epi8(y, x);

    *lo = first ? a : _mm512_add_epi16(*lo, a);
    *hi = first ? b : _mm512_add_epi16(*hi, b);
}

/* The same with four 6-bit indices; a lookup ignores the upper two bits of its index. */
static inline __attribute__((always_inline)) void pass_packed(
    sums *a, sums *b, const unsigned char *p0, const unsigned char *p1, const unsigned char *t,
    int64_t n, const unsigned char *far, size_t row_bytes)
{
    int64_t v;
    int k;

    for (v = 0; v < n; v++, p0 += 192, p1 += 192, t += POSITION) {
        const __m512i h0 = waste_vq_load(t), l0 = waste_vq_load(t + 64),
                      h1 = waste_vq_load(t + 128), l1 = waste_vq_load(t + 192);
        const __m512i h2 = waste_vq_load(t + 256), l2 = waste_vq_load(t + 320),
                      h3 = waste_vq_load(t + 384), l3 = waste_vq_load(t + 448);

        if (far) PREFETCH(far + v * 192, row_bytes, 3);
#pragma GCC unroll 2
        for (k = 0; k < 2; k++) {
            const unsigned char *p = k ? p1 : p0;
            __m512i i[4], lo, hi;

            waste_vq_unpack6(p, i);
            look64(i[0], h0, l0, &lo, &hi, 1);
            look64(i[1], h1, l1, &lo, &hi, 0);
            look64(i[2], h2, l2, &lo, &hi, 0);
            look64(i[3], h3, l3, &lo, &hi, 0);
            widen(k ? b : a, lo, hi);
        }
    }
}

static inline void fold(float *acc, const sums *s, float unit)
{
    const __m512 u = _mm512_set1_ps(unit);
    int i;

    for (i = 0; i < 4; i++) waste_vq_add(acc + 16 * i, s->d[i], u);
}

/* ---- a table block over a range of row blocks ------------------------------------------ */

/* acc: [last - first][64] sums, in the order of the lookups. */
static inline __attribute__((always_inline)) void apply_span(const waste_vq_span *r, float *acc,
                                                             const unsigned char *t, float unit,
                                                             int64_t v0, int64_t n, int ahead,
                                                             const int kind)
{
    const int vb = kind == 2 ? 2 : 3;
    const int64_t nv = r->m->cols / 8;
    const size_t row_bytes = (size_t)(nv * WASTE_VQ_INDEX_ROWS * vb),
                 at = (size_t)(v0 * WASTE_VQ_INDEX_ROWS * vb);
    const size_t chunk = (size_t)(n * WASTE_VQ_INDEX_ROWS * vb);
    int64_t b;
    float spare[WASTE_VQ_INDEX_ROWS];

    memset(spare, 0, sizeof spare);
    for (b = r->first; b < r->last; b += 2) {
        const int two = b + 1 < r->last;
        const unsigned char *p0 = r->m->index + (size_t)b * row_bytes + at, *far = NULL;
        const unsigned char *p1 = two ? p0 + row_bytes : p0;
        float *to = acc + (b - r->first) * WASTE_VQ_INDEX_ROWS;
        sums s0, s1;
        int i;

        if (ahead && b + AHEAD + 1 < r->last)
            far = p0 + AHEAD * row_bytes;
        else if (ahead && v0 + 2 * n <= nv && b + AHEAD - r->last + r->first + 1 < r->last)
            far = r->m->index + (size_t)(b + AHEAD - r->last + r->first) * row_bytes + at + chunk;
        if (!r->planar) {
            waste_vq_planes(r->planes, p0, n, vb);
            if (two) waste_vq_planes(r->planes + chunk, p1, n, vb);
            p0 = r->planes;
            p1 = two ? r->planes + chunk : p0;
        }
        for (i = 0; i < 4; i++) s0.d[i] = s1.d[i] = _mm512_setzero_si512();
        if (kind == 6)
            pass_packed(&s0, &s1, p0, p1, t, n, far, row_bytes);
        else
            pass_bytes(&s0, &s1, p0, p1, t, n, far, row_bytes, kind);
        fold(to, &s0, unit);
        fold(two ? to + WASTE_VQ_INDEX_ROWS : spare, &s1, unit);
    }
}

static void apply3(const waste_vq_span *r, float *acc, const unsigned char *t, float unit,
                   int64_t v0, int64_t n, int ahead)
{
    apply_span(r, acc, t, unit, v0, n, ahead, 3);
}

static void apply2(const waste_vq_span *r, float *acc, const unsigned char *t, float unit,
                   int64_t v0, int64_t n, int ahead)
{
    apply_span(r, acc, t, unit, v0, n, ahead, 2);
}

static void apply6(const waste_vq_span *r, float *acc, const unsigned char *t, float unit,
                   int64_t v0, int64_t n, int ahead)
{
    apply_span(r, acc, t, unit, v0, n, ahead, 6);
}

void waste_vq_apply(const waste_vq_geometry *g, const waste_vq_span *r, float *acc,
                    const unsigned char *t, float unit, int64_t v0, int64_t n, int ahead)
{
    if (waste_vq_packed(g))
        apply6(r, acc, t, unit, v0, n, ahead);
    else if (g->stages == 3)
        apply3(r, acc, t, unit, v0, n, ahead);
    else
        apply2(r, acc, t, unit, v0, n, ahead);
}

/* 64 sums as rows: 16-bit unpacking left rows 16q..16q+7 alternating in vectors 0
 * and 1, 16q+8..16q+15 in 2 and 3, q being a quarter of a vector. */
void waste_vq_rows(const float *acc, __m512 *r)
{
    const __m512 z0 = _mm512_loadu_ps(acc), z1 = _mm512_loadu_ps(acc + 16);
    const __m512 z2 = _mm512_loadu_ps(acc + 32), z3 = _mm512_loadu_ps(acc + 48);
    const __m512 a = _mm512_unpacklo_ps(z0, z1), b = _mm512_unpackhi_ps(z0, z1);
    const __m512 c = _mm512_unpacklo_ps(z2, z3), d = _mm512_unpackhi_ps(z2, z3);
    const __m512 ab0 = _mm512_shuffle_f32x4(a, b, 0x44), ab1 = _mm512_shuffle_f32x4(a, b, 0xEE);
    const __m512 cd0 = _mm512_shuffle_f32x4(c, d, 0x44), cd1 = _mm512_shuffle_f32x4(c, d, 0xEE);

    r[0] = _mm512_shuffle_f32x4(ab0, cd0, 0x88);
    r[1] = _mm512_shuffle_f32x4(ab0, cd0, 0xDD);
    r[2] = _mm512_shuffle_f32x4(ab1, cd1, 0x88);
    r[3] = _mm512_shuffle_f32x4(ab1, cd1, 0xDD);
}

#endif
