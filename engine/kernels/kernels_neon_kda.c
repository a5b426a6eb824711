/* KDA on NEON: convolution and step, as kernels_vec_kda.h says. No state, any thread. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON

#include <string.h>

INLINE void split3(const float *p, int64_t n, vec to[3])
{
    float room[12] = {0};
    float32x4x3_t v;

    memcpy(room, p, (size_t)n * sizeof *p);
    v = vld3q_f32(room);
    memcpy(to, v.val, sizeof v.val);
}

INLINE void join3(float *p, int64_t n, const vec from[3])
{
    const float32x4x3_t v = {{from[0], from[1], from[2]}};
    float room[12];

    vst3q_f32(room, v);
    memcpy(p, room, (size_t)n * sizeof *p);
}

INLINE void split4(const float *p, int64_t n, vec to[4])
{
    float room[16] = {0};
    float32x4x4_t v;

    memcpy(room, p, (size_t)n * sizeof *p);
    v = vld4q_f32(room);
    memcpy(to, v.val, sizeof v.val);
}

#define KDA_VECTORS 8
#include "kernels/kernels_vec_kda.h"

void waste_kernels_neon_kda(waste_kernels *k)
{
    k->conv = conv;
    k->kda = kda;
}

#endif
