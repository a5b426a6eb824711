/* What the AVX-512 files share: slots, and elementwise functions on vectors.
 *
 * A lane's result depends on that lane alone, so a tail computed under a mask has
 * the bits of a full vector. */
#ifndef WASTE_KERNELS_AVX512_H
#define WASTE_KERNELS_AVX512_H

#include "kernels/kernels.h"

/* Replaces slots of the plain table; 0 when this build was made without the
 * instruction set (kernels.mk), and then nothing changes. The second needs neither VBMI
 * nor VNNI, and leaves the trunk to the AVX2 table. */
int waste_kernels_avx512(waste_kernels *k);
int waste_kernels_avx512bw(waste_kernels *k);

/* What a file is built for: both tables, or the first alone. */
#if defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define WASTE_HAVE_AVX512BW 1
#if defined(__AVX512VBMI__) && defined(__AVX512VNNI__)
#define WASTE_HAVE_AVX512 1
#endif

#include <immintrin.h>

/* Each file fills in its own. */
void waste_kernels_avx512_vq(waste_kernels *k);
void waste_kernels_avx512bw_vq(waste_kernels *k);
void waste_kernels_avx512_trunk(waste_kernels *k);
void waste_kernels_avx512_kda(waste_kernels *k);
void waste_kernels_avx512_mla(waste_kernels *k);

/* ---- masks ---------------------------------------------------------------- */

/* The first n of 16 lanes, n >= 0. */
static inline __mmask16 waste_lanes16(int64_t n)
{
    return n >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << n) - 1);
}

/* Lanes of rows first..first+15 that lie in [lo, hi). */
static inline __mmask16 waste_inside16(int64_t first, int64_t lo, int64_t hi)
{
    const __mmask16 below = hi <= first ? 0 : waste_lanes16(hi - first);

    if (lo <= first) return below;
    return (__mmask16)(below & ~waste_lanes16(lo - first));
}

/* ---- codes of trunk matrices, as stored ------------------------------------- */

/* What is taken from an unsigned code to give the signed one. */
static inline int waste_code_offset(waste_fmt fmt)
{
    return fmt == WASTE_FMT_Q8G ? 128 : fmt == WASTE_FMT_Q4G ? 8 : 4;
}

/* 64 columns of a row as unsigned codes, from column `at` on; n <= 64 of them exist and
 * the others come out as anything, to meet zeros. */
static inline __m512i waste_codes64(waste_fmt fmt, const unsigned char *row, int64_t at, int64_t n)
{
    if (fmt == WASTE_FMT_Q8G)
        return _mm512_xor_si512(
            _mm512_maskz_loadu_epi8(n >= 64 ? ~0ull : (1ull << n) - 1, row + at),
            _mm512_set1_epi8((char)0x80));
    if (fmt == WASTE_FMT_Q4G) {
        const __m512i b = _mm512_cvtepu8_epi16(
            _mm256_maskz_loadu_epi8(n >= 64 ? ~0u : (1u << n / 2) - 1, row + at / 2));
        return _mm512_and_si512(_mm512_or_si512(b, _mm512_slli_epi16(b, 4)), _mm512_set1_epi8(15));
    } else {
        /* to each eight bytes the words that hold its three; 12 bits to each half; a byte
         * to each 3 bits */
        const __m512i words = _mm512_setr_epi64(0x00010000, 0x00020001, 0x00040003, 0x00050004,
                                                0x00070006, 0x00080007, 0x000A0009, 0x000B000A);
        const __m512i from = _mm512_setr_epi64(0, 8, 0, 8, 0, 8, 0, 8);
        __m512i b = _mm512_castsi256_si512(
            _mm256_maskz_loadu_epi8((1u << n * 3 / 8) - 1, row + at * 3 / 8));

        b = _mm512_srlv_epi64(_mm512_permutexvar_epi16(words, b), from);
        b = _mm512_or_si512(
            _mm512_and_si512(b, _mm512_set1_epi64(0xFFF)),
            _mm512_and_si512(_mm512_slli_epi64(b, 20), _mm512_set1_epi64(0xFFF00000000)));
        b = _mm512_and_si512(_mm512_or_si512(b, _mm512_slli_epi32(b, 10)),
                             _mm512_set1_epi32(0x003F003F));
        return _mm512_and_si512(_mm512_or_si512(b, _mm512_slli_epi32(b, 5)),
                                _mm512_set1_epi32(0x07070707));
    }
}

/* ---- layout ------------------------------------------------------------------- */

/* 16 vectors as the rows of a square, turned over. */
static inline void waste_transpose16(__m512 *r)
{
    __m512 t[16];
    int i;

    for (i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (i = 0; i < 16; i += 4) { /* r[i + c]: column c of each quarter, rows i.. */
        r[i] = _mm512_castpd_ps(
            _mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        r[i + 1] = _mm512_castpd_ps(
            _mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        r[i + 2] = _mm512_castpd_ps(
            _mm512_unpacklo_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
        r[i + 3] = _mm512_castpd_ps(
            _mm512_unpackhi_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
    }
    for (i = 0; i < 4; i++) { /* quarters 0 and 2, 1 and 3 of rows 0..7, then of 8..15 */
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xDD);
        t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xDD);
    }
    for (i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xDD);
        r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xDD);
    }
}

/* ---- functions of a vector -------------------------------------------------- */

/* e^x within 2 ulp; underflow is gradual, overflow gives infinity, NaN stays. The
 * rest r after taking out n ln 2 is at most ln 2 / 2: the series to r^7 / 7! is
 * exact to 6e-9. */
static inline __m512 waste_exp16(__m512 x)
{
    __m512 n, r, p;

    x = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);
    x = _mm512_min_ps(_mm512_set1_ps(200.0f), x);
    n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f)), 8);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x); /* ln 2 in two parts */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

static inline __m512 waste_sigmoid16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);

    return _mm512_div_ps(one,
                         _mm512_add_ps(one, waste_exp16(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

/* Lambert's continued fraction, cut after the sixth term, where |x| < 0.7 (exact
 * to 1e-9 there); elsewhere 1 - 2 / (e^2x + 1), which no longer cancels. */
static inline __m512 waste_tanh16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f), two = _mm512_set1_ps(2.0f);
    const __m512 s = _mm512_mul_ps(x, x);
    __m512 up, down, far;

    up = _mm512_fmadd_ps(_mm512_set1_ps(21.0f), s, _mm512_set1_ps(1260.0f));
    up = _mm512_mul_ps(x, _mm512_fmadd_ps(up, s, _mm512_set1_ps(10395.0f)));
    down = _mm512_add_ps(s, _mm512_set1_ps(210.0f));
    down = _mm512_fmadd_ps(down, s, _mm512_set1_ps(4725.0f));
    down = _mm512_fmadd_ps(down, s, _mm512_set1_ps(10395.0f));
    far = _mm512_add_ps(waste_exp16(_mm512_mul_ps(two, x)), one);
    far = _mm512_sub_ps(one, _mm512_div_ps(two, far));
    return _mm512_mask_blend_ps(
        _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0.7f), _CMP_LT_OQ), far,
        _mm512_div_ps(up, down));
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|; the logarithm is the series of
 * 2 artanh(t / (2 + t)), whose argument is at most 1/3. */
static inline __m512 waste_softplus16(__m512 x)
{
    const __m512 t = waste_exp16(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(x)));
    const __m512 s = _mm512_div_ps(t, _mm512_add_ps(t, _mm512_set1_ps(2.0f)));
    const __m512 q = _mm512_mul_ps(s, s);
    __m512 p = _mm512_set1_ps(2.0f / 15);
    int i;

    for (i = 13; i > 0; i -= 2) p = _mm512_fmadd_ps(p, q, _mm512_set1_ps(2.0f / (float)i));
    return _mm512_fmadd_ps(p, s, _mm512_max_ps(_mm512_setzero_ps(), x));
}

/* kernels.h, waste_act_kind */
static inline __m512 waste_act16(const waste_act_kind *k, __m512 g, __m512 u)
{
    const __m512 s = waste_sigmoid16(g);

    if (!k->situ) return _mm512_mul_ps(_mm512_mul_ps(g, s), u);
    if (k->linear_beta > 0) {
        const __m512 b = _mm512_set1_ps(k->linear_beta);
        u = _mm512_mul_ps(b, waste_tanh16(_mm512_div_ps(u, b)));
    }
    g = _mm512_mul_ps(_mm512_set1_ps(k->beta),
                      waste_tanh16(_mm512_div_ps(g, _mm512_set1_ps(k->beta))));
    return _mm512_mul_ps(_mm512_mul_ps(g, s), u);
}

/* ---- sums ------------------------------------------------------------------- */

/* 16 lanes, taken in order; the tree that folds them is fixed. */
static inline float waste_dot16(const float *a, const float *b, int64_t n)
{
    __m512 s = _mm512_setzero_ps(), t = s;
    int64_t i;

    for (i = 0; i + 32 <= n; i += 32) {
        s = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), s);
        t = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 16), _mm512_loadu_ps(b + i + 16), t);
    }
    for (; i < n; i += 16) {
        const __mmask16 m = waste_lanes16(n - i);
        s = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, a + i), _mm512_maskz_loadu_ps(m, b + i), s);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(s, t));
}

#endif
#endif
