/* Reading safetensors headers and ranges: see safetensors.h. Immutable after
 * opening. The header is written by somebody else: every number is bounded
 * before it is used, and after opening each tensor's range lies in the file. */
#include "convert/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/plat.h"

/* The reference implementation's own limit; K3's largest header is 0.7 MB. */
#define MAX_HEADER  100000000u
#define MAX_TENSORS (1u << 20)
#define MAX_NAME    255
#define MAX_DIM     ((int64_t)1 << 40)

struct waste_safetensors {
    char *path;
    uint64_t payload, payload_bytes; /* where the payload begins, and its length */
    waste_st_tensor *tensor;         /* ascending name */
    size_t n;
    char *names;
    int is_kept; /* only the header is left */
};

static const struct {
    const char *name;
    waste_dtype dtype;
    int bytes;
} dtypes[] = {
    {"F32", WASTE_DTYPE_F32, 4},         {"F16", WASTE_DTYPE_F16, 2},
    {"BF16", WASTE_DTYPE_BF16, 2},       {"U8", WASTE_DTYPE_U8, 1},
    {"I8", WASTE_DTYPE_OTHER, 1},        {"BOOL", WASTE_DTYPE_OTHER, 1},
    {"F8_E4M3", WASTE_DTYPE_F8_E4M3, 1}, {"F8_E5M2", WASTE_DTYPE_F8_E5M2, 1},
    {"F8_E8M0", WASTE_DTYPE_OTHER, 1},   {"I16", WASTE_DTYPE_OTHER, 2},
    {"U16", WASTE_DTYPE_OTHER, 2},       {"I32", WASTE_DTYPE_OTHER, 4},
    {"U32", WASTE_DTYPE_OTHER, 4},       {"I64", WASTE_DTYPE_OTHER, 8},
    {"U64", WASTE_DTYPE_OTHER, 8},       {"F64", WASTE_DTYPE_OTHER, 8},
};

static waste_status read_dtype(waste_st_tensor *t, const waste_json *j, int *bytes,
                               const char *path, waste_error *err)
{
    const char *s = waste_json_text(waste_json_get(j, "dtype"), NULL);
    size_t i;

    if (!s) return waste_fail(err, WASTE_FORMAT, "%s: tensor %s has no dtype", path, t->name);
    snprintf(t->dtype_name, sizeof t->dtype_name, "%s", s);
    t->dtype = WASTE_DTYPE_OTHER;
    *bytes = 0; /* a type this file does not know: its size cannot be checked */
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, s) == 0) {
            t->dtype = dtypes[i].dtype;
            *bytes = dtypes[i].bytes;
        }
    return WASTE_OK;
}

static waste_status read_shape(waste_st_tensor *t, const waste_json *j, int64_t *n,
                               const char *path, waste_error *err)
{
    const waste_json *shape = waste_json_get(j, "shape");
    size_t dims = waste_json_count(shape), i;

    if (waste_json_kind_of(shape) != WASTE_JSON_ARRAY || dims > WASTE_SAFETENSORS_DIMS)
        return waste_fail(err, WASTE_FORMAT, "%s: shape of tensor %s is not a list of at most %d",
                          path, t->name, WASTE_SAFETENSORS_DIMS);
    t->dims = (int)dims;
    *n = 1;
    for (i = 0; i < dims; i++) {
        int64_t d;
        if (waste_json_int(waste_json_at(shape, i), &d) || d < 0 || d > MAX_DIM)
            return waste_fail(err, WASTE_FORMAT, "%s: dimension %zu of tensor %s is out of range",
                              path, i, t->name);
        if (d && *n > INT64_MAX / 8 / d)
            return waste_fail(err, WASTE_FORMAT, "%s: shape of tensor %s is too large", path,
                              t->name);
        t->shape[i] = d;
        *n *= d;
    }
    return WASTE_OK;
}

static waste_status read_tensor(waste_safetensors *s, waste_st_tensor *t, const waste_json *j,
                                waste_error *err)
{
    const waste_json *range = waste_json_get(j, "data_offsets");
    int64_t n = 0, begin, end;
    int bytes = 0;
    waste_status st;

    st = read_dtype(t, j, &bytes, s->path, err);
    if (!st) st = read_shape(t, j, &n, s->path, err);
    if (st) return st;
    if (waste_json_kind_of(range) != WASTE_JSON_ARRAY || waste_json_count(range) != 2 ||
        waste_json_int(waste_json_at(range, 0), &begin) ||
        waste_json_int(waste_json_at(range, 1), &end))
        return waste_fail(err, WASTE_FORMAT, "%s: data_offsets of tensor %s is not two integers",
                          s->path, t->name);
    if (begin < 0 || begin > end || (uint64_t)end > s->payload_bytes)
        return waste_fail(
            err, WASTE_FORMAT, "%s: tensor %s has bytes %lld to %lld of a payload of %llu", s->path,
            t->name, (long long)begin, (long long)end, (unsigned long long)s->payload_bytes);
    if (bytes && end - begin != n * bytes)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: tensor %s has %lld bytes, its dtype %s and shape need %lld", s->path,
                          t->name, (long long)(end - begin), t->dtype_name, (long long)(n * bytes));
    t->off = s->payload + (uint64_t)begin;
    t->bytes = (uint64_t)(end - begin);
    t->file = s;
    return WASTE_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const waste_st_tensor *)a)->name, ((const waste_st_tensor *)b)->name);
}

static int name_of(const void *name, const void *tensor)
{
    return strcmp(name, ((const waste_st_tensor *)tensor)->name);
}

static int by_offset(const void *a, const void *b)
{
    const waste_st_tensor *x = *(waste_st_tensor *const *)a, *y = *(waste_st_tensor *const *)b;

    if (x->off != y->off) return x->off < y->off ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static waste_status check_overlap(const waste_safetensors *s, waste_error *err)
{
    waste_st_tensor **order;
    waste_status st = WASTE_OK;
    size_t i;

    if (s->n < 2) return WASTE_OK;
    order = waste_mem_array(s->n, sizeof *order);
    if (!order) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", s->path);
    for (i = 0; i < s->n; i++) order[i] = s->tensor + i;
    qsort(order, s->n, sizeof *order, by_offset);
    for (i = 1; i < s->n && !st; i++)
        if (order[i]->off < order[i - 1]->off + order[i - 1]->bytes)
            st = waste_fail(err, WASTE_FORMAT, "%s: tensors %s and %s overlap", s->path,
                            order[i - 1]->name, order[i]->name);
    waste_mem_free(order);
    return st;
}

static int is_metadata(const char *name)
{
    return strcmp(name, "__metadata__") == 0;
}

/* Counts, so that one block holds all names. */
static waste_status measure(waste_safetensors *s, const waste_json *head, waste_error *err)
{
    waste_json_iter it = {0};
    size_t names = 0, n = 0;

    while (waste_json_each(&it, head)) {
        size_t k = strlen(it.key);
        if (is_metadata(it.key)) continue;
        if (k == 0 || k > MAX_NAME)
            return waste_fail(err, WASTE_FORMAT, "%s: a tensor's name has %zu bytes, at most %d",
                              s->path, k, MAX_NAME);
        if (++n > MAX_TENSORS)
            return waste_fail(err, WASTE_FORMAT, "%s: more than %u tensors", s->path, MAX_TENSORS);
        names += k + 1;
    }
    if (n == 0) return WASTE_OK;
    s->names = waste_mem_alloc(names);
    s->tensor = waste_mem_array(n, sizeof *s->tensor);
    if (!s->names || !s->tensor)
        return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", s->path);
    return WASTE_OK;
}

static waste_status read_header(waste_safetensors *s, const waste_json *head, waste_error *err)
{
    waste_json_iter it = {0};
    waste_status st;
    char *at;

    if (waste_json_kind_of(head) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s: the header is not an object", s->path);
    st = measure(s, head, err);
    at = s->names;
    while (!st && waste_json_each(&it, head)) {
        waste_st_tensor *t = s->tensor + s->n;
        size_t k = strlen(it.key) + 1;
        if (is_metadata(it.key)) continue;
        memcpy(at, it.key, k);
        t->name = at;
        at += k;
        s->n++;
        st = read_tensor(s, t, it.value, err);
    }
    if (st) return st;
    if (s->n) qsort(s->tensor, s->n, sizeof *s->tensor, by_name);
    return check_overlap(s, err);
}

static uint64_t u64_of(const unsigned char *p)
{
    uint64_t n = 0;
    int i;

    for (i = 7; i >= 0; i--) n = n << 8 | p[i];
    return n;
}

/* The header's text from `path`, where it begins `skip` bytes in; `size` is that of
 * the whole shard. */
static waste_status load_header(waste_safetensors *s, const waste_file *f, const char *path,
                                uint64_t skip, uint64_t size, char **text, size_t *bytes,
                                waste_error *err)
{
    unsigned char len[8];
    uint64_t n = 0;
    waste_status st = WASTE_OK;

    if (size < sizeof len)
        return waste_fail(err, WASTE_FORMAT, "%s has %llu bytes, too few for a safetensors file",
                          path, (unsigned long long)size);
    st = waste_file_read(f, path, len, sizeof len, skip, err);
    if (st) return st;
    n = u64_of(len);
    if (n > size - sizeof len || n > MAX_HEADER)
        return waste_fail(err, WASTE_FORMAT, "%s: a header of %llu bytes in a file of %llu", path,
                          (unsigned long long)n, (unsigned long long)size);
    if (!(*text = waste_mem_alloc((size_t)n + 1)))
        return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    if (n) st = waste_file_read(f, path, *text, (size_t)n, skip + sizeof len, err);
    *bytes = (size_t)n;
    s->payload = sizeof len + n;
    s->payload_bytes = size - s->payload;
    return st;
}

static waste_status load_file(waste_safetensors *s, char **text, size_t *bytes, waste_error *err)
{
    waste_file f;
    uint64_t size = 0;
    waste_status st = waste_file_open(&f, s->path, err);

    if (st) return st;
    st = waste_file_size(&f, s->path, &size, err);
    if (!st) st = load_header(s, &f, s->path, 0, size, text, bytes, err);
    waste_file_close(&f);
    return st;
}

/* A kept header: u64 size and u64 time of the shard, then its beginning. */
#define KEPT 16

static waste_status load_kept(waste_safetensors *s, const char *kept, uint64_t *size,
                              uint64_t *mtime, char **text, size_t *bytes, waste_error *err)
{
    unsigned char head[KEPT];
    waste_file f;
    waste_status st = waste_file_open(&f, kept, err);

    if (st) return st;
    st = waste_file_read(&f, kept, head, sizeof head, 0, err);
    if (!st) {
        *size = u64_of(head);
        *mtime = u64_of(head + 8);
        st = load_header(s, &f, kept, KEPT, *size, text, bytes, err);
    }
    waste_file_close(&f);
    s->is_kept = 1;
    return st;
}

static waste_status new_file(waste_safetensors **out, const char *path, waste_error *err)
{
    waste_safetensors *s = waste_mem_zero(sizeof *s);

    *out = s;
    if (s) s->path = waste_mem_text(path, strlen(path));
    return s && s->path ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
}

/* Takes the text and, when something failed, the object. */
static waste_status finish(waste_safetensors **out, waste_safetensors *s, char *text, size_t bytes,
                           waste_status st, waste_error *err)
{
    waste_json *head = NULL;

    if (!st) st = waste_json_parse(&head, text, bytes, 1, s->path, WASTE_FORMAT, err);
    waste_mem_free(text);
    if (!st) st = read_header(s, head, err);
    waste_json_free(head);
    if (st)
        waste_safetensors_close(s);
    else
        *out = s;
    return st;
}

waste_status waste_safetensors_open(waste_safetensors **out, const char *path, waste_error *err)
{
    waste_safetensors *s;
    char *text = NULL;
    size_t bytes = 0;
    waste_status st = new_file(&s, path, err);

    *out = NULL;
    if (!st) st = load_file(s, &text, &bytes, err);
    return finish(out, s, text, bytes, st, err);
}

waste_status waste_safetensors_open_kept(waste_safetensors **out, const char *kept,
                                         const char *path, uint64_t *size, uint64_t *mtime,
                                         waste_error *err)
{
    waste_safetensors *s;
    char *text = NULL;
    size_t bytes = 0;
    waste_status st = new_file(&s, path, err);

    *out = NULL;
    if (!st) st = load_kept(s, kept, size, mtime, &text, &bytes, err);
    return finish(out, s, text, bytes, st, err);
}

waste_status waste_safetensors_keep(const waste_safetensors *s, const char *to, uint64_t bytes,
                                    uint64_t mtime, waste_error *err)
{
    const size_t n = (size_t)s->payload; /* 8 + header, bounded when it was read */
    char *all = waste_mem_alloc(KEPT + n);
    waste_file f;
    waste_status st;
    int i;

    if (!all)
        return waste_fail(err, WASTE_NOMEM, "out of memory keeping the header of %s", s->path);
    for (i = 0; i < 8; i++) {
        all[i] = (char)(bytes >> 8 * i);
        all[8 + i] = (char)(mtime >> 8 * i);
    }
    st = waste_file_open(&f, s->path, err);
    if (!st) {
        st = waste_file_read(&f, s->path, all + KEPT, n, 0, err);
        waste_file_close(&f);
    }
    if (!st) st = waste_file_publish(to, all, KEPT + n, err);
    waste_mem_free(all);
    return st;
}

void waste_safetensors_close(waste_safetensors *s)
{
    if (!s) return;
    waste_mem_free(s->tensor);
    waste_mem_free(s->names);
    waste_mem_free(s->path);
    waste_mem_free(s);
}

const char *waste_safetensors_path(const waste_safetensors *s)
{
    return s->path;
}

size_t waste_safetensors_count(const waste_safetensors *s)
{
    return s->n;
}

const waste_st_tensor *waste_safetensors_at(const waste_safetensors *s, size_t i)
{
    return s->tensor + i;
}

const waste_st_tensor *waste_safetensors_find(const waste_safetensors *s, const char *name)
{
    return s->n ? bsearch(name, s->tensor, s->n, sizeof *s->tensor, name_of) : NULL;
}

waste_status waste_safetensors_read(const waste_st_tensor *t, uint64_t first, void *to, size_t n,
                                    waste_error *err)
{
    waste_file f;
    waste_status st;

    if (first > t->bytes || n > t->bytes - first)
        return waste_fail(err, WASTE_ARG, "%s: %zu bytes at %llu are not inside tensor %s",
                          t->file->path, n, (unsigned long long)first, t->name);
    if (t->file->is_kept)
        return waste_fail(err, WASTE_IO, "%s was reclaimed: tensor %s cannot be read again",
                          t->file->path, t->name);
    st = waste_file_open(&f, t->file->path, err);
    if (st) return st;
    st = waste_file_read(&f, t->file->path, to, n, t->off + first, err);
    waste_file_close(&f);
    return st;
}
