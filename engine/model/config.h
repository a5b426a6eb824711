/* Shapes and switches of a model, bounded (docs/model.md 2, docs/format.md 2.5).
 * Nothing selects a family by name: each feature has its own key. */
#ifndef WASTE_CONFIG_H
#define WASTE_CONFIG_H

#include "store/manifest.h"

typedef struct waste_config {
    int layers, hidden, vocab;
    float eps;
    /* MLA */
    int heads, kv_rank, q_rank /* 0: direct */, nope_dim, rope_dim, v_dim;
    int rotate;   /* rotary position embedding in force */
    int out_gate; /* MLA output gate */
    double rope_base, rope_factor /* 1: plain */, rope_beta_fast, rope_beta_slow, rope_mscale_all,
        rope_original;
    /* KDA */
    unsigned char is_kda[WASTE_MAX_LAYERS];
    int n_kda, n_mla;
    int kda_heads, kda_dim, taps;
    int full_gate;    /* full-rank output gate */
    float gate_bound; /* < 0: bounded decay gate; >= 0: softplus gate */
    /* feed-forward */
    int experts, top_k, moe_width /* I */, shared_width /* I * max(1, shared) */, dense_layers,
        dense_width, latent /* 0: none */, latent_norm, renorm;
    int expert_in; /* W: latent, or hidden */
    float route_scale;
    int ares_block; /* Attention Residuals; 0: plain residual */
    int situ;
    float situ_beta, situ_linear_beta;
    int64_t eos; /* config.eos_token_id when a token of the vocabulary above 0, else -1 */
} waste_config;

/* Errors name manifest.json and the key; a value of the wrong type is an error,
 * null counts as absent. mla_use_nope has to be a boolean. The four switches
 * that count by being there (moe_renormalize, latent_moe_use_norm,
 * mla_use_output_gate, linear_attn_config.use_full_rank_gate) are off when they
 * say false or null, on with any other value. Rotary keys are looked at when a
 * layer rotates. Also checks what the manifest's parts
 * and the configuration say about each other: one bank per MoE layer with the
 * right count, record size and codebooks, widths that are multiples of vec_dim. */
waste_status waste_config_read(waste_config *c, const waste_manifest *m, waste_error *err);

static inline int waste_config_is_moe(const waste_config *c, int layer)
{
    return c->experts > 0 && layer >= c->dense_layers;
}

#endif
