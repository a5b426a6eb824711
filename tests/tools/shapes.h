/* The shapes of the models that random containers imitate, and their configuration
 * as a manifest states it (docs/format.md). Included by one program each. */
#ifndef TOOLS_SHAPES_H
#define TOOLS_SHAPES_H

#include "base/buf.h"
#include "store/manifest.h"

#define HEAD_DIM 128 /* of KDA, MLA keys without rotation, MLA values */
#define ROPE_DIM 64
#define KV_RANK  512
#define TAPS     4

typedef struct shape {
    const char *name, *prefix, *arch;
    int k3; /* latent experts, AttnRes, SiTU, bounded full-rank gate, output gate */
    int layers, experts, top_k, shared, vocab;
    int hidden, dense, moe, latent, heads, q_rank;
    double route_scale;
    double topic[3], bias, gain; /* see the head; gain: of what writes to the residual */
} shape;

static const shape preset[] = {
    {.name = "kimi-linear-48b",
     .prefix = "",
     .arch = "kimi-linear",
     .layers = 27,
     .experts = 256,
     .top_k = 8,
     .shared = 1,
     .vocab = 163840,
     .hidden = 2304,
     .dense = 9216,
     .moe = 1024,
     .heads = 32,
     .route_scale = 2.446,
     .topic = {0.30, 0.48, 0.22},
     .bias = 0.115,
     .gain = 0.14},
    {.name = "k3-slice",
     .prefix = "language_model.",
     .arch = "kimi-k3",
     .k3 = 1,
     .layers = 3,
     .experts = 896,
     .top_k = 16,
     .shared = 2,
     .vocab = 163840,
     .hidden = 7168,
     .dense = 33792,
     .moe = 3072,
     .latent = 3584,
     .heads = 96,
     .q_rank = 1536,
     .route_scale = 1.0,
     .topic = {0.47, 0.40, 0.13},
     .bias = 0.14,
     .gain = 0.25},
    /* K3's attention in all 93 layers, so a sequence of its true size, and all else small */
    {.name = "k3-state",
     .prefix = "language_model.",
     .arch = "kimi-k3",
     .k3 = 1,
     .layers = 93,
     .experts = 4,
     .top_k = 2,
     .shared = 1,
     .vocab = 1024,
     .hidden = 128,
     .dense = 128,
     .moe = 128,
     .latent = 128,
     .heads = 96,
     .q_rank = 128,
     .route_scale = 1.0,
     .topic = {0.47, 0.40, 0.13},
     .bias = 0.14,
     .gain = 0.25},
};

typedef struct expert_format {
    const char *option, *name;
    waste_quant quant;
    waste_fmt fmt;
    double bits, stage[4]; /* standard deviations of the codebooks */
} expert_format;

static const expert_format formats[] = {
    {"3r", "VQ3R", {3, 8, 256, 64, 8, 3}, WASTE_FMT_VQ3R, 3, {0.30, 0.12, 0.05}},
    {"2r", "VQ2R", {2, 8, 256, 64, 8, 2}, WASTE_FMT_VQ2R, 2, {0.30, 0.12}},
    {"4p", "VQ4P", {4, 8, 64, 64, 6, 3}, WASTE_FMT_VQ4P, 3, {0.30, 0.16, 0.09, 0.05}},
};

/* 1-based, as configurations count. Three KDA layers, then one of MLA; both real
 * models end with MLA, and so does a slice too short for the fourth. */
static int shape_is_mla(const shape *s, int number)
{
    return number % 4 == 0 || (number == s->layers && (number == 27 || number == 93 || number < 4));
}

static void shape_layers(waste_buf *b, const shape *s, int mla_ones)
{
    const char *comma = "";
    int i;

    for (i = 1; i <= s->layers; i++)
        if (shape_is_mla(s, i) == mla_ones) {
            waste_buf_printf(b, "%s%d", comma, i);
            comma = ",";
        }
}

static void shape_config(waste_buf *b, const shape *s)
{
    waste_buf_printf(
        b,
        "{\"model_type\":\"kimi_linear\",\"architectures\":[\"KimiLinearForCausalLM\"],\n"
        "\"hidden_size\":%d,\"num_hidden_layers\":%d,\"first_k_dense_replace\":1,\n"
        "\"intermediate_size\":%d,\"moe_intermediate_size\":%d,\"num_experts\":%d,\n"
        "\"num_experts_per_token\":%d,\"num_shared_experts\":%d,\"moe_renormalize\":true,\n"
        "\"routed_scaling_factor\":%g,\"num_attention_heads\":%d,\"qk_nope_head_dim\":%d,\n"
        "\"qk_rope_head_dim\":%d,\"v_head_dim\":%d,\"kv_lora_rank\":%d,\"q_lora_rank\":%d,\n"
        "\"mla_use_nope\":true,\"rms_norm_eps\":1e-5,\"vocab_size\":%d,\n"
        "\"hidden_act\":\"%s\",\n",
        s->hidden, s->layers, s->dense, s->moe, s->experts, s->top_k, s->shared, s->route_scale,
        s->heads, HEAD_DIM, ROPE_DIM, HEAD_DIM, KV_RANK, s->q_rank, s->vocab,
        s->k3 ? "situ" : "silu");
    if (s->k3)
        waste_buf_printf(b,
                         "\"activation_situ_beta\":4.0,\"activation_situ_linear_beta\":25.0,\n"
                         "\"routed_expert_hidden_size\":%d,\"latent_moe_use_norm\":true,\n"
                         "\"attn_res_block_size\":%d,\"mla_use_output_gate\":true,\n"
                         "\"_outer\":{\"architectures\":[\"KimiK3ForConditionalGeneration\"]},\n",
                         s->latent, s->layers < 12 ? s->layers : 12);
    waste_buf_printf(b,
                     "\"linear_attn_config\":{\"head_dim\":%d,\"num_heads\":%d,"
                     "\"short_conv_kernel_size\":%d,%s\n\"kda_layers\":[",
                     HEAD_DIM, s->heads, TAPS,
                     s->k3 ? "\"use_full_rank_gate\":true,\"gate_lower_bound\":-5.0," : "");
    shape_layers(b, s, 0);
    waste_buf_text(b, "],\"full_attn_layers\":[");
    shape_layers(b, s, 1);
    waste_buf_text(b, "]}}");
}

#endif
