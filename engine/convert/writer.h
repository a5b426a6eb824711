/* A container directory being filled. Every file is written as name.tmp and
 * synced; nothing that a reader opens changes before waste_writer_publish, which
 * renames all of them and puts manifest.json last. Until then a container that
 * was there before stays valid. One thread at a time. */
#ifndef WASTE_WRITER_H
#define WASTE_WRITER_H

#include "base/error.h"

typedef struct waste_writer waste_writer;

/* Touches nothing on disk. WASTE_ARG when `dir` holds a manifest and `overwrite`
 * is not set, is no directory, its parent is none, or `dir` and the directory
 * `source` are one or lie one inside the other, whatever paths lead there. */
waste_status waste_writer_open(waste_writer **out, const char *dir, const char *source,
                               int overwrite, waste_error *err);

/* One file at a time: begin makes the directory if need be and name.tmp, end
 * syncs it. `name` is a plain file name. */
waste_status waste_writer_begin(waste_writer *w, const char *name, waste_error *err);
waste_status waste_writer_put(waste_writer *w, const void *data, size_t n, waste_error *err);
waste_status waste_writer_end(waste_writer *w, waste_error *err);
/* The three of them. */
waste_status waste_writer_file(waste_writer *w, const char *name, const void *data, size_t n,
                               waste_error *err);

/* Whether the container has a file `name` now, from before. */
int waste_writer_has(const waste_writer *w, const char *name);
uint64_t waste_writer_bytes(const waste_writer *w); /* put so far */

/* The old manifest goes, the files take their names, files of an earlier
 * container that this one does not have go, and manifest.json appears. */
waste_status waste_writer_publish(waste_writer *w, const void *manifest, size_t n,
                                  waste_error *err);

/* Unless published: removes what was written, and the directory if it was made
 * here and is empty. */
void waste_writer_close(waste_writer *w);

#endif
