/* A container without its weights: manifest, configuration, tokenizer, chat
 * format, and what they add up to. Opened and closed by one thread, read by any;
 * nothing changes in between. */
#include <string.h>

#include "base/aside.h"
#include "base/mem.h"
#include "base/plat.h"
#include "base/utf8.h"
#include "internal.h"

/* ---- what it adds up to ----------------------------------------------- */

/* Entries of a trunk may overlap, so their sum is not bounded by the file. */
static void add(int64_t *sum, uint64_t v)
{
    *sum = v > (uint64_t)(INT64_MAX - *sum) ? INT64_MAX : *sum + (int64_t)v;
}

static int is_text_tensor(const waste_manifest *m, const waste_trunk_entry *t)
{
    return strncmp(t->name, m->prefix, strlen(m->prefix)) == 0;
}

static int is_embedding(const waste_manifest *m, const waste_trunk_entry *t)
{
    return is_text_tensor(m, t) &&
           strcmp(t->name + strlen(m->prefix), "model.embed_tokens.weight") == 0;
}

/* A quantised embedding table is read a row at a time. */
static int is_resident(const waste_manifest *m, const waste_trunk_entry *t)
{
    return is_text_tensor(m, t) && (t->fmt == WASTE_FMT_F32 || !is_embedding(m, t));
}

static void sum_trunk(waste_info *info, const waste_manifest *m)
{
    size_t i;

    for (i = 0; i < m->n_trunk; i++) {
        const waste_trunk_entry *t = &m->trunk[i];
        uint64_t bytes = t->payload_bytes + t->scale_bytes;
        uint64_t weights = (uint64_t)t->rows * (uint64_t)t->cols;
        if (!is_text_tensor(m, t)) continue;
        add(&info->params, weights);
        if (!is_embedding(m, t)) add(&info->active_params, weights);
        add(&info->trunk_bytes, bytes);
        if (is_resident(m, t)) add(&info->resident_bytes, bytes);
    }
}

/* Bounded by the banks: a record is below 4 GiB and holds at least one byte for
 * 64 weights, and there are at most 128 * 65535 records. */
static void sum_experts(waste_info *info, const waste_config *c, const waste_manifest *m)
{
    uint64_t weights = 3 * (uint64_t)c->moe_width * (uint64_t)c->expert_in;
    int i;

    for (i = 0; i < c->layers; i++) {
        const waste_bank_entry *b = &m->bank[i];
        if (!waste_config_is_moe(c, i)) continue;
        info->moe_layers++;
        add(&info->params, weights * (uint64_t)c->experts);
        add(&info->active_params, weights * (uint64_t)c->top_k);
        add(&info->expert_bytes, b->record_bytes * (uint64_t)b->experts);
        if ((int64_t)b->record_bytes > info->record_bytes)
            info->record_bytes = (int64_t)b->record_bytes;
    }
}

static const char *expert_format(const waste_quant *q)
{
    if (q->index_bits == 6) return "VQ4P";
    if (q->entries == 256 && q->vec_dim == 8 && q->stages == 3) return "VQ3R";
    if (q->entries == 256 && q->vec_dim == 8 && q->stages == 2) return "VQ2R";
    return "VQ";
}

/* The configuration's, or the one that stands there by position (docs/format.md 8.2). */
static int32_t end_token(const waste_container *c)
{
    int64_t id;

    if (c->config.eos > 0) return (int32_t)c->config.eos;
    if (!c->tokenizer) return -1;
    id = (int64_t)waste_tokenizer_ranks(c->tokenizer) + 2;
    return id < c->config.vocab ? (int32_t)id : -1;
}

static waste_status describe(waste_container *c, const char *path, waste_error *err)
{
    const waste_config *g = &c->config;
    const waste_manifest *m = c->manifest;
    waste_info *info = &c->info;
    char vision[WASTE_PATH_MAX];
    waste_status st = waste_path_join(vision, sizeof vision, m->dir, "vision.json", err);

    if (st) return st;
    info->path = waste_mem_text(path, strlen(path));
    if (!info->path) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    info->arch = m->arch;
    info->layers = g->layers;
    info->kda_layers = g->n_kda;
    info->mla_layers = g->n_mla;
    info->hidden = g->hidden;
    info->vocab = g->vocab;
    info->experts = g->experts;
    info->top_k = g->top_k;
    sum_experts(info, g, m);
    sum_trunk(info, m);
    info->expert_format = info->moe_layers ? expert_format(&m->quant) : "none";
    if (info->moe_layers)
        info->expert_bits = (double)m->quant.stages * m->quant.index_bits / m->quant.vec_dim;
    info->eos_token = end_token(c);
    info->has_tokenizer = c->tokenizer != NULL;
    info->has_vision = waste_path_exists(vision);
    info->chat = waste_chat_kind(c->chat);
    return WASTE_OK;
}

/* ---- open, close ------------------------------------------------------ */

waste_status waste_container_read(waste_container *c, const char *path, waste_error *err)
{
    waste_status st;

    st = waste_manifest_open(&c->manifest, path, err);
    if (!st) st = waste_config_read(&c->config, c->manifest, err);
    if (!st) st = waste_tokenizer_open(&c->tokenizer, c->manifest->dir, c->config.vocab, err);
    if (!st) st = waste_chat_open(&c->chat, c->manifest->dir, c->tokenizer, err);
    return st ? st : describe(c, path, err);
}

uint64_t waste_container_key(const char *path)
{
    uint64_t id[2];

    if (waste_path_identity(path, id, NULL)) return 0;
    return (id[1] ^ id[0] << 40) | 1; /* odd: no address of the engine's own */
}

/* Its memory is its own: the caller may go while a read hangs. */
typedef struct opening {
    waste_container *container;
    char *path;
} opening;

static waste_status read_all(void *ctx, const waste_cancel *left, waste_error *err)
{
    opening *o = ctx;

    (void)left; /* all of it is short, unless a read hangs */
    return waste_container_read(o->container, o->path, err);
}

static void drop(void *ctx)
{
    opening *o = ctx;

    waste_container_close(o->container);
    waste_mem_free(o->path);
    waste_mem_free(o);
}

waste_status waste_container_open(waste_container **out, const char *path,
                                  const waste_cancel *cancel, waste_error *err)
{
    opening *o;
    waste_status st;

    *out = NULL;
    if (!path || !*path) return waste_fail(err, WASTE_ARG, "the path of the container is empty");
    o = waste_mem_zero(sizeof *o);
    if (o) o->container = waste_mem_zero(sizeof *o->container);
    if (o) o->path = waste_mem_text(path, strlen(path));
    if (!o || !o->container || !o->path) {
        if (o) drop(o);
        return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    }
    st = waste_aside_run(waste_container_key(path), read_all, drop, o, cancel, err);
    if (st) return st;
    *out = o->container;
    o->container = NULL;
    drop(o);
    return WASTE_OK;
}

void waste_container_close(waste_container *c)
{
    if (!c) return;
    waste_chat_close(c->chat);
    waste_tokenizer_close(c->tokenizer);
    waste_manifest_close(c->manifest);
    waste_mem_free((char *)c->info.path);
    waste_mem_free(c);
}

waste_status waste_container_identity(const char *path, uint64_t id[2], waste_error *err)
{
    if (!path || !*path) return waste_fail(err, WASTE_ARG, "the path of the container is empty");
    if (!waste_path_exists(path)) /* in the words of opening it (manifest.c) */
        return waste_fail(err, WASTE_IO, "no container at %s: it does not exist", path);
    return waste_path_identity(path, id, err);
}

/* ---- looking into it -------------------------------------------------- */

const waste_info *waste_container_info(const waste_container *c)
{
    return &c->info;
}

size_t waste_container_tensors(const waste_container *c)
{
    return c->manifest->n_trunk;
}

static const char *fmt_name(waste_fmt fmt)
{
    switch (fmt) {
    case WASTE_FMT_Q8G: return "Q8G";
    case WASTE_FMT_Q4G: return "Q4G";
    case WASTE_FMT_Q3G: return "Q3G";
    default: return "F32"; /* the manifest lets no other through */
    }
}

void waste_container_tensor(const waste_container *c, size_t i, waste_tensor_info *out)
{
    const waste_trunk_entry *t;

    memset(out, 0, sizeof *out);
    if (i >= c->manifest->n_trunk) return;
    t = &c->manifest->trunk[i];
    out->name = t->name;
    out->format = fmt_name(t->fmt);
    out->dims = t->dims;
    memcpy(out->shape, t->shape, sizeof out->shape);
    out->group = (int)t->group;
    out->offset = (int64_t)t->off;
    out->bytes = (int64_t)(t->payload_bytes + t->scale_bytes);
    out->resident = is_resident(c->manifest, t);
}

void waste_container_bank(const waste_container *c, int layer, waste_bank_info *out)
{
    const waste_bank_entry *b;

    memset(out, 0, sizeof *out);
    if (layer < 0 || layer >= c->config.layers || !waste_config_is_moe(&c->config, layer)) return;
    b = &c->manifest->bank[layer];
    out->file = b->file;
    out->experts = b->experts;
    out->record_bytes = (int64_t)b->record_bytes;
    out->codebook_base = b->codebook_base;
}

static int names_family(const char *arch)
{
    static const char *const family[] = {"kimi", "deepseek"};
    size_t i;

    for (i = 0; i < sizeof family / sizeof *family; i++)
        if (waste_utf8_find(arch, family[i])) return 1;
    return strcmp(arch, "unknown") == 0;
}

waste_status waste_container_check_arch(const waste_container *c, waste_error *err)
{
    if (names_family(c->info.arch)) return WASTE_OK;
    return waste_fail(err, WASTE_UNSUPPORTED,
                      "%s: the architecture is %.100s, supported are Kimi K3, Kimi-Linear and "
                      "DeepSeek-V3 / Kimi-K2",
                      c->info.path, c->info.arch);
}

waste_status waste_container_check_chat(const waste_container *c, waste_error *err)
{
    return waste_chat_check(c->chat, err);
}

/* ---- tokens ----------------------------------------------------------- */

void waste_ids_clear(waste_ids *ids)
{
    waste_mem_free(ids->id);
    ids->id = NULL;
    ids->n = 0;
}

waste_status waste_tokenize(const waste_container *c, const char *text, size_t bytes, int markup,
                            waste_ids *out, waste_error *err)
{
    if (!c->tokenizer)
        return waste_fail(err, WASTE_UNSUPPORTED, "%s has no tokenizer (tokenizer.model)",
                          c->info.path);
    return waste_tokenizer_encode(c->tokenizer, text, bytes, markup, out, err);
}

const char *waste_token_bytes(const waste_container *c, int32_t id, size_t *bytes)
{
    *bytes = 0;
    return c->tokenizer ? waste_tokenizer_bytes(c->tokenizer, id, bytes) : NULL;
}
