/* Narrow experts on AVX-512: see kernels_vec_direct.h. No state, any thread. */
#include "kernels/kernels_avx512.h"

#if WASTE_HAVE_AVX512BW

#include "kernels/kernels_vec_direct.h"

#define run_matrix direct_matrix /* the table's own form is in kernels_avx512_vq.c */
#include "kernels/kernels_vec_expert.h"

void waste_kernels_avx512_direct(waste_kernels *k)
{
    k->expert_up = expert_up;
    k->expert_down = expert_down;
}

#endif
