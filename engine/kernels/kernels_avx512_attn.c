/* Attention on AVX-512: KDA's convolution and step, MLA. See kernels.h; formulas in
 * kernels_ref.c. No state, any thread.
 *
 * All f32 with fused multiply-adds: results agree with plain C to rounding, rms a few
 * 1e-7 of the result. Every sum runs in an order that depends on its own row, head and
 * length alone; heads that are computed together to share loads never meet. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512

#include <math.h>
#include <string.h>

#include "kernels/kernels_ref.h"
#include "kernels/kernels_work.h"
#include "kernels/quant.h"

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
    const float qn = 1.0f / sqrtf(waste_dot16(q, q, d) + 1e-12f) / sqrtf((float)d);
    const float kn = 1.0f / sqrtf(waste_dot16(k, k, d) + 1e-12f);
    const __m512 rate = _mm512_set1_ps(expf(a->a_log[h])), bound = _mm512_set1_ps(a->bound);
    int i;

    x->dim = d;
    x->e = a->scratch;
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

/* nv vectors of the state's columns, s pointing at the first row's. The first pass
 * only reads: S'k and S'q together, and o = S'q + (k q) delta, so that the second,
 * which decays and adds delta, is the last; the columns stay in L1 between them. */
static inline __attribute__((always_inline)) void columns(const kda_head *x, float *s, size_t ahead,
                                                          const float *v, float *o, const int nv)
{
    const size_t d = (size_t)x->dim;
    __m512 u[4], w[4];
    size_t r;
    int i;

    for (i = 0; i < nv; i++) u[i] = w[i] = _mm512_setzero_ps();
    for (r = 0; r < d; r++) {
        const float *p = s + r * d;
        const __m512 k = _mm512_set1_ps(x->ke[r]), q = _mm512_set1_ps(x->qe[r]);

        for (i = 0; i < nv; i++) {
            const __m512 y = _mm512_loadu_ps(p + 16 * i);

            _mm_prefetch((const char *)(p + ahead + 16 * i), _MM_HINT_T1);
            u[i] = _mm512_fmadd_ps(y, k, u[i]);
            w[i] = _mm512_fmadd_ps(y, q, w[i]);
        }
    }
    for (i = 0; i < nv; i++) {
        u[i] = _mm512_mul_ps(_mm512_set1_ps(x->beta),
                             _mm512_sub_ps(_mm512_loadu_ps(v + 16 * i), u[i]));
        _mm512_storeu_ps(o + 16 * i, _mm512_fmadd_ps(u[i], _mm512_set1_ps(x->kq), w[i]));
    }
    for (r = 0; r < d; r++) {
        float *p = s + r * d;
        const __m512 e = _mm512_set1_ps(x->e[r]), k = _mm512_set1_ps(x->k[r]);

        for (i = 0; i < nv; i++)
            _mm512_storeu_ps(p + 16 * i, _mm512_fmadd_ps(_mm512_loadu_ps(p + 16 * i), e,
                                                         _mm512_mul_ps(k, u[i])));
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

    if (a->dim % 16) {
        waste_kernels_ref(&plain);
        plain.kda(a, lo, hi);
        return;
    }
    for (h = lo; h < hi; h++)
        for (t = 0; t < a->n; t++) {
            const size_t at = (t * (size_t)a->heads + (size_t)h) * (size_t)a->dim;
            const size_t ahead = h + 1 < hi && t + 1 == a->n ? square : 0;
            float *s = a->state[t] + (size_t)h * square;

            prepare(a, h, t, &x);
            for (c = 0; c + 64 <= a->dim; c += 64)
                columns(&x, s + c, ahead, a->v + at + c, a->o + at + c, 4);
            for (; c < a->dim; c += 16) columns(&x, s + c, ahead, a->v + at + c, a->o + at + c, 1);
        }
}

/* ---- MLA ------------------------------------------------------------------------ */

/* Scratch of a part, for WASTE_MLA_ROWS rows and the part's heads. */
typedef struct work {
    size_t heads, q_step, z_step; /* floats of a head */
    float *q;                     /* [rows][heads][q_step]: absorbed, rotary part behind, scaled */
    float *z;                     /* [rows][heads][z_step]: weighted latents */
    float *p;                     /* [heads][WASTE_LATENT_BLOCK] */
    float *top, *sum;             /* [heads] */
    float *w;                     /* [WASTE_MLA_DECODED][z_step] rows of kv_b */
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
    k->sum = k->top + k->heads;
    k->w = k->sum + k->heads;
}

/* A row of kv_b: exactly what waste_quant_decode_row gives. */
static void decode(const waste_matrix *m, int64_t row, float *to)
{
    const unsigned char *p = (const unsigned char *)m->data + row * m->row_bytes;
    const uint16_t *scales = m->scales + row * m->n_groups;
    int64_t g, i, j;

    if (m->fmt == WASTE_FMT_F32) {
        memcpy(to, p, (size_t)m->cols * sizeof *to);
        return;
    }
    if (m->group % 64 || m->cols % 16) {
        waste_quant_decode_row(m->fmt, p, scales, m->cols, m->group, to);
        return;
    }
    for (g = 0; g < m->n_groups; g++) {
        const __m512 s = _mm512_set1_ps(_cvtsh_ss(scales[g]));

        for (i = g * m->group; i < (g + 1) * m->group && i < m->cols; i += 64) {
            const __m512i c = _mm512_sub_epi8(waste_codes64(m->fmt, p, i, 64),
                                              _mm512_set1_epi8((char)waste_code_offset(m->fmt)));
            const __m128i part[4] = {_mm512_castsi512_si128(c), _mm512_extracti32x4_epi32(c, 1),
                                     _mm512_extracti32x4_epi32(c, 2),
                                     _mm512_extracti32x4_epi32(c, 3)};

            for (j = 0; j < 4 && i + 16 * j < m->cols; j++)
                _mm512_storeu_ps(
                    to + i + 16 * j,
                    _mm512_mul_ps(s, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(part[j]))));
        }
    }
}

static int64_t decode_some(const waste_mla *a, const work *k, int64_t first, int64_t n)
{
    int64_t i;

    if (n > WASTE_MLA_DECODED) n = WASTE_MLA_DECODED;
    for (i = 0; i < n; i++) {
        float *w = k->w + (size_t)i * k->z_step;

        decode(&a->kv_b, first + i, w);
        memset(w + a->rank, 0, (k->z_step - (size_t)a->rank) * sizeof *w);
    }
    return n;
}

/* q += x[0] w[0] + .. + x[n - 1] w[n - 1], one after the other in every column. */
static void add_rows(float *q, const float *x, const float *w, size_t step, int64_t n)
{
    size_t c;
    int64_t i;
    int j;

    for (c = 0; c < step; c += 16 * 8) {
        const int nv = step - c < 16 * 8 ? (int)((step - c) / 16) : 8;
        __m512 s[8];

        for (j = 0; j < nv; j++) s[j] = _mm512_loadu_ps(q + c + 16 * j);
        for (i = 0; i < n; i++) {
            const __m512 v = _mm512_set1_ps(x[i]);

            for (j = 0; j < nv; j++)
                s[j] = _mm512_fmadd_ps(_mm512_loadu_ps(w + (size_t)i * step + c + 16 * j), v, s[j]);
        }
        for (j = 0; j < nv; j++) _mm512_storeu_ps(q + c + 16 * j, s[j]);
    }
}

/* The absorbed queries of head h for rows first..first+n of the batch. at: number of
 * the head in the part. */
static void absorb(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first, size_t n)
{
    const size_t head = (size_t)(a->nope + a->rope), row = (size_t)a->heads * head;
    int64_t i, m;
    size_t t, c;

    for (t = 0; t < n; t++) memset(k->q + (t * k->heads + at) * k->q_step, 0, k->q_step * 4);
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
        for (c = 0; c < k->q_step; c += 16)
            _mm512_storeu_ps(q + c,
                             _mm512_mul_ps(_mm512_loadu_ps(q + c), _mm512_set1_ps(a->scale)));
    }
}

/* Sums of the lanes of 16 vectors, lane i that of s[i]; every one in the same tree. */
static inline __m512 sums16(__m512 *s)
{
    __m512 x, y, p, q;
    int i;

    for (i = 0; i < 8; i++)
        s[i] = _mm512_add_ps(_mm512_unpacklo_ps(s[2 * i], s[2 * i + 1]),
                             _mm512_unpackhi_ps(s[2 * i], s[2 * i + 1]));
    for (i = 0; i < 4; i++) {
        const __m512d a = _mm512_castps_pd(s[2 * i]), b = _mm512_castps_pd(s[2 * i + 1]);

        s[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    x = _mm512_shuffle_f32x4(s[0], s[1], 0x88);
    y = _mm512_shuffle_f32x4(s[0], s[1], 0xDD);
    p = _mm512_add_ps(x, y);
    x = _mm512_shuffle_f32x4(s[2], s[3], 0x88);
    y = _mm512_shuffle_f32x4(s[2], s[3], 0xDD);
    q = _mm512_add_ps(x, y);
    return _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xDD));
}

/* Scores of four heads at n positions, in p (four rows of WASTE_LATENT_BLOCK). */
static void score(const float *q, size_t q_step, const float *latent, int64_t width, int64_t n,
                  float *p)
{
    int64_t at, d;
    int i, j;

    for (at = 0; at < n; at += 4) {
        const float *l[4];
        __m512 s[16], r;

        for (i = 0; i < 4; i++) l[i] = latent + (at + i < n ? at + i : n - 1) * width;
        for (i = 0; i < 16; i++) s[i] = _mm512_setzero_ps();
        for (d = 0; d < width; d += 16) {
            const __mmask16 m = waste_lanes16(width - d);
            __m512 c[4];

            for (i = 0; i < 4; i++) c[i] = _mm512_maskz_loadu_ps(m, l[i] + d);
            for (j = 0; j < 4; j++) {
                const __m512 x = _mm512_loadu_ps(q + (size_t)j * q_step + d);

                for (i = 0; i < 4; i++) s[4 * j + i] = _mm512_fmadd_ps(x, c[i], s[4 * j + i]);
            }
        }
        r = sums16(s);
        _mm_storeu_ps(p + at, _mm512_castps512_ps128(r));
        _mm_storeu_ps(p + WASTE_LATENT_BLOCK + at, _mm512_extractf32x4_ps(r, 1));
        _mm_storeu_ps(p + 2 * WASTE_LATENT_BLOCK + at, _mm512_extractf32x4_ps(r, 2));
        _mm_storeu_ps(p + 3 * WASTE_LATENT_BLOCK + at, _mm512_extractf32x4_ps(r, 3));
    }
}

/* Scores of a block become weights relative to the running maximum; what was summed
 * before shrinks when the maximum rises. */
static void soften(const work *k, size_t head, float *z, int64_t n)
{
    float *p = k->p + head * WASTE_LATENT_BLOCK;
    __m512 v[WASTE_LATENT_BLOCK / 16], high = _mm512_set1_ps(-INFINITY), total;
    float most;
    size_t d;
    int i;

    for (i = 0; i < WASTE_LATENT_BLOCK / 16; i++) {
        v[i] = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY),
                                    n > 16 * i ? waste_lanes16(n - 16 * i) : 0, p + 16 * i);
        high = _mm512_max_ps(high, v[i]);
    }
    most = _mm512_reduce_max_ps(high);
    if (most > k->top[head]) {
        const __m512 shrink = waste_exp16(_mm512_set1_ps(k->top[head] - most));

        for (d = 0; d < k->z_step; d += 16)
            _mm512_storeu_ps(z + d, _mm512_mul_ps(_mm512_loadu_ps(z + d), shrink));
        k->sum[head] *= _mm512_cvtss_f32(shrink);
        k->top[head] = most;
    }
    total = _mm512_setzero_ps();
    for (i = 0; i < WASTE_LATENT_BLOCK / 16; i++) {
        v[i] = waste_exp16(_mm512_sub_ps(v[i], _mm512_set1_ps(k->top[head])));
        _mm512_storeu_ps(p + 16 * i, v[i]);
        total = _mm512_add_ps(total, v[i]);
    }
    k->sum[head] += _mm512_reduce_add_ps(total);
}

/* z += weights times latents: four heads by nv vectors of columns. */
static inline __attribute__((always_inline)) void weigh(float *z, size_t z_step, const float *p,
                                                        const float *latent, int64_t width,
                                                        int64_t n, __mmask16 m, const int nv)
{
    __m512 s[4][4];
    int64_t at;
    int i, j;

    for (j = 0; j < 4; j++)
        for (i = 0; i < nv; i++) s[j][i] = _mm512_loadu_ps(z + (size_t)j * z_step + 16 * i);
    for (at = 0; at < n; at++, latent += width) {
        __m512 c[4];

        for (i = 0; i < nv; i++) c[i] = _mm512_maskz_loadu_ps(m, latent + 16 * i);
        for (j = 0; j < 4; j++) {
            const __m512 x = _mm512_set1_ps(p[j * WASTE_LATENT_BLOCK + at]);

            for (i = 0; i < nv; i++) s[j][i] = _mm512_fmadd_ps(x, c[i], s[j][i]);
        }
    }
    for (j = 0; j < 4; j++)
        for (i = 0; i < nv; i++) _mm512_storeu_ps(z + (size_t)j * z_step + 16 * i, s[j][i]);
}

/* Row t of the batch, number r of the work: all heads of the part, block by block. */
static void attend(const waste_mla *a, const work *k, size_t t, size_t r)
{
    const int64_t width = a->rank + a->rope, n = a->last[t] + 1;
    const float *q = k->q + r * k->heads * k->q_step;
    float *z = k->z + r * k->heads * k->z_step;
    int64_t at, m, c;
    size_t h;

    memset(z, 0, k->heads * k->z_step * sizeof *z);
    for (h = 0; h < k->heads; h++) {
        k->top[h] = -INFINITY;
        k->sum[h] = 0;
    }
    for (at = 0; at < n; at += WASTE_LATENT_BLOCK) {
        const float *latent = a->block[t][at / WASTE_LATENT_BLOCK];

        m = n - at < WASTE_LATENT_BLOCK ? n - at : WASTE_LATENT_BLOCK;
        for (h = 0; h < k->heads; h += 4)
            score(q + h * k->q_step, k->q_step, latent, width, m, k->p + h * WASTE_LATENT_BLOCK);
        for (h = 0; h < k->heads; h++) soften(k, h, z + h * k->z_step, m);
        for (c = 0; c + 64 <= a->rank; c += 64)
            for (h = 0; h < k->heads; h += 4)
                weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                      width, m, 0xFFFF, 4);
        for (; c < a->rank; c += 16)
            for (h = 0; h < k->heads; h += 4)
                weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                      width, m, waste_lanes16(a->rank - c), 1);
    }
    for (h = 0; h < k->heads; h++) {
        const __m512 by = _mm512_set1_ps(1.0f / k->sum[h]);

        for (c = 0; c < (int64_t)k->z_step; c += 16) {
            float *p = z + h * k->z_step + c;
            _mm512_storeu_ps(p, _mm512_mul_ps(_mm512_loadu_ps(p), by));
        }
    }
}

/* w z for n decoded rows of kv_b, n <= 16: their sums run side by side. */
static inline __m512 dots(const float *w, size_t step, int64_t n, const float *z)
{
    __m512 s[16];
    size_t c;
    int i;

    for (i = 0; i < 16; i++) s[i] = _mm512_setzero_ps();
    for (c = 0; c < step; c += 16) {
        const __m512 v = _mm512_loadu_ps(z + c);

#pragma GCC unroll 16
        for (i = 0; i < 16; i++)
            s[i] = _mm512_fmadd_ps(
                _mm512_loadu_ps(w + (i < n ? (size_t)i : (size_t)n - 1) * step + c), v, s[i]);
    }
    return sums16(s);
}

/* The values of head h for rows first..first+n. */
static void expand(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first, size_t n)
{
    int64_t i, m;
    size_t t;

    for (i = 0; i < a->v; i += m) {
        m = decode_some(a, k, h * (a->nope + a->v) + a->nope + i, a->v - i);
        for (t = 0; t < n; t++) {
            const float *z = k->z + (t * k->heads + at) * k->z_step;
            const __m512 o = m == 16 ? dots(k->w, k->z_step, 16, z) : dots(k->w, k->z_step, m, z);

            _mm512_mask_storeu_ps(a->o + (first + t) * (size_t)(a->heads * a->v) + h * a->v + i,
                                  waste_lanes16(m), o);
        }
    }
}

static void mla(const waste_mla *a, int64_t lo, int64_t hi)
{
    size_t first, n, t, h;
    work k;

    if (lo >= hi) return;
    for (first = 0; first < a->n; first += n) {
        n = a->n - first < WASTE_MLA_ROWS ? a->n - first : WASTE_MLA_ROWS;
        work_of(&k, a, n, (size_t)(hi - lo));
        memset(k.q, 0, n * k.heads * k.q_step * sizeof *k.q);
        for (h = 0; h < (size_t)(hi - lo); h++) absorb(a, &k, lo + (int64_t)h, h, first, n);
        for (t = 0; t < n; t++) attend(a, &k, first + t, t);
        for (h = 0; h < (size_t)(hi - lo); h++) expand(a, &k, lo + (int64_t)h, h, first, n);
    }
}

void waste_kernels_avx512_attn(waste_kernels *k)
{
    k->conv = conv;
    k->kda = kda;
    k->mla = mla;
}

#endif
