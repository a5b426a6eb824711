/* One expert record: where its parts are, and whether its header is what the
 * manifest promised. Pure functions; writer and reader share them. */
#ifndef WASTE_RECORD_H
#define WASTE_RECORD_H

#include "store/manifest.h"

/* Sizes and offsets of a record's parts (docs/format.md 5.6). width: rows of gate
 * and up (I); input: their columns (W). Both are multiples of vec_dim. */
typedef struct waste_record_layout {
    uint64_t gate_off, up_off, down_off, scale_off, scale_end, bytes;
} waste_record_layout;

void waste_record_layout_of(waste_record_layout *l, const waste_quant *q, int64_t width,
                            int64_t input);

/* Byte position of (row, vector) inside a matrix of n_vectors per row. */
uint64_t waste_record_index_pos(const waste_quant *q, int64_t n_vectors, int64_t row,
                                int64_t vector);

/* The checks of docs/format.md 5.7 that cost O(1), offsets compared exactly. The
 * error names `file`, layer, expert and the field. */
waste_status waste_record_check(const waste_record_header *h, const waste_record_layout *l,
                                const waste_quant *q, int layer, int expert, int codebook_base,
                                uint64_t stride, const char *file, waste_error *err);

uint32_t waste_record_crc(const void *record, const waste_record_layout *l);

#endif
