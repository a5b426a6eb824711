/* What tensors.c and tensors_load.c share; for no one else. */
#ifndef WASTE_TENSORS_OWN_H
#define WASTE_TENSORS_OWN_H

#include "store/tensors.h"

typedef struct waste_want {
    waste_tensor tensor;
    const waste_trunk_entry *entry;
    int resident;
    int arrange; /* its rows are rearranged when they are there */
    int tiled;   /* they were */
    struct waste_want *next;
} waste_want;

/* A caller's pointer that the loading fills. */
typedef struct waste_vector_at {
    const float **to;
    const waste_want *from;
    struct waste_vector_at *next;
} waste_vector_at;

struct waste_tensors {
    const waste_manifest *manifest;
    char *path; /* of trunk.bin */
    waste_file file;
    waste_want **of; /* by the entry's number in the manifest; NULL: not asked for */
    waste_want *wants;
    waste_vector_at *slots;
    size_t n_wants;
    char *block; /* all resident data */
    size_t block_bytes;
    int loaded;
};

/* Bytes of rows in the file: payload, scales. */
typedef struct waste_range {
    uint64_t off, bytes;
} waste_range;

static inline void waste_ranges_at(const waste_tensor *x, int64_t lo, int64_t hi, waste_range r[2])
{
    const uint64_t first = (uint64_t)lo, n = (uint64_t)(hi - lo);
    const uint64_t row = (uint64_t)x->row_bytes, scales = 2 * (uint64_t)x->n_groups;

    r[0] = (waste_range){x->off + first * row, n * row};
    r[1] = (waste_range){x->scale_off + first * scales, n * scales};
}

#endif
