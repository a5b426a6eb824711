/* KDA on AVX-512: convolution and step, as kernels_vec_kda.h says. No state, any thread. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512BW

/* 48 floats as three vectors: element 3 c + j of them is lane c of vector j. */
static inline void split3(const float *p, int64_t n, __m512 to[3])
{
    const __m512 a = _mm512_maskz_loadu_ps(waste_lanes16(n), p);
    const __m512 b = n > 16 ? _mm512_maskz_loadu_ps(waste_lanes16(n - 16), p + 16) : a;
    const __m512 c = n > 32 ? _mm512_maskz_loadu_ps(waste_lanes16(n - 32), p + 32) : a;
    __m512i at = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
    int j;

    for (j = 0; j < 3; j++) {
        const __mmask16 third = _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(32));

        to[j] = _mm512_mask_permutexvar_ps(_mm512_permutex2var_ps(a, at, b), third, at, c);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(1));
    }
}

static inline void join3(float *p, int64_t n, const __m512 from[3])
{
    /* element 16 v + l: channel of it, and 16 more where it is of vector 1 */
    static const int32_t place[3][16] = {
        {0, 16, 0, 1, 17, 1, 2, 18, 2, 3, 19, 3, 4, 20, 4, 5},
        {21, 5, 6, 22, 6, 7, 23, 7, 8, 24, 8, 9, 25, 9, 10, 26},
        {10, 11, 27, 11, 12, 28, 12, 13, 29, 13, 14, 30, 14, 15, 31, 15}};
    static const uint16_t of_two[3] = {0x4924, 0x2492, 0x9249};
    int v;

    for (v = 0; v < 3 && n > 16 * v; v++) {
        const __m512i at = _mm512_loadu_si512(place[v]);
        const __m512 x = _mm512_mask_permutexvar_ps(_mm512_permutex2var_ps(from[0], at, from[1]),
                                                    of_two[v], at, from[2]);

        _mm512_mask_storeu_ps(p + 16 * v, waste_lanes16(n - 16 * v), x);
    }
}

/* 16 channels of four taps: weight j of them as a vector. */
static inline void split4(const float *p, int64_t n, __m512 to[4])
{
    const __m512i even =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512 v[4];
    int i;

    for (i = 0; i < 4; i++)
        v[i] = n > 16 * i ? _mm512_maskz_loadu_ps(waste_lanes16(n - 16 * i), p + 16 * i)
                          : _mm512_setzero_ps();
    for (i = 0; i < 4; i++) {
        const __m512i at = _mm512_add_epi32(even, _mm512_set1_epi32(i));

        to[i] = _mm512_mask_blend_ps(0xFF00, _mm512_permutex2var_ps(v[0], at, v[1]),
                                     _mm512_permutex2var_ps(v[2], at, v[3]));
    }
}

#define KDA_VECTORS 4
#include "kernels/kernels_vec_kda.h"

void waste_kernels_avx512_kda(waste_kernels *k)
{
    k->conv = conv;
    k->kda = kda;
}

#endif
