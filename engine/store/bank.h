/* Expert banks: one file per MoE layer, whole records read with one positional
 * read, every header checked on every read. Thread-safe after opening. */
#ifndef WASTE_BANK_H
#define WASTE_BANK_H

#include "store/manifest.h"

typedef struct waste_banks waste_banks;

/* What the configuration says about the experts. */
typedef struct waste_bank_shape {
    int layers;    /* of the model */
    int first_moe; /* layers below are dense; == layers when there are no experts */
    int experts;   /* per MoE layer */
    int64_t width; /* rows of gate and up (I) */
    int64_t input; /* their columns, and rows of down (W) */
} waste_bank_shape;

/* Opens every bank file and reads codebooks.bin into f32. */
waste_status waste_banks_open(waste_banks **out, const waste_manifest *m,
                              const waste_bank_shape *shape, int verify, waste_error *err);
void waste_banks_close(waste_banks *b);
/* Largest record of all banks: the size of a cache slot. 0 without experts. */
uint64_t waste_banks_slot_bytes(const waste_banks *b);

/* Reads and checks record (layer, expert) into `to`, which has room for
 * slot_bytes and is aligned to 4096. Errors name file, layer and expert. */
waste_status waste_banks_read(const waste_banks *b, int layer, int expert, void *to,
                              waste_error *err);
const waste_bank_shape *waste_banks_shape(const waste_banks *b);
uint64_t waste_banks_record_bytes(const waste_banks *b, int layer);

/* Codebook of stage s of matrix `kind` (0 gate, 1 up, 2 down) of a layer:
 * [entries][vec_dim] floats. Borrowed. */
const float *waste_banks_codebook(const waste_banks *b, int layer, int kind, int stage);

#endif
