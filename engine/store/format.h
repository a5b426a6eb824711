/* On-disk structures of container format 0 and nothing else. All integers are
 * little-endian; the structures have no padding. docs/format.md explains them. */
#ifndef WASTE_FORMAT_H
#define WASTE_FORMAT_H

#include <stdint.h>

#define WASTE_EXPERT_MAGIC    0x50584557u /* "WEXP" */
#define WASTE_CODEBOOK_MAGIC  0x4B424357u /* "WCBK" */
#define WASTE_RECORD_ALIGN    4096u
#define WASTE_RECORD_HEADER   48u
#define WASTE_CODEBOOK_HEADER 16u
#define WASTE_INDEX_BLOCK     64u /* rows per block of indices, as written today */

/* Storage formats: tensors of the trunk, and records of a bank. */
typedef enum waste_fmt {
    WASTE_FMT_F32 = 0,
    WASTE_FMT_F16 = 1, /* reserved, refused */
    WASTE_FMT_Q8G = 2,
    WASTE_FMT_Q4G = 3,
    WASTE_FMT_VQ3R = 4, /* any stage count with one-byte indices */
    WASTE_FMT_VQ2R = 5,
    WASTE_FMT_Q3G = 7,
    WASTE_FMT_VQ4P = 8 /* 4 stages of 64 entries, indices packed to 6 bits */
} waste_fmt;

typedef struct waste_record_header {
    uint32_t magic;
    uint16_t layer, expert;
    uint8_t fmt, flags;
    uint16_t codebook, lowrank, reserved0;
    uint32_t blocks; /* record bytes / 4096 */
    uint32_t gate_off, up_off, down_off, scale_off;
    uint32_t crc32; /* of [48, end of scales) */
    uint32_t reserved1, reserved2;
} waste_record_header;

typedef struct waste_codebook_header {
    uint32_t magic;
    uint16_t id;
    uint8_t fmt, vec_dim;
    uint32_t entries, reserved;
} waste_codebook_header;

_Static_assert(sizeof(waste_record_header) == WASTE_RECORD_HEADER, "record header");
_Static_assert(sizeof(waste_codebook_header) == WASTE_CODEBOOK_HEADER, "codebook header");

#endif
