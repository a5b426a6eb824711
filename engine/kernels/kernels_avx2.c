/* The AVX2 table: experts and trunk; the rest is plain C. No state, any thread. */
#include "kernels/kernels_avx2.h"

#if WASTE_HAVE_AVX2

int waste_kernels_avx2(waste_kernels *k)
{
    k->name = "avx2";
    waste_kernels_avx2_vq(k);
    waste_kernels_avx2_trunk(k);
    return 1;
}

#else

int waste_kernels_avx2(waste_kernels *k)
{
    (void)k;
    return 0;
}

#endif
