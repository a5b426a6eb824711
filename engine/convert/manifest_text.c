/* manifest.json of a container to be (docs/format.md 2), for convert.c. All of it is
 * known before the first weight is read: sizes and places follow from shapes and
 * formats. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/conversion.h"

static void put_trunk(waste_buf *b, const waste_trunk_item *t)
{
    int i;

    waste_buf_text(b, "{\"name\":");
    waste_json_quote(b, t->name, strlen(t->name));
    waste_buf_printf(b, ",\"fmt\":%d,\"off\":%llu,\"shape\":[", (int)t->fmt,
                     (unsigned long long)t->off);
    for (i = 0; i < t->dims; i++)
        waste_buf_printf(b, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    waste_buf_byte(b, ']');
    if (t->fmt != WASTE_FMT_F32)
        waste_buf_printf(b, ",\"group\":%d,\"scale_off\":%llu", WASTE_TRUNK_GROUP,
                         (unsigned long long)t->scale_off);
    waste_buf_printf(b, ",\"bytes\":%llu}", (unsigned long long)t->bytes);
}

static void put_layers(waste_buf *b, const waste_convert *c)
{
    const uint64_t bytes = c->experts ? waste_experts_layout(c->experts)->bytes : 0;
    waste_convert_names name;
    int l;

    waste_buf_text(b, "\"layers\":{");
    for (l = c->settings.dense_layers; c->experts && l < c->settings.layers; l++) {
        name = waste_convert_names_of(l);
        waste_buf_printf(b,
                         "%s\n\"%d\":{\"file\":\"%s\",\"experts\":%d,\"bytes\":%llu,"
                         "\"codebook_base\":%d}",
                         l > c->settings.dense_layers ? "," : "", l, name.bank, c->settings.experts,
                         (unsigned long long)(bytes * (uint64_t)c->settings.experts),
                         waste_convert_codebook_base(c, l));
    }
    waste_buf_byte(b, '}');
}

waste_status waste_manifest_text(waste_buf *b, const waste_convert *c, waste_error *err)
{
    const waste_quant *q = &c->quant;
    size_t n, i;
    char *config = waste_json_dump(c->settings.config, &n);

    waste_buf_text(b, "{\"format_version\":0,\n\"arch\":");
    waste_json_quote(b, c->settings.arch, strlen(c->settings.arch));
    waste_buf_printf(b, ",\n\"tensor_prefix\":\"%s\",\n\"config\":", c->settings.prefix);
    if (config) waste_buf_add(b, config, n);
    waste_buf_printf(b,
                     ",\n\"expert_quant\":{\"fmt\":\"%s\",\"stages\":%d,\"vec_dim\":%d,"
                     "\"entries\":%d,\"index_block\":%d,\"index_bits\":%d,"
                     "\"bits_per_weight\":%d},\n",
                     c->label, q->stages, q->vec_dim, q->entries, q->index_block, q->index_bits,
                     q->stages * q->index_bits / q->vec_dim);
    put_layers(b, c);
    waste_buf_text(b, ",\n\"trunk\":[");
    for (i = 0; i < c->trunk.n; i++) {
        waste_buf_text(b, i ? ",\n" : "\n");
        put_trunk(b, c->trunk.item + i);
    }
    waste_buf_text(b, "\n]}\n");
    waste_mem_free(config);
    return config && !b->failed
               ? WASTE_OK
               : waste_fail(err, WASTE_NOMEM, "out of memory writing manifest.json");
}
