/* Trunk matrices on AVX2: see kernels.h and tiles.h. No state, any thread.
 *
 * The integers and the f32 operations of kernels_avx512_trunk.c, hence its bits and
 * its bound: activations of 16 bits with a scale per group, exact sums in 32 bits.
 * Here codes are widened to 16 bits and multiplied by vpmaddwd, which needs no
 * planes: for a few rows of the batch as they are read, for more once for many rows.
 * F32 and what pack_matrix left alone is the plain table's. */
#include "kernels/kernels_avx2.h"

#if WASTE_HAVE_AVX2

#include <math.h>
#include <string.h>

#include "kernels/kernels_ref.h"
#include "kernels/tiles.h"

typedef __m256i bytes;

static bytes load(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* ---- activations ------------------------------------------------------------ */

typedef struct activations {
    int16_t *q;   /* [n][cols], by place_of; cols padded to whole groups */
    float *scale; /* [n][groups] */
    int32_t *sum; /* [n][groups] of q */
    size_t cols, groups;
    size_t n, terms; /* rows of integers, and how many to a row of the batch (tiles.h) */
} activations;

static activations activations_in(const waste_matmul *a, void *at)
{
    activations x;

    x.terms = waste_tiles_terms(a->w.cols);
    x.n = a->n * x.terms;
    x.groups = (size_t)a->w.n_groups;
    x.cols = x.groups * (size_t)a->w.group;
    x.q = at;
    x.scale = (float *)(void *)(x.q + x.n * x.cols); /* whole groups of 4 at least */
    x.sum = (int32_t *)(void *)(x.scale + x.n * x.groups);
    return x;
}

/* Where column i stands: of four, the first and the third come first. A 16-bit half of
 * the four bytes that hold a row's codes gives both with one mask or one shift. */
static inline size_t place_of(size_t i)
{
    return (i & ~(size_t)3) | (i & 1) << 1 | (i >> 1 & 1);
}

/* One group of one row: n of its columns exist. rest: NULL, or for what the integers leave
 * of them, in whole vectors; may be `from`. */
static void quantise_group(const float *from, size_t n, size_t group, int16_t *q, float *scale,
                           int32_t *sum, float *rest)
{
    float x[WASTE_TILES_GROUP], top;
    uint32_t most = 0, u;
    int32_t total = 0;
    vec by, step;
    size_t i;

    memset(x, 0, sizeof x);
    memcpy(x, from, n * sizeof *x);
    for (i = 0; i < n; i++) { /* as integers, so that NaN counts as largest */
        memcpy(&u, &x[i], sizeof u);
        u &= 0x7FFFFFFF;
        if (u > most) most = u;
    }
    memset(q, 0, group * sizeof *q);
    *sum = 0;
    *scale = NAN;
    if (most >= 0x7F800000u) {
        if (rest) memset(rest, 0, n * sizeof *rest);
        return;
    }
    memcpy(&top, &most, sizeof top);
    if (top < 1e-30f) top = 1e-30f;
    by = vec_set(WASTE_TILES_STEPS / top);
    step = vec_set(top / WASTE_TILES_STEPS);
    for (i = 0; i < group; i += 8) {
        const bytes v = _mm256_cvtps_epi32(vec_load(x + i) * by);
        int32_t w[8];
        size_t j;

        if (rest) vec_store(rest + i, vec_fnma(_mm256_cvtepi32_ps(v), step, vec_load(x + i)));
        _mm256_storeu_si256((bytes *)(void *)w, v);
        for (j = 0; j < 8 && i + j < group; j++) {
            q[place_of(i + j)] = (int16_t)w[j];
            total += w[j];
        }
    }
    *scale = top / WASTE_TILES_STEPS;
    *sum = total;
}

static void make_activations(const waste_matmul *a, void *to, int64_t lo, int64_t hi)
{
    const activations x = activations_in(a, to);
    const size_t group = (size_t)a->w.group;
    float rest[WASTE_TILES_GROUP];
    size_t t, g, k;

    for (t = (size_t)lo; t < (size_t)hi; t++)
        for (g = 0; g < x.groups; g++) {
            const size_t left = (size_t)a->w.cols - g * group;
            const float *from = a->x + t * a->x_stride + g * group;

            for (k = 0; k < x.terms; k++, from = rest) {
                const size_t row = t * x.terms + k;

                quantise_group(from, left < group ? left : group, group,
                               x.q + row * x.cols + g * group, x.scale + row * x.groups + g,
                               x.sum + row * x.groups + g, k + 1 < x.terms ? rest : NULL);
            }
        }
}

/* ---- tiles ------------------------------------------------------------------- */

#define VECTORS 8  /* of rows in a tile */
#define HALF    4  /* of them, that have their sums in registers */
#define DIRECT  2  /* rows of integers that take codes as they are met */
#define BATCH   24 /* that share widened codes: all that a group needs stays in L1 */
#define PASS    2  /* of these that have their sums in registers */

/* Columns of a step, and bytes of it in a tile (tiles.h). */
INLINE int64_t step_of(const waste_fmt fmt)
{
    return fmt == WASTE_FMT_Q8G ? 4 : fmt == WASTE_FMT_Q4G ? 8 : 32;
}

INLINE size_t step_bytes(const waste_fmt fmt)
{
    return fmt == WASTE_FMT_Q3G ? 768 : 256;
}

/* Codes of 8 rows as vectors of 16 bits, two columns to a row, in the order of the
 * activations: step / 2 of them, from one step of a tile. w: at these rows. */
INLINE void widen(const unsigned char *w, const waste_fmt fmt, bytes *to)
{
    const bytes low = _mm256_set1_epi16(15), byte = _mm256_set1_epi16(255);
    const bytes v = load(w);
    int k;

    if (fmt == WASTE_FMT_Q8G) {
        to[0] = _mm256_and_si256(v, byte);
        to[1] = _mm256_srli_epi16(v, 8);
    } else if (fmt == WASTE_FMT_Q4G) {
        to[0] = _mm256_and_si256(v, low);
        to[1] = _mm256_and_si256(_mm256_srli_epi16(v, 8), low);
        to[2] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
        to[3] = _mm256_srli_epi16(v, 12);
    } else {
        const bytes rest = load(w + 256), third = load(w + 512);
        const bytes two = _mm256_set1_epi8(3), four = _mm256_set1_epi8(4);

#pragma GCC unroll 8
        for (k = 0; k < 8; k++) {
            const bytes up = k < 2 ? _mm256_slli_epi16(third, 2 - k)
                                   : _mm256_srli_epi16(third, k < 2 ? 0 : k - 2);
            const bytes c = _mm256_or_si256(
                _mm256_and_si256(_mm256_srli_epi16(k < 4 ? v : rest, 2 * (k % 4)), two),
                _mm256_and_si256(up, four));

            to[2 * k] = _mm256_and_si256(c, byte);
            to[2 * k + 1] = _mm256_srli_epi16(c, 8);
        }
    }
}

/* Two activations in all lanes. */
INLINE bytes both(const int16_t *q)
{
    int32_t u;

    memcpy(&u, q, sizeof u);
    return _mm256_set1_epi32(u);
}

INLINE bytes multiply_add(bytes s, bytes c, bytes x)
{
    return _mm256_add_epi32(s, _mm256_madd_epi16(c, x));
}

/* Adds a group's integer sums of 8 rows to f. ws: the rows' scales; at: number of the
 * activations' group. */
INLINE vec fold(vec f, bytes sum, vec ws, const activations *x, size_t at, const waste_fmt fmt)
{
    const bytes total =
        _mm256_sub_epi32(sum, _mm256_set1_epi32(waste_tiles_offset(fmt) * x->sum[at]));

    return vec_fma(_mm256_cvtepi32_ps(total), ws * vec_set(x->scale[at]), f);
}

/* Group g of HALF vectors of rows, for nt rows of integers from `first` on: codes
 * are widened as they are met. f: [nt][VECTORS]. */
INLINE void group_direct(const activations *x, const unsigned char *w, int64_t group, size_t g,
                         size_t first, const vec *ws, const waste_fmt fmt, const int nt, vec *f)
{
    const int16_t *q = x->q + first * x->cols + g * (size_t)group;
    const int pairs = (int)step_of(fmt) / 2;
    bytes s[DIRECT][HALF];
    int64_t at;
    int i, t, k;

    for (t = 0; t < nt; t++)
        for (i = 0; i < HALF; i++) s[t][i] = _mm256_setzero_si256();
    for (at = 0; at < group; at += step_of(fmt), w += step_bytes(fmt), q += step_of(fmt))
#pragma GCC unroll 4
        for (i = 0; i < HALF; i++) {
            bytes c[16];

            widen(w + 32 * i, fmt, c);
#pragma GCC unroll 16
            for (k = 0; k < pairs; k++)
                for (t = 0; t < nt; t++)
                    s[t][i] = multiply_add(s[t][i], c[k], both(q + (size_t)t * x->cols + 2 * k));
        }
    for (t = 0; t < nt; t++)
        for (i = 0; i < HALF; i++)
            f[VECTORS * t + i] = fold(f[VECTORS * t + i], s[t][i], ws[i], x,
                                      (first + (size_t)t) * x->groups + g, fmt);
}

/* [group / 2][HALF] vectors of codes */
INLINE void widen_group(const unsigned char *w, int64_t group, const waste_fmt fmt, bytes *to)
{
    const int pairs = (int)step_of(fmt) / 2;
    int64_t at;
    int i, k;

    for (at = 0; at < group; at += step_of(fmt), w += step_bytes(fmt), to += pairs * HALF)
        for (i = 0; i < HALF; i++) {
            bytes c[16];

            widen(w + 32 * i, fmt, c);
#pragma GCC unroll 16
            for (k = 0; k < pairs; k++) to[k * HALF + i] = c[k];
        }
}

/* As group_direct, for nt <= PASS rows, with codes that are widened already. */
INLINE void group_widened(const activations *x, const bytes *c, int64_t group, size_t g,
                          size_t first, const vec *ws, const waste_fmt fmt, const int nt, vec *f)
{
    const int16_t *q = x->q + first * x->cols + g * (size_t)group;
    bytes s[PASS][HALF];
    int64_t at;
    int i, t;

    for (t = 0; t < nt; t++)
        for (i = 0; i < HALF; i++) s[t][i] = _mm256_setzero_si256();
    for (at = 0; at < group; at += 2, c += HALF, q += 2) {
        bytes p[PASS];

        for (t = 0; t < nt; t++) p[t] = both(q + (size_t)t * x->cols);
#pragma GCC unroll 4
        for (i = 0; i < HALF; i++) {
            const bytes v = c[i];

            for (t = 0; t < nt; t++) s[t][i] = multiply_add(s[t][i], v, p[t]);
        }
    }
    for (t = 0; t < nt; t++)
        for (i = 0; i < HALF; i++)
            f[VECTORS * t + i] = fold(f[VECTORS * t + i], s[t][i], ws[i], x,
                                      (first + (size_t)t) * x->groups + g, fmt);
}

/* A tile by n <= BATCH rows of integers from `first` on; f: [n][VECTORS]. Groups go
 * outermost, so that the tile is read once and in order. */
INLINE void tile(const activations *x, const waste_matrix *m, const unsigned char *w,
                 const uint16_t *scales, size_t first, size_t n, vec *f, const waste_fmt fmt)
{
    const size_t group_bytes = (size_t)(m->group / step_of(fmt)) * step_bytes(fmt);
    bytes c[WASTE_TILES_GROUP / 2 * HALF];
    size_t g, t;
    int i, v;

    for (t = 0; t < n * VECTORS; t++) f[t] = vec_set(0.0f);
    for (g = 0; g < x->groups; g++, w += group_bytes, scales += WASTE_TILE_ROWS)
        for (v = 0; v < VECTORS; v += HALF) {
            const unsigned char *from = w + 32 * v;
            vec ws[HALF];

            for (i = 0; i < HALF; i++) ws[i] = vec_f16(scales + 8 * (v + i));
            if (n == 1) {
                group_direct(x, from, m->group, g, first, ws, fmt, 1, f + v);
            } else if (n == 2) {
                group_direct(x, from, m->group, g, first, ws, fmt, 2, f + v);
            } else {
                widen_group(from, m->group, fmt, c);
                for (t = 0; t + PASS <= n; t += PASS)
                    group_widened(x, c, m->group, g, first + t, ws, fmt, PASS, f + VECTORS * t + v);
                for (; t < n; t++)
                    group_widened(x, c, m->group, g, first + t, ws, fmt, 1, f + VECTORS * t + v);
            }
        }
}

/* A tile, whose first row is `row`, for all rows of the batch. */
INLINE void run_tile(const waste_matmul *a, const activations *x, int64_t row, int64_t lo,
                     int64_t hi, const waste_fmt fmt)
{
    const unsigned char *w = (const unsigned char *)a->w.data + row * a->w.row_bytes;
    const uint16_t *scales = a->w.scales + row * a->w.n_groups;
    vec f[BATCH * VECTORS];
    size_t first, n, t, v;

    for (first = 0; first < x->n; first += n) {
        n = x->n - first < BATCH ? x->n - first : BATCH;
        tile(x, &a->w, w, scales, first, n, f, fmt);
        for (t = 0; t < n; t += x->terms)
            for (v = 0; v < VECTORS; v++) {
                const vec *at = f + VECTORS * t + v;

                vec_store_inside(waste_tiles_result(a, (first + t) / x->terms),
                                 row + 8 * (int64_t)v, lo, hi,
                                 x->terms == 2 ? _mm256_add_ps(at[0], at[VECTORS]) : at[0]);
            }
    }
}

static void run_q8(const waste_matmul *a, const activations *x, int64_t row, int64_t lo, int64_t hi)
{
    run_tile(a, x, row, lo, hi, WASTE_FMT_Q8G);
}

static void run_q4(const waste_matmul *a, const activations *x, int64_t row, int64_t lo, int64_t hi)
{
    run_tile(a, x, row, lo, hi, WASTE_FMT_Q4G);
}

static void run_q3(const waste_matmul *a, const activations *x, int64_t row, int64_t lo, int64_t hi)
{
    run_tile(a, x, row, lo, hi, WASTE_FMT_Q3G);
}

/* ---- rows as stored ------------------------------------------------------------ */

static void codes_of(waste_fmt fmt, const unsigned char *row, int64_t at, int64_t n, int16_t *c)
{
    int64_t i;

    if (fmt == WASTE_FMT_Q8G) {
        for (i = 0; i < n; i++) c[i] = (int8_t)row[at + i];
    } else if (fmt == WASTE_FMT_Q4G) { /* groups are whole bytes */
        for (i = 0; i < n / 2; i++) {
            c[2 * i] = (int16_t)((row[at / 2 + i] & 15) - 8);
            c[2 * i + 1] = (int16_t)((row[at / 2 + i] >> 4) - 8);
        }
    } else {
        for (i = 0; i < n; i++) c[i] = (int16_t)waste_tiles_code(fmt, row, at + i);
    }
}

/* Row o of a tiled matrix that is in no tile, for row t of integers. */
static float term_as_stored(const waste_matrix *w, const activations *x, int64_t o, size_t t)
{
    const unsigned char *row = (const unsigned char *)w->data + o * w->row_bytes;
    int16_t c[WASTE_TILES_GROUP];
    float f = 0;
    size_t g;
    int64_t i;

    for (g = 0; g < x->groups; g++) {
        const int16_t *q = x->q + t * x->cols + g * (size_t)w->group;
        const float by =
            _cvtsh_ss(w->scales[o * w->n_groups + (int64_t)g]) * x->scale[t * x->groups + g];
        int32_t sum = 0; /* below 128 * 32639 * 256 */

        codes_of(w->fmt, row, (int64_t)g * w->group, w->group, c);
        for (i = 0; i < w->group; i++) sum += c[i] * q[place_of((size_t)i)];
        f = fmaf((float)sum, by, f);
    }
    return f;
}

static float row_as_stored(const waste_matrix *w, const activations *x, int64_t o, size_t t)
{
    const float f = term_as_stored(w, x, o, t * x->terms);

    return x->terms == 2 ? f + term_as_stored(w, x, o, t * x->terms + 1) : f;
}

static void matmul_tiled(const waste_matmul *a, int64_t lo, int64_t hi)
{
    const waste_matrix *w = &a->w;
    const int64_t tiled = waste_tiles_rows(w);
    const activations x = activations_in(a, (void *)(uintptr_t)a->activations); /* only read */
    int64_t o;
    size_t i;

    for (o = lo / WASTE_TILE_ROWS * WASTE_TILE_ROWS; o < hi && o < tiled; o += WASTE_TILE_ROWS) {
        if (w->fmt == WASTE_FMT_Q8G)
            run_q8(a, &x, o, lo, hi);
        else if (w->fmt == WASTE_FMT_Q4G)
            run_q4(a, &x, o, lo, hi);
        else
            run_q3(a, &x, o, lo, hi);
    }
    for (o = lo > tiled ? lo : tiled; o < hi; o++)
        for (i = 0; i < a->n; i++) waste_tiles_result(a, i)[o] = row_as_stored(w, &x, o, i);
}

static void matmul(const waste_matmul *a, int64_t lo, int64_t hi)
{
    waste_kernels plain;

    if (a->w.tiled) {
        matmul_tiled(a, lo, hi);
    } else {
        waste_kernels_ref(&plain);
        plain.matmul(a, lo, hi);
    }
}

void waste_kernels_avx2_trunk(waste_kernels *k)
{
    k->matmul = matmul;
    k->pack_matrix = waste_tiles_pack;
    k->activations = make_activations;
}

#endif
