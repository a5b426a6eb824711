/* KDA's convolution and step on vectors (kernels_vec.h), written once for every
 * instruction set; formulas in kernels_ref.c, slots in kernels.h. No state, any thread.
 * The file that includes it has defined before
 *
 *     KDA_VECTORS                 of columns, that go through a state together
 *     split3(p, n, to[3])         n of 3 VEC floats: element 3 c + j is lane c of to[j]
 *     join3(p, n, from[3])        the inverse
 *     split4(p, n, to[4])         likewise of 4 VEC floats
 *
 * All f32 with fused multiply-adds: results agree with plain C to rounding, rms a few
 * 1e-7 of the result. Every sum runs in an order that depends on its own row, head and
 * length alone; heads that are computed together to share loads never meet. */
#ifndef WASTE_KERNELS_VEC_KDA_H
#define WASTE_KERNELS_VEC_KDA_H

#include <math.h>

#include "kernels/kernels_ref.h"
#include "kernels/kernels_work.h"

#define COLUMNS (KDA_VECTORS * VEC)
_Static_assert(COLUMNS <= 64, "a state's columns in scratch: WASTE_KDA_FLOATS");

/* ---- convolution -------------------------------------------------------------- */

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
    for (c = lo; c < hi; c += VEC) {
        const int64_t n = hi - c < VEC ? hi - c : VEC;
        vec w[4], r[3];

        split4(a->w + 4 * c, 4 * n, w);
        for (t = 0; t < a->n; t++) {
            float *x = a->x + t * (size_t)a->channels + c;
            const vec in = vec_load_n(x, n);
            vec y;

            /* rows of one sequence that follow one another keep its ring in registers */
            if (t == 0 || a->ring[t] != a->ring[t - 1]) split3(a->ring[t] + 3 * c, 3 * n, r);
            y = r[0] * w[0];
            y = vec_fma(r[1], w[1], y);
            y = vec_fma(r[2], w[2], y);
            y = vec_fma(in, w[3], y);
            vec_store_n(x, n, y * vec_sigmoid(y));
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
    const float qn = 1.0f / sqrtf(vec_dot(q, q, d) + 1e-12f) / sqrtf((float)d);
    const float kn = 1.0f / sqrtf(vec_dot(k, k, d) + 1e-12f);
    const vec rate = vec_set(expf(a->a_log[h])), bound = vec_set(a->bound);
    int i;

    x->dim = d;
    x->e = a->scratch + r * 4 * (size_t)d;
    x->k = x->e + d;
    x->ke = x->k + d;
    x->qe = x->ke + d;
    x->kq = vec_dot(q, k, d) * qn * kn;
    x->beta = 1.0f / (1.0f + expf(-a->beta[t * (size_t)a->heads + (size_t)h]));
    for (i = 0; i < d; i += VEC) {
        const vec in = vec_load(z + i) + vec_load(dt + i);
        const vec key = vec_load(k + i) * vec_set(kn);
        vec g;

        if (a->bound < 0)
            g = bound * vec_sigmoid(rate * in);
        else
            g = vec_set(0.0f) - rate * vec_softplus(in);
        g = vec_exp(g);
        vec_store(x->e + i, g);
        vec_store(x->k + i, key);
        vec_store(x->ke + i, key * g);
        vec_store(x->qe + i, vec_load(q + i) * vec_set(qn) * g);
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
INLINE void pass(const slice *c, const kda_head *now, const kda_head *then, const vec *delta,
                 vec *u, vec *w, const int what, const int nv)
{
    const size_t d = (size_t)now->dim;
    float *p = c->s;
    size_t r;
    int i;

    for (r = 0; r < d; r++, p += c->step) {
        const vec e = vec_set(now->e[r]), k = vec_set(now->k[r]);
        const vec ke = vec_set(then->ke[r]), qe = vec_set(then->qe[r]);

        for (i = 0; i < nv; i++) {
            vec y = vec_load(p + VEC * i);

            if (what & FETCH && i % (16 / VEC) == 0)
                __builtin_prefetch(c->next + r * d + VEC * i, 0, 2);
            if (what & WRITE) {
                y = vec_fma(y, e, k * delta[i]);
                vec_store(p + VEC * i, y);
            }
            if (what & READ) {
                u[i] = vec_fma(y, ke, u[i]);
                w[i] = vec_fma(y, qe, w[i]);
            }
        }
    }
}

/* nv vectors of columns for n rows, one after the other: v and o of the first, `row`
 * floats apart. A row's first pass only reads: S'k and S'q together, and o = S'q + (k q)
 * delta, so that the second, which decays and adds delta, is its last. The second of a
 * row and the first of the row after it are one. */
INLINE void columns(const kda_head *x, size_t n, const slice *c, const float *v, float *o,
                    size_t row, const int nv)
{
    vec u[KDA_VECTORS], w[KDA_VECTORS], delta[KDA_VECTORS];
    size_t t;
    int i;

    for (i = 0; i < nv; i++) u[i] = w[i] = vec_set(0.0f);
    if (n == 1)
        pass(c, x, x, delta, u, w, READ | FETCH, nv);
    else
        pass(c, x, x, delta, u, w, READ, nv);
    for (t = 0; t < n; t++, v += row, o += row) {
        for (i = 0; i < nv; i++) {
            delta[i] = vec_set(x[t].beta) * (vec_load(v + VEC * i) - u[i]);
            vec_store(o + VEC * i, vec_fma(delta[i], vec_set(x[t].kq), w[i]));
            u[i] = w[i] = vec_set(0.0f);
        }
        if (t + 1 < n)
            pass(c, &x[t], &x[t + 1], delta, u, w, READ | WRITE, nv);
        else if (n == 1)
            pass(c, &x[t], &x[t], delta, u, w, WRITE, nv);
        else
            pass(c, &x[t], &x[t], delta, u, w, WRITE | FETCH, nv);
    }
}

/* COLUMNS of a state, rows `from_step` and `to_step` floats apart. */
static void move(float *to, size_t to_step, const float *from, size_t from_step, size_t rows)
{
    for (; rows; rows--, to += to_step, from += from_step) {
        int i;

        for (i = 0; i < COLUMNS; i += VEC) vec_store(to + i, vec_load(from + i));
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
    for (c = 0; c + COLUMNS <= d; c += COLUMNS) {
        const slice in_place = {s + c, d, next + c}, moved = {close, COLUMNS, next + c};

        if (n == 1) {
            columns(x, 1, &in_place, v + c, o + c, row, KDA_VECTORS);
        } else {
            move(close, COLUMNS, s + c, d, d);
            columns(x, n, &moved, v + c, o + c, row, KDA_VECTORS);
            move(s + c, d, close, COLUMNS, d);
        }
    }
    for (; c < d; c += VEC) {
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

    if (a->dim % VEC) {
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

#undef COLUMNS

#endif
