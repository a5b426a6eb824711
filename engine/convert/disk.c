/* File system calls of a conversion: see disk.h. Owns no state. */
#include "convert/disk.h"

#include <stdio.h>
#include <string.h>

#include "base/plat.h"

waste_status waste_disk_stat(const char *path, uint64_t *bytes, uint64_t *mtime, waste_error *err)
{
    waste_path_info i;
    waste_status st = waste_path_stat(&i, path, err);

    if (st) return st;
    *bytes = i.bytes;
    *mtime = i.modified_ns;
    return WASTE_OK;
}

uint64_t waste_disk_size(const char *path)
{
    waste_path_info i;

    return waste_path_stat(&i, path, NULL) == WASTE_OK ? i.bytes : 0;
}

static int separates(char c)
{
    return c && strchr(WASTE_PATH_SEPARATORS, c);
}

void waste_disk_parent(char *out, size_t cap, const char *path)
{
    const size_t root = waste_path_root(path);
    size_t n = strlen(path);

    while (n > root && separates(path[n - 1])) n--;
    while (n > root && !separates(path[n - 1])) n--;
    while (n > root && separates(path[n - 1])) n--;
    snprintf(out, cap, "%.*s", n ? (int)n : 1, n ? path : ".");
}

uint64_t waste_disk_free(const char *path)
{
    char parent[WASTE_PATH_MAX];
    uint64_t bytes;

    if (waste_path_free(path, &bytes) == 0) return bytes;
    waste_disk_parent(parent, sizeof parent, path);
    return waste_path_free(parent, &bytes) == 0 ? bytes : UINT64_MAX;
}

static int add_bytes(void *ctx, const char *path, uint64_t bytes)
{
    (void)path;
    *(uint64_t *)ctx += bytes;
    return 0;
}

uint64_t waste_disk_dir_bytes(const char *dir)
{
    uint64_t n = 0;

    (void)waste_dir_each(dir, add_bytes, &n);
    return n;
}

typedef struct others {
    size_t at; /* where the name begins */
    const char *but;
} others;

static int remove_other(void *ctx, const char *path, uint64_t bytes)
{
    const others *o = ctx;
    (void)bytes;

    if (strcmp(path + o->at, o->but) != 0) waste_path_remove(path);
    return 0;
}

void waste_disk_remove_others(const char *dir, const char *but)
{
    others o = {strlen(dir) + 1, but};

    (void)waste_dir_each(dir, remove_other, &o);
}

void waste_disk_remove_dir(const char *dir)
{
    waste_disk_remove_others(dir, "");
    waste_dir_remove(dir);
}

static int ends_so(void *ctx, const char *path, uint64_t bytes)
{
    const char *end = ctx;
    const size_t n = strlen(path), k = strlen(end);
    (void)bytes;

    return n >= k && strcmp(path + n - k, end) == 0;
}

int waste_disk_any(const char *dir, const char *end)
{
    return waste_dir_each(dir, ends_so, (void *)end);
}

waste_status waste_disk_reopen(waste_file *f, const char *path, uint64_t keep, waste_error *err)
{
    waste_status st = waste_file_open_at(f, path, 0, keep, err);

    if (st) return st;
    st = waste_file_cut(f, path, keep, err);
    if (st) waste_file_close(f);
    return st;
}

waste_status waste_disk_write_at(const char *path, uint64_t offset, const void *data, size_t n,
                                 waste_error *err)
{
    waste_file f;
    waste_status st = waste_file_open_at(&f, path, 1, offset, err);

    if (!st) st = waste_file_write(&f, path, data, n, err);
    waste_file_close(&f);
    return st;
}

waste_status waste_disk_append_line(const char *path, const char *line, waste_error *err)
{
    waste_file f;
    waste_status st = waste_file_append(&f, path, err);

    if (!st) st = waste_file_write(&f, path, line, strlen(line), err);
    if (!st) st = waste_file_write(&f, path, "\n", 1, err);
    if (!st) st = waste_file_sync(&f, path, err);
    waste_file_close(&f);
    return st;
}

waste_status waste_disk_own(intptr_t *lock, const char *dir, waste_error *err)
{
    waste_status st = waste_dir_lock(lock, dir, err);

    if (st == WASTE_BUSY)
        return waste_fail(err, st, "%s is in use by another conversion or an exclusive model", dir);
    return st;
}

/* A child that the host forked ends with its copy, and the conversion goes on here. */
void waste_disk_disown(intptr_t *lock)
{
    waste_dir_unlock(lock, 1);
}
