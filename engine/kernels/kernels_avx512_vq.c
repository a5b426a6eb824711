/* Experts on AVX-512, the slots: see kernels_avx512_vq.h for the arithmetic
 * and kernels.h for the slots. No state, any thread. */
#include "kernels/kernels_avx512_vq.h"

#if WASTE_HAVE_AVX512BW

#include <string.h>

#define ROWS WASTE_VQ_INDEX_ROWS

/* Scratch of a part: a table block, two de-interleaved chunks, what many inputs need, the
 * scales of a group of inputs, and their sums for up to two matrices. */
typedef struct work {
    unsigned char *table, *planes, *many;
    waste_vq_scale scale[WASTE_VQ_MANY];
    float *acc;
} work;

static void work_of(work *w, const waste_expert *a)
{
    const int64_t cols = a->gate.cols > a->down.cols ? a->gate.cols : a->down.cols;
    const size_t blocks = (size_t)WASTE_VQ_BLOCKS(cols);
    float *scales;
    size_t i;

    w->table = a->work;
    w->planes = w->table + WASTE_VQ_TABLE_BYTES;
    w->many = w->planes + WASTE_VQ_PLANE_BYTES;
    scales = (float *)(void *)(w->many + WASTE_VQ_MANY_BYTES);
    for (i = 0; i < WASTE_VQ_MANY; i++) {
        w->scale[i].x = scales + 2 * i * blocks;
        w->scale[i].unit = w->scale[i].x + blocks;
    }
    w->acc = scales + 2 * WASTE_VQ_MANY * blocks;
}

static waste_vq_span span_of(const waste_expert *a, const waste_vq_matrix *m, const work *w,
                             int64_t lo, int64_t hi)
{
    return (waste_vq_span){m, lo / ROWS, (hi + ROWS - 1) / ROWS, a->planar, w->planes};
}

static size_t sums_of(const waste_vq_span *r)
{
    return (size_t)(r->last - r->first) * ROWS;
}

/* The scales of rows first..first+15 under a mask. */
static inline __m512 scales16(const waste_vq_matrix *m, int64_t first, __mmask16 rows)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(rows, m->scale + 2 * first));
}

/* ---- tables that experts share ---------------------------------------------------------- */

/* Prepared tables: those of gate, their units, then the same of up. */
static size_t prepared_bytes(const waste_vq_geometry *g, int64_t cols)
{
    return ((size_t)(cols / 8) * waste_vq_position_bytes(g) +
            (size_t)WASTE_VQ_BLOCKS(cols) * sizeof(float) + 63) /
           64 * 64;
}

static float *prepared_units(const unsigned char *tables, const waste_vq_geometry *g, int64_t cols)
{
    return (float *)(void *)(uintptr_t)(tables + (size_t)(cols / 8) * waste_vq_position_bytes(g));
}

static size_t tables_bytes(const waste_vq_geometry *g, int64_t cols)
{
    return waste_vq_kind(g) ? 2 * prepared_bytes(g, cols) : 0;
}

static void expert_tables(const waste_expert *a, void *to, int64_t lo, int64_t hi)
{
    const waste_vq_geometry *g = &a->geometry;
    const size_t position = waste_vq_position_bytes(g);
    const int64_t nv = a->gate.cols / 8, vb = WASTE_VQ_BLOCK, per = WASTE_TABLE_COLS / 8;
    const float *x = a->x + (int64_t)a->x_row[0] * a->gate.cols;
    const int64_t end = hi * per < nv ? hi * per : nv;
    work w;
    int64_t v, n;
    int i;

    work_of(&w, a);
    for (i = 0; i < 2; i++) {
        const waste_vq_books *b = i ? a->up.packed : a->gate.packed;
        unsigned char *t = (unsigned char *)to + (size_t)i * prepared_bytes(g, a->gate.cols);
        waste_vq_scale s = {w.scale[0].x, prepared_units(t, g, a->gate.cols) + lo * per / vb};

        waste_vq_scales(&s, b, x + 8 * lo * per, end - lo * per);
        for (v = lo * per; v < end; v += vb) {
            n = nv - v < vb ? nv - v : vb;
            waste_vq_build(t + (size_t)v * position, g, b, x + 8 * v, s.x[(v - lo * per) / vb], n);
        }
    }
}

/* ---- one input at a time ------------------------------------------------------------------ */

/* All positions of one matrix for `n` inputs, x[i] being input i. prepared: the tables of
 * the only one, or NULL. */
static void run_few(const waste_expert *a, const waste_vq_span *r, const float *const *x, size_t n,
                    const unsigned char *prepared, work *w, float *acc, size_t acc_step)
{
    const waste_vq_geometry *g = &a->geometry;
    const size_t position = waste_vq_position_bytes(g);
    const int64_t nv = r->m->cols / 8, vb = WASTE_VQ_BLOCK;
    int64_t v, p;
    size_t i;

    for (i = 0; i < n; i++) {
        memset(acc + i * acc_step, 0, sums_of(r) * sizeof *acc);
        if (!prepared) waste_vq_scales(&w->scale[i], r->m->packed, x[i], nv);
    }
    for (v = 0; v < nv; v += vb) {
        p = nv - v < vb ? nv - v : vb;
        for (i = 0; i < n; i++) {
            const unsigned char *t = prepared ? prepared + (size_t)v * position : w->table;
            const float *unit =
                prepared ? prepared_units(prepared, g, r->m->cols) : w->scale[i].unit;

            if (!prepared)
                waste_vq_build(w->table, g, r->m->packed, x[i] + 8 * v, w->scale[i].x[v / vb], p);
            waste_vq_apply(g, r, acc + i * acc_step, t, unit[v / vb], v, p, i == 0);
        }
    }
}

static void act_rows(const waste_expert *a, const float *gate, const float *up, int64_t block,
                     float *h, int64_t lo, int64_t hi)
{
    __m512 g[4], u[4];
    int i;

    waste_vq_rows(gate, g);
    waste_vq_rows(up, u);
    for (i = 0; i < 4; i++) {
        const int64_t first = block * ROWS + 16 * i;
        const __mmask16 m = waste_inside16(first, lo, hi);

        if (!m) continue;
        g[i] = _mm512_mul_ps(g[i], scales16(&a->gate, first, m));
        u[i] = _mm512_mul_ps(u[i], scales16(&a->up, first, m));
        _mm512_mask_storeu_ps(h + first, m, vec_act(&a->act, g[i], u[i]));
    }
}

/* Inputs at..at+n. */
static void up_few(const waste_expert *a, work *w, const float *const *x, size_t at, size_t n,
                   int64_t lo, int64_t hi)
{
    const unsigned char *ready = a->n == 1 ? a->tables : NULL;
    waste_vq_span r = span_of(a, &a->gate, w, lo, hi);
    const size_t step = sums_of(&r);
    int64_t b;
    size_t i;

    run_few(a, &r, x, n, ready, w, w->acc, 2 * step);
    r.m = &a->up;
    if (ready) ready += prepared_bytes(&a->geometry, a->gate.cols);
    run_few(a, &r, x, n, ready, w, w->acc + step, 2 * step);
    for (i = 0; i < n; i++)
        for (b = r.first; b < r.last; b++) {
            const float *acc = w->acc + 2 * i * step + (size_t)(b - r.first) * ROWS;

            act_rows(a, acc, acc + step, b, a->h + (int64_t)(at + i) * a->gate.rows, lo, hi);
        }
}

static void down_rows(const waste_expert *a, const float *acc, int64_t block, float *y, int64_t lo,
                      int64_t hi)
{
    __m512 s[4];
    int i;

    waste_vq_rows(acc, s);
    for (i = 0; i < 4; i++) {
        const int64_t first = block * ROWS + 16 * i;
        const __mmask16 m = waste_inside16(first, lo, hi);

        if (m)
            _mm512_mask_storeu_ps(y + first, m, _mm512_mul_ps(s[i], scales16(&a->down, first, m)));
    }
}

static void down_few(const waste_expert *a, work *w, const float *const *x, size_t at, size_t n,
                     int64_t lo, int64_t hi)
{
    const waste_vq_span r = span_of(a, &a->down, w, lo, hi);
    const size_t step = sums_of(&r);
    int64_t b;
    size_t i;

    run_few(a, &r, x, n, NULL, w, w->acc, step);
    for (i = 0; i < n; i++)
        for (b = r.first; b < r.last; b++)
            down_rows(a, w->acc + i * step + (size_t)(b - r.first) * ROWS, b,
                      a->y + (int64_t)a->y_row[at + i] * a->down.rows, lo, hi);
}

/* ---- many inputs together --------------------------------------------------------------------- */

#define LANES WASTE_VQ_MANY

/* Where input i of a group puts its rows: to[i]. */
typedef struct group {
    size_t n;
    float *to[WASTE_VQ_MANY];
} group;

static void run_many(const waste_expert *a, const waste_vq_span *r, const float *const *x, size_t n,
                     work *w, float *acc)
{
    size_t i;

    for (i = 0; i < n; i++) waste_vq_scales(&w->scale[i], r->m->packed, x[i], r->m->cols / 8);
    waste_vq_run_many(&a->geometry, r, x, w->scale, n, acc, w->many);
}

/* 16 rows from row `first` on, of which those under the mask count: their sums times
 * their scales, half h of the inputs. */
static inline void scaled(__m512 *to, const float *acc, const waste_vq_matrix *m, int64_t first,
                          __mmask16 rows, size_t h)
{
    float scale[16];
    size_t i;

    _mm512_storeu_ps(scale, scales16(m, first, rows));
    for (i = 0; i < 16; i++)
        to[i] = _mm512_mul_ps(_mm512_loadu_ps(acc + i * LANES + 16 * h), _mm512_set1_ps(scale[i]));
}

/* From a row to a vector to an input to a vector, and out. */
static inline void put16(const group *g, __m512 *v, int64_t first, __mmask16 rows, size_t h)
{
    size_t i;

    waste_transpose16(v);
    for (i = 0; i < 16 && 16 * h + i < g->n; i++)
        _mm512_mask_storeu_ps(g->to[16 * h + i] + first, rows, v[i]);
}

static void up_many(const waste_expert *a, work *w, const float *const *x, size_t at, size_t n,
                    int64_t lo, int64_t hi)
{
    waste_vq_span r = span_of(a, &a->gate, w, lo, hi);
    group g = {n, {0}};
    float *up = w->acc + sums_of(&r) * LANES;
    int64_t first;
    size_t h, i;

    run_many(a, &r, x, n, w, w->acc);
    r.m = &a->up;
    run_many(a, &r, x, n, w, up);
    for (i = 0; i < n; i++) g.to[i] = a->h + (int64_t)(at + i) * a->gate.rows;
    for (first = r.first * ROWS; first < r.last * ROWS; first += 16) {
        const size_t from = (size_t)(first - r.first * ROWS) * LANES;
        const __mmask16 m = waste_inside16(first, lo, hi);

        for (h = 0; m && 16 * h < n; h++) {
            __m512 gate[16], v[16];

            scaled(gate, w->acc + from, &a->gate, first, m, h);
            scaled(v, up + from, &a->up, first, m, h);
            for (i = 0; i < 16; i++) v[i] = vec_act(&a->act, gate[i], v[i]);
            put16(&g, v, first, m, h);
        }
    }
}

static void down_many(const waste_expert *a, work *w, const float *const *x, size_t at, size_t n,
                      int64_t lo, int64_t hi)
{
    const waste_vq_span r = span_of(a, &a->down, w, lo, hi);
    group g = {n, {0}};
    int64_t first;
    size_t h, i;

    run_many(a, &r, x, n, w, w->acc);
    for (i = 0; i < n; i++) g.to[i] = a->y + (int64_t)a->y_row[at + i] * a->down.rows;
    for (first = r.first * ROWS; first < r.last * ROWS; first += 16) {
        const __mmask16 m = waste_inside16(first, lo, hi);

        for (h = 0; m && 16 * h < n; h++) {
            __m512 v[16];

            scaled(v, w->acc + (size_t)(first - r.first * ROWS) * LANES, &a->down, first, m, h);
            put16(&g, v, first, m, h);
        }
    }
}

/* ---- slots -------------------------------------------------------------------------------- */

/* How many of the next inputs go together; *many: in which form. */
static size_t next(size_t left, int *many)
{
    const size_t n = waste_vq_many(left);

    *many = n > 0;
    if (n) return n;
    return left < WASTE_VQ_ROWS ? left : WASTE_VQ_ROWS;
}

static void expert_up(const waste_expert *a, int64_t lo, int64_t hi)
{
    const float *x[WASTE_VQ_MANY];
    waste_kernels other;
    work w;
    size_t at, n, i;
    int many;

    if (waste_vq_form_of(a) != WASTE_VQ_PACKED) {
        waste_kernels_avx512_direct(&other);
        other.expert_up(a, lo, hi);
        return;
    }
    if (lo >= hi) return;
    work_of(&w, a);
    for (at = 0; at < a->n; at += n) {
        n = next(a->n - at, &many);
        for (i = 0; i < n; i++) x[i] = a->x + (int64_t)a->x_row[at + i] * a->gate.cols;
        (many ? up_many : up_few)(a, &w, x, at, n, lo, hi);
    }
}

static void expert_down(const waste_expert *a, int64_t lo, int64_t hi)
{
    const float *x[WASTE_VQ_MANY];
    waste_kernels other;
    work w;
    size_t at, n, i;
    int many;

    if (waste_vq_form_of(a) != WASTE_VQ_PACKED) {
        waste_kernels_avx512_direct(&other);
        other.expert_down(a, lo, hi);
        return;
    }
    if (lo >= hi) return;
    work_of(&w, a);
    for (at = 0; at < a->n; at += n) {
        n = next(a->n - at, &many);
        for (i = 0; i < n; i++) x[i] = a->h + (int64_t)(at + i) * a->down.cols;
        (many ? down_many : down_few)(a, &w, x, at, n, lo, hi);
    }
}

void waste_kernels_avx512_vq(waste_kernels *k)
{
    k->expert_up = expert_up;
    k->expert_down = expert_down;
    k->pack_record = waste_vq_pack_record;
    k->books_bytes = waste_vq_books_bytes;
    k->pack_books = waste_vq_pack_books;
    k->tables_bytes = tables_bytes;
    k->expert_tables = expert_tables;
}

#endif
