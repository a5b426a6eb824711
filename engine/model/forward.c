/* Layers in order, for a batch of rows: see forward.h (docs/model.md 4). Runs on
 * the thread that holds the model's turn. Buffers of the chunk are in scratch.h;
 * x is the residual stream, and with Attention Residuals also what a read of the
 * history gave. */
#include "model/forward.h"

#include <string.h>

#include "base/error.h"
#include "model/rope.h"

void waste_forward_matmul(const waste_pass *p, const waste_tensor *w, const float *x, float *y)
{
    waste_matmul a = {
        .w = waste_weights_matrix(w),
        .n = p->n,
        .x = x,
        .x_stride = (size_t)w->cols,
        .y = y,
        .y_stride = (size_t)w->rows,
        .decoded = p->s->decoded,
        .work = p->s->work,
    };

    p->kernels->matmul(&a, 0, w->rows);
}

void waste_forward_norm(const waste_pass *p, const float *x, const float *w, float *y, size_t n,
                        size_t width, size_t stride)
{
    waste_rmsnorm a = {x, w, y, width, stride, stride, p->config->eps};

    p->kernels->rmsnorm(&a, 0, (int64_t)n);
}

waste_status waste_forward_cancelled(const waste_pass *p, int layer)
{
    if (!p->cancel || !p->cancel->asked || !p->cancel->asked(p->cancel->ctx)) return WASTE_OK;
    return waste_fail(p->err, WASTE_CANCELLED, "cancelled in layer %d", layer);
}

static void norm_rows(const waste_pass *p, const float *w)
{
    const size_t h = (size_t)p->config->hidden;

    waste_forward_norm(p, p->s->x, w, p->s->normed, p->n, h, h);
}

static void add(float *restrict to, const float *restrict from, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) to[i] += from[i];
}

/* x = read of the history's first `blocks` entries and the running sum v. */
static void read_history(const waste_pass *p, size_t blocks, const float *v, const float *norm,
                         const float *proj)
{
    const size_t h = (size_t)p->config->hidden;
    waste_scratch *s = p->s;
    waste_ares a = {
        .n_blocks = blocks,
        .block_stride = (size_t)s->rows * h,
        .blocks = s->history,
        .p = v,
        .norm = norm,
        .proj = proj,
        .y = s->x,
        .width = h,
        .eps = p->config->eps,
        .scratch = s->mix,
    };

    p->kernels->ares(&a, 0, (int64_t)p->n);
}

static void attention(const waste_pass *p, int layer)
{
    norm_rows(p, p->weights->layer[layer].attn_norm);
    if (p->config->is_kda[layer])
        waste_attn_kda(p, layer);
    else
        waste_attn_mla(p, layer);
}

static waste_status feed_forward(const waste_pass *p, int layer)
{
    norm_rows(p, p->weights->layer[layer].ffn_norm);
    if (waste_config_is_moe(p->config, layer)) return waste_moe(p, layer);
    waste_ffn_rows(p, &p->weights->layer[layer].ffn);
    return WASTE_OK;
}

static waste_status plain_layer(waste_pass *p, int layer)
{
    const size_t n = p->n * (size_t)p->config->hidden;
    waste_status st;

    attention(p, layer);
    add(p->s->x, p->s->out, n);
    st = feed_forward(p, layer);
    if (!st) add(p->s->x, p->s->out, n);
    return st;
}

/* One layer with Attention Residuals. *blocks counts the history's entries. At a
 * block's first layer the running sum becomes an entry and starts anew with the
 * attention's output. */
static waste_status ares_layer(waste_pass *p, int layer, size_t *blocks)
{
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    const size_t h = (size_t)p->config->hidden, bytes = p->n * h * sizeof(float);
    const int opens = layer % p->config->ares_block == 0;
    waste_status st;

    memcpy(s->sum, s->x, bytes);
    if (*blocks) read_history(p, *blocks, s->sum, l->attn_res_norm, l->attn_res_proj);
    if (opens) memcpy(s->history + (*blocks)++ * (size_t)s->rows * h, s->sum, bytes);
    attention(p, layer);
    if (opens)
        memcpy(s->sum, s->out, bytes);
    else
        add(s->sum, s->out, p->n * h);
    read_history(p, *blocks, s->sum, l->ffn_res_norm, l->ffn_res_proj);
    st = feed_forward(p, layer);
    if (st) return st;
    add(s->sum, s->out, p->n * h);
    memcpy(s->x, s->sum, bytes);
    return WASTE_OK;
}

/* Positions of the chunk's rows, their rotary angles and embeddings. */
static waste_status begin(waste_pass *p)
{
    const waste_config *c = p->config;
    const int pairs = c->n_mla ? waste_rope_pairs(c) : 0;
    waste_scratch *s = p->s;
    waste_status st = WASTE_OK;
    size_t t;

    for (t = 0; t < p->n; t++) p->rows[t].seq->planned = p->rows[t].seq->length;
    for (t = 0; t < p->n && !st; t++) {
        const int64_t at = p->rows[t].seq->planned++;

        if (c->n_mla) s->position[t] = at;
        if (pairs) waste_rope_angles(p->weights->rope, pairs, at, s->turn + t * 2 * (size_t)pairs);
        st = waste_tensors_row(p->tensors, p->weights->embedding, p->rows[t].token,
                               s->x + t * (size_t)c->hidden, p->err);
    }
    return st;
}

/* Logits of the rows that want them. */
static void head(waste_pass *p)
{
    const size_t h = (size_t)p->config->hidden;
    waste_scratch *s = p->s;
    waste_matmul a = {
        .w = waste_weights_matrix(p->weights->head),
        .x = s->normed,
        .x_stride = h,
        .y_rows = s->logits,
        .decoded = s->decoded,
        .work = s->work,
    };
    size_t t;

    for (t = 0; t < p->n; t++) {
        if (!p->rows[t].logits) continue;
        waste_forward_norm(p, s->x + t * h, p->weights->norm, s->normed + a.n * h, 1, h, h);
        s->logits[a.n++] = p->rows[t].logits;
    }
    if (a.n) p->kernels->matmul(&a, 0, a.w.rows);
}

static waste_status chunk(waste_pass *p)
{
    const waste_config *c = p->config;
    size_t blocks = 0, t;
    waste_status st = begin(p);
    int i;

    for (i = 0; i < c->layers && !st; i++) {
        st = waste_forward_cancelled(p, i);
        if (st) return st;
        p->touched = 1;
        st = c->ares_block > 0 ? ares_layer(p, i, &blocks) : plain_layer(p, i);
    }
    if (st) return st;
    if (blocks)
        read_history(p, blocks, p->s->x, p->weights->out_res_norm, p->weights->out_res_proj);
    head(p);
    for (t = 0; t < p->n; t++) p->rows[t].seq->length++;
    return WASTE_OK;
}

waste_status waste_forward(waste_pass *p, const waste_row *rows, size_t n)
{
    const size_t most = (size_t)p->s->rows;
    waste_status st = WASTE_OK;

    for (; n && !st; rows += p->n, n -= p->n) {
        p->rows = rows;
        p->n = n < most ? n : most;
        st = chunk(p);
    }
    return st;
}
