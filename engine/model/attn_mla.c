/* Multi-head latent attention for the rows of a chunk (docs/model.md 5). All
 * latents of the chunk are stored before any row attends: how far a row looks is
 * given by its position alone.
 *
 * Work is cut by heads and by rows. Every piece reads all latents that its rows see, so
 * that with a long context a piece of few heads is bound by memory: pieces are as large
 * as leaves each thread one. */
#include "kernels/kernels_work.h"
#include "model/forward.h"
#include "model/rope.h"

#define TOGETHER 4   /* heads that share the loads of latents */
#define QUERIES  128 /* heads times rows of a piece: with a block of latents they fit L2 */

/* Every row's latent goes to its place in its sequence. */
static void store(const waste_pass *p, int layer)
{
    const waste_config *c = p->config;
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    const int pairs = waste_rope_pairs(c);
    const size_t rank = (size_t)c->kv_rank, width = rank + (size_t)c->rope_dim;
    size_t t;

    waste_forward_norm(p, s->mla_kv, l->kv_a_norm, s->mla_kv, p->n, rank, width);
    for (t = 0; t < p->n; t++) {
        const int64_t at = s->position[t];
        waste_seq *seq = p->rows[t].seq;
        float *from = s->mla_kv + t * width;

        if (pairs) waste_rope_turn(from + rank, s->turn + t * 2 * (size_t)pairs, pairs);
        waste_sequence_put_latents(seq, layer, at, at + 1, from);
        s->mla_block[t] = seq->layer[layer].block;
    }
}

/* Items are `each` heads for WASTE_MLA_ROWS rows, heads first. */
typedef struct attention {
    const waste_pass *p;
    const waste_layer *l;
    int64_t each, parts; /* heads of an item; items of the same rows */
} attention;

/* The rotary parts of the queries of heads lo..hi-1 are turned. */
static void turn_queries(const waste_pass *p, size_t first, size_t n, int64_t lo, int64_t hi)
{
    const waste_config *c = p->config;
    const int pairs = waste_rope_pairs(c);
    const size_t head = (size_t)(c->nope_dim + c->rope_dim);
    size_t t;
    int64_t h;

    for (t = first; t < first + n && pairs; t++)
        for (h = lo; h < hi; h++)
            waste_rope_turn(p->s->mla_q + (t * (size_t)c->heads + (size_t)h) * head + c->nope_dim,
                            p->s->turn + t * 2 * (size_t)pairs, pairs);
}

/* Heads lo..hi-1 for rows first..first+n-1 of the chunk. */
static void attend(const attention *j, int thread, size_t first, size_t n, int64_t lo, int64_t hi)
{
    const waste_pass *p = j->p;
    const waste_config *c = p->config;
    waste_scratch *s = p->s;
    const size_t q = (size_t)c->heads * (size_t)(c->nope_dim + c->rope_dim);
    const size_t o = (size_t)c->heads * (size_t)c->v_dim;
    waste_mla a = {
        .n = n,
        .heads = c->heads,
        .nope = c->nope_dim,
        .rope = c->rope_dim,
        .rank = c->kv_rank,
        .v = c->v_dim,
        .kv_b = waste_weights_matrix(j->l->kv_b),
        .scale = p->weights->mla_scale,
        .q = s->mla_q + first * q,
        .f16 = p->rows[first].seq->kv == WASTE_KV_F16, /* of the model: all alike */
        .block = s->mla_block + first,
        .last = s->position + first,
        .o = s->mla_o + first * o,
        .decoded = s->lane[thread].decoded,
        .latent = s->lane[thread].latent,
        .work = s->lane[thread].work,
    };
    waste_gate gate = {s->mla_gate, s->mla_o};
    size_t t;

    turn_queries(p, first, n, lo, hi);
    p->kernels->mla(&a, lo, hi);
    for (t = first; t < first + n && j->l->g; t++)
        p->kernels->gate(&gate, (int64_t)(t * o) + lo * c->v_dim, (int64_t)(t * o) + hi * c->v_dim);
}

static void attention_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const attention *j = ctx;
    const size_t n = j->p->n;
    const int64_t heads = j->p->config->heads;

    for (; lo < hi; lo++) {
        const size_t first = (size_t)(lo / j->parts) * WASTE_MLA_ROWS;
        const int64_t from = lo % j->parts * j->each;

        attend(j, thread, first, n - first < WASTE_MLA_ROWS ? n - first : WASTE_MLA_ROWS, from,
               from + j->each < heads ? from + j->each : heads);
    }
}

/* Multiply-adds of one head for all rows. */
static int64_t head_work(const waste_pass *p)
{
    const waste_config *c = p->config;
    int64_t work = 0;
    size_t t;

    for (t = 0; t < p->n; t++)
        work += (p->s->position[t] + 1) * (2 * c->kv_rank + c->rope_dim) +
                (int64_t)(c->nope_dim + c->v_dim) * c->kv_rank;
    return work;
}

static void run_attention(const waste_pass *p, const waste_layer *l)
{
    const int64_t threads = p->turn.threads > 1 ? p->turn.threads : 1, heads = p->config->heads;
    const int64_t tiles = (int64_t)((p->n + WASTE_MLA_ROWS - 1) / WASTE_MLA_ROWS);
    const int64_t rows = p->n < WASTE_MLA_ROWS ? (int64_t)p->n : WASTE_MLA_ROWS;
    const int64_t wanted = (threads + tiles - 1) / tiles; /* parts, so that all have work */
    attention j = {p, l, (heads + wanted - 1) / wanted, 1};

    if (j.each > QUERIES / rows) j.each = QUERIES / rows;
    j.each = (j.each + TOGETHER - 1) / TOGETHER * TOGETHER;
    j.parts = (heads + j.each - 1) / j.each;
    waste_forward_share(p, tiles * j.parts, heads * head_work(p) / (tiles * j.parts),
                        attention_part, &j);
}

void waste_attn_mla(const waste_pass *p, int layer)
{
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    const size_t rank = (size_t)p->config->q_rank;
    waste_product first[3] = {{l->kv_a, s->normed, s->mla_kv}};
    size_t n = 1;

    first[n++] = l->q_a ? (waste_product){l->q_a, s->normed, s->mla_low}
                        : (waste_product){l->q, s->normed, s->mla_q};
    if (l->g) first[n++] = (waste_product){l->g, s->normed, s->mla_gate};
    waste_forward_products(p, first, n);
    if (l->q_a) {
        waste_forward_norm(p, s->mla_low, l->q_a_norm, s->mla_low, p->n, rank, rank);
        waste_forward_matmul(p, l->q_b, s->mla_low, s->mla_q);
    }
    store(p, layer);
    run_attention(p, l);
    waste_forward_matmul(p, l->o, s->mla_o, s->out);
}
