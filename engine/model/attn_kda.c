/* Kimi Delta Attention for the rows of a chunk (docs/model.md 6): projections
 * over all rows at once, then every head walks the rows in order, each on the
 * state of its own sequence. From the convolution to the gate a head meets no
 * other, so that it is one piece of work. */
#include "model/forward.h"

typedef struct heads {
    const waste_pass *p;
    const waste_layer *l;
} heads;

/* Convolution in place of heads lo..hi-1, on ring number `which` of each row's
 * sequence. */
static void convolve(const waste_pass *p, int which, const float *w, float *x, int64_t lo,
                     int64_t hi)
{
    const waste_config *c = p->config;
    waste_conv a = {
        p->n, c->kda_heads * c->kda_dim, c->taps, w, x, p->s->kda_ring + (size_t)which * p->n};

    p->kernels->conv(&a, lo * c->kda_dim, hi * c->kda_dim);
}

static void heads_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const heads *j = ctx;
    const waste_pass *p = j->p;
    const waste_layer *l = j->l;
    const waste_config *c = p->config;
    waste_scratch *s = p->s;
    const int64_t n_heads = c->kda_heads, dim = c->kda_dim;
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
        .scratch = s->lane[thread].kda_head,
    };
    const size_t d = (size_t)dim;
    waste_rmsnorm norm = {s->kda_o, l->o_norm, s->kda_o, d, d, d, c->eps};
    waste_gate gate = {s->kda_gate, s->kda_o};
    int64_t t;

    convolve(p, 0, l->conv_q, s->kda_q, lo, hi);
    convolve(p, 1, l->conv_k, s->kda_k, lo, hi);
    convolve(p, 2, l->conv_v, s->kda_v, lo, hi);
    p->kernels->kda(&a, lo, hi);
    for (t = 0; t < (int64_t)p->n; t++) {
        p->kernels->rmsnorm(&norm, t * n_heads + lo, t * n_heads + hi);
        p->kernels->gate(&gate, (t * n_heads + lo) * dim, (t * n_heads + hi) * dim);
    }
}

/* What of the rows' sequences this layer changes. */
static void find_states(const waste_pass *p, int layer)
{
    waste_scratch *s = p->s;
    size_t t;
    int i;

    for (t = 0; t < p->n; t++) {
        s->kda_state[t] = p->rows[t].seq->layer[layer].state;
        for (i = 0; i < 3; i++)
            s->kda_ring[(size_t)i * p->n + t] = p->rows[t].seq->layer[layer].ring[i];
    }
}

void waste_attn_kda(const waste_pass *p, int layer)
{
    const waste_config *c = p->config;
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    const waste_product first[] = {
        {l->q, s->normed, s->kda_q},
        {l->k, s->normed, s->kda_k},
        {l->v, s->normed, s->kda_v},
        {l->g ? l->g : l->g_a, s->normed, l->g ? s->kda_gate : s->gate_low},
        {l->f_a, s->normed, s->kda_low},
        {l->b, s->normed, s->kda_beta},
    };
    const waste_product second[] = {
        {l->f_b, s->kda_low, s->kda_decay},
        {l->g_b, s->gate_low, s->kda_gate}, /* unless g is of full rank */
    };
    heads j = {p, l};

    find_states(p, layer);
    waste_forward_products(p, first, sizeof first / sizeof *first);
    waste_forward_products(p, second, l->g ? 1 : 2);
    waste_forward_share(p, c->kda_heads, (int64_t)p->n * 4 * c->kda_dim * c->kda_dim, heads_part,
                        &j);
    waste_forward_matmul(p, l->o, s->kda_o, s->out);
}
