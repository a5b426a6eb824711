/* The AVX2 table: see kernels_avx2.c. */
#ifndef WASTE_KERNELS_AVX2_H
#define WASTE_KERNELS_AVX2_H

#include "kernels/kernels.h"

/* Replaces slots of the plain table; 0 when this build was made without the
 * instruction set (kernels.mk), and then nothing changes. */
int waste_kernels_avx2(waste_kernels *k);

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define WASTE_HAVE_AVX2 1

/* Each file fills in its own. */
void waste_kernels_avx2_vq(waste_kernels *k);
void waste_kernels_avx2_trunk(waste_kernels *k);

#endif
#endif
