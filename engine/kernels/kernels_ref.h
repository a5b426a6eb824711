/* The plain C table: every slot, always right, the measure for the others. */
#ifndef WASTE_KERNELS_REF_H
#define WASTE_KERNELS_REF_H

#include "kernels/kernels.h"

void waste_kernels_ref(waste_kernels *k);

#endif
