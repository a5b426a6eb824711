/* Trunk tensors by handle. Names are resolved once, when the model opens: ask
 * for every tensor (_matrix, _vector), load them all with one call, then
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
    int tiled; /* data and scales were rearranged: rows are read from the file */
} waste_tensor;

typedef struct waste_tensors waste_tensors;

/* `m` must outlive the result. Nothing but the wanted tensors is ever read. */
waste_status waste_tensors_open(waste_tensors **out, const waste_manifest *m, waste_error *err);
/* Waits for reads of rows that were left behind. */
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

/* Rows of this matrix go through `arrange` when they are loaded. */
void waste_tensors_arrange(waste_tensors *t, const waste_tensor *x);

/* Rearranges rows of a matrix in place, as soon as they are there and before anyone else
 * sees them, and sets rows->tiled if it has: `rows` is the matrix of these rows alone,
 * which begin at a multiple of 64 in the whole one and are, but for the last, a multiple
 * of 64. Called by several threads, each with a number of its own. */
typedef void waste_tensors_arranger(void *ctx, int thread, waste_tensor *rows);

typedef struct waste_tensors_how {
    int threads;                     /* 1..WASTE_PROCESS_TEAM, that read and arrange */
    int buffered;                    /* all through the page cache, nothing past it */
    waste_tensors_arranger *arrange; /* may be NULL */
    void *ctx;
} waste_tensors_how;

/* Reads everything asked for, into one block in which every payload and every
 * array of scales is aligned to 64; *slot pointers given above are filled here.
 * `how` may be NULL: one thread. Once; asking for more afterwards is WASTE_ARG. */
waste_status waste_tensors_load(waste_tensors *t, const waste_tensors_how *how,
                                const waste_cancel *cancel, waste_error *err);

/* Rows rows[0..n) of a tensor that stayed on disk (or is resident), decoded to cols
 * floats each. WASTE_ARG when there is no such row. What the system has in memory is
 * taken from there; for the others the caller waits, asking `cancel` (may be NULL), and
 * leaves the reads behind when it is told to. Thread-safe. */
waste_status waste_tensors_rows(const waste_tensors *t, const waste_tensor *x, const int32_t *rows,
                                size_t n, float *to, const waste_cancel *cancel, waste_error *err);

#endif
