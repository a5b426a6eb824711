/* Experts on AVX-512, the scales of the tables: see kernels_avx512_vq.h.
 *
 * The bound of a block is a chain of divisions and a square root; 16 blocks have theirs
 * computed side by side, which costs hardly more than one. */
#include "kernels/kernels_avx512_vq.h"

#if WASTE_HAVE_AVX512BW

#include <math.h>

#define COLUMNS (8 * WASTE_VQ_BLOCK) /* of a block */

#define LEAST 1e-25f   /* that the largest |x| of a block counts as */
#define RANGE 32600.0f /* what the stages' entries may add up to */

/* c[k]: column k of 16 blocks, a block to a lane; zero from column n on. */
static void columns(__m512 *c, const float *x, int64_t n)
{
    int64_t i, k;

    for (k = 0; k < COLUMNS; k += 16) {
        for (i = 0; i < 16; i++) {
            const int64_t at = COLUMNS * i + k;

            c[k + i] =
                n > at ? _mm512_maskz_loadu_ps(waste_lanes16(n - at), x + at) : _mm512_setzero_ps();
        }
        waste_transpose16(c + k);
    }
}

/* The sum of the squares of 8 columns. */
static inline __m512 square_of(const __m512 *c, __m512 by)
{
    __m512 v[8];
    int i;

    for (i = 0; i < 8; i++) {
        v[i] = _mm512_mul_ps(c[i], by);
        v[i] = _mm512_mul_ps(v[i], v[i]);
    }
    for (i = 0; i < 8; i += 2) v[i] = _mm512_add_ps(v[i], v[i + 1]);
    return _mm512_add_ps(_mm512_add_ps(v[0], v[2]), _mm512_add_ps(v[4], v[6]));
}

/* The largest |x_v|, as the largest |x| that it is made of and a factor. Lanes with
 * something that is not finite are left out of the mask. */
static __mmask16 longest(const __m512 *c, __m512 *most, __m512 *norm)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512i bits = _mm512_setzero_si512();
    __m512 s = _mm512_setzero_ps(), by;
    __mmask16 finite;
    int k;

    for (k = 0; k < COLUMNS; k++)
        bits = _mm512_max_epu32(
            bits, _mm512_and_si512(_mm512_castps_si512(c[k]), _mm512_set1_epi32(0x7FFFFFFF)));
    finite = _mm512_cmplt_epu32_mask(bits, _mm512_set1_epi32(0x7F800000));
    *most = _mm512_max_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(LEAST));
    by = _mm512_div_ps(one, *most);
    for (k = 0; k < COLUMNS; k += 8) s = _mm512_max_ps(s, square_of(c + k, by));
    *norm = _mm512_max_ps(_mm512_sqrt_ps(s), one); /* below: the clamped one, or a rounding */
    return finite;
}

void waste_vq_scales(waste_vq_scale *to, const waste_vq_books *b, const float *x, int64_t nv)
{
    const int64_t blocks = (nv + WASTE_VQ_BLOCK - 1) / WASTE_VQ_BLOCK;
    __m512 c[COLUMNS], most, norm, entries, by;
    __mmask16 good, m;
    int64_t i;

    for (i = 0; i < blocks; i += 16) {
        columns(c, x + COLUMNS * i, 8 * nv - COLUMNS * i);
        good = longest(c, &most, &norm);
        if (!isfinite(b->sum)) good = 0;
        entries = _mm512_div_ps(
            _mm512_div_ps(_mm512_set1_ps(RANGE), _mm512_mul_ps(_mm512_set1_ps(b->sum), norm)),
            most);
        by = _mm512_mul_ps(_mm512_div_ps(_mm512_mul_ps(entries, _mm512_set1_ps(32768.0f)),
                                         _mm512_set1_ps(32760.0f)),
                           _mm512_set1_ps(b->longest));
        m = waste_lanes16(blocks - i);
        _mm512_mask_storeu_ps(to->x + i, m, _mm512_maskz_mov_ps(good, by));
        _mm512_mask_storeu_ps(to->unit + i, m,
                              _mm512_mask_blend_ps(good, _mm512_set1_ps(NAN),
                                                   _mm512_div_ps(_mm512_set1_ps(1.0f), entries)));
    }
}

#endif
