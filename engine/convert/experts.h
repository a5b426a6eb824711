/* The routed experts of one checkpoint: where their matrices are, the codebooks
 * of a layer, the records of its bank (convert.md 4 and 6, container.md 5). */
#ifndef WASTE_EXPERTS_H
#define WASTE_EXPERTS_H

#include "convert/convert.h"
#include "convert/settings.h"
#include "convert/source.h"
#include "convert/vq.h"
#include "store/record.h"

typedef struct waste_experts waste_experts;

enum { WASTE_EXPERTS_GATE, WASTE_EXPERTS_UP, WASTE_EXPERTS_DOWN, WASTE_EXPERTS_KINDS };

/* "vq3r", "vq2r" or "vq4p" as geometry, record format and the manifest's name of
 * it; nonzero for any other name. */
int waste_experts_format(const char *name, waste_quant *q, waste_fmt *fmt, const char **label);

/* Checks that every expert of every MoE layer is there with its shape. `s` and
 * `c` are borrowed. The configuration has experts. */
waste_status waste_experts_open(waste_experts **out, waste_source *s, const waste_settings *c,
                                const waste_quant *q, waste_fmt fmt, waste_error *err);
void waste_experts_close(waste_experts *x);

const waste_record_layout *waste_experts_layout(const waste_experts *x);

/* Trains the books of a layer, which records made later refer to. */
waste_status waste_experts_train(waste_experts *x, int layer, const waste_cancel *cancel,
                                 waste_error *err);
/* The books of the layer trained last: gate, up, down. */
const waste_vq_books *waste_experts_books(const waste_experts *x, int kind);

/* The record of one expert against those books. *record is borrowed until the
 * next call and has layout->bytes. Adds to the loss. */
waste_status waste_experts_record(waste_experts *x, int layer, int expert, int codebook_base,
                                  const unsigned char **record, waste_convert_loss *loss,
                                  const waste_cancel *cancel, waste_error *err);

#endif
