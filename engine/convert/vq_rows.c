/* Encoding of rows: see vq_rows.h. Owns the indices of one job before they are packed
 * and the loss of each row, which is summed in the order of the rows.
 *
 * Without weights a part of the job is a range of rows. With weights every column of
 * vectors has books of its own, so a part is such a column, for all rows at once, to
 * make few tables; rows are scaled before and settled after. */
#include "convert/vq_rows.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/quant.h"
#include "store/record.h"

#define DIM    WASTE_VQ_DIM
#define PART   ((int64_t)1 << 15) /* weights of one part: a few ms */
#define COLUMN 256                /* vectors of a column at a time */

struct waste_vq_rows {
    waste_vq_team *team;
    waste_vq_job job;
    int64_t part_rows;
    uint8_t *index;      /* [rows][cols / 8][stages] */
    double *wrong, *all; /* [rows] */
};

waste_status waste_vq_rows_open(waste_vq_rows **out, const waste_quant *q, waste_vq_team *team,
                                int64_t rows, int64_t weights, waste_error *err)
{
    waste_vq_rows *e = waste_mem_zero(sizeof *e);

    *out = NULL;
    if (e) {
        e->team = team;
        e->index = waste_mem_array((size_t)(weights / DIM), (size_t)q->stages);
        e->wrong = waste_mem_array(2 * (size_t)rows, sizeof *e->wrong);
        e->all = e->wrong + rows;
    }
    if (!e || !e->index || !e->wrong) {
        waste_vq_rows_close(e);
        return waste_fail(err, WASTE_NOMEM, "out of memory encoding rows");
    }
    *out = e;
    return WASTE_OK;
}

void waste_vq_rows_close(waste_vq_rows *e)
{
    if (!e) return;
    waste_mem_free(e->index);
    waste_mem_free(e->wrong);
    waste_mem_free(e);
}

/* ---- one row --------------------------------------------------------------------- */

static int64_t vectors(const waste_vq_job *j)
{
    return j->cols / DIM;
}

static uint8_t *index_of(const waste_vq_rows *e, int64_t r)
{
    return e->index + r * vectors(&e->job) * e->job.quant->stages;
}

static int usable(uint16_t scale)
{
    return scale != 0 && (scale & 0x7C00) != 0x7C00;
}

static double energy(const float *x, int64_t n)
{
    double sum = 0;
    int64_t i;

    for (i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Finds the scale and divides by it. */
static void scale_row(waste_vq_rows *e, int64_t r)
{
    const waste_vq_job *j = &e->job;
    float *row = j->w + r * j->cols;

    j->scale[r] = j->beam ? waste_vq_row_rms(row, j->cols) : waste_vq_row_scale(row, j->cols);
    /* the refit has this sum anyway */
    if (!j->beam || !usable(j->scale[r])) e->all[r] = energy(row, j->cols);
    waste_vq_normalise(row, j->cols, usable(j->scale[r]) ? j->scale[r] : 0, row);
}

/* Vectors of one row stand at equal distances. */
static void pack_row(const waste_vq_rows *e, int64_t r)
{
    const waste_vq_job *j = &e->job;
    const uint8_t *index = index_of(e, r);
    int64_t n = vectors(j), v;
    unsigned char *to = j->indices + waste_record_index_pos(j->quant, n, j->first + r, 0);
    size_t step = (size_t)(waste_record_index_pos(j->quant, n, 0, 1) -
                           waste_record_index_pos(j->quant, n, 0, 0));

    for (v = 0; v < n; v++, index += j->quant->stages, to += step)
        waste_vq_pack(j->quant, index, to);
}

/* Sums over a row, one per place in a vector so that they run side by side, always in
 * the same order. */
typedef struct sums {
    double xx[DIM], xy[DIM], yy[DIM]; /* all columns alike */
    double wxy[DIM], wyy[DIM];        /* weighted */
} sums;

static double total(const double *s)
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static void sum_row(const waste_vq_rows *e, int64_t r, sums *s)
{
    const waste_vq_job *j = &e->job;
    const uint8_t *index = index_of(e, r);
    const float *x = j->w + r * j->cols, *w = j->weights ? j->weights->scale : NULL;
    int64_t v;
    int d;

    memset(s, 0, sizeof *s);
    for (v = 0; v < vectors(j); v++, x += DIM, index += j->quant->stages) {
        float y[DIM];
        waste_vq_decode(j->books, index, y);
        for (d = 0; d < DIM; d++) {
            s->xx[d] += (double)x[d] * (double)x[d];
            s->xy[d] += (double)x[d] * (double)y[d];
            s->yy[d] += (double)y[d] * (double)y[d];
        }
        for (d = 0; w && d < DIM; d++) {
            s->wxy[d] += (double)w[v * DIM + d] * ((double)x[d] * (double)y[d]);
            s->wyy[d] += (double)w[v * DIM + d] * ((double)y[d] * (double)y[d]);
        }
    }
}

/* The scale that fits best, and what is lost with it. x is w over the old scale. */
static void refit_row(waste_vq_rows *e, int64_t r)
{
    const waste_vq_job *j = &e->job;
    const double old = (double)waste_f16_to_f32(j->scale[r]);
    double xy, yy, f, wrong;
    uint16_t fitted;
    sums s;

    sum_row(e, r, &s);
    xy = j->weights ? total(s.wxy) : total(s.xy);
    yy = j->weights ? total(s.wyy) : total(s.yy);
    if (xy > 0 && yy > 0) {
        fitted = waste_f32_to_f16((float)(old * (xy / yy)));
        if (usable(fitted)) j->scale[r] = fitted;
    }
    f = (double)waste_f16_to_f32(j->scale[r]) / old;
    wrong = total(s.xx) - 2 * f * total(s.xy) + f * f * total(s.yy);
    e->wrong[r] = wrong > 0 ? old * old * wrong : 0;
    e->all[r] = old * old * total(s.xx);
}

static void settle_row(waste_vq_rows *e, int64_t r)
{
    const waste_vq_job *j = &e->job;
    double scale = (double)waste_f16_to_f32(j->scale[r]);

    if (!usable(j->scale[r])) {
        memset(index_of(e, r), 0, (size_t)(vectors(j) * j->quant->stages));
        e->wrong[r] = e->all[r];
    } else if (j->beam) {
        refit_row(e, r);
    } else { /* what is left of a vector times the scale is W - W' */
        e->wrong[r] = energy(j->w + r * j->cols, j->cols) * scale * scale;
    }
    pack_row(e, r);
}

/* ---- parts of a job ---------------------------------------------------------------- */

static int64_t end_of(const waste_vq_rows *e, size_t i)
{
    int64_t end = ((int64_t)i + 1) * e->part_rows;

    return end < e->job.rows ? end : e->job.rows;
}

static void do_rows(void *ctx, int worker, size_t i)
{
    waste_vq_rows *e = ctx;
    const waste_vq_job *j = &e->job;
    int64_t r;

    for (r = (int64_t)i * e->part_rows; r < end_of(e, i); r++) {
        float *x = j->w + r * j->cols;
        scale_row(e, r);
        if (usable(j->scale[r]) && j->beam)
            waste_vq_coder_search(e->team->coder[worker], x, DIM, (size_t)vectors(j), j->beam,
                                  index_of(e, r));
        else if (usable(j->scale[r]))
            waste_vq_encode(j->books, x, (size_t)vectors(j), index_of(e, r));
        settle_row(e, r);
    }
}

static void do_scales(void *ctx, int worker, size_t i)
{
    waste_vq_rows *e = ctx;
    int64_t r;

    (void)worker;
    for (r = (int64_t)i * e->part_rows; r < end_of(e, i); r++) scale_row(e, r);
}

static void do_column(void *ctx, int worker, size_t i)
{
    waste_vq_rows *e = ctx;
    const waste_vq_job *j = &e->job;
    const size_t stages = (size_t)j->quant->stages;
    waste_vq_coder *c = e->team->coder[worker];
    uint8_t index[COLUMN * WASTE_VQ_BEAM_STAGES];
    int64_t r, k, n;

    waste_vq_coder_set(c, j->books, j->weights->g + i * DIM);
    for (r = 0; r < j->rows; r += n) {
        n = j->rows - r < COLUMN ? j->rows - r : COLUMN;
        waste_vq_coder_search(c, j->w + r * j->cols + (int64_t)i * DIM, (size_t)j->cols, (size_t)n,
                              j->beam, index);
        for (k = 0; k < n; k++)
            memcpy(index_of(e, r + k) + i * stages, index + (size_t)k * stages, stages);
    }
}

static void do_settling(void *ctx, int worker, size_t i)
{
    waste_vq_rows *e = ctx;
    int64_t r;

    (void)worker;
    for (r = (int64_t)i * e->part_rows; r < end_of(e, i); r++) settle_row(e, r);
}

static size_t row_parts(const waste_vq_rows *e)
{
    return (size_t)((e->job.rows + e->part_rows - 1) / e->part_rows);
}

waste_status waste_vq_rows_start(waste_vq_rows *e, const waste_vq_job *job,
                                 const waste_cancel *cancel, waste_error *err)
{
    waste_vq_pool *pool = e->team->pool;
    waste_status st;

    e->job = *job;
    e->part_rows = PART / job->cols + 1;
    if (job->weights) {
        st = waste_vq_pool_run(pool, do_scales, e, row_parts(e), cancel, err);
        if (!st) waste_vq_pool_start(pool, do_column, e, (size_t)vectors(job));
        return st;
    }
    st = job->beam ? waste_vq_team_set(e->team, job->books, cancel, err) : WASTE_OK;
    if (!st) waste_vq_pool_start(pool, do_rows, e, row_parts(e));
    return st;
}

waste_status waste_vq_rows_finish(waste_vq_rows *e, waste_convert_loss *loss,
                                  const waste_cancel *cancel, waste_error *err)
{
    waste_status st = waste_vq_pool_finish(e->team->pool, cancel, err);
    int64_t r;

    if (!st && e->job.weights)
        st = waste_vq_pool_run(e->team->pool, do_settling, e, row_parts(e), cancel, err);
    for (r = 0; !st && r < e->job.rows; r++) {
        loss->wrong += e->wrong[r];
        loss->all += e->all[r];
    }
    return st;
}
