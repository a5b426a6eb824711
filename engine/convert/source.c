/* A checkpoint directory: see source.h. Owns the shards' headers. After opening, every
 * tensor that can be asked for lies inside its shard. */
#include "convert/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "convert/disk.h"

#define INDEX       "model.safetensors.index.json"
#define SINGLE      "model.safetensors"
#define STATE       ".download-state"
#define MAX_SHARDS  10000
#define MAX_INDEXED ((size_t)1 << 24)

typedef struct shard {
    char *name;
    waste_safetensors *file; /* NULL: not there, or not yet opened */
    uint64_t bytes, mtime;
    int gone;
} shard;

struct waste_source {
    char *dir;
    waste_json *config;
    shard *shard; /* ascending name */
    size_t n_shards;
    const waste_st_tensor **tensor; /* ascending name */
    size_t n;
    int partial;
    const char *headers; /* borrowed while opening */
    size_t missing;
    waste_error first_missing;
    waste_weight_reader reader;
};

/* ---- opening -------------------------------------------------------------- */

static waste_status no_memory(const waste_source *s, waste_error *err)
{
    return waste_fail(err, WASTE_NOMEM, "out of memory reading the checkpoint %s", s->dir);
}

static waste_status load_config(waste_source *s, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_status st = waste_path_join(path, sizeof path, s->dir, "config.json", err);

    if (!st && !waste_path_exists(path))
        st = waste_fail(err, WASTE_IO, "%s is no checkpoint: it has no config.json", s->dir);
    if (!st) st = waste_json_load(&s->config, path, err);
    if (!st && waste_json_kind_of(s->config) != WASTE_JSON_OBJECT)
        st = waste_fail(err, WASTE_FORMAT, "%s is not a JSON object", path);
    return st ? st : waste_weight_reader_init(&s->reader, s->config, path, err);
}

static int name_of_shard(const void *name, const void *s)
{
    return strcmp(name, ((const shard *)s)->name);
}

static int name_of_tensor(const void *name, const void *t)
{
    return strcmp(name, (*(const waste_st_tensor *const *)t)->name);
}

static int by_tensor_name(const void *a, const void *b)
{
    const waste_st_tensor *x = *(const waste_st_tensor *const *)a;
    const waste_st_tensor *y = *(const waste_st_tensor *const *)b;

    return strcmp(x->name, y->name);
}

static shard *find_shard(const waste_source *s, const char *name)
{
    if (s->n_shards == 0) return NULL;
    return bsearch(name, s->shard, s->n_shards, sizeof *s->shard, name_of_shard);
}

/* A name from the index is joined to the directory: it must stay inside. */
static int is_plain_name(const char *name)
{
    return *name && strlen(name) < 256 && !strpbrk(name, "/\\") && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

/* Keeps the list sorted; a checkpoint has at most some hundred shards. */
static waste_status add_shard(waste_source *s, const char *name, waste_error *err)
{
    size_t at = s->n_shards;
    shard *p;

    if (find_shard(s, name)) return WASTE_OK;
    if (s->n_shards >= MAX_SHARDS)
        return waste_fail(err, WASTE_FORMAT, "%s/" INDEX ": more than %d shards", s->dir,
                          MAX_SHARDS);
    p = waste_mem_resize(s->shard, (s->n_shards + 1) * sizeof *p);
    if (!p) return no_memory(s, err);
    s->shard = p;
    while (at > 0 && strcmp(p[at - 1].name, name) > 0) at--;
    memmove(p + at + 1, p + at, (s->n_shards - at) * sizeof *p);
    memset(p + at, 0, sizeof *p);
    p[at].name = waste_mem_text(name, strlen(name));
    s->n_shards++;
    return p[at].name ? WASTE_OK : no_memory(s, err);
}

static waste_status list_shards(waste_source *s, const waste_json *map, const char *path,
                                waste_error *err)
{
    waste_json_iter it = {0};
    const char *last = NULL; /* neighbours in the index mostly share a shard */
    waste_status st = WASTE_OK;

    if (waste_json_kind_of(map) != WASTE_JSON_OBJECT || waste_json_count(map) > MAX_INDEXED)
        return waste_fail(err, WASTE_FORMAT, "%s: weight_map is not an object of tensor names",
                          path);
    while (!st && waste_json_each(&it, map)) {
        size_t bytes;
        const char *name = waste_json_text(it.value, &bytes);
        if (!name || strlen(name) != bytes || !is_plain_name(name))
            return waste_fail(err, WASTE_FORMAT, "%s: the shard of %s is not a file name", path,
                              it.key);
        if (!last || strcmp(last, name) != 0) st = add_shard(s, name, err);
        last = name;
    }
    return st;
}

/* A downloader's list of finished shards, one a line: a shard that exists and is
 * not listed is still being written. *seen gets a mark per shard that may be read;
 * NULL when there is no list. */
static waste_status read_downloaded(const waste_source *s, unsigned char **seen, waste_error *err)
{
    char path[WASTE_PATH_MAX], *text = NULL, *line, *next;
    size_t bytes;
    waste_status st = waste_path_join(path, sizeof path, s->dir, STATE, err);

    *seen = NULL;
    if (st || !waste_path_exists(path)) return st;
    *seen = waste_mem_zero(s->n_shards + 1);
    if (!*seen) return no_memory(s, err);
    st = waste_file_load(path, 1u << 26, &text, &bytes, err);
    for (line = st ? NULL : text; line; line = next) {
        shard *found;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        found = find_shard(s, line);
        if (found) (*seen)[found - s->shard] = 1;
    }
    waste_mem_free(text);
    return st;
}

/* dir/NAME.header of a shard that was reclaimed. */
static waste_status header_path(char *out, const char *dir, const char *name, waste_error *err)
{
    char file[300];

    snprintf(file, sizeof file, "%s.header", name);
    return waste_path_join(out, WASTE_PATH_MAX, dir, file, err);
}

static waste_status open_shard(waste_source *s, shard *h, int finished, waste_error *err)
{
    char path[WASTE_PATH_MAX], kept[WASTE_PATH_MAX];
    waste_status st = waste_path_join(path, sizeof path, s->dir, h->name, err);

    if (st) return st;
    if (!waste_path_exists(path)) {
        if (s->headers) st = header_path(kept, s->headers, h->name, err);
        if (st || !s->headers || !waste_path_exists(kept))
            return st ? st : waste_fail(err, WASTE_IO, "%s is missing", path);
        h->gone = 1;
        return waste_safetensors_open_kept(&h->file, kept, path, &h->bytes, &h->mtime, err);
    }
    if (!finished)
        return waste_fail(err, WASTE_FORMAT,
                          "%s is not listed in " STATE ": it is still being downloaded", path);
    st = waste_disk_stat(path, &h->bytes, &h->mtime, err);
    return st ? st : waste_safetensors_open(&h->file, path, err);
}

/* Missing files first, counted: whoever has to download them wants the number. */
static waste_status count_missing(const waste_source *s, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    size_t i, missing = 0, first = 0;
    waste_status st = WASTE_OK;

    for (i = s->n_shards; !st && i-- > 0;) {
        st = waste_path_join(path, sizeof path, s->dir, s->shard[i].name, err);
        if (st || waste_path_exists(path)) continue;
        if (s->headers) st = header_path(path, s->headers, s->shard[i].name, err);
        if (st || (s->headers && waste_path_exists(path))) continue;
        missing++;
        first = i;
    }
    if (st || !missing) return st;
    return waste_fail(err, WASTE_IO, "%s/%s is missing (%zu of %zu shards are)", s->dir,
                      s->shard[first].name, missing, s->n_shards);
}

static waste_status open_shards(waste_source *s, waste_error *err)
{
    unsigned char *seen = NULL;
    waste_status st = s->partial ? WASTE_OK : count_missing(s, err);
    size_t i;

    if (!st) st = read_downloaded(s, &seen, err);
    for (i = 0; !st && i < s->n_shards; i++) {
        waste_error why = {0};
        st = open_shard(s, s->shard + i, !seen || seen[i], &why);
        if (!st || (s->partial && st != WASTE_NOMEM)) {
            if (st && !s->missing++) s->first_missing = why;
            st = WASTE_OK;
        } else {
            waste_fail(err, st, "%s", why.text);
        }
    }
    waste_mem_free(seen);
    return st;
}

static waste_status take_tensors(waste_source *s, const waste_json *map, const char *path,
                                 waste_error *err)
{
    waste_json_iter it = {0};
    size_t n = waste_json_count(map);

    if (n == 0) return waste_fail(err, WASTE_FORMAT, "%s names no tensors", path);
    s->tensor = waste_mem_array(n, sizeof *s->tensor);
    if (!s->tensor) return no_memory(s, err);
    while (waste_json_each(&it, map)) {
        const shard *h = find_shard(s, waste_json_text(it.value, NULL));
        const waste_st_tensor *t = h && h->file ? waste_safetensors_find(h->file, it.key) : NULL;
        if (!t && s->partial && h && !h->file) continue;
        if (!t)
            return waste_fail(err, WASTE_FORMAT,
                              "tensor %s is not in %s/%s, where the index has it", it.key, s->dir,
                              h ? h->name : "?");
        s->tensor[s->n++] = t;
    }
    return WASTE_OK;
}

static waste_status open_indexed(waste_source *s, const char *path, waste_error *err)
{
    waste_json *index = NULL;
    char *text;
    size_t bytes;
    waste_status st = waste_file_load(path, 1u << 30, &text, &bytes, err);

    if (st) return st;
    st = waste_json_parse(&index, text, bytes, 1, path, WASTE_FORMAT, err);
    waste_mem_free(text);
    if (!st) st = list_shards(s, waste_json_get(index, "weight_map"), path, err);
    if (!st) st = open_shards(s, err);
    if (!st) st = take_tensors(s, waste_json_get(index, "weight_map"), path, err);
    waste_json_free(index);
    return st;
}

static waste_status open_single(waste_source *s, waste_error *err)
{
    waste_safetensors *f;
    size_t n, i;
    waste_status st = add_shard(s, SINGLE, err);

    if (!st) st = open_shards(s, err);
    if (st) return st;
    f = s->shard[0].file;
    if (!f) return WASTE_OK;
    n = waste_safetensors_count(f);
    if (n == 0)
        return waste_fail(err, WASTE_FORMAT, "%s holds no tensors", waste_safetensors_path(f));
    s->tensor = waste_mem_array(n, sizeof *s->tensor);
    if (!s->tensor) return no_memory(s, err);
    for (i = 0; i < n; i++) s->tensor[s->n++] = waste_safetensors_at(f, i);
    return WASTE_OK;
}

static waste_status open_weights(waste_source *s, waste_error *err)
{
    char index[WASTE_PATH_MAX], single[WASTE_PATH_MAX];
    waste_status st = waste_path_join(index, sizeof index, s->dir, INDEX, err);

    if (!st) st = waste_path_join(single, sizeof single, s->dir, SINGLE, err);
    if (st) return st;
    if (waste_path_exists(index))
        st = open_indexed(s, index, err);
    else if (waste_path_exists(single))
        st = open_single(s, err);
    else
        st = waste_fail(err, WASTE_IO, "%s has neither " INDEX " nor " SINGLE, s->dir);
    if (!st) qsort(s->tensor, s->n, sizeof *s->tensor, by_tensor_name);
    return st;
}

waste_status waste_source_open(waste_source **out, const char *dir, waste_error *err)
{
    static const waste_source_options plain;

    return waste_source_open_with(out, dir, &plain, err);
}

waste_status waste_source_open_with(waste_source **out, const char *dir,
                                    const waste_source_options *opt, waste_error *err)
{
    waste_source *s;
    waste_status st;

    *out = NULL;
    if (!waste_path_is_dir(dir))
        return waste_fail(err, WASTE_IO, "the checkpoint %s is not a directory", dir);
    s = waste_mem_zero(sizeof *s);
    if (s) s->dir = waste_mem_text(dir, strlen(dir));
    if (!s || !s->dir) {
        waste_mem_free(s);
        return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", dir);
    }
    s->partial = opt->partial;
    s->headers = opt->headers;
    st = load_config(s, err);
    if (!st) st = open_weights(s, err);
    s->headers = NULL;
    if (st) {
        waste_source_close(s);
        return st;
    }
    *out = s;
    return WASTE_OK;
}

void waste_source_close(waste_source *s)
{
    size_t i;

    if (!s) return;
    for (i = 0; i < s->n_shards; i++) {
        waste_safetensors_close(s->shard[i].file);
        waste_mem_free(s->shard[i].name);
    }
    waste_mem_free(s->shard);
    waste_mem_free(s->tensor);
    waste_weight_reader_clear(&s->reader);
    waste_json_free(s->config);
    waste_mem_free(s->dir);
    waste_mem_free(s);
}

/* ---- looking up ----------------------------------------------------------- */

const char *waste_source_dir(const waste_source *s)
{
    return s->dir;
}

waste_weight_reader *waste_source_reader(waste_source *s)
{
    return &s->reader;
}

const waste_weight_reader *waste_source_blocks(const waste_source *s)
{
    return &s->reader;
}

const waste_json *waste_source_config(const waste_source *s)
{
    return s->config;
}

size_t waste_source_shards(const waste_source *s)
{
    return s->n_shards;
}

void waste_source_shard_get(const waste_source *s, size_t i, waste_source_shard *out)
{
    const shard *h = s->shard + i;

    out->name = h->name;
    out->bytes = h->bytes;
    out->mtime = h->mtime;
    out->gone = h->gone;
}

size_t waste_source_shard_of(const waste_source *s, const waste_st_tensor *t)
{
    const char *path = waste_safetensors_path(t->file);

    return (size_t)(find_shard(s, path + strlen(s->dir) + 1) - s->shard);
}

waste_status waste_source_keep_header(const waste_source *s, size_t i, const char *dir,
                                      waste_error *err)
{
    const shard *h = s->shard + i;
    char path[WASTE_PATH_MAX];
    waste_status st = header_path(path, dir, h->name, err);

    return st ? st : waste_safetensors_keep(h->file, path, h->bytes, h->mtime, err);
}

size_t waste_source_missing(const waste_source *s, const char **first)
{
    *first = s->first_missing.text;
    return s->missing;
}

size_t waste_source_count(const waste_source *s)
{
    return s->n;
}

const waste_st_tensor *waste_source_at(const waste_source *s, size_t i)
{
    return s->tensor[i];
}

const waste_st_tensor *waste_source_find(const waste_source *s, const char *name)
{
    const waste_st_tensor **found =
        s->n ? bsearch(name, s->tensor, s->n, sizeof *s->tensor, name_of_tensor) : NULL;

    return found ? *found : NULL;
}

const waste_st_tensor *waste_source_part(const waste_source *s, const char *name, const char *end)
{
    char part[512];

    if ((size_t)snprintf(part, sizeof part, "%s%s", name, end) >= sizeof part) return NULL;
    return waste_source_find(s, part);
}

int waste_source_has(const waste_source *s, const char *name)
{
    return waste_source_find(s, name) || waste_source_part(s, name, "_packed");
}
