/* Reads and bounds manifest.json: see manifest.h. Runs on the thread that opens
 * the container; the result never changes afterwards.
 *
 * Duplicate keys of an object: the last one wins, as the JSON library has it
 * (the format lets the first win; nobody writes any). Duplicate tensor names:
 * the first wins. */
#include "store/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "kernels/quant.h"

#define NAME_MAX_BYTES   127
#define FILE_MAX_BYTES   63
#define PREFIX_MAX_BYTES 63
#define DIM_MAX          (1 << 26)

/* Where in the manifest a message speaks of: the path and what fits behind it. */
#define PLACE_BYTES (WASTE_PATH_MAX + 256)

static const char *at(char *place, const waste_manifest *m, const char *what, const char *name)
{
    snprintf(place, PLACE_BYTES, "%s: %s%.*s", m->path, what, NAME_MAX_BYTES + 1, name);
    return place;
}

/* ---- strings ---------------------------------------------------------- */

/* A text of 1..max bytes without NUL; NULL when it is anything else. */
static const char *short_text(const waste_json *j, size_t max)
{
    size_t n;
    const char *s = waste_json_text(j, &n);

    return s && n > 0 && n <= max && strlen(s) == n ? s : NULL;
}

static int is_plain_file_name(const char *s)
{
    return !strpbrk(s, "/\\") && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

static int is_absent(const waste_json *j)
{
    waste_json_kind k = waste_json_kind_of(j);

    return k == WASTE_JSON_ABSENT || k == WASTE_JSON_NULL;
}

/* An integer that has to be there. */
static waste_status need_int(const waste_json *object, const char *key, int64_t lo, int64_t hi,
                             int64_t *out, const char *where, waste_error *err)
{
    *out = lo;
    if (is_absent(waste_json_get(object, key)))
        return waste_fail(err, WASTE_FORMAT, "%s: %s is missing", where, key);
    return waste_json_int_in(object, key, lo, lo, hi, out, where, err);
}

/* Member `key` when it is of `kind`; *out NULL when absent or null. */
static waste_status part_of(const waste_manifest *m, const char *key, waste_json_kind kind,
                            const waste_json **out, waste_error *err)
{
    const waste_json *j = waste_json_get(m->json, key);

    *out = is_absent(j) ? NULL : j;
    if (!*out || waste_json_kind_of(j) == kind) return WASTE_OK;
    return waste_fail(err, WASTE_FORMAT, "%s: %s is %s, wanted %s", m->path, key,
                      waste_json_kind_name(waste_json_kind_of(j)), waste_json_kind_name(kind));
}

/* ---- head ------------------------------------------------------------- */

static waste_status check_version(const waste_manifest *m, waste_error *err)
{
    const waste_json *j = waste_json_get(m->json, "format_version");
    double v;

    if (!j)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: no format_version; this reader supports version 0", m->path);
    if (waste_json_number(j, &v))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: format_version is %s; this reader supports version 0", m->path,
                          waste_json_kind_name(waste_json_kind_of(j)));
    if (v != 0)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: format_version is %.17g; this reader supports version 0", m->path,
                          v);
    return WASTE_OK;
}

static waste_status read_prefix(waste_manifest *m, waste_error *err)
{
    const waste_json *j = waste_json_get(m->json, "tensor_prefix");
    size_t n;
    const char *s;

    m->prefix = "";
    if (is_absent(j)) return WASTE_OK;
    s = waste_json_text(j, &n);
    if (!s)
        return waste_fail(err, WASTE_FORMAT, "%s: tensor_prefix is %s, wanted a string", m->path,
                          waste_json_kind_name(waste_json_kind_of(j)));
    if (n > PREFIX_MAX_BYTES || strlen(s) != n)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: tensor_prefix has %zu bytes, wanted at most %d and no NUL", m->path,
                          n, PREFIX_MAX_BYTES);
    m->prefix = s;
    return WASTE_OK;
}

/* The configuration may be flattened already (the rest under _outer) or still
 * sit inside a multimodal one. */
static waste_status find_config(waste_manifest *m, waste_error *err)
{
    const waste_json *config, *text;
    waste_status st = part_of(m, "config", WASTE_JSON_OBJECT, &config, err);

    if (st) return st;
    if (!config) return waste_fail(err, WASTE_FORMAT, "%s: no config object", m->path);
    m->config = config;
    m->outer = waste_json_get(config, "_outer");
    text = waste_json_get(config, "text_config");
    if (is_absent(text)) return WASTE_OK;
    if (waste_json_kind_of(text) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s: config.text_config is %s, wanted an object",
                          m->path, waste_json_kind_name(waste_json_kind_of(text)));
    m->config = text;
    if (!m->outer) m->outer = config;
    if (!*m->prefix) m->prefix = "language_model.";
    return WASTE_OK;
}

/* The inner name is the same on both Kimi models, so the outer one comes first. */
static const char *reported_arch(const waste_manifest *m)
{
    const char *s;

    s = waste_json_text(waste_json_at(waste_json_get(m->outer, "architectures"), 0), NULL);
    if (!s) s = waste_json_text(waste_json_at(waste_json_get(m->config, "architectures"), 0), NULL);
    if (!s) return "unknown";
    if (strstr(s, "KimiK3")) return "kimi-k3";
    if (strstr(s, "KimiLinear")) return "kimi-linear";
    return s;
}

static waste_status read_quant(waste_manifest *m, waste_error *err)
{
    const waste_json *q;
    int64_t stages, vec_dim, entries, block, bits;
    char place[PLACE_BYTES];
    const char *where = at(place, m, "expert_quant", "");
    waste_status st = part_of(m, "expert_quant", WASTE_JSON_OBJECT, &q, err);

    if (!st) st = waste_json_int_in(q, "stages", 3, 1, 8, &stages, where, err);
    if (!st) st = waste_json_int_in(q, "vec_dim", 8, 1, 64, &vec_dim, where, err);
    if (!st) st = waste_json_int_in(q, "entries", 256, 1, 256, &entries, where, err);
    if (!st) st = waste_json_int_in(q, "index_block", 0, 0, WASTE_INDEX_BLOCK, &block, where, err);
    if (!st) st = waste_json_int_in(q, "index_bits", 8, 6, 8, &bits, where, err);
    if (st) return st;
    if (block != 0 && block != WASTE_INDEX_BLOCK)
        return waste_fail(err, WASTE_FORMAT, "%s: index_block is %lld, wanted 0 or %u", where,
                          (long long)block, WASTE_INDEX_BLOCK);
    if (bits == 7)
        return waste_fail(err, WASTE_FORMAT, "%s: index_bits is 7, wanted 8 or 6", where);
    if (bits == 6 && (stages != 4 || entries != 64 || vec_dim != 8))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: index_bits 6 goes with stages 4, entries 64 and vec_dim 8 only; "
                          "found stages %lld, entries %lld, vec_dim %lld",
                          where, (long long)stages, (long long)entries, (long long)vec_dim);
    m->quant.stages = (int)stages;
    m->quant.vec_dim = (int)vec_dim;
    m->quant.entries = (int)entries;
    m->quant.index_block = (int)block;
    m->quant.index_bits = (int)bits;
    m->quant.vector_bytes = bits == 6 ? 3 : (int)stages;
    return WASTE_OK;
}

/* ---- files beside it -------------------------------------------------- */

static waste_status size_of(const waste_manifest *m, const char *name, uint64_t *bytes,
                            waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_file f;
    waste_status st = waste_path_join(path, sizeof path, m->dir, name, err);

    if (!st) st = waste_file_open(&f, path, err);
    if (st) return st;
    st = waste_file_size(&f, path, bytes, err);
    waste_file_close(&f);
    return st;
}

static waste_status measure_files(waste_manifest *m, waste_error *err)
{
    uint64_t bytes;
    uint64_t record = WASTE_CODEBOOK_HEADER + 2 * (uint64_t)m->quant.entries * m->quant.vec_dim;
    waste_status st = size_of(m, "trunk.bin", &m->trunk_file_bytes, err);

    if (!st) st = size_of(m, "codebooks.bin", &bytes, err);
    if (st) return st;
    if (bytes % record)
        return waste_fail(err, WASTE_FORMAT,
                          "%s/codebooks.bin has %llu bytes, no multiple of the %llu of a codebook "
                          "(expert_quant: entries %d, vec_dim %d)",
                          m->dir, (unsigned long long)bytes, (unsigned long long)record,
                          m->quant.entries, m->quant.vec_dim);
    m->n_codebooks = bytes / record;
    return WASTE_OK;
}

/* ---- layers ----------------------------------------------------------- */

static waste_status read_bank(waste_bank_entry *b, const waste_manifest *m, const char *key,
                              const waste_json *j, waste_error *err)
{
    int64_t experts, bytes, base;
    char place[PLACE_BYTES];
    const char *where = at(place, m, "layers: layer ", key);
    const char *file = short_text(waste_json_get(j, "file"), FILE_MAX_BYTES);
    waste_status st;

    if (waste_json_kind_of(j) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s is %s, wanted an object", where,
                          waste_json_kind_name(waste_json_kind_of(j)));
    if (!file || !is_plain_file_name(file))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: file is %.80s, wanted a plain file name of 1 to %d bytes", where,
                          file ? file : "not usable", FILE_MAX_BYTES);
    st = need_int(j, "experts", 1, UINT16_MAX, &experts, where, err);
    if (!st) st = need_int(j, "bytes", 1, INT64_MAX, &bytes, where, err);
    if (!st) st = need_int(j, "codebook_base", 0, UINT16_MAX, &base, where, err);
    if (st) return st;
    if (bytes % experts)
        return waste_fail(err, WASTE_FORMAT, "%s: bytes is %lld, not divisible by its %lld experts",
                          where, (long long)bytes, (long long)experts);
    b->file = file;
    b->experts = (int)experts;
    b->record_bytes = (uint64_t)(bytes / experts);
    b->codebook_base = (int)base;
    return WASTE_OK;
}

static waste_status read_banks(waste_manifest *m, waste_error *err)
{
    const waste_json *layers;
    waste_json_iter it = {0};
    waste_status st = part_of(m, "layers", WASTE_JSON_OBJECT, &layers, err);

    if (st || !layers) return st;
    while (!st && waste_json_each(&it, layers)) {
        char *end;
        long layer = strtol(it.key, &end, 10);
        char canonical[24];

        snprintf(canonical, sizeof canonical, "%ld", layer);
        if (strcmp(canonical, it.key) != 0 || layer < 0 || layer >= WASTE_MAX_LAYERS)
            continue; /* names no layer that a model can have */
        st = read_bank(&m->bank[layer], m, it.key, it.value, err);
    }
    return st;
}

/* ---- trunk ------------------------------------------------------------ */

static waste_status read_shape(waste_trunk_entry *t, const waste_json *j, const char *where,
                               waste_error *err)
{
    size_t i, n = waste_json_count(j);

    if (waste_json_kind_of(j) != WASTE_JSON_ARRAY)
        return waste_fail(err, WASTE_FORMAT, "%s: shape is %s, wanted an array", where,
                          waste_json_kind_name(waste_json_kind_of(j)));
    if (n < 1 || n > 4)
        return waste_fail(err, WASTE_FORMAT, "%s: shape has %zu dimensions, wanted 1 to 4", where,
                          n);
    t->dims = (int)n;
    for (i = 0; i < n; i++)
        if (waste_json_int(waste_json_at(j, i), &t->shape[i]) || t->shape[i] < 1 ||
            t->shape[i] > DIM_MAX)
            return waste_fail(err, WASTE_FORMAT,
                              "%s: dimension %zu of shape is no integer from 1 to %d", where, i + 1,
                              DIM_MAX);
    t->cols = t->shape[n - 1];
    return WASTE_OK;
}

static int is_trunk_fmt(int64_t fmt)
{
    return fmt == WASTE_FMT_F32 || fmt == WASTE_FMT_Q8G || fmt == WASTE_FMT_Q4G ||
           fmt == WASTE_FMT_Q3G;
}

/* Sizes from shape and format, never from the file's word. A row takes at least
 * one byte, so rows are bounded by the file before they are multiplied. */
static waste_status size_tensor(waste_trunk_entry *t, uint64_t file, const char *where,
                                waste_error *err)
{
    uint64_t rows = 1, row_bytes, scale_row;
    int i;

    row_bytes = (uint64_t)waste_quant_row_bytes(t->fmt, t->cols, t->group);
    scale_row = t->group ? 2 * (uint64_t)((t->cols + t->group - 1) / t->group) : 0;
    for (i = 0; i < t->dims - 1; i++) {
        if ((uint64_t)t->shape[i] > file / rows) break;
        rows *= (uint64_t)t->shape[i];
    }
    if (i < t->dims - 1 || rows > file / row_bytes || t->off > file - rows * row_bytes)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: the data at offset %llu does not fit into trunk.bin (%llu bytes)",
                          where, (unsigned long long)t->off, (unsigned long long)file);
    if (scale_row && (rows > file / scale_row || t->scale_off > file - rows * scale_row))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: the scales at offset %llu do not fit into trunk.bin (%llu bytes)",
                          where, (unsigned long long)t->scale_off, (unsigned long long)file);
    t->rows = (int64_t)rows;
    t->payload_bytes = rows * row_bytes;
    t->scale_bytes = rows * scale_row;
    return WASTE_OK;
}

static waste_status read_tensor(waste_trunk_entry *t, const waste_manifest *m, size_t i,
                                const waste_json *j, waste_error *err)
{
    int64_t fmt, off, scale_off, stated;
    uint64_t bytes;
    char number[32];
    char place[PLACE_BYTES];
    const char *where;
    waste_status st;

    t->name = short_text(waste_json_get(j, "name"), NAME_MAX_BYTES);
    if (!t->name) {
        snprintf(number, sizeof number, "%zu", i);
        return waste_fail(err, WASTE_FORMAT, "%s: name is no string of 1 to %d bytes",
                          at(place, m, "trunk entry ", number), NAME_MAX_BYTES);
    }
    where = at(place, m, "trunk tensor ", t->name);
    st = waste_json_int_in(j, "fmt", 0, 0, UINT8_MAX, &fmt, where, err);
    if (!st && !is_trunk_fmt(fmt))
        st = waste_fail(err, WASTE_FORMAT,
                        "%s: fmt is %lld, wanted 0 (F32), 2 (Q8G), 3 (Q4G) or 7 (Q3G)", where,
                        (long long)fmt);
    if (!st) st = waste_json_int_in(j, "off", 0, 0, INT64_MAX, &off, where, err);
    if (!st) st = waste_json_int_in(j, "scale_off", 0, 0, INT64_MAX, &scale_off, where, err);
    if (!st) st = waste_json_int_in(j, "group", 128, 1, DIM_MAX, &t->group, where, err);
    if (!st) st = read_shape(t, waste_json_get(j, "shape"), where, err);
    if (st) return st;

    t->fmt = (waste_fmt)fmt;
    t->off = (uint64_t)off;
    t->scale_off = (uint64_t)scale_off;
    if (t->fmt == WASTE_FMT_F32) t->group = 0;
    if (t->fmt == WASTE_FMT_Q4G && t->group % 2)
        return waste_fail(err, WASTE_FORMAT,
                          "%s: group is %lld, and two weights of Q4G share a byte", where,
                          (long long)t->group);
    st = size_tensor(t, m->trunk_file_bytes, where, err);
    if (st) return st;
    bytes = t->payload_bytes + t->scale_bytes;
    if (!is_absent(waste_json_get(j, "bytes")) &&
        (waste_json_int(waste_json_get(j, "bytes"), &stated) || stated < 0 ||
         (uint64_t)stated != bytes))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: bytes is not the %llu that fmt, shape and group give", where,
                          (unsigned long long)bytes);
    return WASTE_OK;
}

/* By name; entries of one name in the order they were written, which is the
 * order of their addresses. */
static int by_name(const void *a, const void *b)
{
    const waste_trunk_entry *x = *(const waste_trunk_entry *const *)a;
    const waste_trunk_entry *y = *(const waste_trunk_entry *const *)b;
    int c = strcmp(x->name, y->name);

    return c ? c : (x > y) - (x < y);
}

/* Sorts `all` into m->trunk, keeping the first of each name. */
static waste_status index_trunk(waste_manifest *m, const waste_trunk_entry *all, size_t n,
                                waste_error *err)
{
    const waste_trunk_entry **order = waste_mem_array(n, sizeof *order);
    size_t i, kept = 0;

    if (!order) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", m->path);
    for (i = 0; i < n; i++) order[i] = &all[i];
    qsort(order, n, sizeof *order, by_name);
    for (i = 0; i < n; i++)
        if (kept == 0 || strcmp(order[kept - 1]->name, order[i]->name) != 0)
            order[kept++] = order[i];
    m->trunk = waste_mem_array(kept, sizeof *m->trunk);
    for (i = 0; m->trunk && i < kept; i++) m->trunk[i] = *order[i];
    m->n_trunk = m->trunk ? kept : 0;
    waste_mem_free(order);
    return m->trunk ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory reading %s", m->path);
}

static waste_status read_trunk(waste_manifest *m, waste_error *err)
{
    const waste_json *trunk;
    waste_trunk_entry *all;
    size_t i, n;
    waste_status st = part_of(m, "trunk", WASTE_JSON_ARRAY, &trunk, err);

    n = waste_json_count(trunk);
    if (!st && n == 0) st = waste_fail(err, WASTE_FORMAT, "%s: trunk lists no tensor", m->path);
    if (st) return st;
    all = waste_mem_array(n, sizeof *all);
    if (!all) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", m->path);
    for (i = 0; i < n && !st; i++) st = read_tensor(&all[i], m, i, waste_json_at(trunk, i), err);
    if (!st) st = index_trunk(m, all, n, err);
    waste_mem_free(all);
    return st;
}

/* ---- open, close ------------------------------------------------------ */

static waste_status name_paths(waste_manifest *m, const char *dir, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    size_t n = strlen(dir);
    waste_status st;

    while (n > waste_path_root(dir) && strchr(WASTE_PATH_SEPARATORS, dir[n - 1])) n--;
    m->dir = waste_mem_text(dir, n);
    if (!m->dir) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", dir);
    if (!waste_path_exists(m->dir))
        return waste_fail(err, WASTE_IO, "no container at %s: it does not exist", dir);
    if (!waste_path_is_dir(m->dir))
        return waste_fail(err, WASTE_IO, "no container at %s: it is not a directory", dir);
    st = waste_path_join(path, sizeof path, m->dir, "manifest.json", err);
    if (st) return st;
    if (!waste_path_exists(path))
        return waste_fail(err, WASTE_IO, "no container at %s: it has no manifest.json", dir);
    m->path = waste_mem_text(path, strlen(path));
    if (!m->path) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", dir);
    return WASTE_OK;
}

static waste_status read_all(waste_manifest *m, waste_error *err)
{
    waste_status st = waste_json_load(&m->json, m->path, err);

    if (st) return st;
    if (waste_json_kind_of(m->json) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s holds %s, wanted an object", m->path,
                          waste_json_kind_name(waste_json_kind_of(m->json)));
    st = check_version(m, err);
    if (!st) st = read_prefix(m, err);
    if (!st) st = find_config(m, err);
    if (!st) st = read_quant(m, err);
    if (!st) st = measure_files(m, err);
    if (!st) st = read_banks(m, err);
    if (!st) st = read_trunk(m, err);
    if (!st) m->arch = reported_arch(m);
    return st;
}

waste_status waste_manifest_open(waste_manifest **out, const char *dir, waste_error *err)
{
    waste_manifest *m;
    waste_status st;

    *out = NULL;
    m = waste_mem_zero(sizeof *m);
    if (!m) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", dir);
    st = name_paths(m, dir, err);
    if (!st) st = read_all(m, err);
    if (st) {
        waste_manifest_close(m);
        return st;
    }
    *out = m;
    return WASTE_OK;
}

void waste_manifest_close(waste_manifest *m)
{
    if (!m) return;
    waste_mem_free(m->trunk);
    waste_json_free(m->json);
    waste_mem_free(m->path);
    waste_mem_free(m->dir);
    waste_mem_free(m);
}

static int to_name(const void *key, const void *entry)
{
    return strcmp(key, ((const waste_trunk_entry *)entry)->name);
}

const waste_trunk_entry *waste_manifest_tensor(const waste_manifest *m, const char *name)
{
    if (m->n_trunk == 0) return NULL;
    return bsearch(name, m->trunk, m->n_trunk, sizeof *m->trunk, to_name);
}
