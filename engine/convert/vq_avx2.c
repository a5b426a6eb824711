/* The beam search on AVX2 (vq_core.h): 16 lanes. No state, any thread. */
#include "convert/vq_core.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,bmi,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define LANES  16

typedef __m256i vec;

INLINE vec v_load(const int16_t *p)
{
    return _mm256_load_si256((const __m256i *)p);
}

INLINE void v_store(int16_t *p, vec a)
{
    _mm256_store_si256((__m256i *)p, a);
}

INLINE vec v_set(int16_t x)
{
    return _mm256_set1_epi16(x);
}

INLINE vec v_adds(vec a, vec b)
{
    return _mm256_adds_epi16(a, b);
}

INLINE vec v_min(vec a, vec b)
{
    return _mm256_min_epi16(a, b);
}

INLINE int v_least(vec a)
{
    const __m128i sign = _mm_set1_epi16(INT16_MIN);
    __m128i m = _mm_min_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

    m = _mm_minpos_epu16(_mm_xor_si128(m, sign)); /* unsigned */
    return (int16_t)_mm_cvtsi128_si32(_mm_xor_si128(m, sign));
}

INLINE int v_has(vec a, int x)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi16(a, _mm256_set1_epi16((int16_t)x))) != 0;
}

/* Bits of p[0..32) that are above x. */
INLINE uint32_t above(const int16_t *p, __m256i x)
{
    __m256i m =
        _mm256_packs_epi16(_mm256_cmpgt_epi16(v_load(p), x), _mm256_cmpgt_epi16(v_load(p + 16), x));

    return (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(m, 0xD8));
}

INLINE uint64_t below(const int16_t *p, int x)
{
    const __m256i v = _mm256_set1_epi16((int16_t)x);

    return ~(above(p, v) | (uint64_t)above(p + 32, v) << 32);
}

INLINE int count_lower(const int16_t *p, int x)
{
    const __m256i v = _mm256_set1_epi16((int16_t)x);
    __m256i a =
        _mm256_packs_epi16(_mm256_cmpgt_epi16(v, v_load(p)), _mm256_cmpgt_epi16(v, v_load(p + 16)));
    __m256i b = _mm256_packs_epi16(_mm256_cmpgt_epi16(v, v_load(p + 32)),
                                   _mm256_cmpgt_epi16(v, v_load(p + 48)));

    return __builtin_popcount((unsigned)_mm256_movemask_epi8(a)) +
           __builtin_popcount((unsigned)_mm256_movemask_epi8(b));
}
#define lower count_lower

static void TARGET row(const int16_t *part, const int32_t *norm, int entries, const int16_t *x,
                       int16_t *q)
{
    const __m256i *c = (const __m256i *)part, *n = (const __m256i *)norm;
    __m256i xs[4];
    int32_t pair;
    int b, p;

    for (p = 0; p < 4; p++) {
        __builtin_memcpy(&pair, x + 2 * p, sizeof pair);
        xs[p] = _mm256_set1_epi32(pair);
    }
    for (b = 0; b < entries / LANES; b++, c += 8) {
        __m256i lo = n[2 * b], hi = n[2 * b + 1];
        for (p = 0; p < 4; p++) {
            lo = _mm256_add_epi32(lo, _mm256_madd_epi16(xs[p], c[p]));
            hi = _mm256_add_epi32(hi, _mm256_madd_epi16(xs[p], c[4 + p]));
        }
        lo = _mm256_srai_epi32(lo, WASTE_VQ_SHIFT);
        hi = _mm256_srai_epi32(hi, WASTE_VQ_SHIFT);
        v_store(q + b * LANES, _mm256_packs_epi32(lo, hi));
    }
}

#include "convert/vq_search.h"

static void TARGET cuts(walk *w, int beam)
{
    cuts_by_count(w, beam);
}

static void TARGET collect(walk *w)
{
    collect_by_bit(w);
}

const waste_vq_core *waste_vq_avx2(void)
{
    static const waste_vq_core core = {"avx2", LANES, row, search};

    return &core;
}

#else

const waste_vq_core *waste_vq_avx2(void)
{
    return NULL;
}

#endif
