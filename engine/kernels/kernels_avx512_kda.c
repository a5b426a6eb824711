/* KDA on AVX-512: convolution and step. See kernels.h; formulas in kernels_ref.c. No
 * state, any thread.
 *
 * All f32 with fused multiply-adds: results agree with plain C to rounding, rms a few
 * 1e-7 of the result. Every sum runs in an order that depends on its own row, head and
 * length alone; heads that are computed together to share loads never meet. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512BW

#include <math.h>

#include "kernels/kernels_ref.h"
#include "kernels/kernels_work.h"

/* ---- convolution -------------------------------------------------------------- */

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

static void conv(const waste_conv *a, int64_t lo, int64_t hi)
{
    waste_kernels plain;
    int64_t c;
    size_t t;

    if (a->taps != 4) {
        waste_kernels_ref(&plain);
        plain.conv(a, lo, hi);
        return;
    }
    for (c = lo; c < hi; c += 16) {
        const int64_t n = hi - c < 16 ? hi - c : 16;
        const __mmask16 m = waste_lanes16(n);
        __m512 w[4], r[3];

        split4(a->w + 4 * c, 4 * n, w);
        for (t = 0; t < a->n; t++) {
            float *x = a->x + t * (size_t)a->channels + c;
            const __m512 in = _mm512_maskz_loadu_ps(m, x);
            __m512 y;

            /* rows of one sequence that follow one another keep its ring in registers */
            if (t == 0 || a->ring[t] != a->ring[t - 1]) split3(a->ring[t] + 3 * c, 3 * n, r);
            y = _mm512_mul_ps(r[0], w[0]);
            y = _mm512_fmadd_ps(r[1], w[1], y);
            y = _mm512_fmadd_ps(r[2], w[2], y);
            y = _mm512_fmadd_ps(in, w[3], y);
            _mm512_mask_storeu_ps(x, m, _mm512_mul_ps(y, waste_sigmoid16(y)));
            r[0] = r[1];
            r[1] = r[2];
            r[2] = in;
            if (t + 1 == a->n || a->ring[t + 1] != a->ring[t]) join3(a->ring[t] + 3 * c, 3 * n, r);
        }
    }
}

/* ---- KDA step ------------------------------------------------------------------ */

/* One head's vectors for one row, in its scratch. */
typedef struct kda_head {
    float *e, *k, *ke, *qe; /* decay; key; key and query times decay */
    float kq, beta;
    int dim;
} kda_head;

/* r: number of the row in its run. */
static void prepare(const waste_kda *a, int64_t h, size_t t, size_t r, kda_head *x)
{
    const int d = a->dim;
    const size_t at = (t * (size_t)a->heads + (size_t)h) * (size_t)d;
    const float *q = a->q + at, *k = a->k + at, *z = a->decay + at, *dt = a->dt_bias + h * d;
    const float qn = 1.0f / sqrtf(waste_dot16(q, q, d) + 1e-12f) / sqrtf((float)d);
    const float kn = 1.0f / sqrtf(waste_dot16(k, k, d) + 1e-12f);
    const __m512 rate = _mm512_set1_ps(expf(a->a_log[h])), bound = _mm512_set1_ps(a->bound);
    int i;

    x->dim = d;
    x->e = a->scratch + r * 4 * (size_t)d;
    x->k = x->e + d;
    x->ke = x->k + d;
    x->qe = x->ke + d;
    x->kq = waste_dot16(q, k, d) * qn * kn;
    x->beta = 1.0f / (1.0f + expf(-a->beta[t * (size_t)a->heads + (size_t)h]));
    for (i = 0; i < d; i += 16) {
        const __m512 in = _mm512_add_ps(_mm512_loadu_ps(z + i), _mm512_loadu_ps(dt + i));
        const __m512 key = _mm512_mul_ps(_mm512_loadu_ps(k + i), _mm512_set1_ps(kn));
        __m512 g;

        if (a->bound < 0)
            g = _mm512_mul_ps(bound, waste_sigmoid16(_mm512_mul_ps(rate, in)));
        else
            g = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(rate, waste_softplus16(in)));
        g = waste_exp16(g);
        _mm512_storeu_ps(x->e + i, g);
        _mm512_storeu_ps(x->k + i, key);
        _mm512_storeu_ps(x->ke + i, _mm512_mul_ps(key, g));
        _mm512_storeu_ps(
            x->qe + i, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(q + i), _mm512_set1_ps(qn)), g));
    }
}

/* Columns of a state that lie apart by `step`; next: those that come after them, which
 * are `dim` apart. */
typedef struct slice {
    float *s;
    size_t step;
    const float *next;
} slice;

enum { READ = 1, WRITE = 2, FETCH = 4 };

/* One pass over nv vectors of columns. WRITE: they decay and take in delta, as row `now`
 * says. READ: what they hold then is summed for row `then`, S'k to u and S'q to w. FETCH:
 * the next ones are asked for. */
static inline __attribute__((always_inline)) void pass(const slice *c, const kda_head *now,
                                                       const kda_head *then, const __m512 *delta,
                                                       __m512 *u, __m512 *w, const int what,
                                                       const int nv)
{
    const size_t d = (size_t)now->dim;
    float *p = c->s;
    size_t r;
    int i;

    for (r = 0; r < d; r++, p += c->step) {
        const __m512 e = _mm512_set1_ps(now->e[r]), k = _mm512_set1_ps(now->k[r]);
        const __m512 ke = _mm512_set1_ps(then->ke[r]), qe = _mm512_set1_ps(then->qe[r]);

        for (i = 0; i < nv; i++) {
            __m512 y = _mm512_loadu_ps(p + 16 * i);

            if (what & FETCH) _mm_prefetch((const char *)(c->next + r * d + 16 * i), _MM_HINT_T1);
            if (what & WRITE) {
                y = _mm512_fmadd_ps(y, e, _mm512_mul_ps(k, delta[i]));
                _mm512_storeu_ps(p + 16 * i, y);
            }
            if (what & READ) {
                u[i] = _mm512_fmadd_ps(y, ke, u[i]);
                w[i] = _mm512_fmadd_ps(y, qe, w[i]);
            }
        }
    }
}

/* nv vectors of columns for n rows, one after the other: v and o of the first, `row`
 * floats apart. A row's first pass only reads: S'k and S'q together, and o = S'q + (k q)
 * delta, so that the second, which decays and adds delta, is its last. The second of a
 * row and the first of the row after it are one. */
static inline __attribute__((always_inline)) void columns(const kda_head *x, size_t n,
                                                          const slice *c, const float *v, float *o,
                                                          size_t row, const int nv)
{
    __m512 u[4], w[4], delta[4];
    size_t t;
    int i;

    for (i = 0; i < nv; i++) u[i] = w[i] = _mm512_setzero_ps();
    if (n == 1)
        pass(c, x, x, delta, u, w, READ | FETCH, nv);
    else
        pass(c, x, x, delta, u, w, READ, nv);
    for (t = 0; t < n; t++, v += row, o += row) {
        for (i = 0; i < nv; i++) {
            delta[i] = _mm512_mul_ps(_mm512_set1_ps(x[t].beta),
                                     _mm512_sub_ps(_mm512_loadu_ps(v + 16 * i), u[i]));
            _mm512_storeu_ps(o + 16 * i, _mm512_fmadd_ps(delta[i], _mm512_set1_ps(x[t].kq), w[i]));
            u[i] = w[i] = _mm512_setzero_ps();
        }
        if (t + 1 < n)
            pass(c, &x[t], &x[t + 1], delta, u, w, READ | WRITE, nv);
        else if (n == 1)
            pass(c, &x[t], &x[t], delta, u, w, WRITE, nv);
        else
            pass(c, &x[t], &x[t], delta, u, w, WRITE | FETCH, nv);
    }
}

/* 64 columns of a state, rows `from_step` and `to_step` floats apart. */
static void move64(float *to, size_t to_step, const float *from, size_t from_step, size_t rows)
{
    for (; rows; rows--, to += to_step, from += from_step) {
        int i;

        for (i = 0; i < 64; i += 16) _mm512_storeu_ps(to + i, _mm512_loadu_ps(from + i));
    }
}

/* n rows that follow one another in one state. next: the state that comes after it.
 * Columns that many rows pass over are moved together: rows of a state lie so far apart
 * that few of them fit L1 at a time. */
static void run(const waste_kda *a, int64_t h, size_t first, size_t n, const float *next)
{
    const size_t d = (size_t)a->dim, row = (size_t)a->heads * d;
    const float *v = a->v + first * row + (size_t)h * d;
    float *s = a->state[first] + (size_t)h * d * d, *o = a->o + (v - a->v);
    float *close = a->scratch + WASTE_KDA_ROWS * 4 * d;
    kda_head x[WASTE_KDA_ROWS];
    size_t c, t;

    for (t = 0; t < n; t++) prepare(a, h, first + t, t, &x[t]);
    for (c = 0; c + 64 <= d; c += 64) {
        const slice in_place = {s + c, d, next + c}, moved = {close, 64, next + c};

        if (n == 1) {
            columns(x, 1, &in_place, v + c, o + c, row, 4);
        } else {
            move64(close, 64, s + c, d, d);
            columns(x, n, &moved, v + c, o + c, row, 4);
            move64(s + c, d, close, 64, d);
        }
    }
    for (; c < d; c += 16) {
        const slice in_place = {s + c, d, next + c};

        columns(x, n, &in_place, v + c, o + c, row, 1);
    }
}

static void kda(const waste_kda *a, int64_t lo, int64_t hi)
{
    const size_t square = (size_t)a->dim * (size_t)a->dim;
    waste_kernels plain;
    int64_t h;
    size_t t, n;

    if (a->dim % 16) {
        waste_kernels_ref(&plain);
        plain.kda(a, lo, hi);
        return;
    }
    for (h = lo; h < hi; h++)
        for (t = 0; t < a->n; t += n) {
            const float *next = a->state[t] + (size_t)h * square;

            for (n = 1; n < WASTE_KDA_ROWS && t + n < a->n && a->state[t + n] == a->state[t]; n++)
                continue;
            if (t + n < a->n)
                next = a->state[t + n] + (size_t)h * square;
            else if (h + 1 < hi)
                next = a->state[0] + (size_t)(h + 1) * square;
            run(a, h, t, n, next);
        }
}

void waste_kernels_avx512_kda(waste_kernels *k)
{
    k->conv = conv;
    k->kda = kda;
}

#endif
