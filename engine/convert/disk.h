/* What a conversion asks of the file system, over plat.h: sizes and times, free
 * space, whole directories of plain files, ownership of a directory. Any thread. */
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
/* Whether `dir` has a plain file whose name ends so. */
int waste_disk_any(const char *dir, const char *end);

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

/* Ownership of a directory among all conversions, of this process too (waste_dir_lock).
 * WASTE_BUSY when it is owned. */
waste_status waste_disk_own(intptr_t *lock, const char *dir, waste_error *err);
void waste_disk_disown(intptr_t *lock); /* WASTE_DIR_UNLOCKED: nothing */

#endif
