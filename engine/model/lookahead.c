/* Which experts the next layer will probably want: see forward.h. Runs on the
 * thread that holds the model's turn, between a layer's questions to the cache and
 * its arithmetic.
 *
 * The residual stream changes little from one layer to the next, so the next
 * layer's router, given what this layer's saw, is right about four times out of
 * five where it is surest. Being wrong costs a read and never a bit of the result:
 * the real router decides in its turn. */
#include <math.h>
#include <string.h>

#include "model/forward.h"

/* Rows that have each their own guesses. More want more experts than there is time to
 * read: of them those that most rows agree on come first, MANY times as many. */
#define MOST_ROWS  4
#define MANY       4
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

/* Up to n experts that two rows or more will probably want, those of most rows first;
 * returns how many. */
static size_t agreed(const waste_pass *p, const waste_layer *l, size_t n, int *ids)
{
    const waste_config *c = p->config;
    const int k = c->top_k < MOST_WIDTH ? c->top_k : MOST_WIDTH;
    int *votes = p->s->votes, one[MOST_WIDTH], e, i;
    size_t found = 0, t, j;

    memset(votes, 0, (size_t)c->experts * sizeof *votes);
    for (t = 0; t < p->n; t++) {
        i = best(c, p->s->route_logits + t * (size_t)c->experts, l->router_bias, k, one);
        while (i--) votes[one[i]]++;
    }
    for (e = 0; e < c->experts; e++) {
        if (votes[e] < 2 || (found == n && votes[e] <= votes[ids[n - 1]])) continue;
        for (j = found < n ? found++ : n - 1; j > 0 && votes[e] > votes[ids[j - 1]]; j--)
            ids[j] = ids[j - 1];
        ids[j] = e;
    }
    return found;
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

    if (width <= 0 || layer + 1 >= c->layers || !waste_config_is_moe(c, layer + 1) ||
        !waste_cache_may_lack(p->cache, layer + 1))
        return;
    l = &p->weights->layer[layer + 1];
    waste_forward_matmul(p, l->router, s->normed, s->route_logits);
    if (p->n > MOST_ROWS) {
        n = (size_t)(width * MANY < MOST_WIDTH ? width * MANY : MOST_WIDTH);
        waste_cache_guess(p->cache, layer + 1, all, NULL, agreed(p, l, n, all));
        return;
    }
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
