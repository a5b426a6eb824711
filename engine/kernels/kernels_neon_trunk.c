/* Trunk matrices on NEON: see kernels.h and tiles.h. No state, any thread.
 *
 * The integers and the f32 operations of kernels_avx512_trunk.c, hence its bits and
 * its bound: activations of 16 bits with a scale per group, exact sums in 32 bits.
 * Here codes are widened to 16 bits and multiplied by SMLAL; kernels_neon_dot.c has
 * SDOT instead. F32 and what pack_matrix left alone is the plain table's. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON

#include <math.h>
#include <string.h>

#include "kernels/kernels_ref.h"
#include "kernels/quant.h"
#include "kernels/tiles.h"

/* ---- activations ------------------------------------------------------------ */

static waste_neon_acts acts_in(const waste_matmul *a, const void *at, int planes)
{
    waste_neon_acts x;

    x.terms = waste_tiles_terms(a->w.cols);
    x.n = a->n * x.terms;
    x.groups = (size_t)a->w.n_groups;
    x.cols = x.groups * (size_t)a->w.group; /* groups in tiles are multiples of 4 */
    x.q = (int16_t *)(uintptr_t)at;         /* only the slot `activations` writes */
    x.scale = (float *)(void *)(x.q + x.n * x.cols);
    x.sum = (int32_t *)(void *)(x.scale + x.n * x.groups);
    x.high = (int8_t *)x.q;
    x.low = x.high + x.n * x.cols;
    if (planes)
        x.q = NULL;
    else
        x.high = x.low = NULL;
    return x;
}

/* One group of one row: n of its columns exist. rest: NULL, or for what the integers leave
 * of them, in whole vectors; may be x. */
static void quantise_group(const float *x, int64_t n, int64_t group, int16_t *q, float *scale,
                           int32_t *sum, float *rest)
{
    uint32x4_t most = vdupq_n_u32(0);
    int32x4_t total = vdupq_n_s32(0);
    uint32_t bits;
    float top, by;
    int64_t i;

    for (i = 0; i < n; i += 4) /* as integers, so that NaN counts as largest */
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(vec_load_n(x + i, n - i))));
    bits = vmaxvq_u32(most);
    memset(q, 0, (size_t)group * sizeof *q);
    *sum = 0;
    *scale = NAN;
    if (bits >= 0x7F800000u) {
        if (rest) memset(rest, 0, (size_t)n * sizeof *rest);
        return;
    }
    memcpy(&top, &bits, sizeof top);
    if (top < 1e-30f) top = 1e-30f;
    by = WASTE_TILES_STEPS / top;
    for (i = 0; i < n; i += 4) { /* groups are multiples of 4: there is room */
        const float32x4_t u = vec_load_n(x + i, n - i);
        const int32x4_t v = vcvtnq_s32_f32(vmulq_n_f32(u, by));

        if (rest) vst1q_f32(rest + i, vfmsq_n_f32(u, vcvtq_f32_s32(v), top / WASTE_TILES_STEPS));
        total = vaddq_s32(total, v);
        vst1_s16(q + i, vmovn_s32(v));
    }
    *scale = top / WASTE_TILES_STEPS;
    *sum = vaddvq_s32(total);
}

static void put_planes(int8_t *high, int8_t *low, const int16_t *q, int64_t n)
{
    int64_t i;

    for (i = 0; i < n; i++) {
        low[i] = (int8_t)q[i];
        high[i] = (int8_t)((q[i] - low[i]) >> 8);
    }
}

void waste_neon_activations(const waste_matmul *a, void *to, int64_t lo, int64_t hi, int planes)
{
    const waste_neon_acts x = acts_in(a, to, planes);
    const int64_t group = a->w.group;
    float rest[WASTE_TILES_GROUP];
    int16_t q[WASTE_TILES_GROUP];
    size_t t, g, k;

    for (t = (size_t)lo; t < (size_t)hi; t++)
        for (g = 0; g < x.groups; g++) {
            const int64_t first = (int64_t)g * group, left = a->w.cols - first;
            const float *from = a->x + t * a->x_stride + first;

            for (k = 0; k < x.terms; k++, from = rest) {
                const size_t row = t * x.terms + k, at = row * x.cols + (size_t)first;

                quantise_group(from, left < group ? left : group, group, planes ? q : x.q + at,
                               x.scale + row * x.groups + g, x.sum + row * x.groups + g,
                               k + 1 < x.terms ? rest : NULL);
                if (planes) put_planes(x.high + at, x.low + at, q, group);
            }
        }
}

static void make_activations(const waste_matmul *a, void *to, int64_t lo, int64_t hi)
{
    waste_neon_activations(a, to, lo, hi, 0);
}

/* ---- tiles ------------------------------------------------------------------- */

#define NQ_MAX 4
#define NT_MAX 2

/* Sums of 4 rows by one row of the batch, a vector each; lane j has columns 4 i + j. */
typedef struct sums {
    int32x4_t row[4];
} sums;

/* Four columns of nq vectors (4 rows each) by nt rows of the batch. */
INLINE void multiply(sums s[NQ_MAX][NT_MAX], const uint8x16_t *c, const int16_t *q, size_t cols,
                     int nq, int nt)
{
    int16x8_t x[NT_MAX];
    int i, t;

    for (t = 0; t < nt; t++) {
        const int16x4_t four = vld1_s16(q + (size_t)t * cols);
        x[t] = vcombine_s16(four, four);
    }
    for (i = 0; i < nq; i++) {
        const int16x8_t lo = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(c[i])));
        const int16x8_t hi = vreinterpretq_s16_u16(vmovl_high_u8(c[i]));

        for (t = 0; t < nt; t++) {
            int32x4_t *r = s[i][t].row;

            r[0] = vmlal_s16(r[0], vget_low_s16(lo), vget_low_s16(x[t]));
            r[1] = vmlal_high_s16(r[1], lo, x[t]);
            r[2] = vmlal_s16(r[2], vget_low_s16(hi), vget_low_s16(x[t]));
            r[3] = vmlal_high_s16(r[3], hi, x[t]);
        }
    }
}

/* nq vectors of 4 rows, the first being number `v0` of a tile's 16, by nt rows of
 * integers from row t0 of x on. fmt, nq and nt are constants where this is inlined. */
INLINE void tile_part(const waste_neon_acts *x, const waste_matrix *m, const unsigned char *w,
                      const uint16_t *scales, size_t t0, int v0, const waste_fmt fmt, const int nq,
                      const int nt, float32x4_t f[NQ_MAX][NT_MAX])
{
    const int step = fmt == WASTE_FMT_Q8G ? 4 : fmt == WASTE_FMT_Q4G ? 8 : 32;
    const int step_bytes = fmt == WASTE_FMT_Q3G ? 768 : 256;
    const int64_t steps = m->group / step;
    const int16_t *q = x->q + t0 * x->cols;
    size_t g;
    int64_t s;
    int i, t, k;

    for (i = 0; i < nq; i++)
        for (t = 0; t < nt; t++) f[i][t] = vdupq_n_f32(0);
    w += 16 * v0;
    for (g = 0; g < x->groups; g++) {
        sums sum[NQ_MAX][NT_MAX];

        for (i = 0; i < nq; i++)
            for (t = 0; t < nt; t++)
                for (k = 0; k < 4; k++) sum[i][t].row[k] = vdupq_n_s32(0);
        for (s = 0; s < steps; s++, w += step_bytes, q += step) {
            uint8x16_t v[NQ_MAX], c[NQ_MAX];

            for (i = 0; i < nq; i++) v[i] = vld1q_u8(w + 16 * i);
            if (fmt == WASTE_FMT_Q8G) {
                multiply(sum, v, q, x->cols, nq, nt);
            } else if (fmt == WASTE_FMT_Q4G) {
                for (i = 0; i < nq; i++) c[i] = vandq_u8(v[i], vdupq_n_u8(15));
                multiply(sum, c, q, x->cols, nq, nt);
                for (i = 0; i < nq; i++) c[i] = vshrq_n_u8(v[i], 4);
                multiply(sum, c, q + 4, x->cols, nq, nt);
            } else {
                for (k = 0; k < 8; k++) {
                    for (i = 0; i < nq; i++)
                        c[i] = waste_neon_codes3(vld1q_u8(w + 16 * i + (k < 4 ? 0 : 256)),
                                                 vld1q_u8(w + 16 * i + 512), k);
                    multiply(sum, c, q + 4 * k, x->cols, nq, nt);
                }
            }
        }
        for (i = 0; i < nq; i++) {
            const float32x4_t ws = vec_f16(scales + g * WASTE_TILE_ROWS + 4 * (v0 + i));

            for (t = 0; t < nt; t++) {
                const size_t at = (t0 + (size_t)t) * x->groups + g;
                const int32x4_t total =
                    vsubq_s32(waste_sums4_s32(sum[i][t].row),
                              vdupq_n_s32(waste_tiles_offset(fmt) * x->sum[at]));

                f[i][t] = vfmaq_f32(f[i][t], vcvtq_f32_s32(total), vmulq_n_f32(ws, x->scale[at]));
            }
        }
    }
}

INLINE void run_tile(const waste_matmul *a, const waste_neon_acts *x, int64_t row, int64_t lo,
                     int64_t hi, const waste_fmt fmt)
{
    const unsigned char *w = (const unsigned char *)a->w.data + row * a->w.row_bytes;
    const uint16_t *scales = a->w.scales + row * a->w.n_groups;
    float32x4_t f[NQ_MAX][NT_MAX];
    size_t t = 0;
    int v, i;

    for (; t + 2 <= x->n; t += 2)
        for (v = 0; v < WASTE_TILE_ROWS / 4; v += 2) {
            tile_part(x, &a->w, w, scales, t, v, fmt, 2, 2, f);
            for (i = 0; i < 2; i++) waste_neon_put(a, x, t, 2, row + 4 * (v + i), lo, hi, f[i]);
        }
    for (; t < x->n; t++)
        for (v = 0; v < WASTE_TILE_ROWS / 4; v += 4) {
            tile_part(x, &a->w, w, scales, t, v, fmt, 4, 1, f);
            for (i = 0; i < 4; i++) waste_neon_put(a, x, t, 1, row + 4 * (v + i), lo, hi, f[i]);
        }
}

static void tile(const waste_matmul *a, const waste_neon_acts *x, int64_t row, int64_t lo,
                 int64_t hi)
{
    if (a->w.fmt == WASTE_FMT_Q8G)
        run_tile(a, x, row, lo, hi, WASTE_FMT_Q8G);
    else if (a->w.fmt == WASTE_FMT_Q4G)
        run_tile(a, x, row, lo, hi, WASTE_FMT_Q4G);
    else
        run_tile(a, x, row, lo, hi, WASTE_FMT_Q3G);
}

/* ---- rows as stored ------------------------------------------------------------ */

/* Row o of a tiled matrix that is in no tile, for row t of integers: these and the f32
 * operations of a tile's lane. */
static float term_as_stored(const waste_matrix *w, const waste_neon_acts *x, int64_t o, size_t t)
{
    const unsigned char *row = (const unsigned char *)w->data + o * w->row_bytes;
    float f = 0;
    size_t g;
    int64_t i;

    for (g = 0; g < x->groups; g++) {
        const int64_t first = (int64_t)g * w->group;
        const size_t at = t * x->cols + (size_t)first;
        const float by =
            waste_f16_to_f32(w->scales[o * w->n_groups + (int64_t)g]) * x->scale[t * x->groups + g];
        int32_t sum = 0; /* below 128 * 32639 * 256 */

        for (i = 0; i < w->group; i++)
            sum += waste_tiles_code(w->fmt, row, first + i) *
                   (x->q ? x->q[at + (size_t)i]
                         : 256 * x->high[at + (size_t)i] + x->low[at + (size_t)i]);
        f = fmaf((float)sum, by, f);
    }
    return f;
}

static float row_as_stored(const waste_matrix *w, const waste_neon_acts *x, int64_t o, size_t t)
{
    const float f = term_as_stored(w, x, o, t * x->terms);

    return x->terms == 2 ? f + term_as_stored(w, x, o, t * x->terms + 1) : f;
}

void waste_neon_matmul(const waste_matmul *a, int64_t lo, int64_t hi, waste_neon_tile *part,
                       int planes)
{
    const int64_t tiled = waste_tiles_rows(&a->w);
    waste_neon_acts x;
    waste_kernels plain;
    int64_t o;
    size_t t;

    if (!a->w.tiled) {
        waste_kernels_ref(&plain);
        plain.matmul(a, lo, hi);
        return;
    }
    x = acts_in(a, a->activations, planes);
    for (o = lo / WASTE_TILE_ROWS * WASTE_TILE_ROWS; o < hi && o < tiled; o += WASTE_TILE_ROWS)
        part(a, &x, o, lo, hi);
    for (o = lo > tiled ? lo : tiled; o < hi; o++)
        for (t = 0; t < a->n; t++) waste_tiles_result(a, t)[o] = row_as_stored(&a->w, &x, o, t);
}

static void matmul(const waste_matmul *a, int64_t lo, int64_t hi)
{
    waste_neon_matmul(a, lo, hi, tile, 0);
}

void waste_kernels_neon_trunk(waste_kernels *k)
{
    k->matmul = matmul;
    k->pack_matrix = waste_tiles_pack;
    k->activations = make_activations;
}

#endif
