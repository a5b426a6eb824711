/* 8-bit floating point of checkpoints (docs/convert.md 2.1): one byte a weight, one
 * scale a block of rows and columns. No state. */
#ifndef WASTE_FP8_H
#define WASTE_FP8_H

#include "convert/safetensors.h"

/* What one byte stands for. `dtype` is F8_E4M3 (no infinities; 0x7F and 0xFF are
 * NaN) or F8_E5M2 (IEEE's rules). */
float waste_fp8_value(waste_dtype dtype, unsigned char byte);

/* Rows [first, first + n) of a matrix with `cols` columns: value times the scale of
 * the block the weight lies in. scale: [blocks of rows from first / block_rows on]
 * [ceil(cols / block_cols)]. */
void waste_fp8_decode(waste_dtype dtype, const unsigned char *raw, int64_t first, int64_t n,
                      int64_t cols, const float *scale, int64_t block_rows, int64_t block_cols,
                      float *to);

#endif
