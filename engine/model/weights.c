/* Names and shapes of the text model's tensors: see weights.h. Called once, on
 * the thread that opens the model. Dimensions come from the configuration and
 * every tensor is held against them, so that the pass needs no checks. */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/rope.h"

/* Resolving stops at the first failure; what follows is skipped. */
typedef struct resolver {
    waste_tensors *tensors;
    const waste_manifest *manifest;
    waste_error *err;
    waste_status st;
    uint64_t resident;
    int layer; /* -1: not of a layer */
    char name[320];
} resolver;

static const waste_trunk_entry *find(resolver *r, const char *name)
{
    int n;

    if (r->layer < 0)
        n = snprintf(r->name, sizeof r->name, "%s%s", r->manifest->prefix, name);
    else
        n = snprintf(r->name, sizeof r->name, "%smodel.layers.%d.%s", r->manifest->prefix, r->layer,
                     name);
    if (n < 0 || (size_t)n >= sizeof r->name) {
        r->st = waste_fail(r->err, WASTE_FORMAT, "manifest.json: tensor_prefix is too long");
        return NULL;
    }
    return waste_manifest_tensor(r->manifest, r->name);
}

static void matrix(resolver *r, const char *name, int64_t rows, int64_t cols,
                   const waste_tensor **slot)
{
    const waste_trunk_entry *e;

    if (r->st) return;
    e = find(r, name);
    if (!r->st) r->st = waste_tensors_matrix(r->tensors, r->name, rows, cols, 0, slot, r->err);
    if (!r->st && e) r->resident += e->payload_bytes + e->scale_bytes;
}

static void vector_of(resolver *r, const char *name, int64_t n, int exactly, const float **slot)
{
    const waste_trunk_entry *e;

    if (r->st) return;
    e = find(r, name);
    if (!r->st) r->st = waste_tensors_vector(r->tensors, r->name, n, exactly, slot, r->err);
    if (!r->st && e) r->resident += e->payload_bytes;
}

static void vector(resolver *r, const char *name, int64_t n, const float **slot)
{
    vector_of(r, name, n, 1, slot);
}

/* One row is read per token: a quantised table stays on disk. */
static void embedding(resolver *r, const waste_config *c, const waste_tensor **slot)
{
    const waste_trunk_entry *e;

    if (r->st) return;
    e = find(r, "model.embed_tokens.weight");
    if (!r->st)
        r->st = waste_tensors_matrix(r->tensors, r->name, c->vocab, c->hidden, 1, slot, r->err);
    if (!r->st && e && e->fmt == WASTE_FMT_F32) r->resident += e->payload_bytes;
}

static void kda(resolver *r, const waste_config *c, waste_layer *l)
{
    const int64_t h = c->hidden, d = c->kda_dim, n = (int64_t)c->kda_heads * d;

    matrix(r, "self_attn.q_proj.weight", n, h, &l->q);
    matrix(r, "self_attn.k_proj.weight", n, h, &l->k);
    matrix(r, "self_attn.v_proj.weight", n, h, &l->v);
    vector_of(r, "self_attn.q_conv1d.weight", n * c->taps, 0, &l->conv_q);
    vector_of(r, "self_attn.k_conv1d.weight", n * c->taps, 0, &l->conv_k);
    vector_of(r, "self_attn.v_conv1d.weight", n * c->taps, 0, &l->conv_v);
    matrix(r, "self_attn.f_a_proj.weight", d, h, &l->f_a);
    matrix(r, "self_attn.f_b_proj.weight", n, d, &l->f_b);
    matrix(r, "self_attn.b_proj.weight", c->kda_heads, h, &l->b);
    vector_of(r, "self_attn.A_log", c->kda_heads, 0, &l->a_log);
    vector_of(r, "self_attn.dt_bias", n, 0, &l->dt_bias);
    if (c->full_gate) {
        matrix(r, "self_attn.g_proj.weight", n, h, &l->g);
    } else {
        matrix(r, "self_attn.g_a_proj.weight", d, h, &l->g_a);
        matrix(r, "self_attn.g_b_proj.weight", n, d, &l->g_b);
    }
    vector(r, "self_attn.o_norm.weight", d, &l->o_norm);
    matrix(r, "self_attn.o_proj.weight", h, n, &l->o);
}

static void mla(resolver *r, const waste_config *c, waste_layer *l)
{
    const int64_t h = c->hidden, heads = c->heads;
    const int64_t q = heads * (c->nope_dim + c->rope_dim), v = heads * c->v_dim;

    if (c->q_rank > 0) {
        matrix(r, "self_attn.q_a_proj.weight", c->q_rank, h, &l->q_a);
        vector(r, "self_attn.q_a_layernorm.weight", c->q_rank, &l->q_a_norm);
        matrix(r, "self_attn.q_b_proj.weight", q, c->q_rank, &l->q_b);
    } else {
        matrix(r, "self_attn.q_proj.weight", q, h, &l->q);
    }
    matrix(r, "self_attn.kv_a_proj_with_mqa.weight", c->kv_rank + c->rope_dim, h, &l->kv_a);
    vector(r, "self_attn.kv_a_layernorm.weight", c->kv_rank, &l->kv_a_norm);
    matrix(r, "self_attn.kv_b_proj.weight", heads * (c->nope_dim + c->v_dim), c->kv_rank, &l->kv_b);
    if (c->out_gate) matrix(r, "self_attn.g_proj.weight", v, h, &l->g);
    matrix(r, "self_attn.o_proj.weight", h, v, &l->o);
}

static void moe(resolver *r, const waste_config *c, waste_layer *l)
{
    static const char bias[] = "block_sparse_moe.gate.e_score_correction_bias";
    const int64_t h = c->hidden, s = c->shared_width;

    matrix(r, "block_sparse_moe.gate.weight", c->experts, h, &l->router);
    if (!r->st && find(r, bias)) vector(r, bias, c->experts, &l->router_bias);
    matrix(r, "block_sparse_moe.shared_experts.gate_proj.weight", s, h, &l->ffn.gate);
    matrix(r, "block_sparse_moe.shared_experts.up_proj.weight", s, h, &l->ffn.up);
    matrix(r, "block_sparse_moe.shared_experts.down_proj.weight", h, s, &l->ffn.down);
    l->ffn.width = c->shared_width;
    if (c->latent > 0) {
        matrix(r, "block_sparse_moe.routed_expert_down_proj.weight", c->latent, h, &l->latent_down);
        matrix(r, "block_sparse_moe.routed_expert_up_proj.weight", h, c->latent, &l->latent_up);
        if (c->latent_norm)
            vector(r, "block_sparse_moe.routed_expert_norm.weight", c->latent, &l->latent_norm);
    }
}

static void dense(resolver *r, const waste_config *c, waste_layer *l)
{
    const int64_t h = c->hidden, f = c->dense_width;

    matrix(r, "mlp.gate_proj.weight", f, h, &l->ffn.gate);
    matrix(r, "mlp.up_proj.weight", f, h, &l->ffn.up);
    matrix(r, "mlp.down_proj.weight", h, f, &l->ffn.down);
    l->ffn.width = c->dense_width;
}

static void layer(resolver *r, const waste_config *c, int n, waste_layer *l)
{
    r->layer = n;
    vector(r, "input_layernorm.weight", c->hidden, &l->attn_norm);
    vector(r, "post_attention_layernorm.weight", c->hidden, &l->ffn_norm);
    if (c->ares_block > 0) {
        vector(r, "self_attention_res_norm.weight", c->hidden, &l->attn_res_norm);
        vector(r, "self_attention_res_proj.weight", c->hidden, &l->attn_res_proj);
        vector(r, "mlp_res_norm.weight", c->hidden, &l->ffn_res_norm);
        vector(r, "mlp_res_proj.weight", c->hidden, &l->ffn_res_proj);
    }
    if (c->is_kda[n])
        kda(r, c, l);
    else
        mla(r, c, l);
    if (waste_config_is_moe(c, n))
        moe(r, c, l);
    else
        dense(r, c, l);
    r->layer = -1;
}

waste_status waste_weights_open(waste_weights **out, waste_tensors *t, const waste_manifest *m,
                                const waste_config *c, waste_error *err)
{
    resolver r = {.tensors = t, .manifest = m, .err = err, .layer = -1};
    waste_weights *w = waste_mem_zero(sizeof *w);
    int i, pairs = waste_rope_pairs(c);
    float mscale;

    *out = NULL;
    if (w) w->rope = waste_mem_array((size_t)pairs + 1, sizeof *w->rope);
    if (!w || !w->rope) {
        waste_weights_close(w);
        return waste_fail(err, WASTE_NOMEM, "out of memory for the tensor handles");
    }
    mscale = waste_rope_table(c, w->rope);
    if (c->n_mla) w->mla_scale = (float)(mscale / sqrt((double)c->nope_dim + c->rope_dim));

    embedding(&r, c, &w->embedding);
    vector(&r, "model.norm.weight", c->hidden, &w->norm);
    matrix(&r, "lm_head.weight", c->vocab, c->hidden, &w->head);
    if (c->ares_block > 0) {
        vector(&r, "model.output_attn_res_norm.weight", c->hidden, &w->out_res_norm);
        vector(&r, "model.output_attn_res_proj.weight", c->hidden, &w->out_res_proj);
    }
    for (i = 0; i < c->layers && !r.st; i++) layer(&r, c, i, &w->layer[i]);
    if (r.st) {
        waste_weights_close(w);
        return r.st;
    }
    w->resident = r.resident;
    *out = w;
    return WASTE_OK;
}

void waste_weights_close(waste_weights *w)
{
    if (!w) return;
    waste_mem_free(w->packing.books);
    waste_mem_free(w->rope);
    waste_mem_free(w);
}
