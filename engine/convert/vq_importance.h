/* How much each input channel of the experts matters: E[x^2] per channel, measured
 * on text, as a JSON file
 *
 *     {"layers": {"1": {"gate_up": [..], "down": [..]}, ..}}
 *
 * gate_up: one number for each column of gate and up; down: of down, averaged over
 * the experts. Layers that are not named are encoded without. An error in a channel
 * is weighed by the root of its number: that keeps most of what the numbers
 * themselves would gain and costs little where they mislead. Immutable. */
#ifndef WASTE_VQ_IMPORTANCE_H
#define WASTE_VQ_IMPORTANCE_H

#include "base/error.h"

typedef struct waste_vq_importance waste_vq_importance;

/* What the columns of one matrix weigh. */
typedef struct waste_vq_weights {
    const float *scale; /* [cols] of squared errors, > 0, for the scale of a row */
    const float *g;     /* [cols] of errors, mean square 1 in every vector of 8 */
} waste_vq_weights;

/* Layers first..layers-1 of a model whose experts have `in` inputs and `width` rows
 * in gate and up. WASTE_ARG names file, layer and list for anything that does not
 * fit it, including numbers that are not finite or negative. */
waste_status waste_vq_importance_open(waste_vq_importance **out, const char *path, int first,
                                      int layers, int64_t in, int64_t width, waste_error *err);
void waste_vq_importance_close(waste_vq_importance *m);

/* Nonzero and *w filled when the layer is in the file. m may be NULL. */
int waste_vq_importance_get(const waste_vq_importance *m, int layer, int down, waste_vq_weights *w);

#endif
