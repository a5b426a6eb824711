/* CPU feature bits: see cpu.h. No state, any thread. */
#include "base/cpu.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdint.h>

/* Leaf 1 */
#define C1_FMA     (1u << 12)
#define C1_OSXSAVE (1u << 27)
#define C1_AVX     (1u << 28)
#define C1_F16C    (1u << 29)
/* Leaf 7 */
#define B7_AVX2     (1u << 5)
#define B7_AVX512F  (1u << 16)
#define B7_AVX512DQ (1u << 17)
#define B7_AVX512BW (1u << 30)
#define B7_AVX512VL (1u << 31)
#define C7_VBMI     (1u << 1)
#define C7_VNNI     (1u << 11)
/* XCR0: the state that the system saves */
#define XCR0_YMM 0x06u
#define XCR0_ZMM 0xE6u

static int all(unsigned have, unsigned want)
{
    return (have & want) == want;
}

static unsigned saved_state(void)
{
    uint32_t lo, hi;

    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

unsigned waste_cpu_features(void)
{
    unsigned a, b, c, d, state, found = 0;

    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (!all(c, C1_FMA | C1_OSXSAVE | C1_AVX | C1_F16C)) return 0;
    state = saved_state();
    if (!all(state, XCR0_YMM)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !all(b, B7_AVX2)) return 0;
    found = WASTE_CPU_AVX2;
    if (all(state, XCR0_ZMM) && all(b, B7_AVX512F | B7_AVX512DQ | B7_AVX512BW | B7_AVX512VL)) {
        found |= WASTE_CPU_AVX512BW;
        if (all(c, C7_VBMI | C7_VNNI)) found |= WASTE_CPU_AVX512;
    }
    return found;
}

#elif defined(__aarch64__)

#if defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static int has_dotprod(void)
{
#if defined(__APPLE__)
    int has = 0;
    size_t n = sizeof has;

    return !sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &n, NULL, 0) && has;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return 0;
#endif
}

unsigned waste_cpu_features(void)
{
    return WASTE_CPU_NEON | (has_dotprod() ? WASTE_CPU_DOTPROD : 0);
}

#else

unsigned waste_cpu_features(void)
{
    return 0;
}

#endif
