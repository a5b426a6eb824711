/* Multi-head latent attention for the rows of a chunk (docs/model.md 5). All
 * latents of the chunk are stored before any row attends: how far a row looks is
 * given by its position alone. Work is cut by heads, and by rows as well where
 * there are more threads than heads. */
#include <string.h>

#include "model/forward.h"
#include "model/rope.h"

#define TOGETHER 4 /* heads that share the loads of latents */
#define ROWS     8 /* that share the decoding of kv_b */

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
        float *const *block = p->rows[t].seq->layer[layer].block;
        float *from = s->mla_kv + t * width;

        if (pairs) waste_rope_turn(from + rank, s->turn + t * 2 * (size_t)pairs, pairs);
        memcpy(block[at / WASTE_LATENT_BLOCK] + (size_t)(at % WASTE_LATENT_BLOCK) * width, from,
               width * sizeof *from);
        s->mla_block[t] = block;
    }
}

/* Items are groups of heads, for each part of the rows one after the other. */
typedef struct attention {
    const waste_pass *p;
    const waste_layer *l;
    int64_t groups;
    size_t rows; /* of a part, the last one fewer */
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

    while (lo < hi) {
        const size_t first = (size_t)(lo / j->groups) * j->rows;
        const int64_t from = lo % j->groups;
        int64_t to = from + (hi - lo), last;

        if (to > j->groups) to = j->groups;
        last = to * TOGETHER < j->p->config->heads ? to * TOGETHER : j->p->config->heads;
        attend(j, thread, first, n - first < j->rows ? n - first : j->rows, from * TOGETHER, last);
        lo += to - from;
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
    const int threads = p->turn.threads > 1 ? p->turn.threads : 1;
    attention j = {p, l, (p->config->heads + TOGETHER - 1) / TOGETHER, p->n};
    int64_t parts = 1;

    if (j.groups < 2 * threads && p->n >= 2 * ROWS) {
        parts = (2 * threads + j.groups - 1) / j.groups;
        j.rows = ((p->n + (size_t)parts - 1) / (size_t)parts + ROWS - 1) / ROWS * ROWS;
        parts = (int64_t)((p->n + j.rows - 1) / j.rows);
    }
    waste_forward_share(p, parts * j.groups, TOGETHER * head_work(p) / parts, attention_part, &j);
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
