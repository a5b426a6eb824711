/* What the columns of the experts weigh when they are encoded, from an importance file
 * (importance.h). An error in a channel is weighed by the root of its mean square: that
 * keeps most of what the mean squares themselves would gain and costs little where they
 * mislead. Layers that the file does not name are encoded without. Immutable. */
#ifndef WASTE_VQ_IMPORTANCE_H
#define WASTE_VQ_IMPORTANCE_H

#include "base/error.h"

typedef struct waste_vq_importance waste_vq_importance;

/* What the columns of one matrix weigh. */
typedef struct waste_vq_weights {
    const float *scale; /* [cols] of squared errors, > 0, mean about 1, for the scale of a row */
    const float *g;     /* [cols] of errors, mean square 1 in every vector of 8 */
} waste_vq_weights;

/* As waste_importance_init and _load; errors likewise. */
waste_status waste_vq_importance_open(waste_vq_importance **out, const char *path, int first,
                                      int layers, int64_t in, int64_t width, waste_error *err);
void waste_vq_importance_close(waste_vq_importance *m);

/* Nonzero and *w filled when the layer is in the file. kind: WASTE_IMPORTANCE_*. m may
 * be NULL. */
int waste_vq_importance_get(const waste_vq_importance *m, int layer, int kind, waste_vq_weights *w);

#endif
