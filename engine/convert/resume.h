/* What an interrupted conversion left of a layer's bank, and whether it can be used.
 * Nothing is believed that cannot be checked: headers byte for byte, payloads by
 * their checksum. */
#ifndef WASTE_RESUME_H
#define WASTE_RESUME_H

#include "base/buf.h"
#include "convert/convert.h"
#include "store/record.h"

#define WASTE_RESUME_KINDS 3

/* Which records a bank has to have. */
typedef struct waste_resume_bank {
    const waste_record_layout *layout;
    const waste_quant *quant;
    waste_fmt fmt;
    int layer, experts, codebook_base;
} waste_resume_bank;

/* What encoding one record lost, by kind, and which record it was: one entry an
 * expert in NAME.loss beside the bank, so that errors are known after a restart. */
typedef struct waste_resume_loss {
    waste_convert_loss kind[WASTE_RESUME_KINDS];
    uint32_t record_crc, check; /* of the record's payload; of what is before this */
} waste_resume_loss;

void waste_resume_loss_seal(waste_resume_loss *l, uint32_t record_crc);

/* How many records at the start of the unfinished bank `path` are whole and have an
 * entry in the loss file `losses`, and the sum of these entries. 0 where there are no
 * such files. Errors are WASTE_NOMEM and WASTE_CANCELLED. */
waste_status waste_resume_count(const waste_resume_bank *b, const char *path, const char *losses,
                                int *n, waste_convert_loss sum[WASTE_RESUME_KINDS],
                                const waste_cancel *cancel, waste_error *err);

/* The soundness walk over a finished bank (docs/convert.md 9): the header of every
 * record, exactly as many as there are experts. */
waste_status waste_resume_walk(const waste_resume_bank *b, const char *path,
                               const waste_cancel *cancel, waste_error *err);
#endif
