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

/* Of a codebook, in a geometry of a kind. */
static inline int waste_vq_entries(const waste_vq_geometry *g)
{
    return g->index_bits == 6 ? 64 : 256;
}

/* Whether the expert is not left to plain C. */
static inline int waste_vq_fast(const waste_expert *a)
{
    return a->gate.packed && a->up.packed && a->down.packed && waste_vq_kind(&a->geometry);
}

/* Sums of inputs: in a part's scratch, behind the tables. */
static inline float *waste_vq_sums(const waste_expert *a)
{
    return (float *)(void *)((char *)a->work + WASTE_VQ_TABLE_BYTES + WASTE_VQ_PLANE_BYTES +
                             WASTE_VQ_MANY_BYTES);
}

#endif
