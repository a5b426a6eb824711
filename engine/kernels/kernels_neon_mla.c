/* Attention over latents on NEON, as kernels_vec_mla.h says. No state, any thread.
 *
 * 32 registers hold sixteen sums, and what they share. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON

#include <string.h>

INLINE vec codes(const unsigned char *chunk, const int q4, int v)
{
    int32_t four;

    if (q4) { /* a nibble with its top bit turned over is c - 8 in two's complement */
        const int32x4_t x = vreinterpretq_s32_u8(veorq_u8(vld1q_u8(chunk), vdupq_n_u8(0x88)));

        return vcvtq_f32_s32(vshrq_n_s32(vshlq_s32(x, vdupq_n_s32(28 - 4 * v)), 28));
    }
    memcpy(&four, chunk + 4 * v, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
}

/* All four positions: a block is a multiple of them. */
INLINE void put_scores(const vec *s, int64_t n, float *p)
{
    int j;

    (void)n;
    for (j = 0; j < 4; j++) vec_store(p + j * WASTE_LATENT_BLOCK, vec_sums(s + 4 * j));
}

#define SCORE_POSITIONS 4
#define WEIGH_VECTORS   4
#define ABSORB_VECTORS  8
#define DOT_ROWS        4
#define STRIP           8
#include "kernels/kernels_vec_mla.h"

void waste_kernels_neon_mla(waste_kernels *k)
{
    k->mla = mla;
}

#endif
