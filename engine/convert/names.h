/* How checkpoints name the tensors of experts (docs/convert.md 4), and which part of
 * a container a tensor goes into. */
#ifndef WASTE_NAMES_H
#define WASTE_NAMES_H

#include "convert/settings.h"
#include "convert/source.h"

typedef enum waste_names {
    WASTE_NAMES_MIXTRAL,  /* block_sparse_moe.experts.E.w1, w3, w2 */
    WASTE_NAMES_DEEPSEEK, /* mlp.experts.E.gate_proj, up_proj, down_proj */
    WASTE_NAMES_NONE      /* no layer has an expert 0 */
} waste_names;

/* The style of the first expert 0 found; a checkpoint has one. */
waste_names waste_names_find(const waste_source *s, const waste_settings *c);

/* The weight of one expert; kind 0 gate, 1 up, 2 down. */
void waste_names_expert(char *out, size_t cap, waste_names style, const waste_settings *c,
                        int layer, int expert, int kind);

/* Who reads the tensor `name`: WASTE_NAMES_TRUNK, a MoE layer that is converted, or
 * WASTE_NAMES_NOBODY - an expert without a readable layer, or of a layer behind the
 * last one. */
#define WASTE_NAMES_TRUNK  (-1)
#define WASTE_NAMES_NOBODY (-2)
int waste_names_reader(const char *name, const waste_settings *c);

/* A source weight of the trunk tensor `stored`: the same name, or DeepSeek's, or the
 * embedding that a tied head is a copy of. WASTE_FORMAT when there is none. */
waste_status waste_names_trunk(const waste_source *s, const waste_settings *c, const char *stored,
                               waste_weight *out, waste_error *err);

#endif
