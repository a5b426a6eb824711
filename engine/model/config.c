/* Reads the model configuration out of a manifest: see config.h. Runs on the
 * thread that opens the container. A reader keeps the first failure, so the
 * keys can be read one after the other and looked at once. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/plat.h"
#include "store/record.h"

#define WIDTH_MAX   (1 << 20)
#define HEADS_MAX   (1 << 16)
#define FLOAT_BOUND 1e30 /* survives the conversion to float, and products of a few */
#define ROTARY_MAX  128  /* qk_rope_head_dim that rotates: half <= 64 */

typedef struct reader {
    const waste_json *object;
    char where[WASTE_PATH_MAX + 64];
    waste_error *err;
    waste_status st;
} reader;

static void reader_of(reader *r, const waste_manifest *m, const char *part,
                      const waste_json *object, waste_error *err)
{
    r->object = object;
    r->err = err;
    r->st = WASTE_OK;
    snprintf(r->where, sizeof r->where, "%s: %s", m->path, part);
}

static waste_json_kind kind_of(const reader *r, const char *key)
{
    return waste_json_kind_of(waste_json_get(r->object, key));
}

static int whole(reader *r, const char *key, int def, int64_t lo, int64_t hi)
{
    int64_t v = def;

    if (!r->st) r->st = waste_json_int_in(r->object, key, def, lo, hi, &v, r->where, r->err);
    return (int)v;
}

static int needed(reader *r, const char *key, int64_t lo, int64_t hi)
{
    waste_json_kind k = kind_of(r, key);

    if (!r->st && (k == WASTE_JSON_ABSENT || k == WASTE_JSON_NULL))
        r->st = waste_fail(r->err, WASTE_FORMAT, "%s: %s is missing", r->where, key);
    return whole(r, key, (int)lo, lo, hi);
}

static double number(reader *r, const char *key, double def, double lo, double hi)
{
    double v = def;

    if (!r->st) r->st = waste_json_number_in(r->object, key, def, lo, hi, &v, r->where, r->err);
    return v;
}

/* A switch that counts by being there. */
static int present(const reader *r, const char *key)
{
    int on = 1;

    if (kind_of(r, key) == WASTE_JSON_ABSENT || kind_of(r, key) == WASTE_JSON_NULL) return 0;
    waste_json_bool(waste_json_get(r->object, key), &on);
    return on;
}

/* A count that something else in the configuration makes necessary. */
static void at_least_one(reader *r, int64_t v, const char *key, const char *why)
{
    if (!r->st && v < 1)
        r->st = waste_fail(r->err, WASTE_FORMAT, "%s: %s is %lld, wanted at least 1: %s", r->where,
                           key, (long long)v, why);
}

static void bounded_product(reader *r, int64_t a, int64_t b, const char *keys)
{
    if (!r->st && a * b > INT32_MAX)
        r->st = waste_fail(r->err, WASTE_FORMAT, "%s: %s is %lld, wanted less than 2^31", r->where,
                           keys, (long long)(a * b));
}

/* ---- groups of keys --------------------------------------------------- */

static void read_basics(waste_config *c, reader *r)
{
    int64_t eos;
    double eps;

    c->layers = needed(r, "num_hidden_layers", 1, WASTE_MAX_LAYERS);
    c->hidden = needed(r, "hidden_size", 1, WIDTH_MAX);
    c->vocab = needed(r, "vocab_size", 1, 1 << 24);
    eps = number(r, "rms_norm_eps", 1e-5, 0, 1);
    c->eps = (float)eps;
    if (!r->st && !(c->eps > 0 && c->eps < 1))
        r->st =
            waste_fail(r->err, WASTE_FORMAT,
                       "%s: rms_norm_eps is %g, wanted more than 0 and less than 1", r->where, eps);
    c->ares_block = whole(r, "attn_res_block_size", 0, 0, c->layers);
    /* exotic sources carry a list here: that states nothing */
    c->eos = -1;
    if (!waste_json_int(waste_json_get(r->object, "eos_token_id"), &eos) && eos > 0 &&
        eos < c->vocab)
        c->eos = eos;
}

/* KDA layers are listed by 1-based number; what names no layer is ignored. */
static void read_kda_layers(waste_config *c, reader *r)
{
    const waste_json *list = waste_json_get(r->object, "kda_layers");
    waste_json_kind k = waste_json_kind_of(list);
    size_t i, n = waste_json_count(list);
    int64_t v;

    if (!r->st && k != WASTE_JSON_ARRAY && k != WASTE_JSON_ABSENT && k != WASTE_JSON_NULL)
        r->st = waste_fail(r->err, WASTE_FORMAT, "%s: kda_layers is %s, wanted an array", r->where,
                           waste_json_kind_name(k));
    if (k != WASTE_JSON_ARRAY) return;
    for (i = 0; !r->st && i < n; i++) {
        const waste_json *e = waste_json_at(list, i);
        if (waste_json_int(e, &v))
            r->st = waste_fail(r->err, WASTE_FORMAT,
                               "%s: element %zu of kda_layers is %s, wanted an integer", r->where,
                               i, waste_json_kind_name(waste_json_kind_of(e)));
        else if (v >= 1 && v <= c->layers)
            c->is_kda[v - 1] = 1;
    }
}

static void read_kda(waste_config *c, reader *r)
{
    int i;

    c->kda_heads = whole(r, "num_heads", 0, 0, HEADS_MAX);
    c->kda_dim = whole(r, "head_dim", 0, 0, HEADS_MAX);
    c->taps = whole(r, "short_conv_kernel_size", 4, 0, 64);
    c->gate_bound = (float)number(r, "gate_lower_bound", 0, -FLOAT_BOUND, FLOAT_BOUND);
    c->full_gate = present(r, "use_full_rank_gate");
    bounded_product(r, c->kda_heads, c->kda_dim, "num_heads x head_dim");
    read_kda_layers(c, r);
    for (i = 0; !r->st && i < c->layers; i++) c->n_kda += c->is_kda[i];
    c->n_mla = c->layers - c->n_kda;
    if (c->n_kda == 0) return;
    at_least_one(r, c->kda_heads, "num_heads", "there are KDA layers");
    at_least_one(r, c->kda_dim, "head_dim", "there are KDA layers");
    at_least_one(r, c->taps, "short_conv_kernel_size", "there are KDA layers");
}

static void read_mla(waste_config *c, reader *r)
{
    int64_t heads;

    c->heads = needed(r, "num_attention_heads", 1, HEADS_MAX);
    c->kv_rank = whole(r, "kv_lora_rank", 0, 0, WIDTH_MAX);
    c->q_rank = whole(r, "q_lora_rank", 0, 0, WIDTH_MAX);
    c->nope_dim = whole(r, "qk_nope_head_dim", 0, 0, WIDTH_MAX);
    c->rope_dim = whole(r, "qk_rope_head_dim", 0, 0, WIDTH_MAX);
    c->v_dim = whole(r, "v_head_dim", 0, 0, WIDTH_MAX);
    c->out_gate = present(r, "mla_use_output_gate");
    if (c->n_mla == 0) return;
    heads = c->heads;
    at_least_one(r, c->kv_rank, "kv_lora_rank", "there are MLA layers");
    at_least_one(r, (int64_t)c->nope_dim + c->rope_dim, "qk_nope_head_dim + qk_rope_head_dim",
                 "there are MLA layers");
    at_least_one(r, c->v_dim, "v_head_dim", "there are MLA layers");
    bounded_product(r, heads, (int64_t)c->nope_dim + c->rope_dim,
                    "num_attention_heads x (qk_nope_head_dim + qk_rope_head_dim)");
    bounded_product(r, heads, c->v_dim, "num_attention_heads x v_head_dim");
    bounded_product(r, heads, (int64_t)c->nope_dim + c->v_dim,
                    "num_attention_heads x (qk_nope_head_dim + v_head_dim)");
}

static void read_feed_forward(waste_config *c, reader *r)
{
    int shared;

    c->dense_layers = whole(r, "first_k_dense_replace", 0, 0, c->layers);
    c->dense_width = whole(r, "intermediate_size", 0, 0, WIDTH_MAX);
    c->experts = whole(r, "num_experts", 0, 0, UINT16_MAX);
    c->moe_width = whole(r, "moe_intermediate_size", 0, 0, WIDTH_MAX);
    c->latent = whole(r, "routed_expert_hidden_size", 0, 0, WIDTH_MAX);
    c->latent_norm = present(r, "latent_moe_use_norm");
    c->renorm = present(r, "moe_renormalize");
    c->route_scale = (float)number(r, "routed_scaling_factor", 1, -FLOAT_BOUND, FLOAT_BOUND);
    shared = whole(r, "num_shared_experts", 0, 0, 64);
    c->shared_width = c->moe_width * (shared > 1 ? shared : 1);
    c->expert_in = c->latent ? c->latent : c->hidden;
    if (c->experts > 0) {
        c->top_k = needed(r, "num_experts_per_token", 1, c->experts < 64 ? c->experts : 64);
        at_least_one(r, c->moe_width, "moe_intermediate_size", "there are experts");
    }
    if (c->experts == 0 || c->dense_layers > 0)
        at_least_one(r, c->dense_width, "intermediate_size", "there are dense layers");
}

static void read_activation(waste_config *c, reader *r)
{
    const char *act = waste_json_text(waste_json_get(r->object, "hidden_act"), NULL);

    c->situ = act && strcmp(act, "situ") == 0;
    c->situ_beta = (float)number(r, "activation_situ_beta", 1, -FLOAT_BOUND, FLOAT_BOUND);
    c->situ_linear_beta =
        (float)number(r, "activation_situ_linear_beta", 0, -FLOAT_BOUND, FLOAT_BOUND);
    if (!r->st && c->situ && !(c->situ_beta > 0)) /* divides */
        r->st =
            waste_fail(r->err, WASTE_FORMAT, "%s: activation_situ_beta is %g, wanted more than 0",
                       r->where, (double)c->situ_beta);
}

/* ---- rotary embedding (docs/model.md 5.3) ------------------------------ */

static void refuse_rope(reader *r, const char *what, const char *found, const char *wanted)
{
    if (!r->st)
        r->st = waste_fail(r->err, WASTE_FORMAT, "%s: %s is %.60s, wanted %s", r->where, what,
                           found, wanted);
}

/* The YaRN block. Its refusals come in the order of the rules: the type first,
 * then a factor that makes it plain, then what is not supported. */
static void read_yarn(waste_config *c, reader *r)
{
    const waste_json *type = waste_json_get(r->object, "type");
    const char *name;
    double mscale;

    if (!type) type = waste_json_get(r->object, "rope_type");
    name = waste_json_text(type, NULL);
    if (!name || strcmp(name, "yarn") != 0)
        refuse_rope(r, "the type of rope_scaling",
                    name ? name : waste_json_kind_name(waste_json_kind_of(type)), "\"yarn\"");
    c->rope_factor = number(r, "factor", 1, -1e9, 1e9);
    if (c->rope_factor <= 1) {
        c->rope_factor = 1;
        return;
    }
    mscale = number(r, "mscale", 1, -1e3, 1e3);
    c->rope_mscale_all = number(r, "mscale_all_dim", 0, -1e3, 1e3);
    if (!r->st && mscale != c->rope_mscale_all)
        r->st = waste_fail(r->err, WASTE_FORMAT,
                           "%s: mscale is %g and mscale_all_dim is %g; rope_scaling with two "
                           "different ones is not supported",
                           r->where, mscale, c->rope_mscale_all);
    c->rope_original = number(r, "original_max_position_embeddings", 4096, 1, 1e12);
    c->rope_beta_fast = number(r, "beta_fast", 32, 1e-6, 1e6);
    c->rope_beta_slow = number(r, "beta_slow", 1, 1e-6, 1e6);
}

static void read_rope(waste_config *c, reader *r, const waste_manifest *m)
{
    const waste_json *scaling = waste_json_get(r->object, "rope_scaling");
    waste_json_kind k = waste_json_kind_of(scaling);
    char found[32];
    int nope = 0;
    reader inner;

    c->rope_base = 10000;
    c->rope_factor = 1;
    c->rope_beta_fast = 32;
    c->rope_beta_slow = 1;
    c->rope_original = 4096;
    if (!r->st && kind_of(r, "mla_use_nope") != WASTE_JSON_ABSENT &&
        waste_json_bool(waste_json_get(r->object, "mla_use_nope"), &nope))
        r->st = waste_fail(r->err, WASTE_FORMAT, "%s: mla_use_nope is %s, wanted true or false",
                           r->where, waste_json_kind_name(kind_of(r, "mla_use_nope")));
    c->rotate = !nope && c->n_mla > 0 && c->rope_dim >= 2;
    if (r->st || !c->rotate) return;

    snprintf(found, sizeof found, "%d", c->rope_dim);
    if (c->rope_dim > ROTARY_MAX || c->rope_dim % 2)
        refuse_rope(r, "qk_rope_head_dim", found, "an even number up to 128, to be rotated");
    c->rope_base = number(r, "rope_theta", 10000, 1, 1e15);
    if (!r->st && !(c->rope_base > 1)) refuse_rope(r, "rope_theta", "1", "more than 1");
    if (k == WASTE_JSON_ABSENT || k == WASTE_JSON_NULL) return;
    if (k != WASTE_JSON_OBJECT)
        refuse_rope(r, "rope_scaling", waste_json_kind_name(k), "an object or null");
    if (r->st || waste_json_count(scaling) == 0) return;
    reader_of(&inner, m, "config.rope_scaling", scaling, r->err);
    read_yarn(c, &inner);
    r->st = inner.st;
}

/* ---- against the rest of the manifest --------------------------------- */

static waste_status check_bank(const waste_config *c, const waste_manifest *m, int layer,
                               const waste_record_layout *l, waste_error *err)
{
    const waste_bank_entry *b = &m->bank[layer];
    int books = 3 * m->quant.stages;

    if (!waste_config_is_moe(c, layer)) {
        if (!b->file) return WASTE_OK;
        return waste_fail(err, WASTE_FORMAT,
                          "%s: layers: layer %d has the bank %s, but config makes it dense",
                          m->path, layer, b->file);
    }
    if (!b->file)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: layers: layer %d has no bank, but config makes it one of experts",
                          m->path, layer);
    if (b->experts != c->experts)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: layers: layer %d has experts %d, but config.num_experts is %d",
                          m->path, layer, b->experts, c->experts);
    if (b->record_bytes != l->bytes || l->bytes > UINT32_MAX)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: layers: layer %d (%s) has records of %llu bytes, but config and "
                          "expert_quant (stages %d, vec_dim %d, index_block %d) give %llu",
                          m->path, layer, b->file, (unsigned long long)b->record_bytes,
                          m->quant.stages, m->quant.vec_dim, m->quant.index_block,
                          (unsigned long long)l->bytes);
    if ((uint64_t)b->codebook_base + (uint64_t)books > m->n_codebooks)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: layers: layer %d (%s) has codebook_base %d and needs %d codebooks "
                          "(expert_quant.stages %d), but codebooks.bin holds %llu",
                          m->path, layer, b->file, b->codebook_base, books, m->quant.stages,
                          (unsigned long long)m->n_codebooks);
    return WASTE_OK;
}

static waste_status check_manifest(const waste_config *c, const waste_manifest *m, waste_error *err)
{
    waste_record_layout l = {0, 0, 0, 0, 0, 0};
    int layer, moe = c->experts > 0 && c->dense_layers < c->layers;
    waste_status st = WASTE_OK;

    if (moe && (c->expert_in % m->quant.vec_dim || c->moe_width % m->quant.vec_dim))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: expert_quant.vec_dim %d does not divide %s %d and "
                          "moe_intermediate_size %d",
                          m->path, m->quant.vec_dim,
                          c->latent ? "routed_expert_hidden_size" : "hidden_size", c->expert_in,
                          c->moe_width);
    if (moe) waste_record_layout_of(&l, &m->quant, c->moe_width, c->expert_in);
    for (layer = 0; !st && layer < c->layers; layer++) st = check_bank(c, m, layer, &l, err);
    return st;
}

waste_status waste_config_read(waste_config *c, const waste_manifest *m, waste_error *err)
{
    const waste_json *linear = waste_json_get(m->config, "linear_attn_config");
    waste_json_kind k = waste_json_kind_of(linear);
    reader r, kda;

    memset(c, 0, sizeof *c);
    reader_of(&r, m, "config", m->config, err);
    read_basics(c, &r);
    if (!r.st && k != WASTE_JSON_OBJECT && k != WASTE_JSON_ABSENT && k != WASTE_JSON_NULL)
        r.st = waste_fail(err, WASTE_FORMAT, "%s: linear_attn_config is %s, wanted an object",
                          r.where, waste_json_kind_name(k));
    if (r.st) return r.st;

    reader_of(&kda, m, "config.linear_attn_config", linear, err);
    read_kda(c, &kda);
    r.st = kda.st;
    read_mla(c, &r);
    read_feed_forward(c, &r);
    read_activation(c, &r);
    read_rope(c, &r, m);
    return r.st ? r.st : check_manifest(c, m, err);
}
