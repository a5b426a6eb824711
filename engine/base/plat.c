/* What the systems have in common: see plat.h. Owns no state. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat_system.h"

#define NO_ADVANCE 8 /* reads in a row that give less than a block */

waste_status waste_plat_failed(waste_error *err, const char *what, const char *path)
{
    char text[WASTE_PLAT_REASON];

    return waste_fail(err, WASTE_IO, "cannot %s %s: %s", what, path, waste_plat_reason(text));
}

/* ---- reading and writing ---------------------------------------------------- */

static size_t at_most(size_t n)
{
    return n < WASTE_PLAT_MOST ? n : WASTE_PLAT_MOST;
}

static waste_status check_offset(const char *path, size_t n, uint64_t offset, waste_error *err)
{
    if (n <= INT64_MAX && offset <= INT64_MAX - (uint64_t)n) return WASTE_OK;
    return waste_fail(err, WASTE_IO, "%s: offset %llu is beyond any file", path,
                      (unsigned long long)offset);
}

static waste_status ended(const char *path, size_t short_of, uint64_t end, waste_error *err)
{
    return waste_fail(err, WASTE_IO, "%s ends at byte %llu, %zu bytes short of what was asked",
                      path, (unsigned long long)end, short_of);
}

waste_status waste_file_read(const waste_file *f, const char *path, void *to, size_t n,
                             uint64_t offset, waste_error *err)
{
    waste_status st = check_offset(path, n, offset, err);
    char *p = to;

    while (!st && n > 0) {
        const int64_t got = waste_plat_read(f, p, at_most(n), offset);

        if (got < 0) return waste_plat_failed(err, "read", path);
        if (got == 0) return ended(path, n, offset, err);
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return st;
}

waste_status waste_file_read_blocks(const waste_file *f, const char *path, void *to, size_t n,
                                    uint64_t offset, waste_error *err)
{
    waste_status st = check_offset(path, n, offset, err);
    char text[WASTE_PLAT_REASON], *p = to;
    int idle = 0;

    while (!st && n > 0) {
        const int64_t got = waste_plat_read(f, p, at_most(n), offset);
        size_t whole;

        if (got < 0)
            return waste_fail(err, WASTE_IO, "cannot read %s at offset %llu: %s", path,
                              (unsigned long long)offset, waste_plat_reason(text));
        /* the tail of a block is read again: a direct read cannot start inside one */
        whole = (size_t)got < n ? (size_t)got / WASTE_FILE_BLOCK * WASTE_FILE_BLOCK : n;
        idle = whole ? 0 : idle + 1;
        if (got == 0 || idle == NO_ADVANCE)
            return ended(path, n - (size_t)got, offset + (uint64_t)got, err);
        p += whole;
        n -= whole;
        offset += whole;
    }
    return st;
}

waste_status waste_plat_probe(const waste_file *f, const char *path, size_t bytes, int *reads,
                              waste_error *err)
{
    void *to = waste_mem_aligned(WASTE_FILE_BLOCK, bytes);

    if (!to) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    *reads = waste_plat_read(f, to, at_most(bytes), 0) >= 0;
    waste_mem_free(to);
    return WASTE_OK;
}

waste_status waste_file_write(const waste_file *f, const char *path, const void *from, size_t n,
                              waste_error *err)
{
    const char *p = from;

    while (n > 0) {
        const int64_t put = waste_plat_write(f, p, at_most(n));

        if (put < 0) return waste_plat_failed(err, "write", path);
        p += put;
        n -= (size_t)put;
    }
    return WASTE_OK;
}

/* ---- whole files -------------------------------------------------------------- */

waste_status waste_file_load(const char *path, uint64_t max, char **data, size_t *bytes,
                             waste_error *err)
{
    waste_file f;
    uint64_t size = 0;
    waste_status st;
    char *p;

    *data = NULL;
    *bytes = 0;
    st = waste_file_open(&f, path, err);
    if (st) return st;
    st = waste_file_size(&f, path, &size, err);
    if (!st && size > max)
        st = waste_fail(err, WASTE_IO, "%s has %llu bytes, more than the %llu allowed", path,
                        (unsigned long long)size, (unsigned long long)max);
    p = st ? NULL : waste_mem_alloc((size_t)size + 1);
    if (!st && !p) st = waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    if (!st && size) st = waste_file_read(&f, path, p, (size_t)size, 0, err);
    waste_file_close(&f);
    if (st) {
        waste_mem_free(p);
        return st;
    }
    p[size] = 0;
    *data = p;
    *bytes = (size_t)size;
    return WASTE_OK;
}

waste_status waste_file_publish(const char *path, const void *data, size_t bytes, waste_error *err)
{
    char tmp[WASTE_PATH_MAX];
    waste_file f = {WASTE_FILE_CLOSED};
    waste_status st;

    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", path) >= sizeof tmp)
        return waste_fail(err, WASTE_ARG, "path too long: %s", path);
    st = waste_file_create(&f, tmp, err);
    if (!st) st = waste_file_write(&f, tmp, data, bytes, err);
    if (!st) st = waste_file_sync(&f, tmp, err);
    waste_file_close(&f);
    if (!st) st = waste_file_rename(tmp, path, err);
    if (st) waste_path_remove(tmp);
    return st;
}

/* ---- paths ---------------------------------------------------------------------- */

int waste_path_exists(const char *path)
{
    waste_path_info i;

    return waste_path_stat(&i, path, NULL) == WASTE_OK;
}

int waste_path_is_dir(const char *path)
{
    waste_path_info i;

    return waste_path_stat(&i, path, NULL) == WASTE_OK && i.is_dir;
}

waste_status waste_path_identity(const char *path, uint64_t id[2], waste_error *err)
{
    waste_path_info i;
    waste_status st = waste_path_stat(&i, path, err);

    if (!st) memcpy(id, i.id, sizeof i.id);
    return st;
}

void waste_path_remove(const char *path)
{
    (void)waste_path_delete(path, NULL);
}

waste_status waste_path_join(char *out, size_t cap, const char *dir, const char *name,
                             waste_error *err)
{
    if ((size_t)snprintf(out, cap, "%s/%s", dir, name) >= cap)
        return waste_fail(err, WASTE_ARG, "path too long: %.200s/...", dir);
    return WASTE_OK;
}
