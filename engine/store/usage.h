/* The hotlist: which records were wanted, on disk (usage.waste, docs/format.md 7)
 * and in order. A hint, so reading one has no errors. Pure but for the file. */
#ifndef WASTE_STORE_USAGE_H
#define WASTE_STORE_USAGE_H

#include "store/bank.h"

#define WASTE_USAGE_NAME "usage.waste" /* inside a container */

/* Rows of the file that name a record of this shape, in order; 0 and NULL when
 * there is none: the file is absent, cannot be read, or is something else. An
 * entry cut short at the end and entries without hits are not counted. Free
 * *rows with waste_mem_free. */
size_t waste_usage_read(waste_usage_row **rows, const char *path, const waste_bank_shape *shape);

/* Replaces the file as a whole; rows have been put in order. `clock` is the
 * number of cache accesses of this run. A file that is there and is no hotlist
 * is not touched (WASTE_ARG): a path out of somebody else's settings must not
 * cost anyone a file. */
waste_status waste_usage_write(const char *path, const waste_usage_row *rows, size_t n,
                               uint64_t clock, waste_error *err);

/* Hits descending, then layer, then expert ascending. */
void waste_usage_sort(waste_usage_row *rows, size_t n);

#endif
