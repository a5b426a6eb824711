/* Where prompts begin alike: a table of prompts with one instruction before each row, a
 * system text before every question. What the second one shares with the first is
 * computed and kept, so that from the third on it is there (keep.c). Any thread. */
#ifndef WASTE_PREFIX_H
#define WASTE_PREFIX_H

#include "waste.h"

struct waste_prefix;

waste_status waste_prefix_open(struct waste_prefix **out, waste_error *err);
void waste_prefix_close(struct waste_prefix *p); /* NULL is fine */

/* A prompt of n tokens, of which `has` are computed already, comes by. Returns the
 * position at which its state is worth keeping: where a prompt seen lately goes another
 * way, if that is far enough from `has`; always before n. 0: nowhere. */
size_t waste_prefix_meet(waste_model *m, const int32_t *ids, size_t n, size_t has);

#endif
