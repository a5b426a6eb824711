/* Universal codebooks: trained once on normally distributed vectors, good for every
 * matrix whose rows, scaled to RMS 1, look normal - as most do. Immutable. */
#ifndef WASTE_VQ_BOOKS_H
#define WASTE_VQ_BOOKS_H

#include "convert/vq.h"

/* Fills *b. Nonzero, and *b untouched, when there are none of this geometry. */
int waste_vq_books_universal(waste_vq_books *b, const waste_quant *q);

/* Their relative error on normally distributed vectors, searched with a beam of 16:
 * on any data that comes near it, own books would gain nothing worth their training.
 * Of a geometry that has them. */
double waste_vq_books_normal_error(const waste_quant *q);

#endif
