/* An expert's two slots on vectors (kernels_vec.h): up to WASTE_VQ_ROWS inputs at a time
 * through its matrices, row scales and activation. Formulas in kernels_ref.c, the slots in
 * kernels.h. No state, any thread. The file that includes it has defined before
 *
 *     run_matrix(a, m, first, last, x, n, acc, step)
 *                           row blocks first..last of matrix m by the n inputs x[i]; their
 *                           sums go to acc + i * step, in the order of rows. Behind
 *                           waste_vq_sums(a) + WASTE_VQ_ROWS * step there is room for
 *                           half as much */
#ifndef WASTE_KERNELS_VEC_EXPERT_H
#define WASTE_KERNELS_VEC_EXPERT_H

#include "kernels/kernels_ref.h"
#include "kernels/kernels_vec_direct.h"

static float scale_of(const waste_vq_matrix *m, int64_t r)
{
    return vec_half((uint16_t)(m->scale[2 * r] | m->scale[2 * r + 1] << 8));
}

/* Row blocks that hold rows lo..hi-1, and the sums of one input in them. */
typedef struct span {
    int64_t first, last;
    size_t step;
} span;

static span span_of(int64_t lo, int64_t hi)
{
    span s = {lo / WASTE_VQ_INDEX_ROWS, (hi + WASTE_VQ_INDEX_ROWS - 1) / WASTE_VQ_INDEX_ROWS, 0};

    s.step = (size_t)(s.last - s.first) * WASTE_VQ_INDEX_ROWS;
    return s;
}

typedef void matrix_run(const waste_expert *a, const waste_vq_matrix *m, int64_t first,
                        int64_t last, const float *const *x, size_t n, float *acc, size_t step);

/* NULL: plain C. */
static matrix_run *run_of(const waste_expert *a)
{
    switch (waste_vq_form_of(a)) {
    case WASTE_VQ_DIRECT: return direct_matrix;
    case WASTE_VQ_PACKED: return run_matrix;
    default: return NULL;
    }
}

static void expert_up(const waste_expert *a, int64_t lo, int64_t hi)
{
    matrix_run *const run = run_of(a);
    const span s = span_of(lo, hi);
    const float *x[WASTE_VQ_ROWS];
    waste_kernels plain;
    float *acc;
    size_t at, n, i;
    int64_t r;

    if (!run) {
        waste_kernels_ref(&plain);
        plain.expert_up(a, lo, hi);
        return;
    }
    acc = waste_vq_sums(a);
    for (at = 0; at < a->n; at += n) {
        n = a->n - at < WASTE_VQ_ROWS ? a->n - at : WASTE_VQ_ROWS;
        for (i = 0; i < n; i++) x[i] = a->x + (int64_t)a->x_row[at + i] * a->gate.cols;
        run(a, &a->gate, s.first, s.last, x, n, acc, 2 * s.step);
        run(a, &a->up, s.first, s.last, x, n, acc + s.step, 2 * s.step);
        for (i = 0; i < n; i++) {
            float *g = acc + 2 * i * s.step + (lo - s.first * WASTE_VQ_INDEX_ROWS), *u = g + s.step;
            float *h = a->h + (int64_t)(at + i) * a->gate.rows;

            for (r = lo; r < hi; r++) {
                g[r - lo] *= scale_of(&a->gate, r);
                u[r - lo] *= scale_of(&a->up, r);
            }
            for (r = lo; r < hi; r += VEC)
                vec_store_n(h + r, hi - r,
                            vec_act(&a->act, vec_load_n(g + r - lo, hi - r),
                                    vec_load_n(u + r - lo, hi - r)));
        }
    }
}

static void expert_down(const waste_expert *a, int64_t lo, int64_t hi)
{
    matrix_run *const run = run_of(a);
    const span s = span_of(lo, hi);
    const float *x[WASTE_VQ_ROWS];
    waste_kernels plain;
    float *acc;
    size_t at, n, i;
    int64_t r;

    if (!run) {
        waste_kernels_ref(&plain);
        plain.expert_down(a, lo, hi);
        return;
    }
    acc = waste_vq_sums(a);
    for (at = 0; at < a->n; at += n) {
        n = a->n - at < WASTE_VQ_ROWS ? a->n - at : WASTE_VQ_ROWS;
        for (i = 0; i < n; i++) x[i] = a->h + (int64_t)(at + i) * a->down.cols;
        run(a, &a->down, s.first, s.last, x, n, acc, s.step);
        for (i = 0; i < n; i++) {
            float *y = a->y + (int64_t)a->y_row[at + i] * a->down.rows;
            const float *sum = acc + i * s.step - s.first * WASTE_VQ_INDEX_ROWS;

            for (r = lo; r < hi; r++) y[r] = sum[r] * scale_of(&a->down, r);
        }
    }
}

#endif
