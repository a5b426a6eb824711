/* What a conversion would be, as rows, without writing anything: see conversion.h.
 * Goes through the same opening as the conversion itself, but what would end that
 * becomes a row. Sizes are exact; seconds come from timing a few pieces of the source
 * for about a second. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "convert/census.h"
#include "convert/conversion.h"
#include "convert/disk.h"
#include "convert/names.h"
#include "convert/vq_books.h"
#include "convert/vq_choice.h"
#include "convert/work.h"
#include "kernels/quant.h"

#define TIMED_WEIGHTS ((int64_t)1 << 18)
#define TIMED_VECTORS 20000 /* of a training sample of 300,000 */
#define SAMPLE        300000
#define READ_BACK     1e9 /* bytes/s, of the proof: a guess, disks differ */

static void report(waste_convert *c, const char *phase, const char *kind, uint64_t bytes,
                   double seconds, const char *note, waste_error *err)
{
    waste_convert_row *p = waste_mem_resize(c->plan, (c->n_plan + 1) * sizeof *p);

    if (!p) {
        waste_fail(err, WASTE_NOMEM, "out of memory planning");
        return;
    }
    c->plan = p;
    p += c->n_plan++;
    memset(p, 0, sizeof *p);
    p->phase = phase;
    p->kind = kind;
    p->layer = -1;
    p->bytes = bytes;
    p->seconds = seconds;
    p->error = NAN;
    p->eta = NAN;
    snprintf(p->note, sizeof p->note, "%.199s", note);
}

static void size(waste_convert *c, const char *kind, uint64_t bytes, waste_error *err,
                 const char *fmt, ...) WASTE_PRINTF(5, 6);
static void size(waste_convert *c, const char *kind, uint64_t bytes, waste_error *err,
                 const char *fmt, ...)
{
    char note[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(note, sizeof note, fmt, ap);
    va_end(ap);
    report(c, "plan", kind, bytes, 0, note, err);
}

/* What would end the conversion. Nonzero for what ends the planning too. */
static int problem(waste_convert *c, waste_status st, const waste_error *why, waste_error *err)
{
    if (!st) return 0;
    if (st == WASTE_NOMEM || st == WASTE_CANCELLED)
        waste_fail(err, st, "%s", why->text);
    else
        report(c, "problem", NULL, 0, 0, why->text, err);
    return 1;
}

/* ---- the checkpoint ----------------------------------------------------------------------- */

static int open_source(waste_convert *c, const char *dir, waste_error *err)
{
    const waste_source_options o = {c->writer ? waste_writer_work(c->writer) : NULL, 1};
    const char *first;
    char config[WASTE_PATH_MAX], note[300];
    waste_error why = {0};
    waste_source_shard d;
    size_t i, missing;
    uint64_t bytes = 0;
    waste_status st = waste_source_open_with(&c->source, dir, &o, &why);

    if (problem(c, st, &why, err)) return 0;
    for (i = 0; i < waste_source_shards(c->source); i++) {
        waste_source_shard_get(c->source, i, &d);
        bytes += d.gone ? 0 : d.bytes;
    }
    missing = waste_source_missing(c->source, &first);
    size(c, "source", bytes, err, "%zu shards, %zu tensors", waste_source_shards(c->source),
         waste_source_count(c->source));
    if (missing) {
        snprintf(note, sizeof note, "%zu of %zu shards cannot be read, the first: %.100s", missing,
                 waste_source_shards(c->source), first);
        report(c, "problem", "shards", 0, 0, note, err);
    }
    st = waste_path_join(config, sizeof config, dir, "config.json", &why);
    if (!st) st = waste_settings_read(&c->settings, waste_source_config(c->source), config, &why);
    return !problem(c, st, &why, err);
}

/* Missing matrices of experts, counted: one at a time would be a long way. */
static int count_experts(waste_convert *c, waste_error *err)
{
    const waste_settings *s = &c->settings;
    const waste_names style = waste_names_find(c->source, s);
    char name[256], first[256] = "", note[400];
    long missing = 0;
    int l, e, k;

    for (l = s->dense_layers; style != WASTE_NAMES_NONE && l < s->layers; l++)
        for (e = 0; e < s->experts; e++)
            for (k = 0; k < WASTE_EXPERTS_KINDS; k++) {
                waste_names_expert(name, sizeof name, style, s, l, e, k);
                if (!waste_source_has(c->source, name) && !missing++)
                    memcpy(first, name, sizeof first);
            }
    if (!missing) return 1;
    snprintf(note, sizeof note, "the checkpoint lacks %ld matrices of experts, the first is %s",
             missing, first);
    report(c, "problem", "experts", 0, 0, note, err);
    return 0;
}

static void warn_of_unknown(waste_convert *c, waste_error *err)
{
    char first[WASTE_TRUNK_NAME], note[300];
    size_t n, i, skipped = 0;
    const char *tensor = NULL;

    if (waste_census_unknown(&c->trunk, &c->settings, &n, first, err)) return;
    if (n) {
        snprintf(note, sizeof note,
                 "%zu tensors that no engine asks for are carried along, such as %s", n, first);
        report(c, "warning", "trunk", 0, 0, note, err);
    }
    for (i = 0; i < waste_source_count(c->source); i++) {
        const char *name = waste_source_at(c->source, i)->name;
        if (waste_names_reader(name, &c->settings) != WASTE_NAMES_NOBODY) continue;
        if (!skipped++) tensor = name;
    }
    if (!skipped) return;
    snprintf(note, sizeof note, "%zu tensors of no layer of the model are left out, such as %.100s",
             skipped, tensor);
    report(c, "warning", "source", 0, 0, note, err);
}

/* Everything but the source and the target; 0 when sizes cannot be told. */
static int open_rest(waste_convert *c, const char *source, const waste_convert_options *opt,
                     waste_error *err)
{
    waste_error why = {0};
    waste_status st = waste_convert_read_layers(c, opt, &why);
    int whole, i, ranks = 0;

    if (problem(c, st, &why, err)) return 0;
    st = waste_trunk_list(&c->trunk, c->source, &c->settings, c->matrix, &why);
    if (problem(c, st, &why, err)) return 0;
    memset(&why, 0, sizeof why);
    problem(c, waste_census_check(&c->trunk, &c->settings, &why), &why, err);
    warn_of_unknown(c, err);
    memset(&why, 0, sizeof why);
    st = waste_files_prepare(&c->files, source, &c->settings, &why);
    problem(c, st, &why, err);
    for (i = 0; i < c->files.n; i++) ranks |= strcmp(c->files.item[i].name, "tokenizer.model") == 0;
    if (!ranks)
        report(c, "warning", "files", 0, 0,
               "no tiktoken.model or tokenizer.model: the container takes token ids only", err);
    if (!waste_convert_moe_layers(&c->settings)) return 1;
    whole = count_experts(c, err);
    memset(&why, 0, sizeof why);
    if (whole) st = waste_vq_team_init(&c->team, &c->quant, c->threads, NULL, &why);
    if (whole && !st)
        st = waste_experts_open(&c->experts, c->source, &c->settings, &c->quant, c->record, &c->how,
                                &c->team, &why);
    return whole && !problem(c, st, &why, err);
}

/* ---- time --------------------------------------------------------------------------------- */

typedef struct paces {
    double trunk, expert, books; /* seconds: a weight, a weight, a layer */
} paces;

/* The first layer that is still to be done, or -1: the shards of others may be gone. */
static int next_layer(const waste_convert *c)
{
    int l;

    for (l = c->settings.dense_layers; l < c->settings.layers; l++)
        if (c->wanted[l] && !c->finished[l]) return l;
    return -1;
}

/* Rows of its first expert. */
static waste_status read_rows(waste_convert *c, waste_weight *w, float **rows, int64_t *n,
                              double *seconds, waste_error *err)
{
    char name[256];
    uint64_t began;
    int64_t room;
    int l = next_layer(c);
    waste_status st;

    waste_names_expert(name, sizeof name, waste_names_find(c->source, &c->settings), &c->settings,
                       l, 0, 0);
    st = waste_weight_find(c->source, name, w, err);
    if (st) return st;
    room = TIMED_WEIGHTS / w->cols;
    *n = room < 1 ? 1 : room < w->rows ? room : w->rows;
    *rows = waste_mem_array((size_t)(*n * w->cols), sizeof **rows);
    if (!*rows) return waste_fail(err, WASTE_NOMEM, "out of memory timing the encoder");
    began = waste_clock_ns();
    st = waste_weight_rows(c->source, w, 0, *n, *rows, err);
    *seconds = (double)(waste_clock_ns() - began) / 1e9;
    return st;
}

/* A share of a training sample from these rows, scaled as samples are. */
static waste_status time_books(waste_convert *c, const float *rows, int64_t n, int64_t cols,
                               waste_vq_books *books, double *seconds, waste_error *err)
{
    const size_t all = (size_t)(n * cols / WASTE_VQ_DIM);
    const size_t take = all < TIMED_VECTORS ? all : TIMED_VECTORS;
    float *x = waste_mem_array(take * WASTE_VQ_DIM + (size_t)cols, sizeof *x);
    waste_vq_random r = {1};
    int64_t i;
    uint64_t began;
    waste_status st;

    if (!x) return waste_fail(err, WASTE_NOMEM, "out of memory timing the encoder");
    for (i = 0; i < n && (size_t)(i * cols) < take * WASTE_VQ_DIM; i++)
        waste_vq_normalise(rows + i * cols, cols,
                           c->how.beam ? waste_vq_row_rms(rows + i * cols, cols)
                                       : waste_vq_row_scale(rows + i * cols, cols),
                           x + i * cols);
    began = waste_clock_ns();
    if (c->how.beam)
        st = waste_vq_choice_make(books, &c->quant, x, take, &r, &c->team, &c->cancel, err);
    else
        st = waste_vq_train(books, &c->quant, x, take, &r, &c->cancel, err);
    /* three kinds; the work grows with the sample */
    *seconds = 3 * (double)(waste_clock_ns() - began) / 1e9 * SAMPLE / (double)take;
    waste_mem_free(x);
    return st;
}

static waste_status time_encoder(waste_convert *c, float *rows, int64_t n, int64_t cols,
                                 const waste_vq_books *books, double *seconds, waste_error *err)
{
    const uint64_t blocks = (uint64_t)(n + WASTE_INDEX_BLOCK) / WASTE_INDEX_BLOCK;
    waste_convert_loss loss = {0, 0};
    waste_vq_rows *e = NULL;
    waste_vq_job job = {.quant = &c->quant, .books = books, .beam = c->how.beam};
    uint64_t began;
    waste_status st = waste_vq_rows_open(&e, &c->quant, &c->team, n, n * cols, err);

    job.w = rows;
    job.rows = n;
    job.cols = cols;
    job.indices = waste_mem_zero((size_t)(blocks * WASTE_INDEX_BLOCK) *
                                 (size_t)(cols / WASTE_VQ_DIM * c->quant.vector_bytes));
    job.scale = waste_mem_array((size_t)n, sizeof *job.scale);
    if (!st && (!job.indices || !job.scale))
        st = waste_fail(err, WASTE_NOMEM, "out of memory timing the encoder");
    began = waste_clock_ns();
    if (!st) st = waste_vq_rows_start(e, &job, &c->cancel, err);
    if (!st) st = waste_vq_rows_finish(e, &loss, &c->cancel, err);
    *seconds = (double)(waste_clock_ns() - began) / 1e9;
    waste_vq_rows_close(e);
    waste_mem_free(job.indices);
    waste_mem_free(job.scale);
    return st;
}

/* Rows quantised and decoded again, as a trunk's are. */
typedef struct trunk_rows {
    waste_fmt fmt;
    const float *rows;
    int64_t cols, groups;
    size_t row_bytes;
    unsigned char *out; /* these three: a row for each thread */
    uint16_t *scales;
    float *back;
} trunk_rows;

static void quantise_row(void *ctx, int worker, size_t i)
{
    const trunk_rows *t = ctx;
    unsigned char *out = t->out + (size_t)worker * t->row_bytes;
    uint16_t *scales = t->scales + worker * t->groups;

    waste_quant_encode_row(t->fmt, t->rows + (int64_t)i * t->cols, t->cols, WASTE_TRUNK_GROUP, out,
                           scales);
    waste_quant_decode_row(t->fmt, out, scales, t->cols, WASTE_TRUNK_GROUP,
                           t->back + worker * t->cols);
}

static waste_status time_trunk(waste_convert *c, const float *rows, int64_t n, int64_t cols,
                               double *seconds, waste_error *err)
{
    const size_t threads = (size_t)c->team.size;
    trunk_rows t = {.fmt = c->matrix, .rows = rows, .cols = cols};
    waste_status st = WASTE_OK;
    uint64_t began;

    t.groups = (cols + WASTE_TRUNK_GROUP - 1) / WASTE_TRUNK_GROUP;
    t.row_bytes = (size_t)waste_quant_row_bytes(c->matrix, cols, WASTE_TRUNK_GROUP);
    t.out = waste_mem_array(threads, t.row_bytes);
    t.scales = waste_mem_array(threads, (size_t)t.groups * sizeof *t.scales);
    t.back = waste_mem_array(threads, (size_t)cols * sizeof *t.back);
    if (!t.out || !t.scales || !t.back)
        st = waste_fail(err, WASTE_NOMEM, "out of memory timing the trunk");
    began = waste_clock_ns();
    if (!st) st = waste_vq_pool_run(c->team.pool, quantise_row, &t, (size_t)n, &c->cancel, err);
    *seconds = (double)(waste_clock_ns() - began) / 1e9;
    waste_mem_free(t.out);
    waste_mem_free(t.scales);
    waste_mem_free(t.back);
    return st;
}

static waste_status measure(waste_convert *c, paces *p, waste_error *err)
{
    waste_vq_books *books = waste_mem_zero(sizeof *books);
    float *rows = NULL;
    double read = 0, encode = 0, trunk = 0, weights;
    waste_weight w = {0};
    int64_t n = 0;
    waste_status st = books ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory");

    if (!st) st = read_rows(c, &w, &rows, &n, &read, err);
    if (!st) st = time_books(c, rows, n, w.cols, books, &p->books, err);
    if (!st) st = time_trunk(c, rows, n, w.cols, &trunk, err);
    if (!st) {
        weights = (double)(n * w.cols);
        st = time_encoder(c, rows, n, w.cols, books, &encode, err);
        p->trunk = (trunk > read ? trunk : read) / weights; /* one hides the other */
        p->expert = (encode > read ? encode : read) / weights;
    }
    waste_mem_free(rows);
    waste_mem_free(books);
    return st;
}

static void plan_time(waste_convert *c, waste_error *err)
{
    const double expert = 3 * (double)c->settings.moe_width * (double)c->settings.expert_in;
    waste_error why = {0};
    paces p = {0, 0, 0};
    double seconds;
    char note[200];

    if (!c->experts || next_layer(c) < 0 || problem(c, measure(c, &p, &why), &why, err)) return;
    seconds = (double)c->pace_trunk.left * p.trunk + (double)c->pace_books.left * p.books +
              (double)c->pace_experts.left * expert * p.expert;
    seconds += (double)waste_work_bytes(c) / READ_BACK;
    snprintf(note, sizeof note,
             "about %.1f hours: %.2f million weights of experts a second, %.0f s for the codebooks "
             "of a layer at most, the trunk %.0f s",
             seconds / 3600, 1e-6 / p.expert, p.books, (double)c->pace_trunk.left * p.trunk);
    report(c, "plan", "time", 0, seconds, note, err);
}

/* ---- space -------------------------------------------------------------------------------- */

/* What earlier runs have left counts as done. */
static waste_status find_done(waste_convert *c, uint64_t *bytes, waste_error *err)
{
    waste_status st = WASTE_OK;
    int l, yes;

    *bytes = 0;
    if (!c->writer) return WASTE_OK;
    if (waste_writer_finished(c->writer, "trunk.bin", c->trunk.bytes)) {
        c->pace_trunk.left = 0;
        *bytes += c->trunk.bytes;
    }
    for (l = c->settings.dense_layers; !st && c->experts && l < c->settings.layers; l++) {
        if (!c->wanted[l]) continue;
        st = waste_convert_is_finished(c, l, &yes, err);
        c->finished[l] = (unsigned char)(!st && yes);
        if (!c->finished[l]) continue;
        c->pace_books.left--;
        c->pace_experts.left -= (uint64_t)c->settings.experts;
        *bytes += waste_experts_layout(c->experts)->bytes * (uint64_t)c->settings.experts;
    }
    return st;
}

/* The most that has to be free beyond what is freed meanwhile, and what that is. */
static uint64_t peak_of(waste_convert *c, uint64_t *freed, waste_error *err)
{
    const uint64_t bank =
        c->experts ? waste_experts_layout(c->experts)->bytes * (uint64_t)c->settings.experts : 0;
    const int trunk_there = c->pace_trunk.left == 0 && c->trunk.n;
    uint64_t written = trunk_there ? 0 : c->trunk.bytes, peak;
    waste_reclaim *r = NULL;
    waste_error why = {0};
    int l;

    *freed = 0;
    peak = written;
    if (c->mode != WASTE_RECLAIM_OFF)
        problem(c, waste_reclaim_open(&r, c->source, &c->settings, c->mode, &why), &why, err);
    if (r) *freed += waste_reclaim_would(r, WASTE_NAMES_TRUNK);
    for (l = c->settings.dense_layers; c->experts && l < c->settings.layers; l++) {
        if (!c->wanted[l]) continue;
        if (!c->finished[l]) written += bank;
        if (written > peak + *freed) peak = written - *freed;
        if (r) *freed += waste_reclaim_would(r, l);
    }
    waste_reclaim_close(r);
    written += waste_work_bytes(c) - c->trunk.bytes - bank * (uint64_t)c->n_wanted;
    if (written > *freed && written - *freed > peak) peak = written - *freed;
    return peak;
}

static void plan_space(waste_convert *c, const char *target, waste_error *err)
{
    const uint64_t free = waste_disk_free(target);
    uint64_t freed, peak = peak_of(c, &freed, err);
    char note[200];

    size(c, "peak_disk", peak, err, "free space needed on the target's disk%s",
         c->mode == WASTE_RECLAIM_OFF ? "" : ", with shards deleted as soon as they are spent");
    if (c->mode != WASTE_RECLAIM_OFF)
        size(c, "reclaim", freed, err, "in shards that would be spent along the way");
    size(c, "free_disk", free == UINT64_MAX ? 0 : free, err, "free there now");
    if (free >= peak) return;
    snprintf(note, sizeof note, "the target's disk has %llu bytes free, %llu are needed",
             (unsigned long long)free, (unsigned long long)peak);
    report(c, "problem", "disk", 0, 0, note, err);
}

/* Buffers of the largest piece of work; what is open already was counted. */
static uint64_t peak_memory(const waste_convert *c)
{
    uint64_t most = 4 * (uint64_t)SAMPLE * WASTE_VQ_DIM * 3, one; /* training: the sample, copies */
    size_t i;

    for (i = 0; i < c->trunk.n; i++) {
        const waste_trunk_item *t = c->trunk.item + i;
        int64_t rows = WASTE_CONVERT_PIECE / t->cols;
        if (rows < 1) rows = 1;
        if (rows > t->rows) rows = t->rows;
        one = (uint64_t)(rows * t->cols) * 10 + 2 * (t->bytes - (t->scale_off - t->off)) +
              4 * (uint64_t)(t->cols * c->team.size);
        if (one > most) most = one;
    }
    return waste_mem_used() + most;
}

/* Shards that were reclaimed, and whether they are missed. */
static void look_at_gone(waste_convert *c, waste_error *err)
{
    waste_reclaim *r = NULL;
    waste_error why = {0};
    waste_status st = waste_reclaim_open(&r, c->source, &c->settings, WASTE_RECLAIM_OFF, &why);
    int l;

    if (!st && c->pace_trunk.left) st = waste_reclaim_needs(r, WASTE_NAMES_TRUNK, &why);
    for (l = c->settings.dense_layers; !st && c->experts && l < c->settings.layers; l++)
        if (c->wanted[l] && !c->finished[l]) st = waste_reclaim_needs(r, l, &why);
    waste_reclaim_close(r);
    problem(c, st, &why, err);
}

static void plan_sizes(waste_convert *c, const char *target, waste_error *err)
{
    const uint64_t bank =
        c->experts ? waste_experts_layout(c->experts)->bytes * (uint64_t)c->settings.experts : 0;
    waste_error why = {0};
    uint64_t there;

    waste_work_count(c);
    if (problem(c, find_done(c, &there, &why), &why, err)) return;
    size(c, "trunk", c->trunk.bytes, err, "%zu tensors", c->trunk.n);
    size(c, "experts", bank * (uint64_t)c->n_wanted, err,
         "%d layers of %d experts as %s, %llu bytes each", c->n_wanted, c->settings.experts,
         c->label, (unsigned long long)(bank ? bank / (uint64_t)c->settings.experts : 0));
    size(c, "container", waste_work_bytes(c), err, "all files, about%s",
         waste_convert_is_trial(c) ? "; a trial of some layers, which is not published" : "");
    if (there) size(c, "found", there, err, "finished by an earlier run, and kept");
    look_at_gone(c, err);
    plan_space(c, target, err);
    size(c, "peak_ram", peak_memory(c), err, "allocated at most, about; the proof's token aside");
    plan_time(c, err);
}

/* ---- all of it ---------------------------------------------------------------------------- */

static void look_at_target(waste_convert *c, waste_error *err)
{
    waste_error why = {0};
    waste_status st =
        waste_job_write(&c->job, c->source, &c->settings, &c->files, &c->options, &why);

    if (!st) st = waste_writer_look(c->writer, c->job.data, c->job.len, &why);
    problem(c, st, &why, err);
}

waste_status waste_estimate_make(waste_convert *c, const char *source, const char *target,
                                 const waste_convert_options *opt, waste_error *err)
{
    waste_error why = {0};
    waste_status st = waste_convert_read_options(c, opt, err); /* arguments, not plans */

    if (st) return st;
    if (!waste_path_is_dir(source)) {
        waste_fail(&why, WASTE_IO, "the checkpoint %s is not a directory", source);
        problem(c, WASTE_IO, &why, err);
        return err->status;
    }
    st = waste_writer_open(&c->writer, target, source, opt->overwrite, &why);
    problem(c, st, &why, err);
    if (!err->status && open_source(c, source, err) && open_rest(c, source, opt, err)) {
        plan_sizes(c, target, err);
        if (c->writer) look_at_target(c, err);
    }
    return err->status;
}
