/* The AVX2 table, and its elementwise slots: see kernels.h. No state, any thread. */
#include "kernels/kernels_avx2.h"

#if WASTE_HAVE_AVX2

#include "kernels/kernels_vec_elementwise.h"

int waste_kernels_avx2(waste_kernels *k)
{
    k->name = "avx2";
    elementwise(k);
    waste_kernels_avx2_vq(k);
    waste_kernels_avx2_trunk(k);
    waste_kernels_avx2_kda(k);
    waste_kernels_avx2_mla(k);
    return 1;
}

#else

int waste_kernels_avx2(waste_kernels *k)
{
    (void)k;
    return 0;
}

#endif
