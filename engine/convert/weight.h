/* The weights of a checkpoint: a plain tensor, fp8 values X with their scales
 * X_scale_inv, or an MXFP4 pair X_packed and X_scale (docs/convert.md 2); in any case
 * read as rows of floats. One thread at a time per source. */
#ifndef WASTE_WEIGHT_H
#define WASTE_WEIGHT_H

#include "base/json.h"
#include "convert/safetensors.h"

#define WASTE_WEIGHT_DIMS 4

struct waste_source; /* source.h */

typedef struct waste_weight {
    const waste_st_tensor *tensor; /* plain, fp8, or the packed nibbles */
    const waste_st_tensor *scale;  /* of fp8 or of packed nibbles; NULL: plain */
    int dims;                      /* 1..WASTE_WEIGHT_DIMS */
    int64_t shape[WASTE_WEIGHT_DIMS];
    int64_t rows, cols; /* cols: last axis; rows: product of the others */
} waste_weight;

/* What reading needs of its source: the size of fp8 blocks, and buffers. */
typedef struct waste_weight_reader {
    int64_t block_rows, block_cols; /* that share a scale */
    unsigned char *raw;             /* bytes as they are in the shard */
    size_t raw_cap;
    float *scales; /* of the blocks that are being decoded */
    size_t scales_cap;
} waste_weight_reader;

/* *r is zeroed; `path` of the configuration is for messages. */
waste_status waste_weight_reader_init(waste_weight_reader *r, const waste_json *config,
                                      const char *path, waste_error *err);
void waste_weight_reader_clear(waste_weight_reader *r);

/* The weight `name`. WASTE_FORMAT when it is absent, has a dimension of zero or
 * too many of them, or the parts of a pair do not fit; WASTE_UNSUPPORTED naming
 * tensor and dtype for a dtype that cannot be decoded. */
waste_status waste_weight_find(const struct waste_source *s, const char *name, waste_weight *out,
                               waste_error *err);

/* Rows [first, first + n) as n * cols floats. A weight that is not finite is
 * WASTE_FORMAT naming the tensor. */
waste_status waste_weight_rows(struct waste_source *s, const waste_weight *w, int64_t first,
                               int64_t n, float *to, waste_error *err);

#endif
