/* For tests of the fast kernel tables, each against plain C: which table is in `fast`, data of
 * every kind, guarded scratch, comparisons. Included once in a program. */
#ifndef FAST_TABLES_H
#define FAST_TABLES_H

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "emulated.h"
#include "kernels/kernels.h"
#include "kernels/kernels_work.h"
#include "kernels/quant.h"
#include "store/record.h"

#define MOST_ROWS 130

static waste_kernels fast, plain;
static uint64_t seed = 1;

static inline void take(void **state)
{
    const char *name = *state;

    if (waste_kernels_named(&fast, name, waste_cpu_features())) return;
    print_message("SKIP: no kernel table \"%s\" for this CPU, or not in this build\n", name);
    skip();
}

static inline uint32_t bits(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static inline float noise(void)
{
    return (float)(int32_t)bits() * 0x1p-31f;
}

typedef enum data { PLAIN, OUTLIERS, ZEROS, DENORMALS, HUGE_ONES, MIXED, N_DATA } data;

static inline float value(data kind, size_t i)
{
    const float v = noise();

    switch (kind) {
    case OUTLIERS: return i % 97 == 5 ? v * 1e4f : v;
    case ZEROS: return 0;
    case DENORMALS: return v * 1e-40f;
    case HUGE_ONES: return v * 1e30f;
    case MIXED: return i % 64 < 32 ? 0 : i % 5 ? v * 1e-20f : v * 1e5f;
    default: return v;
    }
}

static inline float *floats(size_t n, data kind)
{
    float *p = malloc(n * sizeof *p + 4);
    size_t i;

    assert_non_null(p);
    for (i = 0; i < n; i++) p[i] = value(kind, i);
    return p;
}

/* n bytes with a guard behind them. */
static inline void *guarded_new(size_t n)
{
    unsigned char *p = waste_mem_aligned(64, (n + 127) / 64 * 64);

    assert_non_null(p);
    memset(p, 0xA5, n + 64);
    return p;
}

static inline void guarded_free(void *p, size_t n)
{
    const unsigned char *guard = (unsigned char *)p + n;

    for (int i = 0; i < 64; i++) assert_int_equal(guard[i], 0xA5);
    waste_mem_free(p);
}

static inline void *work_new(const waste_kernel_limits *l)
{
    return guarded_new(waste_kernels_work_bytes(l));
}

static inline void work_free(void *work, const waste_kernel_limits *l)
{
    guarded_free(work, waste_kernels_work_bytes(l));
}

static inline void within(float got, float want, double bound, const char *what, int at)
{
    if (isfinite(want) && fabs((double)got - want) <= bound) return;
    if (!isfinite(want) && !isfinite(got)) return;
    fail_msg("%s, place %d: got %.9g, wanted %.9g within %.3g", what, at, got, want, bound);
}

static inline void same_bits(const float *a, const float *b, size_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
}

/* A test for the table of that name, which names what it finds. */
#define POINT(name, test)                       \
    {                                           \
#name " " #test, test, NULL, NULL, name \
    }

#endif
