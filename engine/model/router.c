/* The choice of experts: see router.h. No state, any thread. */
#include "model/router.h"

#include <math.h>

static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

void waste_router_pick(const waste_config *c, const float *logits, const float *bias, int *ids,
                       float *weights)
{
    float key[WASTE_MAX_TOP_K], sum = 0;
    int n = 0, e, j;

    /* A sorted list of the best so far. Ids come in ascending order, so strictly
     * greater is what keeps the lower id first among equals. */
    for (e = 0; e < c->experts; e++) {
        float p = sigmoid(logits[e]), k = bias ? p + bias[e] : p;

        if (isnan(k)) k = -INFINITY;
        if (n == c->top_k && !(k > key[n - 1])) continue;
        for (j = n < c->top_k ? n++ : n - 1; j > 0 && k > key[j - 1]; j--) {
            key[j] = key[j - 1];
            ids[j] = ids[j - 1];
            weights[j] = weights[j - 1];
        }
        key[j] = k;
        ids[j] = e;
        weights[j] = p;
    }
    if (c->renorm && n > 1) {
        for (j = 0; j < n; j++) sum += weights[j];
        for (j = 0; j < n; j++) weights[j] /= sum + 1e-20f;
    }
    for (j = 0; j < n; j++) weights[j] *= c->route_scale;
}
