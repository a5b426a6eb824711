/* Fills a waste_error; the types are public and live in waste.h. */
#ifndef WASTE_ERROR_H
#define WASTE_ERROR_H

#include "waste.h"

#if defined(__MINGW32__)
#include <stdio.h> /* says which printf it is: C's, as the build asks for it */
#define WASTE_PRINTF(f, a) __attribute__((format(__MINGW_PRINTF_FORMAT, f, a)))
#elif defined(__GNUC__)
#define WASTE_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define WASTE_PRINTF(f, a)
#endif

/* Writes the sentence unless err already holds one (the first cause wins),
 * and returns `st`. Control bytes and broken UTF-8 in the result become '?'.
 * err may be NULL. */
waste_status waste_fail(waste_error *err, waste_status st, const char *fmt, ...) WASTE_PRINTF(3, 4);

/* Whether the caller wants the call to end; cancel may be NULL. */
static inline int waste_asked(const waste_cancel *cancel)
{
    return cancel && cancel->asked && cancel->asked(cancel->ctx);
}

#endif
