/* Trunk matrices on AVX2: see kernels.h and tiles.h. No state, any thread.
 *
 * The integers and the f32 operations of kernels_avx512_trunk.c, hence its bits and
 * its bound: activations of 16 bits with a scale per group, exact sums in 32 bits.
 * Here codes are widened to 16 bits and multiplied by vpmaddwd, which needs no
 * planes. F32 and what pack_matrix left alone is the plain table's. */
#include "kernels/kernels_avx2.h"

#if WASTE_HAVE_AVX2

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels_ref.h"
#include "kernels/tiles.h"

#define STEPS_MAX 32639.0f
#define GROUP_MAX 256

typedef __m256i bytes;

static bytes load(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* ---- activations ------------------------------------------------------------ */

typedef struct activations {
    int16_t *q;   /* [n][cols]: cols padded to whole groups */
    float *scale; /* [n][groups] */
    int32_t *sum; /* [n][groups] of q */
    size_t cols, groups;
} activations;

static activations activations_in(const waste_matmul *a, void *at)
{
    activations x;

    x.groups = (size_t)a->w.n_groups;
    x.cols = x.groups * (size_t)a->w.group;
    x.q = at;
    x.scale = (float *)(void *)(x.q + a->n * x.cols); /* whole groups of 4 at least */
    x.sum = (int32_t *)(void *)(x.scale + a->n * x.groups);
    return x;
}

/* One group of one row: n of its columns exist. */
static void quantise_group(const float *from, size_t n, size_t group, int16_t *q, float *scale,
                           int32_t *sum)
{
    float x[GROUP_MAX], top;
    uint32_t most = 0, u;
    int32_t total = 0;
    __m256 by;
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
    if (most >= 0x7F800000u) return;
    memcpy(&top, &most, sizeof top);
    if (top < 1e-30f) top = 1e-30f;
    by = _mm256_set1_ps(STEPS_MAX / top);
    for (i = 0; i < group; i += 8) {
        const bytes v = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), by));
        int32_t w[8];
        size_t j;

        _mm256_storeu_si256((bytes *)(void *)w, v);
        for (j = 0; j < 8 && i + j < group; j++) {
            q[i + j] = (int16_t)w[j];
            total += w[j];
        }
    }
    *scale = top / STEPS_MAX;
    *sum = total;
}

static void make_activations(const waste_matmul *a, void *to, int64_t lo, int64_t hi)
{
    const activations x = activations_in(a, to);
    const size_t group = (size_t)a->w.group;
    size_t t, g;

    for (t = (size_t)lo; t < (size_t)hi; t++)
        for (g = 0; g < x.groups; g++) {
            const size_t left = (size_t)a->w.cols - g * group;

            quantise_group(a->x + t * a->x_stride + g * group, left < group ? left : group, group,
                           x.q + t * x.cols + g * group, x.scale + t * x.groups + g,
                           x.sum + t * x.groups + g);
        }
}

static int offset_of(waste_fmt fmt)
{
    return fmt == WASTE_FMT_Q8G ? 128 : fmt == WASTE_FMT_Q4G ? 8 : 4;
}

/* ---- tiles ------------------------------------------------------------------- */

#define NQ_MAX 4
#define NT_MAX 2

/* Sums of 8 rows by one row of the batch: two columns to a lane, rows 0 1 4 5 and
 * 2 3 6 7 of them. */
typedef struct sums {
    bytes a, b;
} sums;

static inline __attribute__((always_inline)) void multiply(sums s[NQ_MAX][NT_MAX], const bytes *c,
                                                           const int16_t *q, size_t cols, int nq,
                                                           int nt)
{
    const bytes zero = _mm256_setzero_si256();
    bytes x[NT_MAX];
    int64_t u;
    int i, t;

    for (t = 0; t < nt; t++) {
        memcpy(&u, q + (size_t)t * cols, sizeof u);
        x[t] = _mm256_set1_epi64x(u);
    }
    for (i = 0; i < nq; i++) {
        const bytes lo = _mm256_unpacklo_epi8(c[i], zero), hi = _mm256_unpackhi_epi8(c[i], zero);

        for (t = 0; t < nt; t++) {
            s[i][t].a = _mm256_add_epi32(s[i][t].a, _mm256_madd_epi16(lo, x[t]));
            s[i][t].b = _mm256_add_epi32(s[i][t].b, _mm256_madd_epi16(hi, x[t]));
        }
    }
}

/* nq vectors of 8 rows, the first being number `v0` of a tile's 8, by nt rows of the
 * batch from row `first` on. fmt, nq and nt are constants where this is inlined. */
static inline __attribute__((always_inline)) void tile_part(
    const activations *x, const waste_matrix *m, const unsigned char *w, const uint16_t *scales,
    size_t first, int v0, const waste_fmt fmt, const int nq, const int nt, __m256 f[NQ_MAX][NT_MAX])
{
    const bytes nibble = _mm256_set1_epi8(15), two = _mm256_set1_epi8(3),
                third = _mm256_set1_epi8(4);
    const int step = fmt == WASTE_FMT_Q8G ? 4 : fmt == WASTE_FMT_Q4G ? 8 : 32;
    const int step_bytes = fmt == WASTE_FMT_Q3G ? 768 : 256;
    const int64_t steps = m->group / step;
    const int16_t *q = x->q + first * x->cols;
    size_t g;
    int64_t s;
    int i, t, k;

    for (i = 0; i < nq; i++)
        for (t = 0; t < nt; t++) f[i][t] = _mm256_setzero_ps();
    w += 32 * v0;
    for (g = 0; g < x->groups; g++) {
        sums sum[NQ_MAX][NT_MAX];

        for (i = 0; i < nq; i++)
            for (t = 0; t < nt; t++) sum[i][t].a = sum[i][t].b = _mm256_setzero_si256();
        for (s = 0; s < steps; s++, w += step_bytes, q += step) {
            bytes v[NQ_MAX], c[NQ_MAX];

            for (i = 0; i < nq; i++) v[i] = load(w + 32 * i);
            if (fmt == WASTE_FMT_Q8G) {
                multiply(sum, v, q, x->cols, nq, nt);
            } else if (fmt == WASTE_FMT_Q4G) {
                for (i = 0; i < nq; i++) c[i] = _mm256_and_si256(v[i], nibble);
                multiply(sum, c, q, x->cols, nq, nt);
                for (i = 0; i < nq; i++)
                    c[i] = _mm256_and_si256(_mm256_srli_epi16(v[i], 4), nibble);
                multiply(sum, c, q + 4, x->cols, nq, nt);
            } else {
                for (k = 0; k < 8; k++) {
                    for (i = 0; i < nq; i++) {
                        const bytes low = load(w + 32 * i + (k < 4 ? 0 : 256));
                        const bytes up = load(w + 32 * i + 512);

                        c[i] = _mm256_and_si256(
                            _mm256_srl_epi16(low, _mm_cvtsi32_si128(2 * (k % 4))), two);
                        c[i] = _mm256_or_si256(
                            c[i],
                            _mm256_and_si256(k < 2 ? _mm256_sll_epi16(up, _mm_cvtsi32_si128(2 - k))
                                                   : _mm256_srl_epi16(up, _mm_cvtsi32_si128(k - 2)),
                                             third));
                    }
                    multiply(sum, c, q + 4 * k, x->cols, nq, nt);
                }
            }
        }
        for (i = 0; i < nq; i++) {
            const __m256 ws = _mm256_cvtph_ps(
                _mm_loadu_si128((const __m128i *)(const void *)(scales + g * WASTE_TILE_ROWS +
                                                                8 * (size_t)(v0 + i))));

            for (t = 0; t < nt; t++) {
                const size_t at = (first + (size_t)t) * x->groups + g;
                const bytes total =
                    _mm256_sub_epi32(_mm256_hadd_epi32(sum[i][t].a, sum[i][t].b),
                                     _mm256_set1_epi32(offset_of(fmt) * x->sum[at]));

                f[i][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total),
                                          _mm256_mul_ps(ws, _mm256_set1_ps(x->scale[at])), f[i][t]);
            }
        }
    }
}

static float *row_of(const waste_matmul *a, size_t t)
{
    return a->y_rows ? a->y_rows[t] : a->y + t * a->y_stride;
}

/* Rows row..row+8 of the result, as far as they lie in [lo, hi). */
static void put(float *y, int64_t row, int64_t lo, int64_t hi, __m256 f)
{
    float v[8];
    int i;

    if (row >= lo && row + 8 <= hi) {
        _mm256_storeu_ps(y + row, f);
        return;
    }
    _mm256_storeu_ps(v, f);
    for (i = 0; i < 8; i++)
        if (row + i >= lo && row + i < hi) y[row + i] = v[i];
}

/* A tile, whose first row is `row`, for all rows of the batch. */
static inline __attribute__((always_inline)) void run_tile(const waste_matmul *a,
                                                           const activations *x, int64_t row,
                                                           int64_t lo, int64_t hi,
                                                           const waste_fmt fmt)
{
    const unsigned char *w = (const unsigned char *)a->w.data + row * a->w.row_bytes;
    const uint16_t *scales = a->w.scales + row * a->w.n_groups;
    __m256 f[NQ_MAX][NT_MAX];
    size_t t = 0;
    int v, i, k;

    for (; t + 2 <= a->n; t += 2)
        for (v = 0; v < 8; v += 2) {
            tile_part(x, &a->w, w, scales, t, v, fmt, 2, 2, f);
            for (i = 0; i < 2; i++)
                for (k = 0; k < 2; k++)
                    put(row_of(a, t + (size_t)k), row + 8 * (v + i), lo, hi, f[i][k]);
        }
    for (; t < a->n; t++)
        for (v = 0; v < 8; v += 4) {
            tile_part(x, &a->w, w, scales, t, v, fmt, 4, 1, f);
            for (i = 0; i < 4; i++) put(row_of(a, t), row + 8 * (v + i), lo, hi, f[i][0]);
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

/* Row o of a tiled matrix that is in no tile, for row t of x. */
static float row_as_stored(const waste_matrix *w, const activations *x, int64_t o, size_t t)
{
    const unsigned char *row = (const unsigned char *)w->data + o * w->row_bytes;
    int16_t c[GROUP_MAX];
    float f = 0;
    size_t g;
    int64_t i;

    for (g = 0; g < x->groups; g++) {
        const int16_t *q = x->q + t * x->cols + g * (size_t)w->group;
        const float by =
            _cvtsh_ss(w->scales[o * w->n_groups + (int64_t)g]) * x->scale[t * x->groups + g];
        int32_t sum = 0; /* below 128 * 32639 * 256 */

        codes_of(w->fmt, row, (int64_t)g * w->group, w->group, c);
        for (i = 0; i < w->group; i++) sum += c[i] * q[i];
        f = fmaf((float)sum, by, f);
    }
    return f;
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
        for (i = 0; i < a->n; i++) row_of(a, i)[o] = row_as_stored(w, &x, o, i);
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
