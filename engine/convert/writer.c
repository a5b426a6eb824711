/* Temporary files and their publication: see writer.h. Owns at most one open
 * descriptor and the list of files written. */
#include "convert/writer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/plat.h"
#include "store/manifest.h"

#define MANIFEST  "manifest.json"
#define MAX_FILES (WASTE_MAX_LAYERS + 16)
#define MAX_NAME  64

typedef struct written {
    char name[MAX_NAME];
    int renamed;
} written;

struct waste_writer {
    char *dir;
    int made_dir, published;
    waste_file file;
    written entry[MAX_FILES];
    int n;
    uint64_t bytes;
};

/* dir/name, or dir/name.tmp */
static waste_status path_of(const waste_writer *w, const char *name, int tmp, char *out,
                            waste_error *err)
{
    char full[MAX_NAME + 8];

    snprintf(full, sizeof full, "%s%s", name, tmp ? ".tmp" : "");
    return waste_path_join(out, WASTE_PATH_MAX, w->dir, full, err);
}

/* The directory that holds `path`, by its text. */
static void parent_of(char *out, size_t cap, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    snprintf(out, cap, "%.*s", n ? (int)n : 1, n ? path : ".");
}

/* Whether the directory `id` is `path` or holds it: asked of the file system on
 * the way up, so that links and dots in the text cannot hide it. */
static waste_status is_within(const char *path, const uint64_t id[2], int *yes, waste_error *err)
{
    char at[WASTE_PATH_MAX], up[WASTE_PATH_MAX];
    uint64_t here[2], below[2] = {0, 0};
    int first = 1;
    waste_status st = WASTE_OK;

    *yes = 0;
    if ((size_t)snprintf(at, sizeof at, "%s", path) >= sizeof at)
        return waste_fail(err, WASTE_ARG, "path too long: %.200s...", path);
    for (;;) {
        st = waste_path_identity(at, here, err);
        if (st) return st;
        if (here[0] == id[0] && here[1] == id[1]) *yes = 1;
        /* the root is its own parent */
        if (*yes || (!first && here[0] == below[0] && here[1] == below[1])) return WASTE_OK;
        memcpy(below, here, sizeof below);
        first = 0;
        st = waste_path_join(up, sizeof up, at, "..", err);
        if (st) return st;
        memcpy(at, up, sizeof at);
    }
}

static waste_status check_apart(const waste_writer *w, const char *source, waste_error *err)
{
    char parent[WASTE_PATH_MAX];
    uint64_t target_id[2], source_id[2];
    int there = waste_path_exists(w->dir), in = 0, around = 0;
    waste_status st = waste_path_identity(source, source_id, err);

    if (st) return st;
    parent_of(parent, sizeof parent, w->dir);
    st = is_within(there ? w->dir : parent, source_id, &in, err);
    if (!st && there) st = waste_path_identity(w->dir, target_id, err);
    if (!st && there) st = is_within(source, target_id, &around, err);
    if (!st && (in || around))
        st = waste_fail(err, WASTE_ARG, "the target %s and the source %s lie inside each other",
                        w->dir, source);
    return st;
}

static waste_status check_target(const waste_writer *w, int overwrite, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_status st = path_of(w, MANIFEST, 0, path, err);

    if (st) return st;
    if (!waste_path_exists(w->dir)) {
        parent_of(path, sizeof path, w->dir);
        if (!waste_path_is_dir(path))
            return waste_fail(err, WASTE_ARG, "%s, where %s would be made, is not a directory",
                              path, w->dir);
        return WASTE_OK;
    }
    if (!waste_path_is_dir(w->dir))
        return waste_fail(err, WASTE_ARG, "%s exists and is not a directory", w->dir);
    if (!overwrite && waste_path_exists(path))
        return waste_fail(err, WASTE_ARG, "%s exists: there is a container already", path);
    return WASTE_OK;
}

waste_status waste_writer_open(waste_writer **out, const char *dir, const char *source,
                               int overwrite, waste_error *err)
{
    waste_writer *w = waste_mem_zero(sizeof *w);
    waste_status st = WASTE_OK;

    *out = NULL;
    if (w) w->dir = waste_mem_text(dir, strlen(dir));
    if (!w || !w->dir) {
        waste_mem_free(w);
        return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", dir);
    }
    w->file.fd = WASTE_FILE_CLOSED;
    if (!*dir) st = waste_fail(err, WASTE_ARG, "no target directory was given");
    if (!st) st = check_target(w, overwrite, err);
    if (!st) st = check_apart(w, source, err);
    if (st) {
        w->published = 1; /* nothing of ours is there to be removed */
        waste_writer_close(w);
        return st;
    }
    *out = w;
    return WASTE_OK;
}

waste_status waste_writer_begin(waste_writer *w, const char *name, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_status st;

    if (w->n >= MAX_FILES || strlen(name) >= MAX_NAME)
        return waste_fail(err, WASTE_ARG, "%s: no room for file %s", w->dir, name);
    st = path_of(w, name, 1, path, err);
    if (!st && !waste_path_exists(w->dir)) {
        st = waste_path_make_dir(w->dir, err);
        w->made_dir = !st;
    }
    if (!st) st = waste_file_create(&w->file, path, err);
    if (!st) strcpy(w->entry[w->n++].name, name);
    return st;
}

waste_status waste_writer_put(waste_writer *w, const void *data, size_t n, waste_error *err)
{
    w->bytes += n;
    return waste_file_write(&w->file, w->entry[w->n - 1].name, data, n, err);
}

waste_status waste_writer_end(waste_writer *w, waste_error *err)
{
    waste_status st = waste_file_sync(&w->file, w->entry[w->n - 1].name, err);

    waste_file_close(&w->file);
    return st;
}

waste_status waste_writer_file(waste_writer *w, const char *name, const void *data, size_t n,
                               waste_error *err)
{
    waste_status st = waste_writer_begin(w, name, err);

    if (!st) st = waste_writer_put(w, data, n, err);
    if (!st) st = waste_writer_end(w, err);
    return st;
}

int waste_writer_has(const waste_writer *w, const char *name)
{
    char path[WASTE_PATH_MAX];

    return path_of(w, name, 0, path, NULL) == WASTE_OK && waste_path_exists(path);
}

uint64_t waste_writer_bytes(const waste_writer *w)
{
    return w->bytes;
}

/* ---- publication ------------------------------------------------------------------ */

static int is_ours(const waste_writer *w, const char *name)
{
    int i;

    for (i = 0; i < w->n; i++)
        if (strcmp(w->entry[i].name, name) == 0) return 1;
    return 0;
}

static void remove_stale(const waste_writer *w, const char *name)
{
    char path[WASTE_PATH_MAX];

    if (!is_ours(w, name) && path_of(w, name, 0, path, NULL) == WASTE_OK) waste_path_remove(path);
}

/* Files of a replaced container that would be read beside the new ones and mean
 * another model. chat.json stays: an edited one wins. */
static void remove_leftovers(const waste_writer *w)
{
    static const char *const names[] = {"tokenizer.model", "tiktoken.model",      "specials.json",
                                        "vision.json",     "chat_template.jinja", "usage.waste"};
    char bank[MAX_NAME];
    size_t i;

    for (i = 0; i < sizeof names / sizeof *names; i++) remove_stale(w, names[i]);
    for (i = 0; i < WASTE_MAX_LAYERS; i++) {
        snprintf(bank, sizeof bank, "experts-L%zu.bin", i);
        remove_stale(w, bank);
    }
}

waste_status waste_writer_publish(waste_writer *w, const void *manifest, size_t n, waste_error *err)
{
    char from[WASTE_PATH_MAX], to[WASTE_PATH_MAX];
    waste_status st = waste_writer_file(w, MANIFEST, manifest, n, err);
    int i;

    if (!st) st = path_of(w, MANIFEST, 0, to, err);
    if (!st) waste_path_remove(to);
    if (!st) remove_leftovers(w);
    for (i = 0; !st && i < w->n; i++) { /* the manifest was written last */
        st = path_of(w, w->entry[i].name, 1, from, err);
        if (!st) st = path_of(w, w->entry[i].name, 0, to, err);
        if (!st) st = waste_file_rename(from, to, err);
        if (!st) w->entry[i].renamed = 1;
    }
    w->published = !st;
    return st;
}

void waste_writer_close(waste_writer *w)
{
    char path[WASTE_PATH_MAX];
    int i;

    if (!w) return;
    waste_file_close(&w->file);
    for (i = w->n; !w->published && i-- > 0;)
        if (path_of(w, w->entry[i].name, !w->entry[i].renamed, path, NULL) == WASTE_OK)
            waste_path_remove(path);
    if (!w->published && w->made_dir) rmdir(w->dir); /* only when empty */
    waste_mem_free(w->dir);
    waste_mem_free(w);
}
