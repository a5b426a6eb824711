/* Attention over latents on AVX-512: see kernels.h; formulas in kernels_ref.c. No
 * state, any thread.
 *
 * All f32 with fused multiply-adds: results agree with plain C to rounding, rms a few
 * 1e-7 of the result. Every sum runs in an order that depends on its own row, head and
 * length alone; heads and rows that are computed together to share loads never meet.
 *
 * Time goes by where latents lie. A block of them (147 KB at rank 512) comes from memory
 * once for all rows and heads of a call that fit L2 beside it, and goes through L1 in
 * strips: a few positions for the scores, a few columns for the weighted sum. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512BW

#include <math.h>
#include <string.h>

#include "kernels/kernels_work.h"
#include "kernels/quant.h"

/* Scratch of a part, for WASTE_MLA_ROWS rows and the part's heads. */
typedef struct work {
    size_t heads, q_step, z_step; /* floats of a head */
    float *q;                     /* [rows][heads][q_step]: absorbed, rotary part behind, scaled */
    float *z;                     /* [rows][heads][z_step]: weighted latents */
    float *top, *sum;             /* [rows][heads] */
    float *p;                     /* [heads][WASTE_LATENT_BLOCK] */
    float *w;                     /* [WASTE_MLA_DECODED][z_step] rows of kv_b */
    float *latent;                /* [WASTE_LATENT_BLOCK][rank + rope], widened */
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
    k->w = k->p + k->heads * WASTE_LATENT_BLOCK;
    k->latent = k->w + WASTE_MLA_DECODED * k->z_step;
    k->top = k->latent + WASTE_LATENT_BLOCK * (k->z_step + up_to((size_t)a->rope, 16));
    k->sum = k->top + rows * k->heads;
}

static float *query(const work *k, size_t row, size_t head)
{
    return k->q + (row * k->heads + head) * k->q_step;
}

static float *weighted(const work *k, size_t row, size_t head)
{
    return k->z + (row * k->heads + head) * k->z_step;
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

/* ---- kv_b, any format ----------------------------------------------------------- */

/* n rows of kv_b as floats, one behind the other in k->w; returns how many, at most
 * WASTE_MLA_DECODED. */
static int64_t decode_some(const waste_mla *a, const work *k, int64_t first, int64_t n)
{
    const waste_matrix *m = &a->kv_b;
    int64_t i;

    if (n > WASTE_MLA_DECODED) n = WASTE_MLA_DECODED;
    for (i = 0; i < n; i++) {
        const uint16_t *scales =
            m->fmt == WASTE_FMT_F32 ? NULL : m->scales + (first + i) * m->n_groups;
        float *w = k->w + (size_t)i * k->z_step;

        waste_quant_decode_row(m->fmt, (const char *)m->data + (first + i) * m->row_bytes, scales,
                               m->cols, m->group, w);
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

/* q [nope] of row t of the batch, in head h. */
static const float *nope_of(const waste_mla *a, int64_t h, size_t t)
{
    const size_t head = (size_t)(a->nope + a->rope);

    return a->q + (t * (size_t)a->heads + (size_t)h) * head;
}

static void absorb_any(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first,
                       size_t n)
{
    int64_t i, m;
    size_t t;

    for (t = 0; t < n; t++) memset(query(k, t, at), 0, k->q_step * sizeof(float));
    for (i = 0; i < a->nope; i += m) {
        m = decode_some(a, k, h * (a->nope + a->v) + i, a->nope - i);
        for (t = 0; t < n; t++)
            add_rows(query(k, t, at), nope_of(a, h, first + t) + i, k->w, k->z_step, m);
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

/* Values first_v..first_v+15 of head h and row t of the batch; fewer at the end. */
static void put_values(const waste_mla *a, int64_t h, int64_t first_v, size_t t, __m512 o)
{
    _mm512_mask_storeu_ps(a->o + (t * (size_t)a->heads + (size_t)h) * (size_t)a->v + first_v,
                          waste_lanes16(a->v - first_v), o);
}

static void expand_any(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first,
                       size_t n)
{
    int64_t i, m;
    size_t t;

    for (i = 0; i < a->v; i += WASTE_MLA_DECODED) {
        m = decode_some(a, k, h * (a->nope + a->v) + a->nope + i, a->v - i);
        for (t = 0; t < n; t++)
            put_values(a, h, i, first + t, dots(k->w, k->z_step, m, weighted(k, t, at)));
    }
}

/* ---- kv_b, as it usually is -------------------------------------------------------- */

/* Q4G and Q8G in groups of whole chunks of 128 columns are multiplied as they are stored:
 * a code becomes a float in one or two instructions, a group's scale goes to the query,
 * or to the group's sum. Eight vectors make up a chunk:
 *
 *     Q8G   vector v, lane l: column 16 v + l
 *     Q4G   vector v, lane l: column 8 l + v, the nibbles of dword l of the row */
#define CHUNK 128

static int usual(const waste_matrix *m)
{
    return (m->fmt == WASTE_FMT_Q4G || m->fmt == WASTE_FMT_Q8G) && m->group % CHUNK == 0 &&
           m->cols % CHUNK == 0;
}

static inline __attribute__((always_inline)) size_t chunk_bytes(const int q4)
{
    return q4 ? CHUNK / 2 : CHUNK;
}

static inline __attribute__((always_inline)) __m512 codes(const unsigned char *chunk, const int q4,
                                                          int v)
{
    /* of code c: c - 8; the permutation looks at the low four bits alone */
    const __m512 value = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);

    if (q4)
        return _mm512_permutexvar_ps(
            _mm512_srli_epi32(_mm512_loadu_si512(chunk), (unsigned)(4 * v)), value);
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(chunk + 16 * v))));
}

/* Where column l of vector v lies among a chunk's in the order of its columns. */
static inline __m512i place(const int q4, int v)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

    return q4 ? _mm512_add_epi32(_mm512_slli_epi32(lane, 3), _mm512_set1_epi32(v))
              : _mm512_add_epi32(lane, _mm512_set1_epi32(16 * v));
}

/* One chunk of the absorbed queries of nr rows. w, scale: of the head's first row of kv_b,
 * at this chunk. */
static inline __attribute__((always_inline)) void absorb_chunk(
    const waste_mla *a, const unsigned char *w, const uint16_t *scale, const float *const *q,
    float *const *to, const int q4, const int nr)
{
    __m512 s[2][8];
    int64_t i;
    int v, r;

    for (r = 0; r < nr; r++)
        for (v = 0; v < 8; v++) s[r][v] = _mm512_setzero_ps();
    for (i = 0; i < a->nope; i++, w += a->kv_b.row_bytes, scale += a->kv_b.n_groups) {
        const float by = _cvtsh_ss(*scale);
        __m512 x[2];

        for (r = 0; r < nr; r++) x[r] = _mm512_set1_ps(q[r][i] * by);
#pragma GCC unroll 8
        for (v = 0; v < 8; v++) {
            const __m512 c = codes(w, q4, v);

            for (r = 0; r < nr; r++) s[r][v] = _mm512_fmadd_ps(c, x[r], s[r][v]);
        }
    }
    for (r = 0; r < nr; r++)
        for (v = 0; v < 8; v++) _mm512_i32scatter_ps(to[r], place(q4, v), s[r][v], 4);
}

static inline __attribute__((always_inline)) void absorb_as(const waste_mla *a, const work *k,
                                                            int64_t h, size_t at, size_t first,
                                                            size_t n, const int q4)
{
    const waste_matrix *m = &a->kv_b;
    const int64_t row = h * (a->nope + a->v);
    const unsigned char *w = (const unsigned char *)m->data + row * m->row_bytes;
    const uint16_t *scales = m->scales + row * m->n_groups;
    int64_t c;
    size_t t;

    for (c = 0; c < m->cols / CHUNK; c++, w += chunk_bytes(q4)) {
        const uint16_t *scale = scales + c * CHUNK / m->group;

        for (t = 0; t < n; t += 2) {
            const size_t u = t + 1 < n ? t + 1 : t;
            const float *q[2] = {nope_of(a, h, first + t), nope_of(a, h, first + u)};
            float *to[2] = {query(k, t, at) + c * CHUNK, query(k, u, at) + c * CHUNK};

            if (u > t)
                absorb_chunk(a, w, scale, q, to, q4, 2);
            else
                absorb_chunk(a, w, scale, q, to, q4, 1);
        }
    }
}

/* Eight rows of kv_b times z, which is in the order of the codes; s: one vector of
 * partial sums for each. */
static inline __attribute__((always_inline)) void dots_of(const waste_matrix *m,
                                                          const unsigned char *w,
                                                          const uint16_t *scales, const float *z,
                                                          __m512 *s, const int q4)
{
    int64_t c;
    int i, v;

    for (i = 0; i < 8; i++) s[i] = _mm512_setzero_ps();
    for (c = 0; c < m->cols / CHUNK; c++, w += chunk_bytes(q4), z += CHUNK) {
        const int64_t group = c * CHUNK / m->group;
        __m512 part[8];

        for (i = 0; i < 8; i++) part[i] = _mm512_setzero_ps();
#pragma GCC unroll 8
        for (v = 0; v < 8; v++) {
            const __m512 x = _mm512_loadu_ps(z + 16 * v);

#pragma GCC unroll 8
            for (i = 0; i < 8; i++)
                part[i] = _mm512_fmadd_ps(codes(w + i * m->row_bytes, q4, v), x, part[i]);
        }
        for (i = 0; i < 8; i++)
            s[i] = _mm512_fmadd_ps(
                part[i], _mm512_set1_ps(_cvtsh_ss(scales[i * m->n_groups + group])), s[i]);
    }
}

static inline __attribute__((always_inline)) void expand_as(const waste_mla *a, const work *k,
                                                            int64_t h, size_t at, size_t first,
                                                            size_t n, const int q4)
{
    const waste_matrix *m = &a->kv_b;
    const int64_t row = h * (a->nope + a->v) + a->nope;
    int64_t i, c;
    size_t t;
    int v;

    for (t = 0; t < n; t++) {
        const float *z = weighted(k, t, at);

        for (c = 0; c < m->cols; c += CHUNK)
            for (v = 0; v < 8; v++)
                _mm512_storeu_ps(k->w + c + 16 * v, _mm512_i32gather_ps(place(q4, v), z + c, 4));
        for (i = 0; i + 16 <= a->v; i += 16) {
            __m512 s[16];

            for (v = 0; v < 16; v += 8)
                dots_of(m, (const unsigned char *)m->data + (row + i + v) * m->row_bytes,
                        m->scales + (row + i + v) * m->n_groups, k->w, s + v, q4);
            put_values(a, h, i, first + t, sums16(s));
        }
    }
}

/* ---- queries and values -------------------------------------------------------------- */

/* The absorbed queries of head h for rows first..first+n of the batch. at: number of
 * the head in the part. */
static void absorb(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first, size_t n)
{
    size_t t, c;

    if (!usual(&a->kv_b))
        absorb_any(a, k, h, at, first, n);
    else if (a->kv_b.fmt == WASTE_FMT_Q4G)
        absorb_as(a, k, h, at, first, n, 1);
    else
        absorb_as(a, k, h, at, first, n, 0);
    for (t = 0; t < n; t++) {
        float *q = query(k, t, at);

        memset(q + a->rank, 0, (k->q_step - (size_t)a->rank) * sizeof *q);
        memcpy(q + a->rank, nope_of(a, h, first + t) + a->nope, (size_t)a->rope * sizeof *q);
        for (c = 0; c < k->q_step; c += 16)
            _mm512_storeu_ps(q + c,
                             _mm512_mul_ps(_mm512_loadu_ps(q + c), _mm512_set1_ps(a->scale)));
    }
}

/* The values of head h for these rows. */
static void expand(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first, size_t n)
{
    if (!usual(&a->kv_b) || a->v % 16)
        expand_any(a, k, h, at, first, n);
    else if (a->kv_b.fmt == WASTE_FMT_Q4G)
        expand_as(a, k, h, at, first, n, 1);
    else
        expand_as(a, k, h, at, first, n, 0);
}

/* ---- a block of latents ---------------------------------------------------------------- */

/* Scores of four heads at n <= 4 positions, in p (four rows of WASTE_LATENT_BLOCK). */
static inline void score(const float *q, size_t q_step, const float *latent, int64_t width,
                         int64_t n, float *p)
{
    const float *l[4];
    __m512 s[16], r;
    int64_t d;
    int i, j;

    for (i = 0; i < 4; i++) l[i] = latent + (i < n ? i : n - 1) * width;
    for (i = 0; i < 16; i++) s[i] = _mm512_setzero_ps();
    for (d = 0; d + 16 <= width; d += 16) {
        __m512 c[4];

        for (i = 0; i < 4; i++) c[i] = _mm512_loadu_ps(l[i] + d);
        for (j = 0; j < 4; j++) {
            const __m512 x = _mm512_loadu_ps(q + (size_t)j * q_step + d);

            for (i = 0; i < 4; i++) s[4 * j + i] = _mm512_fmadd_ps(x, c[i], s[4 * j + i]);
        }
    }
    if (d < width) {
        const __mmask16 m = waste_lanes16(width - d);
        __m512 c[4];

        for (i = 0; i < 4; i++) c[i] = _mm512_maskz_loadu_ps(m, l[i] + d);
        for (j = 0; j < 4; j++) {
            const __m512 x = _mm512_loadu_ps(q + (size_t)j * q_step + d);

            for (i = 0; i < 4; i++) s[4 * j + i] = _mm512_fmadd_ps(x, c[i], s[4 * j + i]);
        }
    }
    r = sums16(s);
    _mm_storeu_ps(p, _mm512_castps512_ps128(r));
    _mm_storeu_ps(p + WASTE_LATENT_BLOCK, _mm512_extractf32x4_ps(r, 1));
    _mm_storeu_ps(p + 2 * WASTE_LATENT_BLOCK, _mm512_extractf32x4_ps(r, 2));
    _mm_storeu_ps(p + 3 * WASTE_LATENT_BLOCK, _mm512_extractf32x4_ps(r, 3));
}

/* Scores of a block become weights relative to the running maximum; what was summed
 * before shrinks when the maximum rises. */
static void soften(const work *k, float *p, float *z, float *top, float *sum, int64_t n)
{
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
    if (most > *top) {
        const __m512 shrink = waste_exp16(_mm512_set1_ps(*top - most));

        for (d = 0; d < k->z_step; d += 16)
            _mm512_storeu_ps(z + d, _mm512_mul_ps(_mm512_loadu_ps(z + d), shrink));
        *sum *= _mm512_cvtss_f32(shrink);
        *top = most;
    }
    total = _mm512_setzero_ps();
    for (i = 0; i < WASTE_LATENT_BLOCK / 16; i++) {
        v[i] = waste_exp16(_mm512_sub_ps(v[i], _mm512_set1_ps(*top)));
        _mm512_storeu_ps(p + 16 * i, v[i]);
        total = _mm512_add_ps(total, v[i]);
    }
    *sum += _mm512_reduce_add_ps(total);
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

#define STRIP 8 /* positions that stay in L1 while the heads' queries pass */

/* Row r of the work takes in n latents. */
static void take_block(const waste_mla *a, const work *k, size_t r, const float *latent, int64_t n)
{
    const int64_t width = a->rank + a->rope;
    const float *q = query(k, r, 0);
    float *z = weighted(k, r, 0);
    int64_t at, c, i;
    size_t h;

    for (at = 0; at < n; at += STRIP)
        for (h = 0; h < k->heads; h += 4)
            for (i = at; i < at + STRIP && i < n; i += 4)
                score(q + h * k->q_step, k->q_step, latent + i * width, width, n - i,
                      k->p + h * WASTE_LATENT_BLOCK + i);
    for (h = 0; h < k->heads; h++)
        soften(k, k->p + h * WASTE_LATENT_BLOCK, z + h * k->z_step, k->top + r * k->heads + h,
               k->sum + r * k->heads + h, n);
    for (c = 0; c + 64 <= a->rank; c += 64)
        for (h = 0; h < k->heads; h += 4)
            weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                  width, n, 0xFFFF, 4);
    for (; c < a->rank; c += 16)
        for (h = 0; h < k->heads; h += 4)
            weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                  width, n, waste_lanes16(a->rank - c), 1);
}

static void widen(const uint16_t *h, int64_t n, float *to)
{
    int64_t i;

    for (i = 0; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(h + i))));
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
        const __m512 by = _mm512_set1_ps(1.0f / k->sum[h]);
        float *z = k->z + h * k->z_step;

        for (c = 0; c < k->z_step; c += 16)
            _mm512_storeu_ps(z + c, _mm512_mul_ps(_mm512_loadu_ps(z + c), by));
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

void waste_kernels_avx512_mla(waste_kernels *k)
{
    k->mla = mla;
}

#endif
