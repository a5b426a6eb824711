/* Every table by its maker. Each replaces slots of the plain table; 0 when this build was
 * made without the instruction set or for another architecture (kernels.mk), and then
 * nothing changes. */
#ifndef WASTE_KERNELS_TABLES_H
#define WASTE_KERNELS_TABLES_H

#include "kernels/kernels.h"

int waste_kernels_avx2(waste_kernels *k);
int waste_kernels_avx512(waste_kernels *k);
/* With neither VBMI nor VNNI; the trunk is the AVX2 table's. */
int waste_kernels_avx512bw(waste_kernels *k);
int waste_kernels_neon(waste_kernels *k);
/* The same with the trunk's products by SDOT. */
int waste_kernels_neon_dot(waste_kernels *k);

#endif
