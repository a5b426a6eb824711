/* Which codebooks the matrices of one kind in one layer get. */
#ifndef WASTE_VQ_CHOICE_H
#define WASTE_VQ_CHOICE_H

#include "convert/vq_team.h"

/* From n sample vectors of rows with RMS 1, whose order is lost: the universal books
 * (vq_books.h), unless books of their own do better on vectors they have not seen.
 * The geometry is one that has universal books. */
waste_status waste_vq_choice_make(waste_vq_books *b, const waste_quant *q, float *x, size_t n,
                                  waste_vq_random *r, waste_vq_team *team,
                                  const waste_cancel *cancel, waste_error *err);

#endif
