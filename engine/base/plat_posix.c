/* POSIX files and clock: see plat.h. Owns no state. */
#include "base/plat.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

static waste_status io_error(waste_error *err, const char *what, const char *path)
{
    return waste_fail(err, WASTE_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;

    do fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

waste_status waste_file_open(waste_file *f, const char *path, waste_error *err)
{
    struct stat st;

    /* O_NONBLOCK: opening a fifo must not hang; regular files ignore it */
    f->fd = open_retry(path, O_RDONLY | O_NONBLOCK, 0);
    if (f->fd < 0) return io_error(err, "open", path);
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        waste_file_close(f);
        return waste_fail(err, WASTE_IO, "%s is not a regular file", path);
    }
    return WASTE_OK;
}

waste_status waste_file_create(waste_file *f, const char *path, waste_error *err)
{
    f->fd = open_retry(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    return f->fd < 0 ? io_error(err, "create", path) : WASTE_OK;
}

void waste_file_close(waste_file *f)
{
    if (f->fd != WASTE_FILE_CLOSED) close(f->fd);
    f->fd = WASTE_FILE_CLOSED;
}

waste_status waste_file_size(const waste_file *f, const char *path, uint64_t *size,
                             waste_error *err)
{
    struct stat st;

    if (fstat(f->fd, &st) != 0) return io_error(err, "stat", path);
    *size = (uint64_t)st.st_size;
    return WASTE_OK;
}

waste_status waste_file_read(const waste_file *f, const char *path, void *to, size_t n,
                             uint64_t offset, waste_error *err)
{
    char *p = to;

    if (offset > INT64_MAX - (uint64_t)n)
        return waste_fail(err, WASTE_IO, "%s: offset %llu is beyond any file", path,
                          (unsigned long long)offset);
    while (n > 0) {
        ssize_t got = pread(f->fd, p, n < (1u << 30) ? n : 1u << 30, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return io_error(err, "read", path);
        if (got == 0)
            return waste_fail(err, WASTE_IO,
                              "%s ends at byte %llu, %zu bytes short of what was asked", path,
                              (unsigned long long)offset, n);
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return WASTE_OK;
}

int waste_file_read_now(const waste_file *f, void *to, size_t n, uint64_t offset)
{
#if defined(RWF_NOWAIT)
    const struct iovec part = {to, n};

    return n == 0 || preadv2(f->fd, &part, 1, (off_t)offset, RWF_NOWAIT) == (ssize_t)n;
#else
    (void)f, (void)to, (void)offset;
    return n == 0;
#endif
}

/* ---- past the page cache ------------------------------------------------ */

#define BLOCK      4096 /* what records are multiples of */
#define NO_ADVANCE 8    /* reads in a row that give less than a block */

/* Makes the open file direct; 0 when the system has no such thing. */
static int make_direct(int fd)
{
#if defined(__APPLE__)
    return fcntl(fd, F_NOCACHE, 1) == 0 && fcntl(fd, F_RDAHEAD, 0) == 0;
#elif defined(O_DIRECT)
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
#else
    (void)fd;
    return 0;
#endif
}

static void make_buffered(int fd)
{
#if defined(O_DIRECT)
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags & ~O_DIRECT);
#endif
#if defined(POSIX_FADV_RANDOM)
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#endif
    (void)fd;
}

/* A file system may take the flag and refuse the transfer: only a read tells. */
static waste_status try_direct(const waste_file *f, const char *path, size_t bytes, int *direct,
                               waste_error *err)
{
    void *to = waste_mem_aligned(BLOCK, bytes);
    ssize_t got;

    if (!to) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    do got = pread(f->fd, to, bytes, 0);
    while (got < 0 && errno == EINTR);
    waste_mem_free(to);
    *direct = got >= 0;
    return WASTE_OK;
}

waste_status waste_file_open_direct(waste_file *f, const char *path, size_t bytes, int want,
                                    int *direct, waste_error *err)
{
    waste_status st = waste_file_open(f, path, err);

    *direct = 0;
    if (st) return st;
    if (want && bytes && bytes % BLOCK == 0 && make_direct(f->fd))
        st = try_direct(f, path, bytes, direct, err);
    if (st) waste_file_close(f);
    if (!st && !*direct) make_buffered(f->fd);
    return st;
}

waste_status waste_file_read_blocks(const waste_file *f, const char *path, void *to, size_t n,
                                    uint64_t offset, waste_error *err)
{
    char *p = to;
    int idle = 0;

    if (offset > INT64_MAX - (uint64_t)n)
        return waste_fail(err, WASTE_IO, "%s: offset %llu is beyond any file", path,
                          (unsigned long long)offset);
    while (n > 0) {
        ssize_t got = pread(f->fd, p, n < (1u << 30) ? n : 1u << 30, (off_t)offset);
        size_t whole;

        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return waste_fail(err, WASTE_IO, "cannot read %s at offset %llu: %s", path,
                              (unsigned long long)offset, strerror(errno));
        /* the tail of a block is read again: a direct read cannot start inside one */
        whole = (size_t)got < n ? (size_t)got / BLOCK * BLOCK : n;
        idle = whole ? 0 : idle + 1;
        if (got == 0 || idle == NO_ADVANCE)
            return waste_fail(err, WASTE_IO,
                              "%s ends at byte %llu, %zu bytes short of what was asked", path,
                              (unsigned long long)offset + (uint64_t)got, n - (size_t)got);
        p += whole;
        n -= whole;
        offset += whole;
    }
    return WASTE_OK;
}

void waste_file_ahead(const waste_file *f, uint64_t offset, uint64_t n)
{
#if defined(POSIX_FADV_WILLNEED)
    (void)posix_fadvise(f->fd, (off_t)offset, (off_t)n, POSIX_FADV_WILLNEED);
#else
    (void)f, (void)offset, (void)n;
#endif
}

void waste_file_drop(const waste_file *f, uint64_t offset, uint64_t n)
{
#if defined(POSIX_FADV_DONTNEED)
    (void)posix_fadvise(f->fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
#else
    (void)f, (void)offset, (void)n;
#endif
}

/* ---- writing, whole files, paths ---------------------------------------- */

waste_status waste_file_write(const waste_file *f, const char *path, const void *from, size_t n,
                              waste_error *err)
{
    const char *p = from;

    while (n > 0) {
        ssize_t put = write(f->fd, p, n < (1u << 30) ? n : 1u << 30);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return io_error(err, "write", path);
        p += put;
        n -= (size_t)put;
    }
    return WASTE_OK;
}

waste_status waste_file_sync(const waste_file *f, const char *path, waste_error *err)
{
    return fsync(f->fd) != 0 ? io_error(err, "sync", path) : WASTE_OK;
}

waste_status waste_file_rename(const char *from, const char *to, waste_error *err)
{
    char dir[WASTE_PATH_MAX];
    int fd;

    if (rename(from, to) != 0) return io_error(err, "rename onto", to);
    if (strlen(to) >= sizeof dir) return WASTE_OK;
    strcpy(dir, to);
    fd = open_retry(dirname(dir), O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0) {
        fsync(fd); /* some file systems cannot sync a directory; the rename stands */
        close(fd);
    }
    return WASTE_OK;
}

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

int waste_path_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

int waste_path_is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

waste_status waste_path_make_dir(const char *path, waste_error *err)
{
    if (mkdir(path, 0755) == 0 || (errno == EEXIST && waste_path_is_dir(path))) return WASTE_OK;
    return io_error(err, "make directory", path);
}

void waste_path_remove(const char *path)
{
    unlink(path);
}

waste_status waste_path_identity(const char *path, uint64_t id[2], waste_error *err)
{
    struct stat st;

    if (stat(path, &st) != 0) return io_error(err, "open", path);
    id[0] = (uint64_t)st.st_dev;
    id[1] = (uint64_t)st.st_ino;
    return WASTE_OK;
}

waste_status waste_path_join(char *out, size_t cap, const char *dir, const char *name,
                             waste_error *err)
{
    if ((size_t)snprintf(out, cap, "%s/%s", dir, name) >= cap)
        return waste_fail(err, WASTE_ARG, "path too long: %.200s/...", dir);
    return WASTE_OK;
}

uint64_t waste_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *waste_pages_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) return NULL;
#if defined(MADV_HUGEPAGE)
    (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
#if defined(MADV_DONTFORK)
    /* a page that is copied on write must not have a direct read on its way (open(2)) */
    (void)madvise(p, bytes, MADV_DONTFORK);
#endif
    return p;
}

void waste_pages_unmap(void *p, size_t bytes)
{
    (void)munmap(p, bytes);
}
