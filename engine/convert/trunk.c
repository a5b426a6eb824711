/* The trunk's tensors: see trunk.h. Memory is bounded by two pieces of rows, the
 * largest row for each thread, and the scales of one tensor. */
#include "convert/trunk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/quant.h"

#define SMALL 65536              /* elements: below it a tensor is stored F32 */
#define PART  ((int64_t)1 << 15) /* weights that one thread encodes at a time, under 1 ms */

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

/* One tensor's conversion. Pieces of rows go by, each encoded by all threads while the
 * next is read. What a row becomes depends on the row alone, and losses are summed in
 * the order of the rows. */
typedef struct bench {
    const waste_trunk_item *t;
    waste_vq_pool *pool;
    float *in[2];         /* pieces: [piece][cols] */
    float *back;          /* for each thread a row decoded again: [threads][cols] */
    unsigned char *out;   /* the piece, encoded */
    uint16_t *scales;     /* of the whole tensor */
    double *wrong, *all;  /* [piece] */
    int64_t piece, share; /* rows of a piece, and of a part of it */
    int64_t row_bytes, groups;
    /* the piece at hand */
    const float *w;
    int64_t first, n;
} bench;

/* The weight viewed in the rows it is stored in; its values lie in the same order. */
static waste_weight as_stored(const waste_trunk_item *t)
{
    waste_weight w = t->weight;

    w.rows = t->rows;
    w.cols = t->cols;
    return w;
}

static waste_status set_up(bench *b, const waste_trunk_item *t, waste_vq_pool *pool,
                           waste_error *err)
{
    const size_t cols = (size_t)t->cols;

    memset(b, 0, sizeof *b);
    b->t = t;
    b->pool = pool;
    b->piece = WASTE_CONVERT_PIECE / t->cols;
    if (b->piece < 1) b->piece = 1;
    if (b->piece > t->rows) b->piece = t->rows;
    b->share = PART / t->cols + 1;
    b->row_bytes = waste_quant_row_bytes(t->fmt, t->cols, WASTE_TRUNK_GROUP);
    b->groups = t->fmt == WASTE_FMT_F32 ? 0 : (t->cols + WASTE_TRUNK_GROUP - 1) / WASTE_TRUNK_GROUP;
    b->in[0] = waste_mem_array((size_t)b->piece, cols * sizeof(float));
    b->in[1] = b->piece < t->rows ? waste_mem_array((size_t)b->piece, cols * sizeof(float)) : NULL;
    if (!b->in[0] || (b->piece < t->rows && !b->in[1])) goto nomem;
    if (!b->groups) return WASTE_OK;
    b->back = waste_mem_array((size_t)waste_vq_pool_size(pool), cols * sizeof *b->back);
    b->out = waste_mem_array((size_t)b->piece, (size_t)b->row_bytes);
    b->scales = waste_mem_array((size_t)t->rows, (size_t)b->groups * sizeof *b->scales);
    b->wrong = waste_mem_array(2 * (size_t)b->piece, sizeof *b->wrong);
    if (b->back && b->out && b->scales && b->wrong) {
        b->all = b->wrong + b->piece;
        return WASTE_OK;
    }
nomem:
    return waste_fail(err, WASTE_NOMEM, "out of memory converting %s", t->name);
}

static void tear_down(bench *b)
{
    waste_mem_free(b->in[0]);
    waste_mem_free(b->in[1]);
    waste_mem_free(b->back);
    waste_mem_free(b->out);
    waste_mem_free(b->scales);
    waste_mem_free(b->wrong);
}

static void encode_row(bench *b, int64_t r, float *back)
{
    const waste_trunk_item *t = b->t;
    const float *w = b->w + r * t->cols;
    unsigned char *row = b->out + r * b->row_bytes;
    uint16_t *scales = b->scales + (b->first + r) * b->groups;
    double wrong = 0, all = 0;
    int64_t i;

    waste_quant_encode_row(t->fmt, w, t->cols, WASTE_TRUNK_GROUP, row, scales);
    waste_quant_decode_row(t->fmt, row, scales, t->cols, WASTE_TRUNK_GROUP, back);
    for (i = 0; i < t->cols; i++) {
        double d = (double)w[i] - (double)back[i];
        wrong += d * d;
        all += (double)w[i] * (double)w[i];
    }
    b->wrong[r] = wrong;
    b->all[r] = all;
}

static void encode_part(void *ctx, int worker, size_t i)
{
    bench *b = ctx;
    int64_t r = (int64_t)i * b->share, end = r + b->share < b->n ? r + b->share : b->n;

    for (; r < end; r++) encode_row(b, r, b->back + worker * b->t->cols);
}

static waste_status check_scales(const bench *b, waste_error *err)
{
    const uint16_t *scales = b->scales + b->first * b->groups;
    int64_t i;

    for (i = 0; i < b->n * b->groups; i++)
        if ((scales[i] & 0x7C00) == 0x7C00)
            return waste_fail(err, WASTE_FORMAT,
                              "tensor %s: row %lld has weights too large for an F16 scale",
                              b->t->name, (long long)(b->first + i / b->groups));
    return WASTE_OK;
}

/* Encodes the piece at hand while the one after it, if there is one, is read into
 * `next`. */
static waste_status encode_piece(bench *b, waste_source *s, float *next, int64_t more,
                                 waste_convert_loss *loss, const waste_cancel *cancel,
                                 waste_error *err)
{
    const waste_weight view = as_stored(b->t);
    const size_t parts = b->groups ? (size_t)((b->n + b->share - 1) / b->share) : 0;
    waste_status st, read = WASTE_OK;
    int64_t r;

    waste_vq_pool_start(b->pool, encode_part, b, parts);
    if (more) read = waste_weight_rows(s, &view, b->first + b->n, more, next, err);
    st = waste_vq_pool_finish(b->pool, cancel, err);
    if (read || st) return read ? read : st;
    if (!b->groups) return WASTE_OK;
    for (r = 0; r < b->n; r++) {
        loss->wrong += b->wrong[r];
        loss->all += b->all[r];
    }
    return check_scales(b, err);
}

static int64_t rows_from(const bench *b, int64_t first)
{
    return b->t->rows - first < b->piece ? b->t->rows - first : b->piece;
}

static waste_status write_rows(bench *b, waste_source *s, waste_writer *w, waste_convert_loss *loss,
                               const waste_cancel *cancel, waste_error *err)
{
    const waste_weight view = as_stored(b->t);
    int at = 0;
    waste_status st;

    b->n = rows_from(b, 0);
    st = waste_weight_rows(s, &view, 0, b->n, b->in[0], err);
    for (b->first = 0; !st && b->n; at = !at) {
        const int64_t more = rows_from(b, b->first + b->n);
        b->w = b->in[at];
        st = waste_convert_asked(cancel, err);
        if (!st) st = encode_piece(b, s, b->in[!at], more, loss, cancel, err);
        if (!st)
            st = waste_writer_put(w, b->groups ? (const void *)b->out : b->w,
                                  (size_t)(b->n * b->row_bytes), err);
        b->first += b->n;
        b->n = more;
    }
    return st;
}

waste_status waste_trunk_write(const waste_trunk_item *t, waste_source *s, waste_vq_pool *pool,
                               waste_writer *w, waste_convert_loss *loss,
                               const waste_cancel *cancel, waste_error *err)
{
    bench b;
    waste_status st = set_up(&b, t, pool, err);

    if (!st) st = write_rows(&b, s, w, loss, cancel, err);
    if (!st && b.groups)
        st = waste_writer_put(w, b.scales, (size_t)(t->bytes - (t->scale_off - t->off)), err);
    tear_down(&b);
    return st;
}
