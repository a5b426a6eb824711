/* Trunk tensors by handle: see tensors.h. Names are resolved, shapes checked and
 * data read on the thread that opens the model; afterwards only
 * waste_tensors_row touches the file, with positional reads.
 *
 * One `want` per tensor that was asked for, however often; all resident data is
 * one block, laid out in the order of the file so that loading reads forward. */
#include "store/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "kernels/quant.h"

#define PART   ((uint64_t)8 << 20)  /* largest read */
#define AHEAD  ((uint64_t)32 << 20) /* asked of the disk before it is needed */
#define BEHIND ((uint64_t)64 << 20) /* kept in the page cache at most, after use */

typedef struct want {
    waste_tensor tensor;
    const waste_trunk_entry *entry;
    int resident;
    struct want *next;
} want;

/* A caller's pointer that the loading fills. */
typedef struct slot {
    const float **to;
    const want *from;
    struct slot *next;
} slot;

/* A stretch of the file and where it goes. */
typedef struct piece {
    uint64_t off, bytes;
    void *to;
    want *of;
    int is_scales;
} piece;

struct waste_tensors {
    const waste_manifest *manifest;
    char *path; /* of trunk.bin */
    waste_file file;
    want **of; /* by the entry's number in the manifest; NULL: not asked for */
    want *wants;
    slot *slots;
    size_t n_wants;
    char *block; /* all resident data */
    size_t block_bytes;
    int loaded;
};

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
    while (t->wants) {
        want *w = t->wants;
        t->wants = w->next;
        waste_mem_free(w);
    }
    while (t->slots) {
        slot *s = t->slots;
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
                               want **out, waste_error *err)
{
    want **at = &t->of[e - t->manifest->trunk], *w = *at;

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
    want *w;
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
    want *w;
    slot *s;
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

/* ---- loading ---------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const piece *x = a, *y = b;

    return (x->off > y->off) - (x->off < y->off);
}

/* The resident pieces in file order; returns how many. */
static size_t list_pieces(const waste_tensors *t, piece *p)
{
    size_t n = 0;
    want *w;

    for (w = t->wants; w; w = w->next) {
        if (!w->resident) continue;
        p[n++] = (piece){w->entry->off, w->entry->payload_bytes, NULL, w, 0};
        if (w->entry->scale_bytes)
            p[n++] = (piece){w->entry->scale_off, w->entry->scale_bytes, NULL, w, 1};
    }
    qsort(p, n, sizeof *p, by_offset);
    return n;
}

/* Base NULL only measures. */
static size_t carve(piece *p, size_t n, char *base, int *overflow)
{
    waste_arena a = {base, 0, 0};
    size_t i;

    for (i = 0; i < n; i++) p[i].to = waste_arena_take(&a, (size_t)p[i].bytes, 1);
    *overflow = a.overflow;
    return a.used;
}

/* Where the file is being read. The disk is kept busy AHEAD bytes in front, so
 * that many small tensors cost no more than one large one; what lies behind leaves
 * the page cache, where it would stand a second time. */
typedef struct stream {
    uint64_t ahead, dropped; /* asked for, and dropped, up to here */
} stream;

static void move_on(const waste_tensors *t, stream *s, uint64_t at)
{
    for (s->ahead = s->ahead < at ? at : s->ahead; s->ahead < at + AHEAD; s->ahead += PART)
        waste_file_ahead(&t->file, s->ahead, PART);
    if (at < s->dropped + BEHIND) return;
    waste_file_drop(&t->file, s->dropped, at - s->dropped);
    s->dropped = at;
}

static waste_status read_piece(const waste_tensors *t, const piece *p, stream *s, waste_error *err)
{
    waste_error e = {0};
    uint64_t at, n;
    waste_status st = WASTE_OK;

    for (at = 0; at < p->bytes && !st; at += n) {
        n = p->bytes - at < PART ? p->bytes - at : PART;
        move_on(t, s, p->off + at);
        st = waste_file_read(&t->file, t->path, (char *)p->to + at, (size_t)n, p->off + at, &e);
    }
    return st ? waste_fail(err, st, "tensor %s: %s", p->of->tensor.name, e.text) : WASTE_OK;
}

static waste_status load_pieces(waste_tensors *t, piece *p, waste_error *err)
{
    size_t i, n = list_pieces(t, p), bytes;
    stream s = {0, 0};
    int overflow;
    waste_status st = WASTE_OK;

    bytes = carve(p, n, NULL, &overflow);
    if (bytes == 0) return WASTE_OK;
    t->block = overflow ? NULL : waste_mem_region(bytes);
    t->block_bytes = bytes;
    if (!t->block)
        return waste_fail(err, WASTE_NOMEM, "no memory for the %zu bytes of %s that stay resident",
                          bytes, t->path);
    carve(p, n, t->block, &overflow);
    for (i = 0; !st && i < n; i++) {
        st = read_piece(t, &p[i], &s, err);
        if (p[i].is_scales)
            p[i].of->tensor.scales = p[i].to;
        else
            p[i].of->tensor.data = p[i].to;
    }
    waste_file_drop(&t->file, 0, 0);
    return st;
}

waste_status waste_tensors_load(waste_tensors *t, waste_error *err)
{
    piece *p;
    const slot *s;
    waste_status st;

    if (t->loaded) return waste_fail(err, WASTE_ARG, "%s is already loaded", t->path);
    p = waste_mem_array(2 * t->n_wants + 1, sizeof *p);
    if (!p) return waste_fail(err, WASTE_NOMEM, "out of memory loading %s", t->path);
    t->loaded = 1;
    st = load_pieces(t, p, err);
    for (s = t->slots; !st && s; s = s->next) *s->to = s->from->tensor.data;
    waste_mem_free(p);
    return st;
}

waste_tensor *waste_tensors_change(waste_tensors *t, const waste_tensor *x)
{
    want *w = t->wants;

    while (w && &w->tensor != x) w = w->next;
    return w ? &w->tensor : NULL;
}

/* ---- single rows ------------------------------------------------------ */

static void decode(const waste_tensor *x, const void *row, const void *scales, float *to)
{
    if (x->fmt == WASTE_FMT_F32)
        memcpy(to, row, (size_t)x->row_bytes);
    else
        waste_quant_decode_row(x->fmt, row, scales, x->cols, x->group, to);
}

/* The row's payload and its scales, one after the other into `buf`. */
static waste_status read_row(const waste_tensors *t, const waste_tensor *x, int64_t row, char *buf,
                             waste_error *err)
{
    size_t bytes = (size_t)x->row_bytes, scales = 2 * (size_t)x->n_groups;
    waste_error e = {0};
    waste_status st;

    st = waste_file_read(&t->file, t->path, buf, bytes, x->off + (uint64_t)row * bytes, &e);
    if (!st && scales)
        st = waste_file_read(&t->file, t->path, buf + bytes, scales,
                             x->scale_off + (uint64_t)row * scales, &e);
    return st ? waste_fail(err, st, "row %lld of tensor %s: %s", (long long)row, x->name, e.text)
              : WASTE_OK;
}

waste_status waste_tensors_row(const waste_tensors *t, const waste_tensor *x, int64_t row,
                               float *to, waste_error *err)
{
    char *buf;
    waste_status st;

    if (row < 0 || row >= x->rows)
        return waste_fail(err, WASTE_ARG, "row %lld of tensor %s, which has %lld", (long long)row,
                          x->name, (long long)x->rows);
    if (x->data && !x->tiled) {
        decode(x, (const char *)x->data + row * x->row_bytes,
               x->scales ? x->scales + row * x->n_groups : NULL, to);
        return WASTE_OK;
    }
    buf = waste_mem_alloc((size_t)x->row_bytes + 2 * (size_t)x->n_groups);
    if (!buf) return waste_fail(err, WASTE_NOMEM, "out of memory reading tensor %s", x->name);
    st = read_row(t, x, row, buf, err);
    if (!st) decode(x, buf, buf + x->row_bytes, to);
    waste_mem_free(buf);
    return st;
}
