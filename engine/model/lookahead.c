/* Which experts the next layer will probably want: see forward.h. Runs on the
 * thread that holds the model's turn, between a layer's questions to the cache and
 * its arithmetic.
 *
 * The residual stream changes little from one layer to the next, so the next
 * layer's router, given what this layer's saw, is right about four times out of
 * five where it is surest. Being wrong costs a read and never a bit of the result:
 * the real router decides in its turn. */
#include <math.h>

#include "model/forward.h"

/* More rows want more experts than there is time to read, and find most of them
 * anyway by reading ahead within the layer. */
#define MOST_ROWS  4
#define MOST_WIDTH WASTE_LOOKAHEAD_MOST
#define MOST       (MOST_ROWS * MOST_WIDTH)

/* The n likeliest experts of one row, best first; returns how many. */
static int best(const waste_config *c, const float *logits, const float *bias, int n, int *ids)
{
    float key[MOST_WIDTH];
    int found = 0, e, j;

    for (e = 0; e < c->experts; e++) {
        const float k = bias ? 1.0f / (1.0f + expf(-logits[e])) + bias[e] : logits[e];

        if (isnan(k) || (found == n && !(k > key[n - 1]))) continue;
        for (j = found < n ? found++ : n - 1; j > 0 && k > key[j - 1]; j--) {
            key[j] = key[j - 1];
            ids[j] = ids[j - 1];
        }
        key[j] = k;
        ids[j] = e;
    }
    return found;
}

/* Adds an id that is not there yet. */
static size_t add(int *ids, size_t n, int id)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (ids[i] == id) return n;
    ids[n] = id;
    return n + 1;
}

void waste_lookahead(const waste_pass *p, int layer)
{
    const waste_config *c = p->config;
    const waste_layer *l;
    waste_scratch *s = p->s;
    int ids[MOST_ROWS][MOST_WIDTH], found[MOST_ROWS], all[MOST], ranks[MOST];
    const int width = p->lookahead < MOST_WIDTH ? p->lookahead : MOST_WIDTH;
    size_t n = 0, t;
    int i;

    if (width <= 0 || p->n > MOST_ROWS || layer + 1 >= c->layers ||
        !waste_config_is_moe(c, layer + 1))
        return;
    l = &p->weights->layer[layer + 1];
    waste_forward_matmul(p, l->router, s->normed, s->route_logits);
    for (t = 0; t < p->n; t++)
        found[t] = best(c, s->route_logits + t * (size_t)c->experts, l->router_bias, width, ids[t]);
    for (i = 0; i < width; i++) /* the likeliest of each row first */
        for (t = 0; t < p->n; t++) {
            if (i >= found[t]) continue;
            ranks[n] = i;
            n = add(all, n, ids[t][i]);
        }
    waste_cache_guess(p->cache, layer + 1, all, ranks, n);
}
