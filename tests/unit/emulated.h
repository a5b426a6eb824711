/* Under an emulator (tests/arm), where all takes ten to twenty times as long, the
 * heaviest tests do less of the same, and some are left out. */
#ifndef EMULATED_H
#define EMULATED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static inline int emulated(void)
{
    return getenv("WASTE_TEST_EMULATED") != NULL;
}

/* For the head of a main: says what is less. */
static inline void emulated_say(const char *less)
{
    if (emulated()) printf("# emulated: %s\n", less);
}

/* For the head of a test, which is skipped for this reason. */
static inline void emulated_skip(const char *why)
{
    if (!emulated()) return;
    print_message("SKIP: emulated: %s\n", why);
    skip();
}

/* What takes seconds and is no more likely to fail on one architecture than on another. */
#define EMULATED_TOO_LONG "takes too long, and does not depend on the architecture"

#endif
