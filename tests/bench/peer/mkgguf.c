/* mkgguf: a container of Kimi-Linear's family as a GGUF file for llama.cpp ("kimi-linear"),
 * so that both can run the same model. One thread.
 *
 *   mkgguf CONTAINER FILE
 *
 * Weights are decoded from the container and encoded again in the formats of llama.cpp that
 * are nearest in size: routed experts Q3_K (3.44 bits a weight), the rest of the layers Q4_0
 * (4.5), embedding and head Q8_0 (8.5), vectors, convolutions and routers f32. Rounding is to the
 * nearest code with scales from the largest weight. For speed, not for use: the tokens in
 * the file are made up, and only their number is the model's.
 *
 * Exit: 0, 1 with the error on stderr, 2 for a wrong command line. */
#include <math.h>

#include "base/buf.h"
#include "base/plat.h"
#include "kernels/quant.h"
#include "model/config.h"
#include "store/record.h"
#include "tools/sink.h"

#define ALIGN       32 /* of every tensor in the file, GGUF's default */
#define MAX_TENSORS 4096

/* Numbers of ggml_type; block sizes in weights and bytes. */
typedef enum ggml { GGML_F32 = 0, GGML_Q4_0 = 2, GGML_Q8_0 = 8, GGML_Q3_K = 11 } ggml;

typedef struct block {
    int64_t weights, bytes;
} block;

/* How a tensor comes from the container's. */
typedef enum take {
    TAKE_ROWS,
    TAKE_DECAY,  /* -exp(x) */
    TAKE_KEYS,   /* of kv_b, the key half of each head, transposed */
    TAKE_VALUES, /* of kv_b, the value half of each head */
    TAKE_EXPERTS
} take;

typedef struct tensor {
    char name[64], from[160];
    ggml type;
    int dims;
    int64_t ne[4]; /* the fastest first */
    take how;
    int layer, kind; /* of experts; kind: gate, up, down */
    uint64_t at, bytes;
} tensor;

typedef struct maker {
    waste_manifest *m;
    waste_config c;
    waste_file trunk;
    char trunk_path[WASTE_PATH_MAX];
    tensor t[MAX_TENSORS];
    int n;
    uint64_t end; /* of the tensors that are described */
    sink out;
} maker;

static waste_error err;

static void checked(waste_status st)
{
    if (st) die("%s", err.text);
}

/* ---- blocks -------------------------------------------------------------------------------- */

static block block_of(ggml type)
{
    switch (type) {
    case GGML_Q4_0: return (block){32, 18};
    case GGML_Q8_0: return (block){32, 34};
    case GGML_Q3_K: return (block){256, 110};
    case GGML_F32: break;
    }
    return (block){1, 4};
}

/* The weight that is furthest from zero, with its sign. */
static float furthest(const float *w, int n)
{
    float most = 0;
    int i;

    for (i = 0; i < n; i++)
        if (fabsf(w[i]) > fabsf(most)) most = w[i];
    return most;
}

static int nearest(float x, int lo, int hi)
{
    const int i = (int)(x + 1024.5f) - 1024; /* |x| is far below 1024 */

    return i < lo ? lo : i > hi ? hi : i;
}

static void put_f16(unsigned char *to, float f)
{
    const uint16_t h = waste_f32_to_f16(f);

    memcpy(to, &h, 2);
}

/* A scale, then codes of 4 bits around 8: the first 16 are low halves of bytes. */
static void encode_q4_0(const float *w, unsigned char *to)
{
    const float d = furthest(w, 32) / -8, f = d != 0 ? 1 / d : 0;
    int i;

    put_f16(to, d);
    for (i = 0; i < 16; i++)
        to[2 + i] =
            (unsigned char)(nearest(w[i] * f + 8, 0, 15) | nearest(w[i + 16] * f + 8, 0, 15) << 4);
}

static void encode_q8_0(const float *w, unsigned char *to)
{
    const float d = fabsf(furthest(w, 32)) / 127, f = d != 0 ? 1 / d : 0;
    int i;

    put_f16(to, d);
    for (i = 0; i < 32; i++) to[2 + i] = (unsigned char)nearest(w[i] * f, -127, 127);
}

/* 16 groups of 16 weights. 32 bytes of the codes' third bits (inverted: set is not negative),
 * 64 of their low two, 12 of the groups' scales (6 bits, around 32), the scale of these. Weight
 * 128 h + 32 j + l has bit 4 h + j of byte l, and bits 2 j of byte 32 h + l. */
static void encode_q3_k(const float *w, unsigned char *to)
{
    unsigned char *high = to, *low = to + 32, *scales = to + 96;
    float group[16], most, d, f;
    int g, i, code, s;

    for (g = 0; g < 16; g++) group[g] = furthest(w + 16 * g, 16) / -4;
    most = furthest(group, 16);
    d = waste_f16_to_f32(waste_f32_to_f16(most / -32));
    memset(to, 0, 110);
    put_f16(to + 108, d);
    for (g = 0; g < 16; g++) {
        s = d != 0 ? nearest(group[g] / d, -32, 31) : 0;
        f = d != 0 && s ? 1 / (d * (float)s) : 0;
        scales[g % 8] |= (unsigned char)(((s + 32) & 15) << 4 * (g / 8));
        scales[8 + g % 4] |= (unsigned char)((s + 32) >> 4 << 2 * (g / 4));
        for (i = 16 * g; i < 16 * g + 16; i++) {
            code = nearest(w[i] * f, -4, 3) + 4;
            high[i % 32] |= (unsigned char)(code >> 2 << i / 32);
            low[i / 128 * 32 + i % 32] |= (unsigned char)((code & 3) << 2 * (i / 32 % 4));
        }
    }
}

/* Whole blocks of one row or more. */
static void put_weights(maker *k, ggml type, const float *w, int64_t n)
{
    const block b = block_of(type);
    unsigned char to[128];
    int64_t i;

    if (type == GGML_F32) {
        sink_put(&k->out, w, (size_t)n * sizeof *w);
        return;
    }
    for (i = 0; i < n; i += b.weights) {
        if (type == GGML_Q4_0)
            encode_q4_0(w + i, to);
        else if (type == GGML_Q8_0)
            encode_q8_0(w + i, to);
        else
            encode_q3_k(w + i, to);
        sink_put(&k->out, to, (size_t)b.bytes);
    }
}

/* ---- what is in the file --------------------------------------------------------------------- */

static tensor *describe(maker *k, const char *name, ggml type, take how, int dims,
                        const int64_t *ne)
{
    const block b = block_of(type);
    tensor *t = &k->t[k->n++];
    int64_t n = 1;
    int i;

    if (k->n == MAX_TENSORS) die("more than %d tensors", MAX_TENSORS);
    if (ne[0] % b.weights) die("%s: rows of %lld are not whole blocks", name, (long long)ne[0]);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->type = type;
    t->how = how;
    t->dims = dims;
    for (i = 0; i < dims; i++) n *= t->ne[i] = ne[i];
    t->bytes = (uint64_t)(n / b.weights * b.bytes);
    t->at = k->end;
    k->end = (k->end + t->bytes + ALIGN - 1) / ALIGN * ALIGN;
    return t;
}

static const waste_trunk_entry *entry(const maker *k, const char *name)
{
    char full[256];
    const waste_trunk_entry *e;

    snprintf(full, sizeof full, "%s%s", k->m->prefix, name);
    e = waste_manifest_tensor(k->m, full);
    if (!e) die("%s has no tensor %s", k->m->path, full);
    return e;
}

/* A tensor of the trunk as it is; `dims` 1: a vector, 4: convolutions of its rows. */
static void plain(maker *k, const char *to, const char *from, ggml type, take how, int dims)
{
    const waste_trunk_entry *e = entry(k, from);
    const int64_t vec[1] = {e->rows * e->cols}, mat[2] = {e->cols, e->rows},
                  conv[4] = {e->cols, 1, e->rows, 1};
    tensor *t = describe(k, to, type, how, dims, dims == 1 ? vec : dims == 2 ? mat : conv);

    snprintf(t->from, sizeof t->from, "%s", from);
}

typedef struct part {
    const char *to, *from;
    ggml type;
    int dims;
    take how;
} part;

static const part kda[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"attn_k.weight", "self_attn.k_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"attn_v.weight", "self_attn.v_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"ssm_conv1d_q.weight", "self_attn.q_conv1d.weight", GGML_F32, 4, TAKE_ROWS},
    {"ssm_conv1d_k.weight", "self_attn.k_conv1d.weight", GGML_F32, 4, TAKE_ROWS},
    {"ssm_conv1d_v.weight", "self_attn.v_conv1d.weight", GGML_F32, 4, TAKE_ROWS},
    {"ssm_f_a.weight", "self_attn.f_a_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"ssm_f_b.weight", "self_attn.f_b_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"ssm_beta.weight", "self_attn.b_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"ssm_dt.bias", "self_attn.dt_bias", GGML_F32, 1, TAKE_ROWS},
    {"ssm_g_a.weight", "self_attn.g_a_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"ssm_g_b.weight", "self_attn.g_b_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"ssm_norm.weight", "self_attn.o_norm.weight", GGML_F32, 1, TAKE_ROWS},
    {"attn_output.weight", "self_attn.o_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {0}};

static const part mla[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", GGML_F32, 1, TAKE_ROWS},
    {"attn_output.weight", "self_attn.o_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
    {0}};

static const part dense[] = {{"ffn_gate.weight", "mlp.gate_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
                             {"ffn_up.weight", "mlp.up_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
                             {"ffn_down.weight", "mlp.down_proj.weight", GGML_Q4_0, 2, TAKE_ROWS},
                             {0}};

static const part moe[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", GGML_F32, 2, TAKE_ROWS},
    {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", GGML_F32, 1, TAKE_ROWS},
    {"ffn_gate_shexp.weight", "block_sparse_moe.shared_experts.gate_proj.weight", GGML_Q4_0, 2,
     TAKE_ROWS},
    {"ffn_up_shexp.weight", "block_sparse_moe.shared_experts.up_proj.weight", GGML_Q4_0, 2,
     TAKE_ROWS},
    {"ffn_down_shexp.weight", "block_sparse_moe.shared_experts.down_proj.weight", GGML_Q4_0, 2,
     TAKE_ROWS},
    {0}};

static const part norms[] = {
    {"attn_norm.weight", "input_layernorm.weight", GGML_F32, 1, TAKE_ROWS},
    {"ffn_norm.weight", "post_attention_layernorm.weight", GGML_F32, 1, TAKE_ROWS},
    {0}};

static void layer_parts(maker *k, int l, const part *p)
{
    char to[64], from[160];

    for (; p->to; p++) {
        snprintf(to, sizeof to, "blk.%d.%s", l, p->to);
        snprintf(from, sizeof from, "model.layers.%d.%s", l, p->from);
        plain(k, to, from, p->type, p->how, p->dims);
    }
}

/* llama.cpp has MLA with kv_b folded into queries and outputs: two tensors. */
static void split_kv_b(maker *k, int l)
{
    const waste_config *c = &k->c;
    const int64_t keys[3] = {c->nope_dim, c->kv_rank, c->heads},
                  values[3] = {c->kv_rank, c->v_dim, c->heads};
    char to[64];
    tensor *t;

    snprintf(to, sizeof to, "blk.%d.attn_k_b.weight", l);
    t = describe(k, to, GGML_Q4_0, TAKE_KEYS, 3, keys);
    snprintf(t->from, sizeof t->from, "model.layers.%d.self_attn.kv_b_proj.weight", l);
    snprintf(to, sizeof to, "blk.%d.attn_v_b.weight", l);
    t = describe(k, to, GGML_Q4_0, TAKE_VALUES, 3, values);
    snprintf(t->from, sizeof t->from, "model.layers.%d.self_attn.kv_b_proj.weight", l);
}

static void describe_experts(maker *k, int l)
{
    static const char *const name[] = {"gate", "up", "down"};
    const int64_t width = k->c.moe_width, in = k->c.hidden;
    char to[64];
    tensor *t;
    int i;

    for (i = 0; i < 3; i++) {
        const int64_t ne[3] = {i < 2 ? in : width, i < 2 ? width : in, k->c.experts};

        snprintf(to, sizeof to, "blk.%d.ffn_%s_exps.weight", l, name[i]);
        t = describe(k, to, GGML_Q3_K, TAKE_EXPERTS, 3, ne);
        t->layer = l;
        t->kind = i;
    }
}

static void describe_all(maker *k)
{
    const int64_t decay[2] = {1, k->c.kda_heads};
    int l;

    plain(k, "token_embd.weight", "model.embed_tokens.weight", GGML_Q8_0, TAKE_ROWS, 2);
    plain(k, "output_norm.weight", "model.norm.weight", GGML_F32, TAKE_ROWS, 1);
    plain(k, "output.weight", "lm_head.weight", GGML_Q8_0, TAKE_ROWS, 2);
    for (l = 0; l < k->c.layers; l++) {
        layer_parts(k, l, norms);
        layer_parts(k, l, k->c.is_kda[l] ? kda : mla);
        if (k->c.is_kda[l]) {
            char to[64];
            tensor *t;

            snprintf(to, sizeof to, "blk.%d.ssm_a", l);
            t = describe(k, to, GGML_F32, TAKE_DECAY, 2, decay);
            snprintf(t->from, sizeof t->from, "model.layers.%d.self_attn.A_log", l);
        } else {
            split_kv_b(k, l);
        }
        if (waste_config_is_moe(&k->c, l)) {
            layer_parts(k, l, moe);
            describe_experts(k, l);
        } else {
            layer_parts(k, l, dense);
        }
    }
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* Rows [first, first + n) of the trunk's tensor as floats. */
static void trunk_rows(const maker *k, const waste_trunk_entry *e, int64_t first, int64_t n,
                       float *to)
{
    const size_t bytes = (size_t)waste_quant_row_bytes(e->fmt, e->cols, e->group);
    const size_t scales = e->group ? 2 * (size_t)((e->cols + e->group - 1) / e->group) : 0;
    unsigned char *row = need(malloc((size_t)n * bytes)), *s = need(malloc((size_t)n * scales + 1));
    int64_t i;

    checked(waste_file_read(&k->trunk, k->trunk_path, row, (size_t)n * bytes,
                            e->off + (uint64_t)first * bytes, &err));
    if (scales)
        checked(waste_file_read(&k->trunk, k->trunk_path, s, (size_t)n * scales,
                                e->scale_off + (uint64_t)first * scales, &err));
    for (i = 0; i < n; i++)
        waste_quant_decode_row(e->fmt, row + (size_t)i * bytes, s + (size_t)i * scales, e->cols,
                               e->group, to + i * e->cols);
    free(row);
    free(s);
}

static void put_rows(maker *k, const tensor *t)
{
    const waste_trunk_entry *e = entry(k, t->from);
    float *w = need(malloc((size_t)e->cols * sizeof *w));
    int64_t r, i;

    for (r = 0; r < e->rows; r++) {
        trunk_rows(k, e, r, 1, w);
        for (i = 0; t->how == TAKE_DECAY && i < e->cols; i++) w[i] = -expf(w[i]);
        put_weights(k, t->type, w, e->cols);
    }
    free(w);
}

/* kv_b is [heads][key of nope_dim, value of v_dim][kv_rank]. */
static void put_kv_b(maker *k, const tensor *t)
{
    const waste_config *c = &k->c;
    const waste_trunk_entry *e = entry(k, t->from);
    const int64_t nope = c->nope_dim, both = nope + c->v_dim, rank = c->kv_rank;
    float *w = need(malloc((size_t)(both * rank) * sizeof *w));
    float *row = need(malloc((size_t)nope * sizeof *row));
    int64_t h, r, i;

    for (h = 0; h < c->heads; h++) {
        trunk_rows(k, e, h * both, both, w);
        if (t->how == TAKE_VALUES) put_weights(k, t->type, w + nope * rank, c->v_dim * rank);
        for (r = 0; t->how == TAKE_KEYS && r < rank; r++) {
            for (i = 0; i < nope; i++) row[i] = w[i * rank + r];
            put_weights(k, t->type, row, nope);
        }
    }
    free(w);
    free(row);
}

/* The codebooks of one kind of matrix: [stage][entry][vec_dim]. */
static float *read_books(const maker *k, int layer, int kind)
{
    const waste_quant *q = &k->m->quant;
    const size_t n = (size_t)(q->entries * q->vec_dim), bytes = WASTE_CODEBOOK_HEADER + 2 * n;
    float *books = need(malloc((size_t)q->stages * n * sizeof *books));
    unsigned char *raw = need(malloc(bytes));
    waste_codebook_header h;
    char path[WASTE_PATH_MAX];
    waste_file f;
    int s, id;

    snprintf(path, sizeof path, "%s/codebooks.bin", k->m->dir);
    checked(waste_file_open(&f, path, &err));
    for (s = 0; s < q->stages; s++) {
        id = k->m->bank[layer].codebook_base + kind * q->stages + s;
        checked(waste_file_read(&f, path, raw, bytes, (uint64_t)id * bytes, &err));
        memcpy(&h, raw, sizeof h);
        if (h.magic != WASTE_CODEBOOK_MAGIC || h.id != id) die("%s: no codebook %d", path, id);
        waste_f16_widen((const uint16_t *)(const void *)(raw + WASTE_CODEBOOK_HEADER), n,
                        books + (size_t)s * n);
    }
    waste_file_close(&f);
    free(raw);
    return books;
}

/* One row of a matrix of indices of a byte each (VQ3R, VQ2R). */
static void expert_row(const waste_quant *q, const float *books, const unsigned char *index,
                       int64_t row, int64_t cols, float scale, float *to)
{
    const int64_t nv = cols / q->vec_dim;
    const size_t book = (size_t)(q->entries * q->vec_dim);
    int64_t v;
    int s, d;

    memset(to, 0, (size_t)cols * sizeof *to);
    for (v = 0; v < nv; v++, to += q->vec_dim) {
        const unsigned char *p = index + waste_record_index_pos(q, nv, row, v);

        for (s = 0; s < q->stages; s++) {
            const float *from = books + (size_t)s * book + (size_t)(p[s] * q->vec_dim);

            for (d = 0; d < q->vec_dim; d++) to[d] += scale * from[d];
        }
    }
}

static void put_experts(maker *k, const tensor *t)
{
    const waste_quant *q = &k->m->quant;
    const waste_bank_entry *b = &k->m->bank[t->layer];
    const int64_t cols = t->ne[0], rows = t->ne[1];
    unsigned char *record = need(malloc(b->record_bytes));
    float *w = need(malloc((size_t)cols * sizeof *w)), *books = read_books(k, t->layer, t->kind);
    const uint16_t *scales;
    waste_record_layout at;
    uint64_t index;
    char path[WASTE_PATH_MAX];
    waste_file f;
    int64_t r;
    int e;

    waste_record_layout_of(&at, q, k->c.moe_width, k->c.hidden);
    index = t->kind == 0 ? at.gate_off : t->kind == 1 ? at.up_off : at.down_off;
    scales = (const uint16_t *)(const void *)(record + at.scale_off) + t->kind * k->c.moe_width;
    snprintf(path, sizeof path, "%s/%s", k->m->dir, b->file);
    checked(waste_file_open(&f, path, &err));
    for (e = 0; e < b->experts; e++) {
        checked(waste_file_read(&f, path, record, b->record_bytes, (uint64_t)e * b->record_bytes,
                                &err));
        for (r = 0; r < rows; r++) {
            expert_row(q, books, record + index, r, cols, waste_f16_to_f32(scales[r]), w);
            put_weights(k, t->type, w, cols);
        }
    }
    waste_file_close(&f);
    free(record);
    free(books);
    free(w);
}

/* ---- the header ------------------------------------------------------------------------------ */

enum { KV_U32 = 4, KV_I32 = 5, KV_F32 = 6, KV_BOOL = 7, KV_STRING = 8, KV_ARRAY = 9 };

static void put_u32(waste_buf *b, uint32_t v)
{
    waste_buf_add(b, &v, sizeof v);
}

static void put_u64(waste_buf *b, uint64_t v)
{
    waste_buf_add(b, &v, sizeof v);
}

static void put_string(waste_buf *b, const char *s)
{
    put_u64(b, strlen(s));
    waste_buf_text(b, s);
}

/* Pairs of keys and values, counted. */
typedef struct pairs {
    waste_buf b;
    uint64_t n;
} pairs;

static void key(pairs *p, const char *name, uint32_t type)
{
    put_string(&p->b, name);
    put_u32(&p->b, type);
    p->n++;
}

static void whole(pairs *p, const char *name, int64_t v)
{
    key(p, name, KV_U32);
    put_u32(&p->b, (uint32_t)v);
}

static void real(pairs *p, const char *name, float v)
{
    key(p, name, KV_F32);
    waste_buf_add(&p->b, &v, sizeof v);
}

static void flag(pairs *p, const char *name, int v)
{
    key(p, name, KV_BOOL);
    waste_buf_byte(&p->b, (char)v);
}

static void text(pairs *p, const char *name, const char *v)
{
    key(p, name, KV_STRING);
    put_string(&p->b, v);
}

static void array(pairs *p, const char *name, uint32_t type, uint64_t n)
{
    key(p, name, KV_ARRAY);
    put_u32(&p->b, type);
    put_u64(&p->b, n);
}

/* Byte b as the vocabularies of GPT-2 spell it: printable ones as they are, the others from
 * U+0100 on. */
static void spell_byte(char to[4], int b, int *others)
{
    const int plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const int c = plain ? b : 256 + (*others)++;

    memset(to, 0, 4);
    if (c < 128) {
        to[0] = (char)c;
    } else {
        to[0] = (char)(0xC0 | c >> 6);
        to[1] = (char)(0x80 | (c & 63));
    }
}

/* All bytes, then made-up words. */
static void tokenizer(pairs *p, int vocab)
{
    char word[16];
    int i, others = 0;

    text(p, "tokenizer.ggml.model", "gpt2");
    text(p, "tokenizer.ggml.pre", "default");
    array(p, "tokenizer.ggml.tokens", KV_STRING, (uint64_t)vocab);
    for (i = 0; i < vocab; i++) {
        if (i < 256)
            spell_byte(word, i, &others);
        else
            snprintf(word, sizeof word, "w%d", i);
        put_string(&p->b, word);
    }
    array(p, "tokenizer.ggml.token_type", KV_I32, (uint64_t)vocab);
    for (i = 0; i < vocab; i++) put_u32(&p->b, 1);
    array(p, "tokenizer.ggml.merges", KV_STRING, 1);
    put_string(&p->b, "t h");
    whole(p, "tokenizer.ggml.bos_token_id", 0);
    whole(p, "tokenizer.ggml.eos_token_id", 0);
    flag(p, "tokenizer.ggml.add_bos_token", 0);
}

static void metadata(pairs *p, const waste_config *c)
{
    const int64_t qk = c->nope_dim + c->rope_dim;
    int l;

    text(p, "general.architecture", "kimi-linear");
    text(p, "general.name", "random weights in the shape of Kimi-Linear");
    whole(p, "kimi-linear.block_count", c->layers);
    whole(p, "kimi-linear.context_length", 1 << 20);
    whole(p, "kimi-linear.embedding_length", c->hidden);
    whole(p, "kimi-linear.feed_forward_length", c->dense_width);
    whole(p, "kimi-linear.vocab_size", c->vocab);
    whole(p, "kimi-linear.attention.head_count", c->heads);
    array(p, "kimi-linear.attention.head_count_kv", KV_I32, (uint64_t)c->layers); /* 0: KDA */
    for (l = 0; l < c->layers; l++) put_u32(&p->b, !c->is_kda[l]);
    real(p, "kimi-linear.attention.layer_norm_rms_epsilon", c->eps);
    whole(p, "kimi-linear.attention.kv_lora_rank", c->kv_rank);
    whole(p, "kimi-linear.attention.key_length", c->kv_rank + c->rope_dim);
    whole(p, "kimi-linear.attention.value_length", c->kv_rank);
    whole(p, "kimi-linear.attention.key_length_mla", qk);
    whole(p, "kimi-linear.attention.value_length_mla", c->v_dim);
    whole(p, "kimi-linear.rope.dimension_count", c->rope_dim);
    real(p, "kimi-linear.rope.freq_base", 10000);
    whole(p, "kimi-linear.ssm.conv_kernel", c->taps);
    whole(p, "kimi-linear.kda.head_dim", c->kda_dim);
    whole(p, "kimi-linear.expert_count", c->experts);
    whole(p, "kimi-linear.expert_used_count", c->top_k);
    whole(p, "kimi-linear.expert_shared_count", c->shared_width / c->moe_width);
    whole(p, "kimi-linear.expert_feed_forward_length", c->moe_width);
    whole(p, "kimi-linear.leading_dense_block_count", c->dense_layers);
    real(p, "kimi-linear.expert_weights_scale", c->route_scale);
    flag(p, "kimi-linear.expert_weights_norm", c->renorm);
    whole(p, "kimi-linear.expert_gating_func", 2); /* sigmoid */
    whole(p, "general.quantization_version", 2);
    tokenizer(p, c->vocab);
}

static void pad(sink *s)
{
    static const char zero[ALIGN];

    sink_put(s, zero, (size_t)(-sink_at(s) % ALIGN));
}

static void put_header(maker *k)
{
    pairs p = {0};
    waste_buf b = {0};
    int i, d;

    metadata(&p, &k->c);
    waste_buf_text(&b, "GGUF");
    put_u32(&b, 3); /* version */
    put_u64(&b, (uint64_t)k->n);
    put_u64(&b, p.n);
    if (!p.b.failed) waste_buf_add(&b, p.b.data, p.b.len);
    for (i = 0; i < k->n; i++) {
        const tensor *t = &k->t[i];

        put_string(&b, t->name);
        put_u32(&b, (uint32_t)t->dims);
        for (d = 0; d < t->dims; d++) put_u64(&b, (uint64_t)t->ne[d]);
        put_u32(&b, (uint32_t)t->type);
        put_u64(&b, t->at);
    }
    if (b.failed || p.b.failed) die("out of memory");
    sink_put(&k->out, b.data, b.len);
    pad(&k->out);
    waste_buf_clear(&b);
    waste_buf_clear(&p.b);
}

/* What this program has no tensors for. */
static void refuse_others(const maker *k)
{
    const waste_config *c = &k->c;

    if (c->latent || c->ares_block || c->situ || c->out_gate || c->full_gate || c->rotate ||
        c->q_rank || c->gate_bound < 0)
        die("%s: not of Kimi-Linear's family", k->m->path);
    if (k->m->quant.index_bits != 8) die("%s: experts are packed to 6 bits", k->m->path);
}

int main(int argc, char **argv)
{
    maker *k = need(calloc(1, sizeof *k));
    uint64_t data, bytes;
    int i;

    sink_program = "mkgguf";
    if (argc != 3) {
        fprintf(stderr, "mkgguf: wanted: CONTAINER FILE\n");
        return 2;
    }
    checked(waste_manifest_open(&k->m, argv[1], &err));
    checked(waste_config_read(&k->c, k->m, &err));
    refuse_others(k);
    snprintf(k->trunk_path, sizeof k->trunk_path, "%s/trunk.bin", k->m->dir);
    checked(waste_file_open(&k->trunk, k->trunk_path, &err));
    describe_all(k);

    sink_open(&k->out, argv[2][0] == '/' ? "" : ".", argv[2]);
    put_header(k);
    data = sink_at(&k->out);
    for (i = 0; i < k->n; i++) {
        const tensor *t = &k->t[i];

        if (sink_at(&k->out) != data + t->at) die("%s: not where the header says", t->name);
        if (t->how == TAKE_EXPERTS)
            put_experts(k, t);
        else if (t->how == TAKE_KEYS || t->how == TAKE_VALUES)
            put_kv_b(k, t);
        else
            put_rows(k, t);
        pad(&k->out);
    }
    bytes = sink_close(&k->out);
    printf("%s: %d tensors, %.2f GB\n", argv[2], k->n, (double)bytes * 1e-9);
    waste_file_close(&k->trunk);
    waste_manifest_close(k->m);
    free(k);
    return 0;
}
