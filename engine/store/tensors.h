/* Trunk tensors by handle. Names are resolved once, when the model opens: ask
 * for every tensor with waste_tensors_want, load them all with one call, then
 * only handles are used. Immutable after loading; any thread may read. */
#ifndef WASTE_TENSORS_H
#define WASTE_TENSORS_H

#include "base/plat.h"
#include "store/manifest.h"

typedef struct waste_tensor {
    const char *name; /* borrowed from the manifest */
    waste_fmt fmt;
    int64_t rows, cols, group, n_groups; /* n_groups: per row; 0 for F32 */
    int64_t row_bytes;                   /* stride of one row of the payload */
    const void *data;                    /* NULL: on disk, read by row */
    const uint16_t *scales;              /* rows * n_groups f16, little-endian as stored */
    uint64_t off, scale_off;
    int tiled; /* data and scales were rearranged: waste_tensors_change */
} waste_tensor;

typedef struct waste_tensors waste_tensors;

/* `m` must outlive the result. Nothing but the wanted tensors is ever read. */
waste_status waste_tensors_open(waste_tensors **out, const waste_manifest *m, waste_error *err);
void waste_tensors_close(waste_tensors *t);

/* A matrix of exactly [rows, cols], in any trunk format. The handle is filled
 * now and its data by waste_tensors_load; the pointer stays valid until close.
 * A missing tensor or another shape is WASTE_FORMAT naming tensor and shapes.
 * on_disk: a quantised tensor stays in the file (embedding table). */
waste_status waste_tensors_matrix(waste_tensors *t, const char *name, int64_t rows, int64_t cols,
                                  int on_disk, const waste_tensor **out, waste_error *err);
/* At least n elements stored F32, any dimensionality; `exactly` refuses more. */
waste_status waste_tensors_vector(waste_tensors *t, const char *name, int64_t n, int exactly,
                                  const float **slot, waste_error *err);
/* Whether the manifest has it. */
int waste_tensors_has(const waste_tensors *t, const char *name);

/* Reads everything asked for, into one block in which every payload and every
 * array of scales is aligned to 64; *slot pointers given above are filled here.
 * Once; asking for more afterwards is WASTE_ARG. */
waste_status waste_tensors_load(waste_tensors *t, waste_error *err);

/* The handle again, by someone who rearranges the bytes of a loaded matrix and
 * says so in `tiled`; its rows are read from the file from then on. Before any
 * other thread has the handle. */
waste_tensor *waste_tensors_change(waste_tensors *t, const waste_tensor *x);

/* Row `row` of a tensor that stayed on disk (or is resident), decoded to cols
 * floats. WASTE_ARG when there is no such row. Thread-safe. */
waste_status waste_tensors_row(const waste_tensors *t, const waste_tensor *x, int64_t row,
                               float *to, waste_error *err);

#endif
