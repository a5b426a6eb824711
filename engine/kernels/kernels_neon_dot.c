/* The NEON table with the trunk's products by SDOT (ARMv8.2 dot product): see
 * kernels_neon_trunk.c, whose integers and bits these are. No state, any thread.
 *
 * High and low byte of the activations are two planes of int8; a sum of products is
 * 256 times that of the high plane plus that of the low one, exact in 32 bits. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON && defined(__ARM_FEATURE_DOTPROD)

#include "kernels/tiles.h"

#define NQ_MAX 4
#define NT_MAX 2

typedef struct sums {
    int32x4_t high, low;
} sums;

static inline int8x16_t four(const int8_t *p)
{
    return vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(const void *)p));
}

/* Four columns, the first being number `at` of x, of nq vectors (4 rows each) by nt
 * rows of the batch. Codes are below 128. */
INLINE void multiply(sums s[NQ_MAX][NT_MAX], const int8x16_t *c, const waste_neon_acts *x,
                     size_t at, int nq, int nt)
{
    int i, t;

    for (t = 0; t < nt; t++) {
        const int8x16_t high = four(x->high + (size_t)t * x->cols + at);
        const int8x16_t low = four(x->low + (size_t)t * x->cols + at);

        for (i = 0; i < nq; i++) {
            s[i][t].high = vdotq_s32(s[i][t].high, c[i], high);
            s[i][t].low = vdotq_s32(s[i][t].low, c[i], low);
        }
    }
}

/* As in kernels_neon_trunk.c. */
INLINE void tile_part(const waste_neon_acts *x, const waste_matrix *m, const unsigned char *w,
                      const uint16_t *scales, size_t t0, int v0, const waste_fmt fmt, const int nq,
                      const int nt, float32x4_t f[NQ_MAX][NT_MAX])
{
    const int step = fmt == WASTE_FMT_Q8G ? 4 : fmt == WASTE_FMT_Q4G ? 8 : 32;
    const int step_bytes = fmt == WASTE_FMT_Q3G ? 768 : 256;
    /* of the codes as they are multiplied: those of Q8G are made signed */
    const int offset = fmt == WASTE_FMT_Q8G ? 0 : fmt == WASTE_FMT_Q4G ? 8 : 4;
    const int64_t steps = m->group / step;
    size_t g, q = t0 * x->cols;
    int64_t s;
    int i, t, k;

    for (i = 0; i < nq; i++)
        for (t = 0; t < nt; t++) f[i][t] = vdupq_n_f32(0);
    w += 16 * v0;
    for (g = 0; g < x->groups; g++) {
        sums sum[NQ_MAX][NT_MAX];

        for (t = 0; t < nt; t++)
            for (i = 0; i < nq; i++) {
                sum[i][t].high = vdupq_n_s32(0);
                sum[i][t].low = vdupq_n_s32(-offset * x->sum[(t0 + (size_t)t) * x->groups + g]);
            }
        for (s = 0; s < steps; s++, w += step_bytes, q += (size_t)step) {
            uint8x16_t v[NQ_MAX], third[NQ_MAX];
            int8x16_t c[NQ_MAX];

            for (i = 0; i < nq; i++) v[i] = vld1q_u8(w + 16 * i);
            if (fmt == WASTE_FMT_Q8G) {
                for (i = 0; i < nq; i++)
                    c[i] = vreinterpretq_s8_u8(veorq_u8(v[i], vdupq_n_u8(128)));
                multiply(sum, c, x, q, nq, nt);
            } else if (fmt == WASTE_FMT_Q4G) {
                for (i = 0; i < nq; i++) c[i] = vreinterpretq_s8_u8(vandq_u8(v[i], vdupq_n_u8(15)));
                multiply(sum, c, x, q, nq, nt);
                for (i = 0; i < nq; i++) c[i] = vreinterpretq_s8_u8(vshrq_n_u8(v[i], 4));
                multiply(sum, c, x, q + 4, nq, nt);
            } else {
                for (i = 0; i < nq; i++) third[i] = vld1q_u8(w + 16 * i + 512);
                for (k = 0; k < 8; k++) {
                    if (k == 4)
                        for (i = 0; i < nq; i++) v[i] = vld1q_u8(w + 16 * i + 256);
                    for (i = 0; i < nq; i++)
                        c[i] = vreinterpretq_s8_u8(waste_neon_codes3(v[i], third[i], k));
                    multiply(sum, c, x, q + 4 * (size_t)k, nq, nt);
                }
            }
        }
        for (i = 0; i < nq; i++) {
            const float32x4_t ws = vec_f16(scales + g * WASTE_TILE_ROWS + 4 * (v0 + i));

            for (t = 0; t < nt; t++) {
                const float xs = x->scale[(t0 + (size_t)t) * x->groups + g];
                const int32x4_t total = vaddq_s32(vshlq_n_s32(sum[i][t].high, 8), sum[i][t].low);

                f[i][t] = vfmaq_f32(f[i][t], vcvtq_f32_s32(total), vmulq_n_f32(ws, xs));
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
    size_t t = 0, nt;
    int v, i;

    for (; t < x->n; t += nt) {
        nt = x->n - t < 2 ? 1 : 2;
        for (v = 0; v < WASTE_TILE_ROWS / 4; v += 4) {
            if (nt == 2)
                tile_part(x, &a->w, w, scales, t, v, fmt, 4, 2, f);
            else
                tile_part(x, &a->w, w, scales, t, v, fmt, 4, 1, f);
            for (i = 0; i < 4; i++) waste_neon_put(a, x, t, nt, row + 4 * (v + i), lo, hi, f[i]);
        }
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

static void matmul(const waste_matmul *a, int64_t lo, int64_t hi)
{
    waste_neon_matmul(a, lo, hi, tile, 1);
}

static void make_activations(const waste_matmul *a, void *to, int64_t lo, int64_t hi)
{
    waste_neon_activations(a, to, lo, hi, 1);
}

int waste_kernels_neon_dot(waste_kernels *k)
{
    waste_kernels_neon(k);
    k->name = "neon-dotprod";
    k->matmul = matmul;
    k->activations = make_activations;
    return 1;
}

#else

int waste_kernels_neon_dot(waste_kernels *k)
{
    (void)k;
    return 0;
}

#endif
