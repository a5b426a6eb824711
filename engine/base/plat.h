/* What differs between operating systems: files, time. plat_posix.c is the
 * POSIX side. Every function may be called from any thread. */
#ifndef WASTE_PLAT_H
#define WASTE_PLAT_H

#include "base/error.h"

typedef struct waste_file {
    int fd; /* WASTE_FILE_CLOSED when not open; 0 is a valid descriptor */
} waste_file;

#define WASTE_FILE_CLOSED (-1)

/* Read-only, close-on-exec, a regular file or an error that names the path. */
waste_status waste_file_open(waste_file *f, const char *path, waste_error *err);
/* Write-only, created or truncated. */
waste_status waste_file_create(waste_file *f, const char *path, waste_error *err);
void waste_file_close(waste_file *f); /* fine when closed; sets WASTE_FILE_CLOSED */
waste_status waste_file_size(const waste_file *f, const char *path, uint64_t *size,
                             waste_error *err);

/* Exactly n bytes at `offset`: short reads and EINTR are retried, the end of the
 * file is an error. `path` is for the message only. */
waste_status waste_file_read(const waste_file *f, const char *path, void *to, size_t n,
                             uint64_t offset, waste_error *err);
/* 1 when all n bytes are in the system's memory, from where they have been copied; 0
 * when that would take waiting, or the system cannot tell. */
int waste_file_read_now(const waste_file *f, void *to, size_t n, uint64_t offset);
waste_status waste_file_write(const waste_file *f, const char *path, const void *from, size_t n,
                              waste_error *err);
/* Data and, through rename, the name itself are on disk when these return. */
waste_status waste_file_sync(const waste_file *f, const char *path, waste_error *err);
waste_status waste_file_rename(const char *from, const char *to, waste_error *err);

/* As waste_file_open, past the page cache where the file's device and system can:
 * decided by really reading the first `bytes` of it, a multiple of 4096, if it has
 * that many. *direct says whether it is; otherwise reads are buffered, without
 * reading ahead. `want` 0: buffered from the start. */
waste_status waste_file_open_direct(waste_file *f, const char *path, size_t bytes, int want,
                                    int *direct, waste_error *err);
/* As waste_file_read, in a way that both kinds of file allow: `to`, n and offset
 * are multiples of 4096, and a read cut short goes on at such a place. */
waste_status waste_file_read_blocks(const waste_file *f, const char *path, void *to, size_t n,
                                    uint64_t offset, waste_error *err);
/* Hints about a buffered file, which never fail: bytes that will be read soon, and
 * bytes that the page cache need not keep. n = 0: to the end of the file. */
void waste_file_ahead(const waste_file *f, uint64_t offset, uint64_t n);
void waste_file_drop(const waste_file *f, uint64_t offset, uint64_t n);

/* A whole file of at most `max` bytes, with a NUL after it; free with
 * waste_mem_free. WASTE_IO when missing or larger. */
waste_status waste_file_load(const char *path, uint64_t max, char **data, size_t *bytes,
                             waste_error *err);
/* Writes name.tmp, syncs and renames: the file is whole or absent. */
waste_status waste_file_publish(const char *path, const void *data, size_t bytes, waste_error *err);

int waste_path_exists(const char *path);
int waste_path_is_dir(const char *path);
waste_status waste_path_make_dir(const char *path, waste_error *err); /* fine when there */
void waste_path_remove(const char *path);                             /* a file; errors ignored */
waste_status waste_path_identity(const char *path, uint64_t id[2], waste_error *err);
/* dir + "/" + name into out[0..cap); WASTE_ARG when too long. */
waste_status waste_path_join(char *out, size_t cap, const char *dir, const char *name,
                             waste_error *err);

#define WASTE_PATH_MAX 4096

uint64_t waste_clock_ns(void); /* monotonic */

/* Zeroed pages of their own, large ones where the system has them, never locked;
 * a forked child does not get them. NULL when there is no room. Allocations go
 * through waste_mem_region, which counts. */
void *waste_pages_map(size_t bytes);
void waste_pages_unmap(void *p, size_t bytes);

#endif
