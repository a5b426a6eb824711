/* The AVX-512 tables, and their elementwise slots: see kernels.h. No state, any thread. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512BW

#include "kernels/kernels_vec_elementwise.h"

static void shared(waste_kernels *k)
{
    elementwise(k);
    waste_kernels_avx512_kda(k);
    waste_kernels_avx512_mla(k);
}

int waste_kernels_avx512(waste_kernels *k)
{
    k->name = "avx512";
    shared(k);
    waste_kernels_avx512_vq(k);
    waste_kernels_avx512_trunk(k);
    return 1;
}

int waste_kernels_avx512bw(waste_kernels *k)
{
    waste_kernels_avx2(k); /* its trunk stays */
    k->name = "avx512bw";
    shared(k);
    waste_kernels_avx512bw_vq(k);
    return 1;
}

#else

int waste_kernels_avx512(waste_kernels *k)
{
    (void)k;
    return 0;
}

int waste_kernels_avx512bw(waste_kernels *k)
{
    (void)k;
    return 0;
}

#endif
