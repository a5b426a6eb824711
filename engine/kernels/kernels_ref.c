/* Plain C kernels in f32: see kernels.h. No state, any thread.
 *
 * Every sum has a fixed order. Dot products run in 16 independent lanes, lane j
 * taking elements j, j + 16, ..., and the lanes are folded in a fixed tree: the
 * compiler may use vectors without being told that addition is associative. A
 * weight row is decoded once, exactly, and then meets each row of the batch by
 * the same function that a single row would use. */
#include "kernels/kernels_ref.h"

#include <math.h>
#include <string.h>

#include "kernels/quant.h"

#define LANES 16

/* ---- sums ----------------------------------------------------------------- */

/* Lanes plus the elements from i on, which are fewer than LANES. */
static inline float fold(const float *restrict lane, const float *restrict a,
                         const float *restrict b, int64_t i, int64_t n)
{
    float s[LANES];
    int64_t j;

    for (j = 0; j < LANES; j++) s[j] = lane[j];
    for (j = 0; i + j < n; j++) s[j] += a[i + j] * b[i + j];
    for (j = 0; j < 8; j++) s[j] += s[j + 8];
    for (j = 0; j < 4; j++) s[j] += s[j + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

static float dot(const float *a, const float *b, int64_t n)
{
    float s[LANES] = {0};
    int64_t i, j;

    for (i = 0; i + LANES <= n; i += LANES)
        for (j = 0; j < LANES; j++) s[j] += a[i + j] * b[i + j];
    return fold(s, a, b, i, n);
}

/* y += c * x */
static inline void add_scaled(float *restrict y, const float *restrict x, float c, int64_t n)
{
    int64_t i;

    for (i = 0; i < n; i++) y[i] += c * x[i];
}

static inline float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

/* ---- trunk ------------------------------------------------------------------ */

static void decode(const waste_matrix *w, int64_t row, float *to)
{
    const void *scales =
        w->fmt == WASTE_FMT_F32 ? NULL : (const char *)w->scales + 2 * row * w->n_groups;

    waste_quant_decode_row(w->fmt, (const char *)w->data + row * w->row_bytes, scales, w->cols,
                           w->group, to);
}

static void matmul(const waste_matmul *a, int64_t lo, int64_t hi)
{
    int64_t o;
    size_t t;

    for (o = lo; o < hi; o++) {
        decode(&a->w, o, a->decoded);
        for (t = 0; t < a->n; t++) {
            float *y = a->y_rows ? a->y_rows[t] : a->y + t * a->y_stride;
            y[o] = dot(a->decoded, a->x + t * a->x_stride, a->w.cols);
        }
    }
}

static void rmsnorm(const waste_rmsnorm *a, int64_t lo, int64_t hi)
{
    int64_t t;
    size_t i;

    for (t = lo; t < hi; t++) {
        const float *x = a->x + (size_t)t * a->x_stride;
        float *y = a->y + (size_t)t * a->y_stride;
        float r = 1.0f / sqrtf(dot(x, x, (int64_t)a->width) / (float)a->width + a->eps);

        for (i = 0; i < a->width; i++) y[i] = x[i] * r * a->w[i];
    }
}

static inline float act_one(const waste_act_kind *k, float g, float u)
{
    float s = sigmoid(g);

    if (!k->situ) return g * s * u;
    if (k->linear_beta > 0) u = k->linear_beta * tanhf(u / k->linear_beta);
    return k->beta * tanhf(g / k->beta) * s * u;
}

static void act(const waste_act *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i++) a->y[i] = act_one(&a->kind, a->g[i], a->u[i]);
}

static void gate(const waste_gate *a, int64_t lo, int64_t hi)
{
    int64_t i;

    for (i = lo; i < hi; i++) a->y[i] *= sigmoid(a->g[i]);
}

/* ---- KDA -------------------------------------------------------------------- */

static void conv(const waste_conv *a, int64_t lo, int64_t hi)
{
    int keep = a->taps - 1, j;
    int64_t c;
    size_t t;

    for (t = 0; t < a->n; t++) {
        float *x = a->x + t * (size_t)a->channels;

        for (c = lo; c < hi; c++) {
            const float *w = a->w + c * a->taps;
            float *ring = a->ring[t] + c * keep, y = 0, in = x[c];

            for (j = 0; j < keep; j++) y += ring[j] * w[j];
            y += in * w[keep];
            for (j = 0; j + 1 < keep; j++) ring[j] = ring[j + 1];
            if (keep) ring[keep - 1] = in;
            x[c] = y * sigmoid(y);
        }
    }
}

/* ln(1 + e^z) without overflow, and exact to f32 where e^z is small */
static inline float softplus(float z)
{
    return z > 20.0f ? z : log1pf(expf(z));
}

/* The state of one head takes one step; s is [dim][dim], key index first. */
static void kda_step(const waste_kda *a, int64_t h, size_t t, float *restrict s)
{
    const int d = a->dim;
    const size_t at = (t * (size_t)a->heads + (size_t)h) * (size_t)d;
    const float *q = a->q + at, *k = a->k + at, *v = a->v + at, *z = a->decay + at;
    const float *dt = a->dt_bias + h * d;
    const float rate = expf(a->a_log[h]);
    const float beta = sigmoid(a->beta[t * (size_t)a->heads + (size_t)h]);
    const float qn = 1.0f / sqrtf(dot(q, q, d) + 1e-12f) / sqrtf((float)d);
    const float kn = 1.0f / sqrtf(dot(k, k, d) + 1e-12f);
    float *restrict e = a->scratch, *restrict u = e + d, *restrict o = u + d;
    int i, j;

    for (i = 0; i < d; i++) {
        float x = z[i] + dt[i];
        float g = a->bound < 0 ? a->bound * sigmoid(rate * x) : -rate * softplus(x);

        e[i] = expf(g);
        u[i] = o[i] = 0;
    }
    for (j = 0; j < d; j++) {
        float *restrict row = s + (size_t)j * (size_t)d;
        const float ej = e[j], kj = k[j] * kn;

        for (i = 0; i < d; i++) {
            row[i] *= ej;
            u[i] += row[i] * kj;
        }
    }
    for (i = 0; i < d; i++) u[i] = beta * (v[i] - u[i]);
    for (j = 0; j < d; j++) {
        float *restrict row = s + (size_t)j * (size_t)d;
        const float kj = k[j] * kn, qj = q[j] * qn;

        for (i = 0; i < d; i++) {
            row[i] += kj * u[i];
            o[i] += row[i] * qj;
        }
    }
    memcpy(a->o + at, o, (size_t)d * sizeof *o);
}

static void kda(const waste_kda *a, int64_t lo, int64_t hi)
{
    const size_t square = (size_t)a->dim * (size_t)a->dim;
    int64_t h;
    size_t t;

    for (h = lo; h < hi; h++)
        for (t = 0; t < a->n; t++) kda_step(a, h, t, a->state[t] + (size_t)h * square);
}

/* ---- MLA -------------------------------------------------------------------- */

/* m latents of row t from position `at`, where a block begins. */
static const float *latents(const waste_mla *a, size_t t, int64_t at, int64_t m)
{
    const void *block = a->block[t][at / WASTE_LATENT_BLOCK];

    if (!a->f16) return block;
    waste_f16_widen(block, (size_t)(m * (a->rank + a->rope)), a->work);
    return a->work;
}

/* z = softmax-weighted sum of latents, block by block: the running maximum and
 * sum are rescaled when a block raises the maximum, so nothing here grows with
 * the context. qn: absorbed query [rank]; qr: rotary part [rope]. */
static void attend(const waste_mla *a, size_t t, const float *qn, const float *qr, float *z)
{
    const int64_t rank = a->rank, width = a->rank + a->rope, n = a->last[t] + 1;
    float p[WASTE_LATENT_BLOCK], top = -INFINITY, sum = 0;
    int64_t at, i;

    memset(z, 0, (size_t)rank * sizeof *z);
    for (at = 0; at < n; at += WASTE_LATENT_BLOCK) {
        const int64_t m = n - at < WASTE_LATENT_BLOCK ? n - at : WASTE_LATENT_BLOCK;
        const float *c = latents(a, t, at, m);
        float high = top, part = 0;

        for (i = 0; i < m; i++) {
            const float *l = c + i * width;
            p[i] = (dot(qn, l, rank) + dot(qr, l + rank, a->rope)) * a->scale;
            if (p[i] > high) high = p[i];
        }
        if (high > top) {
            const float shrink = expf(top - high); /* 0 at the first block */
            for (i = 0; i < rank; i++) z[i] *= shrink;
            sum *= shrink;
            top = high;
        }
        for (i = 0; i < m; i++) {
            p[i] = expf(p[i] - top);
            part += p[i];
            add_scaled(z, c + i * width, p[i], rank);
        }
        sum += part;
    }
    for (i = 0; i < rank; i++) z[i] /= sum;
}

static void mla(const waste_mla *a, int64_t lo, int64_t hi)
{
    const size_t rank = (size_t)a->rank, q_head = (size_t)(a->nope + a->rope);
    const size_t q_row = (size_t)a->heads * q_head, o_row = (size_t)(a->heads * a->v);
    float *qn = a->latent, *z = a->latent + a->n * rank;
    int64_t h, i, first;
    size_t t;

    for (h = lo; h < hi; h++) {
        const float *q = a->q + (size_t)h * q_head;

        first = h * (a->nope + a->v);
        memset(qn, 0, a->n * rank * sizeof *qn);
        for (i = 0; i < a->nope; i++) {
            decode(&a->kv_b, first + i, a->decoded);
            for (t = 0; t < a->n; t++)
                add_scaled(qn + t * rank, a->decoded, q[t * q_row + (size_t)i], a->rank);
        }
        for (t = 0; t < a->n; t++)
            attend(a, t, qn + t * rank, q + t * q_row + a->nope, z + t * rank);
        first += a->nope;
        for (i = 0; i < a->v; i++) {
            decode(&a->kv_b, first + i, a->decoded);
            for (t = 0; t < a->n; t++)
                a->o[t * o_row + (size_t)(h * a->v + i)] = dot(a->decoded, z + t * rank, a->rank);
        }
    }
}

/* ---- attention residuals ---------------------------------------------------- */

static void ares(const waste_ares *a, int64_t lo, int64_t hi)
{
    const size_t nv = a->n_blocks + 1;
    float *score = a->scratch, *mix = a->scratch + nv;
    int64_t t;
    size_t b, i;

    for (t = lo; t < hi; t++) {
        const size_t at = (size_t)t * a->width;
        float top = -INFINITY, sum = 0;

        for (b = 0; b < nv; b++) {
            const float *v = b < a->n_blocks ? a->blocks + b * a->block_stride + at : a->p + at;
            const float ms = dot(v, v, (int64_t)a->width) / (float)a->width;

            for (i = 0; i < a->width; i++) mix[i] = v[i] * a->norm[i];
            score[b] = dot(mix, a->proj, (int64_t)a->width) / sqrtf(ms + a->eps);
            if (score[b] > top) top = score[b];
        }
        for (b = 0; b < nv; b++) sum += score[b] = expf(score[b] - top);
        memset(mix, 0, a->width * sizeof *mix);
        for (b = 0; b < nv; b++)
            add_scaled(mix, b < a->n_blocks ? a->blocks + b * a->block_stride + at : a->p + at,
                       score[b] / sum, (int64_t)a->width);
        memcpy(a->y + at, mix, a->width * sizeof *mix); /* last: y may be p */
    }
}

/* ---- experts ---------------------------------------------------------------- */

/* Three stages over 8 columns, a byte each: what converters write most. */
static void decode_vq3(const unsigned char *p, size_t step, const float *const *book, int64_t nv,
                       float *restrict to)
{
    int64_t v;
    int d;

    for (v = 0; v < nv; v++, p += step, to += 8) {
        const float *restrict a = book[0] + 8 * p[0];
        const float *restrict b = book[1] + 8 * p[1];
        const float *restrict c = book[2] + 8 * p[2];

        for (d = 0; d < 8; d++) to[d] = a[d] + b[d] + c[d];
    }
}

static void decode_vq(const waste_vq_geometry *g, const unsigned char *p, size_t step,
                      const float *const *book, int64_t nv, float *to)
{
    const int packed = g->index_bits == 6;
    int64_t v;
    int s, d;

    for (v = 0; v < nv; v++, p += step, to += g->vec_dim) {
        const uint32_t u = packed ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 : 0;

        for (d = 0; d < g->vec_dim; d++) to[d] = 0;
        for (s = 0; s < g->stages; s++) {
            const float *c = book[s] + (packed ? (int)(u >> 6 * s & 63) : p[s]) * g->vec_dim;

            for (d = 0; d < g->vec_dim; d++) to[d] += c[d];
        }
    }
}

/* Row r without its scale, which multiplies the finished sum. */
static void decode_expert(const waste_vq_geometry *g, const waste_vq_matrix *m, int64_t r,
                          float *to)
{
    const int64_t nv = m->cols / g->vec_dim;
    const size_t bytes = (size_t)g->vector_bytes;
    size_t step = bytes, at = (size_t)(r * nv) * bytes;

    if (g->index_block) {
        const int64_t block = g->index_block;
        step = (size_t)block * bytes;
        at = (size_t)(r / block * nv) * step + (size_t)(r % block) * bytes;
    }
    if (g->stages == 3 && g->vec_dim == 8 && g->index_bits == 8)
        decode_vq3(m->index + at, step, m->book, nv, to);
    else
        decode_vq(g, m->index + at, step, m->book, nv, to);
}

static float scale_of(const waste_vq_matrix *m, int64_t r)
{
    return waste_f16_to_f32((uint16_t)(m->scale[2 * r] | m->scale[2 * r + 1] << 8));
}

static void expert_up(const waste_expert *a, int64_t lo, int64_t hi)
{
    const int64_t cols = a->gate.cols;
    float *wg = a->decoded, *wu = wg + cols;
    int64_t r;
    size_t i;

    for (r = lo; r < hi; r++) {
        const float sg = scale_of(&a->gate, r), su = scale_of(&a->up, r);

        decode_expert(&a->geometry, &a->gate, r, wg);
        decode_expert(&a->geometry, &a->up, r, wu);
        for (i = 0; i < a->n; i++) {
            const float *x = a->x + (int64_t)a->x_row[i] * cols;
            a->h[(int64_t)i * a->gate.rows + r] =
                act_one(&a->act, sg * dot(wg, x, cols), su * dot(wu, x, cols));
        }
    }
}

static void expert_down(const waste_expert *a, int64_t lo, int64_t hi)
{
    const int64_t cols = a->down.cols;
    int64_t r;
    size_t i;

    for (r = lo; r < hi; r++) {
        const float s = scale_of(&a->down, r);

        decode_expert(&a->geometry, &a->down, r, a->decoded);
        for (i = 0; i < a->n; i++)
            a->y[(int64_t)a->y_row[i] * a->down.rows + r] =
                s * dot(a->decoded, a->h + (int64_t)i * cols, cols);
    }
}

/* ---- the table -------------------------------------------------------------- */

void waste_kernels_ref(waste_kernels *k)
{
    static const waste_kernels table = {
        .name = "plain",
        .matmul = matmul,
        .rmsnorm = rmsnorm,
        .act = act,
        .gate = gate,
        .conv = conv,
        .kda = kda,
        .mla = mla,
        .ares = ares,
        .expert_up = expert_up,
        .expert_down = expert_down,
    };

    *k = table;
}
