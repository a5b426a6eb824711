/* The AVX-512 tables, and their elementwise slots: see kernels.h. No state, any thread.
 *
 * Norms, gates and activations agree with plain C within 4 ulp of f32 (the bound that
 * the tests hold is 1e-6 relative); the other files state theirs. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512BW

#include <math.h>
#include <string.h>

#include "kernels/kernels_avx2.h"

static void rmsnorm(const waste_rmsnorm *a, int64_t lo, int64_t hi)
{
    const int64_t w = (int64_t)a->width;
    int64_t t, i;

    for (t = lo; t < hi; t++) {
        const float *x = a->x + (size_t)t * a->x_stride;
        float *y = a->y + (size_t)t * a->y_stride;
        const __m512 r = _mm512_set1_ps(1.0f / sqrtf(waste_dot16(x, x, w) / (float)w + a->eps));

        for (i = 0; i < w; i += 16) {
            const __mmask16 m = waste_lanes16(w - i);
            const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), r);

            _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, a->w + i)));
        }
    }
}

static void act(const waste_act *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i += 16) {
        const __mmask16 m = waste_lanes16(hi - i);

        _mm512_mask_storeu_ps(a->y + i, m,
                              waste_act16(&a->kind, _mm512_maskz_loadu_ps(m, a->g + i),
                                          _mm512_maskz_loadu_ps(m, a->u + i)));
    }
}

static void gate(const waste_gate *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i += 16) {
        const __mmask16 m = waste_lanes16(hi - i);

        _mm512_mask_storeu_ps(a->y + i, m,
                              _mm512_mul_ps(_mm512_maskz_loadu_ps(m, a->y + i),
                                            waste_sigmoid16(_mm512_maskz_loadu_ps(m, a->g + i))));
    }
}

/* sum of v[i] n[i] p[i] */
static float dot3(const float *v, const float *n, const float *p, int64_t w)
{
    __m512 s = _mm512_setzero_ps();
    int64_t i;

    for (i = 0; i < w; i += 16) {
        const __mmask16 m = waste_lanes16(w - i);

        s = _mm512_fmadd_ps(
            _mm512_mul_ps(_mm512_maskz_loadu_ps(m, v + i), _mm512_maskz_loadu_ps(m, n + i)),
            _mm512_maskz_loadu_ps(m, p + i), s);
    }
    return _mm512_reduce_add_ps(s);
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
                dot3(v, a->norm, a->proj, w) / sqrtf(waste_dot16(v, v, w) / (float)w + a->eps);
            if (score[b] > top) top = score[b];
        }
        for (b = 0; b < nv; b++) sum += score[b] = expf(score[b] - top);
        for (i = 0; i < w; i += 16) { /* p last: y may be p */
            const __mmask16 m = waste_lanes16(w - i);
            __m512 s = _mm512_setzero_ps();

            for (b = 0; b < nv; b++) {
                const float *v = b < a->n_blocks ? a->blocks + b * a->block_stride + at : a->p + at;
                s = _mm512_fmadd_ps(_mm512_set1_ps(score[b] / sum), _mm512_maskz_loadu_ps(m, v + i),
                                    s);
            }
            _mm512_mask_storeu_ps(a->y + at + i, m, s);
        }
    }
}

static void shared(waste_kernels *k)
{
    k->rmsnorm = rmsnorm;
    k->act = act;
    k->gate = gate;
    k->ares = ares;
    waste_kernels_avx512_kda(k);
    waste_kernels_avx512_mla(k);
}

int waste_kernels_avx512(waste_kernels *k)
{
    k->name = "avx512";
    shared(k);
    waste_kernels_avx512_vq(k);
    waste_kernels_avx512_trunk(k);
    return 1;
}

int waste_kernels_avx512bw(waste_kernels *k)
{
    waste_kernels_avx2(k); /* its trunk stays */
    k->name = "avx512bw";
    shared(k);
    waste_kernels_avx512bw_vq(k);
    return 1;
}

#else

int waste_kernels_avx512(waste_kernels *k)
{
    (void)k;
    return 0;
}

int waste_kernels_avx512bw(waste_kernels *k)
{
    (void)k;
    return 0;
}

#endif
