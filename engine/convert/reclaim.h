/* Deleting the shards of a checkpoint as soon as everything in them is in the
 * container, so that the two need not lie side by side (docs/convert.md 9). Every
 * tensor has one reader: the trunk pass, or the bank of its layer. A shard is spent
 * when all readers of its tensors are finished. Deleting cannot be undone. */
#ifndef WASTE_RECLAIM_H
#define WASTE_RECLAIM_H

#include "convert/names.h"

typedef enum waste_reclaim_mode {
    WASTE_RECLAIM_OFF, /* only knows which shards are gone */
    WASTE_RECLAIM_DRY, /* counts */
    WASTE_RECLAIM_ON
} waste_reclaim_mode;

typedef struct waste_reclaim waste_reclaim;

/* "off" (NULL means it), "dry" or "on"; nonzero for anything else. */
int waste_reclaim_parse(const char *name, waste_reclaim_mode *mode);

/* `s` and `c` are borrowed. WASTE_FORMAT when a shard is gone and the ledger of the
 * source (.reclaimed) does not have it. */
waste_status waste_reclaim_open(waste_reclaim **out, const waste_source *s, const waste_settings *c,
                                waste_reclaim_mode mode, waste_error *err);
void waste_reclaim_close(waste_reclaim *r);

/* WASTE_FORMAT when `reader` (WASTE_NAMES_TRUNK or a layer), which is still to be
 * done, needs a shard that is gone; names it. */
waste_status waste_reclaim_needs(const waste_reclaim *r, int reader, waste_error *err);

/* `reader` is finished and what it wrote is on disk. Shards that are spent now are
 * deleted: the header is kept in `work`, the ledger is written, then the file goes.
 * *n counts them, *bytes adds up their sizes; *note is empty, or says which could not
 * be deleted, which stops nothing. Failing to keep header or ledger is an error. */
waste_status waste_reclaim_done(waste_reclaim *r, int reader, const char *work, int *n,
                                uint64_t *bytes, char note[200], waste_error *err);

/* Bytes of the shards that `reader` would be the last to release, if readers finish
 * in the order asked: the same bookkeeping without touching anything. */
uint64_t waste_reclaim_would(waste_reclaim *r, int reader);

#endif
