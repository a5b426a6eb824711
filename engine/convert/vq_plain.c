/* The beam search in plain C (vq_core.h): 8 lanes in the compiler's portable
 * vectors, for any machine. No state, any thread. */
#include "convert/vq_core.h"

#include <string.h>

#define TARGET
#define LANES 8

typedef int16_t vec __attribute__((vector_size(16)));

static inline vec v_load(const int16_t *p)
{
    return *(const vec *)p;
}

static inline void v_store(int16_t *p, vec a)
{
    *(vec *)p = a;
}

static inline vec v_set(int16_t x)
{
    return (vec){x, x, x, x, x, x, x, x};
}

/* An overflow has a sum whose sign is that of neither term. */
static inline vec v_adds(vec a, vec b)
{
    typedef uint16_t uvec __attribute__((vector_size(16)));
    vec s = (vec)((uvec)a + (uvec)b), over = ((a ^ s) & (b ^ s)) >> 15;

    return (s & ~over) | (((a >> 15) ^ INT16_MAX) & over);
}

static inline vec v_min(vec a, vec b)
{
    vec less = a < b;

    return (a & less) | (b & ~less);
}

static int v_least(vec a)
{
    int l, least = a[0];

    for (l = 1; l < LANES; l++)
        if (a[l] < least) least = a[l];
    return least;
}

static int v_has(vec a, int x)
{
    int l;

    for (l = 0; l < LANES; l++)
        if (a[l] == x) return 1;
    return 0;
}

static uint64_t below(const int16_t *p, int x)
{
    vec any = v_set(0), v = v_set((int16_t)x);
    uint64_t bits = 0, half[2];
    int l;

    for (l = 0; l < 64; l += LANES) any |= v_load(p + l) <= v;
    memcpy(half, &any, sizeof half);
    if (!(half[0] | half[1])) return 0; /* mostly */
    for (l = 0; l < 64; l++) bits |= (uint64_t)(p[l] <= x) << l;
    return bits;
}

static int count_lower(const int16_t *p, int x)
{
    const vec v = v_set((int16_t)x);
    vec n = v_set(0);
    int j;

    for (j = 0; j < 64; j += LANES) n -= v_load(p + j) < v;
    return n[0] + n[1] + n[2] + n[3] + n[4] + n[5] + n[6] + n[7];
}
#define lower count_lower

static void row(const int16_t *part, const int32_t *norm, int entries, const int16_t *x, int16_t *q)
{
    int32_t sum[WASTE_VQ_WIDEST];
    int d, k;

    for (k = 0; k < entries; k++) sum[k] = norm[k];
    for (d = 0; d < 8; d++, part += entries)
        for (k = 0; k < entries; k++) sum[k] += (int32_t)x[d] * part[k];
    for (k = 0; k < entries; k++) {
        int32_t v = sum[k] >> WASTE_VQ_SHIFT;
        v = v > INT16_MAX ? INT16_MAX : v;
        q[k] = (int16_t)(v < INT16_MIN ? INT16_MIN : v);
    }
}

#include "convert/vq_search.h"

static void cuts(walk *w, int beam)
{
    cuts_by_count(w, beam);
}

static void collect(walk *w)
{
    collect_by_bit(w);
}

const waste_vq_core *waste_vq_plain(void)
{
    static const waste_vq_core core = {"plain", 0, row, search};

    return &core;
}
