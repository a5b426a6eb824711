/* The rank file: which byte strings are tokens, and their ids
 * (docs/format.md 8.1). Immutable after opening; any thread may read it. */
#ifndef WASTE_RANKS_H
#define WASTE_RANKS_H

#include "base/error.h"

#define WASTE_RANKS_MAX  (1 << 24) /* ids are below this */
#define WASTE_RANKS_NONE (-1)

typedef struct waste_ranks waste_ranks;

/* Reads the file at `path`: lines of base64, one space and a decimal id below
 * both n_vocab and WASTE_RANKS_MAX. Lines without a space are skipped. Where an
 * id stands twice the first line counts and the others are no tokens; bytes
 * with two ids are encoded as the lower one. Anything else is WASTE_FORMAT,
 * naming file and line. */
waste_status waste_ranks_open(waste_ranks **out, const char *path, int64_t n_vocab,
                              waste_error *err);
void waste_ranks_close(waste_ranks *r); /* NULL is fine */

/* Highest id + 1. */
int32_t waste_ranks_count(const waste_ranks *r);

/* Id of the token with exactly these bytes, n >= 1, or WASTE_RANKS_NONE. */
int32_t waste_ranks_find(const waste_ranks *r, const char *bytes, size_t n);

/* Bytes of a token, borrowed; NULL when no line has this id. */
const char *waste_ranks_bytes(const waste_ranks *r, int32_t id, size_t *n);

#endif
