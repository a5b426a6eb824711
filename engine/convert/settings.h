/* config.json of a checkpoint, normalised (docs/convert.md 3): the configuration a
 * container stores, and the numbers that decide which tensors there must be
 * (docs/model.md 2). Immutable after reading. */
#ifndef WASTE_SETTINGS_H
#define WASTE_SETTINGS_H

#include "base/json.h"
#include "store/manifest.h"

typedef struct waste_settings {
    waste_json *config;      /* as the manifest stores it; owned */
    const waste_json *outer; /* config._outer, or NULL */
    const char *prefix;      /* of text-model tensors: "" or "language_model." */
    const char *arch;        /* docs/format.md 2.1; borrowed from config or static */
    int tied;                /* tie_word_embeddings */

    int layers, vocab;
    int64_t hidden;
    /* MLA */
    int64_t heads, kv_rank, q_rank /* 0: direct */, nope_dim, rope_dim, v_dim;
    int out_gate;
    /* KDA */
    unsigned char is_kda[WASTE_MAX_LAYERS];
    int64_t kda_heads, kda_dim, taps;
    int full_gate;
    /* feed-forward */
    int experts, dense_layers;
    int64_t top_k, moe_width, shared_width, dense_width, latent /* 0: none */, expert_in;
    int latent_norm;
    int64_t ares_block; /* 0: no Attention Residuals */
} waste_settings;

/* `source` is the parsed config.json; `where` names it in errors, which name the
 * key, too. On failure *out is cleared. */
waste_status waste_settings_read(waste_settings *out, const waste_json *source, const char *where,
                                 waste_error *err);
void waste_settings_clear(waste_settings *s);

static inline int waste_settings_is_moe(const waste_settings *s, int layer)
{
    return s->experts > 0 && layer >= s->dense_layers;
}

#endif
