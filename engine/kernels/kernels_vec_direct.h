/* Narrow experts on vectors (kernels_vec.h): weights are decoded to f32 as they are met, and
 * all inputs pass over them. Tables cost as much for few rows of a matrix as for many, and
 * their entries are rounded; here nothing is but f32 sums. No state, any thread. */
#ifndef WASTE_KERNELS_VEC_DIRECT_H
#define WASTE_KERNELS_VEC_DIRECT_H

#include "kernels/kernels_vq.h"

/* Where the entries of one position of a row are, by stage. */
typedef struct direct_entries {
    const float *at[4];
} direct_entries;

INLINE direct_entries direct_position(const waste_vq_matrix *m, const unsigned char *p,
                                      const int kind)
{
    direct_entries e;

    if (kind == 6) {
        const uint32_t u = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;

        e.at[0] = m->book[0] + 8 * (u & 63);
        e.at[1] = m->book[1] + 8 * (u >> 6 & 63);
        e.at[2] = m->book[2] + 8 * (u >> 12 & 63);
        e.at[3] = m->book[3] + 8 * (u >> 18);
    } else {
        e.at[0] = m->book[0] + 8 * (size_t)p[0];
        e.at[1] = m->book[1] + 8 * (size_t)p[1];
        e.at[2] = kind == 3 ? m->book[2] + 8 * (size_t)p[2] : e.at[0];
        e.at[3] = e.at[0];
    }
    return e;
}

/* VEC weights of a row from column c on; p: its index bytes, a position every `step`. Columns
 * that do not exist have weights of the last position, to meet zeros. */
INLINE vec direct_weights(const waste_vq_matrix *m, const unsigned char *p, size_t step, int64_t c,
                          const int kind)
{
    const direct_entries e = direct_position(m, p + (size_t)(c / 8) * step, kind);
    vec sum;
#if VEC == 16
    const direct_entries next =
        direct_position(m, p + (size_t)(c + 8 < m->cols ? c / 8 + 1 : c / 8) * step, kind);

#define DIRECT_ENTRY(s) vec_load_halves(e.at[s], next.at[s])
#else
#define DIRECT_ENTRY(s) vec_load(e.at[s] + c % 8)
#endif
    sum = DIRECT_ENTRY(0) + DIRECT_ENTRY(1);
    if (kind == 3) sum = sum + DIRECT_ENTRY(2);
    if (kind == 6) sum = sum + (DIRECT_ENTRY(2) + DIRECT_ENTRY(3));
#undef DIRECT_ENTRY
    return sum;
}

/* VEC rows, whose index bytes are at p, by n inputs; sums of input i go to acc + i * step. One
 * input meets the weights as they are decoded; for more they are kept. */
INLINE void direct_rows(const waste_vq_matrix *m, const unsigned char *p, const float *const *x,
                        size_t n, float *kept, float *acc, size_t step, const int kind)
{
    const size_t vb = kind == 2 ? 2 : 3, position = WASTE_VQ_INDEX_ROWS * vb;
    const size_t stride = ((size_t)m->cols + VEC - 1) / VEC * VEC;
    const int64_t whole = m->cols / VEC * VEC;
    vec sum[VEC];
    size_t i;
    int64_t c;
    int r;

    if (n == 1) {
        for (r = 0; r < VEC; r++, p += vb) {
            sum[r] = vec_set(0.0f);
            for (c = 0; c < whole; c += VEC)
                sum[r] =
                    vec_fma(direct_weights(m, p, position, c, kind), vec_load(x[0] + c), sum[r]);
            if (c < m->cols)
                sum[r] = vec_fma(direct_weights(m, p, position, c, kind),
                                 vec_load_n(x[0] + c, m->cols - c), sum[r]);
        }
        vec_store(acc, vec_sums(sum));
        return;
    }
    for (r = 0; r < VEC; r++, p += vb)
        for (c = 0; c < m->cols; c += VEC)
            vec_store(kept + (size_t)r * stride + c, direct_weights(m, p, position, c, kind));
    for (i = 0; i < n; i++) {
        for (r = 0; r < VEC; r++) sum[r] = vec_set(0.0f);
        for (c = 0; c < m->cols; c += VEC) {
            const vec v = c < whole ? vec_load(x[i] + c) : vec_load_n(x[i] + c, m->cols - c);

#pragma GCC unroll 16
            for (r = 0; r < VEC; r++)
                sum[r] = vec_fma(vec_load(kept + (size_t)r * stride + c), v, sum[r]);
        }
        vec_store(acc + i * step, vec_sums(sum));
    }
}

INLINE void direct_kind(const waste_expert *a, const waste_vq_matrix *m, int64_t first,
                        int64_t last, const float *const *x, size_t n, float *acc, size_t step,
                        const int kind)
{
    const size_t vb = kind == 2 ? 2 : 3;
    const size_t block = (size_t)(m->cols / 8) * WASTE_VQ_INDEX_ROWS * vb;
    int64_t b;
    size_t r;

    for (b = first; b < last; b++, acc += WASTE_VQ_INDEX_ROWS)
        for (r = 0; r < WASTE_VQ_INDEX_ROWS; r += VEC)
            direct_rows(m, m->index + (size_t)b * block + r * vb, x, n, a->work, acc + r, step,
                        kind);
}

/* As run_matrix of kernels_vec_expert.h, for experts of the form WASTE_VQ_DIRECT. */
static void direct_matrix(const waste_expert *a, const waste_vq_matrix *m, int64_t first,
                          int64_t last, const float *const *x, size_t n, float *acc, size_t step)
{
    const int kind = waste_vq_kind(&a->geometry);

    if (kind == 6)
        direct_kind(a, m, first, last, x, n, acc, step, 6);
    else if (kind == 3)
        direct_kind(a, m, first, last, x, n, acc, step, 3);
    else
        direct_kind(a, m, first, last, x, n, acc, step, 2);
}

#endif
