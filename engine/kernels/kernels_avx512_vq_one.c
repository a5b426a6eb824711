/* Experts on AVX-512, tables of one input: see kernels_avx512_vq.h.
 *
 * The tables of a block stay in L1 while all rows pass over them. With VBMI entries are
 * in two byte planes, and a lookup of 64 rows is two vpermi2b per plane; without it they
 * are whole, and one of 32 rows is four vpermi2w. */
#include "kernels/kernels_avx512_vq.h"

#if WASTE_HAVE_AVX512BW

#include <math.h>
#include <string.h>

#define AHEAD    4            /* row blocks that prefetching runs ahead */
#define TABLE    512          /* bytes of one position and stage: 256 entries */
#define POSITION (4 * 2 * 64) /* of a packed position: 4 stages of 64 */

size_t waste_vq_position_bytes(const waste_vq_geometry *g)
{
    return waste_vq_packed(g) ? POSITION : (size_t)g->stages * TABLE;
}

/* ---- how a table is stored and looked up --------------------------------------------- */

/* In both forms a stage of 256 entries, and a position of four stages of 64, is eight
 * vectors t; a lookup gives two vectors of 16 bits, rows in the order that waste_vq_rows
 * undoes, and adds them to *lo and *hi unless it is the first. */

static inline void join(__m512i a, __m512i b, int first, __m512i *lo, __m512i *hi)
{
    *lo = first ? a : _mm512_add_epi16(*lo, a);
    *hi = first ? b : _mm512_add_epi16(*hi, b);
}

#if WASTE_HAVE_AVX512

/* Byte 3 of each lane of two vectors, then byte 2. */
static const uint8_t HIGH_THEN_LOW[64] = {
    3,  7,  11, 15, 19, 23, 27, 31, 35, 39,  43,  47,  51,  55,  59,  63,
    67, 71, 75, 79, 83, 87, 91, 95, 99, 103, 107, 111, 115, 119, 123, 127,
    2,  6,  10, 14, 18, 22, 26, 30, 34, 38,  42,  46,  50,  54,  58,  62,
    66, 70, 74, 78, 82, 86, 90, 94, 98, 102, 106, 110, 114, 118, 122, 126};

/* 64 entries, number g of `groups` of a stage: 64 groups high bytes, then the low. */
static inline void put64(unsigned char *stage, int g, int groups, const __m512i *a)
{
    const __m512i pick = waste_vq_load(HIGH_THEN_LOW);
    const __m512i p = _mm512_permutex2var_epi8(a[0], pick, a[1]);
    const __m512i q = _mm512_permutex2var_epi8(a[2], pick, a[3]);

    _mm512_storeu_si512(stage + 64 * g, _mm512_shuffle_i64x2(p, q, 0x44));
    _mm512_storeu_si512(stage + 64 * (groups + g), _mm512_shuffle_i64x2(p, q, 0xEE));
}

static inline __attribute__((always_inline)) __m512i plane256(__m512i i, __mmask64 upper,
                                                              const __m512i *t)
{
    return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(t[0], i, t[1]),
                                  _mm512_permutex2var_epi8(t[2], i, t[3]));
}

/* 64 rows of one stage. */
static inline __attribute__((always_inline)) void look256(const unsigned char *p, const __m512i *t,
                                                          int first, __m512i *lo, __m512i *hi)
{
    const __m512i i = waste_vq_load(p);
    const __mmask64 upper = _mm512_movepi8_mask(i);
    const __m512i h = plane256(i, upper, t), l = plane256(i, upper, t + 4);

    join(_mm512_unpacklo_epi8(l, h), _mm512_unpackhi_epi8(l, h), first, lo, hi);
}

/* 64 rows of four stages, 6-bit indices. */
static inline __attribute__((always_inline)) void look_packed(const unsigned char *p,
                                                              const __m512i *t, __m512i *lo,
                                                              __m512i *hi)
{
    __m512i i[4];
    int s;

    waste_vq_unpack6(p, i);
#pragma GCC unroll 4
    for (s = 0; s < 4; s++) { /* a lookup ignores the upper two bits of its index */
        const __m512i h = _mm512_permutexvar_epi8(i[s], t[2 * s]);
        const __m512i l = _mm512_permutexvar_epi8(i[s], t[2 * s + 1]);

        join(_mm512_unpacklo_epi8(l, h), _mm512_unpackhi_epi8(l, h), s == 0, lo, hi);
    }
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

#else

/* 64 entries, number g of `groups` of a stage. */
static inline void put64(unsigned char *stage, int g, int groups, const __m512i *a)
{
    int i;

    (void)groups;
    for (i = 0; i < 4; i += 2)
        _mm512_storeu_si512(
            stage + 128 * g + 32 * i,
            waste_vq_join16(_mm512_srli_epi32(a[i], 16), _mm512_srli_epi32(a[i + 1], 16)));
}

/* 32 bytes as words. */
static inline __m512i words(const unsigned char *p)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p));
}

/* A lookup in 64 entries looks at the lower six bits of its index. */
static inline __attribute__((always_inline)) __m512i words256(__m512i i, const __m512i *t)
{
    const __mmask32 odd = _mm512_test_epi16_mask(i, _mm512_set1_epi16(64));
    const __mmask32 upper = _mm512_test_epi16_mask(i, _mm512_set1_epi16(128));
    const __m512i a = _mm512_mask_blend_epi16(odd, _mm512_permutex2var_epi16(t[0], i, t[1]),
                                              _mm512_permutex2var_epi16(t[2], i, t[3]));
    const __m512i b = _mm512_mask_blend_epi16(odd, _mm512_permutex2var_epi16(t[4], i, t[5]),
                                              _mm512_permutex2var_epi16(t[6], i, t[7]));

    return _mm512_mask_blend_epi16(upper, a, b);
}

/* 64 rows of one stage. */
static inline __attribute__((always_inline)) void look256(const unsigned char *p, const __m512i *t,
                                                          int first, __m512i *lo, __m512i *hi)
{
    join(words256(words(p), t), words256(words(p + 32), t), first, lo, hi);
}

/* 32 rows of four stages, 6-bit indices in three planes. */
static inline __attribute__((always_inline)) __m512i words_packed(const unsigned char *p,
                                                                  const __m512i *t)
{
    const __m512i x = words(p), y = words(p + 64), z = words(p + 128);
    /* bits 6 and 7 of x below bits 0 to 3 of y, and so on */
    const __m512i i1 = _mm512_or_si512(_mm512_srli_epi16(x, 6), _mm512_slli_epi16(y, 2));
    const __m512i i2 = _mm512_or_si512(_mm512_srli_epi16(y, 4), _mm512_slli_epi16(z, 4));

    return _mm512_add_epi16(
        _mm512_add_epi16(_mm512_permutex2var_epi16(t[0], x, t[1]),
                         _mm512_permutex2var_epi16(t[2], i1, t[3])),
        _mm512_add_epi16(_mm512_permutex2var_epi16(t[4], i2, t[5]),
                         _mm512_permutex2var_epi16(t[6], _mm512_srli_epi16(z, 2), t[7])));
}

/* 64 rows of them. */
static inline __attribute__((always_inline)) void look_packed(const unsigned char *p,
                                                              const __m512i *t, __m512i *lo,
                                                              __m512i *hi)
{
    *lo = words_packed(p, t);
    *hi = words_packed(p + 32, t);
}

/* 64 sums as rows: vectors 0 and 1 have the even and odd ones of the first 32, 2 and 3 of
 * the others. */
void waste_vq_rows(const float *acc, __m512 *r)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    int i;

    for (i = 0; i < 4; i += 2) {
        const __m512 even = _mm512_loadu_ps(acc + 16 * i), odd = _mm512_loadu_ps(acc + 16 * i + 16);

        r[i] = _mm512_permutex2var_ps(even, low, odd);
        r[i + 1] = _mm512_permutex2var_ps(even, high, odd);
    }
}

#endif

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

    a = waste_vq_add_pairs(a, w0, x->p[0]);
    a = waste_vq_add_pairs(a, w1, x->p[1]);
    a = waste_vq_add_pairs(a, w2, x->p[2]);
    a = waste_vq_add_pairs(a, w3, x->p[3]);
    return _mm512_add_epi32(a, a);
}

/* Tables of n positions; two at a time share the loads of the books. */
static inline __attribute__((always_inline)) void build(unsigned char *to, const waste_vq_books *b,
                                                        const float *x, float scale, int64_t n,
                                                        int stages, int groups)
{
    const __m256 by = _mm256_set1_ps(scale);
    const size_t stage = 128 * (size_t)groups, position = stage * (size_t)stages;
    int64_t v;
    int s, g, k;

    for (v = 0; v < n; v += 2) {
        const int two = v + 1 < n;
        const pairs x0 = quantise(x + 8 * v, by), x1 = two ? quantise(x + 8 * v + 8, by) : x0;
        unsigned char *t0 = to + (size_t)v * position, *t1 = two ? t0 + position : t0;
        const int16_t *q = b->q;

        for (s = 0; s < stages; s++)
            for (g = 0; g < groups; g++, q += 512) {
                __m512i a0[4], a1[4];

                for (k = 0; k < 4; k++) {
                    const __m512i w0 = waste_vq_load(q + 32 * k),
                                  w1 = waste_vq_load(q + 128 + 32 * k);
                    const __m512i w2 = waste_vq_load(q + 256 + 32 * k),
                                  w3 = waste_vq_load(q + 384 + 32 * k);

                    a0[k] = dots(&x0, w0, w1, w2, w3);
                    a1[k] = dots(&x1, w0, w1, w2, w3);
                }
                put64(t0 + (size_t)s * stage, g, groups, a0);
                put64(t1 + (size_t)s * stage, g, groups, a1);
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

/* gcc 12 loads a table again for each lookup unless it believes that the registers
 * were just written. */
#if defined(__GNUC__) && !defined(__clang__)
#define KEEP(t) __asm__("" : "+v"((t)[0]), "+v"((t)[1]), "+v"((t)[2]), "+v"((t)[3]))
#else
#define KEEP(t) (void)0
#endif

static inline __attribute__((always_inline)) void load_table(__m512i *t, const unsigned char *p)
{
    int i;

#pragma GCC unroll 8
    for (i = 0; i < 8; i++) t[i] = waste_vq_load(p + 64 * i);
    KEEP(t);
    KEEP(t + 4);
}

/* Sums of one row block over the positions of a table block: 32 bits each, rows in
 * the order that waste_vq_rows undoes. */
typedef struct sums {
    __m512i d[4];
} sums;

static inline __attribute__((always_inline)) void widen(sums *s, __m512i lo, __m512i hi)
{
    const __m512i even = _mm512_set1_epi32(1), odd = _mm512_set1_epi32(1 << 16);

    s->d[0] = waste_vq_add_pairs(s->d[0], lo, even);
    s->d[1] = waste_vq_add_pairs(s->d[1], lo, odd);
    s->d[2] = waste_vq_add_pairs(s->d[2], hi, even);
    s->d[3] = waste_vq_add_pairs(s->d[3], hi, odd);
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

/* The position of a far block that is prefetched at position v of n: another one, since
 * row blocks are whole pages apart in most models, and what is fetched while the line at
 * the same place in a page is read comes late (docs/decisions.md). */
static inline int64_t aside(int64_t v, int64_t n)
{
    return (v ^ 4) < n ? v ^ 4 : v;
}

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

        if (far) PREFETCH(far + aside(v, n) * WASTE_VQ_INDEX_ROWS * stages, row_bytes, stages);
#pragma GCC unroll 3
        for (s = 0; s < stages; s++, t += TABLE) {
            __m512i e[8];

            load_table(e, t);
            look256(p0 + WASTE_VQ_INDEX_ROWS * s, e, s == 0, &a_lo, &a_hi);
            look256(p1 + WASTE_VQ_INDEX_ROWS * s, e, s == 0, &b_lo, &b_hi);
        }
        widen(a, a_lo, a_hi);
        widen(b, b_lo, b_hi);
    }
}

/* The same with four 6-bit indices (docs/format.md 5.5). */
static inline __attribute__((always_inline)) void pass_packed(
    sums *a, sums *b, const unsigned char *p0, const unsigned char *p1, const unsigned char *t,
    int64_t n, const unsigned char *far, size_t row_bytes)
{
    int64_t v;

    for (v = 0; v < n; v++, p0 += 192, p1 += 192, t += POSITION) {
        __m512i e[8], lo, hi;

        if (far) PREFETCH(far + aside(v, n) * 192, row_bytes, 3);
        load_table(e, t);
        look_packed(p0, e, &lo, &hi);
        widen(a, lo, hi);
        look_packed(p1, e, &lo, &hi);
        widen(b, lo, hi);
    }
}

/* ---- a table block over a range of row blocks ------------------------------------------ */

static inline void fold(float *acc, const sums *s, float unit)
{
    const __m512 u = _mm512_set1_ps(unit);
    int i;

    for (i = 0; i < 4; i++) waste_vq_add(acc + 16 * i, s->d[i], u);
}

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

#endif
