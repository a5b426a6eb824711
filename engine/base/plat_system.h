/* What plat.c asks of plat_posix.c and plat_win.c, besides the functions of plat.h that
 * are theirs alone. */
#ifndef WASTE_PLAT_SYSTEM_H
#define WASTE_PLAT_SYSTEM_H

#include "base/plat.h"

/* One transfer of at most n bytes, n at most WASTE_PLAT_MOST: how many it was, 0 at the
 * end of the file, or -1, when waste_plat_reason says why. An interrupted one is begun
 * again. Reads may be concurrent. */
#define WASTE_PLAT_MOST ((size_t)1 << 30)
int64_t waste_plat_read(const waste_file *f, void *to, size_t n, uint64_t offset);
int64_t waste_plat_write(const waste_file *f, const void *from, size_t n);

/* The system's words for what failed last on this thread. */
#define WASTE_PLAT_REASON 256
const char *waste_plat_reason(char text[WASTE_PLAT_REASON]);

/* WASTE_IO: "cannot <what> <path>: <reason>". */
waste_status waste_plat_failed(waste_error *err, const char *what, const char *path);

/* Whether the file, opened past the page cache, can be read that way: a file system may
 * take the flag and refuse the transfer. Reads the first `bytes`. */
waste_status waste_plat_probe(const waste_file *f, const char *path, size_t bytes, int *reads,
                              waste_error *err);

#endif
