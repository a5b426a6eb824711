/* Vectors to indices by beam search over all stages' books jointly: floats on
 * this side, the integers of vq_core.h behind it. The indices depend on the books,
 * the vector and the beam alone: not on the machine, its instruction set, or the
 * vectors around it. */
#ifndef WASTE_VQ_BEAM_H
#define WASTE_VQ_BEAM_H

#include "convert/vq.h"
#include "convert/vq_core.h"

/* One thread's tables and scratch, about 1.3 MB. Belongs to one thread at a time. */
typedef struct waste_vq_coder waste_vq_coder;

/* Whether books of this geometry can be searched: 2 to 4 stages of 64 or 256. */
int waste_vq_beam_fits(const waste_quant *q);

/* core: NULL for the fastest here. WASTE_NOMEM is the only error. */
waste_status waste_vq_coder_new(waste_vq_coder **out, const waste_vq_core *core,
                                const waste_quant *q, waste_error *err);
void waste_vq_coder_free(waste_vq_coder *c);

/* The books to search, and what an error in each component costs: the distance is
 * sum_d (g[d] (x[d] - y[d]))^2; NULL: all alike. The books are borrowed until the
 * next call. Costs about as much as 200 vectors. */
void waste_vq_coder_set(waste_vq_coder *c, const waste_vq_books *b, const float *g);

/* index[v * stages + s] of n vectors x[v * stride], which are finite; they are near
 * length sqrt(8), as those of a row of RMS 1 (longer ones cost more time, not
 * precision). 1 <= beam <= WASTE_VQ_BEAM. */
void waste_vq_coder_search(waste_vq_coder *c, const float *x, size_t stride, size_t n, int beam,
                           uint8_t *index);

/* The sum of the entries that `index` names. */
void waste_vq_decode(const waste_vq_books *b, const uint8_t *index, float *y);

#endif
