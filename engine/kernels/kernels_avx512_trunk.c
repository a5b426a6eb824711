/* Trunk matrices on AVX-512 VNNI: see kernels.h and tiles.h. No state, any thread.
 *
 * Activations become 16-bit integers q, a scale per group of columns; high and low
 * byte are two planes of int8. Codes are unsigned bytes, so a group's sum of products
 * is two vpdpbusd a step, exact in 32 bits (mod 2^32, and the sum itself fits); what
 * the codes' offset adds goes in as the start value. Only scale times sum is f32, group
 * after group: a row's bits depend on that row of x alone.
 *
 * Against plain C: in every group |q scale - x| is at most half of max |x| / 32639, so
 * row o of the result errs by at most the sum over its groups of
 * max |x| / 65278 * sum |w[o][i]|, plus f32 rounding of the group sums. Narrow matrices
 * take x as two such rows of integers (tiles.h), and only the rounding is left. Where the
 * largest |x| of a group is below 1e-30 it counts as that. A value that is not finite
 * makes the row of the batch NaN.
 *
 * F32 matrices, and rows beyond whole tiles, take the same integers or plain
 * vectors of f32; what pack_matrix left alone is the plain table's. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512

#include <math.h>
#include <string.h>

#include "kernels/kernels_ref.h"
#include "kernels/tiles.h"

#define AHEAD 9216 /* bytes that prefetching runs ahead: see docs/decisions.md */

typedef __m512i bytes;

static bytes load(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* ---- activations ------------------------------------------------------------ */

/* Of n rows of integers; row t is at t times its stride. */
typedef struct planes {
    int8_t *high, *low; /* [cols]: cols padded to whole groups */
    float *scale;       /* [groups] */
    int32_t *sum;       /* [groups] of q */
    int64_t cols, groups, group;
    size_t terms; /* rows of integers to a row of the batch (tiles.h) */
} planes;

static planes planes_in(const waste_matmul *a, void *at)
{
    planes p = {.terms = waste_tiles_terms(a->w.cols)};
    const size_t n = a->n * p.terms;

    p.group = a->w.group;
    p.groups = a->w.n_groups;
    p.cols = (p.group * p.groups + 63) / 64 * 64;
    p.high = at;
    p.low = p.high + n * (size_t)p.cols;
    p.scale = (float *)(void *)(p.low + n * (size_t)p.cols);
    p.sum = (int32_t *)(void *)(p.scale + n * (size_t)p.groups);
    return p;
}

/* One group of one row: n of its columns exist. rest: NULL, or for what the integers leave
 * of x; may be x. */
static void quantise_group(const float *x, int64_t n, int64_t group, int8_t *high, int8_t *low,
                           float *scale, int32_t *sum, float *rest)
{
    const bytes no_sign = _mm512_set1_epi32(0x7FFFFFFF), round = _mm512_set1_epi32(128);
    bytes most = _mm512_setzero_si512(), total = most;
    __m512 by, step;
    uint32_t bits;
    float top;
    int64_t i;

    for (i = 0; i < n; i += 16)
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(_mm512_maskz_loadu_ps(
                                                           waste_lanes16(n - i), x + i)),
                                                       no_sign));
    bits = _mm512_reduce_max_epu32(most);
    memcpy(&top, &bits, sizeof top);
    if (bits >= 0x7F800000u) {
        memset(high, 0, (size_t)group);
        memset(low, 0, (size_t)group);
        if (rest) memset(rest, 0, (size_t)n * sizeof *rest);
        *scale = NAN;
        *sum = 0;
        return;
    }
    if (top < 1e-30f) top = 1e-30f;
    by = _mm512_set1_ps(WASTE_TILES_STEPS / top);
    step = _mm512_set1_ps(top / WASTE_TILES_STEPS);
    for (i = 0; i < group; i += 16) {
        const __mmask16 there = i < n ? waste_lanes16(n - i) : 0;
        const __mmask16 room = waste_lanes16(group - i);
        const __m512 v = _mm512_maskz_loadu_ps(there, x + i);
        const bytes q = _mm512_cvtps_epi32(_mm512_mul_ps(v, by));

        if (rest)
            _mm512_mask_storeu_ps(rest + i, there,
                                  _mm512_fnmadd_ps(_mm512_cvtepi32_ps(q), step, v));
        total = _mm512_add_epi32(total, q);
        _mm_mask_storeu_epi8(
            high + i, room, _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_add_epi32(q, round), 8)));
        _mm_mask_storeu_epi8(low + i, room, _mm512_cvtepi32_epi8(q));
    }
    *scale = top / WASTE_TILES_STEPS;
    *sum = _mm512_reduce_add_epi32(total);
}

static void activations(const waste_matmul *a, void *to, int64_t lo, int64_t hi)
{
    const planes p = planes_in(a, to);
    float rest[WASTE_TILES_GROUP];
    size_t t, k;
    int64_t g;

    for (t = (size_t)lo; t < (size_t)hi; t++)
        for (g = 0; g < p.groups; g++) {
            const int64_t col = g * p.group, left = a->w.cols - col;
            const float *x = a->x + t * a->x_stride + col;

            for (k = 0; k < p.terms; k++, x = rest) {
                const size_t row = t * p.terms + k, at = row * (size_t)p.cols + (size_t)col;

                quantise_group(x, left < p.group ? left : p.group, p.group, p.high + at, p.low + at,
                               p.scale + row * (size_t)p.groups + g,
                               p.sum + row * (size_t)p.groups + g, k + 1 < p.terms ? rest : NULL);
            }
        }
}

/* ---- tiles ------------------------------------------------------------------- */

/* 4 bytes of activations in every lane. */
static inline bytes four(const int8_t *p)
{
    int32_t u;

    memcpy(&u, p, sizeof u);
    return _mm512_set1_epi32(u);
}

#define NQ_MAX 4
#define NT_MAX 4

/* The columns of a step are multiplied four at a time: one call of this for each. */
#define MULTIPLY(codes, at)                                           \
    do {                                                              \
        for (t = 0; t < nt; t++) {                                    \
            const bytes h_ = four(high + (size_t)t * p->cols + (at)); \
            const bytes l_ = four(low + (size_t)t * p->cols + (at));  \
            for (q = 0; q < nq; q++) {                                \
                d[q][t] = _mm512_dpbusd_epi32(d[q][t], codes[q], h_); \
                e[q][t] = _mm512_dpbusd_epi32(e[q][t], codes[q], l_); \
            }                                                         \
        }                                                             \
    } while (0)

/* nq vectors of 16 rows by nt rows of the batch over all groups of a tile; first_q
 * is the first vector. fmt, nq and nt are constants where this is inlined. */
static inline __attribute__((always_inline)) void tile_part(const planes *p, const unsigned char *w,
                                                            const uint16_t *scales, size_t first,
                                                            int first_q, waste_fmt fmt,
                                                            const int nq, const int nt, int ahead,
                                                            __m512 f[NQ_MAX][NT_MAX])
{
    const bytes nibble = _mm512_set1_epi8(15), two = _mm512_set1_epi8(3),
                third = _mm512_set1_epi8(4);
    const int step = fmt == WASTE_FMT_Q8G ? 4 : fmt == WASTE_FMT_Q4G ? 8 : 32;
    const int step_bytes = fmt == WASTE_FMT_Q3G ? 768 : 256;
    const int64_t steps = p->group / step;
    const int8_t *high = p->high + first * (size_t)p->cols, *low = p->low + first * (size_t)p->cols;
    int64_t g, s;
    int q, t, i;

    for (q = 0; q < nq; q++)
        for (t = 0; t < nt; t++) f[q][t] = _mm512_setzero_ps();
    w += 64 * first_q;
    for (g = 0; g < p->groups; g++) {
        bytes d[NQ_MAX][NT_MAX], e[NQ_MAX][NT_MAX], c[NQ_MAX];

        for (t = 0; t < nt; t++) {
            const bytes start = _mm512_set1_epi32(
                -waste_tiles_offset(fmt) * p->sum[(first + (size_t)t) * (size_t)p->groups + g]);
            for (q = 0; q < nq; q++) {
                d[q][t] = _mm512_setzero_si512();
                e[q][t] = start;
            }
        }
        for (s = 0; s < steps; s++, w += step_bytes, high += step, low += step) {
            bytes v[NQ_MAX];

            if (ahead)
                for (i = 0; i < step_bytes / 256; i++)
                    for (q = 0; q < nq; q++)
                        _mm_prefetch((const char *)w + AHEAD + 256 * i + 64 * q, _MM_HINT_T0);
            for (q = 0; q < nq; q++) v[q] = load(w + 64 * q);
            if (fmt == WASTE_FMT_Q8G) {
                MULTIPLY(v, 0);
            } else if (fmt == WASTE_FMT_Q4G) {
                for (q = 0; q < nq; q++) c[q] = _mm512_and_si512(v[q], nibble);
                MULTIPLY(c, 0);
                for (q = 0; q < nq; q++)
                    c[q] = _mm512_and_si512(_mm512_srli_epi16(v[q], 4), nibble);
                MULTIPLY(c, 4);
            } else {
                bytes u[NQ_MAX];

                for (q = 0; q < nq; q++) u[q] = load(w + 512 + 64 * q);
                for (i = 0; i < 8; i++) {
                    if (i == 4)
                        for (q = 0; q < nq; q++) v[q] = load(w + 256 + 64 * q);
                    for (q = 0; q < nq; q++) {
                        const bytes lo = _mm512_and_si512(
                            _mm512_srl_epi16(v[q], _mm_cvtsi32_si128(2 * (i % 4))), two);
                        const bytes up = i < 2 ? _mm512_slli_epi16(u[q], i < 2 ? 2 - i : 0)
                                               : _mm512_srl_epi16(u[q], _mm_cvtsi32_si128(i - 2));
                        /* lo | (up & third) */
                        c[q] = _mm512_ternarylogic_epi32(lo, up, third, 0xF8);
                    }
                    MULTIPLY(c, 4 * i);
                }
            }
        }
        for (q = 0; q < nq; q++) {
            const __m512 ws = _mm512_cvtph_ps(_mm256_loadu_si256((
                const __m256i *)(const void *)(scales + g * WASTE_TILE_ROWS + 16 * (first_q + q))));

            for (t = 0; t < nt; t++) {
                const __m512 xs =
                    _mm512_set1_ps(p->scale[(first + (size_t)t) * (size_t)p->groups + g]);
                const bytes sum = _mm512_add_epi32(_mm512_slli_epi32(d[q][t], 8), e[q][t]);

                f[q][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(ws, xs), f[q][t]);
            }
        }
    }
}

typedef struct tile {
    const waste_matmul *a;
    const planes *p;
    const unsigned char *w;
    const uint16_t *scales;
    int64_t row, lo, hi; /* first row of the tile; the part asked for */
} tile;

/* Sums of 16 rows from row `row` on, of nt rows of integers from number `first` on, go to
 * their rows of the batch. */
static inline void put(const tile *t, size_t first, int64_t row, const __m512 *f, int nt)
{
    const __mmask16 m = waste_inside16(row, t->lo, t->hi);
    const size_t terms = t->p->terms;
    size_t k;

    for (k = 0; k < (size_t)nt; k += terms)
        _mm512_mask_storeu_ps(waste_tiles_result(t->a, (first + k) / terms) + row, m,
                              terms == 2 ? _mm512_add_ps(f[k], f[k + 1]) : f[k]);
}

/* A tile for n rows of integers: two vectors by four rows, as many sums as registers
 * hold; what is left, four vectors by one row. */
static inline __attribute__((always_inline)) void run_tile(const tile *t, size_t n, waste_fmt fmt)
{
    __m512 f[NQ_MAX][NT_MAX];
    size_t i = 0;
    int q;

    for (; i + 4 <= n; i += 4) {
        tile_part(t->p, t->w, t->scales, i, 0, fmt, 2, 4, i == 0, f);
        for (q = 0; q < 2; q++) put(t, i, t->row + 16 * q, f[q], 4);
        tile_part(t->p, t->w, t->scales, i, 2, fmt, 2, 4, i == 0, f);
        for (q = 0; q < 2; q++) put(t, i, t->row + 32 + 16 * q, f[q], 4);
    }
    for (; i + 2 <= n; i += 2) {
        tile_part(t->p, t->w, t->scales, i, 0, fmt, 4, 2, i == 0, f);
        for (q = 0; q < 4; q++) put(t, i, t->row + 16 * q, f[q], 2);
    }
    for (; i < n; i++) {
        tile_part(t->p, t->w, t->scales, i, 0, fmt, 4, 1, i == 0, f);
        for (q = 0; q < 4; q++) put(t, i, t->row + 16 * q, f[q], 1);
    }
}

static void run_q8(const tile *t, size_t n)
{
    run_tile(t, n, WASTE_FMT_Q8G);
}

static void run_q4(const tile *t, size_t n)
{
    run_tile(t, n, WASTE_FMT_Q4G);
}

static void run_q3(const tile *t, size_t n)
{
    run_tile(t, n, WASTE_FMT_Q3G);
}

/* ---- rows as stored ------------------------------------------------------------ */

/* Row o of a tiled matrix that is in no tile, for row t of integers: the integers
 * and the f32 operations of a tile's lane. */
static float term_as_stored(const waste_matrix *w, const planes *p, int64_t o, size_t t)
{
    const unsigned char *row = (const unsigned char *)w->data + o * w->row_bytes;
    const size_t at = t * (size_t)p->cols;
    float f = 0;
    int64_t g, i;

    for (g = 0; g < p->groups; g++) {
        const int32_t sum = p->sum[t * (size_t)p->groups + (size_t)g];
        const float by =
            _cvtsh_ss(w->scales[o * w->n_groups + g]) * p->scale[t * (size_t)p->groups + (size_t)g];
        bytes d = _mm512_setzero_si512(), e = d;
        uint32_t total;

        for (i = 0; i < p->group; i += 64) {
            const int64_t n = p->group - i < 64 ? p->group - i : 64;
            const __mmask64 m = n >= 64 ? ~0ull : (1ull << n) - 1;
            const size_t x = at + (size_t)(g * p->group + i);
            const bytes c = waste_codes64(w->fmt, row, g * p->group + i, n);

            d = _mm512_dpbusd_epi32(d, c, _mm512_maskz_loadu_epi8(m, p->high + x));
            e = _mm512_dpbusd_epi32(e, c, _mm512_maskz_loadu_epi8(m, p->low + x));
        }
        total = ((uint32_t)_mm512_reduce_add_epi32(d) << 8) + (uint32_t)_mm512_reduce_add_epi32(e) -
                (uint32_t)waste_tiles_offset(w->fmt) * (uint32_t)sum;
        f = fmaf((float)(int32_t)total, by, f);
    }
    return f;
}

static float row_as_stored(const waste_matrix *w, const planes *p, int64_t o, size_t t)
{
    const float f = term_as_stored(w, p, o, t * p->terms);

    return p->terms == 2 ? f + term_as_stored(w, p, o, t * p->terms + 1) : f;
}

static void matmul_tiled(const waste_matmul *a, int64_t lo, int64_t hi)
{
    const waste_matrix *w = &a->w;
    const int64_t tiled = waste_tiles_rows(w);
    const planes p = planes_in(a, (void *)(uintptr_t)a->activations); /* only read */
    const size_t n = a->n * p.terms;
    int64_t o;
    size_t i;

    for (o = lo / WASTE_TILE_ROWS * WASTE_TILE_ROWS; o < hi && o < tiled; o += WASTE_TILE_ROWS) {
        const tile t = {a,
                        &p,
                        (const unsigned char *)w->data + o * w->row_bytes,
                        w->scales + o * w->n_groups,
                        o,
                        lo,
                        hi};

        if (w->fmt == WASTE_FMT_Q8G)
            run_q8(&t, n);
        else if (w->fmt == WASTE_FMT_Q4G)
            run_q4(&t, n);
        else
            run_q3(&t, n);
    }
    for (o = lo > tiled ? lo : tiled; o < hi; o++)
        for (i = 0; i < a->n; i++) waste_tiles_result(a, i)[o] = row_as_stored(w, &p, o, i);
}

/* ---- F32 ------------------------------------------------------------------------- */

/* Four rows of w by one row of x. */
static void dots4(const float *w, int64_t stride, const float *x, int64_t n, float y[4])
{
    __m512 s[4];
    int64_t i;
    int r;

    for (r = 0; r < 4; r++) s[r] = _mm512_setzero_ps();
    for (i = 0; i < n; i += 16) {
        const __mmask16 m = waste_lanes16(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);

        for (r = 0; r < 4; r++)
            s[r] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, w + r * stride + i), v, s[r]);
    }
    for (r = 0; r < 4; r++) y[r] = _mm512_reduce_add_ps(s[r]);
}

static void matmul_f32(const waste_matmul *a, int64_t lo, int64_t hi)
{
    const int64_t cols = a->w.cols;
    const float *w = a->w.data;
    float y[4];
    int64_t o, r;
    size_t t;

    for (o = lo; o < hi; o += 4) {
        const int64_t at = o + 4 <= hi || hi - lo < 4 ? o : hi - 4;

        for (t = 0; t < a->n; t++) {
            const float *x = a->x + t * a->x_stride;

            if (at + 4 <= hi) {
                dots4(w + at * cols, cols, x, cols, y);
                for (r = 0; r < 4; r++) waste_tiles_result(a, t)[at + r] = y[r];
            } else {
                for (r = at; r < hi; r++) {
                    dots4(w + r * cols, 0, x, cols, y);
                    waste_tiles_result(a, t)[r] = y[0];
                }
            }
        }
    }
}

static void matmul(const waste_matmul *a, int64_t lo, int64_t hi)
{
    waste_kernels plain;

    if (a->w.tiled) {
        matmul_tiled(a, lo, hi);
    } else if (a->w.fmt == WASTE_FMT_F32) {
        matmul_f32(a, lo, hi);
    } else {
        waste_kernels_ref(&plain);
        plain.matmul(a, lo, hi);
    }
}

void waste_kernels_avx512_trunk(waste_kernels *k)
{
    k->matmul = matmul;
    k->pack_matrix = waste_tiles_pack;
    k->activations = activations;
}

#endif
