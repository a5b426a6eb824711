/* The floating-point environment that all arithmetic runs in: rounding to nearest,
 * gradual underflow, no traps. The host's thread may have another one, which would show
 * in results, and more so when several threads share the work or a step. Threads that
 * are started in between inherit it. */
#ifndef WASTE_FPENV_H
#define WASTE_FPENV_H

#include <fenv.h>

/* *host gets what leave gives back to the calling thread, its exception flags included. */
static inline void waste_fpenv_enter(fenv_t *host)
{
    fegetenv(host);
    fesetenv(FE_DFL_ENV);
}

static inline void waste_fpenv_leave(const fenv_t *host)
{
    fesetenv(host);
}

#endif
