/* Attention over latents on vectors (kernels_vec.h), written once for every instruction
 * set; formulas in kernels_ref.c, the slot in kernels.h. No state, any thread. The file
 * that includes it has defined before
 *
 *     SCORE_POSITIONS, WEIGH_VECTORS, ABSORB_VECTORS, DOT_ROWS   how much of the work has its
 *                         sums in registers at a time: see where they are used
 *     STRIP               positions that stay in L1 while the heads' queries pass
 *     codes(chunk, q4, v) one vector of a chunk of kv_b: see there
 *     put_scores(s, n, p) the lane sums of s[j * SCORE_POSITIONS + i], those of j at
 *                         p + j * WASTE_LATENT_BLOCK, from i = n on they may be left out
 *
 * All f32 with fused multiply-adds: results agree with plain C to rounding, rms a few
 * 1e-7 of the result. Every sum runs in an order that depends on its own row, head and
 * length alone; heads and rows that are computed together to share loads never meet.
 *
 * Time goes by where latents lie. A block of them (147 KB at rank 512) comes from memory
 * once for all rows and heads of a call that fit L2 beside it, and goes through L1 in
 * strips: a few positions for the scores, a few columns for the weighted sum. */
#ifndef WASTE_KERNELS_VEC_MLA_H
#define WASTE_KERNELS_VEC_MLA_H

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

/* nv vectors of q += x[0] w[0] + .. + x[n - 1] w[n - 1], one after the other. */
INLINE void add_rows(float *q, const float *x, const float *w, size_t step, int64_t n, const int nv)
{
    vec s[4];
    int64_t i;
    int j;

    for (j = 0; j < nv; j++) s[j] = vec_load(q + VEC * j);
    for (i = 0; i < n; i++, w += step) {
        const vec by = vec_set(x[i]);

        for (j = 0; j < nv; j++) s[j] = vec_fma(vec_load(w + VEC * j), by, s[j]);
    }
    for (j = 0; j < nv; j++) vec_store(q + VEC * j, s[j]);
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
    size_t t, c;

    for (t = 0; t < n; t++) memset(query(k, t, at), 0, k->q_step * sizeof(float));
    for (i = 0; i < a->nope; i += m) {
        m = decode_some(a, k, h * (a->nope + a->v) + i, a->nope - i);
        for (t = 0; t < n; t++) {
            float *q = query(k, t, at);
            const float *x = nope_of(a, h, first + t) + i;

            for (c = 0; c + 4 * VEC <= k->z_step; c += 4 * VEC)
                add_rows(q + c, x, k->w + c, k->z_step, m, 4);
            for (; c < k->z_step; c += VEC) add_rows(q + c, x, k->w + c, k->z_step, m, 1);
        }
    }
}

/* w z for n decoded rows of kv_b, VEC of them at most: their sums run side by side. */
static inline vec dots(const float *w, size_t step, int64_t n, const float *z)
{
    vec s[VEC];
    size_t c;
    int i;

    for (i = 0; i < VEC; i++) s[i] = vec_set(0.0f);
    for (c = 0; c < step; c += VEC) {
        const vec v = vec_load(z + c);

#pragma GCC unroll 16
        for (i = 0; i < VEC; i++)
            s[i] = vec_fma(vec_load(w + (i < n ? (size_t)i : (size_t)n - 1) * step + c), v, s[i]);
    }
    return vec_sums(s);
}

/* Values first_v.. of head h and row t of the batch: VEC of them, or fewer at the end. */
static void put_values(const waste_mla *a, int64_t h, int64_t first_v, size_t t, vec o)
{
    vec_store_n(a->o + (t * (size_t)a->heads + (size_t)h) * (size_t)a->v + first_v, a->v - first_v,
                o);
}

static void expand_any(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first,
                       size_t n)
{
    int64_t i, j, m;
    size_t t;

    for (i = 0; i < a->v; i += m) {
        m = decode_some(a, k, h * (a->nope + a->v) + a->nope + i, a->v - i);
        for (t = 0; t < n; t++)
            for (j = 0; j < m; j += VEC)
                put_values(
                    a, h, i + j, first + t,
                    dots(k->w + (size_t)j * k->z_step, k->z_step, m - j, weighted(k, t, at)));
    }
}

/* ---- kv_b, as it usually is -------------------------------------------------------- */

/* Q4G and Q8G in groups of whole chunks are multiplied as they are stored: a code becomes
 * a float in a few instructions, a group's scale goes to the query, or to the group's
 * sum. Eight vectors make up a chunk:
 *
 *     Q8G   vector v, lane l: column VEC v + l
 *     Q4G   vector v, lane l: column 8 l + v, the nibbles of dword l of the row */
#define CHUNK (8 * VEC)

static int usual(const waste_matrix *m)
{
    return (m->fmt == WASTE_FMT_Q4G || m->fmt == WASTE_FMT_Q8G) && m->group % CHUNK == 0 &&
           m->cols % CHUNK == 0;
}

INLINE size_t chunk_bytes(const int q4)
{
    return q4 ? CHUNK / 2 : CHUNK;
}

/* The place among a chunk's columns of column l of vector v. */
INLINE int place(const int q4, int v, int l)
{
    return q4 ? 8 * l + v : VEC * v + l;
}

/* nv vectors from number `v0` on of one chunk of the absorbed queries of nr rows. w, scale:
 * of the head's first row of kv_b, at this chunk. */
INLINE void absorb_chunk(const waste_mla *a, const unsigned char *w, const uint16_t *scale,
                         const float *const *q, float *const *to, const int q4, const int nr,
                         const int v0, const int nv)
{
    vec s[2][8];
    float out[CHUNK];
    int64_t i;
    int v, r, l;

    for (r = 0; r < nr; r++)
        for (v = 0; v < nv; v++) s[r][v] = vec_set(0.0f);
    for (i = 0; i < a->nope; i++, w += a->kv_b.row_bytes, scale += a->kv_b.n_groups) {
        const float by = vec_half(*scale);
        vec x[2];

        for (r = 0; r < nr; r++) x[r] = vec_set(q[r][i] * by);
#pragma GCC unroll 8
        for (v = 0; v < nv; v++) {
            const vec c = codes(w, q4, v0 + v);

            for (r = 0; r < nr; r++) s[r][v] = vec_fma(c, x[r], s[r][v]);
        }
    }
    for (r = 0; r < nr; r++) {
        for (v = 0; v < nv; v++) vec_store(out + VEC * v, s[r][v]);
        for (v = 0; v < nv; v++) {
            /* cppcheck-suppress uninitvar ; the vectors are stored there */
            for (l = 0; l < VEC; l++) to[r][place(q4, v0 + v, l)] = out[VEC * v + l];
        }
    }
}

INLINE void absorb_as(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first,
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
            int v;

            if (u > t)
                for (v = 0; v < 8; v += ABSORB_VECTORS)
                    absorb_chunk(a, w, scale, q, to, q4, 2, v, ABSORB_VECTORS);
            else
                absorb_chunk(a, w, scale, q, to, q4, 1, 0, 8);
        }
    }
}

/* DOT_ROWS rows of kv_b times z, which is in the order of the codes; s: one vector of
 * partial sums for each. */
INLINE void dots_of(const waste_matrix *m, const unsigned char *w, const uint16_t *scales,
                    const float *z, vec *s, const int q4)
{
    int64_t c;
    int i, v;

    for (i = 0; i < DOT_ROWS; i++) s[i] = vec_set(0.0f);
    for (c = 0; c < m->cols / CHUNK; c++, w += chunk_bytes(q4), z += CHUNK) {
        const int64_t group = c * CHUNK / m->group;
        vec part[DOT_ROWS];

        for (i = 0; i < DOT_ROWS; i++) part[i] = vec_set(0.0f);
#pragma GCC unroll 8
        for (v = 0; v < 8; v++) {
            const vec x = vec_load(z + VEC * v);

#pragma GCC unroll 8
            for (i = 0; i < DOT_ROWS; i++)
                part[i] = vec_fma(codes(w + i * m->row_bytes, q4, v), x, part[i]);
        }
        for (i = 0; i < DOT_ROWS; i++)
            s[i] = vec_fma(part[i], vec_set(vec_half(scales[i * m->n_groups + group])), s[i]);
    }
}

INLINE void expand_as(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first,
                      size_t n, const int q4)
{
    const waste_matrix *m = &a->kv_b;
    const int64_t row = h * (a->nope + a->v) + a->nope;
    int64_t i, c;
    size_t t;
    int v, l;

    for (t = 0; t < n; t++) {
        const float *z = weighted(k, t, at);

        for (c = 0; c < m->cols; c += CHUNK)
            for (v = 0; v < 8; v++)
                for (l = 0; l < VEC; l++) k->w[c + VEC * v + l] = z[c + place(q4, v, l)];
        for (i = 0; i + VEC <= a->v; i += VEC) {
            vec s[VEC];

            for (v = 0; v < VEC; v += DOT_ROWS)
                dots_of(m, (const unsigned char *)m->data + (row + i + v) * m->row_bytes,
                        m->scales + (row + i + v) * m->n_groups, k->w, s + v, q4);
            put_values(a, h, i, first + t, vec_sums(s));
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
        for (c = 0; c < k->q_step; c += VEC) vec_store(q + c, vec_load(q + c) * vec_set(a->scale));
    }
}

/* The values of head h for these rows. */
static void expand(const waste_mla *a, const work *k, int64_t h, size_t at, size_t first, size_t n)
{
    if (!usual(&a->kv_b) || a->v % VEC)
        expand_any(a, k, h, at, first, n);
    else if (a->kv_b.fmt == WASTE_FMT_Q4G)
        expand_as(a, k, h, at, first, n, 1);
    else
        expand_as(a, k, h, at, first, n, 0);
}

/* ---- a block of latents ---------------------------------------------------------------- */

/* Scores of four heads at n <= SCORE_POSITIONS positions, in p (four rows of
 * WASTE_LATENT_BLOCK). */
static inline void score(const float *q, size_t q_step, const float *latent, int64_t width,
                         int64_t n, float *p)
{
    vec s[4 * SCORE_POSITIONS], c[SCORE_POSITIONS];
    const float *l[SCORE_POSITIONS];
    int64_t d;
    int i, j;

    for (i = 0; i < SCORE_POSITIONS; i++) l[i] = latent + (i < n ? i : n - 1) * width;
    for (i = 0; i < 4 * SCORE_POSITIONS; i++) s[i] = vec_set(0.0f);
    for (d = 0; d + VEC <= width; d += VEC) {
        for (i = 0; i < SCORE_POSITIONS; i++) c[i] = vec_load(l[i] + d);
        for (j = 0; j < 4; j++) {
            const vec x = vec_load(q + (size_t)j * q_step + d);

            for (i = 0; i < SCORE_POSITIONS; i++)
                s[SCORE_POSITIONS * j + i] = vec_fma(x, c[i], s[SCORE_POSITIONS * j + i]);
        }
    }
    if (d < width) {
        for (i = 0; i < SCORE_POSITIONS; i++) c[i] = vec_load_n(l[i] + d, width - d);
        for (j = 0; j < 4; j++) {
            const vec x = vec_load(q + (size_t)j * q_step + d);

            for (i = 0; i < SCORE_POSITIONS; i++)
                s[SCORE_POSITIONS * j + i] = vec_fma(x, c[i], s[SCORE_POSITIONS * j + i]);
        }
    }
    put_scores(s, n, p);
}

/* Scores of a block become weights relative to the running maximum; what was summed
 * before shrinks when the maximum rises. */
static void soften(const work *k, float *p, float *z, float *top, float *sum, int64_t n)
{
    vec high = vec_set(-INFINITY), total = vec_set(0.0f);
    float most;
    int64_t i;
    size_t d;

    for (i = n; i < WASTE_LATENT_BLOCK; i++) p[i] = -INFINITY;
    for (i = 0; i < WASTE_LATENT_BLOCK; i += VEC) high = vec_max(high, vec_load(p + i));
    most = vec_most(high);
    if (most > *top) {
        const vec shrink = vec_exp(vec_set(*top - most));

        for (d = 0; d < k->z_step; d += VEC) vec_store(z + d, vec_load(z + d) * shrink);
        *sum *= shrink[0];
        *top = most;
    }
    for (i = 0; i < WASTE_LATENT_BLOCK; i += VEC) {
        const vec v = vec_exp(vec_load(p + i) - vec_set(*top));

        vec_store(p + i, v);
        total = total + v;
    }
    *sum += vec_sum(total);
}

/* z += weights times latents: four heads by nv vectors of columns; of a single one
 * `columns` exist. */
INLINE void weigh(float *z, size_t z_step, const float *p, const float *latent, int64_t width,
                  int64_t n, int64_t columns, const int nv)
{
    vec s[4][WEIGH_VECTORS];
    int64_t at;
    int i, j;

    for (j = 0; j < 4; j++)
        for (i = 0; i < nv; i++) s[j][i] = vec_load(z + (size_t)j * z_step + VEC * i);
    for (at = 0; at < n; at++, latent += width) {
        vec c[WEIGH_VECTORS];

        for (i = 0; i < nv; i++)
            c[i] = nv > 1 ? vec_load(latent + VEC * i) : vec_load_n(latent, columns);
        for (j = 0; j < 4; j++) {
            const vec x = vec_set(p[j * WASTE_LATENT_BLOCK + at]);

            for (i = 0; i < nv; i++) s[j][i] = vec_fma(x, c[i], s[j][i]);
        }
    }
    for (j = 0; j < 4; j++)
        for (i = 0; i < nv; i++) vec_store(z + (size_t)j * z_step + VEC * i, s[j][i]);
}

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
            for (i = at; i < at + STRIP && i < n; i += SCORE_POSITIONS)
                score(q + h * k->q_step, k->q_step, latent + i * width, width, n - i,
                      k->p + h * WASTE_LATENT_BLOCK + i);
    for (h = 0; h < k->heads; h++)
        soften(k, k->p + h * WASTE_LATENT_BLOCK, z + h * k->z_step, k->top + r * k->heads + h,
               k->sum + r * k->heads + h, n);
    for (c = 0; c + WEIGH_VECTORS * VEC <= a->rank; c += WEIGH_VECTORS * VEC)
        for (h = 0; h < k->heads; h += 4)
            weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                  width, n, VEC, WEIGH_VECTORS);
    for (; c < a->rank; c += VEC)
        for (h = 0; h < k->heads; h += 4)
            weigh(z + h * k->z_step + c, k->z_step, k->p + h * WASTE_LATENT_BLOCK, latent + c,
                  width, n, a->rank - c, 1);
}

/* Exactly what waste_f16_widen gives. */
static void widen(const uint16_t *h, int64_t n, float *to)
{
    int64_t i;

    for (i = 0; i + VEC <= n; i += VEC) vec_store(to + i, vec_f16(h + i));
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
        const vec by = vec_set(1.0f / k->sum[h]);
        float *z = k->z + h * k->z_step;

        for (c = 0; c < k->z_step; c += VEC) vec_store(z + c, vec_load(z + c) * by);
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

#endif
