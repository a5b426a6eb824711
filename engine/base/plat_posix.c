/* Linux and macOS: see plat.h. Owns no state. macOS as Apple documents it: fcntl(2),
 * minherit(2), sysctl(3). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach/vm_inherit.h>
#include <sys/mount.h>
#include <sys/sysctl.h>
#endif

#include "base/mem.h"
#include "base/plat_system.h"

const char *waste_plat_reason(char text[WASTE_PLAT_REASON])
{
    (void)text;
    return strerror(errno);
}

/* ---- files ------------------------------------------------------------------ */

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
    if (f->fd < 0) return waste_plat_failed(err, "open", path);
    if (fstat((int)f->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        waste_file_close(f);
        return waste_fail(err, WASTE_IO, "%s is not a regular file", path);
    }
    return WASTE_OK;
}

static waste_status open_to_write(waste_file *f, const char *path, int flags, const char *what,
                                  waste_error *err)
{
    f->fd = open_retry(path, O_WRONLY | flags, 0644);
    return f->fd < 0 ? waste_plat_failed(err, what, path) : WASTE_OK;
}

waste_status waste_file_create(waste_file *f, const char *path, waste_error *err)
{
    return open_to_write(f, path, O_CREAT | O_TRUNC, "create", err);
}

waste_status waste_file_open_at(waste_file *f, const char *path, int make, uint64_t offset,
                                waste_error *err)
{
    waste_status st = open_to_write(f, path, make ? O_CREAT : 0, "open", err);

    if (st || lseek((int)f->fd, (off_t)offset, SEEK_SET) >= 0) return st;
    st = waste_plat_failed(err, "seek in", path);
    waste_file_close(f);
    return st;
}

waste_status waste_file_append(waste_file *f, const char *path, waste_error *err)
{
    return open_to_write(f, path, O_CREAT | O_APPEND, "open", err);
}

void waste_file_close(waste_file *f)
{
    if (f->fd != WASTE_FILE_CLOSED) close((int)f->fd);
    f->fd = WASTE_FILE_CLOSED;
}

FILE *waste_file_stream(const char *path)
{
    return fopen(path, "re");
}

waste_status waste_file_size(const waste_file *f, const char *path, uint64_t *size,
                             waste_error *err)
{
    struct stat st;

    if (fstat((int)f->fd, &st) != 0) return waste_plat_failed(err, "stat", path);
    *size = (uint64_t)st.st_size;
    return WASTE_OK;
}

waste_status waste_file_cut(const waste_file *f, const char *path, uint64_t size, waste_error *err)
{
    return ftruncate((int)f->fd, (off_t)size) ? waste_plat_failed(err, "cut", path) : WASTE_OK;
}

int64_t waste_plat_read(const waste_file *f, void *to, size_t n, uint64_t offset)
{
    ssize_t got;

    do got = pread((int)f->fd, to, n, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got;
}

int64_t waste_plat_write(const waste_file *f, const void *from, size_t n)
{
    ssize_t put;

    do put = write((int)f->fd, from, n);
    while (put < 0 && errno == EINTR);
    return put;
}

int waste_file_read_now(const waste_file *f, void *to, size_t n, uint64_t offset)
{
#if defined(RWF_NOWAIT)
    const struct iovec part = {to, n};

    return n == 0 || preadv2((int)f->fd, &part, 1, (off_t)offset, RWF_NOWAIT) == (ssize_t)n;
#else
    (void)f, (void)to, (void)offset;
    return n == 0;
#endif
}

waste_status waste_file_sync(const waste_file *f, const char *path, waste_error *err)
{
#if defined(F_FULLFSYNC)
    /* fsync leaves the data in the drive's own cache; some file systems have no more */
    if (fcntl((int)f->fd, F_FULLFSYNC) == 0) return WASTE_OK;
#endif
    return fsync((int)f->fd) != 0 ? waste_plat_failed(err, "sync", path) : WASTE_OK;
}

waste_status waste_file_rename(const char *from, const char *to, waste_error *err)
{
    char dir[WASTE_PATH_MAX];

    if (rename(from, to) != 0) return waste_plat_failed(err, "rename onto", to);
    if (strlen(to) >= sizeof dir) return WASTE_OK;
    strcpy(dir, to);
    waste_dir_sync(dirname(dir));
    return WASTE_OK;
}

/* ---- past the page cache ------------------------------------------------ */

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
#if defined(__APPLE__)
    (void)fcntl(fd, F_NOCACHE, 0);
    (void)fcntl(fd, F_RDAHEAD, 0);
#elif defined(O_DIRECT)
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags & ~O_DIRECT);
#endif
#if defined(POSIX_FADV_RANDOM)
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#endif
    (void)fd;
}

waste_status waste_file_open_direct(waste_file *f, const char *path, size_t bytes, int want,
                                    int *direct, waste_error *err)
{
    waste_status st = waste_file_open(f, path, err);

    *direct = 0;
    if (st) return st;
    if (want && bytes && bytes % WASTE_FILE_BLOCK == 0 && make_direct((int)f->fd))
        st = waste_plat_probe(f, path, bytes, direct, err);
    if (!st && !*direct) make_buffered((int)f->fd);
    if (st) waste_file_close(f);
    return st;
}

void waste_file_ahead(const waste_file *f, uint64_t offset, uint64_t n)
{
#if defined(F_RDADVISE)
    struct radvisory part = {(off_t)offset, n && n < INT_MAX ? (int)n : INT_MAX};

    (void)fcntl((int)f->fd, F_RDADVISE, &part);
#elif defined(POSIX_FADV_WILLNEED)
    (void)posix_fadvise((int)f->fd, (off_t)offset, (off_t)n, POSIX_FADV_WILLNEED);
#else
    (void)f, (void)offset, (void)n;
#endif
}

void waste_file_drop(const waste_file *f, uint64_t offset, uint64_t n)
{
#if defined(POSIX_FADV_DONTNEED)
    (void)posix_fadvise((int)f->fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
#else
    (void)f, (void)offset, (void)n;
#endif
}

/* ---- paths -------------------------------------------------------------------- */

waste_status waste_path_stat(waste_path_info *out, const char *path, waste_error *err)
{
    struct stat st;

    if (stat(path, &st) != 0) return waste_plat_failed(err, "open", path);
#if defined(__APPLE__)
    out->modified_ns =
        (uint64_t)st.st_mtimespec.tv_sec * 1000000000u + (uint64_t)st.st_mtimespec.tv_nsec;
#else
    out->modified_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
#endif
    out->bytes = (uint64_t)st.st_size;
    out->id[0] = (uint64_t)st.st_dev;
    out->id[1] = (uint64_t)st.st_ino;
    out->is_file = S_ISREG(st.st_mode);
    out->is_dir = S_ISDIR(st.st_mode);
    return WASTE_OK;
}

waste_status waste_path_make_dir(const char *path, waste_error *err)
{
    if (mkdir(path, 0755) == 0 || (errno == EEXIST && waste_path_is_dir(path))) return WASTE_OK;
    return waste_plat_failed(err, "make directory", path);
}

waste_status waste_path_delete(const char *path, waste_error *err)
{
    return unlink(path) != 0 ? waste_plat_failed(err, "delete", path) : WASTE_OK;
}

size_t waste_path_root(const char *path)
{
    return path[0] == '/';
}

static waste_status not_absolute(const char *path, waste_error *err)
{
    return waste_fail(err, WASTE_IO, "%s: cannot make the path absolute", path);
}

waste_status waste_path_absolute(char out[WASTE_PATH_MAX], const char *path, waste_error *err)
{
    char here[WASTE_PATH_MAX] = "";

    if (path[0] == '/') {
        if (strlen(path) >= WASTE_PATH_MAX) return not_absolute(path, err);
        strcpy(out, path);
        return WASTE_OK;
    }
    if (!getcwd(here, sizeof here)) return not_absolute(path, err);
    while (path[0] == '.' && path[1] == '/')
        for (path++; *path == '/';) path++;
    return waste_path_join(out, WASTE_PATH_MAX, here, path, err);
}

waste_status waste_path_real(char out[WASTE_PATH_MAX], const char *path, waste_error *err)
{
    char *full = realpath(path, NULL);
    const int fits = full && strlen(full) < WASTE_PATH_MAX;

    if (fits) strcpy(out, full);
    free(full);
    return fits ? WASTE_OK : not_absolute(path, err);
}

int waste_path_free(const char *path, uint64_t *bytes)
{
#if defined(__APPLE__)
    struct statfs v; /* statvfs counts blocks in 32 bits there */

    if (statfs(path, &v) != 0) return -1;
    *bytes = (uint64_t)v.f_bavail * (uint64_t)v.f_bsize;
#else
    struct statvfs v;

    if (statvfs(path, &v) != 0) return -1;
    *bytes = (uint64_t)v.f_bavail * (uint64_t)v.f_frsize;
#endif
    return 0;
}

/* ---- directories ------------------------------------------------------------- */

int waste_dir_each(const char *dir, int (*each)(void *ctx, const char *path, uint64_t bytes),
                   void *ctx)
{
    char path[WASTE_PATH_MAX];
    DIR *d = opendir(dir);
    const struct dirent *e;
    struct stat st;
    int rc = 0;

    while (d && !rc && (e = readdir(d)) != NULL)
        if (waste_path_join(path, sizeof path, dir, e->d_name, NULL) == WASTE_OK &&
            lstat(path, &st) == 0 && S_ISREG(st.st_mode))
            rc = each(ctx, path, (uint64_t)st.st_size);
    if (d) closedir(d);
    return rc;
}

void waste_dir_remove(const char *path)
{
    rmdir(path);
}

void waste_dir_sync(const char *path)
{
    waste_file f = {open_retry(path, O_RDONLY | O_DIRECTORY, 0)};

    if (f.fd < 0) return;
    (void)waste_file_sync(&f, path, NULL); /* some file systems cannot sync a directory */
    waste_file_close(&f);
}

/* The directory may be removed and made again by its former owner between opening
 * and locking: only a lock on what the path names now counts. */
static int names(const char *path, int fd)
{
    struct stat mine, named;

    return fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_dev == named.st_dev &&
           mine.st_ino == named.st_ino;
}

/* flock() needs no write permission and no file that could be left behind, and ends
 * with the process whatever becomes of it. */
waste_status waste_dir_lock(intptr_t *lock, const char *path, waste_error *err)
{
    int fd, rc;

    for (;;) {
        *lock = WASTE_DIR_UNLOCKED;
        fd = open_retry(path, O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0) return waste_plat_failed(err, "open", path);
        do rc = flock(fd, LOCK_EX | LOCK_NB);
        while (rc != 0 && errno == EINTR);
        if (rc != 0 && errno == EWOULDBLOCK) {
            close(fd);
            return WASTE_BUSY;
        }
        *lock = fd;
        if (names(path, fd)) return WASTE_OK;
        close(fd);
    }
}

void waste_dir_unlock(intptr_t *lock, int shared)
{
    const int fd = (int)*lock;

    *lock = WASTE_DIR_UNLOCKED;
    if (fd < 0) return;
    if (!shared) flock(fd, LOCK_UN); /* a forked child may have a copy of fd */
    close(fd);
}

/* ---- time and memory -------------------------------------------------------------- */

uint64_t waste_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *waste_pages_map(size_t bytes, int for_reads)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) return NULL;
#if defined(MADV_HUGEPAGE)
    /* not for less: a large page that two share goes back when both are gone */
    if (bytes >= (size_t)4 << 20) (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
#if defined(MADV_DONTFORK)
    /* a page that is copied on write must not have a direct read on its way (open(2)) */
    if (for_reads) (void)madvise(p, bytes, MADV_DONTFORK);
#elif defined(VM_INHERIT_NONE)
    if (for_reads) (void)minherit(p, bytes, VM_INHERIT_NONE);
#endif
    return p;
}

void waste_pages_unmap(void *p, size_t bytes)
{
    /* a hole in the middle may be one mapping too many: the pages go back all the same */
    if (munmap(p, bytes)) (void)madvise(p, bytes, MADV_DONTNEED);
}

uint64_t waste_pages_physical(void)
{
#if defined(__APPLE__)
    uint64_t bytes = 0;
    size_t n = sizeof bytes;

    return sysctlbyname("hw.memsize", &bytes, &n, NULL, 0) == 0 && bytes ? bytes : UINT64_MAX;
#else
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
#endif
}
