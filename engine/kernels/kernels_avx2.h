/* What the AVX2 files share: slots, and operations on vectors. */
#ifndef WASTE_KERNELS_AVX2_H
#define WASTE_KERNELS_AVX2_H

#include "kernels/kernels_tables.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define WASTE_HAVE_AVX2 1

#include <immintrin.h>

/* Each file fills in its own. */
void waste_kernels_avx2_vq(waste_kernels *k);
void waste_kernels_avx2_trunk(waste_kernels *k);
void waste_kernels_avx2_kda(waste_kernels *k);
void waste_kernels_avx2_mla(waste_kernels *k);

/* ---- vectors (kernels_vec.h) -------------------------------------------------- */

typedef __m256 vec;
#define VEC 8

static inline vec vec_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}

/* The first n of 8 lanes. */
static inline __m256i waste_lanes8(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < VEC ? (int)n : VEC),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vec vec_load_n(const float *p, int64_t n)
{
    return n >= VEC ? vec_load(p) : _mm256_maskload_ps(p, waste_lanes8(n));
}

static inline void vec_store_n(float *p, int64_t n, vec v)
{
    if (n >= VEC)
        vec_store(p, v);
    else
        _mm256_maskstore_ps(p, waste_lanes8(n), v);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec vec_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

static inline vec vec_abs(vec v)
{
    return _mm256_andnot_ps(vec_set(-0.0f), v);
}

static inline vec vec_round(vec v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n goes in as two factors: an exponent has room for -126 to 127. */
static inline vec vec_ldexp(vec v, vec n)
{
    const __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1);
    const __m256i rest = _mm256_sub_epi32(e, half), bias = _mm256_set1_epi32(127);

    v = v * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    return v * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
}

static inline vec vec_below(vec x, vec y, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}

static inline float vec_sum(vec v)
{
    __m128 s = _mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1);

    s = s + _mm_movehl_ps(s, s);
    return _mm_cvtss_f32(s) + _mm_cvtss_f32(_mm_movehdup_ps(s));
}

static inline float vec_most(vec v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vec vec_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline float vec_half(uint16_t h)
{
    return _cvtsh_ss(h);
}

/* Lane i of each half: the sum of s[i]'s same half, i < 4. */
static inline vec waste_half_sums4(const vec *s)
{
    const vec a = _mm256_unpacklo_ps(s[0], s[1]) + _mm256_unpackhi_ps(s[0], s[1]);
    const vec b = _mm256_unpacklo_ps(s[2], s[3]) + _mm256_unpackhi_ps(s[2], s[3]);

    return _mm256_shuffle_ps(a, b, _MM_SHUFFLE(1, 0, 1, 0)) +
           _mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 2, 3, 2));
}

static inline vec vec_sums(const vec *s)
{
    const vec a = waste_half_sums4(s), b = waste_half_sums4(s + 4);

    return _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
}

#include "kernels/kernels_vec.h"

#endif
#endif
