/* Experts on NEON: see kernels.h. No state, any thread.
 *
 * Two ways, by the geometry, and each for any number of rows.
 *
 * Byte indices (256 entries): a table lookup is four registers' TBL and three TBX to a
 * byte plane, but an entry of the book is one load. So the books are kept in 16 bits,
 * a weight vector of 8 columns is the sum of one vector per stage, and it meets x in
 * 16 bits by SMLAL: no tables, and rows of a batch share the decoding.
 *
 * 6-bit indices (64 entries): tables, as in kernels_avx512_vq.c: 16-bit entries in two
 * byte planes, a TBL of four registers to a plane.
 *
 * Sums of a block of positions are exact in 32 bits and meet f32 at its end, so what a
 * row gets depends neither on the range nor on the rows of the batch beside it.
 *
 * Against plain C, before the row scale. N: the largest |x_v| of a block (at least
 * 1e-25), C: the sum over the stages of the largest |entry|. Each position of the
 * block errs by less than 10 stages N C / 32600 with byte indices (1.42 stages / 32700
 * for the book; for x 1.42 / 32700 where that is what limits it, else
 * 1.42 * 32700 * 8 / 2^31 times C over the sum of the largest components, a ratio of
 * at most 2.83), and 4 stages N C / 32600 with tables. That is the worst case; the rms
 * error of a matrix is near 2e-4 and 3e-4. A value of x or of a book that is not finite
 * makes the results NaN. */
#include "kernels/kernels_neon.h"

#if WASTE_HAVE_NEON

#include <math.h>
#include <string.h>

#include "kernels/kernels_vq.h"
#include "kernels/quant.h"

#define ROWS        64 /* of an index block */
#define BLOCK       WASTE_VQ_BLOCK
#define LEAST       1e-25f
#define LEAST_BOOK  1e-8f
#define BOOK_RANGE  32700.0f     /* what components of the stages may add up to */
#define SUM_RANGE   2.147e9f     /* what a block may add up to */
#define TABLE_RANGE 32600.0f     /* what table entries of the stages may add up to */
#define TABLE_BOOK  32760.0f     /* length of the longest entry where tables are made */
#define POSITION    (4 * 2 * 64) /* table bytes of a position: per stage 64 high, 64 low */

/* ---- books -------------------------------------------------------------------- */

/* The books of one matrix in 16 bits. Byte indices: [stage][256][8]; 6-bit ones:
 * [stage][8][64]. */
typedef struct books {
    float unit;    /* of q */
    float length;  /* of a sum of entries of q, at most; infinite: books that are not finite */
    float sum;     /* of the stages' longest entries */
    float longest; /* of all entries */
    char unused[48];
    int16_t q[];
} books;

/* Weights of a matrix that is computed without rounding. */
#define NARROW (64 * 128)

static size_t books_bytes(const waste_vq_geometry *g, int64_t width, int64_t input)
{
    if (waste_vq_unpacked(g, width, input, NARROW)) return 0;
    return sizeof(books) + (size_t)(g->stages * waste_vq_entries(g) * 8) * sizeof(int16_t);
}

static void pack_books(void *to, const waste_vq_geometry *g, const float *const *book)
{
    const int entries = waste_vq_entries(g), tables = g->index_bits == 6;
    float components = 0, scale;
    books *b = to;
    int s, e, d;

    b->sum = b->longest = 0;
    for (s = 0; s < g->stages; s++) {
        float longest = 0, largest = 0;

        for (e = 0; e < entries; e++) {
            const float *v = book[s] + 8 * e;
            float n = 0;

            for (d = 0; d < 8; d++) {
                n += v[d] * v[d];
                if (fabsf(v[d]) > largest) largest = fabsf(v[d]);
            }
            n = sqrtf(n);
            if (!isfinite(n)) n = INFINITY;
            if (n > longest) longest = n;
        }
        components += largest;
        b->sum += longest;
        if (longest > b->longest) b->longest = longest;
    }
    if (components < LEAST_BOOK) components = LEAST_BOOK;
    if (b->longest < LEAST_BOOK) b->longest = LEAST_BOOK;
    if (b->sum < LEAST_BOOK) b->sum = LEAST_BOOK;
    scale = tables ? TABLE_BOOK / b->longest : BOOK_RANGE / components;
    b->unit = 1 / scale;
    b->length = b->sum * scale + 1.42f * (float)g->stages;
    for (s = 0; s < g->stages; s++)
        for (e = 0; e < entries; e++)
            for (d = 0; d < 8; d++) {
                const float v = book[s][8 * e + d] * scale;
                const int at = s * 8 * entries + (tables ? d * entries + e : 8 * e + d);

                b->q[at] = isfinite(v) && isfinite(b->sum) ? (int16_t)lrintf(v) : 0;
            }
}

/* ---- x in 16 bits ---------------------------------------------------------------- */

/* The largest |x| of n positions, at least LEAST, and their lengths over it: their sum
 * and the largest, both at least 1. 0: something is not finite. */
typedef struct lengths {
    float most, sum, longest;
} lengths;

static int measure(const float *x, int64_t n, lengths *l)
{
    uint32x4_t most = vdupq_n_u32(0);
    uint32_t bits;
    int64_t i;
    float by;

    for (i = 0; i < 8 * n; i += 4) /* as integers, so that NaN counts as largest */
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    bits = vmaxvq_u32(most);
    if (bits >= 0x7F800000u) return 0;
    memcpy(&l->most, &bits, sizeof bits);
    if (l->most < LEAST) l->most = LEAST;
    by = 1 / l->most;
    l->sum = l->longest = 0;
    for (i = 0; i < 8 * n; i += 8) {
        const float32x4_t a = vmulq_n_f32(vld1q_f32(x + i), by);
        const float32x4_t b = vmulq_n_f32(vld1q_f32(x + i + 4), by);
        const float length = sqrtf(vaddvq_f32(vfmaq_f32(vmulq_f32(a, a), b, b)));

        l->sum += length;
        if (length > l->longest) l->longest = length;
    }
    if (l->sum < 1) l->sum = 1; /* the clamped maximum, or a rounding */
    if (l->longest < 1) l->longest = 1;
    return 1;
}

static void quantise(const float *x, int64_t n, float by, int16_t *q)
{
    int64_t i;

    for (i = 0; i < 8 * n; i += 4)
        vst1_s16(q + i, vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), by))));
}

/* ---- byte indices: decoded vectors ------------------------------------------------- */

/* A block of one input: its integers, and what a unit of its sums is worth. The sum of
 * |w_v| |x_v| stays below 2^31; x errs by up to 1.42 in each position, which the 12 is
 * for. A block with something that is not finite has zeros and a unit of NaN. */
static float quantise_block(const books *b, const float *x, int64_t n, int16_t *q)
{
    lengths l;
    float e;

    memset(q, 0, 8 * BLOCK * sizeof *q);
    if (!measure(x, n, &l) || !isfinite(b->sum)) return NAN;
    e = (SUM_RANGE / b->length - 12) / l.sum;
    if (e > BOOK_RANGE) e = BOOK_RANGE;
    quantise(x, n, e / l.most, q);
    return b->unit * (l.most / e);
}

/* The weight vectors of 8 rows at one position. p: their indices. */
INLINE void decode8(int16x8_t w[8], const unsigned char *p, const int16_t *q, const int stages)
{
    uint64_t u[3];
    int r;

    memcpy(u, p, 8 * (size_t)stages);
#pragma GCC unroll 8
    for (r = 0; r < 8; r++) {
        const int a = stages * r, b = a + 1, c = a + 2;

        w[r] = vaddq_s16(vld1q_s16(q + 8 * (u[a / 8] >> a % 8 * 8 & 255)),
                         vld1q_s16(q + 2048 + 8 * (u[b / 8] >> b % 8 * 8 & 255)));
        if (stages == 3)
            w[r] = vaddq_s16(w[r], vld1q_s16(q + 4096 + 8 * (u[c / 8] >> c % 8 * 8 & 255)));
    }
}

static inline int32x4_t add_product(int32x4_t s, int16x8_t w, int16x8_t x)
{
    return vmlal_high_s16(vmlal_s16(s, vget_low_s16(w), vget_low_s16(x)), w, x);
}

/* acc[0..3] += what four rows' sums are worth. */
static inline void fold4(float *acc, const int32x4_t *s, float unit)
{
    vst1q_f32(acc, vfmaq_n_f32(vld1q_f32(acc), vcvtq_f32_s32(waste_sums4_s32(s)), unit));
}

/* 8 rows by one input. */
INLINE void one_input(float *acc, const unsigned char *p, int64_t n, const int16_t *book,
                      const int16_t *x, float unit, const int stages)
{
    int32x4_t s[8];
    int64_t v;
    int r;

    for (r = 0; r < 8; r++) s[r] = vdupq_n_s32(0);
    for (v = 0; v < n; v++, p += ROWS * stages) {
        const int16x8_t in = vld1q_s16(x + 8 * v);
        int16x8_t w[8];

        decode8(w, p, book, stages);
#pragma GCC unroll 8
        for (r = 0; r < 8; r++) s[r] = add_product(s[r], w[r], in);
    }
    fold4(acc, s, unit);
    fold4(acc + 4, s + 4, unit);
}

/* Four rows of decoded vectors by nt inputs, nt a constant; sums of input i at
 * acc + i * step. */
INLINE void some_inputs(float *acc, size_t step, const int16x8_t w[4][BLOCK], int64_t n,
                        const int16_t *x, const float *unit, const int nt)
{
    int32x4_t s[4][4];
    int64_t v;
    int r, t;

    for (t = 0; t < nt; t++)
        for (r = 0; r < 4; r++) s[t][r] = vdupq_n_s32(0);
    for (v = 0; v < n; v++)
        for (t = 0; t < nt; t++) {
            const int16x8_t in = vld1q_s16(x + 8 * (t * BLOCK + v));

            for (r = 0; r < 4; r++) s[t][r] = add_product(s[t][r], w[r][v], in);
        }
    for (t = 0; t < nt; t++) fold4(acc + (size_t)t * step, s[t], unit[t]);
}

/* Inputs of a block: [inputs][8 * BLOCK], and their units. */
typedef struct inputs {
    size_t n;
    const int16_t *q;
    const float *unit;
} inputs;

/* 8 rows by all inputs. */
INLINE void eight_rows(float *acc, size_t step, const unsigned char *p, int64_t n,
                       const int16_t *book, const inputs *x, const int stages)
{
    int16x8_t w[8][BLOCK];
    int64_t v;
    size_t i;
    int r;

    if (x->n == 1) {
        one_input(acc, p, n, book, x->q, x->unit[0], stages);
        return;
    }
    for (v = 0; v < n; v++, p += ROWS * stages) {
        int16x8_t d[8];

        decode8(d, p, book, stages);
        for (r = 0; r < 8; r++) w[r][v] = d[r];
    }
    for (r = 0; r < 8; r += 4, acc += 4) {
        for (i = 0; i + 4 <= x->n; i += 4)
            some_inputs(acc + i * step, step, w + r, n, x->q + 8 * BLOCK * i, x->unit + i, 4);
        for (; i < x->n; i++)
            some_inputs(acc + i * step, step, w + r, n, x->q + 8 * BLOCK * i, x->unit + i, 1);
    }
}

/* Indices of a block of positions, 1.5 KB of each row block, lie too far apart for a
 * hardware's guess. */
static inline void prefetch(const unsigned char *p, size_t n)
{
    size_t i;

    for (i = 0; i < n; i += 64) __builtin_prefetch(p + i);
}

/* Row blocks first..last over the positions of a block. acc: [inputs][step]. */
INLINE void apply_bytes(const waste_vq_matrix *m, int64_t first, int64_t last, int64_t v0,
                        int64_t n, const inputs *x, float *acc, size_t step, const int stages)
{
    const books *k = m->packed;
    const size_t at = (size_t)(v0 * ROWS * stages), chunk = (size_t)(n * ROWS * stages);
    const size_t row_bytes = (size_t)(m->cols / 8 * ROWS * stages);
    int64_t b;
    int r;

    for (b = first; b < last; b++, acc += ROWS) {
        const unsigned char *p = m->index + (size_t)b * row_bytes + at;

        if (b + 2 < last) prefetch(p + 2 * row_bytes, chunk);
        for (r = 0; r < ROWS; r += 8) eight_rows(acc + r, step, p + r * stages, n, k->q, x, stages);
    }
}

static void run_bytes(const waste_expert *a, const waste_vq_matrix *m, int64_t first, int64_t last,
                      const float *const *x, size_t n, float *acc, size_t step)
{
    const int64_t nv = m->cols / 8;
    float unit[WASTE_VQ_ROWS];
    int16_t *q = a->work;
    const inputs in = {n, q, unit};
    int64_t v, p;
    size_t i;

    for (v = 0; v < nv; v += BLOCK) {
        p = nv - v < BLOCK ? nv - v : BLOCK;
        for (i = 0; i < n; i++)
            unit[i] = quantise_block(m->packed, x[i] + 8 * v, p, q + 8 * BLOCK * i);
        if (a->geometry.stages == 3)
            apply_bytes(m, first, last, v, p, &in, acc, step, 3);
        else
            apply_bytes(m, first, last, v, p, &in, acc, step, 2);
    }
}

/* ---- 6-bit indices: tables ------------------------------------------------------------ */

/* 8 entries of one stage, rounded. q: their dimensions, 64 apart; x: 8 values. */
static inline int16x8_t dots(const int16_t *q, int16x8_t x)
{
    int32x4_t lo = vdupq_n_s32(0), hi = lo;

#define DIMENSION(d)                                        \
    lo = vmlal_laneq_s16(lo, vld1_s16(q + 64 * (d)), x, d); \
    hi = vmlal_laneq_s16(hi, vld1_s16(q + 64 * (d) + 4), x, d)
    DIMENSION(0);
    DIMENSION(1);
    DIMENSION(2);
    DIMENSION(3);
    DIMENSION(4);
    DIMENSION(5);
    DIMENSION(6);
    DIMENSION(7);
#undef DIMENSION
    return vcombine_s16(vrshrn_n_s32(lo, 15), vrshrn_n_s32(hi, 15));
}

/* Tables of n positions; the result is what a unit of their entries is worth. */
static float build(unsigned char *to, const books *b, const float *x, int64_t n)
{
    int16_t q[8 * BLOCK];
    int64_t v;
    lengths l;
    float e;
    int s, k;

    if (!measure(x, n, &l) || !isfinite(b->sum)) {
        memset(to, 0, (size_t)n * POSITION);
        return NAN;
    }
    e = TABLE_RANGE / (b->sum * l.longest) / l.most;
    quantise(x, n, e * 32768.0f * b->unit, q);
    for (v = 0; v < n; v++) {
        const int16x8_t in = vld1q_s16(q + 8 * v);

        for (s = 0; s < 4; s++, to += 128)
            for (k = 0; k < 64; k += 16) {
                const int16_t *book = b->q + 512 * s + k;
                const uint8x16_t first = vreinterpretq_u8_s16(dots(book, in));
                const uint8x16_t second = vreinterpretq_u8_s16(dots(book + 8, in));

                vst1q_u8(to + k, vuzp2q_u8(first, second));
                vst1q_u8(to + 64 + k, vuzp1q_u8(first, second));
            }
    }
    return 1 / e;
}

/* 32 rows over n positions (docs/format.md 5.5). */
static void pass(float *acc, const unsigned char *p, const unsigned char *t, int64_t n, float unit)
{
    int32x4_t sum[8];
    int64_t v;
    int s, g, i;

    for (i = 0; i < 8; i++) sum[i] = vdupq_n_s32(0);
    for (v = 0; v < n; v++, p += 3 * ROWS) {
        const uint8x16x3_t raw[2] = {vld3q_u8(p), vld3q_u8(p + 48)};
        int16x8_t w[4] = {vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0)};

#pragma GCC unroll 4
        for (s = 0; s < 4; s++, t += 128) {
            const uint8x16x4_t high = vld1q_u8_x4(t), low = vld1q_u8_x4(t + 64);

            for (g = 0; g < 2; g++) {
                const uint8x16_t x = raw[g].val[0], y = raw[g].val[1], z = raw[g].val[2];
                /* bits 6 and 7 of x below bits 0 to 3 of y, and so on */
                const uint8x16_t u = s == 0   ? x
                                     : s == 1 ? vsliq_n_u8(vshrq_n_u8(x, 6), y, 2)
                                     : s == 2 ? vsliq_n_u8(vshrq_n_u8(y, 4), z, 4)
                                              : vshrq_n_u8(z, 2);
                const uint8x16_t k = vandq_u8(u, vdupq_n_u8(63));
                const uint8x16_t h = vqtbl4q_u8(high, k), l = vqtbl4q_u8(low, k);

                w[2 * g] = vaddq_s16(w[2 * g], vreinterpretq_s16_u8(vzip1q_u8(l, h)));
                w[2 * g + 1] = vaddq_s16(w[2 * g + 1], vreinterpretq_s16_u8(vzip2q_u8(l, h)));
            }
        }
        for (i = 0; i < 4; i++) {
            sum[2 * i] = vaddw_s16(sum[2 * i], vget_low_s16(w[i]));
            sum[2 * i + 1] = vaddw_high_s16(sum[2 * i + 1], w[i]);
        }
    }
    for (i = 0; i < 8; i++)
        vst1q_f32(acc + 4 * i, vfmaq_n_f32(vld1q_f32(acc + 4 * i), vcvtq_f32_s32(sum[i]), unit));
}

/* Prepared tables: those of gate, their units, then the same of up. */
static size_t prepared_bytes(int64_t cols)
{
    const int64_t nv = cols / 8, blocks = (nv + BLOCK - 1) / BLOCK;

    return ((size_t)(nv * POSITION) + (size_t)blocks * sizeof(float) + 63) / 64 * 64;
}

static size_t tables_bytes(const waste_vq_geometry *g, int64_t cols)
{
    return waste_vq_kind(g) == 6 ? 2 * prepared_bytes(cols) : 0;
}

static void expert_tables(const waste_expert *a, void *to, int64_t lo, int64_t hi)
{
    const int64_t nv = a->gate.cols / 8, per = WASTE_TABLE_COLS / 8;
    const float *x = a->x + (int64_t)a->x_row[0] * a->gate.cols;
    const int64_t end = hi * per < nv ? hi * per : nv;
    int64_t v;
    int i;

    if (waste_vq_kind(&a->geometry) != 6) return;
    for (i = 0; i < 2; i++) {
        unsigned char *t = (unsigned char *)to + (size_t)i * prepared_bytes(a->gate.cols);
        float *unit = (float *)(void *)(t + nv * POSITION);

        for (v = lo * per; v < end; v += BLOCK)
            unit[v / BLOCK] = build(t + v * POSITION, i ? a->up.packed : a->gate.packed, x + 8 * v,
                                    nv - v < BLOCK ? nv - v : BLOCK);
    }
}

/* Those of a matrix for the only input, or NULL. */
static const unsigned char *prepared_of(const waste_expert *a, const waste_vq_matrix *m)
{
    if (a->n != 1 || !a->tables || m == &a->down) return NULL;
    return (const unsigned char *)a->tables + (m == &a->up ? prepared_bytes(m->cols) : 0);
}

/* prepared: tables of input 0, or NULL. */
static void run_tables(const waste_expert *a, const waste_vq_matrix *m, int64_t first, int64_t last,
                       const float *const *x, size_t n, const unsigned char *prepared, float *acc,
                       size_t step)
{
    const int64_t nv = m->cols / 8;
    const size_t row_bytes = (size_t)(nv * 3 * ROWS);
    int64_t v, p, b;
    size_t i;

    for (v = 0; v < nv; v += BLOCK) {
        p = nv - v < BLOCK ? nv - v : BLOCK;
        for (i = 0; i < n; i++) {
            const unsigned char *t = prepared ? prepared + v * POSITION : a->work, *at;
            float *to = acc + i * step;
            float unit;

            if (prepared)
                memcpy(&unit, prepared + nv * POSITION + v / BLOCK * (int64_t)sizeof unit,
                       sizeof unit);
            else
                unit = build(a->work, m->packed, x[i] + 8 * v, p);
            for (b = first; b < last; b++, to += ROWS) {
                at = m->index + (size_t)b * row_bytes + (size_t)(v * 3 * ROWS);
                if (i == 0 && b + 2 < last) prefetch(at + 2 * row_bytes, (size_t)(p * 3 * ROWS));
                pass(to, at, t, p, unit);
                pass(to + 32, at + 96, t, p, unit);
            }
        }
    }
}

/* ---- slots ------------------------------------------------------------------------------ */

/* Row blocks first..last of a matrix by n inputs. acc: [n][step] sums, rows in order. */
static void run_matrix(const waste_expert *a, const waste_vq_matrix *m, int64_t first, int64_t last,
                       const float *const *x, size_t n, float *acc, size_t step)
{
    size_t i;

    for (i = 0; i < n; i++) memset(acc + i * step, 0, (size_t)(last - first) * ROWS * sizeof *acc);
    if (waste_vq_kind(&a->geometry) == 6)
        run_tables(a, m, first, last, x, n, prepared_of(a, m), acc, step);
    else
        run_bytes(a, m, first, last, x, n, acc, step);
}

#include "kernels/kernels_vec_expert.h"

void waste_kernels_neon_vq(waste_kernels *k)
{
    k->expert_up = expert_up;
    k->expert_down = expert_down;
    k->books_bytes = books_bytes;
    k->pack_books = pack_books;
    k->tables_bytes = tables_bytes;
    k->expert_tables = expert_tables;
}

#endif
