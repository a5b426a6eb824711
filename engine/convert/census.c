/* The tensors of a model: see census.h. */
#include "convert/census.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

typedef struct census {
    const waste_trunk *trunk;
    const waste_settings *c;
    char prefix[WASTE_TRUNK_NAME];
    unsigned char *used; /* [trunk->n], or NULL */
    int missing, wrong;
    char first_missing[WASTE_TRUNK_NAME], first_wrong[WASTE_TRUNK_NAME * 2];
} census;

static void note_wrong(census *k, const waste_trunk_item *t, const char *wanted)
{
    if (k->wrong++) return;
    snprintf(k->first_wrong, sizeof k->first_wrong, "%s is [%lld, %lld], wanted %s", t->name,
             (long long)t->rows, (long long)t->cols, wanted);
}

static const waste_trunk_item *find(census *k, const char *part)
{
    char name[2 * WASTE_TRUNK_NAME];
    const waste_trunk_item *t;

    snprintf(name, sizeof name, "%s%s", k->prefix, part);
    t = waste_trunk_find(k->trunk, name);
    if (t && k->used) k->used[t - k->trunk->item] = 1;
    if (!t && !k->missing++)
        snprintf(k->first_missing, sizeof k->first_missing, "%.*s", WASTE_TRUNK_NAME - 1, name);
    return t;
}

static void matrix(census *k, const char *part, int64_t rows, int64_t cols)
{
    const waste_trunk_item *t = find(k, part);
    char wanted[64];

    if (!t || (t->dims == 2 && t->rows == rows && t->cols == cols)) return;
    snprintf(wanted, sizeof wanted, "[%lld, %lld]", (long long)rows, (long long)cols);
    note_wrong(k, t, wanted);
}

/* n elements in any arrangement, stored F32. More are fine when `padded`. */
static void vector(census *k, const char *part, int64_t n, int padded)
{
    const waste_trunk_item *t = find(k, part);
    char wanted[64];
    int64_t have = t ? t->rows * t->cols : 0;

    if (!t || ((have == n || (padded && have > n)) && t->fmt == WASTE_FMT_F32)) return;
    snprintf(wanted, sizeof wanted, "%lld elements in F32", (long long)n);
    note_wrong(k, t, wanted);
}

/* Names below are relative to this. */
static void within(census *k, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(k->prefix, sizeof k->prefix, fmt, ap);
    va_end(ap);
}

static void kda(census *k)
{
    const waste_settings *c = k->c;
    int64_t wide = c->kda_heads * c->kda_dim;

    matrix(k, "q_proj.weight", wide, c->hidden);
    matrix(k, "k_proj.weight", wide, c->hidden);
    matrix(k, "v_proj.weight", wide, c->hidden);
    vector(k, "q_conv1d.weight", wide * c->taps, 1);
    vector(k, "k_conv1d.weight", wide * c->taps, 1);
    vector(k, "v_conv1d.weight", wide * c->taps, 1);
    matrix(k, "f_a_proj.weight", c->kda_dim, c->hidden);
    matrix(k, "f_b_proj.weight", wide, c->kda_dim);
    matrix(k, "b_proj.weight", c->kda_heads, c->hidden);
    vector(k, "A_log", c->kda_heads, 1);
    vector(k, "dt_bias", wide, 1);
    if (c->full_gate) {
        matrix(k, "g_proj.weight", wide, c->hidden);
    } else {
        matrix(k, "g_a_proj.weight", c->kda_dim, c->hidden);
        matrix(k, "g_b_proj.weight", wide, c->kda_dim);
    }
    vector(k, "o_norm.weight", c->kda_dim, 0);
    matrix(k, "o_proj.weight", c->hidden, wide);
}

static void mla(census *k)
{
    const waste_settings *c = k->c;
    int64_t query = c->heads * (c->nope_dim + c->rope_dim);

    if (c->q_rank) {
        matrix(k, "q_a_proj.weight", c->q_rank, c->hidden);
        vector(k, "q_a_layernorm.weight", c->q_rank, 0);
        matrix(k, "q_b_proj.weight", query, c->q_rank);
    } else {
        matrix(k, "q_proj.weight", query, c->hidden);
    }
    matrix(k, "kv_a_proj_with_mqa.weight", c->kv_rank + c->rope_dim, c->hidden);
    vector(k, "kv_a_layernorm.weight", c->kv_rank, 0);
    matrix(k, "kv_b_proj.weight", c->heads * (c->nope_dim + c->v_dim), c->kv_rank);
    if (c->out_gate) matrix(k, "g_proj.weight", c->heads * c->v_dim, c->hidden);
    matrix(k, "o_proj.weight", c->hidden, c->heads * c->v_dim);
}

static void moe(census *k)
{
    const waste_settings *c = k->c;
    char bias[2 * WASTE_TRUNK_NAME];

    matrix(k, "gate.weight", c->experts, c->hidden);
    snprintf(bias, sizeof bias, "%sgate.e_score_correction_bias", k->prefix);
    if (waste_trunk_find(k->trunk, bias)) vector(k, "gate.e_score_correction_bias", c->experts, 0);
    matrix(k, "shared_experts.gate_proj.weight", c->shared_width, c->hidden);
    matrix(k, "shared_experts.up_proj.weight", c->shared_width, c->hidden);
    matrix(k, "shared_experts.down_proj.weight", c->hidden, c->shared_width);
    if (!c->latent) return;
    matrix(k, "routed_expert_down_proj.weight", c->latent, c->hidden);
    matrix(k, "routed_expert_up_proj.weight", c->hidden, c->latent);
    if (c->latent_norm) vector(k, "routed_expert_norm.weight", c->latent, 0);
}

static void layer(census *k, int l)
{
    const waste_settings *c = k->c;

    within(k, "%smodel.layers.%d.", c->prefix, l);
    vector(k, "input_layernorm.weight", c->hidden, 0);
    vector(k, "post_attention_layernorm.weight", c->hidden, 0);
    if (c->ares_block) {
        vector(k, "self_attention_res_norm.weight", c->hidden, 0);
        vector(k, "self_attention_res_proj.weight", c->hidden, 0);
        vector(k, "mlp_res_norm.weight", c->hidden, 0);
        vector(k, "mlp_res_proj.weight", c->hidden, 0);
    }
    within(k, "%smodel.layers.%d.self_attn.", c->prefix, l);
    if (c->is_kda[l])
        kda(k);
    else
        mla(k);
    if (waste_settings_is_moe(c, l)) {
        within(k, "%smodel.layers.%d.block_sparse_moe.", c->prefix, l);
        moe(k);
        return;
    }
    within(k, "%smodel.layers.%d.mlp.", c->prefix, l);
    matrix(k, "gate_proj.weight", c->dense_width, c->hidden);
    matrix(k, "up_proj.weight", c->dense_width, c->hidden);
    matrix(k, "down_proj.weight", c->hidden, c->dense_width);
}

static void take(census *k, const waste_trunk *t, const waste_settings *c, unsigned char *used)
{
    int l;

    memset(k, 0, sizeof *k);
    k->trunk = t;
    k->c = c;
    k->used = used;
    within(k, "%s", c->prefix);
    matrix(k, "model.embed_tokens.weight", c->vocab, c->hidden);
    vector(k, "model.norm.weight", c->hidden, 0);
    matrix(k, "lm_head.weight", c->vocab, c->hidden);
    if (c->ares_block) {
        vector(k, "model.output_attn_res_norm.weight", c->hidden, 0);
        vector(k, "model.output_attn_res_proj.weight", c->hidden, 0);
    }
    for (l = 0; l < c->layers; l++) layer(k, l);
}

waste_status waste_census_check(const waste_trunk *t, const waste_settings *c, waste_error *err)
{
    census k;

    take(&k, t, c, NULL);
    if (k.missing)
        return waste_fail(err, WASTE_FORMAT, "the checkpoint lacks %d tensors, the first is %s",
                          k.missing, k.first_missing);
    if (k.wrong)
        return waste_fail(err, WASTE_FORMAT, "%d tensors have the wrong shape, the first: %s",
                          k.wrong, k.first_wrong);
    return WASTE_OK;
}

waste_status waste_census_unknown(const waste_trunk *t, const waste_settings *c, size_t *n,
                                  char *first, waste_error *err)
{
    unsigned char *used = waste_mem_zero(t->n + 1);
    census k;
    size_t i;

    *n = 0;
    *first = 0;
    if (!used) return waste_fail(err, WASTE_NOMEM, "out of memory");
    take(&k, t, c, used);
    for (i = 0; i < t->n; i++) {
        const char *name = t->item[i].name;
        if (used[i] || strncmp(name, "vision_tower.", 13) == 0 ||
            strncmp(name, "mm_projector.", 13) == 0)
            continue;
        if (!(*n)++) snprintf(first, WASTE_TRUNK_NAME, "%s", name);
    }
    waste_mem_free(used);
    return WASTE_OK;
}
