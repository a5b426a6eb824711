/* What the AVX-512 files share: slots, and operations on vectors. */
#ifndef WASTE_KERNELS_AVX512_H
#define WASTE_KERNELS_AVX512_H

#include "kernels/kernels_tables.h"

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
/* Of experts that are left unpacked. */
void waste_kernels_avx512_direct(waste_kernels *k);
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

/* ---- vectors (kernels_vec.h) -------------------------------------------------- */

typedef __m512 vec;
#define VEC 16

static inline vec vec_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

/* Eight floats from each. */
static inline vec vec_load_halves(const float *low, const float *high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high),
                              1);
}

static inline void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

static inline vec vec_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(waste_lanes16(n), p);
}

static inline void vec_store_n(float *p, int64_t n, vec v)
{
    _mm512_mask_storeu_ps(p, waste_lanes16(n), v);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec vec_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

static inline vec vec_abs(vec v)
{
    return _mm512_abs_ps(v);
}

static inline vec vec_round(vec v)
{
    return _mm512_roundscale_ps(v, 8);
}

static inline vec vec_ldexp(vec v, vec n)
{
    return _mm512_scalef_ps(v, n);
}

static inline vec vec_below(vec x, vec y, vec a, vec b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
}

static inline float vec_sum(vec v)
{
    return _mm512_reduce_add_ps(v);
}

static inline float vec_most(vec v)
{
    return _mm512_reduce_max_ps(v);
}

static inline vec vec_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

static inline float vec_half(uint16_t h)
{
    return _cvtsh_ss(h);
}

static inline vec vec_sums(vec *s)
{
    vec x, y, p, q;
    int i;

    for (i = 0; i < 8; i++)
        s[i] =
            _mm512_unpacklo_ps(s[2 * i], s[2 * i + 1]) + _mm512_unpackhi_ps(s[2 * i], s[2 * i + 1]);
    for (i = 0; i < 4; i++) {
        const __m512d a = _mm512_castps_pd(s[2 * i]), b = _mm512_castps_pd(s[2 * i + 1]);

        s[i] =
            _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)) + _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
    x = _mm512_shuffle_f32x4(s[0], s[1], 0x88);
    y = _mm512_shuffle_f32x4(s[0], s[1], 0xDD);
    p = x + y;
    x = _mm512_shuffle_f32x4(s[2], s[3], 0x88);
    y = _mm512_shuffle_f32x4(s[2], s[3], 0xDD);
    q = x + y;
    return _mm512_shuffle_f32x4(p, q, 0x88) + _mm512_shuffle_f32x4(p, q, 0xDD);
}

#include "kernels/kernels_vec.h"

#endif
#endif
