/* What the fast tables of all instruction sets ask of an expert. */
#ifndef WASTE_KERNELS_VQ_H
#define WASTE_KERNELS_VQ_H

#include "kernels/kernels.h"
#include "kernels/kernels_work.h"

/* 3: three stages of bytes, 2: two, 6: four of 6 bits; 0: left to plain C. */
static inline int waste_vq_kind(const waste_vq_geometry *g)
{
    if (g->vec_dim != 8 || g->index_block != WASTE_VQ_INDEX_ROWS) return 0;
    if (g->index_bits == 6) return g->stages == 4 && g->vector_bytes == 3 ? 6 : 0;
    return (g->stages == 2 || g->stages == 3) && g->vector_bytes == g->stages ? g->stages : 0;
}

/* Whether experts are left unpacked: those that plain C is for, and such narrow ones that the
 * direct form is faster on the whole. most: weights of a matrix for which it is. */
static inline int waste_vq_unpacked(const waste_vq_geometry *g, int64_t width, int64_t input,
                                    int64_t most)
{
    return !waste_vq_kind(g) || (width <= WASTE_VQ_DIRECT_COLS && input <= WASTE_VQ_DIRECT_COLS &&
                                 width * input <= most);
}

/* Of a codebook, in a geometry of a kind. */
static inline int waste_vq_entries(const waste_vq_geometry *g)
{
    return g->index_bits == 6 ? 64 : 256;
}

/* How an expert is computed: by plain C; by its weights, decoded to f32 as they are met
 * (kernels_vec_direct.h); by the table's own form, over what pack_books made. */
typedef enum waste_vq_form { WASTE_VQ_PLAIN, WASTE_VQ_DIRECT, WASTE_VQ_PACKED } waste_vq_form;

static inline waste_vq_form waste_vq_form_of(const waste_expert *a)
{
    if (!waste_vq_kind(&a->geometry)) return WASTE_VQ_PLAIN;
    if (a->gate.packed && a->up.packed && a->down.packed) return WASTE_VQ_PACKED;
    return !a->planar && a->gate.cols <= WASTE_VQ_DIRECT_COLS &&
                   a->down.cols <= WASTE_VQ_DIRECT_COLS
               ? WASTE_VQ_DIRECT
               : WASTE_VQ_PLAIN;
}

/* Sums of inputs: in a part's scratch, behind the tables. */
static inline float *waste_vq_sums(const waste_expert *a)
{
    return (float *)(void *)((char *)a->work + WASTE_VQ_TABLE_BYTES + WASTE_VQ_PLANE_BYTES +
                             WASTE_VQ_MANY_BYTES);
}

#endif
