/* What the files of the AVX-512 experts share (kernels_avx512_vq*.c). No state, any
 * thread.
 *
 * A weight vector of 8 columns is a sum of one codebook entry per stage, so a row
 * times x is a sum of table entries: table[s][e] = book[s][e] . x[8v..8v+7], a 16-bit
 * integer. The positions v go in blocks of WASTE_VQ_BLOCK; integers are exact up to the
 * end of a block, where they meet f32. Tables are made and looked up in two forms:
 *
 *   for one input   256 entries in registers, 64 rows at a time (_vq_one.c)
 *   for up to 32    entry e of all inputs side by side, a row at a time (_vq_many.c)
 *
 * Both make the same integers and add them up in the same order, so an output has the
 * same bits in either and the number of inputs decides nothing but time.
 *
 * A block's scale comes from a bound, not from a search: |book . x_v| is at most
 * |book| |x_v| (Cauchy, Schwarz), and the entries of all stages together stay below
 * 2^15.
 *
 * Against plain C, before the row scale. Let N be the largest |x_v| of a block (at
 * least 1e-25), C the sum over the stages of the largest |entry|: each position of
 * the block errs by less than 4 stages N C / 32600 (per stage half a unit for
 * rounding the table entry, and 1.42 each for rounding x and the book to 16 bits).
 * That is the worst case; the rms error of a matrix is near 3e-4. A value of x or of
 * a book that is not finite makes the results NaN.
 *
 * These files are built twice (kernels.mk): with VBMI and VNNI, and for CPUs that have
 * neither. Both give the same bits; what differs is how a table of one input is stored
 * and looked up (_vq_one.c), a product and a shuffle. */
#ifndef WASTE_KERNELS_AVX512_VQ_H
#define WASTE_KERNELS_AVX512_VQ_H

#include "kernels/kernels_avx512.h"
#include "kernels/kernels_vq.h"

#if WASTE_HAVE_AVX512BW

#if !WASTE_HAVE_AVX512 /* names of the second build */
#define waste_vq_books_bytes    waste_vqbw_books_bytes
#define waste_vq_pack_books     waste_vqbw_pack_books
#define waste_vq_pack_record    waste_vqbw_pack_record
#define waste_vq_planes         waste_vqbw_planes
#define waste_vq_scales         waste_vqbw_scales
#define waste_vq_build          waste_vqbw_build
#define waste_vq_apply          waste_vqbw_apply
#define waste_vq_rows           waste_vqbw_rows
#define waste_vq_position_bytes waste_vqbw_position_bytes
#define waste_vq_many           waste_vqbw_many
#define waste_vq_run_many       waste_vqbw_run_many
#define waste_kernels_avx512_vq waste_kernels_avx512bw_vq
#endif

/* The books of one matrix in 16 bits, the longest entry of any stage to length
 * 32760. Zmm z of 64-entry group g holds pairs of dimensions of 16 entries. */
typedef struct waste_vq_books {
    float sum, longest; /* of the stages' longest entries; the longest of all */
    char unused[56];
    int16_t q[]; /* [stage][group][pair 4][zmm 4][lane 16][2] */
} waste_vq_books;

/* One input's scales, an item to a block of positions: what x is multiplied with before it
 * is rounded to 16 bits, and what a unit of an entry is worth. */
typedef struct waste_vq_scale {
    float *x, *unit;
} waste_vq_scale;

/* Row blocks first..last of one matrix. */
typedef struct waste_vq_span {
    const waste_vq_matrix *m;
    int64_t first, last;
    int planar;
    unsigned char *planes; /* WASTE_VQ_PLANE_BYTES: two row blocks of a table block */
} waste_vq_span;

static inline __m512i waste_vq_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* ---- geometry ---------------------------------------------------------------- */

static inline int waste_vq_packed(const waste_vq_geometry *g)
{
    return g->index_bits == 6;
}

/* Four 6-bit indices of 64 rows, from their three planes (docs/format.md 5.5); the upper
 * two bits of each are anything. */
static inline void waste_vq_unpack6(const unsigned char *p, __m512i *i)
{
    const __m512i x = waste_vq_load(p), y = waste_vq_load(p + 64), z = waste_vq_load(p + 128);

    i[0] = x;
    /* bits 6 and 7 of x below bits 0 to 3 of y, and so on */
    i[1] = _mm512_ternarylogic_epi32(_mm512_srli_epi16(x, 6), _mm512_slli_epi16(y, 2),
                                     _mm512_set1_epi8(3), 0xE4);
    i[2] = _mm512_ternarylogic_epi32(_mm512_srli_epi16(y, 4), _mm512_slli_epi16(z, 4),
                                     _mm512_set1_epi8(15), 0xE4);
    i[3] = _mm512_srli_epi16(z, 2);
}

/* 64-entry groups of a stage. */
static inline int waste_vq_groups(const waste_vq_geometry *g)
{
    return waste_vq_packed(g) ? 1 : 4;
}

/* The lower halves of 32 integers, in their order. */
static inline __m512i waste_vq_join16(__m512i a, __m512i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
                              _mm512_cvtepi32_epi16(b), 1);
}

/* s += products of pairs of 16 bits */
static inline __m512i waste_vq_add_pairs(__m512i s, __m512i a, __m512i b)
{
#if WASTE_HAVE_AVX512
    return _mm512_dpwssd_epi32(s, a, b);
#else
    return _mm512_add_epi32(s, _mm512_madd_epi16(a, b));
#endif
}

/* Where a block's integers meet f32: acc += unit s */
static inline void waste_vq_add(float *acc, __m512i s, __m512 unit)
{
    _mm512_storeu_ps(acc, _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), unit, _mm512_loadu_ps(acc)));
}

/* ---- kernels_avx512_vq_pack.c ------------------------------------------------- */

/* Slots of the table (kernels.h). */
size_t waste_vq_books_bytes(const waste_vq_geometry *g, int64_t width, int64_t input);
void waste_vq_pack_books(void *to, const waste_vq_geometry *g, const float *const *book);
void waste_vq_pack_record(void *record, const struct waste_record_layout *at,
                          const waste_vq_geometry *g);

/* n times the indices of 64 rows, `vector_bytes` to a row, become as many runs of 64
 * bytes. to may be from. */
void waste_vq_planes(unsigned char *to, const unsigned char *from, int64_t n, int vector_bytes);

/* ---- kernels_avx512_vq_scale.c ------------------------------------------------- */

/* Of the nv positions at x, the first of which begins a block. A block with something
 * that is not finite gets 0, so that all its entries are 0, and a unit that turns every
 * sum into NaN. */
void waste_vq_scales(waste_vq_scale *to, const waste_vq_books *b, const float *x, int64_t nv);

/* ---- kernels_avx512_vq_one.c --------------------------------------------------- */

/* Bytes of the tables of one position. */
size_t waste_vq_position_bytes(const waste_vq_geometry *g);

/* Tables of n positions, at most a block, of which x is the input and `by` its scale. */
void waste_vq_build(unsigned char *to, const waste_vq_geometry *g, const waste_vq_books *b,
                    const float *x, float by, int64_t n);

/* acc[last - first][64] += unit times the sums of the block's entries; rows are in the
 * order that waste_vq_rows undoes. v0: the block's first position. ahead: whether to
 * prefetch what comes next. */
void waste_vq_apply(const waste_vq_geometry *g, const waste_vq_span *r, float *acc,
                    const unsigned char *table, float unit, int64_t v0, int64_t n, int ahead);

/* The 64 sums of a row block in the order of the rows. */
void waste_vq_rows(const float *acc, __m512 *r);

/* ---- kernels_avx512_vq_many.c --------------------------------------------------- */

/* How many of n inputs should go together in this form, at most WASTE_VQ_MANY; 0: one
 * at a time is faster. */
size_t waste_vq_many(size_t n);

/* The same sums for waste_vq_many inputs, x[i] and s[i] being those of input i:
 * acc[last - first][64][WASTE_VQ_MANY], rows in order. work: WASTE_VQ_MANY_BYTES. */
void waste_vq_run_many(const waste_vq_geometry *g, const waste_vq_span *r, const float *const *x,
                       const waste_vq_scale *s, size_t n, float *acc, void *work);

#endif
#endif
