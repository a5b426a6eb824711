/* Inputs of the routed experts, squared and summed: see observer.h. Results of experts
 * come in the order in which records arrive; they are kept by place and added in routing
 * order when the layer is complete. */
#include "model/observer.h"

#include <string.h>

#include "base/mem.h"
#include "model/forward.h"

static size_t moe_layers(const waste_config *c)
{
    return (size_t)(c->layers - c->dense_layers);
}

static size_t in_floats(const waste_config *c)
{
    return moe_layers(c) * (size_t)c->expert_in;
}

static size_t hidden_floats(const waste_config *c)
{
    return moe_layers(c) * (size_t)c->moe_width;
}

static size_t chunk_floats(const waste_config *c, size_t rows)
{
    return rows * (size_t)c->top_k * (size_t)c->moe_width;
}

uint64_t waste_observer_bytes(const waste_config *c, size_t rows)
{
    return (in_floats(c) + hidden_floats(c)) * sizeof(double) +
           chunk_floats(c, rows) * sizeof(float);
}

/* Of a row; NULL when it has none, or its owner has gone (forward.h). */
static waste_observer *observer_of(const waste_pass *p, size_t row)
{
    return p->rows[row].seq ? p->rows[row].seq->observer : NULL;
}

waste_status waste_observer_open(waste_observer **out, const waste_config *c, size_t rows,
                                 waste_error *err)
{
    waste_observer *o = waste_mem_zero(sizeof *o);

    *out = NULL;
    if (o) {
        o->config = c;
        o->in = waste_mem_array(in_floats(c), sizeof *o->in);
        o->hidden = waste_mem_array(hidden_floats(c), sizeof *o->hidden);
        o->h = waste_mem_array(chunk_floats(c, rows), sizeof *o->h);
    }
    if (!o || !o->in || !o->hidden || !o->h) {
        waste_observer_close(o);
        return waste_fail(err, WASTE_NOMEM, "out of memory for sums of %llu bytes",
                          (unsigned long long)waste_observer_bytes(c, rows));
    }
    *out = o;
    return WASTE_OK;
}

void waste_observer_close(waste_observer *o)
{
    if (!o) return;
    waste_mem_free(o->in);
    waste_mem_free(o->hidden);
    waste_mem_free(o->h);
    waste_mem_free(o);
}

int waste_observer_wanted(const waste_pass *p)
{
    size_t t;

    for (t = 0; t < p->n; t++)
        if (observer_of(p, t)) return 1;
    return 0;
}

void waste_observer_hidden(const waste_pass *p, const float *h, const int *place, size_t n)
{
    const size_t width = (size_t)p->config->moe_width;
    size_t i;

    for (i = 0; i < n; i++) {
        waste_observer *o = observer_of(p, (size_t)(place[i] / p->config->top_k));

        if (o) memcpy(o->h + (size_t)place[i] * width, h + i * width, width * sizeof *h);
    }
}

static void add_squares(double *restrict to, const float *restrict x, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) to[i] += (double)x[i] * (double)x[i];
}

void waste_observer_layer(const waste_pass *p, int layer, const float *x)
{
    const waste_config *c = p->config;
    const size_t in = (size_t)c->expert_in, width = (size_t)c->moe_width, k = (size_t)c->top_k;
    const size_t at = (size_t)(layer - c->dense_layers);
    size_t t, j;

    for (t = 0; t < p->n; t++) {
        waste_observer *o = observer_of(p, t);

        if (!o) continue;
        add_squares(o->in + at * in, x + t * in, in);
        for (j = 0; j < k; j++)
            add_squares(o->hidden + at * width, o->h + (t * k + j) * width, width);
    }
}
