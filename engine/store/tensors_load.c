/* Loading the trunk's resident tensors: see tensors.h (waste_tensors_load). They are one
 * block, laid out in the order of the file so that loading reads forward; the caller's
 * thread and its helpers read and arrange. */
#include "store/tensors_own.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/process.h"

#define SLICE  ((int64_t)2 << 20)    /* bytes of rows that are read together, about */
#define TILE   64                    /* rows that stay together */
#define AHEAD  ((uint64_t)32 << 20)  /* asked of the disk before it is needed */
#define DIRECT ((uint64_t)256 << 10) /* bytes that are worth a read past the page cache */
#define BLOCK  ((uint64_t)4096)      /* what such reads are multiples of */
#define BOUNCE ((uint64_t)SLICE + 2 * BLOCK)

/* Rows lo..hi-1 of a tensor: what one thread reads and arranges at a time. */
typedef struct slice {
    waste_want *of;
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
    const waste_want *x = *(waste_want *const *)a, *y = *(waste_want *const *)b;

    return (x->entry->off > y->entry->off) - (x->entry->off < y->entry->off);
}

/* The resident ones in file order; returns how many. */
static size_t list_wants(const waste_tensors *t, waste_want **list)
{
    size_t n = 0;
    waste_want *w;

    for (w = t->wants; w; w = w->next)
        if (w->resident) list[n++] = w;
    qsort(list, n, sizeof *list, by_offset);
    return n;
}

/* Where their bytes go. Base NULL only measures. */
static size_t carve(waste_want **list, size_t n, char *base, int *overflow)
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
static size_t cut(waste_want *const *list, size_t n, slice *to)
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

static void ranges_of(const slice *s, waste_range r[2])
{
    waste_ranges_at(&s->of->tensor, s->lo, s->hi, r);
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

static int is_direct(const load *l, const waste_range *r)
{
    return l->direct.fd != WASTE_FILE_CLOSED && r->bytes >= DIRECT &&
           r->off + r->bytes <= l->direct_end;
}

/* The blocks around it, a buffer at a time. */
static waste_status read_direct(const load *l, int thread, const waste_range *r, char *to,
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

static waste_status read_range(const load *l, int thread, const waste_range *r, const void *data,
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
    waste_range r[2];
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
    waste_range r[2];

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
    waste_range r[2];
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
    waste_range r[2];
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

static waste_status load_wants(waste_tensors *t, waste_want **list, const waste_tensors_how *how,
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
    waste_want **list;
    const waste_vector_at *s;
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
