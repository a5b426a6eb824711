/* Experts on AVX2: see kernels.h. No state, any thread.
 *
 * f32 tables of a block of positions, over which all rows pass. For few inputs those of
 * one, which stay in L1, and scalar lookups: vector gathers are slower, and byte shuffles
 * over 256 entries no faster. For more those of eight, side by side, so that a lookup is
 * one load for all of them. Either way a row's sum runs over the positions in order and
 * an entry's over its columns, so an output's bits depend on its input alone. Against
 * plain C: f32 rounding, at most 2e-6 of the sum over the positions of |x_v| times the
 * longest entries. */
#include "kernels/kernels_avx2.h"

#if WASTE_HAVE_AVX2

#include <immintrin.h>
#include <string.h>

#include "kernels/kernels_vq.h"
#include "kernels/quant.h"

#define ROWS  64 /* of an index block */
#define LANES 8  /* inputs whose tables stand side by side */
#define LEAST 3  /* of them, for that to be faster (docs/measured.md) */
#define PASS  2  /* positions whose tables they have at a time */

#define NARROW (256 * 256) /* weights of a matrix, for which tables do not pay (docs/measured.md) */

/* Books by dimension: [stage][8][entries]. */
static size_t books_bytes(const waste_vq_geometry *g, int64_t width, int64_t input)
{
    if (waste_vq_unpacked(g, width, input, NARROW)) return 0;
    return (size_t)g->stages * 8 * (size_t)waste_vq_entries(g) * sizeof(float);
}

static void pack_books(void *to, const waste_vq_geometry *g, const float *const *book)
{
    const size_t n = (size_t)waste_vq_entries(g);
    float *p = to;
    size_t e;
    int s, d;

    for (s = 0; s < g->stages; s++)
        for (d = 0; d < 8; d++)
            for (e = 0; e < n; e++) *p++ = book[s][8 * e + (size_t)d];
}

static size_t tables_bytes(const waste_vq_geometry *g, int64_t cols)
{
    (void)g, (void)cols;
    return 0; /* a block's tables cost a tenth of its lookups */
}

/* [position][stage][entries] */
static void build(float *to, const waste_vq_geometry *g, const float *books, const float *x,
                  int64_t n)
{
    const size_t entries = (size_t)waste_vq_entries(g);
    int64_t v;
    size_t e;
    int s, d, i;

    for (v = 0; v < n; v++, x += 8)
        for (s = 0; s < g->stages; s++, to += entries) {
            const float *b = books + (size_t)s * 8 * entries;

            for (e = 0; e < entries; e += 32) {
                __m256 sum[4];

                for (i = 0; i < 4; i++) sum[i] = _mm256_setzero_ps();
                for (d = 0; d < 8; d++) {
                    const __m256 xd = _mm256_set1_ps(x[d]);
                    for (i = 0; i < 4; i++)
                        sum[i] = _mm256_fmadd_ps(
                            xd, _mm256_loadu_ps(b + (size_t)d * entries + e + 8 * (size_t)i),
                            sum[i]);
                }
                for (i = 0; i < 4; i++) _mm256_storeu_ps(to + e + 8 * (size_t)i, sum[i]);
            }
        }
}

/* 8 rows over n positions; their sums live in registers. */
INLINE void eight_rows(float *acc, const unsigned char *p, const float *t, int64_t n,
                       const int kind)
{
    const size_t step = ROWS * (kind == 2 ? 2 : 3);
    float s[8];
    int64_t v;
    int r;

    memcpy(s, acc, sizeof s);
    for (v = 0; v < n; v++, p += step) {
        if (kind == 6) {
#pragma GCC unroll 8
            for (r = 0; r < 8; r++) {
                const uint32_t u =
                    p[3 * r] | (uint32_t)p[3 * r + 1] << 8 | (uint32_t)p[3 * r + 2] << 16;
                s[r] += (t[u & 63] + t[64 + (u >> 6 & 63)]) +
                        (t[128 + (u >> 12 & 63)] + t[192 + (u >> 18)]);
            }
            t += 256;
        } else if (kind == 3) {
            uint64_t w[3];

            memcpy(w, p, sizeof w);
#pragma GCC unroll 8
            for (r = 0; r < 8; r++) {
                const int a = 3 * r, b = a + 1, c = a + 2;
                s[r] += t[w[a / 8] >> a % 8 * 8 & 255] + t[256 + (w[b / 8] >> b % 8 * 8 & 255)] +
                        t[512 + (w[c / 8] >> c % 8 * 8 & 255)];
            }
            t += 768;
        } else {
            uint64_t w[2];

            memcpy(w, p, sizeof w);
#pragma GCC unroll 8
            for (r = 0; r < 8; r++) {
                const int a = 2 * r, b = a + 1;
                s[r] += t[w[a / 8] >> a % 8 * 8 & 255] + t[256 + (w[b / 8] >> b % 8 * 8 & 255)];
            }
            t += 512;
        }
    }
    memcpy(acc, s, sizeof s);
}

/* gcc takes a function that does nothing but prefetch for one without effect. */
#define PREFETCH(p, n)                                            \
    do {                                                          \
        size_t line_;                                             \
        for (line_ = 0; line_ < (n); line_ += 64)                 \
            _mm_prefetch((const char *)(p) + line_, _MM_HINT_T0); \
    } while (0)

/* Row blocks first..last over the positions of a table block. */
INLINE void apply_kind(const waste_vq_matrix *m, int64_t first, int64_t last, float *acc,
                       const float *t, int64_t v0, int64_t n, const int kind)
{
    const int vb = kind == 2 ? 2 : 3;
    const size_t row_bytes = (size_t)(m->cols / 8) * (size_t)(ROWS * vb);
    int64_t b;
    int r;

    for (b = first; b < last; b++, acc += ROWS) {
        const unsigned char *p =
            m->index + (size_t)b * row_bytes + (size_t)v0 * (size_t)(ROWS * vb);

        if (b + 2 < last) PREFETCH(p + 2 * row_bytes, (size_t)n * (size_t)(ROWS * vb));
        for (r = 0; r < ROWS; r += 8) eight_rows(acc + r, p + r * vb, t, n, kind);
    }
}

static void apply(const waste_vq_geometry *g, const waste_vq_matrix *m, int64_t first, int64_t last,
                  float *acc, const float *t, int64_t v0, int64_t n)
{
    const int kind = waste_vq_kind(g);

    if (kind == 6)
        apply_kind(m, first, last, acc, t, v0, n, 6);
    else if (kind == 3)
        apply_kind(m, first, last, acc, t, v0, n, 3);
    else
        apply_kind(m, first, last, acc, t, v0, n, 2);
}

/* ---- eight inputs side by side ---------------------------------------------------- */

/* [position][stage][entry][LANES] of the positions from v0 on; lanes without an input
 * have the first one's. */
static void build_lanes(float *to, const waste_vq_geometry *g, const float *books,
                        const float *const *x, size_t inputs, int64_t v0, int64_t n)
{
    const size_t entries = (size_t)waste_vq_entries(g);
    int64_t v;
    size_t e, i;
    int s, d;

    for (v = v0; v < v0 + n; v++) {
        float column[8][LANES];
        __m256 xd[8];

        for (d = 0; d < 8; d++) {
            for (i = 0; i < LANES; i++) column[d][i] = x[i < inputs ? i : 0][8 * v + d];
            xd[d] = _mm256_loadu_ps(column[d]);
        }
        for (s = 0; s < g->stages; s++) {
            const float *b = books + (size_t)s * 8 * entries;

            for (e = 0; e < entries; e++, to += LANES) {
                __m256 sum = _mm256_setzero_ps();

#pragma GCC unroll 8
                for (d = 0; d < 8; d++)
                    sum = _mm256_fmadd_ps(xd[d], _mm256_broadcast_ss(b + (size_t)d * entries + e),
                                          sum);
                _mm256_storeu_ps(to, sum);
            }
        }
    }
}

INLINE __m256 entry(const float *t, size_t e)
{
    return _mm256_loadu_ps(t + LANES * e);
}

/* 64 rows over n positions: acc[row][LANES]. */
INLINE void rows_lanes(float *acc, const unsigned char *block, const float *table, const int64_t n,
                       const int kind)
{
    const int vb = kind == 2 ? 2 : 3, stages = kind == 6 ? 4 : kind;
    const size_t entries = kind == 6 ? 64 : 256;
    int64_t v;
    int r;

    for (r = 0; r < ROWS; r++, acc += LANES) {
        const unsigned char *p = block + r * vb;
        const float *t = table;
        __m256 sum = _mm256_loadu_ps(acc);

#pragma GCC unroll 2
        for (v = 0; v < n; v++, p += ROWS * vb, t += LANES * (size_t)stages * entries) {
            __m256 a;

            if (kind == 6) {
                const uint32_t u = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;

                a = _mm256_add_ps(
                    _mm256_add_ps(entry(t, u & 63), entry(t, 64 + (u >> 6 & 63))),
                    _mm256_add_ps(entry(t, 128 + (u >> 12 & 63)), entry(t, 192 + (u >> 18))));
            } else {
                a = _mm256_add_ps(entry(t, p[0]), entry(t, 256 + (size_t)p[1]));
                if (kind == 3) a = _mm256_add_ps(a, entry(t, 512 + (size_t)p[2]));
            }
            sum = _mm256_add_ps(sum, a);
        }
        _mm256_storeu_ps(acc, sum);
    }
}

INLINE void apply_lanes_kind(const waste_vq_matrix *m, int64_t first, int64_t last, float *acc,
                             const float *t, int64_t v0, int64_t n, const int kind)
{
    const int vb = kind == 2 ? 2 : 3;
    const size_t row_bytes = (size_t)(m->cols / 8) * (size_t)(ROWS * vb);
    int64_t b;

    for (b = first; b < last; b++, acc += ROWS * LANES) {
        const unsigned char *p =
            m->index + (size_t)b * row_bytes + (size_t)v0 * (size_t)(ROWS * vb);

        if (b + 2 < last) PREFETCH(p + 2 * row_bytes, (size_t)n * (size_t)(ROWS * vb));
        if (n == PASS)
            rows_lanes(acc, p, t, PASS, kind);
        else
            rows_lanes(acc, p, t, n, kind);
    }
}

static void apply_lanes(const waste_vq_geometry *g, const waste_vq_matrix *m, int64_t first,
                        int64_t last, float *acc, const float *t, int64_t v0, int64_t n)
{
    const int kind = waste_vq_kind(g);

    if (kind == 6)
        apply_lanes_kind(m, first, last, acc, t, v0, n, 6);
    else if (kind == 3)
        apply_lanes_kind(m, first, last, acc, t, v0, n, 3);
    else
        apply_lanes_kind(m, first, last, acc, t, v0, n, 2);
}

/* All positions for n <= LANES inputs; acc[i * step]: sums of input i. side: room for
 * step * LANES sums. */
static void run_lanes(const waste_expert *a, const waste_vq_matrix *m, int64_t first, int64_t last,
                      const float *const *x, size_t n, float *acc, size_t step, float *side)
{
    const size_t rows = (size_t)(last - first) * ROWS;
    const int64_t nv = m->cols / 8;
    float *table = (float *)(void *)((char *)a->work + WASTE_VQ_TABLE_BYTES + WASTE_VQ_PLANE_BYTES);
    int64_t v, p;
    size_t i, r;

    memset(side, 0, rows * LANES * sizeof *side);
    for (v = 0; v < nv; v += PASS) {
        p = nv - v < PASS ? nv - v : PASS;
        build_lanes(table, &a->geometry, m->packed, x, n, v, p);
        apply_lanes(&a->geometry, m, first, last, side, table, v, p);
    }
    for (i = 0; i < n; i++)
        for (r = 0; r < rows; r++) acc[i * step + r] = side[r * LANES + i];
}

/* ---- one matrix ---------------------------------------------------------------------- */

/* All positions for n inputs; acc[i * step]: (last - first) * 64 sums of input i. */
static void run_matrix(const waste_expert *a, const waste_vq_matrix *m, int64_t first, int64_t last,
                       const float *const *x, size_t n, float *acc, size_t step)
{
    const int64_t nv = m->cols / 8;
    float *table = a->work, *side = waste_vq_sums(a) + WASTE_VQ_ROWS * step;
    int64_t v, p;
    size_t i, k;

    for (; n >= LEAST; n -= k, x += k, acc += k * step) {
        k = n < LANES ? n : LANES;
        run_lanes(a, m, first, last, x, k, acc, step, side);
    }
    for (i = 0; i < n; i++) memset(acc + i * step, 0, (size_t)(last - first) * ROWS * sizeof *acc);
    for (v = 0; v < nv; v += WASTE_VQ_BLOCK) {
        p = nv - v < WASTE_VQ_BLOCK ? nv - v : WASTE_VQ_BLOCK;
        for (i = 0; i < n; i++) {
            build(table, &a->geometry, m->packed, x[i] + 8 * v, p);
            apply(&a->geometry, m, first, last, acc + i * step, table, v, p);
        }
    }
}

#include "kernels/kernels_vec_expert.h"

void waste_kernels_avx2_vq(waste_kernels *k)
{
    k->expert_up = expert_up;
    k->expert_down = expert_down;
    k->books_bytes = books_bytes;
    k->pack_books = pack_books;
    k->tables_bytes = tables_bytes;
}

#endif
