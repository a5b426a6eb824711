/* Expert banks: one file per MoE layer, whole records read with one positional
 * read, every header checked on every read. Thread-safe after opening. */
#ifndef WASTE_BANK_H
#define WASTE_BANK_H

#include "store/record.h"

typedef struct waste_banks waste_banks;

/* What the configuration says about the experts. */
typedef struct waste_bank_shape {
    int layers;    /* of the model */
    int first_moe; /* layers below are dense; == layers when there are no experts */
    int experts;   /* per MoE layer */
    int64_t width; /* rows of gate and up (I) */
    int64_t input; /* their columns, and rows of down (W) */
} waste_bank_shape;

/* Opens every bank file and reads the codebooks that the layers refer to into
 * f32. `m` must outlive the result; `shape` is copied and has passed
 * waste_config_read against it. A bank that is shorter than its records is
 * refused here (WASTE_FORMAT, naming file and layer). verify: each record's
 * crc32 is checked when it is read. */
waste_status waste_banks_open(waste_banks **out, const waste_manifest *m,
                              const waste_bank_shape *shape, int verify, waste_error *err);
void waste_banks_close(waste_banks *b);
/* Largest record of all banks: the size of a cache slot. 0 without experts. */
uint64_t waste_banks_slot_bytes(const waste_banks *b);

/* Reads and checks record (layer, expert) into `to`, which has room for
 * slot_bytes and is aligned to 4096. Its header is what waste_record_check
 * wants, so every offset lies where the layout says. Errors name file, layer and
 * expert: WASTE_IO for the record, WASTE_ARG when there is no such expert. */
waste_status waste_banks_read(const waste_banks *b, int layer, int expert, void *to,
                              waste_error *err);
const waste_bank_shape *waste_banks_shape(const waste_banks *b);
/* 0 and NULL for a layer without a bank. */
uint64_t waste_banks_record_bytes(const waste_banks *b, int layer);
const waste_record_layout *waste_banks_layout(const waste_banks *b, int layer);

/* Codebook of stage s of matrix `kind` (0 gate, 1 up, 2 down) of a layer:
 * [n][vec_dim] floats, aligned to 64, where n is as many as an index can name:
 * 256 with one-byte indices, 64 with packed ones. Entries that the container does
 * not have (expert_quant.entries < 256) are zero: no index, whatever the record
 * holds, reaches past the array. The stages of a kind follow one another, and so
 * do the kinds: book (k, s) starts (k * stages + s) * n * vec_dim floats after book
 * (0, 0). NULL for a layer without a bank. Borrowed. */
const float *waste_banks_codebook(const waste_banks *b, int layer, int kind, int stage);

#endif
