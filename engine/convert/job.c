/* A conversion's description: see job.h. Pure but for reading the importance file. */
#include "convert/job.h"

#include <string.h>

#include "base/mem.h"
#include "base/plat.h"

/* Changed whenever the same source and options would give other bytes. */
#define RECIPE 2

/* FNV-1a with 64 bits (Fowler, Noll and Vo): finds differences, not forgeries. */
static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    size_t i;

    for (i = 0; i < n; i++) h = (h ^ b[i]) * 0x100000001B3u;
    return h;
}

static uint64_t mix_text(uint64_t h, const char *s)
{
    return mix(h, s, strlen(s) + 1);
}

static uint64_t mix_u64(uint64_t h, uint64_t v)
{
    return mix(h, &v, sizeof v);
}

#define START 0xCBF29CE484222325u

static uint64_t hash_tensors(const waste_source *s)
{
    uint64_t h = START;
    size_t i;
    int d;

    for (i = 0; i < waste_source_count(s); i++) {
        const waste_st_tensor *t = waste_source_at(s, i);
        h = mix_text(h, t->name);
        h = mix_text(h, t->dtype_name);
        h = mix_u64(h, waste_source_shard_of(s, t));
        h = mix_u64(h, t->off);
        h = mix_u64(h, (uint64_t)t->dims);
        for (d = 0; d < t->dims; d++) h = mix_u64(h, (uint64_t)t->shape[d]);
    }
    return h;
}

static uint64_t hash_shards(const waste_source *s)
{
    uint64_t h = START;
    size_t i;

    for (i = 0; i < waste_source_shards(s); i++) {
        waste_source_shard d;
        waste_source_shard_get(s, i, &d);
        h = mix_text(h, d.name);
        h = mix_u64(h, d.bytes);
        h = mix_u64(h, d.mtime);
    }
    return h;
}

static uint64_t hash_files(const waste_files *f)
{
    uint64_t h = START;
    int i;

    for (i = 0; i < f->n; i++) {
        h = mix_text(h, f->item[i].name);
        h = mix_u64(h, f->item[i].data.len);
        h = mix(h, f->item[i].data.data, f->item[i].data.len);
    }
    return h;
}

static waste_status hash_file(const char *path, uint64_t *h, waste_error *err)
{
    char *data;
    size_t n;
    waste_status st;

    *h = 0;
    if (!path) return WASTE_OK;
    st = waste_file_load(path, 1u << 30, &data, &n, err);
    if (st) return st;
    *h = mix(START, data, n);
    waste_mem_free(data);
    return WASTE_OK;
}

waste_status waste_job_write(waste_buf *out, const waste_source *s, const waste_settings *c,
                             const waste_files *f, const waste_job_options *o, waste_error *err)
{
    size_t n;
    uint64_t importance = 0;
    char *config = waste_json_dump(c->config, &n);
    waste_status st = config ? hash_file(o->importance, &importance, err)
                             : waste_fail(err, WASTE_NOMEM, "out of memory");

    if (!st) {
        waste_buf_printf(out, "{\"recipe\":%d,\"trunk_bits\":%d,\"experts\":\"%s\",", RECIPE,
                         o->trunk_bits, o->experts);
        waste_buf_printf(out, "\"effort\":\"%s\",\"importance\":\"%016llx\",", o->effort,
                         (unsigned long long)importance);
        waste_buf_printf(out, "\"config\":\"%016llx\",\"files\":\"%016llx\",",
                         (unsigned long long)mix(START, config, n),
                         (unsigned long long)hash_files(f));
        waste_buf_printf(out, "\"tensors\":\"%016llx\",\"shards\":\"%016llx\"}\n",
                         (unsigned long long)hash_tensors(s), (unsigned long long)hash_shards(s));
        if (out->failed) st = waste_fail(err, WASTE_NOMEM, "out of memory");
    }
    waste_mem_free(config);
    return st;
}

/* One number at *at, which moves behind it. */
static int read_layer(const char **at, int first, int end, int *layer)
{
    const size_t n = strspn(*at, "0123456789");
    uint64_t v;

    if (waste_parse_u64(*at, n, WASTE_MAX_LAYERS, &v) || v < (uint64_t)first || v >= (uint64_t)end)
        return 0;
    *layer = (int)v;
    *at += n;
    return 1;
}

waste_status waste_job_layers(const char *text, int first, int end,
                              unsigned char in[WASTE_MAX_LAYERS], int *n, waste_error *err)
{
    const char *at = text;
    int from = 0, to = 0, l, good = 1;

    memset(in, 0, WASTE_MAX_LAYERS);
    *n = 0;
    if (!text) {
        for (l = first; l < end; l++) in[l] = 1;
        *n = end - first;
        return WASTE_OK;
    }
    do {
        good = read_layer(&at, first, end, &from);
        to = from;
        if (good && *at == '-') {
            at++;
            good = read_layer(&at, first, end, &to) && to >= from;
        }
        for (l = from; good && l <= to; l++) {
            *n += !in[l];
            in[l] = 1;
        }
    } while (good && *at == ',' && *++at);
    if (good && !*at && at > text && at[-1] != ',') return WASTE_OK;
    return waste_fail(err, WASTE_ARG,
                      "layers is \"%.100s\", wanted numbers and ranges of layers with experts, "
                      "%d to %d, such as \"%d,%d-%d\"",
                      text, first, end - 1, first, first + 1 < end ? first + 1 : first, end - 1);
}
