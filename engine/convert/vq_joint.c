/* Joint training of codebooks: see vq_joint.h. Owns the normal equations, for all M
 * entries of all stages: A[i][j] counts the vectors that use entries i and j, and
 * row i of the right side sums the vectors that use i. A is singular by itself (what
 * one stage gains another can lose) and has empty rows, so a little of the old books
 * is added: (A + l I) C = B + l C_old. */
#include "convert/vq_joint.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "convert/convert.h"

#define DIM        WASTE_VQ_DIM
#define PART       1024       /* vectors of one part of a job */
#define PANEL      8          /* rows eliminated at a time */
#define RIDGE      1e-4       /* of the mean of A's diagonal */
#define KEEP_FIRST 0.3        /* of the old equations, at the first pass */
#define KEEP_LAST  0.95       /* from 80 % of the passes on */
#define FIXED      1048576.0f /* 2^20: sums of vectors are integers */

/* What one worker has counted. */
typedef struct tally {
    uint32_t *pair[WASTE_VQ_BEAM_STAGES][WASTE_VQ_BEAM_STAGES]; /* s < t: [K][K] */
    uint32_t *count;                                            /* [M] */
    int64_t *sum;                                               /* [M][DIM] */
    void *block;
    size_t bytes;
} tally;

typedef struct training {
    waste_vq_books *books;
    waste_vq_team *team;
    const float *x;
    uint32_t *drawn; /* numbers of vectors */
    size_t batch;
    int beam, K, M;
    tally *tally;           /* one per worker */
    double *a;              /* [M][M], from the diagonal on */
    double *solved, *b, *y; /* a's factor; right side; solution: [M][DIM] */
} training;

/* ---- counting ------------------------------------------------------------------ */

static int tally_init(tally *t, int stages, int K)
{
    const size_t m = (size_t)(stages * K), pair = (size_t)K * (size_t)K * sizeof(uint32_t);
    char *at;
    int i, j;

    t->bytes = m * DIM * sizeof(int64_t) + (size_t)(stages * (stages - 1) / 2) * pair +
               m * sizeof(uint32_t);
    t->block = waste_mem_zero(t->bytes);
    if (!t->block) return -1;
    t->sum = t->block;
    at = (char *)(t->sum + m * DIM);
    for (i = 0; i < stages; i++)
        for (j = i + 1; j < stages; j++, at += pair) t->pair[i][j] = (uint32_t *)(void *)at;
    t->count = (uint32_t *)(void *)at;
    return 0;
}

static void count(tally *t, const uint8_t *index, const float *x, int stages, int K)
{
    int i, j, d;

    for (i = 0; i < stages; i++) {
        const size_t entry = (size_t)(i * K + index[i]);
        t->count[entry]++;
        for (d = 0; d < DIM; d++) t->sum[entry * DIM + (size_t)d] += (int64_t)(x[d] * FIXED);
        for (j = i + 1; j < stages; j++) t->pair[i][j][index[i] * K + index[j]]++;
    }
}

static void assign(void *ctx, int worker, size_t i)
{
    training *t = ctx;
    const int stages = t->books->stages;
    float x[PART * DIM] = {0};
    uint8_t index[PART * WASTE_VQ_BEAM_STAGES];
    size_t first = i * PART, n = t->batch - first < PART ? t->batch - first : PART, v;

    for (v = 0; v < n; v++)
        memcpy(x + v * DIM, t->x + (size_t)t->drawn[first + v] * DIM, DIM * sizeof *x);
    waste_vq_coder_search(t->team->coder[worker], x, DIM, n, t->beam, index);
    for (v = 0; v < n; v++)
        count(t->tally + worker, index + v * (size_t)stages, x + v * DIM, stages, t->K);
}

/* ---- the equations --------------------------------------------------------------- */

static void add_tally(training *t, tally *c)
{
    const int stages = t->books->stages, K = t->K;
    const size_t M = (size_t)t->M;
    size_t e;
    int i, j, k, l;

    for (e = 0; e < M; e++) t->a[e * M + e] += c->count[e];
    for (e = 0; e < M * DIM; e++) t->b[e] += (double)c->sum[e] / (double)FIXED;
    for (i = 0; i < stages; i++)
        for (j = i + 1; j < stages; j++)
            for (k = 0; k < K; k++) {
                double *to = t->a + (size_t)(i * K + k) * M + j * K;
                for (l = 0; l < K; l++) to[l] += c->pair[i][j][k * K + l];
            }
    memset(c->block, 0, c->bytes);
}

/* The integers of all workers are added before they become doubles. */
static void gather(training *t, double keep)
{
    const size_t M = (size_t)t->M;
    tally *all = t->tally;
    size_t e;
    int w;

    for (w = 1; w < t->team->size; w++) {
        tally *c = t->tally + w;
        uint32_t *to = (uint32_t *)(void *)(all->sum + M * DIM);
        const uint32_t *from = (const uint32_t *)(void *)(c->sum + M * DIM);
        for (e = 0; e < M * DIM; e++) all->sum[e] += c->sum[e];
        for (e = 0; e < (c->bytes - M * DIM * sizeof *c->sum) / sizeof *to; e++) to[e] += from[e];
        memset(c->block, 0, c->bytes);
    }
    for (e = 0; e < M * M; e++) t->a[e] *= keep;
    for (e = 0; e < M * DIM; e++) t->b[e] *= keep;
    add_tally(t, all);
}

/* row[j] -= f[0] up[0][j] + .. for j >= from, term by term. */
static void eliminate(double *restrict row, const double *restrict up, size_t M, const double *f,
                      size_t from)
{
    const double *u0 = up, *u1 = u0 + M, *u2 = u1 + M, *u3 = u2 + M, *u4 = u3 + M, *u5 = u4 + M,
                 *u6 = u5 + M, *u7 = u6 + M;
    size_t j;

    for (j = from; j < M; j++) {
        double v = row[j];
        v -= f[0] * u0[j];
        v -= f[1] * u1[j];
        v -= f[2] * u2[j];
        v -= f[3] * u3[j];
        v -= f[4] * u4[j];
        v -= f[5] * u5[j];
        v -= f[6] * u6[j];
        v -= f[7] * u7[j];
        row[j] = v;
    }
}

/* A = U'U (Cholesky), U in place of A's upper half. M is a multiple of PANEL, and
 * A is positive definite. */
static waste_status factor(double *a, size_t M, const waste_cancel *cancel, waste_error *err)
{
    waste_status st = WASTE_OK;
    double f[PANEL], d;
    size_t k, p, i, j;
    int some;

    for (p = 0; !st && p < M; p += PANEL) {
        for (k = p; k < p + PANEL; k++) {
            for (i = p; i < k; i++)
                for (j = k, d = a[i * M + k]; j < M; j++) a[k * M + j] -= d * a[i * M + j];
            d = 1 / sqrt(a[k * M + k]);
            for (j = k; j < M; j++) a[k * M + j] *= d;
        }
        for (i = p + PANEL; i < M; i++) {
            for (k = 0, some = 0; k < PANEL; k++) some |= (f[k] = a[(p + k) * M + i]) != 0;
            if (some) eliminate(a + i * M, a + p * M, M, f, i); /* entries of a stage never meet */
        }
        if (p % 64 == 0) st = waste_convert_asked(cancel, err);
    }
    return st;
}

/* U'z = y, then U y = z. */
static void substitute(const double *u, double *y, size_t M)
{
    size_t i, j;
    int d;

    for (i = 0; i < M; i++) {
        for (d = 0; d < DIM; d++) y[i * DIM + (size_t)d] /= u[i * M + i];
        for (j = i + 1; j < M; j++)
            for (d = 0; d < DIM; d++)
                y[j * DIM + (size_t)d] -= u[i * M + j] * y[i * DIM + (size_t)d];
    }
    for (i = M; i-- > 0;) {
        for (j = i + 1; j < M; j++)
            for (d = 0; d < DIM; d++)
                y[i * DIM + (size_t)d] -= u[i * M + j] * y[j * DIM + (size_t)d];
        for (d = 0; d < DIM; d++) y[i * DIM + (size_t)d] /= u[i * M + i];
    }
}

static waste_status solve(training *t, const waste_cancel *cancel, waste_error *err)
{
    const size_t M = (size_t)t->M, K = (size_t)t->K;
    double ridge = 0;
    waste_status st;
    size_t e;
    int d;

    for (e = 0; e < M; e++) ridge += t->a[e * M + e];
    ridge *= RIDGE / (double)M;
    memcpy(t->solved, t->a, M * M * sizeof *t->a);
    for (e = 0; e < M; e++) {
        t->solved[e * M + e] += ridge;
        for (d = 0; d < DIM; d++)
            t->y[e * DIM + (size_t)d] =
                t->b[e * DIM + (size_t)d] + ridge * (double)t->books->book[e / K].part[d][e % K];
    }
    st = factor(t->solved, M, cancel, err);
    if (st) return st;
    substitute(t->solved, t->y, M);
    for (e = 0; e < M; e++)
        for (d = 0; d < DIM; d++)
            t->books->book[e / K].part[d][e % K] = (float)t->y[e * DIM + (size_t)d];
    return WASTE_OK;
}

/* ---- training ---------------------------------------------------------------------- */

static void centre(waste_vq_books *b)
{
    int s, d, k;

    for (s = 1; s < b->stages; s++)
        for (d = 0; d < DIM; d++) {
            double mean = 0;
            for (k = 0; k < b->entries; k++) mean += (double)b->book[s].part[d][k];
            mean /= b->entries;
            for (k = 0; k < b->entries; k++) {
                b->book[s].part[d][k] -= (float)mean;
                b->book[0].part[d][k] += (float)mean;
            }
        }
    for (s = 0; s < b->stages; s++) waste_vq_book_round(b->book + s, b->entries);
}

static waste_status one_pass(training *t, size_t n, double keep, waste_vq_random *r,
                             const waste_cancel *cancel, waste_error *err)
{
    waste_status st;
    size_t v;

    for (v = 0; v < t->batch; v++) t->drawn[v] = (uint32_t)waste_vq_below(r, n);
    st = waste_vq_team_set(t->team, t->books, cancel, err);
    if (!st)
        st = waste_vq_pool_run(t->team->pool, assign, t, (t->batch + PART - 1) / PART, cancel, err);
    if (st) return st;
    gather(t, keep);
    return solve(t, cancel, err);
}

static int take_memory(training *t)
{
    const size_t M = (size_t)t->M;
    int w;

    t->drawn = waste_mem_array(t->batch, sizeof *t->drawn);
    t->a = waste_mem_array(M * M, sizeof *t->a);
    t->solved = waste_mem_array(M * M, sizeof *t->solved);
    t->b = waste_mem_array(M * DIM, sizeof *t->b);
    t->y = waste_mem_array(M * DIM, sizeof *t->y);
    t->tally = waste_mem_array((size_t)t->team->size, sizeof *t->tally);
    if (!t->drawn || !t->a || !t->solved || !t->b || !t->y || !t->tally) return -1;
    for (w = 0; w < t->team->size; w++)
        if (tally_init(t->tally + w, t->books->stages, t->K)) return -1;
    return 0;
}

static void release(training *t)
{
    int w;

    for (w = 0; t->tally && w < t->team->size; w++) waste_mem_free(t->tally[w].block);
    waste_mem_free(t->tally);
    waste_mem_free(t->drawn);
    waste_mem_free(t->a);
    waste_mem_free(t->solved);
    waste_mem_free(t->b);
    waste_mem_free(t->y);
}

waste_status waste_vq_joint_train(waste_vq_books *b, const float *x, size_t n,
                                  const waste_vq_schedule *how, waste_vq_random *r,
                                  waste_vq_team *team, const waste_cancel *cancel, waste_error *err)
{
    training t = {.books = b,
                  .team = team,
                  .x = x,
                  .batch = how->batch < n ? how->batch : n,
                  .beam = how->beam,
                  .K = b->entries,
                  .M = b->entries * b->stages};
    waste_status st = WASTE_OK;
    int p;

    if (n > UINT32_MAX || take_memory(&t))
        st = waste_fail(err, WASTE_NOMEM, "out of memory training codebooks");
    for (p = 0; !st && p < how->passes; p++) {
        double ramp = p / (0.8 * how->passes);
        double keep = KEEP_FIRST + (KEEP_LAST - KEEP_FIRST) * (ramp < 1 ? ramp : 1);
        st = one_pass(&t, n, keep, r, cancel, err);
    }
    if (!st) centre(b);
    release(&t);
    return st;
}

/* ---- measuring ---------------------------------------------------------------------- */

typedef struct measure {
    const waste_vq_books *books;
    waste_vq_team *team;
    const float *x;
    size_t n;
    int beam;
    double *wrong, *all; /* one per part */
} measure;

static void measure_part(void *ctx, int worker, size_t i)
{
    measure *m = ctx;
    uint8_t index[PART * WASTE_VQ_BEAM_STAGES];
    size_t first = i * PART, n = m->n - first < PART ? m->n - first : PART, v;
    const float *x = m->x + first * DIM;
    int d;

    waste_vq_coder_search(m->team->coder[worker], x, DIM, n, m->beam, index);
    for (v = 0; v < n; v++, x += DIM) {
        float y[DIM];
        waste_vq_decode(m->books, index + v * (size_t)m->books->stages, y);
        for (d = 0; d < DIM; d++) {
            m->wrong[i] += ((double)x[d] - (double)y[d]) * ((double)x[d] - (double)y[d]);
            m->all[i] += (double)x[d] * (double)x[d];
        }
    }
}

waste_status waste_vq_joint_error(const waste_vq_books *b, const float *x, size_t n, int beam,
                                  waste_vq_team *team, double *out, const waste_cancel *cancel,
                                  waste_error *err)
{
    const size_t parts = (n + PART - 1) / PART;
    measure m = {b, team, x, n, beam, NULL, NULL};
    waste_status st = waste_vq_team_set(team, b, cancel, err);
    double wrong = 0, all = 0;
    size_t i;

    if (st) return st;
    m.wrong = waste_mem_array(2 * parts, sizeof *m.wrong);
    if (!m.wrong) return waste_fail(err, WASTE_NOMEM, "out of memory measuring codebooks");
    m.all = m.wrong + parts;
    st = waste_vq_pool_run(team->pool, measure_part, &m, parts, cancel, err);
    for (i = 0; i < parts; i++) {
        wrong += m.wrong[i];
        all += m.all[i];
    }
    waste_mem_free(m.wrong);
    *out = all > 0 ? sqrt(wrong / all) : 0;
    return st;
}
