/* Experts on AVX-512 VBMI and VNNI: see kernels.h. No state, any thread.
 *
 * A weight vector of 8 columns is a sum of one codebook entry per stage, so a row
 * times x is a sum of table entries: table[s][e] = book[s][e] . x[8v..8v+7]. The
 * tables of a block of positions v are 16-bit integers in two byte planes, which
 * stay in L1 while all rows pass over them; a lookup of 64 rows is two vpermi2b per
 * plane. Integers are exact up to the end of a block, where they meet f32, so what a
 * row gets depends neither on the range nor on the rows of the batch beside it.
 *
 * A block's scale comes from a bound, not from a search: |book . x_v| is at most
 * |book| |x_v| (Cauchy, Schwarz), and the entries of all stages together stay below
 * 2^15.
 *
 * Against plain C, before the row scale. Let N be the largest |x_v| of a block (at
 * least 1e-25), C the sum over the stages of the largest |entry|: each position of
 * the block errs by less than 4 stages N C / 32600 (per stage half a unit for
 * rounding the table entry, and 1.42 each for rounding x and the book to 16 bits).
 * That is the worst case; the rms error of a matrix is near 3e-4. A value of x or of
 * a book that is not finite makes the results NaN. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512

#include <math.h>
#include <string.h>

#include "kernels/kernels_ref.h"
#include "kernels/kernels_work.h"
#include "store/record.h"

#define ROWS     64 /* of an index block, and of a vector of bytes */
#define LEAST    1e-25f
#define RANGE    32600.0f     /* what the stages' entries may add up to */
#define AHEAD    8            /* row blocks that prefetching runs ahead */
#define TABLE    512          /* bytes of one position and stage: 256 high, 256 low */
#define POSITION (4 * 2 * 64) /* of a packed position: 4 stages, 64 high, 64 low */

typedef __m512i bytes;

/* The books of one matrix in 16 bits, the longest entry of any stage to length
 * 32760. Zmm z of 64-entry group g holds pairs of dimensions of 16 entries. */
typedef struct books {
    float sum, longest; /* of the stages' longest entries; the longest of all */
    char unused[56];
    int16_t q[]; /* [stage][group][pair 4][zmm 4][lane 16][2] */
} books;

static bytes load(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* ---- geometry --------------------------------------------------------------- */

static int is_packed(const waste_vq_geometry *g)
{
    return g->index_bits == 6;
}

static int sped_up(const waste_vq_geometry *g)
{
    if (g->vec_dim != 8 || g->index_block != ROWS) return 0;
    if (is_packed(g)) return g->stages == 4 && g->vector_bytes == 3;
    return (g->stages == 2 || g->stages == 3) && g->vector_bytes == g->stages;
}

/* 64-entry groups of a stage. */
static int groups_of(const waste_vq_geometry *g)
{
    return is_packed(g) ? 1 : 4;
}

/* Table bytes of one position. */
static size_t position_bytes(const waste_vq_geometry *g)
{
    return is_packed(g) ? POSITION : (size_t)g->stages * TABLE;
}

/* ---- books -------------------------------------------------------------------- */

static size_t books_bytes(const waste_vq_geometry *g)
{
    if (!sped_up(g)) return 0;
    return sizeof(books) + (size_t)g->stages * (size_t)groups_of(g) * 4 * 4 * 16 * 2 * 2;
}

static float length_of(const float *v)
{
    float s = 0;
    int i;

    for (i = 0; i < 8; i++) s += v[i] * v[i];
    return sqrtf(s);
}

static void pack_books(void *to, const waste_vq_geometry *g, const float *const *book)
{
    const int groups = groups_of(g), entries = 64 * groups;
    books *b = to;
    int16_t *q = b->q;
    float scale;
    int s, e, p, i;

    b->sum = b->longest = 0;
    for (s = 0; s < g->stages; s++) {
        float most = 0;

        for (e = 0; e < entries; e++) {
            const float n = length_of(book[s] + 8 * e);
            if (!isfinite(n)) most = INFINITY;
            if (n > most) most = n;
        }
        b->sum += most;
        if (most > b->longest) b->longest = most;
    }
    if (b->longest < 1e-8f) b->longest = 1e-8f;
    if (b->sum < 1e-8f) b->sum = 1e-8f;
    scale = 32760.0f / b->longest; /* 0 when an entry is not finite: see table_scale */
    for (s = 0; s < g->stages; s++)
        for (e = 0; e < entries; e++)
            for (p = 0; p < 4; p++)
                for (i = 0; i < 2; i++) {
                    const float v = book[s][8 * e + 2 * p + i] * scale;
                    const size_t at = (size_t)((s * groups + e / 64) * 4 + p) * 128;
                    q[at + (size_t)(e % 64) * 2 + (size_t)i] = isfinite(v) ? (int16_t)lrintf(v) : 0;
                }
}

/* ---- planar indices ------------------------------------------------------------- */

static const uint8_t THREES[64] = {0,   3,   6,   9,   12,  15,  18,  21,  24,  27,  30,  33,  36,
                                   39,  42,  45,  48,  51,  54,  57,  60,  63,  66,  69,  72,  75,
                                   78,  81,  84,  87,  90,  93,  96,  99,  102, 105, 108, 111, 114,
                                   117, 120, 123, 126, 129, 132, 135, 138, 141, 144, 147, 150, 153,
                                   156, 159, 162, 165, 168, 171, 174, 177, 180, 183, 186, 189};

/* 64 rows of three bytes become three runs of 64. to may be from. */
static inline void planes3(unsigned char *to, const unsigned char *from)
{
    const bytes a = load(from), b = load(from + 64), c = load(from + 128);
    bytes at = load(THREES);
    int s;

    for (s = 0; s < 3; s++) {
        const bytes v = _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(a, at, b),
                                                     _mm512_movepi8_mask(at), at, c);
        _mm512_storeu_si512(to + 64 * s, v);
        at = _mm512_add_epi8(at, _mm512_set1_epi8(1));
    }
}

static inline void planes2(unsigned char *to, const unsigned char *from)
{
    const bytes a = load(from), b = load(from + 64);
    const bytes low = _mm512_packus_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)),
                                          _mm512_and_si512(b, _mm512_set1_epi16(255)));
    const bytes high = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    const bytes order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);

    _mm512_storeu_si512(to, _mm512_permutexvar_epi64(order, low));
    _mm512_storeu_si512(to + 64, _mm512_permutexvar_epi64(order, high));
}

static void planes(unsigned char *to, const unsigned char *from, int64_t n, int vector_bytes)
{
    const size_t step = (size_t)(ROWS * vector_bytes);
    int64_t i;

    for (i = 0; i < n; i++, to += step, from += step) {
        if (vector_bytes == 3)
            planes3(to, from);
        else
            planes2(to, from);
    }
}

static void pack_record(void *record, const waste_record_layout *at, const waste_vq_geometry *g)
{
    unsigned char *index = (unsigned char *)record + at->gate_off;
    const uint64_t bytes_in_all = at->scale_off - at->gate_off;

    if (!sped_up(g)) return;
    planes(index, index, (int64_t)(bytes_in_all / (uint64_t)(ROWS * g->vector_bytes)),
           g->vector_bytes);
}

/* ---- tables ----------------------------------------------------------------------- */

/* What x is multiplied with before it is rounded to 16 bits, and what an entry is
 * worth. */
typedef struct scale {
    float x, unit;
} scale;

/* Of n positions. A block with something that is not finite gets all-zero tables
 * and a unit that turns every sum into NaN. */
static scale table_scale(const books *b, const float *x, int64_t n)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7FFFFFFF);
    __m512i most = _mm512_setzero_si512();
    __m512 longest = _mm512_setzero_ps(), by;
    float a, norm, e;
    uint32_t bits;
    int64_t i;
    scale s;

    for (i = 0; i < 8 * n; i += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(waste_lanes16(8 * n - i), x + i);
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(v), no_sign));
    }
    bits = _mm512_reduce_max_epu32(most);
    if (bits >= 0x7F800000u || !isfinite(b->sum)) return (scale){0, NAN};
    memcpy(&a, &bits, sizeof a);
    if (a < LEAST) a = LEAST;
    by = _mm512_set1_ps(1.0f / a);
    for (i = 0; i < 8 * n; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(waste_lanes16(8 * n - i), x + i), by);

        v = _mm512_mul_ps(v, v); /* the sum of each half's 8 squares, in all its lanes */
        v = _mm512_add_ps(v, _mm512_permute_ps(v, 0xB1));
        v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4E));
        v = _mm512_add_ps(v, _mm512_shuffle_f32x4(v, v, 0xB1));
        longest = _mm512_max_ps(longest, v);
    }
    norm = sqrtf(_mm512_reduce_max_ps(longest));
    if (norm < 1) norm = 1; /* the clamped a, or a rounding */
    e = RANGE / (b->sum * norm) / a;
    s.x = e * 32768.0f / 32760.0f * b->longest;
    s.unit = 1.0f / e;
    return s;
}

/* 8 values of x in 16 bits, as four pairs in all lanes. */
typedef struct pairs {
    bytes p[4];
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
static inline bytes dots(const pairs *x, bytes w0, bytes w1, bytes w2, bytes w3)
{
    bytes a = _mm512_set1_epi32(1 << 14);

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
static inline void put_planes(unsigned char *high, unsigned char *low, const bytes *a, bytes pick)
{
    const bytes p = _mm512_permutex2var_epi8(a[0], pick, a[1]);
    const bytes q = _mm512_permutex2var_epi8(a[2], pick, a[3]);

    _mm512_storeu_si512(high, _mm512_shuffle_i64x2(p, q, 0x44));
    _mm512_storeu_si512(low, _mm512_shuffle_i64x2(p, q, 0xEE));
}

/* Tables of n positions; two at a time share the loads of the books. */
static inline __attribute__((always_inline)) float build(unsigned char *to, const books *b,
                                                         const float *x, int64_t n, int stages,
                                                         int groups)
{
    const scale sc = table_scale(b, x, n);
    const __m256 by = _mm256_set1_ps(sc.x);
    const size_t plane = 64 * (size_t)groups, position = 2 * plane * (size_t)stages;
    const bytes pick = load(HIGH_THEN_LOW);
    int64_t v;
    int s, g, k;

    if (sc.x == 0) {
        memset(to, 0, position * (size_t)n);
        return sc.unit;
    }
    for (v = 0; v < n; v += 2) {
        const int two = v + 1 < n;
        const pairs x0 = quantise(x + 8 * v, by), x1 = two ? quantise(x + 8 * v + 8, by) : x0;
        unsigned char *t0 = to + (size_t)v * position, *t1 = two ? t0 + position : t0;
        const int16_t *q = b->q;

        for (s = 0; s < stages; s++)
            for (g = 0; g < groups; g++, q += 512) {
                const size_t at = (size_t)s * 2 * plane + 64 * (size_t)g;
                bytes a0[4], a1[4];

                for (k = 0; k < 4; k++) {
                    const bytes w0 = load(q + 32 * k), w1 = load(q + 128 + 32 * k);
                    const bytes w2 = load(q + 256 + 32 * k), w3 = load(q + 384 + 32 * k);

                    a0[k] = dots(&x0, w0, w1, w2, w3);
                    a1[k] = dots(&x1, w0, w1, w2, w3);
                }
                put_planes(t0 + at, t0 + at + plane, a0, pick);
                put_planes(t1 + at, t1 + at + plane, a1, pick);
            }
    }
    return sc.unit;
}

static float build_tables(unsigned char *to, const waste_vq_geometry *g, const books *b,
                          const float *x, int64_t n)
{
    if (is_packed(g)) return build(to, b, x, n, 4, 1);
    if (g->stages == 3) return build(to, b, x, n, 3, 4);
    return build(to, b, x, n, 2, 4);
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
    bytes d[4];
} sums;

/* One stage of one row block: 64 lookups in both planes, joined to 16 bits. */
static inline __attribute__((always_inline)) void look(bytes i, bytes h0, bytes h1, bytes h2,
                                                       bytes h3, bytes l0, bytes l1, bytes l2,
                                                       bytes l3, int first, bytes *lo, bytes *hi)
{
    const __mmask64 upper = _mm512_movepi8_mask(i);
    const bytes h = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(h0, i, h1),
                                           _mm512_permutex2var_epi8(h2, i, h3));
    const bytes l = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(l0, i, l1),
                                           _mm512_permutex2var_epi8(l2, i, l3));
    const bytes a = _mm512_unpacklo_epi8(l, h), b = _mm512_unpackhi_epi8(l, h);

    *lo = first ? a : _mm512_add_epi16(*lo, a);
    *hi = first ? b : _mm512_add_epi16(*hi, b);
}

static inline __attribute__((always_inline)) void widen(sums *s, bytes lo, bytes hi)
{
    const bytes even = _mm512_set1_epi32(1), odd = _mm512_set1_epi32(1 << 16);

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

    for (v = 0; v < n; v++, p0 += ROWS * stages, p1 += ROWS * stages) {
        bytes a_lo = _mm512_setzero_si512(), a_hi = a_lo, b_lo = a_lo, b_hi = a_lo;

        if (far) PREFETCH(far + v * ROWS * stages, row_bytes, stages);
#pragma GCC unroll 3
        for (s = 0; s < stages; s++, t += TABLE) {
            bytes h0 = load(t), h1 = load(t + 64), h2 = load(t + 128), h3 = load(t + 192);
            bytes l0 = load(t + 256), l1 = load(t + 320), l2 = load(t + 384), l3 = load(t + 448);

            KEEP(h0, h1, h2, h3);
            KEEP(l0, l1, l2, l3);
            look(load(p0 + ROWS * s), h0, h1, h2, h3, l0, l1, l2, l3, s == 0, &a_lo, &a_hi);
            look(load(p1 + ROWS * s), h0, h1, h2, h3, l0, l1, l2, l3, s == 0, &b_lo, &b_hi);
        }
        widen(a, a_lo, a_hi);
        widen(b, b_lo, b_hi);
    }
}

static inline __attribute__((always_inline)) void look64(bytes i, bytes h, bytes l, bytes *lo,
                                                         bytes *hi, int first)
{
    const bytes x = _mm512_permutexvar_epi8(i, h), y = _mm512_permutexvar_epi8(i, l);
    const bytes a = _mm512_unpacklo_epi8(y, x), b = _mm512_unpackhi_epi8(y, x);

    *lo = first ? a : _mm512_add_epi16(*lo, a);
    *hi = first ? b : _mm512_add_epi16(*hi, b);
}

/* The same with four 6-bit indices in three planes (docs/format.md 5.5); a lookup
 * ignores the upper two bits of its index. */
static inline __attribute__((always_inline)) void pass_packed(
    sums *a, sums *b, const unsigned char *p0, const unsigned char *p1, const unsigned char *t,
    int64_t n, const unsigned char *far, size_t row_bytes)
{
    int64_t v;
    int k;

    for (v = 0; v < n; v++, p0 += 192, p1 += 192, t += POSITION) {
        const bytes h0 = load(t), l0 = load(t + 64), h1 = load(t + 128), l1 = load(t + 192);
        const bytes h2 = load(t + 256), l2 = load(t + 320), h3 = load(t + 384), l3 = load(t + 448);

        if (far) PREFETCH(far + v * 192, row_bytes, 3);
#pragma GCC unroll 2
        for (k = 0; k < 2; k++) {
            const unsigned char *p = k ? p1 : p0;
            const bytes x = load(p), y = load(p + 64), z = load(p + 128);
            /* bits 6 and 7 of x below bits 0 to 3 of y, and so on */
            const bytes i1 = _mm512_ternarylogic_epi32(
                _mm512_srli_epi16(x, 6), _mm512_slli_epi16(y, 2), _mm512_set1_epi8(3), 0xE4);
            const bytes i2 = _mm512_ternarylogic_epi32(
                _mm512_srli_epi16(y, 4), _mm512_slli_epi16(z, 4), _mm512_set1_epi8(15), 0xE4);
            const bytes i3 = _mm512_srli_epi16(z, 2);
            bytes lo, hi;

            look64(x, h0, l0, &lo, &hi, 1);
            look64(i1, h1, l1, &lo, &hi, 0);
            look64(i2, h2, l2, &lo, &hi, 0);
            look64(i3, h3, l3, &lo, &hi, 0);
            widen(k ? b : a, lo, hi);
        }
    }
}

static inline void fold(float *acc, const sums *s, float unit)
{
    const __m512 u = _mm512_set1_ps(unit);
    int i;

    for (i = 0; i < 4; i++)
        _mm512_storeu_ps(acc + 16 * i, _mm512_fmadd_ps(_mm512_cvtepi32_ps(s->d[i]), u,
                                                       _mm512_loadu_ps(acc + 16 * i)));
}

/* ---- a table block over a range of row blocks ------------------------------------------ */

typedef struct span {
    const waste_vq_matrix *m;
    int64_t first, last; /* row blocks */
    int planar;
    unsigned char *planes; /* room for two row blocks of a table block */
} span;

/* acc: [last - first][64] sums, in the order of the lookups. */
static inline __attribute__((always_inline)) void apply_span(const span *r, float *acc,
                                                             const unsigned char *t, float unit,
                                                             int64_t v0, int64_t n, int ahead,
                                                             const int kind)
{
    const int vb = kind == 2 ? 2 : 3;
    const int64_t nv = r->m->cols / 8;
    const size_t row_bytes = (size_t)(nv * ROWS * vb), at = (size_t)(v0 * ROWS * vb);
    const size_t chunk = (size_t)(n * ROWS * vb);
    int64_t b;
    float spare[ROWS];

    memset(spare, 0, sizeof spare);
    for (b = r->first; b < r->last; b += 2) {
        const int two = b + 1 < r->last;
        const unsigned char *p0 = r->m->index + (size_t)b * row_bytes + at, *far = NULL;
        const unsigned char *p1 = two ? p0 + row_bytes : p0;
        float *to = acc + (b - r->first) * ROWS;
        sums s0, s1;
        int i;

        if (ahead && b + AHEAD + 1 < r->last)
            far = p0 + AHEAD * row_bytes;
        else if (ahead && v0 + 2 * n <= nv && b + AHEAD - r->last + r->first + 1 < r->last)
            far = r->m->index + (size_t)(b + AHEAD - r->last + r->first) * row_bytes + at + chunk;
        if (!r->planar) {
            planes(r->planes, p0, n, vb);
            if (two) planes(r->planes + chunk, p1, n, vb);
            p0 = r->planes;
            p1 = two ? r->planes + chunk : p0;
        }
        for (i = 0; i < 4; i++) s0.d[i] = s1.d[i] = _mm512_setzero_si512();
        if (kind == 6)
            pass_packed(&s0, &s1, p0, p1, t, n, far, row_bytes);
        else
            pass_bytes(&s0, &s1, p0, p1, t, n, far, row_bytes, kind);
        fold(to, &s0, unit);
        fold(two ? to + ROWS : spare, &s1, unit);
    }
}

static void apply3(const span *r, float *acc, const unsigned char *t, float unit, int64_t v0,
                   int64_t n, int ahead)
{
    apply_span(r, acc, t, unit, v0, n, ahead, 3);
}

static void apply2(const span *r, float *acc, const unsigned char *t, float unit, int64_t v0,
                   int64_t n, int ahead)
{
    apply_span(r, acc, t, unit, v0, n, ahead, 2);
}

static void apply6(const span *r, float *acc, const unsigned char *t, float unit, int64_t v0,
                   int64_t n, int ahead)
{
    apply_span(r, acc, t, unit, v0, n, ahead, 6);
}

static void apply(const waste_vq_geometry *g, const span *r, float *acc, const unsigned char *t,
                  float unit, int64_t v0, int64_t n, int ahead)
{
    if (is_packed(g))
        apply6(r, acc, t, unit, v0, n, ahead);
    else if (g->stages == 3)
        apply3(r, acc, t, unit, v0, n, ahead);
    else
        apply2(r, acc, t, unit, v0, n, ahead);
}

/* 64 sums as rows: 16-bit unpacking left rows 16q..16q+7 alternating in vectors 0
 * and 1, 16q+8..16q+15 in 2 and 3, q being a quarter of a vector. */
static inline void rows_in_order(const float *acc, __m512 *r)
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

/* The scales of rows first..first+15 under a mask. */
static inline __m512 scales16(const waste_vq_matrix *m, int64_t first, __mmask16 rows)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(rows, m->scale + 2 * first));
}

/* ---- slots -------------------------------------------------------------------------------- */

static int fast(const waste_expert *a)
{
    return a->gate.packed && a->up.packed && a->down.packed && sped_up(&a->geometry);
}

/* Scratch of a part: a table block, two de-interleaved chunks, sums of a group of
 * rows for up to two matrices. */
typedef struct work {
    unsigned char *table, *planes;
    float *acc;
} work;

static work work_of(const waste_expert *a)
{
    work w;

    w.table = a->work;
    w.planes = w.table + WASTE_VQ_TABLE_BYTES;
    w.acc = (float *)(void *)(w.planes + WASTE_VQ_PLANE_BYTES);
    return w;
}

/* Prepared tables: those of gate, their units, then the same of up. */
static size_t prepared_bytes(const waste_vq_geometry *g, int64_t cols)
{
    const int64_t nv = cols / 8, blocks = (nv + WASTE_VQ_BLOCK - 1) / WASTE_VQ_BLOCK;

    return ((size_t)nv * position_bytes(g) + (size_t)blocks * sizeof(float) + 63) / 64 * 64;
}

static size_t tables_bytes(const waste_vq_geometry *g, int64_t cols)
{
    return sped_up(g) ? 2 * prepared_bytes(g, cols) : 0;
}

static void expert_tables(const waste_expert *a, void *to, int64_t lo, int64_t hi)
{
    const waste_vq_geometry *g = &a->geometry;
    const int64_t nv = a->gate.cols / 8, vb = WASTE_VQ_BLOCK, per = WASTE_TABLE_COLS / 8;
    const float *x = a->x + (int64_t)a->x_row[0] * a->gate.cols;
    const int64_t end = hi * per < nv ? hi * per : nv;
    int64_t v, n;
    int i;

    for (i = 0; i < 2; i++) {
        const books *b = i ? a->up.packed : a->gate.packed;
        unsigned char *t = (unsigned char *)to + (size_t)i * prepared_bytes(g, a->gate.cols);
        float *unit = (float *)(void *)(t + (size_t)nv * position_bytes(g));

        for (v = lo * per; v < end; v += vb) {
            n = nv - v < vb ? nv - v : vb;
            unit[v / vb] = build_tables(t + (size_t)v * position_bytes(g), g, b, x + 8 * v, n);
        }
    }
}

/* All positions of one matrix for `n` inputs, x[i] being input i. */
static void run_matrix(const waste_expert *a, const span *r, const float *const *x, size_t n,
                       const unsigned char *prepared, const work *w, float *acc, size_t acc_step)
{
    const waste_vq_geometry *g = &a->geometry;
    const int64_t nv = r->m->cols / 8, vb = WASTE_VQ_BLOCK;
    const float *units =
        prepared ? (const float *)(const void *)(prepared + (size_t)nv * position_bytes(g)) : NULL;
    int64_t v, p;
    size_t i;

    for (i = 0; i < n; i++) memset(acc + i * acc_step, 0, (size_t)(r->last - r->first) * ROWS * 4);
    for (v = 0; v < nv; v += vb) {
        p = nv - v < vb ? nv - v : vb;
        for (i = 0; i < n; i++) {
            const unsigned char *t = prepared ? prepared + (size_t)v * position_bytes(g) : w->table;
            const float unit =
                prepared ? units[v / vb] : build_tables(w->table, g, r->m->packed, x[i] + 8 * v, p);

            apply(g, r, acc + i * acc_step, t, unit, v, p, i == 0);
        }
    }
}

static void act_rows(const waste_expert *a, const float *gate, const float *up, int64_t block,
                     float *h, int64_t lo, int64_t hi)
{
    __m512 g[4], u[4];
    int i;

    rows_in_order(gate, g);
    rows_in_order(up, u);
    for (i = 0; i < 4; i++) {
        const int64_t first = block * ROWS + 16 * i;
        const __mmask16 m = waste_inside16(first, lo, hi);

        if (!m) continue;
        g[i] = _mm512_mul_ps(g[i], scales16(&a->gate, first, m));
        u[i] = _mm512_mul_ps(u[i], scales16(&a->up, first, m));
        _mm512_mask_storeu_ps(h + first, m, waste_act16(&a->act, g[i], u[i]));
    }
}

static void expert_up(const waste_expert *a, int64_t lo, int64_t hi)
{
    const span gate = {&a->gate, lo / ROWS, (hi + ROWS - 1) / ROWS, a->planar, NULL};
    const size_t step = (size_t)(gate.last - gate.first) * ROWS;
    const unsigned char *ready = a->n == 1 ? a->tables : NULL;
    const float *x[WASTE_VQ_ROWS];
    waste_kernels plain;
    span r = gate;
    work w;
    size_t at, n, i;
    int64_t b;

    if (!fast(a)) {
        waste_kernels_ref(&plain);
        plain.expert_up(a, lo, hi);
        return;
    }
    if (lo >= hi) return;
    w = work_of(a);
    r.planes = w.planes;
    for (at = 0; at < a->n; at += n) {
        n = a->n - at < WASTE_VQ_ROWS ? a->n - at : WASTE_VQ_ROWS;
        for (i = 0; i < n; i++) x[i] = a->x + (int64_t)a->x_row[at + i] * a->gate.cols;
        r.m = &a->gate;
        run_matrix(a, &r, x, n, ready, &w, w.acc, 2 * step);
        r.m = &a->up;
        run_matrix(a, &r, x, n, ready ? ready + prepared_bytes(&a->geometry, a->gate.cols) : NULL,
                   &w, w.acc + step, 2 * step);
        for (i = 0; i < n; i++)
            for (b = r.first; b < r.last; b++) {
                const float *acc = w.acc + 2 * i * step + (size_t)(b - r.first) * ROWS;
                act_rows(a, acc, acc + step, b, a->h + (int64_t)(at + i) * a->gate.rows, lo, hi);
            }
    }
}

static void down_rows(const waste_expert *a, const float *acc, int64_t block, float *y, int64_t lo,
                      int64_t hi)
{
    __m512 s[4];
    int i;

    rows_in_order(acc, s);
    for (i = 0; i < 4; i++) {
        const int64_t first = block * ROWS + 16 * i;
        const __mmask16 m = waste_inside16(first, lo, hi);

        if (m)
            _mm512_mask_storeu_ps(y + first, m, _mm512_mul_ps(s[i], scales16(&a->down, first, m)));
    }
}

static void expert_down(const waste_expert *a, int64_t lo, int64_t hi)
{
    span r = {&a->down, lo / ROWS, (hi + ROWS - 1) / ROWS, a->planar, NULL};
    const size_t step = (size_t)(r.last - r.first) * ROWS;
    const float *x[WASTE_VQ_ROWS];
    waste_kernels plain;
    work w;
    size_t at, n, i;
    int64_t b;

    if (!fast(a)) {
        waste_kernels_ref(&plain);
        plain.expert_down(a, lo, hi);
        return;
    }
    if (lo >= hi) return;
    w = work_of(a);
    r.planes = w.planes;
    for (at = 0; at < a->n; at += n) {
        n = a->n - at < WASTE_VQ_ROWS ? a->n - at : WASTE_VQ_ROWS;
        for (i = 0; i < n; i++) x[i] = a->h + (int64_t)(at + i) * a->down.cols;
        run_matrix(a, &r, x, n, NULL, &w, w.acc, step);
        for (i = 0; i < n; i++)
            for (b = r.first; b < r.last; b++)
                down_rows(a, w.acc + i * step + (size_t)(b - r.first) * ROWS, b,
                          a->y + (int64_t)a->y_row[at + i] * a->down.rows, lo, hi);
    }
}

void waste_kernels_avx512_vq(waste_kernels *k)
{
    k->expert_up = expert_up;
    k->expert_down = expert_down;
    k->pack_record = pack_record;
    k->books_bytes = books_bytes;
    k->pack_books = pack_books;
    k->tables_bytes = tables_bytes;
    k->expert_tables = expert_tables;
}

#endif
