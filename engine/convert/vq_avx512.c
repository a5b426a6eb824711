/* The beam search on AVX-512 BW, VNNI and VBMI2 (vq_core.h): 32 lanes. No state, any
 * thread. */
#include "convert/vq_core.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define TARGET      \
    __attribute__(( \
        target("avx2,bmi,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi2")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define LANES  32

typedef __m512i vec;

INLINE vec v_load(const int16_t *p)
{
    return _mm512_load_si512(p);
}

INLINE void v_store(int16_t *p, vec a)
{
    _mm512_store_si512(p, a);
}

INLINE vec v_set(int16_t x)
{
    return _mm512_set1_epi16(x);
}

INLINE vec v_adds(vec a, vec b)
{
    return _mm512_adds_epi16(a, b);
}

INLINE vec v_min(vec a, vec b)
{
    return _mm512_min_epi16(a, b);
}

INLINE int v_least(vec a)
{
    const __m128i sign = _mm_set1_epi16(INT16_MIN);
    __m256i h = _mm256_min_epi16(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i m = _mm_min_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));

    m = _mm_minpos_epu16(_mm_xor_si128(m, sign)); /* unsigned */
    return (int16_t)_mm_cvtsi128_si32(_mm_xor_si128(m, sign));
}

INLINE int v_has(vec a, int x)
{
    return _mm512_cmpeq_epi16_mask(a, _mm512_set1_epi16((int16_t)x)) != 0;
}

INLINE uint64_t below(const int16_t *p, int x)
{
    const __m512i v = _mm512_set1_epi16((int16_t)x);

    return _mm512_cmple_epi16_mask(v_load(p), v) |
           (uint64_t)_mm512_cmple_epi16_mask(v_load(p + 32), v) << 32;
}

static inline __attribute__((always_inline)) TARGET void row(const int16_t *part,
                                                             const int32_t *norm, int entries,
                                                             const int16_t *x, int16_t *q)
{
    const __m512i *c = (const __m512i *)part, *n = (const __m512i *)norm;
    __m512i xs[4];
    int32_t pair;
    int b, p;

    for (p = 0; p < 4; p++) {
        __builtin_memcpy(&pair, x + 2 * p, sizeof pair);
        xs[p] = _mm512_set1_epi32(pair);
    }
    for (b = 0; b < entries / LANES; b++, c += 8) {
        __m512i lo = n[2 * b], hi = n[2 * b + 1];
        for (p = 0; p < 4; p++) {
            lo = _mm512_dpwssd_epi32(lo, xs[p], c[p]);
            hi = _mm512_dpwssd_epi32(hi, xs[p], c[4 + p]);
        }
        lo = _mm512_srai_epi32(lo, WASTE_VQ_SHIFT);
        hi = _mm512_srai_epi32(hi, WASTE_VQ_SHIFT);
        v_store(q + b * LANES, _mm512_packs_epi32(lo, hi));
    }
}

#include "convert/vq_search.h"

/* A bitonic network over the lanes of a vector (Batcher 1968): each step compares
 * a lane with its partner; `high` marks the lanes that keep the larger. */
typedef struct partners {
    int16_t lane[32];
} partners;

#define BY(f)                                                                                     \
    {                                                                                             \
        {                                                                                         \
            0 f, 1 f, 2 f, 3 f, 4 f, 5 f, 6 f, 7 f, 8 f, 9 f, 10 f, 11 f, 12 f, 13 f, 14 f, 15 f, \
                16 f, 17 f, 18 f, 19 f, 20 f, 21 f, 22 f, 23 f, 24 f, 25 f, 26 f, 27 f, 28 f,     \
                29 f, 30 f, 31 f                                                                  \
        }                                                                                         \
    }

static const partners by_1 = BY(^1), by_2 = BY(^2), by_4 = BY(^4), by_8 = BY(^8), by_16 = BY(^16),
                      by_3 = BY(^3), by_7 = BY(^7), by_15 = BY(^15), by_31 = BY(^31),
                      lanes = BY(+0);

#define HIGH_1  0xAAAAAAAAu
#define HIGH_2  0xCCCCCCCCu
#define HIGH_4  0xF0F0F0F0u
#define HIGH_8  0xFF00FF00u
#define HIGH_16 0xFFFF0000u

INLINE void step(vec *v, const partners *by, uint32_t high)
{
    const __m512i at = _mm512_loadu_si512(by->lane);
    int u;

    for (u = 0; u < TOGETHER; u++) {
        vec p = _mm512_permutexvar_epi16(at, v[u]);
        v[u] = _mm512_mask_max_epi16(_mm512_min_epi16(v[u], p), high, v[u], p);
    }
}

INLINE void merge(vec *v)
{
    step(v, &by_16, HIGH_16);
    step(v, &by_8, HIGH_8);
    step(v, &by_4, HIGH_4);
    step(v, &by_2, HIGH_2);
    step(v, &by_1, HIGH_1);
}

INLINE void sort(vec *v)
{
    step(v, &by_1, HIGH_1);
    step(v, &by_3, HIGH_2);
    step(v, &by_1, HIGH_1);
    step(v, &by_7, HIGH_4);
    step(v, &by_2, HIGH_2);
    step(v, &by_1, HIGH_1);
    step(v, &by_15, HIGH_8);
    step(v, &by_4, HIGH_4);
    step(v, &by_2, HIGH_2);
    step(v, &by_1, HIGH_1);
    step(v, &by_31, HIGH_16);
    step(v, &by_8, HIGH_8);
    step(v, &by_4, HIGH_4);
    step(v, &by_2, HIGH_2);
    step(v, &by_1, HIGH_1);
}

/* Two sorted halves, one of them reversed: their minimum lane by lane is the lower
 * 32 of the 64, in an order that a merge sorts. */
static void TARGET cuts(walk *w, int beam)
{
    const __m512i reverse = _mm512_loadu_si512(by_31.lane);
    int16_t sorted[32] __attribute__((aligned(64)));
    vec a[TOGETHER], b[TOGETHER];
    int u;

    for (u = 0; u < TOGETHER; u++) {
        a[u] = v_load(w[u].low);
        b[u] = v_load(w[u].low + 32);
    }
    sort(a);
    sort(b);
    for (u = 0; u < TOGETHER; u++) a[u] = v_min(a[u], _mm512_permutexvar_epi16(reverse, b[u]));
    merge(a);
    for (u = 0; u < TOGETHER; u++) {
        v_store(sorted, a[u]);
        w[u].cut = sorted[beam - 1];
    }
}

/* Which vectors have anything is found out first, without a branch; then only these
 * are visited, and whole vectors are compressed: branches that depend on the data
 * cost more than the work. */
static void TARGET collect(walk *w)
{
    const __m512i cut = _mm512_set1_epi16((int16_t)w->cut), lane = _mm512_loadu_si512(lanes.lane);
    uint32_t mask[WASTE_VQ_KEPT * WASTE_VQ_WIDEST / LANES];
    int i, j, at, n = 0, vecs = w->total / LANES;

    for (i = 0; i < vecs; i++) mask[i] = _mm512_cmple_epi16_mask(v_load(w->score + i * LANES), cut);
    for (; i & 15; i++) mask[i] = 0;
    for (i = 0; i < vecs && n < WASTE_VQ_KEPT; i += 64) {
        uint64_t some = 0;
        for (j = i; j < i + 64 && j < vecs; j += 16) {
            __m512i m = _mm512_loadu_si512(mask + j);
            some |= (uint64_t)_mm512_test_epi32_mask(m, m) << (j - i);
        }
        for (; some && n < WASTE_VQ_KEPT; some &= some - 1) {
            at = i + __builtin_ctzll(some);
            _mm512_storeu_si512(
                w->hit + n, _mm512_maskz_compress_epi16(mask[at], v_load(w->score + at * LANES)));
            _mm512_storeu_si512(
                w->number + n, _mm512_maskz_compress_epi16(
                                   mask[at], _mm512_add_epi16(lane, v_set((int16_t)(at * LANES)))));
            n += __builtin_popcount(mask[at]);
        }
    }
    w->n = n < WASTE_VQ_KEPT ? n : WASTE_VQ_KEPT;
}

const waste_vq_core *waste_vq_avx512(void)
{
    static const waste_vq_core core = {"avx512", LANES, row, search};

    /* not among the bits of base/cpu.h; every CPU with those has it, a hypervisor may not */
    return __builtin_cpu_supports("avx512vbmi2") ? &core : NULL;
}

#else

const waste_vq_core *waste_vq_avx512(void)
{
    return NULL;
}

#endif
