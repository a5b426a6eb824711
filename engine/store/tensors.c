/* Trunk tensors by handle: see tensors.h. Names are resolved and shapes checked on the
 * thread that opens the model; loading is tensors_load.c; afterwards only
 * waste_tensors_rows touches the file, with positional reads.
 *
 * One `want` per tensor that was asked for, however often. */
#include "store/tensors_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/aside.h"
#include "base/mem.h"
#include "kernels/quant.h"

/* What reads of rows are left behind under: an address, so it is even. */
static uint64_t key_of(const waste_tensors *t)
{
    return (uint64_t)(uintptr_t)t;
}

waste_status waste_tensors_open(waste_tensors **out, const waste_manifest *m, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_tensors *t;
    waste_status st;

    *out = NULL;
    t = waste_mem_zero(sizeof *t);
    if (!t) return waste_fail(err, WASTE_NOMEM, "out of memory opening the trunk of %s", m->dir);
    t->manifest = m;
    t->file.fd = WASTE_FILE_CLOSED;
    st = waste_path_join(path, sizeof path, m->dir, "trunk.bin", err);
    if (!st) {
        t->path = waste_mem_text(path, strlen(path));
        t->of = waste_mem_array(m->n_trunk, sizeof *t->of);
        if (!t->path || !t->of) st = waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    }
    if (!st) st = waste_file_open(&t->file, path, err);
    if (st) {
        waste_tensors_close(t);
        return st;
    }
    *out = t;
    return WASTE_OK;
}

void waste_tensors_close(waste_tensors *t)
{
    if (!t) return;
    waste_aside_settle(key_of(t));
    while (t->wants) {
        waste_want *w = t->wants;
        t->wants = w->next;
        waste_mem_free(w);
    }
    while (t->slots) {
        waste_vector_at *s = t->slots;
        t->slots = s->next;
        waste_mem_free(s);
    }
    waste_file_close(&t->file);
    waste_mem_region_free(t->block, t->block_bytes);
    waste_mem_free(t->of);
    waste_mem_free(t->path);
    waste_mem_free(t);
}

int waste_tensors_has(const waste_tensors *t, const char *name)
{
    return waste_manifest_tensor(t->manifest, name) != NULL;
}

/* ---- asking ----------------------------------------------------------- */

static waste_status find(const waste_tensors *t, const char *name, const waste_trunk_entry **e,
                         waste_error *err)
{
    if (t->loaded)
        return waste_fail(err, WASTE_ARG, "tensor %s asked for after the trunk was loaded", name);
    *e = waste_manifest_tensor(t->manifest, name);
    if (*e) return WASTE_OK;
    return waste_fail(err, WASTE_FORMAT, "%s: required tensor %s is missing from trunk",
                      t->manifest->path, name);
}

static const char *shape_text(const waste_trunk_entry *e, char *to, size_t cap)
{
    size_t n = (size_t)snprintf(to, cap, "[");
    int i;

    for (i = 0; i < e->dims; i++)
        n += (size_t)snprintf(to + n, cap - n, "%s%lld", i ? ", " : "", (long long)e->shape[i]);
    snprintf(to + n, cap - n, "]");
    return to;
}

static waste_status want_entry(waste_tensors *t, const waste_trunk_entry *e, int on_disk,
                               waste_want **out, waste_error *err)
{
    waste_want **at = &t->of[e - t->manifest->trunk], *w = *at;

    *out = NULL;
    if (!w) {
        w = waste_mem_zero(sizeof *w);
        if (!w) return waste_fail(err, WASTE_NOMEM, "out of memory for tensor %s", e->name);
        w->entry = e;
        w->tensor.name = e->name;
        w->tensor.fmt = e->fmt;
        w->tensor.rows = e->rows;
        w->tensor.cols = e->cols;
        w->tensor.group = e->group;
        w->tensor.n_groups = e->group ? (e->cols + e->group - 1) / e->group : 0;
        w->tensor.row_bytes = waste_quant_row_bytes(e->fmt, e->cols, e->group);
        w->tensor.off = e->off;
        w->tensor.scale_off = e->scale_off;
        w->next = t->wants;
        t->wants = *at = w;
        t->n_wants++;
    }
    if (!on_disk || e->fmt == WASTE_FMT_F32) w->resident = 1;
    *out = w;
    return WASTE_OK;
}

waste_status waste_tensors_matrix(waste_tensors *t, const char *name, int64_t rows, int64_t cols,
                                  int on_disk, const waste_tensor **out, waste_error *err)
{
    const waste_trunk_entry *e;
    char found[100];
    waste_want *w;
    waste_status st = find(t, name, &e, err);

    *out = NULL;
    if (st) return st;
    if (e->dims != 2 || e->rows != rows || e->cols != cols)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: trunk tensor %s has shape %s, wanted [%lld, %lld] by config",
                          t->manifest->path, name, shape_text(e, found, sizeof found),
                          (long long)rows, (long long)cols);
    st = want_entry(t, e, on_disk, &w, err);
    if (!st) *out = &w->tensor;
    return st;
}

waste_status waste_tensors_vector(waste_tensors *t, const char *name, int64_t n, int exactly,
                                  const float **to, waste_error *err)
{
    const waste_trunk_entry *e;
    char found[100];
    waste_want *w;
    waste_vector_at *s;
    waste_status st = find(t, name, &e, err);

    *to = NULL;
    if (st) return st;
    if (e->fmt != WASTE_FMT_F32)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: trunk tensor %s has fmt %d, wanted 0 (F32) for a tensor of its kind",
                          t->manifest->path, name, (int)e->fmt);
    /* rows * cols cannot overflow: 4 bytes of each are inside the file */
    if (exactly ? e->rows * e->cols != n : e->rows * e->cols < n)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: trunk tensor %s has shape %s, wanted %s%lld elements by config",
                          t->manifest->path, name, shape_text(e, found, sizeof found),
                          exactly ? "" : "at least ", (long long)n);
    st = want_entry(t, e, 0, &w, err);
    if (st) return st;
    s = waste_mem_zero(sizeof *s);
    if (!s) return waste_fail(err, WASTE_NOMEM, "out of memory for tensor %s", name);
    s->to = to;
    s->from = w;
    s->next = t->slots;
    t->slots = s;
    return WASTE_OK;
}

void waste_tensors_arrange(waste_tensors *t, const waste_tensor *x)
{
    waste_want *w;

    for (w = t->wants; w; w = w->next)
        if (&w->tensor == x) w->arrange = 1;
}

/* ---- single rows ------------------------------------------------------ */

/* Rows that are read together, payload and scales of each one after the other. The
 * memory is the read's own: it may go on when nobody waits for it any more. */
typedef struct rows_read {
    const waste_tensors *tensors;
    const waste_tensor *of;
    size_t n, bytes;    /* of a row */
    int32_t *row;       /* [n] */
    unsigned char *got; /* [n] */
    char *buf;          /* [n][bytes] */
} rows_read;

static void drop_rows(void *ctx)
{
    waste_mem_free(ctx);
}

static rows_read *rows_new(const waste_tensors *t, const waste_tensor *x, const int32_t *rows,
                           size_t n)
{
    const size_t bytes = (size_t)x->row_bytes + 2 * (size_t)x->n_groups;
    rows_read *r =
        n > SIZE_MAX / 2 / (bytes + 64) ? NULL : waste_mem_zero(sizeof *r + n * (bytes + 5));

    if (!r) return NULL;
    r->tensors = t;
    r->of = x;
    r->n = n;
    r->bytes = bytes;
    r->row = (int32_t *)(r + 1);
    r->got = (unsigned char *)(r->row + n);
    r->buf = (char *)(r->got + n);
    memcpy(r->row, rows, n * sizeof *rows);
    return r;
}

/* What is in the system's memory, at once; returns how many are not. */
static size_t read_at_hand(rows_read *r)
{
    const waste_file *f = &r->tensors->file;
    size_t i, left = 0;
    waste_range at[2];

    for (i = 0; i < r->n; i++) {
        char *to = r->buf + i * r->bytes;

        waste_ranges_at(r->of, r->row[i], r->row[i] + 1, at);
        r->got[i] = waste_file_read_now(f, to, (size_t)at[0].bytes, at[0].off) &&
                    waste_file_read_now(f, to + at[0].bytes, (size_t)at[1].bytes, at[1].off);
        left += !r->got[i];
    }
    return left;
}

static waste_status read_rest(void *ctx, const waste_cancel *left, waste_error *err)
{
    rows_read *r = ctx;
    const waste_tensors *t = r->tensors;
    waste_status st = WASTE_OK;
    waste_error e = {0};
    waste_range at[2];
    size_t i;

    for (i = 0; i < r->n; i++) {
        if (r->got[i]) continue;
        waste_ranges_at(r->of, r->row[i], r->row[i] + 1, at);
        waste_file_ahead(&t->file, at[0].off, at[0].bytes);
        if (at[1].bytes) waste_file_ahead(&t->file, at[1].off, at[1].bytes);
    }
    for (i = 0; i < r->n && !st; i++) {
        char *to = r->buf + i * r->bytes;

        if (r->got[i]) continue;
        waste_ranges_at(r->of, r->row[i], r->row[i] + 1, at);
        st = waste_file_read(&t->file, t->path, to, (size_t)at[0].bytes, at[0].off, &e);
        if (!st && at[1].bytes)
            st = waste_file_read(&t->file, t->path, to + at[0].bytes, (size_t)at[1].bytes,
                                 at[1].off, &e);
        if (st)
            return waste_fail(err, st, "row %ld of tensor %s: %s", (long)r->row[i], r->of->name,
                              e.text);
        if (waste_asked(left)) return waste_fail(err, WASTE_CANCELLED, "cancelled while reading");
    }
    return st;
}

static void decode(const waste_tensor *x, const void *row, const void *scales, float *to)
{
    if (x->fmt == WASTE_FMT_F32)
        memcpy(to, row, (size_t)x->row_bytes);
    else
        waste_quant_decode_row(x->fmt, row, scales, x->cols, x->group, to);
}

static waste_status rows_from_file(const waste_tensors *t, const waste_tensor *x,
                                   const int32_t *rows, size_t n, float *to,
                                   const waste_cancel *cancel, waste_error *err)
{
    rows_read *r = rows_new(t, x, rows, n);
    waste_status st = WASTE_OK;
    size_t i;

    if (!r) return waste_fail(err, WASTE_NOMEM, "out of memory reading tensor %s", x->name);
    if (read_at_hand(r)) st = waste_aside_run(key_of(t), read_rest, drop_rows, r, cancel, err);
    if (st) return st;
    for (i = 0; i < n; i++) {
        const char *row = r->buf + i * r->bytes;

        decode(x, row, row + x->row_bytes, to + i * (size_t)x->cols);
    }
    drop_rows(r);
    return WASTE_OK;
}

waste_status waste_tensors_rows(const waste_tensors *t, const waste_tensor *x, const int32_t *rows,
                                size_t n, float *to, const waste_cancel *cancel, waste_error *err)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= x->rows)
            return waste_fail(err, WASTE_ARG, "row %ld of tensor %s, which has %lld", (long)rows[i],
                              x->name, (long long)x->rows);
    if (!x->data || x->tiled) return rows_from_file(t, x, rows, n, to, cancel, err);
    for (i = 0; i < n; i++)
        decode(x, (const char *)x->data + rows[i] * x->row_bytes,
               x->scales ? x->scales + rows[i] * x->n_groups : NULL, to + i * (size_t)x->cols);
    return WASTE_OK;
}
