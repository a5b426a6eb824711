/* Names of tensors: see names.h. Pure. */
#include "convert/names.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "convert/trunk.h"

static const struct {
    const char *dir, *kind[3];
} styles[] = {
    [WASTE_NAMES_MIXTRAL] = {"block_sparse_moe", {"w1", "w3", "w2"}},
    [WASTE_NAMES_DEEPSEEK] = {"mlp", {"gate_proj", "up_proj", "down_proj"}},
};

void waste_names_expert(char *out, size_t cap, waste_names style, const waste_settings *c,
                        int layer, int expert, int kind)
{
    snprintf(out, cap, "%smodel.layers.%d.%s.experts.%d.%s.weight", c->prefix, layer,
             styles[style].dir, expert, styles[style].kind[kind]);
}

waste_names waste_names_find(const waste_source *s, const waste_settings *c)
{
    char name[256];
    int l, i;

    for (l = c->dense_layers; l < c->layers; l++)
        for (i = 0; i < WASTE_NAMES_NONE; i++) {
            waste_names_expert(name, sizeof name, (waste_names)i, c, l, 0, 0);
            if (waste_source_has(s, name)) return (waste_names)i;
        }
    return WASTE_NAMES_NONE;
}

int waste_names_reader(const char *name, const waste_settings *c)
{
    const char *at, *end;
    size_t n = strlen(c->prefix);
    uint64_t layer;

    if (waste_trunk_takes(name, c)) return WASTE_NAMES_TRUNK;
    if (strncmp(name, c->prefix, n) != 0 || strncmp(name + n, "model.layers.", 13) != 0)
        return WASTE_NAMES_NOBODY;
    at = name + n + 13;
    end = strchr(at, '.');
    if (!end || waste_parse_u64(at, (size_t)(end - at), WASTE_MAX_LAYERS, &layer) ||
        layer >= (uint64_t)c->layers || !waste_settings_is_moe(c, (int)layer))
        return WASTE_NAMES_NOBODY;
    return (int)layer;
}

waste_status waste_names_trunk(const waste_source *s, const waste_settings *c, const char *stored,
                               waste_weight *out, waste_error *err)
{
    static const char moe[] = ".block_sparse_moe.";
    const char *at = strstr(stored, moe);
    char name[WASTE_TRUNK_NAME + 64], head[WASTE_TRUNK_NAME];

    snprintf(name, sizeof name, "%s", stored);
    if (at && !waste_source_has(s, name))
        snprintf(name, sizeof name, "%.*s.mlp.%s", (int)(at - stored), stored, at + sizeof moe - 1);
    snprintf(head, sizeof head, "%slm_head.weight", c->prefix);
    if (c->tied && strcmp(stored, head) == 0 && !waste_source_has(s, name))
        snprintf(name, sizeof name, "%smodel.embed_tokens.weight", c->prefix);
    return waste_weight_find(s, name, out, err);
}
