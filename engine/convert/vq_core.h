/* The beam search for the code words of vectors, in integers: for each vector x
 * the entries c_s, one of each stage's book, whose sum is near x. One table of
 * functions per instruction set; all give the same indices, bit for bit, because
 * every number in the search is a 16-bit integer and the rule is exact:
 *
 *   A path is one entry of each stage so far; its score is
 *     |x - c_0 - c_1 ..|^2 = |x|^2 + sum_s (|c_s|^2 - 2 x.c_s) + sum_{s<t} 2 c_s.c_t
 *   in units of 2^-9. Terms in brackets are one 16-bit number each, cross terms
 *   come from tables; sums saturate and are taken in this order: the bracket of the
 *   new entry, its cross terms with stages 0, 1, .., the score of the path.
 *   Extensions of the paths kept so far are numbered path * entries + entry. The
 *   lowest score of each of the 64 classes "number mod 64" is found; the beam-th
 *   lowest of these 64 is the cut. What is at or below it is kept, in ascending
 *   number, WASTE_VQ_KEPT at most. In the last stage only the lowest score is
 *   wanted; the first of equals wins.
 *
 * So at least `beam` paths survive, mostly not many more, and no sort is needed.
 * Pure functions, any thread, scratch from the caller. */
#ifndef WASTE_VQ_CORE_H
#define WASTE_VQ_CORE_H

#include <stddef.h>
#include <stdint.h>

#define WASTE_VQ_BEAM        32  /* widest */
#define WASTE_VQ_KEPT        128 /* paths */
#define WASTE_VQ_BEAM_STAGES 4   /* most that are searched jointly */
#define WASTE_VQ_WIDEST      256 /* entries of a book */

#define WASTE_VQ_FINE   11 /* fraction bits of the components of x and c */
#define WASTE_VQ_COARSE 9  /* fraction bits of scores */
#define WASTE_VQ_SHIFT  (2 * WASTE_VQ_FINE - WASTE_VQ_COARSE)

/* Squared norms: of the longest entry that can be a number here, and of the longest
 * vector. Scores have room for twice as long a vector, but the entries that suit it
 * would be out of reach. */
#define WASTE_VQ_REACH 28.0f
#define WASTE_VQ_ENTRY 63.5f

/* One set of books, prepared. entries is 64 or 256, stages 2 to 4. */
typedef struct waste_vq_tables {
    int stages, entries;
    /* -2 c, and |c|^2 plus half a unit of the score, in the order that `lanes` of
     * the core asks for: waste_vq_place_*. */
    int16_t *part;                                              /* [stages][8 * entries] */
    int32_t *norm;                                              /* [stages][entries] */
    int16_t *cross[WASTE_VQ_BEAM_STAGES][WASTE_VQ_BEAM_STAGES]; /* s < t: [c_s][c_t] */
} waste_vq_tables;

typedef struct waste_vq_core {
    const char *name; /* "plain", "avx2", "avx512" */
    int lanes;        /* entries of a packed block; 0: all, component by component */
    /* The brackets of one stage for one vector: q[entries]. `part` and `norm` are
     * one stage's. */
    void (*row)(const int16_t *part, const int32_t *norm, int entries, const int16_t *x,
                int16_t *q);
    /* n vectors of 8; index[v * stages + s]. 1 <= beam <= WASTE_VQ_BEAM. scratch:
     * WASTE_VQ_SCRATCH bytes aligned to 64. */
    void (*search)(const waste_vq_tables *t, const int16_t *x, size_t n, int beam, void *scratch,
                   uint8_t *index);
} waste_vq_core;

/* Where component d of entry k stands in `part`, and its norm in `norm`. Packed, a
 * block has two halves of which a saturating pack restores the order: 4 entries of
 * the one and 4 of the other in turn; a half has 4 pairs of components, each pair
 * for all of its entries. */
static inline size_t waste_vq_place_norm(int lanes, int k)
{
    int r;

    if (!lanes) return (size_t)k;
    r = k % lanes;
    return (size_t)((k / lanes * 2 + (r >> 2 & 1)) * (lanes / 2) + r / 8 * 4 + (r & 3));
}

static inline size_t waste_vq_place_part(int lanes, int entries, int k, int d)
{
    size_t at = waste_vq_place_norm(lanes, k), half = (size_t)lanes / 2;

    if (!lanes) return (size_t)(d * entries + k);
    return ((at / half * 4 + (size_t)d / 2) * half + at % half) * 2 + (d & 1);
}

/* The cores of this build. avx2 and avx512 are NULL off x86-64, avx512 also where a
 * part of the instruction set is missing. */
const waste_vq_core *waste_vq_plain(void);
const waste_vq_core *waste_vq_avx2(void);
const waste_vq_core *waste_vq_avx512(void);

/* The fastest that the CPU bits (base/cpu.h) allow. */
const waste_vq_core *waste_vq_core_pick(unsigned cpu);
/* NULL: unknown, not for this CPU, or not in this build. */
const waste_vq_core *waste_vq_core_named(const char *name, unsigned cpu);

#define WASTE_VQ_SCRATCH (4 * ((size_t)WASTE_VQ_KEPT * WASTE_VQ_WIDEST * 2 + 20480))

#endif
