/* Under an emulator (tests/arm), where all takes twenty times as long, the heaviest
 * tests do less of the same. */
#ifndef EMULATED_H
#define EMULATED_H

#include <stdio.h>
#include <stdlib.h>

static inline int emulated(void)
{
    return getenv("WASTE_TEST_EMULATED") != NULL;
}

/* For the head of a main: says what is less. */
static inline void emulated_say(const char *less)
{
    if (emulated()) printf("# emulated: %s\n", less);
}

#endif
