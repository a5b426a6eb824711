/* Attention on NEON: KDA's convolution and step, MLA. See kernels.h; formulas in
 * kernels_ref.c. No state, any thread.
 *
 * All f32 with fused multiply-adds: results agree with plain C to rounding, rms a few
 * 1e-7 of the result. Every sum runs in an order that depends on its own row, head and
 * length alone; heads that are computed together to share loads never meet. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON

#include <math.h>
#include <string.h>

#include "kernels/kernels_ref.h"
#include "kernels/kernels_work.h"
#include "kernels/quant.h"

/* ---- convolution -------------------------------------------------------------- */

/* Channels c..c+3 of all rows: w [4][4], their weights; the first n of them exist. */
static void conv4(const waste_conv *a, int64_t c, int64_t n, const float *w)
{
    const float32x4x4_t v = vld4q_f32(w);
    float32x4x3_t r = {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}};
    float ring[12] = {0};
    size_t t;

    for (t = 0; t < a->n; t++) {
        float *x = a->x + t * (size_t)a->channels + c, *own = a->ring[t] + 3 * c;
        const float32x4_t in = waste_load4(x, n);
        float32x4_t y;

        /* rows of one sequence that follow one another keep its ring in registers */
        if (t == 0 || a->ring[t] != a->ring[t - 1]) {
            memcpy(ring, own, 3 * (size_t)n * sizeof *ring);
            r = vld3q_f32(ring);
        }
        y = vmulq_f32(r.val[0], v.val[0]);
        y = vfmaq_f32(y, r.val[1], v.val[1]);
        y = vfmaq_f32(y, r.val[2], v.val[2]);
        y = vfmaq_f32(y, in, v.val[3]);
        waste_store4(x, vmulq_f32(y, waste_sigmoid4(y)), n);
        r.val[0] = r.val[1];
        r.val[1] = r.val[2];
        r.val[2] = in;
        if (t + 1 == a->n || a->ring[t + 1] != a->ring[t]) {
            vst3q_f32(ring, r);
            memcpy(own, ring, 3 * (size_t)n * sizeof *ring);
        }
    }
}

static void conv(const waste_conv *a, int64_t lo, int64_t hi)
{
    float w[16] = {0};
    waste_kernels plain;
    int64_t c, n;

    if (a->taps != 4) {
        waste_kernels_ref(&plain);
        plain.conv(a, lo, hi);
        return;
    }
    for (c = lo; c < hi; c += 4) {
        n = hi - c < 4 ? hi - c : 4;
        memcpy(w, a->w + 4 * c, 4 * (size_t)n * sizeof *w);
        conv4(a, c, n, w);
    }
}

/* ---- KDA step ------------------------------------------------------------------ */

/* One head's vectors, in its scratch. */
typedef struct kda_head {
    float *e, *k, *ke, *qe; /* decay; key; key and query times decay */
    float kq, beta;
    int dim;
} kda_head;

static void prepare(const waste_kda *a, int64_t h, size_t t, kda_head *x)
{
    const int d = a->dim;
    const size_t at = (t * (size_t)a->heads + (size_t)h) * (size_t)d;
    const float *q = a->q + at, *k = a->k + at, *z = a->decay + at, *dt = a->dt_bias + h * d;
    const float qn = 1.0f / sqrtf(waste_dot4(q, q, d) + 1e-12f) / sqrtf((float)d);
    const float kn = 1.0f / sqrtf(waste_dot4(k, k, d) + 1e-12f);
    const float rate = expf(a->a_log[h]);
    int i;

    x->dim = d;
    x->e = a->scratch;
    x->k = x->e + d;
    x->ke = x->k + d;
    x->qe = x->ke + d;
    x->kq = waste_dot4(q, k, d) * qn * kn;
    x->beta = 1.0f / (1.0f + expf(-a->beta[t * (size_t)a->heads + (size_t)h]));
    for (i = 0; i < d; i += 4) {
        const float32x4_t in = vaddq_f32(vld1q_f32(z + i), vld1q_f32(dt + i));
        const float32x4_t key = vmulq_n_f32(vld1q_f32(k + i), kn);
        float32x4_t g;

        if (a->bound < 0)
            g = vmulq_n_f32(waste_sigmoid4(vmulq_n_f32(in, rate)), a->bound);
        else
            g = vnegq_f32(vmulq_n_f32(waste_softplus4(in), rate));
        g = waste_exp4(g);
        vst1q_f32(x->e + i, g);
        vst1q_f32(x->k + i, key);
        vst1q_f32(x->ke + i, vmulq_f32(key, g));
        vst1q_f32(x->qe + i, vmulq_f32(vmulq_n_f32(vld1q_f32(q + i), qn), g));
    }
}

/* nv vectors of the state's columns, s pointing at the first row's. The first pass
 * only reads: S'k and S'q together, and o = S'q + (k q) delta, so that the second,
 * which decays and adds delta, is the last; the columns stay in L1 between them. */
static inline __attribute__((always_inline)) void columns(const kda_head *x, float *s,
                                                          const float *v, float *o, const int nv)
{
    const size_t d = (size_t)x->dim;
    float32x4_t u[8], w[8];
    size_t r;
    int i;

    for (i = 0; i < nv; i++) u[i] = w[i] = vdupq_n_f32(0);
    for (r = 0; r < d; r++) {
        const float *p = s + r * d;
        const float32x4_t k = vdupq_n_f32(x->ke[r]), q = vdupq_n_f32(x->qe[r]);

        for (i = 0; i < nv; i++) {
            const float32x4_t y = vld1q_f32(p + 4 * i);

            u[i] = vfmaq_f32(u[i], y, k);
            w[i] = vfmaq_f32(w[i], y, q);
        }
    }
    for (i = 0; i < nv; i++) {
        u[i] = vmulq_n_f32(vsubq_f32(vld1q_f32(v + 4 * i), u[i]), x->beta);
        vst1q_f32(o + 4 * i, vfmaq_n_f32(w[i], u[i], x->kq));
    }
    for (r = 0; r < d; r++) {
        float *p = s + r * d;
        const float32x4_t e = vdupq_n_f32(x->e[r]), k = vdupq_n_f32(x->k[r]);

        for (i = 0; i < nv; i++)
            vst1q_f32(p + 4 * i, vfmaq_f32(vmulq_f32(k, u[i]), vld1q_f32(p + 4 * i), e));
    }
}

static void kda(const waste_kda *a, int64_t lo, int64_t hi)
{
    const size_t square = (size_t)a->dim * (size_t)a->dim;
    waste_kernels plain;
    kda_head x;
    int64_t h;
    size_t t;
    int c;

    if (a->dim % 4) {
        waste_kernels_ref(&plain);
        plain.kda(a, lo, hi);
        return;
    }
    for (h = lo; h < hi; h++)
        for (t = 0; t < a->n; t++) {
            const size_t at = (t * (size_t)a->heads + (size_t)h) * (size_t)a->dim;
            float *s = a->state[t] + (size_t)h * square;

            prepare(a, h, t, &x);
            for (c = 0; c + 32 <= a->dim; c += 32)
                columns(&x, s + c, a->v + at + c, a->o + at + c, 8);
            for (; c < a->dim; c += 4) columns(&x, s + c, a->v + at + c, a->o + at + c, 1);
        }
}

/* ---- MLA ------------------------------------------------------------------------ */

/* Scratch of a part, for WASTE_MLA_ROWS rows and the part's heads. */
typedef struct work {
    size_t heads, q_step, z_step; /* floats of a head */
    float *q;                     /* [rows][heads][q_step]: absorbed, rotary part behind, scaled */
    float *z;                     /* [rows][heads][z_step]: weighted latents */
    float *p;                     /* [heads][WASTE_LATENT_BLOCK] */
    float *top, *sum;             /* [rows][heads] */
    float *w;                     /* [WASTE_MLA_DECODED][z_step] rows of kv_b */
    float *latent;                /* a block of latents that are kept as binary16 */
} work;

static size_t up_to(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

static void work_of(work *k, const waste_mla *a, size_t rows, size_t heads)
{
    k->heads = up_to(heads, 4); /* heads go four together: the last ones may be nobody's */
    k->q_step = up_to((size_t)(a->rank + a->rope), 16);
    k->z_step = up_to((size_t)a->rank, 16);
    k->q = a->work;
    k->z = k->q + rows * k->heads * k->q_step;
    k->p = k->z + rows * k->heads * k->z_step;
    k->top = k->p + k->heads * WASTE_LATENT_BLOCK;
    k->sum = k->top + rows * k->heads;
    k->w = k->sum + rows * k->heads;
    k->latent = k->w + WASTE_MLA_DECODED * k->z_step;
}

static int64_t decode_some(const waste_mla *a, const work *k, int64_t first, int64_t n)
{
    const waste_matrix *m = &a->kv_b;
    int64_t i;

    if (n > WASTE_MLA_DECODED) n = WASTE_MLA_DECODED;
    for (i = 0; i < n; i++) {
        float *w = k->w + (size_t)i * k->z_step;
        const void *scales =
            m->fmt == WASTE_FMT_F32 ? NULL : (const void *)(m->scales + (first + i) * m->n_groups);

        waste_quant_decode_row(m->fmt, (const char *)m->data + (first + i) * m->row_bytes, scales,
                               m->cols, m->group, w);
        memset(w + a->rank, 0, (k->z_step - (size_t)a->rank) * sizeof *w);
    }
    return n;
}

/* q += x[0] w[0] + .. + x[n - 1] w[n - 1], one after the other in every column. step
 * is a multiple of 16. */
static void add_rows(float *q, const float *x, const float *w, size_t step, int64_t n)
{
    size_t c;
    int64_t i;
    int j;

    for (c = 0; c < step; c += 16) {
        float32x4_t s[4];

        for (j = 0; j < 4; j++) s[j] = vld1q_f32(q + c + 4 * j);
        for (i = 0; i < n; i++)
            for (j = 0; j < 4; j++)
                s[j] = vfmaq_n_f32(s[j], vld1q_f32(w + (size_t)i * step + c + 4 * j), x[i]);
        for (j = 0; j < 4; j++) vst1q_f32(q + c + 4 * j, s[j]);
    }
}

/* The absorbed queries of head h for rows first..first+n of the batch. at: number of
 * the head in the part. */
static void absorb(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first, size_t n)
{
    const size_t head = (size_t)(a->nope + a->rope), row = (size_t)a->heads * head;
    int64_t i, m;
    size_t t, c;

    for (t = 0; t < n; t++)
        memset(k->q + (t * k->heads + at) * k->q_step, 0, k->q_step * sizeof *k->q);
    for (i = 0; i < a->nope; i += m) {
        m = decode_some(a, k, h * (a->nope + a->v) + i, a->nope - i);
        for (t = 0; t < n; t++)
            add_rows(k->q + (t * k->heads + at) * k->q_step,
                     a->q + (first + t) * row + (size_t)h * head + (size_t)i, k->w, k->z_step, m);
    }
    for (t = 0; t < n; t++) {
        float *q = k->q + (t * k->heads + at) * k->q_step;
        const float *turned = a->q + (first + t) * row + (size_t)h * head + a->nope;

        memcpy(q + a->rank, turned, (size_t)a->rope * sizeof *q);
        for (c = 0; c < k->q_step; c += 4)
            vst1q_f32(q + c, vmulq_n_f32(vld1q_f32(q + c), a->scale));
    }
}

/* Scores of four heads at n positions, in p (four rows of WASTE_LATENT_BLOCK). */
static void score(const float *q, size_t q_step, const float *latent, int64_t width, int64_t n,
                  float *p)
{
    int64_t at, d;
    int i, j;

    for (at = 0; at < n; at += 4) {
        const float *l[4];
        float32x4_t s[4][4];

        for (i = 0; i < 4; i++) l[i] = latent + (at + i < n ? at + i : n - 1) * width;
        for (j = 0; j < 4; j++)
            for (i = 0; i < 4; i++) s[j][i] = vdupq_n_f32(0);
        for (d = 0; d < width; d += 4) {
            float32x4_t c[4];

            for (i = 0; i < 4; i++) c[i] = waste_load4(l[i] + d, width - d);
            for (j = 0; j < 4; j++) {
                const float32x4_t x = vld1q_f32(q + (size_t)j * q_step + d);

                for (i = 0; i < 4; i++) s[j][i] = vfmaq_f32(s[j][i], x, c[i]);
            }
        }
        for (j = 0; j < 4; j++) vst1q_f32(p + j * WASTE_LATENT_BLOCK + at, waste_sums4(s[j]));
    }
}

/* Scores of a block become weights relative to the running maximum; what was summed
 * before shrinks when the maximum rises. */
static void soften(const work *k, float *p, float *z, float *top, float *sum, int64_t n)
{
    float32x4_t high = vdupq_n_f32(-INFINITY), total = vdupq_n_f32(0);
    float most;
    int64_t i;
    size_t d;

    for (i = n; i < WASTE_LATENT_BLOCK; i++) p[i] = -INFINITY;
    for (i = 0; i < WASTE_LATENT_BLOCK; i += 4) high = vmaxq_f32(high, vld1q_f32(p + i));
    most = vmaxvq_f32(high);
    if (most > *top) {
        const float shrink = vgetq_lane_f32(waste_exp4(vdupq_n_f32(*top - most)), 0);

        for (d = 0; d < k->z_step; d += 4) vst1q_f32(z + d, vmulq_n_f32(vld1q_f32(z + d), shrink));
        *sum *= shrink;
        *top = most;
    }
    for (i = 0; i < WASTE_LATENT_BLOCK; i += 4) {
        const float32x4_t v = waste_exp4(vsubq_f32(vld1q_f32(p + i), vdupq_n_f32(*top)));

        vst1q_f32(p + i, v);
        total = vaddq_f32(total, v);
    }
    *sum += vaddvq_f32(total);
}

/* z += weights times latents: four heads by nv vectors of columns, `columns` of which
 * exist. */
static inline __attribute__((always_inline)) void weigh(float *z, size_t z_step, const float *p,
                                                        const float *latent, int64_t width,
                                                        int64_t n, int64_t columns, const int nv)
{
    float32x4_t s[4][4];
    int64_t at;
    int i, j;

    for (j = 0; j < 4; j++)
        for (i = 0; i < nv; i++) s[j][i] = vld1q_f32(z + (size_t)j * z_step + 4 * i);
    for (at = 0; at < n; at++, latent += width) {
        float32x4_t c[4];

        for (i = 0; i < nv; i++)
            c[i] = nv == 4 ? vld1q_f32(latent + 4 * i) : waste_load4(latent, columns);
        for (j = 0; j < 4; j++)
            for (i = 0; i < nv; i++)
                s[j][i] = vfmaq_n_f32(s[j][i], c[i], p[j * WASTE_LATENT_BLOCK + at]);
    }
    for (j = 0; j < 4; j++)
        for (i = 0; i < nv; i++) vst1q_f32(z + (size_t)j * z_step + 4 * i, s[j][i]);
}

/* Row r of the work takes in n latents. */
static void take_block(const waste_mla *a, const work *k, size_t r, const float *latent, int64_t n)
{
    const int64_t width = a->rank + a->rope;
    const float *q = k->q + r * k->heads * k->q_step;
    float *z = k->z + r * k->heads * k->z_step;
    int64_t c;
    size_t h;

    for (h = 0; h < k->heads; h += 4)
        score(q + h * k->q_step, k->q_step, latent, width, n, k->p + h * WASTE_LATENT_BLOCK);
    for (h = 0; h < k->heads; h++)
        soften(k, k->p + h * WASTE_LATENT_BLOCK, z + h * k->z_step, k->top + r * k->heads + h,
               k->sum + r * k->heads + h, n);
    for (c = 0; c + 16 <= a->rank; c += 16)
        for (h = 0; h < k->heads; h += 4)
            weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                  width, n, 16, 4);
    for (; c < a->rank; c += 4)
        for (h = 0; h < k->heads; h += 4)
            weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                  width, n, a->rank - c, 1);
}

/* Exactly what waste_f16_widen gives. */
static void widen(const uint16_t *h, int64_t n, float *to)
{
    int64_t i;

    for (i = 0; i + 4 <= n; i += 4) vst1q_f32(to + i, waste_neon_f16(h + i));
    if (i < n) waste_f16_widen(h + i, (size_t)(n - i), to + i);
}

/* Rows first..first+n of the batch, block by block: rows of one sequence follow one
 * another and find a block where the one before has left it. */
static void attend(const waste_mla *a, const work *k, size_t first, size_t n)
{
    const int64_t width = a->rank + a->rope;
    int64_t most = 0, at, m;
    size_t t, h, c;

    memset(k->z, 0, n * k->heads * k->z_step * sizeof *k->z);
    for (h = 0; h < n * k->heads; h++) {
        k->top[h] = -INFINITY;
        k->sum[h] = 0;
    }
    for (t = 0; t < n; t++)
        if (a->last[first + t] >= most) most = a->last[first + t] + 1;
    for (at = 0; at < most; at += WASTE_LATENT_BLOCK) {
        const void *widened = NULL;
        int64_t have = 0;

        for (t = 0; t < n; t++) {
            const void *block;

            m = a->last[first + t] + 1 - at;
            if (m <= 0) continue;
            if (m > WASTE_LATENT_BLOCK) m = WASTE_LATENT_BLOCK;
            block = a->block[first + t][at / WASTE_LATENT_BLOCK];
            if (a->f16 && (block != widened || m > have)) {
                widen(block, m * width, k->latent);
                widened = block;
                have = m;
            }
            take_block(a, k, t, a->f16 ? k->latent : block, m);
        }
    }
    for (h = 0; h < n * k->heads; h++) {
        float *z = k->z + h * k->z_step;
        const float by = 1.0f / k->sum[h];

        for (c = 0; c < k->z_step; c += 4) vst1q_f32(z + c, vmulq_n_f32(vld1q_f32(z + c), by));
    }
}

/* w z for rows i..i+3 of the decoded ones; from row n on they are nobody's. */
static float32x4_t dots4(const float *w, size_t step, int64_t i, int64_t n, const float *z)
{
    const float *row[4];
    float32x4_t s[4];
    size_t c;
    int j;

    for (j = 0; j < 4; j++) {
        row[j] = w + (size_t)(i + j < n ? i + j : n - 1) * step;
        s[j] = vdupq_n_f32(0);
    }
    for (c = 0; c < step; c += 4) {
        const float32x4_t v = vld1q_f32(z + c);

        for (j = 0; j < 4; j++) s[j] = vfmaq_f32(s[j], vld1q_f32(row[j] + c), v);
    }
    return waste_sums4(s);
}

/* The values of head h for rows first..first+n. */
static void expand(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first, size_t n)
{
    int64_t i, j, m;
    size_t t;

    for (i = 0; i < a->v; i += m) {
        m = decode_some(a, k, h * (a->nope + a->v) + a->nope + i, a->v - i);
        for (t = 0; t < n; t++) {
            const float *z = k->z + (t * k->heads + at) * k->z_step;
            float *o = a->o + (first + t) * (size_t)(a->heads * a->v) + h * a->v + i;

            for (j = 0; j < m; j += 4) waste_store4(o + j, dots4(k->w, k->z_step, j, m, z), m - j);
        }
    }
}

static void mla(const waste_mla *a, int64_t lo, int64_t hi)
{
    size_t first, n, h;
    work k;

    if (lo >= hi) return;
    for (first = 0; first < a->n; first += n) {
        n = a->n - first < WASTE_MLA_ROWS ? a->n - first : WASTE_MLA_ROWS;
        work_of(&k, a, n, (size_t)(hi - lo));
        memset(k.q, 0, n * k.heads * k.q_step * sizeof *k.q);
        for (h = 0; h < (size_t)(hi - lo); h++) absorb(a, &k, lo + (int64_t)h, h, first, n);
        attend(a, &k, first, n);
        for (h = 0; h < (size_t)(hi - lo); h++) expand(a, &k, lo + (int64_t)h, h, first, n);
    }
}

void waste_kernels_neon_attn(waste_kernels *k)
{
    k->conv = conv;
    k->kda = kda;
    k->mla = mla;
}

#endif
