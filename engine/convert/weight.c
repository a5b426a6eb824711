/* Which tensors make a weight, and its rows as floats: see weight.h. */
#include "convert/weight.h"

#include <float.h>
#include <string.h>

#include "base/mem.h"
#include "convert/fp8.h"
#include "convert/source.h"
#include "kernels/quant.h"

#define MAX_EXTENT ((int64_t)1 << 26) /* of one dimension: docs/format.md 2.4 */
#define MX_GROUP   32
#define MAX_BLOCK  ((int64_t)1 << 20) /* rows or columns that share an fp8 scale */
#define FP8_BLOCK  128                /* unless config.json says something else */

/* quantization_config.weight_block_size; it is never guessed from shapes, which fit
 * several sizes (docs/convert.md 2.1). */
waste_status waste_weight_reader_init(waste_weight_reader *r, const waste_json *config,
                                      const char *path, waste_error *err)
{
    const waste_json *q = waste_json_get(config, "quantization_config"), *size;

    if (!q) q = waste_json_get(waste_json_get(config, "text_config"), "quantization_config");
    size = waste_json_get(q, "weight_block_size");
    r->block_rows = r->block_cols = FP8_BLOCK;
    if (!size || waste_json_kind_of(size) == WASTE_JSON_NULL) return WASTE_OK;
    if (waste_json_count(size) == 2 && !waste_json_int(waste_json_at(size, 0), &r->block_rows) &&
        !waste_json_int(waste_json_at(size, 1), &r->block_cols) && r->block_rows >= 1 &&
        r->block_rows <= MAX_BLOCK && r->block_cols >= 1 && r->block_cols <= MAX_BLOCK)
        return WASTE_OK;
    return waste_fail(err, WASTE_FORMAT,
                      "%s: quantization_config.weight_block_size is not two numbers from 1 to %lld",
                      path, (long long)MAX_BLOCK);
}

void waste_weight_reader_clear(waste_weight_reader *r)
{
    waste_mem_free(r->raw);
    waste_mem_free(r->scales);
}

/* ---- looking up ----------------------------------------------------------- */

static waste_status wrong_dtype(const waste_st_tensor *t, const char *wanted, waste_error *err)
{
    return waste_fail(err, WASTE_UNSUPPORTED, "%s: tensor %s is %s, which is not supported (%s)",
                      waste_safetensors_path(t->file), t->name, t->dtype_name, wanted);
}

/* Packed nibbles and their scales must describe one matrix (docs/convert.md 2.2). */
static waste_status check_pair(waste_weight *w, waste_error *err)
{
    const waste_st_tensor *p = w->tensor, *e = w->scale;

    if (p->dtype != WASTE_DTYPE_U8) return wrong_dtype(p, "MXFP4 is U8", err);
    if (e->dtype != WASTE_DTYPE_U8) return wrong_dtype(e, "MXFP4 scales are U8", err);
    if (p->dims != 2 || e->dims != 2 || p->shape[0] != e->shape[0] ||
        p->shape[1] != e->shape[1] * (MX_GROUP / 2))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: %s and its _scale are not [rows, cols/2] and [rows, cols/32]",
                          waste_safetensors_path(p->file), p->name);
    w->shape[1] *= 2;
    return WASTE_OK;
}

static int is_fp8(const waste_st_tensor *t)
{
    return t->dtype == WASTE_DTYPE_F8_E4M3 || t->dtype == WASTE_DTYPE_F8_E5M2;
}

/* fp8 values without their scales look plausible and are garbage: docs/convert.md 2.1. */
static waste_status find_blocks(const waste_source *s, waste_weight *w, waste_error *err)
{
    const waste_weight_reader *b = waste_source_blocks(s);
    const waste_st_tensor *t = w->tensor, *e = waste_source_part(s, t->name, "_scale_inv");
    int64_t m, n;

    if (!e)
        return waste_fail(err, WASTE_FORMAT, "%s: tensor %s is %s and has no %s_scale_inv",
                          waste_safetensors_path(t->file), t->name, t->dtype_name, t->name);
    if (e->dtype != WASTE_DTYPE_F32 && e->dtype != WASTE_DTYPE_BF16)
        return wrong_dtype(e, "fp8 scales are F32 or BF16", err);
    if (t->dims != 2)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: tensor %s is %s with %d dimensions, block scales need 2",
                          waste_safetensors_path(t->file), t->name, t->dtype_name, t->dims);
    m = (t->shape[0] + b->block_rows - 1) / b->block_rows;
    n = (t->shape[1] + b->block_cols - 1) / b->block_cols;
    if (e->dims != 2 || e->shape[0] != m || e->shape[1] != n)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: tensor %s is not [%lld, %lld], a scale for each block of %lld x "
                          "%lld of [%lld, %lld]",
                          waste_safetensors_path(e->file), e->name, (long long)m, (long long)n,
                          (long long)b->block_rows, (long long)b->block_cols,
                          (long long)t->shape[0], (long long)t->shape[1]);
    w->scale = e;
    return WASTE_OK;
}

waste_status waste_weight_find(const waste_source *s, const char *name, waste_weight *out,
                               waste_error *err)
{
    const waste_st_tensor *t = waste_source_find(s, name);
    int i;

    memset(out, 0, sizeof *out);
    if (!t) {
        t = waste_source_part(s, name, "_packed");
        if (!t)
            return waste_fail(err, WASTE_FORMAT, "the checkpoint %s has no tensor %s",
                              waste_source_dir(s), name);
        out->scale = waste_source_part(s, name, "_scale");
        if (!out->scale)
            return waste_fail(err, WASTE_FORMAT, "%s: tensor %s has no %s_scale",
                              waste_safetensors_path(t->file), t->name, name);
    }
    out->tensor = t;
    if (t->dims > WASTE_WEIGHT_DIMS)
        return waste_fail(err, WASTE_FORMAT, "%s: tensor %s has %d dimensions, at most %d",
                          waste_safetensors_path(t->file), t->name, t->dims, WASTE_WEIGHT_DIMS);
    out->dims = t->dims ? t->dims : 1; /* a scalar is a vector of one */
    out->shape[0] = 1;
    for (i = 0; i < t->dims; i++) out->shape[i] = t->shape[i];
    if (out->scale) {
        waste_status st = check_pair(out, err);
        if (st) return st;
    } else if (is_fp8(t)) {
        waste_status st = find_blocks(s, out, err);
        if (st) return st;
    } else if (t->dtype != WASTE_DTYPE_F32 && t->dtype != WASTE_DTYPE_F16 &&
               t->dtype != WASTE_DTYPE_BF16) {
        return wrong_dtype(t, "F32, F16, BF16, fp8 with scales and MXFP4 pairs are", err);
    }
    out->rows = 1;
    for (i = 0; i < out->dims; i++) {
        if (out->shape[i] < 1 || out->shape[i] > MAX_EXTENT)
            return waste_fail(err, WASTE_FORMAT, "%s: dimension %d of tensor %s is %lld",
                              waste_safetensors_path(t->file), i, t->name,
                              (long long)out->shape[i]);
        if (i + 1 < out->dims) out->rows *= out->shape[i];
    }
    out->cols = out->shape[out->dims - 1];
    return WASTE_OK;
}

/* ---- reading --------------------------------------------------------------- */

static waste_status no_memory(const waste_st_tensor *t, waste_error *err)
{
    return waste_fail(err, WASTE_NOMEM, "%s: out of memory reading tensor %s",
                      waste_safetensors_path(t->file), t->name);
}

static waste_status read_raw(waste_weight_reader *r, const waste_st_tensor *t, uint64_t first,
                             size_t n, size_t at, waste_error *err)
{
    if (at + n > r->raw_cap) {
        unsigned char *p = waste_mem_resize(r->raw, at + n);
        if (!p) return no_memory(t, err);
        r->raw = p;
        r->raw_cap = at + n;
    }
    return waste_safetensors_read(t, first, r->raw + at, n, err);
}

/* A loop for each type, without calls: the thread that reads has all others to feed. */
static void decode_plain(waste_dtype dtype, const unsigned char *raw, size_t n, float *to)
{
    uint16_t h;
    size_t i;

    if (dtype == WASTE_DTYPE_F32) {
        memcpy(to, raw, n * sizeof *to);
    } else if (dtype == WASTE_DTYPE_BF16) {
        for (i = 0; i < n; i++) {
            memcpy(&h, raw + 2 * i, sizeof h);
            to[i] = waste_bf16_to_f32(h);
        }
    } else {
        for (i = 0; i < n; i++) {
            memcpy(&h, raw + 2 * i, sizeof h);
            to[i] = waste_f16_to_f32(h);
        }
    }
}

/* 2^(e - 127); e = 0 counts as scale 0, and 255 was refused before. */
static float power_of(unsigned char e)
{
    uint32_t u = (uint32_t)e << 23;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static void decode_mx_group(const unsigned char *p, float scale, float *to)
{
    static const float magnitude[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    int i;

    for (i = 0; i < MX_GROUP / 2; i++) {
        to[2 * i] = magnitude[p[i] & 15] * scale;
        to[2 * i + 1] = magnitude[p[i] >> 4] * scale;
    }
}

static waste_status read_pair(waste_weight_reader *r, const waste_weight *w, int64_t first,
                              int64_t n, float *to, waste_error *err)
{
    size_t packed = (size_t)(n * w->cols / 2), scales = (size_t)(n * w->cols / MX_GROUP), i;
    waste_status st;

    st = read_raw(r, w->scale, (uint64_t)(first * w->cols / MX_GROUP), scales, packed, err);
    if (!st) st = read_raw(r, w->tensor, (uint64_t)(first * w->cols / 2), packed, 0, err);
    for (i = 0; !st && i < scales; i++) {
        unsigned char e = r->raw[packed + i];
        if (e == 255)
            return waste_fail(err, WASTE_FORMAT, "%s: tensor %s has a scale that is not a number",
                              waste_safetensors_path(w->scale->file), w->scale->name);
        decode_mx_group(r->raw + i * (MX_GROUP / 2), power_of(e), to + i * MX_GROUP);
    }
    return st;
}

/* The scales of the blocks that rows [first, first + n) lie in, as floats. */
static waste_status read_scales(waste_weight_reader *r, const waste_weight *w, int64_t first,
                                int64_t n, waste_error *err)
{
    const int64_t wide = w->scale->shape[1], top = first / r->block_rows;
    const size_t count = (size_t)(((first + n - 1) / r->block_rows - top + 1) * wide);
    const size_t each = w->scale->dtype == WASTE_DTYPE_F32 ? 4 : 2;
    waste_status st;

    if (count > r->scales_cap) {
        float *p = waste_mem_resize(r->scales, count * sizeof *p);
        if (!p) return no_memory(w->scale, err);
        r->scales = p;
        r->scales_cap = count;
    }
    st = read_raw(r, w->scale, (uint64_t)(top * wide) * each, count * each, 0, err);
    if (!st) decode_plain(w->scale->dtype, r->raw, count, r->scales);
    return st;
}

static waste_status read_fp8(waste_weight_reader *r, const waste_weight *w, int64_t first,
                             int64_t n, float *to, waste_error *err)
{
    waste_status st = read_scales(r, w, first, n, err);

    if (!st)
        st = read_raw(r, w->tensor, (uint64_t)(first * w->cols), (size_t)(n * w->cols), 0, err);
    if (!st)
        waste_fp8_decode(w->tensor->dtype, r->raw, first, n, w->cols, r->scales, r->block_rows,
                         r->block_cols, to);
    return st;
}

/* Written so that the compiler vectorises it: no early exit. */
static int all_finite(const float *x, size_t n)
{
    size_t i;
    int bad = 0;

    for (i = 0; i < n; i++) bad |= !(x[i] <= FLT_MAX && x[i] >= -FLT_MAX);
    return !bad;
}

waste_status waste_weight_rows(waste_source *s, const waste_weight *w, int64_t first, int64_t n,
                               float *to, waste_error *err)
{
    waste_weight_reader *r = waste_source_reader(s);
    size_t count = (size_t)(n * w->cols), each = w->tensor->dtype == WASTE_DTYPE_F32 ? 4 : 2;
    waste_status st;

    if (is_fp8(w->tensor)) {
        st = read_fp8(r, w, first, n, to, err);
    } else if (w->scale) {
        st = read_pair(r, w, first, n, to, err);
    } else {
        st = read_raw(r, w->tensor, (uint64_t)first * (uint64_t)w->cols * each, count * each, 0,
                      err);
        if (!st) decode_plain(w->tensor->dtype, r->raw, count, to);
    }
    if (!st && !all_finite(to, count))
        st = waste_fail(err, WASTE_FORMAT, "%s: tensor %s holds a weight that is not finite",
                        waste_safetensors_path(w->tensor->file), w->tensor->name);
    return st;
}
