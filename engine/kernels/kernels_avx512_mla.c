/* Attention over latents on AVX-512, as kernels_vec_mla.h says. No state, any thread. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512BW

INLINE vec codes(const unsigned char *chunk, const int q4, int v)
{
    /* of code c: c - 8; the permutation looks at the low four bits alone */
    const vec value = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);

    if (q4)
        return _mm512_permutexvar_ps(
            _mm512_srli_epi32(_mm512_loadu_si512(chunk), (unsigned)(4 * v)), value);
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(chunk + 16 * v))));
}

/* All four positions: a block is a multiple of them. */
INLINE void put_scores(vec *s, int64_t n, float *p)
{
    const vec r = vec_sums(s);

    (void)n;
    _mm_storeu_ps(p, _mm512_castps512_ps128(r));
    _mm_storeu_ps(p + WASTE_LATENT_BLOCK, _mm512_extractf32x4_ps(r, 1));
    _mm_storeu_ps(p + 2 * WASTE_LATENT_BLOCK, _mm512_extractf32x4_ps(r, 2));
    _mm_storeu_ps(p + 3 * WASTE_LATENT_BLOCK, _mm512_extractf32x4_ps(r, 3));
}

#define SCORE_POSITIONS 4
#define WEIGH_VECTORS   4
#define ABSORB_VECTORS  8
#define DOT_ROWS        8
#define STRIP           8
#include "kernels/kernels_vec_mla.h"

void waste_kernels_avx512_mla(waste_kernels *k)
{
    k->mla = mla;
}

#endif
