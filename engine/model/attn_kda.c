/* Kimi Delta Attention for the rows of a chunk (docs/model.md 6): projections
 * over all rows at once, then every head walks the rows in order, each on the
 * state of its own sequence. */
#include "model/forward.h"

/* Convolution in place, on ring number `which` of each row's sequence. */
static void convolve(const waste_pass *p, int layer, int which, const float *w, float *x)
{
    const waste_config *c = p->config;
    const int channels = c->kda_heads * c->kda_dim;
    waste_conv a = {p->n, channels, c->taps, w, x, p->s->kda_ring};
    size_t t;

    for (t = 0; t < p->n; t++) p->s->kda_ring[t] = p->rows[t].seq->layer[layer].ring[which];
    p->kernels->conv(&a, 0, channels);
}

void waste_attn_kda(const waste_pass *p, int layer)
{
    const waste_config *c = p->config;
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    const size_t heads = (size_t)c->kda_heads, dim = (size_t)c->kda_dim;
    waste_kda a = {
        .n = p->n,
        .heads = c->kda_heads,
        .dim = c->kda_dim,
        .q = s->kda_q,
        .k = s->kda_k,
        .v = s->kda_v,
        .decay = s->kda_decay,
        .beta = s->kda_beta,
        .a_log = l->a_log,
        .dt_bias = l->dt_bias,
        .bound = c->gate_bound,
        .state = s->kda_state,
        .o = s->kda_o,
        .scratch = s->kda_head,
    };
    waste_gate gate = {s->kda_gate, s->kda_o};
    size_t t;

    waste_forward_matmul(p, l->q, s->normed, s->kda_q);
    waste_forward_matmul(p, l->k, s->normed, s->kda_k);
    waste_forward_matmul(p, l->v, s->normed, s->kda_v);
    convolve(p, layer, 0, l->conv_q, s->kda_q);
    convolve(p, layer, 1, l->conv_k, s->kda_k);
    convolve(p, layer, 2, l->conv_v, s->kda_v);
    waste_forward_matmul(p, l->f_a, s->normed, s->kda_low);
    waste_forward_matmul(p, l->f_b, s->kda_low, s->kda_decay);
    waste_forward_matmul(p, l->b, s->normed, s->kda_beta);
    if (l->g) {
        waste_forward_matmul(p, l->g, s->normed, s->kda_gate);
    } else {
        waste_forward_matmul(p, l->g_a, s->normed, s->gate_low);
        waste_forward_matmul(p, l->g_b, s->gate_low, s->kda_gate);
    }

    for (t = 0; t < p->n; t++) s->kda_state[t] = p->rows[t].seq->layer[layer].state;
    p->kernels->kda(&a, 0, c->kda_heads);
    waste_forward_norm(p, s->kda_o, l->o_norm, s->kda_o, p->n * heads, dim, dim);
    p->kernels->gate(&gate, 0, (int64_t)(p->n * heads * dim));
    waste_forward_matmul(p, l->o, s->kda_o, s->out);
}
