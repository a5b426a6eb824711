/* What the NEON files share: slots, and elementwise functions on vectors.
 *
 * A lane's result depends on that lane alone, so a tail computed in a part of a vector
 * has the bits of a full one. */
#ifndef WASTE_KERNELS_NEON_H
#define WASTE_KERNELS_NEON_H

#include "kernels/kernels_tables.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WASTE_HAVE_NEON 1

#include <arm_neon.h>

/* Each file fills in its own. */
void waste_kernels_neon_vq(waste_kernels *k);
void waste_kernels_neon_trunk(waste_kernels *k);
void waste_kernels_neon_attn(waste_kernels *k);

/* ---- trunk, for both sets of products ----------------------------------------- */

/* What the slot `activations` makes: 16-bit integers, a scale for each group of columns. */
typedef struct waste_neon_acts {
    size_t cols, groups; /* cols: padded to whole groups */
    int16_t *q;          /* [n][cols], or as planes */
    int8_t *high, *low;  /* [n][cols]: q = 256 high + low */
    float *scale;        /* [n][groups] */
    int32_t *sum;        /* [n][groups] of q */
} waste_neon_acts;

/* The slot; planes: in which form. */
void waste_neon_activations(const waste_matmul *a, void *to, int64_t lo, int64_t hi, int planes);

/* All rows of the batch by the tile that begins at row `row`, as far as it lies in
 * [lo, hi). */
typedef void waste_neon_tile(const waste_matmul *a, const waste_neon_acts *x, int64_t row,
                             int64_t lo, int64_t hi);

/* The slot matmul, by tiles, for activations of this form. */
void waste_neon_matmul(const waste_matmul *a, int64_t lo, int64_t hi, waste_neon_tile *tile,
                       int planes);

static inline float *waste_neon_row(const waste_matmul *a, size_t t)
{
    return a->y_rows ? a->y_rows[t] : a->y + t * a->y_stride;
}

/* Rows row..row+3 of a result, as far as they lie in [lo, hi). */
static inline void waste_neon_put(float *y, int64_t row, int64_t lo, int64_t hi, float32x4_t f)
{
    float v[4];
    int i;

    if (row >= lo && row + 4 <= hi) {
        vst1q_f32(y + row, f);
        return;
    }
    vst1q_f32(v, f);
    for (i = 0; i < 4; i++)
        if (row + i >= lo && row + i < hi) y[row + i] = v[i];
}

/* Four binary16 as f32. */
static inline float32x4_t waste_neon_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

/* Columns 4 k .. 4 k + 3 of a step of Q3G: from the low bits and the third (tiles.h). */
static inline __attribute__((always_inline)) uint8x16_t waste_neon_codes3(uint8x16_t low,
                                                                          uint8x16_t third, int k)
{
    const uint8x16_t lo =
        vandq_u8(vshlq_u8(low, vdupq_n_s8((int8_t)(-2 * (k % 4)))), vdupq_n_u8(3));

    return vorrq_u8(lo, vandq_u8(vshlq_u8(third, vdupq_n_s8((int8_t)(2 - k))), vdupq_n_u8(4)));
}

/* ---- parts of a vector ---------------------------------------------------------- */

/* The first n of 4 lanes, n >= 0; zeros in the others. */
static inline float32x4_t waste_load4(const float *p, int64_t n)
{
    float v[4] = {0, 0, 0, 0};
    int64_t i;

    if (n >= 4) return vld1q_f32(p);
    for (i = 0; i < n; i++) v[i] = p[i];
    return vld1q_f32(v);
}

static inline void waste_store4(float *p, float32x4_t f, int64_t n)
{
    float v[4];
    int64_t i;

    if (n >= 4) {
        vst1q_f32(p, f);
        return;
    }
    vst1q_f32(v, f);
    for (i = 0; i < n; i++) p[i] = v[i];
}

/* ---- functions of a vector -------------------------------------------------- */

/* e^x within 2 ulp; underflow is gradual, overflow gives infinity, NaN stays. The
 * rest r after taking out n ln 2 is at most ln 2 / 2: the series to r^7 / 7! is
 * exact to 6e-9. 2^n goes in as two factors, since n reaches 128 and -150. */
static inline float32x4_t waste_exp4(float32x4_t x)
{
    float32x4_t n, r, p;
    int32x4_t e, half;

    x = vmaxq_f32(x, vdupq_n_f32(-104.0f));
    x = vminq_f32(x, vdupq_n_f32(89.0f));
    n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p0f)));
    r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1f)); /* ln 2 in two parts */
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));
    p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    e = vcvtq_s32_f32(n);
    half = vshrq_n_s32(e, 1);
    e = vsubq_s32(e, half);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, vdupq_n_s32(127)), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23)));
}

static inline float32x4_t waste_sigmoid4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f);

    return vdivq_f32(one, vaddq_f32(one, waste_exp4(vnegq_f32(x))));
}

/* Lambert's continued fraction, cut after the sixth term, where |x| < 0.7 (exact
 * to 1e-9 there); elsewhere 1 - 2 / (e^2x + 1), which no longer cancels. */
static inline float32x4_t waste_tanh4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f), two = vdupq_n_f32(2.0f);
    const float32x4_t s = vmulq_f32(x, x);
    float32x4_t up, down, far;

    up = vfmaq_f32(vdupq_n_f32(1260.0f), vdupq_n_f32(21.0f), s);
    up = vmulq_f32(x, vfmaq_f32(vdupq_n_f32(10395.0f), up, s));
    down = vaddq_f32(s, vdupq_n_f32(210.0f));
    down = vfmaq_f32(vdupq_n_f32(4725.0f), down, s);
    down = vfmaq_f32(vdupq_n_f32(10395.0f), down, s);
    far = vaddq_f32(waste_exp4(vmulq_f32(two, x)), one);
    far = vsubq_f32(one, vdivq_f32(two, far));
    return vbslq_f32(vcltq_f32(vabsq_f32(x), vdupq_n_f32(0.7f)), vdivq_f32(up, down), far);
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|; the logarithm is the series of
 * 2 artanh(t / (2 + t)), whose argument is at most 1/3. */
static inline float32x4_t waste_softplus4(float32x4_t x)
{
    const float32x4_t t = waste_exp4(vnegq_f32(vabsq_f32(x)));
    const float32x4_t s = vdivq_f32(t, vaddq_f32(t, vdupq_n_f32(2.0f)));
    const float32x4_t q = vmulq_f32(s, s);
    float32x4_t p = vdupq_n_f32(2.0f / 15);
    int i;

    for (i = 13; i > 0; i -= 2) p = vfmaq_f32(vdupq_n_f32(2.0f / (float)i), p, q);
    return vfmaq_f32(vmaxq_f32(vdupq_n_f32(0), x), p, s);
}

/* kernels.h, waste_act_kind */
static inline float32x4_t waste_act4(const waste_act_kind *k, float32x4_t g, float32x4_t u)
{
    const float32x4_t s = waste_sigmoid4(g);

    if (!k->situ) return vmulq_f32(vmulq_f32(g, s), u);
    if (k->linear_beta > 0) {
        const float32x4_t b = vdupq_n_f32(k->linear_beta);
        u = vmulq_f32(b, waste_tanh4(vdivq_f32(u, b)));
    }
    g = vmulq_f32(vdupq_n_f32(k->beta), waste_tanh4(vdivq_f32(g, vdupq_n_f32(k->beta))));
    return vmulq_f32(vmulq_f32(g, s), u);
}

/* ---- sums ------------------------------------------------------------------- */

/* 16 lanes, taken in order; the tree that folds them is fixed. */
static inline float waste_dot4(const float *a, const float *b, int64_t n)
{
    float32x4_t s[4];
    int64_t i = 0;
    int j;

    for (j = 0; j < 4; j++) s[j] = vdupq_n_f32(0);
    for (; i + 16 <= n; i += 16)
        for (j = 0; j < 4; j++)
            s[j] = vfmaq_f32(s[j], vld1q_f32(a + i + 4 * j), vld1q_f32(b + i + 4 * j));
    for (; i < n; i += 4)
        s[0] = vfmaq_f32(s[0], waste_load4(a + i, n - i), waste_load4(b + i, n - i));
    return vaddvq_f32(vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
}

/* The lane sums of four vectors. */
static inline float32x4_t waste_sums4(const float32x4_t *s)
{
    return vpaddq_f32(vpaddq_f32(s[0], s[1]), vpaddq_f32(s[2], s[3]));
}

static inline int32x4_t waste_sums4_s32(const int32x4_t *s)
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

#endif
#endif
