/* What the NEON files share: slots, and operations on vectors. */
#ifndef WASTE_KERNELS_NEON_H
#define WASTE_KERNELS_NEON_H

#include "kernels/kernels_tables.h"
#include "kernels/tiles.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WASTE_HAVE_NEON 1

#include <arm_neon.h>

/* Each file fills in its own. */
void waste_kernels_neon_vq(waste_kernels *k);
void waste_kernels_neon_trunk(waste_kernels *k);
void waste_kernels_neon_kda(waste_kernels *k);
void waste_kernels_neon_mla(waste_kernels *k);

/* ---- trunk, for both sets of products ----------------------------------------- */

/* What the slot `activations` makes: n rows of 16-bit integers, a scale for each group of
 * columns. */
typedef struct waste_neon_acts {
    size_t n, terms;     /* rows, and how many to a row of the batch (tiles.h) */
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

/* The slot matmul: by tiles, for activations of this form; in plain C what has none. */
void waste_neon_matmul(const waste_matmul *a, int64_t lo, int64_t hi, waste_neon_tile *part,
                       int planes);

/* Columns 4 k .. 4 k + 3 of a step of Q3G: from the low bits and the third (tiles.h). */
static inline __attribute__((always_inline)) uint8x16_t waste_neon_codes3(uint8x16_t low,
                                                                          uint8x16_t third, int k)
{
    const uint8x16_t lo =
        vandq_u8(vshlq_u8(low, vdupq_n_s8((int8_t)(-2 * (k % 4)))), vdupq_n_u8(3));

    return vorrq_u8(lo, vandq_u8(vshlq_u8(third, vdupq_n_s8((int8_t)(2 - k))), vdupq_n_u8(4)));
}

static inline int32x4_t waste_sums4_s32(const int32x4_t *s)
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

/* ---- vectors (kernels_vec.h) -------------------------------------------------- */

typedef float32x4_t vec;
#define VEC 4

static inline vec vec_set(float x)
{
    return vdupq_n_f32(x);
}

static inline vec vec_load(const float *p)
{
    return vld1q_f32(p);
}

static inline void vec_store(float *p, vec v)
{
    vst1q_f32(p, v);
}

static inline vec vec_load_n(const float *p, int64_t n)
{
    float v[VEC] = {0};
    int64_t i;

    if (n >= VEC) return vec_load(p);
    for (i = 0; i < n; i++) v[i] = p[i];
    return vec_load(v);
}

static inline void vec_store_n(float *p, int64_t n, vec v)
{
    int64_t i;

    if (n >= VEC) {
        vec_store(p, v);
        return;
    }
    for (i = 0; i < n; i++) p[i] = v[i];
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

static inline vec vec_fnma(vec a, vec b, vec c)
{
    return vfmsq_f32(c, a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return vmaxq_f32(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return vminq_f32(a, b);
}

static inline vec vec_abs(vec v)
{
    return vabsq_f32(v);
}

static inline vec vec_round(vec v)
{
    return vrndnq_f32(v);
}

/* 2^n goes in as two factors: an exponent has room for -126 to 127. */
static inline vec vec_ldexp(vec v, vec n)
{
    const int32x4_t e = vcvtq_s32_f32(n), half = vshrq_n_s32(e, 1), rest = vsubq_s32(e, half);
    const int32x4_t bias = vdupq_n_s32(127);

    v = v * vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    return v * vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
}

static inline vec vec_below(vec x, vec y, vec a, vec b)
{
    return vbslq_f32(vcltq_f32(x, y), a, b);
}

static inline float vec_sum(vec v)
{
    return vaddvq_f32(v);
}

static inline float vec_most(vec v)
{
    return vmaxvq_f32(v);
}

static inline vec vec_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline float vec_half(uint16_t h)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

static inline vec vec_sums(const vec *s)
{
    return vpaddq_f32(vpaddq_f32(s[0], s[1]), vpaddq_f32(s[2], s[3]));
}

#include "kernels/kernels_vec.h"

/* Rows row..row+3 of a result, as far as they lie in [lo, hi): sums of nt rows of integers
 * from number t on. */
static inline void waste_neon_put(const waste_matmul *a, const waste_neon_acts *x, size_t t,
                                  size_t nt, int64_t row, int64_t lo, int64_t hi,
                                  const float32x4_t *f)
{
    size_t k;

    for (k = 0; k < nt; k += x->terms)
        vec_store_inside(waste_tiles_result(a, (t + k) / x->terms), row, lo, hi,
                         x->terms == 2 ? vaddq_f32(f[k], f[k + 1]) : f[k]);
}

#endif
#endif
