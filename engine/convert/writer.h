/* A container directory being filled. All work is done in DIR/.convert: a file is
 * written there as NAME.tmp, synced and renamed, so what has its name is whole. When
 * everything is there, waste_writer_publish moves it to DIR, manifest.json last.
 * Until then a container that was in DIR stays as it is. A conversion that ended
 * early, however, is taken up again from what .convert holds (docs/convert.md 8).
 * One thread at a time; one conversion to a directory at a time. */
#ifndef WASTE_WRITER_H
#define WASTE_WRITER_H

#include "base/error.h"
#include "base/plat.h"

typedef struct waste_writer waste_writer;

/* Touches nothing on disk. WASTE_ARG when `dir` is no directory, its parent is none,
 * or `dir` and the directory `source` are one or lie one inside the other, whatever
 * paths lead there; and when `dir` holds a manifest and `overwrite` is not set,
 * unless a publication was cut short there. */
waste_status waste_writer_open(waste_writer **out, const char *dir, const char *source,
                               int overwrite, waste_error *err);

/* Makes the directories, takes ownership of them (WASTE_BUSY when another conversion
 * has it) and looks at what is there. `job` describes source and options: work of
 * the same job is continued. Work of another is removed when there is nothing of
 * value in it, or with `overwrite`; otherwise, or when shards of its source were
 * reclaimed, it is WASTE_ARG. */
waste_status waste_writer_start(waste_writer *w, const char *job, size_t n, waste_error *err);
/* What start would fail with, as far as that can be told without touching anything. */
waste_status waste_writer_look(const waste_writer *w, const char *job, size_t n, waste_error *err);
/* After start: everything was complete, and only the publication is to be finished. */
int waste_writer_is_publishing(const waste_writer *w);

/* Whether the finished file `name` is in the working directory with `bytes` bytes
 * (UINT64_MAX: with any number). */
int waste_writer_finished(const waste_writer *w, const char *name, uint64_t bytes);
/* Path in the working directory; `tmp`: while it is being written. */
waste_status waste_writer_path(const waste_writer *w, const char *name, int tmp, char *out,
                               waste_error *err);
/* The working directory; it holds a whole container before the publication. */
const char *waste_writer_work(const waste_writer *w);
const char *waste_writer_dir(const waste_writer *w);

/* One file at a time: begin opens NAME.tmp and keeps its first `keep` bytes, put
 * appends, end syncs and renames. `name` is a plain file name. */
waste_status waste_writer_begin(waste_writer *w, const char *name, uint64_t keep, waste_error *err);
waste_status waste_writer_put(waste_writer *w, const void *data, size_t n, waste_error *err);
waste_status waste_writer_end(waste_writer *w, waste_error *err);
/* The three of them. */
waste_status waste_writer_file(waste_writer *w, const char *name, const void *data, size_t n,
                               waste_error *err);
/* Removes a finished file again. */
void waste_writer_drop(waste_writer *w, const char *name);

/* Whether the container itself has a file `name` now, from before. */
int waste_writer_has(const waste_writer *w, const char *name);
uint64_t waste_writer_bytes(const waste_writer *w); /* put so far */

/* The job is complete: what follows only moves files, and is finished by the next
 * conversion if it is cut short. The old manifest goes, the files named take their
 * places (those already there are skipped), files of an earlier container that this
 * one does not have go, manifest.json appears, and the working directory is removed. */
waste_status waste_writer_publish(waste_writer *w, const char *const *names, size_t n,
                                  waste_error *err);

/* What is finished stays for the next time. When nothing is, what was made here is
 * removed. */
void waste_writer_close(waste_writer *w);

#endif
