/* Layouts that measure or carve: with base NULL only `used` grows, so what is
 * planned and what is allocated come from one function and cannot disagree. */
#ifndef WASTE_ARENA_H
#define WASTE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct waste_arena {
    char *base; /* NULL: measure */
    size_t used;
    int overflow; /* a product or sum did not fit; checked once at the end */
} waste_arena;

/* n elements of `size` bytes, aligned to 64; NULL while measuring. */
static inline void *waste_arena_take(waste_arena *a, size_t n, size_t size)
{
    size_t at = (a->used + 63) & ~(size_t)63;
    void *p = a->base ? a->base + at : NULL;

    if (size && n > (SIZE_MAX / 2 - at) / size) {
        a->overflow = 1;
        return NULL;
    }
    a->used = at + n * size;
    return p;
}

#endif
