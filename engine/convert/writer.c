/* The working directory and its publication: see writer.h. Owns at most one open file
 * and the lock on the target. What is finished is asked of the file system each time;
 * nothing about it is remembered elsewhere. */
#include "convert/writer.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/disk.h"
#include "store/manifest.h"

#define MANIFEST   "manifest.json"
#define WORK       ".convert"
#define JOB        "job.json"     /* what the work is of */
#define PUBLISHING "publish.json" /* the same, once all is complete */
#define MAX_NAME   300

struct waste_writer {
    char *dir, *work;
    int overwrite;
    int made_dir, made_work; /* by this object */
    intptr_t owned;          /* the lock, or WASTE_DIR_UNLOCKED */
    int publishing, published;
    waste_file file;
    char name[MAX_NAME]; /* of the open file */
    uint64_t bytes;
};

static waste_status join(char *out, const char *dir, const char *name, int tmp, waste_error *err)
{
    char full[MAX_NAME + 8];

    if (strlen(name) >= MAX_NAME)
        return waste_fail(err, WASTE_ARG, "%s: file name too long: %.100s...", dir, name);
    snprintf(full, sizeof full, "%s%s", name, tmp ? ".tmp" : "");
    return waste_path_join(out, WASTE_PATH_MAX, dir, full, err);
}

waste_status waste_writer_path(const waste_writer *w, const char *name, int tmp, char *out,
                               waste_error *err)
{
    return join(out, w->work, name, tmp, err);
}

const char *waste_writer_work(const waste_writer *w)
{
    return w->work;
}

const char *waste_writer_dir(const waste_writer *w)
{
    return w->dir;
}

static int exists(const char *dir, const char *name)
{
    char path[WASTE_PATH_MAX];

    return join(path, dir, name, 0, NULL) == WASTE_OK && waste_path_exists(path);
}

static void drop(const char *dir, const char *name)
{
    char path[WASTE_PATH_MAX];

    if (join(path, dir, name, 0, NULL) == WASTE_OK) waste_path_remove(path);
}

/* ---- opening ------------------------------------------------------------------------ */

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
    waste_disk_parent(parent, sizeof parent, w->dir);
    st = is_within(there ? w->dir : parent, source_id, &in, err);
    if (!st && there) st = waste_path_identity(w->dir, target_id, err);
    if (!st && there) st = is_within(source, target_id, &around, err);
    if (!st && (in || around))
        st = waste_fail(err, WASTE_ARG, "the target %s and the source %s lie inside each other",
                        w->dir, source);
    return st;
}

static waste_status there_already(const waste_writer *w, waste_error *err)
{
    return waste_fail(err, WASTE_ARG, "%s/" MANIFEST " exists: there is a container already",
                      w->dir);
}

/* All was published, and the process ended before it had removed the empty directory. */
static void tidy(const waste_writer *w)
{
    intptr_t lock;

    if (w->owned != WASTE_DIR_UNLOCKED || waste_disk_own(&lock, w->dir, NULL)) return;
    waste_dir_remove(w->work);
    waste_disk_disown(&lock);
}

static waste_status check_target(const waste_writer *w, waste_error *err)
{
    char parent[WASTE_PATH_MAX];

    if (!waste_path_exists(w->dir)) {
        waste_disk_parent(parent, sizeof parent, w->dir);
        if (!waste_path_is_dir(parent))
            return waste_fail(err, WASTE_ARG, "%s, where %s would be made, is not a directory",
                              parent, w->dir);
        return WASTE_OK;
    }
    if (!waste_path_is_dir(w->dir))
        return waste_fail(err, WASTE_ARG, "%s exists and is not a directory", w->dir);
    if (w->overwrite || !exists(w->dir, MANIFEST) || exists(w->work, PUBLISHING)) return WASTE_OK;
    tidy(w);
    return there_already(w, err);
}

waste_status waste_writer_open(waste_writer **out, const char *dir, const char *source,
                               int overwrite, waste_error *err)
{
    waste_writer *w = waste_mem_zero(sizeof *w);
    const size_t n = strlen(dir);
    waste_status st = WASTE_OK;

    *out = NULL;
    if (w) {
        w->owned = WASTE_DIR_UNLOCKED;
        w->file.fd = WASTE_FILE_CLOSED;
        w->overwrite = overwrite;
        w->dir = waste_mem_text(dir, n);
        w->work = waste_mem_alloc(n + sizeof "/" WORK);
    }
    if (!w || !w->dir || !w->work) {
        waste_writer_close(w);
        return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", dir);
    }
    snprintf(w->work, n + sizeof "/" WORK, "%s/" WORK, dir);
    if (!*dir) st = waste_fail(err, WASTE_ARG, "no target directory was given");
    if (!st) st = check_target(w, err);
    if (!st) st = check_apart(w, source, err);
    if (st) {
        waste_writer_close(w);
        return st;
    }
    *out = w;
    return WASTE_OK;
}

/* ---- starting, or going on ------------------------------------------------------------ */

static waste_status make(const char *dir, int *made, waste_error *err)
{
    const int there = waste_path_exists(dir);
    waste_status st = waste_path_make_dir(dir, err);

    *made = !there && !st;
    return st;
}

/* Whether the record `name` of the working directory says `job`. */
static waste_status same_job(const waste_writer *w, const char *name, const char *job, size_t n,
                             int *same, waste_error *err)
{
    char path[WASTE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    waste_status st = join(path, w->work, name, 0, err);

    *same = 0;
    if (!st) st = waste_file_load(path, 1u << 20, &text, &bytes, err);
    if (!st) *same = bytes == n && memcmp(text, job, n) == 0;
    waste_mem_free(text);
    return st;
}

/* What the working directory is to this job. */
typedef struct leftover {
    int publishing; /* it was complete */
    int same;       /* of this job */
} leftover;

static waste_status look(const waste_writer *w, const char *job, size_t n, leftover *l,
                         waste_error *err)
{
    const int recorded = exists(w->work, JOB);
    waste_status st = WASTE_OK;

    l->publishing = exists(w->work, PUBLISHING);
    l->same = 0;
    if (l->publishing || recorded)
        st = same_job(w, l->publishing ? PUBLISHING : JOB, job, n, &l->same, err);
    if (st || l->same) return st;
    if (l->publishing && !w->overwrite && exists(w->dir, MANIFEST)) return there_already(w, err);
    if (waste_disk_any(w->work, ".header"))
        return waste_fail(err, WASTE_ARG,
                          "%s holds a conversion of another source or with other options, and "
                          "shards of its source were reclaimed: it is not touched",
                          w->work);
    if ((l->publishing || recorded) && !w->overwrite && waste_disk_any(w->work, ".bin"))
        return waste_fail(err, WASTE_ARG,
                          "%s holds an unfinished conversion of another source or with other "
                          "options; overwrite discards it",
                          w->work);
    return WASTE_OK;
}

waste_status waste_writer_look(const waste_writer *w, const char *job, size_t n, waste_error *err)
{
    waste_status st = WASTE_OK;
    leftover l;
    intptr_t lock = WASTE_DIR_UNLOCKED;

    if (waste_path_is_dir(w->dir)) st = waste_disk_own(&lock, w->dir, err);
    if (!st) st = look(w, job, n, &l, err);
    waste_disk_disown(&lock);
    return st;
}

static waste_status recover(waste_writer *w, const char *job, size_t n, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    leftover l;
    waste_status st = look(w, job, n, &l, err);

    if (st) return st;
    if (l.same) {
        w->publishing = l.publishing;
        return WASTE_OK;
    }
    waste_disk_remove_dir(w->work);
    st = make(w->work, &w->made_work, err);
    if (!st) st = join(path, w->work, JOB, 0, err);
    return st ? st : waste_file_publish(path, job, n, err);
}

waste_status waste_writer_start(waste_writer *w, const char *job, size_t n, waste_error *err)
{
    waste_status st = make(w->dir, &w->made_dir, err);

    if (!st) st = waste_disk_own(&w->owned, w->dir, err);
    /* another conversion may have finished since this one was opened */
    if (!st) st = check_target(w, err);
    if (!st) st = make(w->work, &w->made_work, err);
    return st ? st : recover(w, job, n, err);
}

int waste_writer_is_publishing(const waste_writer *w)
{
    return w->publishing;
}

int waste_writer_finished(const waste_writer *w, const char *name, uint64_t bytes)
{
    char path[WASTE_PATH_MAX];

    return join(path, w->work, name, 0, NULL) == WASTE_OK && waste_path_exists(path) &&
           (bytes == UINT64_MAX || waste_disk_size(path) == bytes);
}

/* ---- files ------------------------------------------------------------------------------- */

waste_status waste_writer_begin(waste_writer *w, const char *name, uint64_t keep, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_status st = join(path, w->work, name, 1, err);

    if (!st)
        st = keep ? waste_disk_reopen(&w->file, path, keep, err)
                  : waste_file_create(&w->file, path, err);
    if (!st) strcpy(w->name, name);
    return st;
}

waste_status waste_writer_put(waste_writer *w, const void *data, size_t n, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_status st = join(path, w->work, w->name, 1, err);

    if (!st) st = waste_file_write(&w->file, path, data, n, err);
    if (!st) w->bytes += n;
    return st;
}

waste_status waste_writer_end(waste_writer *w, waste_error *err)
{
    char from[WASTE_PATH_MAX], to[WASTE_PATH_MAX];
    waste_status st = join(from, w->work, w->name, 1, err);

    if (!st) st = join(to, w->work, w->name, 0, err);
    if (!st) st = waste_file_sync(&w->file, from, err);
    waste_file_close(&w->file);
    return st ? st : waste_file_rename(from, to, err);
}

waste_status waste_writer_file(waste_writer *w, const char *name, const void *data, size_t n,
                               waste_error *err)
{
    waste_status st = waste_writer_begin(w, name, 0, err);

    if (!st) st = waste_writer_put(w, data, n, err);
    if (!st) st = waste_writer_end(w, err);
    return st;
}

void waste_writer_drop(waste_writer *w, const char *name)
{
    drop(w->work, name);
}

int waste_writer_has(const waste_writer *w, const char *name)
{
    return exists(w->dir, name);
}

uint64_t waste_writer_bytes(const waste_writer *w)
{
    return w->bytes;
}

/* ---- publication ------------------------------------------------------------------ */

static int is_listed(const char *const *names, size_t n, const char *name)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return 1;
    return 0;
}

/* Files of a replaced container that would be read beside the new ones and mean
 * another model. chat.json stays: an edited one wins. */
static void remove_leftovers(const waste_writer *w, const char *const *names, size_t n)
{
    static const char *const stale[] = {"tokenizer.model", "tiktoken.model",      "specials.json",
                                        "vision.json",     "chat_template.jinja", "usage.waste"};
    char bank[MAX_NAME];
    size_t i;

    for (i = 0; i < sizeof stale / sizeof *stale; i++)
        if (!is_listed(names, n, stale[i])) drop(w->dir, stale[i]);
    for (i = 0; i < WASTE_MAX_LAYERS; i++) {
        snprintf(bank, sizeof bank, "experts-L%zu.bin", i);
        if (!is_listed(names, n, bank)) drop(w->dir, bank);
    }
}

static waste_status move(const waste_writer *w, const char *name, waste_error *err)
{
    char from[WASTE_PATH_MAX], to[WASTE_PATH_MAX];
    waste_status st = join(from, w->work, name, 0, err);

    if (!st) st = join(to, w->dir, name, 0, err);
    return st || !waste_path_exists(from) ? st : waste_file_rename(from, to, err);
}

static waste_status declare(waste_writer *w, waste_error *err)
{
    char from[WASTE_PATH_MAX], to[WASTE_PATH_MAX];
    waste_status st = join(from, w->work, JOB, 0, err);

    if (!st) st = join(to, w->work, PUBLISHING, 0, err);
    if (!st) st = waste_file_rename(from, to, err);
    w->publishing = !st;
    return st;
}

/* The record goes last: until then the next conversion knows what this is. */
static void remove_work(const waste_writer *w)
{
    char path[WASTE_PATH_MAX];

    waste_disk_remove_others(w->work, PUBLISHING);
    if (join(path, w->work, PUBLISHING, 0, NULL) == WASTE_OK) waste_path_remove(path);
    waste_dir_remove(w->work);
}

waste_status waste_writer_publish(waste_writer *w, const char *const *names, size_t n,
                                  waste_error *err)
{
    waste_status st = w->publishing ? WASTE_OK : declare(w, err);
    size_t i;

    if (!st && exists(w->work, MANIFEST)) { /* else it has its place already */
        drop(w->dir, MANIFEST);
        waste_dir_sync(w->dir);
        remove_leftovers(w, names, n);
    }
    for (i = 0; !st && i < n; i++) st = move(w, names[i], err);
    if (!st) st = move(w, MANIFEST, err);
    if (st) return st;
    remove_work(w);
    w->published = 1;
    return WASTE_OK;
}

void waste_writer_close(waste_writer *w)
{
    if (!w) return;
    waste_file_close(&w->file);
    if (w->owned != WASTE_DIR_UNLOCKED && !w->published && !w->publishing &&
        !waste_disk_any(w->work, ".bin") && !waste_disk_any(w->work, ".header")) {
        waste_disk_remove_dir(w->work);
        if (w->made_dir) waste_dir_remove(w->dir);
    }
    waste_disk_disown(&w->owned);
    waste_mem_free(w->work);
    waste_mem_free(w->dir);
    waste_mem_free(w);
}
