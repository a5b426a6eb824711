/* File system calls of a conversion: see disk.h. Owns no state. */
#include "convert/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/plat.h"

static waste_status io_error(waste_error *err, const char *what, const char *path)
{
    return waste_fail(err, WASTE_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

waste_status waste_disk_stat(const char *path, uint64_t *bytes, uint64_t *mtime, waste_error *err)
{
    struct stat st;

    if (stat(path, &st) != 0) return io_error(err, "stat", path);
    *bytes = (uint64_t)st.st_size;
#if defined(__APPLE__)
    *mtime = (uint64_t)st.st_mtimespec.tv_sec * 1000000000u + (uint64_t)st.st_mtimespec.tv_nsec;
#else
    *mtime = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
#endif
    return WASTE_OK;
}

uint64_t waste_disk_size(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

void waste_disk_parent(char *out, size_t cap, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    snprintf(out, cap, "%.*s", n ? (int)n : 1, n ? path : ".");
}

uint64_t waste_disk_free(const char *path)
{
    char parent[WASTE_PATH_MAX];
    struct statvfs v;

    if (statvfs(path, &v) != 0) {
        waste_disk_parent(parent, sizeof parent, path);
        if (statvfs(parent, &v) != 0) return UINT64_MAX;
    }
    return (uint64_t)v.f_bavail * (uint64_t)v.f_frsize;
}

/* The next plain file of a directory, joined to its path; 0 at the end. */
static int next_file(DIR *d, const char *dir, char *path, struct stat *st)
{
    struct dirent *e;

    while ((e = readdir(d)) != NULL)
        if (waste_path_join(path, WASTE_PATH_MAX, dir, e->d_name, NULL) == WASTE_OK &&
            lstat(path, st) == 0 && S_ISREG(st->st_mode))
            return 1;
    return 0;
}

uint64_t waste_disk_dir_bytes(const char *dir)
{
    char path[WASTE_PATH_MAX];
    DIR *d = opendir(dir);
    struct stat st;
    uint64_t n = 0;

    while (d && next_file(d, dir, path, &st)) n += (uint64_t)st.st_size;
    if (d) closedir(d);
    return n;
}

void waste_disk_remove_others(const char *dir, const char *but)
{
    char path[WASTE_PATH_MAX];
    DIR *d = opendir(dir);
    struct stat st;

    while (d && next_file(d, dir, path, &st))
        if (strcmp(path + strlen(dir) + 1, but) != 0) unlink(path);
    if (d) closedir(d);
}

void waste_disk_remove_dir(const char *dir)
{
    waste_disk_remove_others(dir, "");
    rmdir(dir);
}

void waste_disk_remove_empty(const char *dir)
{
    rmdir(dir);
}

int waste_disk_any(const char *dir, const char *end)
{
    char path[WASTE_PATH_MAX];
    DIR *d = opendir(dir);
    struct stat st;
    int found = 0;

    while (d && !found && next_file(d, dir, path, &st)) {
        const size_t n = strlen(path), k = strlen(end);
        found = n >= k && strcmp(path + n - k, end) == 0;
    }
    if (d) closedir(d);
    return found;
}

void waste_disk_sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

waste_status waste_disk_reopen(waste_file *f, const char *path, uint64_t keep, waste_error *err)
{
    do f->fd = open(path, O_WRONLY | O_CLOEXEC);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0) return io_error(err, "open", path);
    if (ftruncate(f->fd, (off_t)keep) == 0 && lseek(f->fd, (off_t)keep, SEEK_SET) >= 0)
        return WASTE_OK;
    waste_file_close(f);
    return io_error(err, "cut", path);
}

waste_status waste_disk_write_at(const char *path, uint64_t offset, const void *data, size_t n,
                                 waste_error *err)
{
    waste_file f;
    waste_status st = WASTE_OK;

    do f.fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    while (f.fd < 0 && errno == EINTR);
    if (f.fd < 0) return io_error(err, "open", path);
    if (lseek(f.fd, (off_t)offset, SEEK_SET) < 0) st = io_error(err, "seek in", path);
    if (!st) st = waste_file_write(&f, path, data, n, err);
    waste_file_close(&f);
    return st;
}

waste_status waste_disk_append_line(const char *path, const char *line, waste_error *err)
{
    waste_file f;
    waste_status st;

    do f.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    while (f.fd < 0 && errno == EINTR);
    if (f.fd < 0) return io_error(err, "open", path);
    st = waste_file_write(&f, path, line, strlen(line), err);
    if (!st) st = waste_file_write(&f, path, "\n", 1, err);
    if (!st) st = waste_file_sync(&f, path, err);
    waste_file_close(&f);
    return st;
}

waste_status waste_disk_delete(const char *path, waste_error *err)
{
    return unlink(path) != 0 ? io_error(err, "delete", path) : WASTE_OK;
}

/* The directory may be removed and made again by its former owner between opening
 * and locking: only a lock on what the path names now counts. */
waste_status waste_disk_own(int *fd, const char *dir, waste_error *err)
{
    struct stat mine, named;
    int rc;

    for (;;) {
        do *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        while (*fd < 0 && errno == EINTR);
        if (*fd < 0) return io_error(err, "open", dir);
        do rc = flock(*fd, LOCK_EX | LOCK_NB);
        while (rc != 0 && errno == EINTR);
        if (rc != 0 && errno == EWOULDBLOCK) {
            waste_disk_disown(fd);
            return waste_fail(err, WASTE_BUSY,
                              "%s is in use by another conversion or an exclusive model", dir);
        }
        /* a file system without locks cannot exclude anybody */
        if (fstat(*fd, &mine) == 0 && stat(dir, &named) == 0 && mine.st_dev == named.st_dev &&
            mine.st_ino == named.st_ino)
            return WASTE_OK;
        waste_disk_disown(fd);
    }
}

void waste_disk_disown(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}
