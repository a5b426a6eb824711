/* The NEON table (armv8-a), and its elementwise slots: see kernels.h. No state, any
 * thread. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON

#include "kernels/kernels_vec_elementwise.h"

int waste_kernels_neon(waste_kernels *k)
{
    k->name = "neon";
    elementwise(k);
    waste_kernels_neon_vq(k);
    waste_kernels_neon_trunk(k);
    waste_kernels_neon_kda(k);
    waste_kernels_neon_mla(k);
    return 1;
}

#else

int waste_kernels_neon(waste_kernels *k)
{
    (void)k;
    return 0;
}

#endif
