/* What a conversion asks of the file system beyond plat.h: sizes and times, free
 * space, moving and removing whole directories of plain files, ownership of a
 * directory. Any thread. */
#ifndef WASTE_DISK_H
#define WASTE_DISK_H

#include "base/error.h"
#include "base/plat.h"

/* Size and time of the last change (nanoseconds since 1970) of a file. */
waste_status waste_disk_stat(const char *path, uint64_t *bytes, uint64_t *mtime, waste_error *err);
/* Size of a file; 0 when there is none. */
uint64_t waste_disk_size(const char *path);

/* Bytes that may still be written where `path` lies, or would lie; UINT64_MAX when
 * the system does not say. */
uint64_t waste_disk_free(const char *path);

/* Sum of the sizes of the files in a directory; 0 when there is none. */
uint64_t waste_disk_dir_bytes(const char *dir);

/* Removes the plain files in `dir` and `dir` itself; what else it holds stays, and so
 * does `dir` then. Errors are ignored. */
void waste_disk_remove_dir(const char *dir);
/* The same without `dir` itself and the file `but`. */
void waste_disk_remove_others(const char *dir, const char *but);
/* The same for a directory that has to be empty. */
void waste_disk_remove_empty(const char *dir);
/* Whether `dir` has a plain file whose name ends so. */
int waste_disk_any(const char *dir, const char *end);
/* What was created, renamed or removed in `dir` is on disk; errors are ignored. */
void waste_disk_sync_dir(const char *dir);

/* The absolute directory `path` lies in, by its text: "." where it has none. */
void waste_disk_parent(char *out, size_t cap, const char *path);

/* Opens a file that is there for writing behind its first `keep` bytes; what follows
 * them is cut off. */
waste_status waste_disk_reopen(waste_file *f, const char *path, uint64_t keep, waste_error *err);
/* Writes at an offset of a file, which is created if need be. Not synced. */
waste_status waste_disk_write_at(const char *path, uint64_t offset, const void *data, size_t n,
                                 waste_error *err);
/* Appends a line to a file, synced. */
waste_status waste_disk_append_line(const char *path, const char *line, waste_error *err);

/* Deletes one file and says whether it worked. */
waste_status waste_disk_delete(const char *path, waste_error *err);

/* Ownership of a directory among all conversions, of this process too: held by an
 * open descriptor, so it ends with the process. WASTE_BUSY when it is owned. */
waste_status waste_disk_own(int *fd, const char *dir, waste_error *err);
void waste_disk_disown(int *fd); /* -1: nothing */

#endif
