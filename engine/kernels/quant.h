/* Block formats of the trunk, a row at a time, and f16. Formulas: docs/format.md
 * (docs/format.md 3.1 and 4.1, docs/convert.md 5). No state; cannot fail. */
#ifndef WASTE_QUANT_H
#define WASTE_QUANT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "store/format.h"

/* IEEE binary16, subnormals and infinities included. */
float waste_f16_to_f32(uint16_t h);
uint16_t waste_f32_to_f16(float f); /* round to nearest even; overflow gives infinity */

/* The upper half of an f32. Here, so that a loop of it has no calls. */
static inline float waste_bf16_to_f32(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* n values. Finite ones beyond the largest of f16 become that, 65504: what is kept
 * must not turn into an infinity. */
void waste_f16_narrow(const float *x, size_t n, uint16_t *to);
void waste_f16_widen(const uint16_t *h, size_t n, float *to); /* exact */

/* Bytes of one row of `cols` weights in groups of `group`; 4 * cols for F32. */
int64_t waste_quant_row_bytes(waste_fmt fmt, int64_t cols, int64_t group);

/* cols weights as floats: exactly scale * code, which f32 represents exactly.
 * scales: one f16 per group, little-endian bytes at any alignment. */
void waste_quant_decode_row(waste_fmt fmt, const void *row, const void *scales, int64_t cols,
                            int64_t group, float *to);

/* The converter's side: Q8G, Q4G or Q3G of one row. */
void waste_quant_encode_row(waste_fmt fmt, const float *w, int64_t cols, int64_t group, void *row,
                            uint16_t *scales);

#endif
