/* The routed experts of one checkpoint: where their matrices are, the codebooks
 * of a layer, the records of its bank (docs/convert.md 4 and 6, docs/format.md 5). */
#ifndef WASTE_EXPERTS_H
#define WASTE_EXPERTS_H

#include "convert/convert.h"
#include "convert/settings.h"
#include "convert/source.h"
#include "convert/vq_rows.h"
#include "store/record.h"

typedef struct waste_experts waste_experts;

enum { WASTE_EXPERTS_GATE, WASTE_EXPERTS_UP, WASTE_EXPERTS_DOWN, WASTE_EXPERTS_KINDS };

/* "vq3r", "vq2r" or "vq4p" as geometry, record format and the manifest's name of
 * it; nonzero for any other name. */
int waste_experts_format(const char *name, waste_quant *q, waste_fmt *fmt, const char **label);

/* How hard to look for the indices: "fast", "default" (NULL means it) or "best" as
 * the beam of a waste_vq_job; nonzero for any other name. */
int waste_experts_effort(const char *name, int *beam);

typedef struct waste_experts_options {
    int beam;
    const char *importance; /* path of a file for vq_importance.h, or NULL; not with beam 0 */
} waste_experts_options;

/* Checks that every expert of every MoE layer is there with its shape. `s`, `c` and
 * `team` are borrowed. The configuration has experts, the team is for this geometry. */
waste_status waste_experts_open(waste_experts **out, waste_source *s, const waste_settings *c,
                                const waste_quant *q, waste_fmt fmt,
                                const waste_experts_options *opt, waste_vq_team *team,
                                waste_error *err);
void waste_experts_close(waste_experts *x);

const waste_record_layout *waste_experts_layout(const waste_experts *x);

/* Chooses the books of a layer, which records made later refer to: k-means for
 * effort "fast"; else the universal ones, or own ones where a sample gains by it. */
waste_status waste_experts_train(waste_experts *x, int layer, const waste_cancel *cancel,
                                 waste_error *err);
/* The books of the layer trained last: gate, up, down. */
const waste_vq_books *waste_experts_books(const waste_experts *x, int kind);

/* The record of one expert against those books. *record is borrowed until the
 * next call and has layout->bytes. Adds to loss[kind]. */
waste_status waste_experts_record(waste_experts *x, int layer, int expert, int codebook_base,
                                  const unsigned char **record, waste_convert_loss *loss,
                                  const waste_cancel *cancel, waste_error *err);

#endif
