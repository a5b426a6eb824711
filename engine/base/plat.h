/* What differs between operating systems: files, directories, memory, time. plat.c is
 * what all have in common, plat_posix.c is Linux and macOS, plat_win.c is Windows. Every
 * function may be called from any thread.
 *
 * Paths are UTF-8. On Windows both kinds of slash separate, paths that the system gives
 * have forward ones, and they may be longer than 260 characters. */
#ifndef WASTE_PLAT_H
#define WASTE_PLAT_H

#include <stdio.h>

#include "base/error.h"

typedef struct waste_file {
    intptr_t fd; /* descriptor, on Windows a HANDLE; 0 is a valid descriptor */
} waste_file;

#define WASTE_FILE_CLOSED (-1) /* not open */
#define WASTE_FILE_BLOCK  4096 /* what records are multiples of */

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
/* Write-only, from `offset` on; what is there stays. make: created if it is not there. */
waste_status waste_file_open_at(waste_file *f, const char *path, int make, uint64_t offset,
                                waste_error *err);
/* The same, every write going to the end of the file; created if it is not there. */
waste_status waste_file_append(waste_file *f, const char *path, waste_error *err);
/* The file, open for writing, ends at `size`; where writing goes on does not change. */
waste_status waste_file_cut(const waste_file *f, const char *path, uint64_t size, waste_error *err);
/* Data and, through rename, the name itself are on disk when these return. */
waste_status waste_file_sync(const waste_file *f, const char *path, waste_error *err);
waste_status waste_file_rename(const char *from, const char *to, waste_error *err);
/* For files of the system whose size is not known before they are read: a stream that
 * child processes do not inherit. NULL when it cannot be opened. */
FILE *waste_file_stream(const char *path);

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

#define WASTE_PATH_MAX 4096 /* bytes, the NUL among them */

#if defined(_WIN32)
#define WASTE_PATH_SEPARATORS "/\\"
#else
#define WASTE_PATH_SEPARATORS "/"
#endif

typedef struct waste_path_info {
    uint64_t bytes;       /* of a file */
    uint64_t modified_ns; /* last change, since 1970 */
    uint64_t id[2];       /* equal for two names of the same file or directory */
    int is_file, is_dir;
} waste_path_info;

/* Links are followed. */
waste_status waste_path_stat(waste_path_info *out, const char *path, waste_error *err);
int waste_path_exists(const char *path);
int waste_path_is_dir(const char *path);
waste_status waste_path_make_dir(const char *path, waste_error *err); /* fine when there */
waste_status waste_path_delete(const char *path, waste_error *err);   /* a file */
void waste_path_remove(const char *path);                             /* a file; errors ignored */
waste_status waste_path_identity(const char *path, uint64_t id[2], waste_error *err);
/* dir + "/" + name into out[0..cap); WASTE_ARG when too long. */
waste_status waste_path_join(char *out, size_t cap, const char *dir, const char *name,
                             waste_error *err);
/* How much of the text is the root, which has no parent: "/", "C:/", "//server/share/";
 * 0 for a relative path. */
size_t waste_path_root(const char *path);
/* As it is found from every directory. By its text alone: */
waste_status waste_path_absolute(char out[WASTE_PATH_MAX], const char *path, waste_error *err);
/* without links, of what is there: */
waste_status waste_path_real(char out[WASTE_PATH_MAX], const char *path, waste_error *err);
/* Bytes that this user may still write where `path`, which exists, lies; 0 on success. */
int waste_path_free(const char *path, uint64_t *bytes);

/* Calls each() for the plain files of a directory, links being none, until it returns
 * other than 0; what it did last. 0 too when the directory cannot be read. Files may be
 * removed by it. */
int waste_dir_each(const char *dir, int (*each)(void *ctx, const char *path, uint64_t bytes),
                   void *ctx);
void waste_dir_remove(const char *path); /* an empty one; errors ignored */
void waste_dir_sync(const char *path);   /* names in it are on disk; errors ignored */

/* Ownership of a directory, among all who ask in this way, of this process too, until
 * the process ends. Nothing is written. WASTE_BUSY when another owns it, with no message;
 * WASTE_IO when there is no such directory. Where locking is not possible it is granted. */
waste_status waste_dir_lock(intptr_t *lock, const char *path, waste_error *err);
/* Gives it up. shared: what a forked child has of its parent's, which keeps it. Sets
 * WASTE_DIR_UNLOCKED, and does nothing when it is that already. */
void waste_dir_unlock(intptr_t *lock, int shared);
#define WASTE_DIR_UNLOCKED (-1)

uint64_t waste_clock_ns(void); /* monotonic */

/* Zeroed pages of their own, from 4 MB on large ones where the system has them, never
 * locked. NULL when there is no room. for_reads: a forked child does not get them.
 * Allocations go through mem.h, which counts. */
void *waste_pages_map(size_t bytes, int for_reads);
void waste_pages_unmap(void *p, size_t bytes);
uint64_t waste_pages_physical(void); /* bytes that the machine has; UINT64_MAX: unknown */

#endif
