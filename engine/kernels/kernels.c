/* The choice of a kernel table: see kernels.h. No state, any thread. */
#include "kernels/kernels.h"

#include "kernels/kernels_ref.h"

void waste_kernels_pick(waste_kernels *k, unsigned cpu)
{
    waste_kernels_ref(k); /* every slot; faster tables replace some */
    (void)cpu;
}
