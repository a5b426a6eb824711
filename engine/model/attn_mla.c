/* Multi-head latent attention for the rows of a chunk (docs/model.md 5). All
 * latents of the chunk are stored before any row attends: how far a row looks is
 * given by its position alone. */
#include <string.h>

#include "model/forward.h"
#include "model/rope.h"

/* Queries of all rows, their rotary parts turned. */
static void queries(const waste_pass *p, const waste_layer *l)
{
    const waste_config *c = p->config;
    waste_scratch *s = p->s;
    const int pairs = waste_rope_pairs(c);
    const size_t head = (size_t)(c->nope_dim + c->rope_dim), rank = (size_t)c->q_rank;
    size_t t, h;

    if (l->q_a) {
        waste_forward_matmul(p, l->q_a, s->normed, s->mla_low);
        waste_forward_norm(p, s->mla_low, l->q_a_norm, s->mla_low, p->n, rank, rank);
        waste_forward_matmul(p, l->q_b, s->mla_low, s->mla_q);
    } else {
        waste_forward_matmul(p, l->q, s->normed, s->mla_q);
    }
    if (!pairs) return;
    for (t = 0; t < p->n; t++)
        for (h = 0; h < (size_t)c->heads; h++)
            waste_rope_turn(s->mla_q + (t * (size_t)c->heads + h) * head + c->nope_dim,
                            s->turn + t * 2 * (size_t)pairs, pairs);
}

/* Every row's latent goes to its place in its sequence. */
static void store(const waste_pass *p, int layer)
{
    const waste_config *c = p->config;
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    const int pairs = waste_rope_pairs(c);
    const size_t rank = (size_t)c->kv_rank, width = rank + (size_t)c->rope_dim;
    size_t t;

    waste_forward_matmul(p, l->kv_a, s->normed, s->mla_kv);
    waste_forward_norm(p, s->mla_kv, l->kv_a_norm, s->mla_kv, p->n, rank, width);
    for (t = 0; t < p->n; t++) {
        const int64_t at = s->position[t];
        float *const *block = p->rows[t].seq->layer[layer].block;
        float *from = s->mla_kv + t * width;

        if (pairs) waste_rope_turn(from + rank, s->turn + t * 2 * (size_t)pairs, pairs);
        memcpy(block[at / WASTE_LATENT_BLOCK] + (size_t)(at % WASTE_LATENT_BLOCK) * width, from,
               width * sizeof *from);
        s->mla_block[t] = block;
    }
}

void waste_attn_mla(const waste_pass *p, int layer)
{
    const waste_config *c = p->config;
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    waste_mla a = {
        .n = p->n,
        .heads = c->heads,
        .nope = c->nope_dim,
        .rope = c->rope_dim,
        .rank = c->kv_rank,
        .v = c->v_dim,
        .kv_b = waste_weights_matrix(l->kv_b),
        .scale = p->weights->mla_scale,
        .q = s->mla_q,
        .block = s->mla_block,
        .last = s->position,
        .o = s->mla_o,
        .decoded = s->decoded,
        .latent = s->mla_latent,
        .work = s->work,
    };
    waste_gate gate = {s->mla_gate, s->mla_o};

    queries(p, l);
    store(p, layer);
    p->kernels->mla(&a, 0, c->heads);
    if (l->g) {
        waste_forward_matmul(p, l->g, s->normed, s->mla_gate);
        p->kernels->gate(&gate, 0, (int64_t)p->n * c->heads * c->v_dim);
    }
    waste_forward_matmul(p, l->o, s->mla_o, s->out);
}
