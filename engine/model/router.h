/* The choice of experts for one row (docs/model.md 7, steps 1 to 3). Pure. */
#ifndef WASTE_ROUTER_H
#define WASTE_ROUTER_H

#include "model/config.h"

#define WASTE_MAX_TOP_K 64 /* config.c bounds it */

/* logits[experts]; bias[experts] or NULL. Fills ids[top_k], in descending order
 * of sigmoid(logit) + bias and ascending id among equals, and their weights.
 * Whatever the numbers are, NaN included, the ids are distinct and in range:
 * a key that is NaN ranks last. */
void waste_router_pick(const waste_config *c, const float *logits, const float *bias, int *ids,
                       float *weights);

#endif
