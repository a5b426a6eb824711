/* The trunk's tensors: see trunk.h. Memory is bounded by a piece of rows, the
 * largest row, and the scales of one tensor. */
#include "convert/trunk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/quant.h"

#define SMALL 65536 /* elements: below it a tensor is stored F32 */

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);

    return n >= k && strcmp(s + n - k, end) == 0;
}

static int starts_with(const char *s, const char *start)
{
    return strncmp(s, start, strlen(start)) == 0;
}

static int is_vision(const char *name)
{
    return starts_with(name, "vision_tower.") || starts_with(name, "mm_projector.");
}

/* ---- which tensors ------------------------------------------------------------ */

/* Multi-token-prediction blocks sit behind the last layer; no engine runs them. */
static int is_beyond_layers(const char *name, const waste_settings *c)
{
    size_t n = strlen(c->prefix);
    long layer;
    char *end;

    if (strncmp(name, c->prefix, n) != 0 || !starts_with(name + n, "model.layers.")) return 0;
    layer = strtol(name + n + strlen("model.layers."), &end, 10);
    return *end == '.' && layer >= c->layers;
}

int waste_trunk_takes(const char *name, const waste_settings *c)
{
    return !strstr(name, ".experts.") && !is_beyond_layers(name, c);
}

/* The name of the weight that source tensor `name` stands for, or NULL when it
 * is no part of the trunk. A pair counts once, by its packed half. */
static const char *weight_name(const char *name, const waste_settings *c, char *buf, size_t cap)
{
    if (!waste_trunk_takes(name, c)) return NULL;
    if (ends_with(name, "_scale") || ends_with(name, "_scale_inv")) return NULL;
    if (!ends_with(name, "_packed")) return name;
    if (strlen(name) >= cap) return NULL;
    memcpy(buf, name, strlen(name) - strlen("_packed"));
    buf[strlen(name) - strlen("_packed")] = 0;
    return buf;
}

/* DeepSeek's names of router and shared experts become those of the container
 * (docs/convert.md 4); all others stay. */
static int container_name(char *out, const char *name)
{
    static const char *const renamed[] = {".mlp.gate.weight", ".mlp.gate.e_score_correction_bias",
                                          ".mlp.shared_experts."};
    size_t i;
    int n = -1;

    for (i = 0; i < sizeof renamed / sizeof *renamed && n < 0; i++) {
        const char *at = strstr(name, renamed[i]);
        if (!at || (i < 2 && !ends_with(name, renamed[i]))) continue;
        n = snprintf(out, WASTE_TRUNK_NAME, "%.*s.block_sparse_moe.%s", (int)(at - name), name,
                     at + strlen(".mlp."));
    }
    if (n < 0) n = snprintf(out, WASTE_TRUNK_NAME, "%s", name);
    return n >= 0 && n < WASTE_TRUNK_NAME;
}

/* ---- how each is stored ---------------------------------------------------------- */

/* A reader takes vision tensors as matrices: a patch kernel [o, i, h, w] by its
 * outputs, a position grid [h, w, d] by its positions. */
static void set_shape(waste_trunk_item *t)
{
    const waste_weight *w = &t->weight;

    t->dims = w->dims;
    memcpy(t->shape, w->shape, sizeof t->shape);
    if (is_vision(t->name) && w->dims > 2) {
        t->dims = 2;
        t->shape[0] = w->dims == 4 ? w->shape[0] : w->rows;
        t->shape[1] = w->dims == 4 ? w->rows / w->shape[0] * w->cols : w->cols;
    }
    t->cols = t->shape[t->dims - 1];
    t->rows = w->rows * w->cols / t->cols;
}

static void set_format(waste_trunk_item *t, waste_fmt matrix)
{
    /* convolutions are consumed elementwise, however many channels there are */
    if (t->weight.dims == 1 || ends_with(t->name, "_conv1d.weight") || t->rows * t->cols < SMALL)
        t->fmt = WASTE_FMT_F32;
    else if (ends_with(t->name, "embed_tokens.weight") || ends_with(t->name, "lm_head.weight") ||
             is_vision(t->name))
        t->fmt = WASTE_FMT_Q8G;
    else
        t->fmt = matrix;
}

static waste_status add(waste_trunk *t, const waste_source *s, const char *name, const char *stored,
                        waste_fmt matrix, waste_error *err)
{
    waste_trunk_item *i = t->item + t->n;
    waste_status st = waste_weight_find(s, name, &i->weight, err);

    if (st) return st;
    if (!container_name(i->name, stored))
        return waste_fail(err, WASTE_FORMAT, "the name of tensor %s is longer than %d bytes",
                          stored, WASTE_TRUNK_NAME - 1);
    set_shape(i);
    set_format(i, matrix);
    t->n++;
    return WASTE_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const waste_trunk_item *)a)->name, ((const waste_trunk_item *)b)->name);
}

static int name_of(const void *name, const void *item)
{
    return strcmp(name, ((const waste_trunk_item *)item)->name);
}

/* Payload and scales of one after the other, back to back. */
static void place(waste_trunk *t)
{
    size_t i;

    for (i = 0; i < t->n; i++) {
        waste_trunk_item *x = t->item + i;
        const int64_t groups =
            x->fmt == WASTE_FMT_F32 ? 0 : (x->cols + WASTE_TRUNK_GROUP - 1) / WASTE_TRUNK_GROUP;
        const uint64_t payload =
            (uint64_t)(x->rows * waste_quant_row_bytes(x->fmt, x->cols, WASTE_TRUNK_GROUP));
        x->off = t->bytes;
        x->scale_off = x->off + payload;
        x->bytes = payload + 2 * (uint64_t)(x->rows * groups);
        t->bytes += x->bytes;
    }
}

waste_status waste_trunk_list(waste_trunk *t, const waste_source *s, const waste_settings *c,
                              waste_fmt matrix, waste_error *err)
{
    char buf[512], head[WASTE_TRUNK_NAME], table[WASTE_TRUNK_NAME];
    size_t i, n = 1; /* a tied head may be added */
    waste_status st = WASTE_OK;

    memset(t, 0, sizeof *t);
    for (i = 0; i < waste_source_count(s); i++)
        n += weight_name(waste_source_at(s, i)->name, c, buf, sizeof buf) != NULL;
    t->item = waste_mem_array(n, sizeof *t->item);
    if (!t->item) return waste_fail(err, WASTE_NOMEM, "out of memory listing the trunk");

    for (i = 0; !st && i < waste_source_count(s); i++) {
        const char *raw = waste_source_at(s, i)->name;
        const char *name = weight_name(raw, c, buf, sizeof buf);
        if (!name || (name == buf && waste_source_find(s, name))) continue; /* plain one wins */
        st = add(t, s, name, name, matrix, err);
    }
    snprintf(head, sizeof head, "%slm_head.weight", c->prefix);
    snprintf(table, sizeof table, "%smodel.embed_tokens.weight", c->prefix);
    if (!st && c->tied && !waste_source_has(s, head) && waste_source_has(s, table))
        st = add(t, s, table, head, matrix, err);
    qsort(t->item, t->n, sizeof *t->item, by_name);
    for (i = 1; !st && i < t->n; i++)
        if (by_name(t->item + i - 1, t->item + i) == 0)
            st =
                waste_fail(err, WASTE_FORMAT, "two tensors would be stored as %s", t->item[i].name);
    if (!st) place(t);
    return st;
}

void waste_trunk_clear(waste_trunk *t)
{
    waste_mem_free(t->item);
    memset(t, 0, sizeof *t);
}

const waste_trunk_item *waste_trunk_find(const waste_trunk *t, const char *name)
{
    return t->n ? bsearch(name, t->item, t->n, sizeof *t->item, name_of) : NULL;
}

/* ---- writing ------------------------------------------------------------------------ */

/* Buffers of one tensor's conversion. */
typedef struct bench {
    float *in, *back;   /* a piece of rows; one row decoded again */
    unsigned char *out; /* the piece, encoded */
    uint16_t *scales;   /* of the whole tensor */
    int64_t piece, row_bytes, groups;
} bench;

/* The weight viewed in the rows it is stored in; its values lie in the same order. */
static waste_weight as_stored(const waste_trunk_item *t)
{
    waste_weight w = t->weight;

    w.rows = t->rows;
    w.cols = t->cols;
    return w;
}

static waste_status set_up(bench *b, const waste_trunk_item *t, waste_error *err)
{
    memset(b, 0, sizeof *b);
    b->piece = WASTE_CONVERT_PIECE / t->cols;
    if (b->piece < 1) b->piece = 1;
    if (b->piece > t->rows) b->piece = t->rows;
    b->row_bytes = waste_quant_row_bytes(t->fmt, t->cols, WASTE_TRUNK_GROUP);
    b->groups = t->fmt == WASTE_FMT_F32 ? 0 : (t->cols + WASTE_TRUNK_GROUP - 1) / WASTE_TRUNK_GROUP;
    b->in = waste_mem_array((size_t)(b->piece * t->cols), sizeof *b->in);
    if (!b->in) goto nomem;
    if (t->fmt == WASTE_FMT_F32) return WASTE_OK;
    b->back = waste_mem_array((size_t)t->cols, sizeof *b->back);
    b->out = waste_mem_array((size_t)b->piece, (size_t)b->row_bytes);
    b->scales = waste_mem_array((size_t)t->rows, (size_t)b->groups * sizeof *b->scales);
    if (b->back && b->out && b->scales) return WASTE_OK;
nomem:
    return waste_fail(err, WASTE_NOMEM, "out of memory converting %s", t->name);
}

static void tear_down(bench *b)
{
    waste_mem_free(b->in);
    waste_mem_free(b->back);
    waste_mem_free(b->out);
    waste_mem_free(b->scales);
}

static waste_status encode(bench *b, const waste_trunk_item *t, int64_t first, int64_t n,
                           waste_convert_loss *loss, waste_error *err)
{
    int64_t r, i;

    for (r = 0; r < n; r++) {
        const float *w = b->in + r * t->cols;
        unsigned char *row = b->out + r * b->row_bytes;
        uint16_t *scales = b->scales + (first + r) * b->groups;
        double wrong = 0, all = 0;

        waste_quant_encode_row(t->fmt, w, t->cols, WASTE_TRUNK_GROUP, row, scales);
        for (i = 0; i < b->groups; i++)
            if ((scales[i] & 0x7C00) == 0x7C00)
                return waste_fail(err, WASTE_FORMAT,
                                  "tensor %s: row %lld has weights too large for an F16 scale",
                                  t->name, (long long)(first + r));
        waste_quant_decode_row(t->fmt, row, scales, t->cols, WASTE_TRUNK_GROUP, b->back);
        for (i = 0; i < t->cols; i++) {
            double d = (double)w[i] - (double)b->back[i];
            wrong += d * d;
            all += (double)w[i] * (double)w[i];
        }
        loss->wrong += wrong;
        loss->all += all;
    }
    return WASTE_OK;
}

static waste_status write_rows(bench *b, const waste_trunk_item *t, waste_source *s,
                               waste_writer *w, waste_convert_loss *loss,
                               const waste_cancel *cancel, waste_error *err)
{
    const waste_weight view = as_stored(t);
    waste_status st = WASTE_OK;
    int64_t first, n;

    for (first = 0; !st && first < t->rows; first += n) {
        n = t->rows - first < b->piece ? t->rows - first : b->piece;
        st = waste_convert_asked(cancel, err);
        if (!st) st = waste_weight_rows(s, &view, first, n, b->in, err);
        if (st) break;
        if (t->fmt == WASTE_FMT_F32) {
            st = waste_writer_put(w, b->in, (size_t)(n * b->row_bytes), err);
            continue;
        }
        st = encode(b, t, first, n, loss, err);
        if (!st) st = waste_writer_put(w, b->out, (size_t)(n * b->row_bytes), err);
    }
    return st;
}

waste_status waste_trunk_write(const waste_trunk_item *t, waste_source *s, waste_writer *w,
                               waste_convert_loss *loss, const waste_cancel *cancel,
                               waste_error *err)
{
    bench b;
    waste_status st = set_up(&b, t, err);

    if (!st) st = write_rows(&b, t, s, w, loss, cancel, err);
    if (!st && b.groups)
        st = waste_writer_put(w, b.scales, (size_t)(t->bytes - (t->scale_off - t->off)), err);
    tear_down(&b);
    return st;
}
