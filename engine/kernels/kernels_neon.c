/* The NEON table (armv8-a), and its elementwise slots: see kernels.h. No state, any
 * thread.
 *
 * Norms, gates and activations agree with plain C within 4 ulp of f32 (the bound that
 * the tests hold is 1e-6 relative); the other files state theirs. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON

#include <math.h>

static void rmsnorm(const waste_rmsnorm *a, int64_t lo, int64_t hi)
{
    const int64_t w = (int64_t)a->width;
    int64_t t, i;

    for (t = lo; t < hi; t++) {
        const float *x = a->x + (size_t)t * a->x_stride;
        float *y = a->y + (size_t)t * a->y_stride;
        const float r = 1.0f / sqrtf(waste_dot4(x, x, w) / (float)w + a->eps);

        for (i = 0; i < w; i++) y[i] = x[i] * r * a->w[i];
    }
}

static void act(const waste_act *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i += 4)
        waste_store4(
            a->y + i,
            waste_act4(&a->kind, waste_load4(a->g + i, hi - i), waste_load4(a->u + i, hi - i)),
            hi - i);
}

static void gate(const waste_gate *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i += 4)
        waste_store4(
            a->y + i,
            vmulq_f32(waste_load4(a->y + i, hi - i), waste_sigmoid4(waste_load4(a->g + i, hi - i))),
            hi - i);
}

/* sum of v[i] n[i] p[i] */
static float dot3(const float *v, const float *n, const float *p, int64_t w)
{
    float32x4_t s[4];
    int64_t i = 0;
    int j;

    for (j = 0; j < 4; j++) s[j] = vdupq_n_f32(0);
    for (; i + 16 <= w; i += 16)
        for (j = 0; j < 4; j++) {
            const int64_t k = i + 4 * j;
            s[j] = vfmaq_f32(s[j], vmulq_f32(vld1q_f32(v + k), vld1q_f32(n + k)), vld1q_f32(p + k));
        }
    for (; i < w; i += 4)
        s[0] = vfmaq_f32(s[0], vmulq_f32(waste_load4(v + i, w - i), waste_load4(n + i, w - i)),
                         waste_load4(p + i, w - i));
    return vaddvq_f32(vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
}

static void ares(const waste_ares *a, int64_t lo, int64_t hi)
{
    const int64_t w = (int64_t)a->width;
    const size_t nv = a->n_blocks + 1;
    float *score = a->scratch;
    int64_t t, i;
    size_t b;

    for (t = lo; t < hi; t++) {
        const size_t at = (size_t)t * a->width;
        float top = -INFINITY, sum = 0;

        for (b = 0; b < nv; b++) {
            const float *v = b < a->n_blocks ? a->blocks + b * a->block_stride + at : a->p + at;

            score[b] =
                dot3(v, a->norm, a->proj, w) / sqrtf(waste_dot4(v, v, w) / (float)w + a->eps);
            if (score[b] > top) top = score[b];
        }
        for (b = 0; b < nv; b++) sum += score[b] = expf(score[b] - top);
        for (i = 0; i < w; i += 4) { /* p last: y may be p */
            float32x4_t s = vdupq_n_f32(0);

            for (b = 0; b < nv; b++) {
                const float *v = b < a->n_blocks ? a->blocks + b * a->block_stride + at : a->p + at;
                s = vfmaq_n_f32(s, waste_load4(v + i, w - i), score[b] / sum);
            }
            waste_store4(a->y + at + i, s, w - i);
        }
    }
}

int waste_kernels_neon(waste_kernels *k)
{
    k->name = "neon";
    k->rmsnorm = rmsnorm;
    k->act = act;
    k->gate = gate;
    k->ares = ares;
    waste_kernels_neon_vq(k);
    waste_kernels_neon_trunk(k);
    waste_kernels_neon_attn(k);
    return 1;
}

#else

int waste_kernels_neon(waste_kernels *k)
{
    (void)k;
    return 0;
}

#endif
