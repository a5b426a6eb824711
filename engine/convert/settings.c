/* A checkpoint's configuration: see settings.h. The normalised object is written
 * as text and parsed again, so what is checked here is what is stored. */
#include "convert/settings.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define NESTED_PREFIX "language_model."

/* ---- normalising ------------------------------------------------------------ */

/* Readers switch these on by the key being there, whatever its value, so off
 * has to be written as absent (docs/model.md 2). */
static int counts_by_presence(const char *key)
{
    return strcmp(key, "moe_renormalize") == 0 || strcmp(key, "latent_moe_use_norm") == 0 ||
           strcmp(key, "mla_use_output_gate") == 0 || strcmp(key, "use_full_rank_gate") == 0;
}

static int is_off(const waste_json *j)
{
    int on;

    return waste_json_kind_of(j) == WASTE_JSON_NULL || (waste_json_bool(j, &on) == 0 && !on);
}

static int is_true(const waste_json *j)
{
    int on;

    return waste_json_bool(j, &on) == 0 && on;
}

static void put_key(waste_buf *b, const char *key)
{
    if (b->len && b->data[b->len - 1] != '{') waste_buf_byte(b, ',');
    waste_json_quote(b, key, strlen(key));
    waste_buf_byte(b, ':');
}

static void put_value(waste_buf *b, const waste_json *j)
{
    size_t n;
    char *text = waste_json_dump(j, &n);

    if (text)
        waste_buf_add(b, text, n);
    else
        b->failed = 1;
    waste_mem_free(text);
}

/* Members of `from` without `skip` and without switches that are off. */
static void put_members(waste_buf *b, const waste_json *from, const char *skip)
{
    waste_json_iter it = {0};

    while (waste_json_each(&it, from)) {
        if (skip && strcmp(it.key, skip) == 0) continue;
        if (counts_by_presence(it.key) && is_off(it.value)) continue;
        put_key(b, it.key);
        if (strcmp(it.key, "linear_attn_config") == 0 &&
            waste_json_kind_of(it.value) == WASTE_JSON_OBJECT) {
            waste_buf_byte(b, '{');
            put_members(b, it.value, NULL);
            waste_buf_byte(b, '}');
        } else {
            put_value(b, it.value);
        }
    }
}

static void put_alias(waste_buf *b, const waste_json *text, const char *key, const char *alias)
{
    const waste_json *j = waste_json_get(text, alias);

    if (!j || waste_json_get(text, key)) return;
    put_key(b, key);
    put_value(b, j);
}

static void normalise(waste_buf *b, const waste_json *source, const waste_json *nested)
{
    const waste_json *text = nested ? nested : source;

    waste_buf_byte(b, '{');
    put_members(b, text, nested ? "_outer" : NULL);
    put_alias(b, text, "num_experts", "n_routed_experts");
    put_alias(b, text, "num_experts_per_token", "num_experts_per_tok");
    put_alias(b, text, "num_shared_experts", "n_shared_experts");
    if (!waste_json_get(text, "moe_renormalize") &&
        is_true(waste_json_get(text, "norm_topk_prob"))) {
        put_key(b, "moe_renormalize");
        waste_buf_text(b, "true");
    }
    if (nested) {
        put_key(b, "_outer");
        waste_buf_byte(b, '{');
        put_members(b, source, "text_config");
        waste_buf_byte(b, '}');
    }
    waste_buf_byte(b, '}');
}

/* ---- reading ------------------------------------------------------------------ */

static const char *architecture(const waste_settings *s)
{
    const char *a =
        waste_json_text(waste_json_at(waste_json_get(s->outer, "architectures"), 0), NULL);

    if (!a) a = waste_json_text(waste_json_at(waste_json_get(s->config, "architectures"), 0), NULL);
    if (!a || !*a) return "unknown";
    if (strstr(a, "KimiK3")) return "kimi-k3";
    if (strstr(a, "KimiLinear")) return "kimi-linear";
    return a;
}

typedef struct field {
    const char *key;
    int64_t def, lo, hi;
    int64_t *to;
} field;

static waste_status read_fields(const waste_json *from, const field *f, size_t n, const char *where,
                                waste_error *err)
{
    waste_status st = WASTE_OK;
    size_t i;

    for (i = 0; !st && i < n; i++)
        st = waste_json_int_in(from, f[i].key, f[i].def, f[i].lo, f[i].hi, f[i].to, where, err);
    return st;
}

static waste_status read_kda(waste_settings *s, const char *where, waste_error *err)
{
    const waste_json *kda = waste_json_get(s->config, "linear_attn_config");
    const waste_json *list = waste_json_get(kda, "kda_layers");
    const field f[] = {
        {"num_heads", 0, 0, 1 << 16, &s->kda_heads},
        {"head_dim", 0, 0, 1 << 16, &s->kda_dim},
        {"short_conv_kernel_size", 4, 0, 64, &s->taps},
    };
    size_t i, n = waste_json_count(list);
    waste_status st = read_fields(kda, f, sizeof f / sizeof *f, where, err);

    s->full_gate = waste_json_get(kda, "use_full_rank_gate") != NULL;
    for (i = 0; !st && i < n; i++) {
        int64_t l;
        if (waste_json_int(waste_json_at(list, i), &l) || l < 1 || l > s->layers)
            st = waste_fail(err, WASTE_FORMAT, "%s: kda_layers has an entry outside 1 to %d", where,
                            s->layers);
        else
            s->is_kda[l - 1] = 1;
    }
    if (!st && n && (!s->kda_heads || !s->kda_dim || !s->taps))
        st = waste_fail(err, WASTE_FORMAT,
                        "%s: linear_attn_config lists KDA layers and no heads, head_dim or taps",
                        where);
    return st;
}

static waste_status read_numbers(waste_settings *s, const char *where, waste_error *err)
{
    int64_t layers = 0, vocab = 0, experts = 0, dense = 0, shared = 0;
    const int64_t wide = 1 << 20;
    const field f[] = {
        {"num_hidden_layers", 0, 1, WASTE_MAX_LAYERS, &layers},
        {"hidden_size", 0, 1, wide, &s->hidden},
        {"vocab_size", 0, 1, 1 << 24, &vocab},
        {"num_attention_heads", 0, 1, 1 << 16, &s->heads},
        {"kv_lora_rank", 0, 0, wide, &s->kv_rank},
        {"q_lora_rank", 0, 0, wide, &s->q_rank},
        {"qk_nope_head_dim", 0, 0, wide, &s->nope_dim},
        {"qk_rope_head_dim", 0, 0, wide, &s->rope_dim},
        {"v_head_dim", 0, 0, wide, &s->v_dim},
        {"num_experts", 0, 0, 65535, &experts}, /* records hold 16-bit ids */
        {"num_experts_per_token", 0, 0, wide, &s->top_k},
        {"moe_intermediate_size", 0, 0, wide, &s->moe_width},
        {"num_shared_experts", 0, 0, 64, &shared},
        {"first_k_dense_replace", 0, 0, WASTE_MAX_LAYERS, &dense},
        {"intermediate_size", 0, 0, wide, &s->dense_width},
        {"routed_expert_hidden_size", 0, 0, wide, &s->latent},
        {"attn_res_block_size", 0, 0, WASTE_MAX_LAYERS, &s->ares_block},
    };
    size_t i;

    /* the default of a required number is below its range, which a reader of
     * absent keys does not check */
    for (i = 0; i < sizeof f / sizeof *f; i++) {
        waste_json_kind k = waste_json_kind_of(waste_json_get(s->config, f[i].key));
        if (f[i].def < f[i].lo && (k == WASTE_JSON_ABSENT || k == WASTE_JSON_NULL))
            return waste_fail(err, WASTE_FORMAT, "%s has no %s", where, f[i].key);
    }
    waste_status st = read_fields(s->config, f, sizeof f / sizeof *f, where, err);
    if (st) return st;
    s->layers = (int)layers;
    s->vocab = (int)vocab;
    s->experts = (int)experts;
    s->dense_layers = (int)dense;
    s->shared_width = s->moe_width * (shared ? shared : 1);
    s->expert_in = s->latent ? s->latent : s->hidden;
    s->out_gate = waste_json_get(s->config, "mla_use_output_gate") != NULL;
    s->latent_norm = waste_json_get(s->config, "latent_moe_use_norm") != NULL;
    return WASTE_OK;
}

/* What one key means for another. */
static waste_status check_numbers(const waste_settings *s, const char *where, waste_error *err)
{
    int l, mla = 0;
    const waste_json *nope = waste_json_get(s->config, "mla_use_nope");

    if (nope && waste_json_kind_of(nope) != WASTE_JSON_BOOL)
        return waste_fail(err, WASTE_FORMAT, "%s: mla_use_nope is %s, wanted a boolean", where,
                          waste_json_kind_name(waste_json_kind_of(nope)));
    if (s->dense_layers > s->layers)
        return waste_fail(err, WASTE_FORMAT, "%s: first_k_dense_replace is %d of %d layers", where,
                          s->dense_layers, s->layers);
    for (l = 0; l < s->layers; l++) mla |= !s->is_kda[l];
    if (mla && (!s->kv_rank || !s->v_dim || !(s->nope_dim + s->rope_dim)))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: MLA layers need kv_lora_rank, v_head_dim and qk_*_head_dim", where);
    if ((!s->experts || s->dense_layers) && !s->dense_width)
        return waste_fail(err, WASTE_FORMAT, "%s has dense layers and no intermediate_size", where);
    if (!s->experts) return WASTE_OK;
    if (!s->moe_width)
        return waste_fail(err, WASTE_FORMAT, "%s has experts and no moe_intermediate_size", where);
    if (s->top_k < 1 || s->top_k > s->experts || s->top_k > 64)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: num_experts_per_token is %lld, wanted 1 to %d and at most 64", where,
                          (long long)s->top_k, s->experts);
    if (s->moe_width % 8 || s->expert_in % 8)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: expert widths %lld and %lld are not multiples of 8", where,
                          (long long)s->moe_width, (long long)s->expert_in);
    return WASTE_OK;
}

waste_status waste_settings_read(waste_settings *s, const waste_json *source, const char *where,
                                 waste_error *err)
{
    const waste_json *nested = waste_json_get(source, "text_config");
    waste_buf b = {0};
    waste_status st = WASTE_OK;

    memset(s, 0, sizeof *s);
    if (waste_json_kind_of(nested) == WASTE_JSON_NULL) nested = NULL;
    if (nested && waste_json_kind_of(nested) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s: text_config is %s, wanted an object", where,
                          waste_json_kind_name(waste_json_kind_of(nested)));
    normalise(&b, source, nested);
    if (b.failed) st = waste_fail(err, WASTE_NOMEM, "out of memory reading %s", where);
    if (!st) st = waste_json_parse(&s->config, b.data, b.len, 0, where, WASTE_FORMAT, err);
    waste_buf_clear(&b);
    if (!st) {
        s->outer = waste_json_get(s->config, "_outer");
        s->prefix = nested ? NESTED_PREFIX : "";
        s->arch = architecture(s);
        s->tied = is_true(waste_json_get(s->config, "tie_word_embeddings")) ||
                  (!waste_json_get(s->config, "tie_word_embeddings") &&
                   is_true(waste_json_get(s->outer, "tie_word_embeddings")));
        st = read_numbers(s, where, err);
    }
    if (!st) st = read_kda(s, where, err);
    if (!st) st = check_numbers(s, where, err);
    if (st) waste_settings_clear(s);
    return st;
}

void waste_settings_clear(waste_settings *s)
{
    waste_json_free(s->config);
    memset(s, 0, sizeof *s);
}
