/* Whole models of a few hundred KB, random but the same on every machine, for
 * tests that run the forward pass. */
#ifndef MODEL_FILES_H
#define MODEL_FILES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "kernels/quant.h"
#include "lib/portable.h"
#include "store/record.h"

typedef enum model_kind {
    MODEL_K3,    /* latent MoE, Attention Residuals, SiTU, bounded full-rank gate */
    MODEL_PLAIN, /* plain residual, SiLU, softplus low-rank gate, YaRN, packed indices */
    MODEL_KDA    /* no MLA layer, no experts */
} model_kind;

#define MODEL_PATH    512
#define MODEL_VOCAB   40
#define MODEL_LAYERS  4
#define MODEL_EXPERTS 6
#define MODEL_HIDDEN  32
#define MODEL_WIDTH   16    /* of an expert */
#define MODEL_LATENT  264   /* its inputs, with a latent: too many for narrow experts' form */
#define MODEL_RECORD  16384 /* bytes of an expert with a latent */

typedef struct model_files {
    char dir[MODEL_PATH];
    const char *skip; /* this tensor is left out */
    const char *cut;  /* this tensor has a row too few */
    model_kind kind;
    uint64_t random;
    waste_buf index; /* the manifest's "trunk" */
    FILE *trunk;
    int n;
} model_files;

/* -1..1 */
static inline float model_random(model_files *f)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(f->random >> 32)) * 0x1p-31f;
}

static inline FILE *model_file(const model_files *f, const char *name, const char *mode)
{
    char path[MODEL_PATH + 64];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

static inline void model_put(FILE *f, const void *p, size_t n)
{
    assert_int_equal(fwrite(p, 1, n, f), n);
}

static inline const char *model_prefix(const model_files *f)
{
    return f->kind == MODEL_K3 ? "language_model." : "";
}

static inline void model_entry(model_files *f, const char *name, int fmt, int rows, int cols)
{
    waste_buf_printf(&f->index, "%s{\"name\": \"%s%s\", \"fmt\": %d, \"group\": 16, \"off\": %ld,",
                     f->n++ ? ",\n" : "", model_prefix(f), name, fmt, ftell(f->trunk));
    if (cols)
        waste_buf_printf(&f->index, " \"shape\": [%d, %d]", rows, cols);
    else
        waste_buf_printf(&f->index, " \"shape\": [%d]", rows);
}

/* mean + spread * -1..1 */
static inline void model_vector(model_files *f, const char *name, int n, float mean, float spread)
{
    int i;

    if (f->skip && !strcmp(name, f->skip)) return;
    if (f->cut && !strcmp(name, f->cut)) n--;
    model_entry(f, name, WASTE_FMT_F32, n, 0);
    waste_buf_text(&f->index, "}");
    for (i = 0; i < n; i++) {
        float v = mean + spread * model_random(f);
        model_put(f->trunk, &v, sizeof v);
    }
}

/* Each matrix takes the next of the four trunk formats. */
static inline void model_matrix(model_files *f, const char *name, int rows, int cols)
{
    static const waste_fmt formats[] = {WASTE_FMT_Q8G, WASTE_FMT_Q4G, WASTE_FMT_F32, WASTE_FMT_Q3G};
    const waste_fmt fmt = formats[f->n % 4];
    const int groups = (cols + 15) / 16;
    const size_t row_bytes = (size_t)waste_quant_row_bytes(fmt, cols, 16);
    unsigned char *row = calloc(1, row_bytes);
    uint16_t *scales = calloc((size_t)rows * (size_t)groups, sizeof *scales);
    float *w = calloc((size_t)cols, sizeof *w);
    int r, i;

    if (f->cut && !strcmp(name, f->cut)) rows--;
    if (!f->skip || strcmp(name, f->skip)) {
        model_entry(f, name, fmt, rows, cols);
        for (r = 0; r < rows; r++) {
            for (i = 0; i < cols; i++) w[i] = 1.7f / sqrtf((float)cols) * model_random(f);
            if (fmt == WASTE_FMT_F32)
                memcpy(row, w, row_bytes);
            else
                waste_quant_encode_row(fmt, w, cols, 16, row, scales + r * groups);
            model_put(f->trunk, row, row_bytes);
        }
        if (fmt != WASTE_FMT_F32) {
            waste_buf_printf(&f->index, ", \"scale_off\": %ld", ftell(f->trunk));
            model_put(f->trunk, scales, (size_t)(rows * groups) * sizeof *scales);
        }
        waste_buf_text(&f->index, "}");
    }
    free(row);
    free(scales);
    free(w);
}

static inline int model_is_kda(const model_files *f, int layer)
{
    return f->kind == MODEL_KDA || layer == 0 || layer == (f->kind == MODEL_K3 ? 2 : 1);
}

static inline void model_attention(model_files *f, int layer)
{
    char a[64], n[128];
    const int h = MODEL_HIDDEN, k3 = f->kind == MODEL_K3;

#define NAME(s) (snprintf(n, sizeof n, "%s%s", a, s), n)
    snprintf(a, sizeof a, "model.layers.%d.self_attn.", layer);
    if (model_is_kda(f, layer)) { /* 3 heads of 8 */
        model_matrix(f, NAME("q_proj.weight"), 24, h);
        model_matrix(f, NAME("k_proj.weight"), 24, h);
        model_matrix(f, NAME("v_proj.weight"), 24, h);
        model_vector(f, NAME("q_conv1d.weight"), 24 * 4, 0, 0.6f);
        model_vector(f, NAME("k_conv1d.weight"), 24 * 4, 0, 0.6f);
        model_vector(f, NAME("v_conv1d.weight"), 24 * 4, 0, 0.6f);
        model_matrix(f, NAME("f_a_proj.weight"), 8, h);
        model_matrix(f, NAME("f_b_proj.weight"), 24, 8);
        model_matrix(f, NAME("b_proj.weight"), 3, h);
        model_vector(f, NAME("A_log"), k3 ? 5 : 3, 0, 1); /* padded on K3 */
        model_vector(f, NAME("dt_bias"), 24, -1, 1);
        if (k3) {
            model_matrix(f, NAME("g_proj.weight"), 24, h);
        } else {
            model_matrix(f, NAME("g_a_proj.weight"), 8, h);
            model_matrix(f, NAME("g_b_proj.weight"), 24, 8);
        }
        model_vector(f, NAME("o_norm.weight"), 8, 1, 0.3f);
        model_matrix(f, NAME("o_proj.weight"), h, 24);
        return;
    }
    if (k3) { /* 2 heads of 8 + 4, values of 8 */
        model_matrix(f, NAME("q_a_proj.weight"), 12, h);
        model_vector(f, NAME("q_a_layernorm.weight"), 12, 1, 0.3f);
        model_matrix(f, NAME("q_b_proj.weight"), 24, 12);
        model_matrix(f, NAME("g_proj.weight"), 16, h);
    } else {
        model_matrix(f, NAME("q_proj.weight"), 24, h);
    }
    model_matrix(f, NAME("kv_a_proj_with_mqa.weight"), 16 + 4, h);
    model_vector(f, NAME("kv_a_layernorm.weight"), 16, 1, 0.3f);
    model_matrix(f, NAME("kv_b_proj.weight"), 2 * (8 + 8), 16);
    model_matrix(f, NAME("o_proj.weight"), h, 16);
}

static inline void model_layer(model_files *f, int layer)
{
    char a[64], n[128];
    const int h = MODEL_HIDDEN, k3 = f->kind == MODEL_K3;

    snprintf(a, sizeof a, "model.layers.%d.", layer);
    model_vector(f, NAME("input_layernorm.weight"), h, 1, 0.3f);
    model_vector(f, NAME("post_attention_layernorm.weight"), h, 1, 0.3f);
    if (k3) {
        model_vector(f, NAME("self_attention_res_norm.weight"), h, 1, 0.3f);
        model_vector(f, NAME("self_attention_res_proj.weight"), h, 0, 0.5f);
        model_vector(f, NAME("mlp_res_norm.weight"), h, 1, 0.3f);
        model_vector(f, NAME("mlp_res_proj.weight"), h, 0, 0.5f);
    }
    model_attention(f, layer);
    if (layer == 0 || f->kind == MODEL_KDA) {
        model_matrix(f, NAME("mlp.gate_proj.weight"), 48, h);
        model_matrix(f, NAME("mlp.up_proj.weight"), 48, h);
        model_matrix(f, NAME("mlp.down_proj.weight"), h, 48);
        return;
    }
    snprintf(a, sizeof a, "model.layers.%d.block_sparse_moe.", layer);
    model_matrix(f, NAME("gate.weight"), MODEL_EXPERTS, h);
    model_vector(f, NAME("gate.e_score_correction_bias"), MODEL_EXPERTS, 0, 0.1f);
    model_matrix(f, NAME("shared_experts.gate_proj.weight"), MODEL_WIDTH, h);
    model_matrix(f, NAME("shared_experts.up_proj.weight"), MODEL_WIDTH, h);
    model_matrix(f, NAME("shared_experts.down_proj.weight"), h, MODEL_WIDTH);
    if (k3) {
        model_matrix(f, NAME("routed_expert_down_proj.weight"), MODEL_LATENT, h);
        model_matrix(f, NAME("routed_expert_up_proj.weight"), h, MODEL_LATENT);
        model_vector(f, NAME("routed_expert_norm.weight"), MODEL_LATENT, 1, 0.3f);
    }
#undef NAME
}

static inline waste_quant model_quant(const model_files *f)
{
    const waste_quant three = {3, 8, 256, 64, 8, 3}, packed = {4, 8, 64, 64, 6, 3};

    return f->kind == MODEL_PLAIN ? packed : three;
}

static inline uint64_t model_bank(model_files *f, int layer, int input)
{
    const waste_quant q = model_quant(f);
    const int books = 3 * q.stages * (layer - 1), rows = 2 * MODEL_WIDTH + input;
    waste_record_layout at;
    waste_record_header h;
    unsigned char *record;
    char name[32];
    FILE *file;
    uint64_t i;
    int e;

    waste_record_layout_of(&at, &q, MODEL_WIDTH, input);
    record = malloc((size_t)at.bytes);
    snprintf(name, sizeof name, "experts-L%d.bin", layer);
    file = model_file(f, name, "wb");
    for (e = 0; e < MODEL_EXPERTS; e++) {
        memset(record, 0, (size_t)at.bytes);
        for (i = WASTE_RECORD_HEADER; i < at.scale_off; i++)
            record[i] = (unsigned char)(int)(128 + 127 * model_random(f));
        for (i = 0; i < (uint64_t)rows; i++) {
            uint16_t s = waste_f32_to_f16(0.25f + 0.1f * model_random(f));
            memcpy(record + at.scale_off + 2 * i, &s, sizeof s);
        }
        memset(&h, 0, sizeof h);
        h.magic = WASTE_EXPERT_MAGIC;
        h.layer = (uint16_t)layer;
        h.expert = (uint16_t)e;
        h.fmt = q.index_bits == 6 ? WASTE_FMT_VQ4P : WASTE_FMT_VQ3R;
        h.codebook = (uint16_t)books;
        h.blocks = (uint32_t)(at.bytes / WASTE_RECORD_ALIGN);
        h.gate_off = (uint32_t)at.gate_off;
        h.up_off = (uint32_t)at.up_off;
        h.down_off = (uint32_t)at.down_off;
        h.scale_off = (uint32_t)at.scale_off;
        h.crc32 = waste_record_crc(record, &at);
        memcpy(record, &h, sizeof h);
        model_put(file, record, (size_t)at.bytes);
    }
    free(record);
    assert_int_equal(fclose(file), 0);
    return MODEL_EXPERTS * at.bytes;
}

static inline void model_codebooks(model_files *f, int layers)
{
    const waste_quant q = model_quant(f);
    FILE *file = model_file(f, "codebooks.bin", "wb");
    int id, i;

    for (id = 0; id < 3 * q.stages * layers; id++) {
        waste_codebook_header h = {WASTE_CODEBOOK_MAGIC, (uint16_t)id,        WASTE_FMT_VQ3R,
                                   (uint8_t)q.vec_dim,   (uint32_t)q.entries, 0};
        model_put(file, &h, sizeof h);
        for (i = 0; i < q.entries * q.vec_dim; i++) {
            uint16_t v = waste_f32_to_f16(model_random(f));
            model_put(file, &v, sizeof v);
        }
    }
    assert_int_equal(fclose(file), 0);
}

static const char model_config_k3[] =
    "\"first_k_dense_replace\": 1, \"num_experts\": 6, \"num_experts_per_token\": 2,\n"
    " \"moe_intermediate_size\": 16, \"num_shared_experts\": 1, \"moe_renormalize\": true,\n"
    " \"routed_expert_hidden_size\": 264, \"latent_moe_use_norm\": true,\n"
    " \"attn_res_block_size\": 2, \"hidden_act\": \"situ\", \"activation_situ_beta\": 4,\n"
    " \"activation_situ_linear_beta\": 25, \"mla_use_output_gate\": true, \"q_lora_rank\": 12,\n"
    " \"mla_use_nope\": true, \"linear_attn_config\": {\"kda_layers\": [1, 3], \"num_heads\": 3,"
    " \"head_dim\": 8, \"use_full_rank_gate\": true, \"gate_lower_bound\": -5}";
static const char model_config_plain[] =
    "\"first_k_dense_replace\": 1, \"num_experts\": 6, \"num_experts_per_token\": 2,\n"
    " \"moe_intermediate_size\": 16, \"routed_scaling_factor\": 2.446, \"rope_theta\": 10000,\n"
    " \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"mscale\": 1, \"mscale_all_dim\": 1,"
    " \"original_max_position_embeddings\": 64}, \"linear_attn_config\": {\"kda_layers\": [1, 2],"
    " \"num_heads\": 3, \"head_dim\": 8}";
static const char model_config_kda[] =
    "\"linear_attn_config\": {\"kda_layers\": [1, 2, 3, 4], \"num_heads\": 3, \"head_dim\": 8}";

/* Writes a model into a new directory below the build folder. */
static inline void model_write_but(model_files *f, model_kind kind, const char *skip,
                                   const char *cut)
{
    static const char *const config[] = {model_config_k3, model_config_plain, model_config_kda};
    const int input = kind == MODEL_K3 ? MODEL_LATENT : MODEL_HIDDEN;
    waste_buf layers = {0};
    FILE *m;
    int i;

    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->skip = skip;
    f->cut = cut;
    f->random = 7;
    snprintf(f->dir, sizeof f->dir, "%s/tests/unit/model-XXXXXX", TEST_BUILD);
    assert_non_null(mkdtemp(f->dir));
    f->trunk = model_file(f, "trunk.bin", "wb");
    model_matrix(f, "model.embed_tokens.weight", MODEL_VOCAB, MODEL_HIDDEN);
    model_matrix(f, "lm_head.weight", MODEL_VOCAB, MODEL_HIDDEN);
    model_vector(f, "model.norm.weight", MODEL_HIDDEN, 1, 0.3f);
    if (kind == MODEL_K3) {
        model_vector(f, "model.output_attn_res_norm.weight", MODEL_HIDDEN, 1, 0.3f);
        model_vector(f, "model.output_attn_res_proj.weight", MODEL_HIDDEN, 0, 0.5f);
    }
    for (i = 0; i < MODEL_LAYERS; i++) model_layer(f, i);
    assert_int_equal(fclose(f->trunk), 0);

    for (i = 1; i < MODEL_LAYERS && kind != MODEL_KDA; i++)
        waste_buf_printf(&layers,
                         "%s\"%d\": {\"file\": \"experts-L%d.bin\", \"experts\": 6,"
                         " \"bytes\": %llu, \"codebook_base\": %d}",
                         i > 1 ? ", " : "", i, i, (unsigned long long)model_bank(f, i, input),
                         3 * model_quant(f).stages * (i - 1));
    model_codebooks(f, kind == MODEL_KDA ? 0 : MODEL_LAYERS - 1);
    m = model_file(f, "manifest.json", "wb");
    fprintf(m,
            "{\"format_version\": 0, \"tensor_prefix\": \"%s\", \"config\": {"
            "\"num_hidden_layers\": 4, \"hidden_size\": 32, \"vocab_size\": 40,\n"
            " \"intermediate_size\": 48, \"num_attention_heads\": 2, \"kv_lora_rank\": 16,\n"
            " \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8,\n %s},\n"
            "\"expert_quant\": {\"stages\": %d, \"vec_dim\": 8, \"entries\": %d,"
            " \"index_block\": 64, \"index_bits\": %d},\n\"layers\": {%s},\n\"trunk\": [%s]}\n",
            model_prefix(f), config[kind], model_quant(f).stages, model_quant(f).entries,
            model_quant(f).index_bits, layers.len ? layers.data : "", f->index.data);
    assert_int_equal(fclose(m), 0);
    waste_buf_clear(&layers);
    waste_buf_clear(&f->index);
}

static inline void model_write(model_files *f, model_kind kind)
{
    model_write_but(f, kind, NULL, NULL);
}

static inline void model_remove(const model_files *f)
{
    static const char *const names[] = {"manifest.json",  "trunk.bin",      "codebooks.bin",
                                        "experts-L1.bin", "experts-L2.bin", "experts-L3.bin"};
    char path[MODEL_PATH + 64];
    size_t i;

    for (i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", f->dir, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(f->dir), 0);
}

#endif
