/* A conversion from safetensors to a .waste directory: waste_convert_* of waste.h.
 * Owns the order of work: trunk, then codebooks and bank of each MoE layer, then the
 * small files, the proof, and the manifest, whose appearance makes the container
 * (docs/convert.md 8). Everything that can be checked without reading weights is
 * checked by waste_convert_open; what earlier runs have left is looked at by the first
 * waste_convert_next. Opening and rows are here, the work is in work.c. */
#include "convert/convert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/mem.h"
#include "base/plat.h"
#include "convert/census.h"
#include "convert/conversion.h"
#include "convert/work.h"

/* ---- options ------------------------------------------------------------------------------ */

static waste_status read_effort(waste_convert *c, const waste_convert_options *opt,
                                waste_error *err)
{
    if (waste_experts_effort(opt->effort, &c->how.beam))
        return waste_fail(err, WASTE_ARG, "effort is \"%s\", wanted fast, default or best",
                          opt->effort);
    if (opt->importance && !c->how.beam)
        return waste_fail(err, WASTE_ARG, "importance has no effect with effort \"fast\"");
    if (opt->threads < 0 || opt->threads > WASTE_VQ_THREADS)
        return waste_fail(err, WASTE_ARG, "threads is %d, wanted 0 to %d", opt->threads,
                          WASTE_VQ_THREADS);
    c->how.importance = opt->importance;
    c->threads = opt->threads;
    c->options.effort = opt->effort ? opt->effort : "default";
    c->options.importance = opt->importance;
    return WASTE_OK;
}

waste_status waste_convert_read_options(waste_convert *c, const waste_convert_options *opt,
                                        waste_error *err)
{
    const char *experts = opt->experts ? opt->experts : "vq3r";

    switch (opt->trunk_bits) {
    case 0:
    case 4: c->matrix = WASTE_FMT_Q4G; break;
    case 8: c->matrix = WASTE_FMT_Q8G; break;
    case 3: c->matrix = WASTE_FMT_Q3G; break;
    default:
        return waste_fail(err, WASTE_ARG, "trunk_bits is %d, wanted 3, 4 or 8", opt->trunk_bits);
    }
    if (waste_experts_format(experts, &c->quant, &c->record, &c->label))
        return waste_fail(err, WASTE_ARG, "experts is \"%s\", wanted vq3r, vq2r or vq4p", experts);
    if (waste_reclaim_parse(opt->reclaim, &c->mode))
        return waste_fail(err, WASTE_ARG, "reclaim is \"%s\", wanted off, dry or on", opt->reclaim);
    c->options.trunk_bits = opt->trunk_bits ? opt->trunk_bits : 4;
    c->options.experts = c->label;
    c->cancel = opt->cancel;
    return read_effort(c, opt, err);
}

/* ---- opening ------------------------------------------------------------------------------ */

waste_status waste_convert_read_layers(waste_convert *c, const waste_convert_options *opt,
                                       waste_error *err)
{
    const waste_settings *s = &c->settings;

    return waste_job_layers(opt->layers, s->experts ? s->dense_layers : s->layers, s->layers,
                            c->wanted, &c->n_wanted, err);
}

static waste_status open_source(waste_convert *c, const char *source, waste_error *err)
{
    waste_source_options o = {waste_writer_work(c->writer), 0};
    char config[WASTE_PATH_MAX];
    waste_status st = waste_source_open_with(&c->source, source, &o, err);

    if (!st) st = waste_path_join(config, sizeof config, source, "config.json", err);
    if (!st) st = waste_settings_read(&c->settings, waste_source_config(c->source), config, err);
    return st;
}

static waste_status open_parts(waste_convert *c, const char *source, const char *target,
                               const waste_convert_options *opt, waste_error *err)
{
    waste_status st = waste_convert_read_options(c, opt, err);

    if (!st && !waste_path_is_dir(source))
        st = waste_fail(err, WASTE_IO, "the checkpoint %s is not a directory", source);
    if (!st) st = waste_writer_open(&c->writer, target, source, opt->overwrite, err);
    if (!st) st = open_source(c, source, err);
    if (!st) st = waste_convert_read_layers(c, opt, err);
    if (!st) st = waste_trunk_list(&c->trunk, c->source, &c->settings, c->matrix, err);
    if (!st) st = waste_census_check(&c->trunk, &c->settings, err);
    if (!st) st = waste_vq_team_init(&c->team, &c->quant, c->threads, NULL, err);
    if (!st && waste_convert_moe_layers(&c->settings))
        st = waste_experts_open(&c->experts, c->source, &c->settings, &c->quant, c->record, &c->how,
                                &c->team, err);
    if (!st) st = waste_files_prepare(&c->files, source, &c->settings, err);
    if (!st) st = waste_reclaim_open(&c->reclaim, c->source, &c->settings, c->mode, err);
    if (!st) st = waste_job_write(&c->job, c->source, &c->settings, &c->files, &c->options, err);
    return st;
}

waste_status waste_convert_open(waste_convert **out, const char *source, const char *target,
                                const waste_convert_options *opt, waste_error *err)
{
    static const waste_convert_options defaults;
    waste_convert *c = waste_mem_zero(sizeof *c);
    waste_status st = WASTE_OK;
    fenv_t host;

    *out = NULL;
    if (!opt) opt = &defaults;
    if (c) c->from = waste_mem_text(source, strlen(source));
    if (!c || !c->from) st = waste_fail(err, WASTE_NOMEM, "out of memory opening %s", source);
    if (!st) {
        c->started = waste_clock_ns();
        waste_fpenv_enter(&host); /* workers are started */
        st = opt->plan ? waste_estimate_make(c, source, target, opt, err)
                       : open_parts(c, source, target, opt, err);
        waste_fpenv_leave(&host);
    }
    if (st) {
        waste_convert_close(c);
        return st;
    }
    if (!opt->plan) waste_work_count(c);
    c->phase = opt->plan ? WASTE_CONVERT_PLAN : WASTE_CONVERT_START;
    *out = c;
    return WASTE_OK;
}

void waste_convert_close(waste_convert *c)
{
    if (!c) return;
    waste_verify_close(c->proof);
    waste_writer_close(c->writer);
    waste_reclaim_close(c->reclaim);
    waste_buf_clear(&c->job);
    waste_files_clear(&c->files);
    waste_experts_close(c->experts);
    waste_vq_team_clear(&c->team);
    waste_trunk_clear(&c->trunk);
    waste_settings_clear(&c->settings);
    waste_source_close(c->source);
    waste_mem_free(c->plan);
    waste_mem_free(c->from);
    waste_mem_free(c);
}

/* ---- rows --------------------------------------------------------------------------------- */

static const char *const phase_names[] = {
    [WASTE_CONVERT_START] = "trunk",         [WASTE_CONVERT_TRUNK] = "trunk",
    [WASTE_CONVERT_CODEBOOKS] = "codebooks", [WASTE_CONVERT_EXPERTS] = "experts",
    [WASTE_CONVERT_LAYER] = "layer",         [WASTE_CONVERT_RECLAIM] = "reclaim",
    [WASTE_CONVERT_FILES] = "files",         [WASTE_CONVERT_PROOF] = "proof",
    [WASTE_CONVERT_TOKEN] = "proof",         [WASTE_CONVERT_MANIFEST] = "manifest",
    [WASTE_CONVERT_TRIAL] = "trial",         [WASTE_CONVERT_PLAN] = "plan",
    [WASTE_CONVERT_DONE] = "manifest",       [WASTE_CONVERT_FAILED] = "manifest"};

static double seconds_left(const waste_convert *c)
{
    const waste_convert_pace *pace[] = {&c->pace_trunk, &c->pace_books, &c->pace_experts};
    double all = 0;
    size_t i;

    for (i = 0; i < 3; i++) {
        if (!pace[i]->left) continue;
        if (!pace[i]->done) return NAN;
        all += (double)pace[i]->ns / 1e9 / (double)pace[i]->done * (double)pace[i]->left;
    }
    return all;
}

static double error_of(const waste_convert_loss *l)
{
    return l->all > 0 ? sqrt(l->wrong / l->all) : l->wrong > 0 ? INFINITY : NAN;
}

/* What the work of this phase has lost so far. */
static double error_so_far(const waste_convert *c, waste_convert_phase phase, int kind)
{
    waste_convert_loss sum = {0, 0};
    int k;

    if (phase == WASTE_CONVERT_TRUNK) return error_of(&c->trunk_loss);
    if (phase == WASTE_CONVERT_LAYER) return error_of(c->loss + kind);
    if (phase != WASTE_CONVERT_EXPERTS) return NAN;
    for (k = 0; k < WASTE_EXPERTS_KINDS; k++) {
        sum.wrong += c->loss[k].wrong;
        sum.all += c->loss[k].all;
    }
    return error_of(&sum);
}

static waste_status next_plan(waste_convert *c, waste_convert_row *row)
{
    if (c->at_plan == c->n_plan) return WASTE_DONE;
    *row = c->plan[c->at_plan++];
    return WASTE_OK;
}

waste_status waste_convert_next(waste_convert *c, waste_convert_row *row, waste_error *err)
{
    static const char *const kinds[] = {"gate", "up", "down"};
    waste_convert_phase phase;
    waste_status st = WASTE_OK;
    int kind, layer;
    fenv_t host;

    memset(row, 0, sizeof *row);
    if (c->phase == WASTE_CONVERT_PLAN) return next_plan(c, row);
    waste_fpenv_enter(&host);
    if (c->phase == WASTE_CONVERT_START) st = waste_work_start(c, err);
    phase = c->phase;
    kind = c->kind;
    layer = c->layer;
    if (!st) st = waste_work_next(c, row, err);
    waste_fpenv_leave(&host);
    if (st < 0) c->phase = WASTE_CONVERT_FAILED;
    row->phase = phase_names[phase];
    row->layer = phase == WASTE_CONVERT_CODEBOOKS || phase == WASTE_CONVERT_EXPERTS ||
                         phase == WASTE_CONVERT_LAYER
                     ? layer
                 : phase == WASTE_CONVERT_PROOF ? c->proof_layer
                                                : -1;
    row->kind = phase == WASTE_CONVERT_LAYER ? kinds[kind] : NULL;
    row->done = c->done;
    row->total = c->total;
    row->bytes = phase == WASTE_CONVERT_RECLAIM ? c->freed : waste_writer_bytes(c->writer);
    row->seconds = (double)(waste_clock_ns() - c->started) / 1e9;
    row->eta = seconds_left(c);
    row->error = error_so_far(c, phase, kind);
    return st;
}
