/* Trunk tensors by handle: see tensors.h. Names are resolved and shapes checked on the
 * thread that opens the model, data is read by it and its helpers; afterwards only
 * waste_tensors_rows touches the file, with positional reads.
 *
 * One `want` per tensor that was asked for, however often; all resident data is
 * one block, laid out in the order of the file so that loading reads forward. */
#include "store/tensors.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/aside.h"
#include "base/mem.h"
#include "base/process.h"
#include "kernels/quant.h"

#define SLICE  ((int64_t)2 << 20)    /* bytes of rows that are read together, about */
#define TILE   64                    /* rows that stay together */
#define AHEAD  ((uint64_t)32 << 20)  /* asked of the disk before it is needed */
#define DIRECT ((uint64_t)256 << 10) /* bytes that are worth a read past the page cache */
#define BLOCK  ((uint64_t)4096)      /* what such reads are multiples of */
#define BOUNCE ((uint64_t)SLICE + 2 * BLOCK)

typedef struct want {
    waste_tensor tensor;
    const waste_trunk_entry *entry;
    int resident;
    int arrange; /* its rows are rearranged when they are there */
    int tiled;   /* they were */
    struct want *next;
} want;

/* A caller's pointer that the loading fills. */
typedef struct slot {
    const float **to;
    const want *from;
    struct slot *next;
} slot;

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

void waste_tensors_arrange(waste_tensors *t, const waste_tensor *x)
{
    want *w;

    for (w = t->wants; w; w = w->next)
        if (&w->tensor == x) w->arrange = 1;
}

/* ---- loading ---------------------------------------------------------- */

/* Rows lo..hi-1 of a tensor: what one thread reads and arranges at a time. */
typedef struct slice {
    want *of;
    int64_t lo, hi;
} slice;

/* Threads take slices in the order of the file. Payload is read past the page cache, in
 * large pieces by way of a buffer of the thread's, while other threads arrange theirs.
 * What is small, and all where that cannot be done, goes through the page cache: it is
 * asked of the disk AHEAD bytes in front, so that many small reads cost no more than a
 * large one, and dropped afterwards, since it would stand there a second time. */
typedef struct load {
    const waste_tensors *tensors;
    waste_tensors_how how;
    const waste_cancel *cancel;
    waste_file direct;   /* not open: everything is buffered */
    uint64_t direct_end; /* of the last whole block of the file */
    char *bounce;        /* [threads][BOUNCE] */
    const slice *slice;
    size_t n;
    pthread_mutex_t lock; /* guards what follows */
    size_t next, ahead;   /* slices that were taken, and asked of the disk */
    uint64_t bytes_ahead; /* of those between the two */
    int stop;
    size_t failed; /* the first slice that did; n: none */
    waste_status status;
    waste_error error;
} load;

static int by_offset(const void *a, const void *b)
{
    const want *x = *(want *const *)a, *y = *(want *const *)b;

    return (x->entry->off > y->entry->off) - (x->entry->off < y->entry->off);
}

/* The resident ones in file order; returns how many. */
static size_t list_wants(const waste_tensors *t, want **list)
{
    size_t n = 0;
    want *w;

    for (w = t->wants; w; w = w->next)
        if (w->resident) list[n++] = w;
    qsort(list, n, sizeof *list, by_offset);
    return n;
}

/* Where their bytes go. Base NULL only measures. */
static size_t carve(want **list, size_t n, char *base, int *overflow)
{
    waste_arena a = {base, 0, 0};
    size_t i;

    for (i = 0; i < n; i++) {
        const waste_trunk_entry *e = list[i]->entry;

        list[i]->tensor.data = waste_arena_take(&a, (size_t)e->payload_bytes, 1);
        if (e->scale_bytes)
            list[i]->tensor.scales = waste_arena_take(&a, (size_t)e->scale_bytes, 1);
    }
    *overflow = a.overflow;
    return a.used;
}

/* to NULL only counts. */
static size_t cut(want *const *list, size_t n, slice *to)
{
    size_t i, count = 0;
    int64_t lo;

    for (i = 0; i < n; i++) {
        const waste_tensor *x = &list[i]->tensor;
        const int64_t tiles = SLICE / TILE / x->row_bytes + 1, rows = tiles * TILE;

        for (lo = 0; lo < x->rows; lo += rows, count++)
            if (to) to[count] = (slice){list[i], lo, x->rows - lo < rows ? x->rows : lo + rows};
    }
    return count;
}

/* Bytes of rows in the file: payload, scales. */
typedef struct range {
    uint64_t off, bytes;
} range;

static void ranges_at(const waste_tensor *x, int64_t lo, int64_t hi, range r[2])
{
    const uint64_t first = (uint64_t)lo, n = (uint64_t)(hi - lo);
    const uint64_t row = (uint64_t)x->row_bytes, scales = 2 * (uint64_t)x->n_groups;

    r[0] = (range){x->off + first * row, n * row};
    r[1] = (range){x->scale_off + first * scales, n * scales};
}

static void ranges_of(const slice *s, range r[2])
{
    ranges_at(&s->of->tensor, s->lo, s->hi, r);
}

/* The matrix of these rows alone. */
static waste_tensor rows_of(const slice *s)
{
    waste_tensor x = s->of->tensor;

    x.data = (const char *)x.data + s->lo * x.row_bytes;
    if (x.scales) x.scales += s->lo * x.n_groups;
    x.rows = s->hi - s->lo;
    return x;
}

static int is_direct(const load *l, const range *r)
{
    return l->direct.fd != WASTE_FILE_CLOSED && r->bytes >= DIRECT &&
           r->off + r->bytes <= l->direct_end;
}

/* The blocks around it, a buffer at a time. */
static waste_status read_direct(const load *l, int thread, const range *r, char *to,
                                waste_error *err)
{
    char *bounce = l->bounce + (uint64_t)thread * BOUNCE;
    uint64_t at, n;
    waste_status st = WASTE_OK;

    for (at = 0; at < r->bytes && !st; at += n) {
        const uint64_t from = r->off + at, start = from / BLOCK * BLOCK;

        n = r->bytes - at < (uint64_t)SLICE ? r->bytes - at : (uint64_t)SLICE;
        st = waste_file_read_blocks(&l->direct, l->tensors->path, bounce,
                                    (size_t)((from + n - start + BLOCK - 1) / BLOCK * BLOCK), start,
                                    err);
        if (!st) memcpy(to + at, bounce + (from - start), (size_t)n);
    }
    return st;
}

static waste_status read_range(const load *l, int thread, const range *r, const void *data,
                               waste_error *err)
{
    const waste_tensors *t = l->tensors;
    /* the block is not shared yet: const is for those who get handles */
    void *to = (void *)(uintptr_t)data;
    waste_status st;

    if (r->bytes == 0) return WASTE_OK;
    if (is_direct(l, r)) return read_direct(l, thread, r, to, err);
    st = waste_file_read(&t->file, t->path, to, (size_t)r->bytes, r->off, err);
    if (!st) waste_file_drop(&t->file, r->off, r->bytes);
    return st;
}

static waste_status read_slice(const load *l, int thread, const slice *s, waste_error *err)
{
    waste_tensor rows = rows_of(s);
    waste_error e = {0};
    range r[2];
    waste_status st;

    ranges_of(s, r);
    st = read_range(l, thread, &r[0], rows.data, &e);
    if (!st) st = read_range(l, thread, &r[1], rows.scales, &e);
    if (st) return waste_fail(err, st, "tensor %s: %s", rows.name, e.text);
    if (!s->of->arrange || !l->how.arrange) return WASTE_OK;
    l->how.arrange(l->how.ctx, thread, &rows);
    if (s->lo == 0) s->of->tiled = rows.tiled; /* one thread has these */
    return WASTE_OK;
}

/* What of a slice the page cache has to get. */
static uint64_t buffered_bytes(const load *l, const slice *s)
{
    range r[2];

    ranges_of(s, r);
    return (is_direct(l, &r[0]) ? 0 : r[0].bytes) + (is_direct(l, &r[1]) ? 0 : r[1].bytes);
}

/* The next slice, and from `ahead` on those that the disk should hear of; NULL when
 * there are no more, or need not be. */
static const slice *take(load *l, size_t *ahead, size_t *end)
{
    const slice *s = NULL;

    pthread_mutex_lock(&l->lock);
    if (!l->stop && l->next < l->n) {
        s = &l->slice[l->next++];
        *ahead = l->ahead;
        while (l->ahead < l->n && l->bytes_ahead < AHEAD)
            l->bytes_ahead += buffered_bytes(l, &l->slice[l->ahead++]);
        l->bytes_ahead -= buffered_bytes(l, s);
        *end = l->ahead;
    }
    pthread_mutex_unlock(&l->lock);
    return s;
}

static void ask_ahead(const load *l, size_t from, size_t end)
{
    range r[2];
    int i;

    for (; from < end; from++) {
        ranges_of(&l->slice[from], r);
        for (i = 0; i < 2; i++)
            if (r[i].bytes && !is_direct(l, &r[i]))
                waste_file_ahead(&l->tensors->file, r[i].off, r[i].bytes);
    }
}

/* The first slice to fail decides what is said, whichever thread is first. */
static void stop(load *l, size_t number, waste_status st, const waste_error *err)
{
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    if (number <= l->failed) {
        l->failed = number;
        l->status = st;
        l->error = *err;
    }
    pthread_mutex_unlock(&l->lock);
}

static void work(void *ctx, int thread)
{
    load *l = ctx;
    /* asked on the caller's thread alone */
    const waste_cancel *cancel = thread ? NULL : l->cancel;
    const slice *s;
    size_t ahead, end;

    while ((s = take(l, &ahead, &end)) != NULL) {
        waste_error e = {0};
        waste_status st = WASTE_OK;

        ask_ahead(l, ahead, end);
        if (waste_asked(cancel)) st = waste_fail(&e, WASTE_CANCELLED, "cancelled while opening");
        if (!st) st = read_slice(l, thread, s, &e);
        if (st) stop(l, (size_t)(s - l->slice), st, &e);
    }
}

static waste_status run_load(load *l, waste_error *err)
{
    if (pthread_mutex_init(&l->lock, NULL))
        return waste_fail(err, WASTE_NOMEM, "no lock could be made for loading %s",
                          l->tensors->path);
    waste_process_team(l->how.threads, work, l);
    pthread_mutex_destroy(&l->lock);
    return l->failed < l->n ? waste_fail(err, l->status, "%s", l->error.text) : WASTE_OK;
}

/* Opens the file once more, if some slice is worth it. Without memory for the buffers,
 * as where it cannot be read so, everything is buffered. */
static waste_status open_direct(load *l, waste_error *err)
{
    const waste_tensors *t = l->tensors;
    uint64_t size;
    int direct = 0;
    size_t i;
    range r[2];
    waste_status st = waste_file_size(&t->file, t->path, &size, err);

    if (st || l->how.buffered) return st;
    for (i = 0; i < l->n; i++) {
        ranges_of(&l->slice[i], r);
        if (r[0].bytes >= DIRECT) break;
    }
    if (i == l->n) return WASTE_OK;
    l->bounce = waste_mem_region((size_t)l->how.threads * BOUNCE);
    if (!l->bounce) return WASTE_OK;
    l->direct_end = size / BLOCK * BLOCK;
    st = waste_file_open_direct(&l->direct, t->path, DIRECT, 1, &direct, err);
    if (!st && !direct) waste_file_close(&l->direct);
    return st;
}

static waste_status load_wants(waste_tensors *t, want **list, const waste_tensors_how *how,
                               const waste_cancel *cancel, waste_error *err)
{
    const size_t n = list_wants(t, list), slices = cut(list, n, NULL);
    load l = {.tensors = t,
              .n = slices,
              .failed = slices,
              .cancel = cancel,
              .direct = {WASTE_FILE_CLOSED}};
    slice *all;
    size_t i;
    int overflow;
    waste_status st;

    t->block_bytes = carve(list, n, NULL, &overflow);
    if (t->block_bytes == 0) return WASTE_OK;
    all = waste_mem_array(slices, sizeof *all);
    if (!all) return waste_fail(err, WASTE_NOMEM, "out of memory loading %s", t->path);
    t->block = overflow ? NULL : waste_mem_region(t->block_bytes);
    if (!t->block) {
        waste_mem_free(all);
        return waste_fail(err, WASTE_NOMEM, "no memory for the %zu bytes of %s that stay resident",
                          t->block_bytes, t->path);
    }
    carve(list, n, t->block, &overflow);
    cut(list, n, all);
    l.slice = all;
    if (how) l.how = *how;
    if (l.how.threads < 1) l.how.threads = 1;
    st = open_direct(&l, err);
    if (!st) st = run_load(&l, err);
    waste_file_close(&l.direct);
    waste_mem_region_free(l.bounce, (size_t)l.how.threads * BOUNCE);
    for (i = 0; i < n; i++) list[i]->tensor.tiled = list[i]->tiled;
    waste_file_drop(&t->file, 0, 0);
    waste_mem_free(all);
    return st;
}

waste_status waste_tensors_load(waste_tensors *t, const waste_tensors_how *how,
                                const waste_cancel *cancel, waste_error *err)
{
    want **list;
    const slot *s;
    waste_status st;

    if (t->loaded) return waste_fail(err, WASTE_ARG, "%s is already loaded", t->path);
    list = waste_mem_array(t->n_wants + 1, sizeof *list);
    if (!list) return waste_fail(err, WASTE_NOMEM, "out of memory loading %s", t->path);
    t->loaded = 1;
    st = load_wants(t, list, how, cancel, err);
    for (s = t->slots; !st && s; s = s->next) *s->to = s->from->tensor.data;
    waste_mem_free(list);
    return st;
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
    range at[2];

    for (i = 0; i < r->n; i++) {
        char *to = r->buf + i * r->bytes;

        ranges_at(r->of, r->row[i], r->row[i] + 1, at);
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
    range at[2];
    size_t i;

    for (i = 0; i < r->n; i++) {
        if (r->got[i]) continue;
        ranges_at(r->of, r->row[i], r->row[i] + 1, at);
        waste_file_ahead(&t->file, at[0].off, at[0].bytes);
        if (at[1].bytes) waste_file_ahead(&t->file, at[1].off, at[1].bytes);
    }
    for (i = 0; i < r->n && !st; i++) {
        char *to = r->buf + i * r->bytes;

        if (r->got[i]) continue;
        ranges_at(r->of, r->row[i], r->row[i] + 1, at);
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
