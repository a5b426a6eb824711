/* The state of one conversion, for convert.c, which does it, and estimate.c, which
 * says beforehand what it would be. */
#ifndef WASTE_CONVERSION_H
#define WASTE_CONVERSION_H

#include "base/buf.h"
#include "convert/convert.h"
#include "convert/experts.h"
#include "convert/files.h"
#include "convert/job.h"
#include "convert/reclaim.h"
#include "convert/resume.h"
#include "convert/trunk.h"
#include "convert/writer.h"

typedef enum waste_convert_phase {
    WASTE_CONVERT_START,
    WASTE_CONVERT_TRUNK,
    WASTE_CONVERT_CODEBOOKS,
    WASTE_CONVERT_EXPERTS,
    WASTE_CONVERT_LAYER,
    WASTE_CONVERT_RECLAIM,
    WASTE_CONVERT_FILES,
    WASTE_CONVERT_PROOF,
    WASTE_CONVERT_TOKEN,
    WASTE_CONVERT_MANIFEST,
    WASTE_CONVERT_TRIAL,
    WASTE_CONVERT_PLAN,
    WASTE_CONVERT_DONE,
    WASTE_CONVERT_FAILED
} waste_convert_phase;

/* How long a kind of work takes. */
typedef struct waste_convert_pace {
    uint64_t ns, done, left;
} waste_convert_pace;

struct waste_convert {
    char *from; /* the checkpoint's path */
    waste_source *source;
    waste_settings settings;
    int has_settings;
    waste_trunk trunk;
    int threads;            /* 0: all */
    waste_vq_team team;     /* works on trunk and experts */
    waste_experts *experts; /* NULL: the model has none */
    waste_experts_options how;
    waste_files files;
    waste_writer *writer;
    waste_quant quant;
    waste_fmt matrix, record;
    const char *label;         /* of the expert format */
    waste_job_options options; /* as the job has them */
    waste_buf job;
    waste_reclaim *reclaim;
    waste_reclaim_mode mode;
    waste_cancel cancel;
    unsigned char wanted[WASTE_MAX_LAYERS], finished[WASTE_MAX_LAYERS]; /* layers with experts */
    int n_wanted;

    waste_convert_phase phase, after; /* after: what follows a row about reclaiming */
    size_t item;                      /* next trunk tensor */
    int layer, expert, kind;          /* next of each */
    waste_convert_loss loss[WASTE_EXPERTS_KINDS], trunk_loss;
    waste_verify *proof;
    int proof_layer;
    int spent;      /* shards released since the last row about them */
    uint64_t freed; /* bytes of all released */
    char freed_note[200];
    uint64_t done, total, started;
    waste_convert_pace pace_trunk, pace_books, pace_experts;

    waste_convert_row *plan; /* rows, and how many were given out */
    size_t n_plan, at_plan;
};

static inline int waste_convert_moe_layers(const waste_settings *s)
{
    return s->experts ? s->layers - s->dense_layers : 0;
}

static inline int waste_convert_is_trial(const waste_convert *c)
{
    return c->n_wanted < waste_convert_moe_layers(&c->settings);
}

static inline int waste_convert_codebook_base(const waste_convert *c, int layer)
{
    return (layer - c->settings.dense_layers) * WASTE_EXPERTS_KINDS * c->quant.stages;
}

/* work.c. Files of a layer: "experts-L1.bin", "codebooks-L1.bin", "experts-L1.loss". */
typedef struct waste_convert_names {
    char bank[32], books[32], losses[32];
} waste_convert_names;
waste_convert_names waste_convert_names_of(int layer);

/* Whether bank and books of a layer are in the working directory, complete. */
waste_status waste_convert_is_finished(const waste_convert *c, int layer, int *yes,
                                       waste_error *err);

/* convert.c: options into *c, named in errors; layers, once settings are there. */
waste_status waste_convert_read_options(waste_convert *c, const waste_convert_options *opt,
                                        waste_error *err);
waste_status waste_convert_read_layers(waste_convert *c, const waste_convert_options *opt,
                                       waste_error *err);

/* estimate.c: opens the parts as far as that goes and makes c->plan of it. Only want of
 * memory and a cancel are errors. */
waste_status waste_estimate_make(waste_convert *c, const char *source, const char *target,
                                 const waste_convert_options *opt, waste_error *err);

/* manifest_text.c: appends manifest.json. */
waste_status waste_manifest_text(waste_buf *b, const waste_convert *c, waste_error *err);

#endif
