/* mkcheckpoint: a published checkpoint that a container could have been made of: its
 * configuration, its tensors' names and shapes, and random normal weights, to measure
 * conversions with. With mkbig, which has the shapes of large models:
 *
 *   mkbig SHAPE --preset kimi-linear-48b --layers 2
 *   mkcheckpoint SHAPE DIR bf16       one layer of Kimi-Linear's experts, 3.6 GB
 *   mkbig SHAPE --preset k3-slice --layers 2 --experts 128
 *   mkcheckpoint SHAPE DIR mxfp4      an eighth of one of K3's, 2.2 GB
 *
 * The trunk is BF16, vectors F32. One shard for the trunk and one for each layer of
 * experts. The same arguments give the same bytes; an index that is there says that the
 * run was not cut short. A few MB of memory.
 *
 * Exit: 0, 1 with the error on stderr, 2 for a wrong command line. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plat.h"
#include "tools/sink.h"
#include "waste.h"

#define POOL  (1 << 16) /* weights, and groups of MXFP4, that are drawn from */
#define GROUP 32

typedef struct maker {
    const char *dir, *shape;
    int mxfp4;
    const waste_container *container;
    waste_json *manifest;
    const char *prefix;
    uint64_t random, bytes;
    uint16_t weight[POOL]; /* normal, BF16 */
    struct {
        unsigned char code[GROUP / 2], scale;
    } group[POOL];
    waste_buf index;
} maker;

/* ---- random numbers ---------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next(maker *m)
{
    uint64_t z = m->random += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(maker *m)
{
    return ((double)(next(m) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller 1958 */
static float normal(maker *m)
{
    const double radius = sqrt(-2 * log(uniform(m)));

    return (float)(0.02 * radius * cos(6.283185307179586 * uniform(m)));
}

static uint16_t bf16(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* A group as compressed-tensors packs it: the scale is the power of two that brings the
 * largest of them to 4..8, each the nearest of the eight magnitudes. */
static void make_group(maker *m, int at)
{
    static const float magnitude[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float w[GROUP], most = 0, step;
    int i, k, exponent;

    for (i = 0; i < GROUP; i++) {
        w[i] = normal(m);
        most = fmaxf(most, fabsf(w[i]));
    }
    frexpf(most, &exponent);
    exponent -= 3;
    step = ldexpf(1, exponent);
    m->group[at].scale = (unsigned char)(exponent + 127);
    memset(m->group[at].code, 0, sizeof m->group[at].code);
    for (i = 0; i < GROUP; i++) {
        int best = 0;

        for (k = 1; k < 8; k++)
            if (fabsf(fabsf(w[i]) / step - magnitude[k]) <
                fabsf(fabsf(w[i]) / step - magnitude[best]))
                best = k;
        m->group[at].code[i / 2] |= (unsigned char)((best | (w[i] < 0 ? 8 : 0)) << (i % 2 * 4));
    }
}

static void make_pools(maker *m)
{
    int i;

    for (i = 0; i < POOL; i++) m->weight[i] = bf16(normal(m));
    for (i = 0; i < POOL && m->mxfp4; i++) make_group(m, i);
}

/* ---- a shard ------------------------------------------------------------------------ */

/* Its header comes first, so it is written in two rounds: names, then data. */
typedef struct shard {
    maker *m;
    char file[64];
    sink to;
    waste_buf head;
    uint64_t at;
    int writing;
} shard;

static void declare(shard *s, const char *name, const char *dtype, const int64_t *dim, int dims,
                    uint64_t bytes)
{
    waste_buf *b = &s->head, *index = &s->m->index;
    int i;

    waste_buf_printf(b, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", b->len ? "," : "{", name, dtype);
    for (i = 0; i < dims; i++) waste_buf_printf(b, "%s%lld", i ? "," : "", (long long)dim[i]);
    waste_buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)s->at,
                     (unsigned long long)(s->at + bytes));
    s->at += bytes;
    waste_buf_printf(index, "%s\"%s\":\"%s\"", index->len ? ",\n" : "", name, s->file);
}

static void put_weights(shard *s, uint64_t n)
{
    uint16_t part[4096];
    size_t i, some;

    for (; n; n -= some) {
        some = n < 4096 ? (size_t)n : 4096;
        for (i = 0; i < some; i += 4) {
            const uint64_t x = next(s->m);

            part[i] = s->m->weight[x & 0xFFFF];
            part[i + 1] = s->m->weight[x >> 16 & 0xFFFF];
            part[i + 2] = s->m->weight[x >> 32 & 0xFFFF];
            part[i + 3] = s->m->weight[x >> 48];
        }
        sink_put(&s->to, part, some * sizeof *part);
    }
}

static void put_floats(shard *s, uint64_t n)
{
    for (; n; n--) {
        const float v = 1 + normal(s->m);

        sink_put(&s->to, &v, sizeof v);
    }
}

/* Drawn twice alike: first the codes, then the scales of the same groups. */
static void put_groups(shard *s, uint64_t n, int scales, uint64_t random)
{
    const uint64_t after = s->m->random;
    uint64_t x;

    s->m->random = random;
    for (; n; n--) {
        x = next(s->m) & (POOL - 1);
        if (scales)
            sink_put(&s->to, &s->m->group[x].scale, 1);
        else
            sink_put(&s->to, s->m->group[x].code, GROUP / 2);
    }
    if (!scales) s->m->random = after;
}

static void tensor(shard *s, const char *name, const int64_t *dim, int dims)
{
    const int plain = dims < 2;
    uint64_t n = 1;
    int i;

    for (i = 0; i < dims; i++) n *= (uint64_t)dim[i];
    if (!s->writing)
        declare(s, name, plain ? "F32" : "BF16", dim, dims, n * (plain ? 4 : 2));
    else if (plain)
        put_floats(s, n);
    else
        put_weights(s, n);
}

static void packed_tensor(shard *s, const char *name, int64_t rows, int64_t cols)
{
    const int64_t code[2] = {rows, cols / 2}, scale[2] = {rows, cols / GROUP};
    const uint64_t groups = (uint64_t)(rows * (cols / GROUP)), random = s->m->random;
    char full[300];

    if (s->writing) {
        put_groups(s, groups, 0, random);
        put_groups(s, groups, 1, random);
        return;
    }
    snprintf(full, sizeof full, "%s_packed", name);
    declare(s, full, "U8", code, 2, groups * (GROUP / 2));
    snprintf(full, sizeof full, "%s_scale", name);
    declare(s, full, "U8", scale, 2, groups);
}

static void trunk(shard *s, int layer)
{
    size_t i;

    (void)layer;
    for (i = 0; i < waste_container_tensors(s->m->container); i++) {
        waste_tensor_info t;

        waste_container_tensor(s->m->container, i, &t);
        tensor(s, t.name, t.shape, t.dims);
    }
}

static int64_t number(const maker *m, const char *key)
{
    int64_t v = 0;

    if (waste_json_int(waste_json_get(waste_json_get(m->manifest, "config"), key), &v)) v = 0;
    return v;
}

static void experts(shard *s, int layer)
{
    const maker *m = s->m;
    const int64_t latent = number(m, "routed_expert_hidden_size");
    const int64_t in = latent ? latent : number(m, "hidden_size");
    const int64_t width = number(m, "moe_intermediate_size");
    const int n = waste_container_info(m->container)->experts;
    char name[256];
    int e, k;

    for (e = 0; e < n; e++)
        for (k = 0; k < 3; k++) {
            static const char *const kind[] = {"w1", "w3", "w2"};
            const int64_t dim[2] = {k < 2 ? width : in, k < 2 ? in : width};

            snprintf(name, sizeof name, "%smodel.layers.%d.block_sparse_moe.experts.%d.%s.weight",
                     m->prefix, layer, e, kind[k]);
            if (m->mxfp4)
                packed_tensor(s, name, dim[0], dim[1]);
            else
                tensor(s, name, dim, 2);
        }
}

static void write_shard(maker *m, const char *file, void (*fill)(shard *, int), int layer)
{
    shard s = {.m = m};
    uint64_t size;

    snprintf(s.file, sizeof s.file, "%s", file);
    fill(&s, layer);
    waste_buf_text(&s.head, "}");
    if (s.head.failed) die("out of memory");
    sink_open(&s.to, m->dir, file);
    size = s.head.len;
    sink_put(&s.to, &size, sizeof size); /* little-endian, as all that this runs on */
    sink_put(&s.to, s.head.data, s.head.len);
    s.writing = 1;
    fill(&s, layer);
    if (sink_at(&s.to) != sizeof size + s.head.len + s.at)
        die("%s/%s: written is not what was declared", m->dir, file);
    m->bytes += sink_close(&s.to);
    waste_buf_clear(&s.head);
}

/* ---- the other files ------------------------------------------------------------------ */

static void publish(const maker *m, const char *name, const waste_buf *b)
{
    char path[WASTE_PATH_MAX];
    waste_error err = {0};

    if (b->failed) die("out of memory");
    if (waste_path_join(path, sizeof path, m->dir, name, &err) ||
        waste_file_publish(path, b->data, b->len, &err))
        die("%s", err.text);
}

/* What the manifest calls config is the text configuration, beside the outer one when
 * tensors have a prefix. */
static void write_config(const maker *m)
{
    const waste_json *config = waste_json_get(m->manifest, "config");
    size_t bytes;
    char *text = need(waste_json_dump(config, &bytes));
    waste_buf b = {0};

    if (*m->prefix)
        waste_buf_printf(&b,
                         "{\"architectures\":[\"KimiK3ForConditionalGeneration\"],"
                         "\"text_config\":%s}\n",
                         text);
    else
        waste_buf_printf(&b, "%s\n", text);
    publish(m, "config.json", &b);
    waste_buf_clear(&b);
    waste_mem_free(text);
}

static void write_index(maker *m)
{
    waste_buf b = {0};

    if (m->index.failed) die("out of memory");
    waste_buf_printf(&b, "{\"metadata\":{\"total_size\":%llu},\"weight_map\":{\n%s}}\n",
                     (unsigned long long)m->bytes, m->index.data);
    publish(m, "model.safetensors.index.json", &b);
    waste_buf_clear(&b);
    waste_buf_clear(&m->index);
}

static void open_shape(maker *m, waste_container **container)
{
    char path[WASTE_PATH_MAX];
    waste_error err = {0};
    size_t bytes;

    if (waste_container_open(container, m->shape, NULL, &err) ||
        waste_path_join(path, sizeof path, m->shape, "manifest.json", &err) ||
        waste_json_load(&m->manifest, path, &err))
        die("%s", err.text);
    m->container = *container;
    m->prefix = waste_json_text(waste_json_get(m->manifest, "tensor_prefix"), &bytes);
    if (!m->prefix) m->prefix = "";
}

int main(int argc, char **argv)
{
    maker *m = need(calloc(1, sizeof *m));
    waste_container *container;
    waste_bank_info bank;
    double start = (double)waste_clock_ns() * 1e-9, seconds;
    char file[64];
    int l, layers;

    sink_program = "mkcheckpoint";
    if (argc != 4 || (strcmp(argv[3], "bf16") && strcmp(argv[3], "mxfp4"))) {
        fprintf(stderr, "mkcheckpoint: wanted: CONTAINER DIR bf16|mxfp4\n");
        return 2;
    }
    m->shape = argv[1];
    m->dir = argv[2];
    m->mxfp4 = !strcmp(argv[3], "mxfp4");
    m->random = 1;
    if (mkdir(m->dir, 0755) && errno != EEXIST) die("%s: %s", m->dir, strerror(errno));
    open_shape(m, &container);
    make_pools(m);
    write_config(m);
    write_shard(m, "model-trunk.safetensors", trunk, 0);
    layers = waste_container_info(container)->layers;
    for (l = 0; l < layers; l++) {
        waste_container_bank(container, l, &bank);
        if (!bank.file) continue;
        snprintf(file, sizeof file, "model-experts-L%d.safetensors", l);
        write_shard(m, file, experts, l);
    }
    write_index(m);
    seconds = (double)waste_clock_ns() * 1e-9 - start;
    printf("%s: %.2f GB in %.1f s\n", m->dir, (double)m->bytes * 1e-9, seconds);
    waste_json_free(m->manifest);
    waste_container_close(container);
    free(m);
    return 0;
}
