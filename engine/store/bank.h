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

/* How to read: flags of waste_banks_open. */
#define WASTE_BANKS_VERIFY   1 /* check each record's crc32 when it is read */
#define WASTE_BANKS_BUFFERED 2 /* through the page cache, not past it */

/* Opens every bank file and reads the codebooks that the layers refer to into
 * f32. `m` must outlive the result; `shape` is copied and has passed
 * waste_config_read against it. A bank that is shorter than its records is
 * refused here (WASTE_FORMAT, naming file and layer). Each is read past the page
 * cache if one real read of a record shows that it can be, otherwise through it.
 * `cancel` (may be NULL) is asked before each. */
waste_status waste_banks_open(waste_banks **out, const waste_manifest *m,
                              const waste_bank_shape *shape, unsigned flags,
                              const waste_cancel *cancel, waste_error *err);
void waste_banks_close(waste_banks *b);
/* Largest record of all banks: the size of a cache slot. 0 without experts. */
uint64_t waste_banks_slot_bytes(const waste_banks *b);

/* Reads and checks record (layer, expert) into `to`, which has room for
 * slot_bytes and is aligned to 4096. Its header is what waste_record_check
 * wants, so every offset lies where the layout says. Errors name file, layer and
 * expert: WASTE_IO for the record, WASTE_ARG when there is no such expert. */
waste_status waste_banks_read(const waste_banks *b, int layer, int expert, void *to,
                              waste_error *err);
/* Every record read from now on passes through `pack` after all checks, on the
 * thread that reads, before anyone else sees it: kernels may want its bytes in
 * another order. Set while nothing reads. */
typedef void waste_bank_pack(void *ctx, void *record);
void waste_banks_pack(waste_banks *b, waste_bank_pack *pack, void *ctx);
/* How many banks are read past the page cache, and how many through it. */
void waste_banks_modes(const waste_banks *b, int *direct, int *buffered);

/* Tests: before every read `fault` is called by the thread that reads; what it
 * returns, if not WASTE_OK, is the result, and the bytes are junk. Set while
 * nothing reads. */
typedef waste_status waste_bank_fault(void *ctx, int layer, int expert, waste_error *err);
void waste_banks_fault(waste_banks *b, waste_bank_fault *fault, void *ctx);

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
