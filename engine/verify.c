/* Reading a container back: waste_verify_* of waste.h. Everything in it is read once:
 * the census (what an engine would ask for), each tensor of the trunk, the codebooks of
 * each layer, each record; with the checkpoint at hand each weight is decoded and
 * compared. What is wrong becomes a row and the reading goes on. Memory is one record
 * and a piece of rows. One thread per verification. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "convert/names.h"
#include "kernels/quant.h"
#include "model/weights.h"
#include "store/record.h"

#define PIECE ((int64_t)1 << 20) /* floats decoded and compared at once */

/* Relative errors beyond which a weight matrix does not hold what it should: well
 * above what any matrix loses to these formats (docs/convert.md 10). */
#define LIMIT_3BIT 0.30
#define LIMIT_2BIT 0.45

typedef enum stage { CENSUS, TENSORS, BOOKS, RECORDS, END } stage;

struct waste_verify {
    char *dir;
    waste_manifest *manifest;
    waste_config config;
    waste_error broken; /* why there is no manifest to go by */
    waste_cancel cancel;
    /* the checkpoint; source NULL: none */
    waste_source *source;
    waste_settings settings;
    waste_names names;

    stage stage;
    size_t item;
    int layer, expert;
    waste_file file; /* trunk.bin, or the bank of `layer` */
    char path[WASTE_PATH_MAX];
    waste_record_layout layout;
    unsigned char *record;
    uint64_t record_room;
    float *books;      /* of `layer`: [kind][stage][entry][vec_dim] */
    float *got, *want; /* [most] */
    int64_t most;      /* PIECE, or the longest row */
    unsigned char *raw;
    size_t raw_room;
};

/* ---- opening ------------------------------------------------------------------------------ */

static waste_status no_memory(const waste_verify *v, waste_error *err)
{
    return waste_fail(err, WASTE_NOMEM, "out of memory verifying %s", v->dir);
}

static waste_status open_source(waste_verify *v, const char *dir, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_status st = waste_source_open(&v->source, dir, err);

    if (!st) st = waste_path_join(path, sizeof path, dir, "config.json", err);
    if (!st) st = waste_settings_read(&v->settings, waste_source_config(v->source), path, err);
    if (!st) v->names = waste_names_find(v->source, &v->settings);
    return st;
}

/* PIECE, or the longest row of anything. */
static int64_t longest(const waste_verify *v)
{
    int64_t most = PIECE;
    size_t i;

    if (v->broken.status) return most;
    for (i = 0; i < v->manifest->n_trunk; i++)
        if (v->manifest->trunk[i].cols > most) most = v->manifest->trunk[i].cols;
    if (v->config.moe_width > most) most = v->config.moe_width;
    return v->config.expert_in > most ? v->config.expert_in : most;
}

waste_status waste_verify_open(waste_verify **out, const char *path, const char *source,
                               const waste_cancel *cancel, waste_error *err)
{
    waste_verify *v = waste_mem_zero(sizeof *v);
    waste_status st = WASTE_OK;

    *out = NULL;
    if (v) {
        v->file.fd = WASTE_FILE_CLOSED;
        v->dir = waste_mem_text(path, strlen(path));
        if (cancel) v->cancel = *cancel;
    }
    if (!v || !v->dir) st = waste_fail(err, WASTE_NOMEM, "out of memory verifying %s", path);
    if (!st) {
        waste_status how = waste_manifest_open(&v->manifest, path, &v->broken);
        if (!how) how = waste_config_read(&v->config, v->manifest, &v->broken);
        /* a container that is not there is no finding */
        if (how == WASTE_IO && !v->manifest) st = waste_fail(err, how, "%s", v->broken.text);
        if (how == WASTE_NOMEM) st = waste_fail(err, how, "%s", v->broken.text);
    }
    if (!st) v->most = longest(v);
    if (!st && source) st = open_source(v, source, err);
    if (st) {
        waste_verify_close(v);
        return st;
    }
    *out = v;
    return WASTE_OK;
}

void waste_verify_close(waste_verify *v)
{
    if (!v) return;
    waste_file_close(&v->file);
    waste_mem_free(v->record);
    waste_mem_free(v->books);
    waste_mem_free(v->got);
    waste_mem_free(v->want);
    waste_mem_free(v->raw);
    waste_settings_clear(&v->settings);
    waste_source_close(v->source);
    waste_manifest_close(v->manifest);
    waste_mem_free(v->dir);
    waste_mem_free(v);
}

static waste_status asked(const waste_verify *v, waste_error *err)
{
    if (!v->cancel.asked || !v->cancel.asked(v->cancel.ctx)) return WASTE_OK;
    return waste_fail(err, WASTE_CANCELLED, "the verification was cancelled");
}

/* ---- findings ----------------------------------------------------------------------------- */

/* `why` as the row's note; want of memory and a cancel are errors of the call. */
static waste_status found(waste_verify_row *row, waste_status st, const waste_error *why,
                          waste_error *err)
{
    if (!st) return WASTE_OK;
    if (st == WASTE_NOMEM || st == WASTE_CANCELLED) return waste_fail(err, st, "%s", why->text);
    row->ok = 0;
    snprintf(row->note, sizeof row->note, "%.255s", why->text);
    return WASTE_OK;
}

typedef struct loss {
    double wrong, all;
} loss;

static void compare(loss *l, const float *got, const float *want, int64_t n)
{
    int64_t i;

    for (i = 0; i < n; i++) {
        const double d = (double)want[i] - (double)got[i];
        l->wrong += d * d;
        l->all += (double)want[i] * (double)want[i];
    }
}

static double error_of(const loss *l)
{
    return l->all > 0 ? sqrt(l->wrong / l->all) : l->wrong > 0 ? INFINITY : 0;
}

static waste_status room(waste_verify *v, size_t raw, waste_error *err)
{
    if (raw > v->raw_room) {
        unsigned char *p = waste_mem_resize(v->raw, raw);
        if (!p) return no_memory(v, err);
        v->raw = p;
        v->raw_room = raw;
    }
    if (!v->got) v->got = waste_mem_array((size_t)v->most, sizeof *v->got);
    if (!v->want) v->want = waste_mem_array((size_t)v->most, sizeof *v->want);
    return v->got && v->want ? WASTE_OK : no_memory(v, err);
}

/* ---- census ------------------------------------------------------------------------------- */

static waste_status census(waste_verify *v, waste_verify_row *row, waste_error *err)
{
    waste_tensors *t = NULL;
    waste_weights *w = NULL;
    waste_error why = v->broken;
    waste_status st = why.status;
    int l, banks = 0, records = 0;

    if (!st) st = waste_tensors_open(&t, v->manifest, &why);
    if (!st) st = waste_weights_open(&w, t, v->manifest, &v->config, &why);
    for (l = 0; !st && l < v->config.layers; l++) {
        banks += v->manifest->bank[l].file != NULL;
        records += v->manifest->bank[l].file ? v->manifest->bank[l].experts : 0;
    }
    waste_weights_close(w);
    waste_tensors_close(t);
    if (st) return found(row, st, &why, err);
    snprintf(row->note, sizeof row->note,
             "%zu tensors, %d layers, %d of them with %d experts each, %d records",
             v->manifest->n_trunk, v->config.layers, banks, v->config.experts, records);
    return WASTE_OK;
}

/* ---- trunk -------------------------------------------------------------------------------- */

static waste_status open_file(waste_verify *v, const char *name, waste_error *err)
{
    waste_status st;

    waste_file_close(&v->file);
    st = waste_path_join(v->path, sizeof v->path, v->dir, name, err);
    return st ? st : waste_file_open(&v->file, v->path, err);
}

static waste_status check_finite(const waste_verify *v, const waste_trunk_entry *e, int64_t first,
                                 int64_t n, waste_error *err)
{
    int64_t i;

    for (i = 0; i < n; i++)
        if (!isfinite(v->got[i]))
            return waste_fail(err, WASTE_FORMAT,
                              "tensor %s holds a weight that is not finite, in "
                              "row %lld",
                              e->name, (long long)(first + i / e->cols));
    return WASTE_OK;
}

/* n rows from `first` on, decoded to v->got. */
static waste_status read_trunk(waste_verify *v, const waste_trunk_entry *e, int64_t first,
                               int64_t n, waste_error *err)
{
    const int64_t groups = e->group ? (e->cols + e->group - 1) / e->group : 0;
    const int64_t bytes = waste_quant_row_bytes(e->fmt, e->cols, e->group);
    const size_t payload = (size_t)(n * bytes), scales = (size_t)(2 * n * groups);
    int64_t r;
    waste_status st = room(v, payload + scales, err);

    if (!st)
        st = waste_file_read(&v->file, v->path, v->raw, payload, e->off + (uint64_t)(first * bytes),
                             err);
    if (!st && scales)
        st = waste_file_read(&v->file, v->path, v->raw + payload, scales,
                             e->scale_off + (uint64_t)(2 * first * groups), err);
    for (r = 0; !st && r < n; r++)
        waste_quant_decode_row(e->fmt, v->raw + r * bytes, v->raw + payload + 2 * r * groups,
                               e->cols, e->group, v->got + r * e->cols);
    return st ? st : check_finite(v, e, first, n * e->cols, err);
}

static double limit_of(waste_fmt fmt)
{
    switch (fmt) {
    case WASTE_FMT_F32: return 0;
    case WASTE_FMT_Q8G: return 0.03;
    case WASTE_FMT_Q3G: return 0.60;
    default: return 0.30;
    }
}

static waste_status find_weight(waste_verify *v, const waste_trunk_entry *e, waste_weight *w,
                                waste_error *err)
{
    waste_status st = waste_names_trunk(v->source, &v->settings, e->name, w, err);

    if (st) return st;
    if (w->rows * w->cols != e->rows * e->cols)
        return waste_fail(err, WASTE_FORMAT, "tensor %s has %lld weights, its source %lld", e->name,
                          (long long)(e->rows * e->cols), (long long)(w->rows * w->cols));
    /* read in the rows it is stored in: the order of the values is the same */
    w->rows = e->rows;
    w->cols = e->cols;
    return WASTE_OK;
}

static waste_status check_tensor(waste_verify *v, const waste_trunk_entry *e, loss *l,
                                 waste_error *err)
{
    const int64_t piece = v->most / e->cols;
    int64_t first, n;
    waste_weight w;
    waste_status st = WASTE_OK;

    if (v->source) st = find_weight(v, e, &w, err);
    for (first = 0; !st && first < e->rows; first += n) {
        n = e->rows - first < piece ? e->rows - first : piece;
        st = asked(v, err);
        if (!st) st = read_trunk(v, e, first, n, err);
        if (!st && v->source) st = waste_weight_rows(v->source, &w, first, n, v->want, err);
        if (!st && v->source) compare(l, v->got, v->want, n * e->cols);
    }
    return st;
}

static waste_status too_far(const char *what, double error, double limit, waste_error *err)
{
    if (error <= limit) return WASTE_OK;
    return waste_fail(err, WASTE_FORMAT, "%s: relative error %.3f, at most %.2f is expected", what,
                      error, limit);
}

static waste_status next_tensor(waste_verify *v, waste_verify_row *row, waste_error *err)
{
    const waste_trunk_entry *e = v->manifest->trunk + v->item;
    loss l = {0, 0};
    waste_error why = {0};
    waste_status st = WASTE_OK;

    if (v->item == 0) st = open_file(v, "trunk.bin", &why);
    row->part = "tensor";
    row->name = e->name;
    if (!st) st = check_tensor(v, e, &l, &why);
    if (!st && v->source) {
        row->error = error_of(&l);
        st = too_far(e->name, row->error, limit_of(e->fmt), &why);
    }
    v->item++;
    return found(row, st, &why, err);
}

/* ---- codebooks ---------------------------------------------------------------------------- */

static size_t book_floats(const waste_quant *q)
{
    return (size_t)(q->entries * q->vec_dim);
}

static waste_status read_book(waste_verify *v, int id, float *to, waste_error *err)
{
    const waste_quant *q = &v->manifest->quant;
    const size_t n = book_floats(q), bytes = WASTE_CODEBOOK_HEADER + 2 * n;
    waste_codebook_header h;
    uint16_t f;
    size_t i;
    waste_status st = room(v, bytes, err);

    if (!st) st = waste_file_read(&v->file, v->path, v->raw, bytes, (uint64_t)id * bytes, err);
    if (st) return st;
    memcpy(&h, v->raw, sizeof h);
    if (h.magic != WASTE_CODEBOOK_MAGIC || h.id != (uint16_t)id || h.vec_dim != q->vec_dim ||
        h.entries != (uint32_t)q->entries)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: the header of codebook %d is not what it should be", v->path, id);
    for (i = 0; i < n; i++) {
        memcpy(&f, v->raw + WASTE_CODEBOOK_HEADER + 2 * i, sizeof f);
        to[i] = waste_f16_to_f32(f);
        if (!isfinite(to[i]))
            return waste_fail(err, WASTE_FORMAT,
                              "%s: codebook %d holds a number that is not finite", v->path, id);
    }
    return WASTE_OK;
}

/* Books of the layer, and its bank opened. */
static waste_status open_layer(waste_verify *v, waste_error *err)
{
    const waste_quant *q = &v->manifest->quant;
    const waste_bank_entry *b = v->manifest->bank + v->layer;
    const int n = 3 * q->stages;
    int i;
    waste_status st = WASTE_OK;

    waste_record_layout_of(&v->layout, q, v->config.moe_width, v->config.expert_in);
    if (v->layout.bytes > v->record_room) {
        unsigned char *p = waste_mem_resize(v->record, (size_t)v->layout.bytes);
        if (!p) return no_memory(v, err);
        v->record = p;
        v->record_room = v->layout.bytes;
    }
    if (!v->books) v->books = waste_mem_array((size_t)n, book_floats(q) * sizeof *v->books);
    if (!v->books) return no_memory(v, err);
    st = open_file(v, "codebooks.bin", err);
    for (i = 0; !st && i < n; i++)
        st = read_book(v, b->codebook_base + i, v->books + (size_t)i * book_floats(q), err);
    return st ? st : open_file(v, b->file, err);
}

static waste_status next_layer(waste_verify *v, waste_verify_row *row, waste_error *err)
{
    const waste_bank_entry *b = v->manifest->bank + v->layer;
    waste_error why = {0};
    uint64_t size = 0;
    waste_status st = open_layer(v, &why);

    row->part = "codebooks";
    row->layer = v->layer;
    if (!st) st = waste_file_size(&v->file, v->path, &size, &why);
    if (!st && size != (uint64_t)b->experts * b->record_bytes)
        st = waste_fail(&why, WASTE_FORMAT, "%s has %llu bytes, wanted %llu", v->path,
                        (unsigned long long)size,
                        (unsigned long long)((uint64_t)b->experts * b->record_bytes));
    v->expert = 0;
    v->stage = RECORDS;
    if (st) v->expert = b->experts; /* nothing of this layer can be decoded */
    return found(row, st, &why, err);
}

/* ---- records ------------------------------------------------------------------------------ */

static int index_of(const waste_quant *q, const unsigned char *p, int s)
{
    uint32_t u;

    if (q->index_bits == 8) return p[s];
    u = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
    return (int)(u >> 6 * s & 63);
}

/* Every index of a matrix names an entry that there is. */
static waste_status check_indices(const waste_verify *v, const unsigned char *at, int64_t rows,
                                  int64_t cols, waste_error *err)
{
    const waste_quant *q = &v->manifest->quant;
    const int64_t nv = cols / q->vec_dim;
    int64_t r, i;
    int s;

    if (q->entries >= 256 || (q->index_bits == 6 && q->entries >= 64)) return WASTE_OK;
    for (r = 0; r < rows; r++)
        for (i = 0; i < nv; i++)
            for (s = 0; s < q->stages; s++)
                if (index_of(q, at + waste_record_index_pos(q, nv, r, i), s) >= q->entries)
                    return waste_fail(err, WASTE_FORMAT,
                                      "%s: layer %d, expert %d: an index is beyond the codebook",
                                      v->path, v->layer, v->expert);
    return WASTE_OK;
}

static void decode_row(const waste_verify *v, const unsigned char *at, int kind, int64_t row,
                       int64_t cols, float scale, float *to)
{
    const waste_quant *q = &v->manifest->quant;
    const int64_t nv = cols / q->vec_dim;
    const size_t book = book_floats(q);
    int64_t i;
    int s, d;

    memset(to, 0, (size_t)cols * sizeof *to);
    for (i = 0; i < nv; i++) {
        const unsigned char *p = at + waste_record_index_pos(q, nv, row, i);
        for (s = 0; s < q->stages; s++) {
            const float *c = v->books + (size_t)(kind * q->stages + s) * book +
                             (size_t)(index_of(q, p, s) * q->vec_dim);
            for (d = 0; d < q->vec_dim; d++) to[i * q->vec_dim + d] += c[d];
        }
    }
    for (i = 0; i < cols; i++) to[i] *= scale;
}

static float scale_at(const unsigned char *scales, int64_t row)
{
    uint16_t f;

    memcpy(&f, scales + 2 * row, sizeof f);
    return waste_f16_to_f32(f);
}

static waste_status compare_matrix(waste_verify *v, int kind, const unsigned char *at,
                                   const unsigned char *scales, int64_t rows, int64_t cols, loss *l,
                                   waste_error *err)
{
    const int64_t piece = v->most / cols < rows ? v->most / cols : rows;
    char name[256];
    waste_weight w;
    int64_t first, n, r;
    waste_status st;

    waste_names_expert(name, sizeof name, v->names, &v->settings, v->layer, v->expert, kind);
    st = waste_weight_find(v->source, name, &w, err);
    if (!st && (w.rows != rows || w.cols != cols))
        st = waste_fail(err, WASTE_FORMAT, "tensor %s is [%lld, %lld], the record's [%lld, %lld]",
                        name, (long long)w.rows, (long long)w.cols, (long long)rows,
                        (long long)cols);
    if (!st) st = room(v, 1, err);
    for (first = 0; !st && first < rows; first += n) {
        n = rows - first < piece ? rows - first : piece;
        st = asked(v, err);
        if (!st) st = waste_weight_rows(v->source, &w, first, n, v->want, err);
        for (r = 0; !st && r < n; r++)
            decode_row(v, at, kind, first + r, cols, scale_at(scales, first + r),
                       v->got + r * cols);
        if (!st) compare(l, v->got, v->want, n * cols);
    }
    return st;
}

/* The three matrices: scales finite, indices in range, and near their source. */
static waste_status check_matrices(waste_verify *v, waste_verify_row *row, waste_error *err)
{
    static const char *const kinds[] = {"gate", "up", "down"};
    const int64_t width = v->config.moe_width, in = v->config.expert_in;
    const waste_record_layout *y = &v->layout;
    const uint64_t off[] = {y->gate_off, y->up_off, y->down_off};
    double *const error[] = {&row->gate, &row->up, &row->down};
    const double limit = v->manifest->quant.stages < 3 ? LIMIT_2BIT : LIMIT_3BIT;
    const unsigned char *scales = v->record + y->scale_off;
    loss all = {0, 0};
    char what[80];
    waste_status st = WASTE_OK;
    int64_t r;
    int k;

    for (k = 0; !st && k < 3; k++) {
        const int64_t rows = k == 2 ? in : width, cols = k == 2 ? width : in;
        loss l = {0, 0};
        for (r = 0; !st && r < rows; r++)
            if (!isfinite(scale_at(scales, r)))
                st =
                    waste_fail(err, WASTE_FORMAT,
                               "%s: layer %d, expert %d: the scale of row %lld of %s is not finite",
                               v->path, v->layer, v->expert, (long long)r, kinds[k]);
        if (!st) st = check_indices(v, v->record + off[k], rows, cols, err);
        if (!st && v->source) {
            st = compare_matrix(v, k, v->record + off[k], scales, rows, cols, &l, err);
            *error[k] = st ? NAN : error_of(&l);
            snprintf(what, sizeof what, "layer %d, expert %d, %s", v->layer, v->expert, kinds[k]);
            if (!st) st = too_far(what, *error[k], limit, err);
            all.wrong += l.wrong;
            all.all += l.all;
        }
        scales += 2 * rows;
    }
    if (v->source && !st) row->error = error_of(&all);
    return st;
}

static waste_status next_record(waste_verify *v, waste_verify_row *row, waste_error *err)
{
    const waste_bank_entry *b = v->manifest->bank + v->layer;
    waste_record_header h;
    waste_error why = {0};
    waste_status st = asked(v, &why);

    row->part = "record";
    row->layer = v->layer;
    row->expert = v->expert;
    if (!st)
        st = waste_file_read(&v->file, v->path, v->record, (size_t)b->record_bytes,
                             (uint64_t)v->expert * b->record_bytes, &why);
    if (!st) {
        memcpy(&h, v->record, sizeof h);
        st = waste_record_check(&h, &v->layout, &v->manifest->quant, v->layer, v->expert,
                                b->codebook_base, b->record_bytes, v->path, &why);
    }
    if (!st && waste_record_crc(v->record, &v->layout) != h.crc32)
        st = waste_fail(&why, WASTE_IO, "%s: layer %d, expert %d: the checksum does not fit",
                        v->path, v->layer, v->expert);
    if (!st) st = check_matrices(v, row, &why);
    v->expert++;
    return found(row, st, &why, err);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* The stage of the next row; layers without a bank are passed over. */
static void settle(waste_verify *v)
{
    if (v->stage == TENSORS && v->item == v->manifest->n_trunk) v->stage = BOOKS;
    if (v->stage == RECORDS && v->expert >= v->manifest->bank[v->layer].experts) {
        v->layer++;
        v->stage = BOOKS;
    }
    while (v->stage == BOOKS && v->layer < v->config.layers && !v->manifest->bank[v->layer].file)
        v->layer++;
    if (v->stage == BOOKS && v->layer >= v->config.layers) v->stage = END;
}

waste_status waste_verify_next(waste_verify *v, waste_verify_row *row, waste_error *err)
{
    memset(row, 0, sizeof *row);
    row->part = "census";
    row->layer = row->expert = -1;
    row->ok = 1;
    row->error = row->gate = row->up = row->down = NAN;
    if (v->stage != CENSUS && v->stage != END) settle(v);
    switch (v->stage) {
    case CENSUS: v->stage = v->broken.status ? END : TENSORS; return census(v, row, err);
    case TENSORS: return next_tensor(v, row, err);
    case BOOKS: return next_layer(v, row, err);
    case RECORDS: return next_record(v, row, err);
    default: return WASTE_DONE;
    }
}
