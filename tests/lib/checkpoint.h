/* Small checkpoints for tests: a safetensors file built tensor by tensor, and
 * whole models of a few hundred KB. Values are noise from a fixed seed. */
#ifndef TEST_CHECKPOINT_H
#define TEST_CHECKPOINT_H

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "kernels/quant.h"
#include "lib/portable.h"

#define CKPT_BLOCK_ROWS 24 /* divides few of the shapes: tiles at the edges are cut */
#define CKPT_BLOCK_COLS 20

/* ---- directories ---------------------------------------------------------- */

static inline void test_dir(char *out)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(out, 256, "%s/waste-test-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(out)) abort();
}

static inline int test_dir_count(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    if (!d) return -1;
    while ((e = readdir(d)) != NULL) n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(d);
    return n;
}

/* A directory of plain files and such directories. */
static inline void test_dir_remove(const char *dir)
{
    char path[1024];
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= sizeof path) abort();
        if (unlink(path)) test_dir_remove(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}

static inline void test_write(const char *dir, const char *name, const void *data, size_t n)
{
    char path[1024];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
}

static inline void test_text(const char *dir, const char *name, const char *text)
{
    test_write(dir, name, text, strlen(text));
}

/* ---- one safetensors file --------------------------------------------------- */

typedef struct ckpt {
    waste_buf head, data;
    uint32_t seed;
    const char *skip; /* a tensor of this name is left out */
    const char *file; /* the tensors go into an index under this name; NULL: no index */
    waste_buf index;
} ckpt;

/* A file from header text and payload, whatever they say. */
static inline void test_safetensors(const char *dir, const char *name, const char *head,
                                    const void *payload, size_t n)
{
    waste_buf b = {0};
    uint64_t k = strlen(head);
    int i;

    for (i = 0; i < 8; i++) waste_buf_byte(&b, (char)(k >> 8 * i));
    waste_buf_text(&b, head);
    waste_buf_add(&b, payload, n);
    test_write(dir, name, b.data, b.len);
    waste_buf_clear(&b);
}

static inline float ckpt_noise(ckpt *c)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    return (float)(int32_t)c->seed * 0x1p-31f;
}

static inline void ckpt_name(ckpt *c, const char *name, const char *dtype, int dims,
                             const int *shape, size_t bytes)
{
    int i;

    if (c->file) {
        waste_buf_text(&c->index, c->index.len ? "," : "{\"weight_map\":{");
        waste_json_quote(&c->index, name, strlen(name));
        waste_buf_printf(&c->index, ":\"%s\"", c->file);
    }
    waste_buf_byte(&c->head, c->head.len ? ',' : '{');
    waste_json_quote(&c->head, name, strlen(name));
    waste_buf_printf(&c->head, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (i = 0; i < dims; i++) waste_buf_printf(&c->head, "%s%d", i ? "," : "", shape[i]);
    waste_buf_printf(&c->head, "],\"data_offsets\":[%zu,%zu]}", c->data.len, c->data.len + bytes);
}

/* dtype F32, F16, BF16, F8_E4M3 or F8_E5M2 (with name_scale_inv for blocks of
 * CKPT_BLOCK_ROWS x _COLS), or MXFP4 (the pair name_packed, name_scale); dims <= 4. */
static inline void ckpt_add(ckpt *c, const char *dtype, const char *name, int dims, int a, int b,
                            int d, int e)
{
    int shape[4] = {a, b, d, e}, i;
    size_t n = 1, k;
    char part[544];

    for (i = 0; i < dims; i++) n *= (size_t)shape[i];
    if (c->skip && strcmp(c->skip, name) == 0) return;
    if (strcmp(dtype, "MXFP4") == 0) {
        int packed[2] = {a, b / 2}, scale[2] = {a, b / 32};
        snprintf(part, sizeof part, "%s_packed", name);
        ckpt_name(c, part, "U8", 2, packed, n / 2);
        for (k = 0; k < n / 2; k++) waste_buf_byte(&c->data, (char)(ckpt_noise(c) * 127));
        snprintf(part, sizeof part, "%s_scale", name);
        ckpt_name(c, part, "U8", 2, scale, n / 32);
        for (k = 0; k < n / 32; k++) waste_buf_byte(&c->data, (char)(120 + k % 4));
        return;
    }
    if (strncmp(dtype, "F8_", 3) == 0) {
        int scale[2] = {(a + CKPT_BLOCK_ROWS - 1) / CKPT_BLOCK_ROWS,
                        (b + CKPT_BLOCK_COLS - 1) / CKPT_BLOCK_COLS};
        ckpt_name(c, name, dtype, 2, shape, n);
        for (k = 0; k < n; k++) { /* neither infinite nor NaN: exponents stay below the top */
            unsigned u = (unsigned)((ckpt_noise(c) + 1) * 127.99f) & 0xBF;
            waste_buf_byte(&c->data, (char)u);
        }
        snprintf(part, sizeof part, "%s_scale_inv", name);
        if (c->skip && strcmp(c->skip, part) == 0) return;
        ckpt_name(c, part, "F32", 2, scale, 4 * (size_t)scale[0] * (size_t)scale[1]);
        for (k = 0; k < (size_t)scale[0] * (size_t)scale[1]; k++) {
            float f = 0.01f * (float)(1 + k % 7);
            waste_buf_add(&c->data, &f, 4);
        }
        return;
    }
    ckpt_name(c, name, dtype, dims, shape, n * (strcmp(dtype, "F32") == 0 ? 4 : 2));
    for (k = 0; k < n; k++) {
        float f = ckpt_noise(c);
        uint32_t u;
        uint16_t h;
        memcpy(&u, &f, sizeof u);
        if (strcmp(dtype, "F16") == 0) {
            h = waste_f32_to_f16(f);
            waste_buf_add(&c->data, &h, 2);
        } else if (strcmp(dtype, "F32") == 0)
            waste_buf_add(&c->data, &u, 4);
        else
            waste_buf_add(&c->data, (char *)&u + 2, 2); /* bf16, little-endian */
    }
}

static inline void ckpt_save(ckpt *c, const char *dir, const char *name)
{
    waste_buf_byte(&c->head, '}');
    test_safetensors(dir, name, c->head.data, c->data.data, c->data.len);
    waste_buf_clear(&c->head);
    waste_buf_clear(&c->data);
}

/* ---- whole models ------------------------------------------------------------ */

enum {
    CKPT_DEEPSEEK = 1, /* names and config keys of DeepSeek, MLA only, an MTP block */
    CKPT_NESTED = 2,   /* text_config, language_model., a vision tower */
    CKPT_TIED = 4,     /* no lm_head */
    CKPT_PACKED = 8,   /* experts in MXFP4 */
    CKPT_FP8 = 16,     /* all matrices but router, embedding and head in F8_E4M3 */
    CKPT_SHARDS = 32   /* three files and an index */
};

#define CKPT_LAYERS  3 /* dense, then two of experts */
#define CKPT_EXPERTS 4
#define CKPT_HIDDEN  32
#define CKPT_VOCAB   2048 /* * hidden = 65536: Q8G */
#define CKPT_DENSE   2080 /* * hidden > 65536: trunk width */
#define CKPT_WIDTH   64   /* of an expert */

static inline void ckpt_model(const char *dir, int flags, const char *skip)
{
    const char *p = flags & CKPT_NESTED ? "language_model." : "";
    const char *moe = flags & CKPT_DEEPSEEK ? "mlp" : "block_sparse_moe";
    static const char *const kind[2][3] = {{"w1", "w3", "w2"},
                                           {"gate_proj", "up_proj", "down_proj"}};
    const char *const *w = kind[flags & CKPT_DEEPSEEK ? 1 : 0];
    const int H = CKPT_HIDDEN, W = CKPT_WIDTH;
    int layers = CKPT_LAYERS + (flags & CKPT_DEEPSEEK ? 1 : 0), l, e;
    const char *M = flags & CKPT_FP8 ? "F8_E4M3" : "BF16";
    char n[512], text[4096];
    ckpt c = {{0}, {0}, 7, skip, NULL, {0}};

    if (flags & CKPT_SHARDS) c.file = "model-1.safetensors";

#define ADD(dtype, dims, a, b, d, ...) \
    (snprintf(n, sizeof n, __VA_ARGS__), ckpt_add(&c, dtype, n, dims, a, b, d, 1))
    ADD("BF16", 2, CKPT_VOCAB, H, 1, "%smodel.embed_tokens.weight", p);
    ADD("BF16", 1, H, 1, 1, "%smodel.norm.weight", p);
    if (!(flags & CKPT_TIED)) ADD("BF16", 2, CKPT_VOCAB, H, 1, "%slm_head.weight", p);
    for (l = 0; l < layers; l++) {
        char at[128];
        if (c.file && l > 0 && l < 3) { /* a shard a layer; what is behind them in the last */
            ckpt_save(&c, dir, c.file);
            c.file = l == 1 ? "model-2.safetensors" : "model-3.safetensors";
        }
        snprintf(at, sizeof at, "%smodel.layers.%d.", p, l);
        ADD("F32", 1, H, 1, 1, "%sinput_layernorm.weight", at);
        ADD("F32", 1, H, 1, 1, "%spost_attention_layernorm.weight", at);
        if (l % 2 == 0 && !(flags & CKPT_DEEPSEEK)) {
            const char *const qkv[] = {"q", "k", "v"};
            for (e = 0; e < 3; e++) {
                ADD("BF16", 2, 16, H, 1, "%sself_attn.%s_proj.weight", at, qkv[e]);
                ADD("F32", 3, 16, 1, 4, "%sself_attn.%s_conv1d.weight", at, qkv[e]);
            }
            ADD("BF16", 2, 8, H, 1, "%sself_attn.f_a_proj.weight", at);
            ADD("BF16", 2, 16, 8, 1, "%sself_attn.f_b_proj.weight", at);
            ADD("BF16", 2, 2, H, 1, "%sself_attn.b_proj.weight", at);
            ADD("F32", 1, 2, 1, 1, "%sself_attn.A_log", at);
            ADD("F32", 1, 16, 1, 1, "%sself_attn.dt_bias", at);
            ADD("BF16", 2, 8, H, 1, "%sself_attn.g_a_proj.weight", at);
            ADD("BF16", 2, 16, 8, 1, "%sself_attn.g_b_proj.weight", at);
            ADD("F32", 1, 8, 1, 1, "%sself_attn.o_norm.weight", at);
            ADD(M, 2, H, 16, 1, "%sself_attn.o_proj.weight", at);
        } else {
            ADD(M, 2, 2 * 16, H, 1, "%sself_attn.q_proj.weight", at);
            ADD(M, 2, 16 + 8, H, 1, "%sself_attn.kv_a_proj_with_mqa.weight", at);
            ADD("F32", 1, 16, 1, 1, "%sself_attn.kv_a_layernorm.weight", at);
            ADD(M, 2, 2 * 16, 16, 1, "%sself_attn.kv_b_proj.weight", at);
            ADD(M, 2, H, 2 * 8, 1, "%sself_attn.o_proj.weight", at);
        }
        if (l == 0) {
            ADD(M, 2, CKPT_DENSE, H, 1, "%smlp.gate_proj.weight", at);
            ADD(M, 2, CKPT_DENSE, H, 1, "%smlp.up_proj.weight", at);
            ADD(M, 2, H, CKPT_DENSE, 1, "%smlp.down_proj.weight", at);
            continue;
        }
        ADD("BF16", 2, CKPT_EXPERTS, H, 1, "%s%s.gate.weight", at, moe);
        ADD("F32", 1, CKPT_EXPERTS, 1, 1, "%s%s.gate.e_score_correction_bias", at, moe);
        ADD(M, 2, W, H, 1, "%s%s.shared_experts.gate_proj.weight", at, moe);
        ADD(M, 2, W, H, 1, "%s%s.shared_experts.up_proj.weight", at, moe);
        ADD(M, 2, H, W, 1, "%s%s.shared_experts.down_proj.weight", at, moe);
        for (e = 0; e < CKPT_EXPERTS; e++) {
            const char *dtype = flags & CKPT_PACKED ? "MXFP4" : M;
            ADD(dtype, 2, W, H, 1, "%s%s.experts.%d.%s.weight", at, moe, e, w[0]);
            ADD(dtype, 2, W, H, 1, "%s%s.experts.%d.%s.weight", at, moe, e, w[1]);
            ADD(dtype, 2, H, W, 1, "%s%s.experts.%d.%s.weight", at, moe, e, w[2]);
        }
    }
#undef ADD
    if (flags & CKPT_NESTED) {
        ckpt_add(&c, "BF16", "vision_tower.patch_embed.proj.weight", 4, 128, 3, 14, 14);
        ckpt_add(&c, "BF16", "vision_tower.patch_embed.pos_emb.weight", 3, 32, 32, 128, 1);
        ckpt_add(&c, "BF16", "mm_projector.post_norm.weight", 1, H, 1, 1, 1);
    }
    ckpt_save(&c, dir, c.file ? c.file : "model.safetensors");
    if (c.file) {
        waste_buf_text(&c.index, "}}");
        test_write(dir, "model.safetensors.index.json", c.index.data, c.index.len);
        waste_buf_clear(&c.index);
    }

    snprintf(text, sizeof text,
             "%s\"architectures\":[\"%s\"],\"num_hidden_layers\":%d,\"hidden_size\":%d,"
             "\"vocab_size\":%d,\"rms_norm_eps\":1e-05,\"num_attention_heads\":2,"
             "\"kv_lora_rank\":16,\"q_lora_rank\":null,\"qk_nope_head_dim\":8,"
             "\"qk_rope_head_dim\":8,\"v_head_dim\":8,\"mla_use_nope\":true,"
             "%s\"first_k_dense_replace\":1,\"intermediate_size\":%d,"
             "\"moe_intermediate_size\":%d,\"tie_word_embeddings\":%s,%s%s}%s",
             flags & CKPT_NESTED ? "{\"architectures\":[\"KimiK3ForConditionalGeneration\"],"
                                   "\"media_placeholder_token_id\":9,\"vision_config\":{"
                                   "\"vt_hidden_size\":128,\"patch_size\":14,\"_private\":1},"
                                   "\"text_config\":{"
                                 : "{",
             flags & CKPT_DEEPSEEK ? "DeepseekV3ForCausalLM" : "KimiLinearForCausalLM", CKPT_LAYERS,
             CKPT_HIDDEN, CKPT_VOCAB,
             flags & CKPT_DEEPSEEK
                 ? "\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"n_shared_experts\":1,"
                   "\"norm_topk_prob\":true,"
                 : "\"num_experts\":4,\"num_experts_per_token\":2,\"num_shared_experts\":1,"
                   "\"moe_renormalize\":true,\"latent_moe_use_norm\":false,",
             CKPT_DENSE, CKPT_WIDTH, flags & CKPT_TIED ? "true" : "false",
             flags & CKPT_FP8 ? "\"quantization_config\":{\"quant_method\":\"fp8\","
                                "\"weight_block_size\":[24,20]},"
                              : "",
             flags & CKPT_DEEPSEEK ? "\"rope_theta\":10000"
                                   : "\"linear_attn_config\":{\"num_heads\":2,\"head_dim\":8,"
                                     "\"short_conv_kernel_size\":4,\"kda_layers\":[1,3]}",
             flags & CKPT_NESTED ? "}" : "");
    test_text(dir, "config.json", text);
}

#endif
