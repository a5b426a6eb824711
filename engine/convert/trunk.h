/* The trunk of a container to be: which tensors of the checkpoint it holds, under
 * which names, in which format (docs/convert.md 4, 5 and 7.4), and their encoding. */
#ifndef WASTE_TRUNK_H
#define WASTE_TRUNK_H

#include "convert/convert.h"
#include "convert/settings.h"
#include "convert/source.h"
#include "convert/vq_pool.h"
#include "convert/writer.h"

#define WASTE_TRUNK_GROUP 128
#define WASTE_TRUNK_NAME  128 /* bytes of a name with its NUL: docs/format.md 2.4 */

typedef struct waste_trunk_item {
    char name[WASTE_TRUNK_NAME]; /* in the container */
    waste_weight weight;
    waste_fmt fmt;
    int dims; /* as recorded: vision tensors are flattened */
    int64_t shape[WASTE_WEIGHT_DIMS];
    int64_t rows, cols;
    uint64_t off, scale_off, bytes; /* in trunk.bin */
} waste_trunk_item;

typedef struct waste_trunk {
    waste_trunk_item *item; /* ascending name */
    size_t n;
    uint64_t bytes; /* of trunk.bin */
} waste_trunk;

/* Lists and checks; reads no weight. `matrix` is the format of ordinary matrices.
 * A zeroed or cleared *out. */
waste_status waste_trunk_list(waste_trunk *out, const waste_source *s, const waste_settings *c,
                              waste_fmt matrix, waste_error *err);
void waste_trunk_clear(waste_trunk *t);
const waste_trunk_item *waste_trunk_find(const waste_trunk *t, const char *name);

/* Whether a tensor of the checkpoint, or what it is a scale of, belongs to the trunk. */
int waste_trunk_takes(const char *name, const waste_settings *c);

/* Appends the tensor's payload and scales to the file that `w` has open, in which it
 * is next, and adds to the loss. The bytes do not depend on the number of threads. */
waste_status waste_trunk_write(const waste_trunk_item *t, waste_source *s, waste_vq_pool *pool,
                               waste_writer *w, waste_convert_loss *loss,
                               const waste_cancel *cancel, waste_error *err);

#endif
