/* mkbig: containers with the true shapes of large models and random weights, to
 * measure with. One thread; one buffer, one record and a tensor's scales in memory.
 *
 *   mkbig DIR --preset kimi-linear-48b        27 layers of 256 experts, 19 GB
 *   mkbig DIR --preset k3-slice [--layers N]  1 dense and N - 1 MoE layers of 896
 *                                             experts of 11.83 MiB; N is 3: 26 GB
 *   mkbig DIR --preset k3-state               K3's 93 attention layers at full width,
 *                                             all else small: 0.5 GB
 *   --layers N --experts N --vocab N --top-k N   smaller (or larger) ones
 *   --vq 3r|2r|4p  --trunk-bits 4|3|8  --seed N
 *   --topics A,B,C  --bias S  --gain S        what shapes the routing, below
 *
 * The same arguments give the same bytes: every tensor and every record has its
 * own random stream, keyed by seed and name. manifest.json comes last, so a run
 * that was cut short leaves no container.
 *
 * Weights are scaled so that activations keep an ordinary size. Decoding is a
 * walk: the embedding of token t is a sum of three random vectors, one of its
 * own, one shared by the 4 and one by the 32 tokens around it (variances in the
 * proportion A : B : C), and row t + 1 of the head is t's own vector. So greedy
 * decoding after t gives t + 1 and never loops, and neighbours in the walk, being
 * alike, want some of the same experts. A correction bias with standard
 * deviation S makes some experts popular at all times. docs/measured.md has the
 * reuse that results.
 *
 * Exit: 0, 1 with the error on stderr, 2 for a wrong command line. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/plat.h"
#include "kernels/quant.h"
#include "store/record.h"
#include "tools/shapes.h"
#include "tools/sink.h"

#define GROUP     128   /* of the trunk's quantisation */
#define F32_BELOW 65536 /* smaller tensors stay f32, as the converter has it */

typedef struct maker {
    shape s;
    const expert_format *experts;
    const char *dir;
    waste_fmt trunk_fmt;
    uint64_t seed, bytes;
    sink trunk;
    waste_buf index, layers; /* JSON of manifest.trunk and manifest.layers */
} maker;

/* ---- random streams -------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
typedef struct rng {
    uint64_t state;
} rng;

static uint64_t scramble(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t next(rng *r)
{
    return scramble(r->state += 0x9E3779B97F4A7C15u);
}

static rng stream(uint64_t seed, const char *name, uint64_t a, uint64_t b)
{
    rng r = {scramble(seed)};

    for (; *name; name++) r.state = (r.state ^ (unsigned char)*name) * 0x100000001B3u;
    r.state = scramble(scramble(r.state ^ a) + b);
    return r;
}

static double uniform(rng *r, double lo, double hi)
{
    return lo + (hi - lo) * (double)(next(r) >> 11) * 0x1p-53;
}

/* The standard normal distribution in 256 equally likely steps: quantile[b] is
 * the middle of step b. None is beyond 2.9, and the variance is 0.995. */
static float quantile[256];

static void make_quantiles(void)
{
    double lo, hi, mid;
    int b, i;

    for (b = 0; b < 256; b++) {
        lo = -8;
        hi = 8;
        for (i = 0; i < 60; i++) {
            mid = (lo + hi) / 2;
            if (erfc(-mid / sqrt(2.0)) / 2 < (b + 0.5) / 256)
                lo = mid;
            else
                hi = mid;
        }
        quantile[b] = (float)lo;
    }
}

static float normal(rng *r)
{
    return quantile[next(r) >> 56];
}

static void random_bytes(rng *r, unsigned char *to, size_t n)
{
    uint64_t x;
    size_t i;

    for (i = 0; i + 8 <= n; i += 8) {
        x = next(r);
        memcpy(to + i, &x, 8);
    }
    x = next(r);
    if (i < n) memcpy(to + i, &x, n - i);
}

/* ---- trunk tensors ------------------------------------------------------------ */

/* name, shape and format of the tensor that comes next */
static void describe(maker *m, const char *name, waste_fmt fmt, const int64_t *dim, int dims,
                     uint64_t payload, uint64_t scales)
{
    waste_buf *b = &m->index;
    uint64_t off = sink_at(&m->trunk);
    int i;

    waste_buf_printf(b, "%s\n{\"name\":\"%s%s\",\"fmt\":%d,\"off\":%llu,\"shape\":[",
                     b->len ? "," : "", m->s.prefix, name, (int)fmt, (unsigned long long)off);
    for (i = 0; i < dims; i++) waste_buf_printf(b, "%s%lld", i ? "," : "", (long long)dim[i]);
    waste_buf_text(b, "]");
    if (fmt != WASTE_FMT_F32)
        waste_buf_printf(b, ",\"group\":%d,\"scale_off\":%llu", GROUP,
                         (unsigned long long)(off + payload));
    waste_buf_printf(b, ",\"bytes\":%llu}", (unsigned long long)(payload + scales));
}

/* How the values of an f32 tensor are drawn. */
typedef enum draw {
    DRAW_NORMAL,  /* mean 0, standard deviation `std` */
    DRAW_NORM,    /* around 1: the weights of a norm */
    DRAW_A_LOG,   /* decay of KDA: exp is uniform in 1..16, as Mamba starts */
    DRAW_A_LOG_B, /* the bounded gate's */
    DRAW_DT,      /* softplus of it is 0.001..0.1 */
    DRAW_DT_B
} draw;

static float draw_one(rng *r, draw how, double std)
{
    double d;

    switch (how) {
    case DRAW_NORM: return 1 + 0.1f * normal(r);
    case DRAW_A_LOG: return (float)log(uniform(r, 1, 16));
    case DRAW_A_LOG_B: return (float)log(uniform(r, 0.5, 4));
    case DRAW_DT_B: return (float)uniform(r, -4, -0.5);
    case DRAW_DT: d = exp(uniform(r, log(1e-3), log(1e-1))); return (float)(d + log(-expm1(-d)));
    case DRAW_NORMAL: break;
    }
    return (float)(normal(r) * std);
}

static void floats(maker *m, const char *name, const int64_t *dim, int dims, int64_t n, draw how,
                   double std)
{
    rng r = stream(m->seed, name, 0, 0);
    int64_t i;

    describe(m, name, WASTE_FMT_F32, dim, dims, 4 * (uint64_t)n, 0);
    for (i = 0; i < n; i++) {
        float v = draw_one(&r, how, std);

        sink_put(&m->trunk, &v, sizeof v);
    }
}

static void vector(maker *m, const char *name, int64_t n, draw how, double std)
{
    floats(m, name, &n, 1, n, how, std);
}

/* Standard deviation of the codes that random_codes draws. */
static double code_unit(waste_fmt fmt)
{
    return fmt == WASTE_FMT_Q8G ? 73.3 : fmt == WASTE_FMT_Q4G ? 4.18 : 1.87;
}

/* A row of random codes, symmetric around weight 0: the lowest code, which a
 * converter never writes, becomes that of 0. `row` is as long as
 * waste_quant_row_bytes says, for a multiple of GROUP columns. */
static void random_codes(rng *r, waste_fmt fmt, unsigned char *row, size_t bytes)
{
    uint64_t x, some;
    size_t i;

    if (fmt == WASTE_FMT_Q3G) row[--bytes] = 0; /* the guard byte */
    random_bytes(r, row, bytes);
    if (fmt == WASTE_FMT_Q8G) {
        for (i = 0; i < bytes; i++) row[i] = row[i] == 0x80 ? 0 : row[i];
    } else if (fmt == WASTE_FMT_Q4G) {
        for (i = 0; i < bytes; i += 8) {
            memcpy(&x, row + i, 8);
            some = x | x >> 1 | x >> 2 | x >> 3;
            x |= (~some & 0x1111111111111111u) << 3;
            memcpy(row + i, &x, 8);
        }
    } else {
        for (i = 0; i < bytes; i += 6) { /* 16 codes */
            x = 0;
            memcpy(&x, row + i, 6);
            some = x | x >> 1 | x >> 2;
            x |= (~some & 0x249249249249u) << 2;
            memcpy(row + i, &x, 6);
        }
    }
}

static void put_scales(maker *m, rng *r, int64_t n, double scale, double spread)
{
    while (n-- > 0) {
        uint16_t h = waste_f32_to_f16((float)(scale * uniform(r, 1 - spread, 1 + spread)));

        sink_put(&m->trunk, &h, sizeof h);
    }
}

/* A weight matrix whose outputs have `gain` times the size of its inputs. */
static void matrix(maker *m, const char *name, int64_t rows, int64_t cols, double gain)
{
    const waste_fmt fmt = m->trunk_fmt;
    const int64_t dim[2] = {rows, cols};
    const size_t bytes = (size_t)waste_quant_row_bytes(fmt, cols, GROUP);
    const double std = gain / sqrt((double)cols);
    unsigned char *row;
    rng r;
    int64_t i;

    if (rows * cols < F32_BELOW) {
        floats(m, name, dim, 2, rows * cols, DRAW_NORMAL, std);
        return;
    }
    if (cols % GROUP) die("%s: %lld columns are not whole groups", name, (long long)cols);
    describe(m, name, fmt, dim, 2, (uint64_t)rows * bytes, (uint64_t)(2 * rows * (cols / GROUP)));
    r = stream(m->seed, name, 0, 0);
    row = need(malloc(bytes));
    for (i = 0; i < rows; i++) {
        random_codes(&r, fmt, row, bytes);
        sink_put(&m->trunk, row, bytes);
    }
    put_scales(m, &r, rows * (cols / GROUP), std / code_unit(fmt), 0.2);
    free(row);
}

/* ---- the walk -------------------------------------------------------------------- */

static const int span[3] = {1, 4, 32}; /* tokens that share a topic vector */

/* The topic vector of `token` among those of span[k] tokens, times `size`. */
static void topic(const maker *m, int k, int64_t token, double size, float *to)
{
    rng r = stream(m->seed, "topic", (uint64_t)k, (uint64_t)(token / span[k]));
    const float f = (float)size;
    int i, j;

    for (i = 0; i < m->s.hidden; i += 8) { /* hidden is a multiple of GROUP */
        uint64_t x = next(&r);

        for (j = 0; j < 8; j++, x >>= 8) to[i + j] = f * quantile[x & 255];
    }
}

/* Rows of vocab vectors that have the standard deviation `std`, 8-bit with one
 * scale. head 0: the embedding. head 1: what answers to it. */
static void walk_matrix(maker *m, const char *name, int head, double std)
{
    const int64_t h = m->s.hidden, v = m->s.vocab, dim[2] = {v, h}, groups = h / GROUP;
    float *part[3] = {0}, unit, x;
    int8_t *row = need(malloc((size_t)h));
    double sum = m->s.topic[0] + m->s.topic[1] + m->s.topic[2];
    uint16_t scale = waste_f32_to_f16((float)(std * 4.5 / 127));
    int64_t t, i;
    int k;

    unit = 1 / waste_f16_to_f32(scale);
    for (k = 0; k < 3; k++) part[k] = need(calloc((size_t)h, sizeof **part));
    describe(m, name, WASTE_FMT_Q8G, dim, 2, (uint64_t)(v * h), (uint64_t)(2 * v * groups));
    for (t = 0; t < v; t++) {
        if (head) topic(m, 0, (t + v - 1) % v, std * unit, part[0]);
        for (k = 0; k < 3 && !head; k++)
            if (t % span[k] == 0) topic(m, k, t, std * unit * sqrt(m->s.topic[k] / sum), part[k]);
        for (i = 0; i < h; i++) {
            x = part[0][i] + part[1][i] + part[2][i];
            x = x > 127 ? 127 : x < -127 ? -127 : x;
            row[i] = (int8_t)((int)(x + 128.5f) - 128);
        }
        sink_put(&m->trunk, row, (size_t)h);
    }
    for (i = 0; i < v * groups; i++) sink_put(&m->trunk, &scale, sizeof scale);
    for (k = 0; k < 3; k++) free(part[k]);
    free(row);
}

/* ---- the trunk, layer by layer --------------------------------------------------- */

/* The name of a tensor of a layer; good until the next call. */
static const char *of(int layer, const char *name)
{
    static char text[160];

    snprintf(text, sizeof text, "model.layers.%d.%s", layer, name);
    return text;
}

static void kda(maker *m, int l)
{
    static const char *const conv[] = {"self_attn.q_conv1d.weight", "self_attn.k_conv1d.weight",
                                       "self_attn.v_conv1d.weight"};
    const shape *s = &m->s;
    const int64_t h = s->hidden, c = (int64_t)s->heads * HEAD_DIM;
    const int64_t taps[3] = {c, 1, TAPS};
    /* K3 pads its one value per head to the head's width */
    const int64_t a_log[4] = {1, 1, s->k3 && s->heads < HEAD_DIM ? HEAD_DIM : s->heads, 1};
    int i;

    matrix(m, of(l, "self_attn.q_proj.weight"), c, h, 1);
    matrix(m, of(l, "self_attn.k_proj.weight"), c, h, 1);
    matrix(m, of(l, "self_attn.v_proj.weight"), c, h, 1);
    for (i = 0; i < 3; i++) floats(m, of(l, conv[i]), taps, 3, c * TAPS, DRAW_NORMAL, 0.6);
    matrix(m, of(l, "self_attn.f_a_proj.weight"), HEAD_DIM, h, 1);
    matrix(m, of(l, "self_attn.f_b_proj.weight"), c, HEAD_DIM, 1);
    matrix(m, of(l, "self_attn.b_proj.weight"), s->heads, h, 1);
    floats(m, of(l, "self_attn.A_log"), a_log, 4, a_log[2], s->k3 ? DRAW_A_LOG_B : DRAW_A_LOG, 0);
    vector(m, of(l, "self_attn.dt_bias"), c, s->k3 ? DRAW_DT_B : DRAW_DT, 0);
    if (s->k3) {
        matrix(m, of(l, "self_attn.g_proj.weight"), c, h, 1);
    } else {
        matrix(m, of(l, "self_attn.g_a_proj.weight"), HEAD_DIM, h, 1);
        matrix(m, of(l, "self_attn.g_b_proj.weight"), c, HEAD_DIM, 1);
    }
    vector(m, of(l, "self_attn.o_norm.weight"), HEAD_DIM, DRAW_NORM, 0);
    matrix(m, of(l, "self_attn.o_proj.weight"), h, c, 1.6 * s->gain);
}

static void mla(maker *m, int l)
{
    const shape *s = &m->s;
    const int64_t h = s->hidden, n = s->heads, q = n * (HEAD_DIM + ROPE_DIM), v = n * HEAD_DIM;

    if (s->q_rank) {
        matrix(m, of(l, "self_attn.q_a_proj.weight"), s->q_rank, h, 1);
        vector(m, of(l, "self_attn.q_a_layernorm.weight"), s->q_rank, DRAW_NORM, 0);
        matrix(m, of(l, "self_attn.q_b_proj.weight"), q, s->q_rank, 1);
    } else {
        matrix(m, of(l, "self_attn.q_proj.weight"), q, h, 1);
    }
    matrix(m, of(l, "self_attn.kv_a_proj_with_mqa.weight"), KV_RANK + ROPE_DIM, h, 1);
    vector(m, of(l, "self_attn.kv_a_layernorm.weight"), KV_RANK, DRAW_NORM, 0);
    matrix(m, of(l, "self_attn.kv_b_proj.weight"), n * 2 * HEAD_DIM, KV_RANK, 1);
    if (s->k3) matrix(m, of(l, "self_attn.g_proj.weight"), v, h, 1);
    matrix(m, of(l, "self_attn.o_proj.weight"), h, v, 2 * s->gain);
}

static void moe(maker *m, int l)
{
    const shape *s = &m->s;
    const int64_t h = s->hidden, w = (int64_t)s->moe * s->shared;

    matrix(m, of(l, "block_sparse_moe.gate.weight"), s->experts, h, 1);
    vector(m, of(l, "block_sparse_moe.gate.e_score_correction_bias"), s->experts, DRAW_NORMAL,
           s->bias);
    matrix(m, of(l, "block_sparse_moe.shared_experts.gate_proj.weight"), w, h, 1);
    matrix(m, of(l, "block_sparse_moe.shared_experts.up_proj.weight"), w, h, 1);
    matrix(m, of(l, "block_sparse_moe.shared_experts.down_proj.weight"), h, w, 2 * s->gain);
    if (!s->latent) return;
    matrix(m, of(l, "block_sparse_moe.routed_expert_down_proj.weight"), s->latent, h, 1);
    matrix(m, of(l, "block_sparse_moe.routed_expert_up_proj.weight"), h, s->latent, s->gain);
    vector(m, of(l, "block_sparse_moe.routed_expert_norm.weight"), s->latent, DRAW_NORM, 0);
}

static void dense(maker *m, int l)
{
    const int64_t h = m->s.hidden, w = m->s.dense;

    matrix(m, of(l, "mlp.gate_proj.weight"), w, h, 1);
    matrix(m, of(l, "mlp.up_proj.weight"), w, h, 1);
    matrix(m, of(l, "mlp.down_proj.weight"), h, w, 2 * m->s.gain);
}

/* A norm and a projection to one score, for AttnRes. `sharp` is the score's size:
 * with a small one no source of the mixture is ever lost. */
static void residual(maker *m, const char *norm, const char *proj, double sharp)
{
    const int64_t one[2] = {1, m->s.hidden};
    char name[160];

    snprintf(name, sizeof name, "%s", proj);
    vector(m, norm, m->s.hidden, DRAW_NORM, 0);
    floats(m, name, one, 2, m->s.hidden, DRAW_NORMAL, sharp / sqrt((double)m->s.hidden));
}

static void layer_trunk(maker *m, int l)
{
    char norm[160];

    vector(m, of(l, "input_layernorm.weight"), m->s.hidden, DRAW_NORM, 0);
    vector(m, of(l, "post_attention_layernorm.weight"), m->s.hidden, DRAW_NORM, 0);
    if (m->s.k3) {
        snprintf(norm, sizeof norm, "%s", of(l, "self_attention_res_norm.weight"));
        residual(m, norm, of(l, "self_attention_res_proj.weight"), 1);
        snprintf(norm, sizeof norm, "%s", of(l, "mlp_res_norm.weight"));
        residual(m, norm, of(l, "mlp_res_proj.weight"), 1);
    }
    if (shape_is_mla(&m->s, l + 1))
        mla(m, l);
    else
        kda(m, l);
    if (l > 0)
        moe(m, l);
    else
        dense(m, l);
}

static void make_trunk(maker *m)
{
    int l;

    sink_open(&m->trunk, m->dir, "trunk.bin");
    walk_matrix(m, "model.embed_tokens.weight", 0, 1);
    for (l = 0; l < m->s.layers; l++) layer_trunk(m, l);
    if (m->s.k3) /* the token's own vector must reach the head */
        residual(m, "model.output_attn_res_norm.weight", "model.output_attn_res_proj.weight", 0.25);
    vector(m, "model.norm.weight", m->s.hidden, DRAW_NORM, 0);
    walk_matrix(m, "lm_head.weight", 1, 1 / sqrt((double)m->s.hidden));
    m->bytes += sink_close(&m->trunk);
}

/* ---- experts --------------------------------------------------------------------- */

static void make_codebooks(maker *m)
{
    const expert_format *f = m->experts;
    const int books = 3 * f->quant.stages, n = f->quant.entries * f->quant.vec_dim;
    sink s;
    int id, i;

    sink_open(&s, m->dir, "codebooks.bin");
    for (id = 0; id < books * (m->s.layers - 1); id++) {
        waste_codebook_header h = {.magic = WASTE_CODEBOOK_MAGIC,
                                   .id = (uint16_t)id,
                                   .fmt = WASTE_FMT_VQ3R, /* whatever the records say */
                                   .vec_dim = (uint8_t)f->quant.vec_dim,
                                   .entries = (uint32_t)f->quant.entries};
        rng r = stream(m->seed, "codebook", (uint64_t)id, 0);

        sink_put(&s, &h, sizeof h);
        for (i = 0; i < n; i++) {
            uint16_t v = waste_f32_to_f16((float)(normal(&r) * f->stage[id % f->quant.stages]));

            sink_put(&s, &v, sizeof v);
        }
    }
    m->bytes += sink_close(&s);
}

/* Row scales that make the matrix's outputs `gain` times its inputs. */
static unsigned char *row_scales(rng *r, unsigned char *to, int64_t rows, double scale)
{
    for (; rows > 0; rows--, to += 2) {
        uint16_t h = waste_f32_to_f16((float)(scale * uniform(r, 0.6, 1.4)));

        memcpy(to, &h, 2);
    }
    return to;
}

static void make_record(const maker *m, const waste_record_layout *at, int layer, int expert,
                        unsigned char *record)
{
    const expert_format *f = m->experts;
    const int64_t width = m->s.moe, input = m->s.latent ? m->s.latent : m->s.hidden;
    waste_record_header h = {.magic = WASTE_EXPERT_MAGIC,
                             .layer = (uint16_t)layer,
                             .expert = (uint16_t)expert,
                             .fmt = (uint8_t)f->fmt,
                             .codebook = (uint16_t)((layer - 1) * 3 * f->quant.stages),
                             .blocks = (uint32_t)(at->bytes / WASTE_RECORD_ALIGN),
                             .gate_off = (uint32_t)at->gate_off,
                             .up_off = (uint32_t)at->up_off,
                             .down_off = (uint32_t)at->down_off,
                             .scale_off = (uint32_t)at->scale_off};
    rng r = stream(m->seed, "expert", (uint64_t)layer, (uint64_t)expert);
    double size = 0;
    unsigned char *p;
    int i;

    for (i = 0; i < f->quant.stages; i++) size += f->stage[i] * f->stage[i];
    size = sqrt(size);
    /* all rows come in whole blocks, so every index is one that is used */
    random_bytes(&r, record + at->gate_off, at->scale_off - at->gate_off);
    p = row_scales(&r, record + at->scale_off, 2 * width, 1 / (size * sqrt((double)input)));
    p = row_scales(&r, p, input, 2 * m->s.gain / (size * sqrt((double)width)));
    memset(p, 0, at->bytes - at->scale_end);
    h.crc32 = waste_record_crc(record, at);
    memcpy(record, &h, sizeof h);
}

static void make_bank(maker *m, int layer)
{
    const int64_t input = m->s.latent ? m->s.latent : m->s.hidden;
    waste_record_layout at;
    unsigned char *record;
    char name[32];
    uint64_t bytes;
    sink s;
    int e;

    waste_record_layout_of(&at, &m->experts->quant, m->s.moe, input);
    record = need(malloc(at.bytes));
    snprintf(name, sizeof name, "experts-L%d.bin", layer);
    sink_open(&s, m->dir, name);
    for (e = 0; e < m->s.experts; e++) {
        make_record(m, &at, layer, e, record);
        sink_put(&s, record, at.bytes);
    }
    free(record);
    bytes = sink_close(&s);
    m->bytes += bytes;
    waste_buf_printf(&m->layers,
                     "%s\n\"%d\":{\"file\":\"%s\",\"experts\":%d,\"bytes\":%llu,"
                     "\"codebook_base\":%d}",
                     m->layers.len ? "," : "", layer, name, m->s.experts, (unsigned long long)bytes,
                     (layer - 1) * 3 * m->experts->quant.stages);
}

/* ---- manifest -------------------------------------------------------------------- */

static void make_manifest(maker *m)
{
    const expert_format *f = m->experts;
    char path[WASTE_PATH_MAX];
    waste_error err = {0};
    waste_buf b = {0};

    waste_buf_printf(&b,
                     "{\"format_version\":0,\"arch\":\"%s\",\"tensor_prefix\":\"%s\",\n"
                     "\"expert_quant\":{\"fmt\":\"%s\",\"stages\":%d,\"vec_dim\":%d,\"entries\":%d,"
                     "\"index_block\":%d,\"index_bits\":%d,\"bits_per_weight\":%g},\n\"config\":",
                     m->s.arch, m->s.prefix, f->name, f->quant.stages, f->quant.vec_dim,
                     f->quant.entries, f->quant.index_block, f->quant.index_bits, f->bits);
    shape_config(&b, &m->s);
    waste_buf_text(&b, ",\n\"layers\":{");
    if (m->layers.len) waste_buf_add(&b, m->layers.data, m->layers.len);
    waste_buf_text(&b, "},\n\"trunk\":[");
    if (m->index.len) waste_buf_add(&b, m->index.data, m->index.len);
    waste_buf_text(&b, "]}\n");
    if (b.failed || m->index.failed || m->layers.failed) die("out of memory");
    snprintf(path, sizeof path, "%s/manifest.json", m->dir);
    if (waste_file_publish(path, b.data, b.len, &err)) die("%s", err.text);
    waste_buf_clear(&b);
    waste_buf_clear(&m->index);
    waste_buf_clear(&m->layers);
}

/* ---- command line ---------------------------------------------------------------- */

static int usage(const char *what, const char *about)
{
    fprintf(stderr, "mkbig: %s %s; see the head of tests/tools/mkbig.c\n", what, about);
    return 2;
}

static int whole(const char *text, int lo, int hi, int *to)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (end == text || *end || v < lo || v > hi) return 0;
    *to = (int)v;
    return 1;
}

static int size(const char *text, double *to)
{
    char *end;

    *to = strtod(text, &end);
    return end != text && !*end && *to >= 0 && *to < 100;
}

static int topics(const char *text, double to[3])
{
    char more;

    return sscanf(text, "%lf,%lf,%lf%c", &to[0], &to[1], &to[2], &more) == 3 && to[0] > 0 &&
           to[1] >= 0 && to[2] >= 0;
}

static int choose_format(maker *m, const char *text)
{
    size_t i;

    for (i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(text, formats[i].option)) m->experts = &formats[i];
    return !strcmp(text, m->experts->option);
}

static int choose_bits(maker *m, const char *text)
{
    int bits;

    if (!whole(text, 3, 8, &bits) || (bits > 4 && bits < 8)) return 0;
    m->trunk_fmt = bits == 3 ? WASTE_FMT_Q3G : bits == 4 ? WASTE_FMT_Q4G : WASTE_FMT_Q8G;
    return 1;
}

/* 1 when the option is known and its value good. */
static int option(maker *m, const char *name, const char *value)
{
    shape *s = &m->s;
    char *end;

    if (!strcmp(name, "--preset")) return 1; /* taken before */
    if (!strcmp(name, "--layers")) return whole(value, 2, 93, &s->layers);
    if (!strcmp(name, "--experts")) return whole(value, 1, 4096, &s->experts);
    if (!strcmp(name, "--vocab")) return whole(value, 64, 1 << 20, &s->vocab);
    if (!strcmp(name, "--top-k")) return whole(value, 1, 64, &s->top_k);
    if (!strcmp(name, "--bias")) return size(value, &s->bias);
    if (!strcmp(name, "--gain")) return size(value, &s->gain);
    if (!strcmp(name, "--topics")) return topics(value, s->topic);
    if (!strcmp(name, "--vq")) return choose_format(m, value);
    if (!strcmp(name, "--trunk-bits")) return choose_bits(m, value);
    if (strcmp(name, "--seed") != 0) return 0;
    m->seed = strtoull(value, &end, 10);
    return end != value && !*end;
}

static int choose_preset(maker *m, int argc, char **argv)
{
    size_t k;
    int i;

    for (i = 2; i + 1 < argc; i += 2)
        for (k = 0; k < sizeof preset / sizeof *preset; k++)
            if (!strcmp(argv[i], "--preset") && !strcmp(argv[i + 1], preset[k].name))
                m->s = preset[k];
    return m->s.name != NULL;
}

static double now(void)
{
    return (double)waste_clock_ns() * 1e-9;
}

int main(int argc, char **argv)
{
    maker m = {.experts = formats, .trunk_fmt = WASTE_FMT_Q4G, .seed = 1};
    char old[WASTE_PATH_MAX];
    double start = now();
    int i;

    sink_program = "mkbig";
    if (argc < 4 || argc % 2 || argv[1][0] == '-') return usage("wanted:", "DIR --preset NAME");
    if (!choose_preset(&m, argc, argv)) return usage("no such", "preset");
    for (i = 2; i < argc; i += 2)
        if (!option(&m, argv[i], argv[i + 1])) return usage("cannot use", argv[i]);
    if (m.s.top_k > m.s.experts) return usage("more experts per token than", "--experts");
    m.dir = argv[1];
    if (mkdir(m.dir, 0755) && errno != EEXIST) die("%s: %s", m.dir, strerror(errno));
    snprintf(old, sizeof old, "%s/manifest.json", m.dir);
    if (unlink(old) && errno != ENOENT) die("%s: %s", old, strerror(errno));

    make_quantiles();
    make_trunk(&m);
    make_codebooks(&m);
    for (i = 1; i < m.s.layers; i++) make_bank(&m, i);
    make_manifest(&m);
    printf("%s: %s, %d layers, %d experts of %s, %.2f GB in %.1f s, %.0f MB/s\n", m.dir, m.s.name,
           m.s.layers, m.s.experts, m.experts->name, (double)m.bytes * 1e-9, now() - start,
           (double)m.bytes * 1e-6 / (now() - start));
    return 0;
}
