/* Slots that need vectors only (kernels_vec.h): rmsnorm, act, gate, ares. A table's own
 * file includes it. Written once for every instruction set; see kernels.h. No state, any
 * thread.
 *
 * Norms, gates and activations agree with plain C within 4 ulp of f32 (the bound that
 * the tests hold is 1e-6 relative). */
#ifndef WASTE_KERNELS_VEC_ELEMENTWISE_H
#define WASTE_KERNELS_VEC_ELEMENTWISE_H

#include <math.h>

static void rmsnorm(const waste_rmsnorm *a, int64_t lo, int64_t hi)
{
    const int64_t w = (int64_t)a->width;
    int64_t t, i;

    for (t = lo; t < hi; t++) {
        const float *x = a->x + (size_t)t * a->x_stride;
        float *y = a->y + (size_t)t * a->y_stride;
        const vec r = vec_set(1.0f / sqrtf(vec_dot(x, x, w) / (float)w + a->eps));

        for (i = 0; i < w; i += VEC)
            vec_store_n(y + i, w - i, vec_load_n(x + i, w - i) * r * vec_load_n(a->w + i, w - i));
    }
}

static void act(const waste_act *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i += VEC)
        vec_store_n(a->y + i, hi - i,
                    vec_act(&a->kind, vec_load_n(a->g + i, hi - i), vec_load_n(a->u + i, hi - i)));
}

static void gate(const waste_gate *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i += VEC)
        vec_store_n(a->y + i, hi - i,
                    vec_load_n(a->y + i, hi - i) * vec_sigmoid(vec_load_n(a->g + i, hi - i)));
}

/* sum of v[i] n[i] p[i] */
static float dot3(const float *v, const float *n, const float *p, int64_t w)
{
    vec s[4];
    int64_t i = 0;
    int j;

    for (j = 0; j < 4; j++) s[j] = vec_set(0.0f);
    for (; i + 4 * VEC <= w; i += 4 * VEC)
        for (j = 0; j < 4; j++) {
            const int64_t k = i + VEC * j;

            s[j] = vec_fma(vec_load(v + k) * vec_load(n + k), vec_load(p + k), s[j]);
        }
    for (; i < w; i += VEC)
        s[0] = vec_fma(vec_load_n(v + i, w - i) * vec_load_n(n + i, w - i),
                       vec_load_n(p + i, w - i), s[0]);
    return vec_sum((s[0] + s[1]) + (s[2] + s[3]));
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

            score[b] = dot3(v, a->norm, a->proj, w) / sqrtf(vec_dot(v, v, w) / (float)w + a->eps);
            if (score[b] > top) top = score[b];
        }
        for (b = 0; b < nv; b++) sum += score[b] = expf(score[b] - top);
        for (i = 0; i < w; i += VEC) { /* p last: y may be p */
            vec s = vec_set(0.0f);

            for (b = 0; b < nv; b++) {
                const float *v = b < a->n_blocks ? a->blocks + b * a->block_stride + at : a->p + at;

                s = vec_fma(vec_set(score[b] / sum), vec_load_n(v + i, w - i), s);
            }
            vec_store_n(a->y + at + i, w - i, s);
        }
    }
}

static void elementwise(waste_kernels *k)
{
    k->rmsnorm = rmsnorm;
    k->act = act;
    k->gate = gate;
    k->ares = ares;
}

#endif
