/* Attention over latents on AVX2, as kernels_vec_mla.h says. No state, any thread.
 *
 * 16 registers hold twelve sums, three vectors that are loaded once for all of them and
 * one that is loaded for three. */
#include "kernels/kernels_avx2.h"

#if WASTE_HAVE_AVX2

INLINE vec codes(const unsigned char *chunk, const int q4, int v)
{
    if (q4) { /* a nibble with its top bit turned over is c - 8 in two's complement */
        const __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const void *)chunk),
                                           _mm256_set1_epi32((int)0x88888888));

        return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x, 28 - 4 * v), 28));
    }
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(chunk + 8 * v))));
}

INLINE void put_scores(const vec *s, int64_t n, float *p)
{
    int j;

    for (j = 0; j < 4; j++, s += 3, p += WASTE_LATENT_BLOCK) {
        const vec four[4] = {s[0], s[1], s[2], s[2]}, half = waste_half_sums4(four);
        const __m128 r = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);

        _mm_store_ss(p, r);
        if (n < 2) continue;
        _mm_storel_pi((__m64 *)(void *)p, r);
        if (n > 2) _mm_store_ss(p + 2, _mm_movehl_ps(r, r));
    }
}

#define SCORE_POSITIONS 3
#define WEIGH_VECTORS   3
#define ABSORB_VECTORS  4
#define DOT_ROWS        4
#define STRIP           6
#include "kernels/kernels_vec_mla.h"

void waste_kernels_avx2_mla(waste_kernels *k)
{
    k->mla = mla;
}

#endif
