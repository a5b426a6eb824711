/* Byte-pair merge of one piece (docs/format.md 8.4): the adjacent
 * pair of lowest rank first, the leftmost of equals, until no pair is a token.
 * n bytes cost O(n log n) at worst. */
#ifndef WASTE_BPE_H
#define WASTE_BPE_H

#include "text/ranks.h"

/* Ids that grow as they are found, and the work space of one caller, reused
 * from piece to piece. Zero-initialised is empty; belongs to one thread. */
typedef struct waste_bpe {
    int32_t *ids;
    size_t n, room;
    struct waste_bpe_part *parts;
    uint64_t *heap;
    size_t part_room, heap_room;
} waste_bpe;

/* Appends the ids of piece[0..n), n >= 1. A byte that no token can stand for is
 * WASTE_FORMAT and named. On any error nothing is appended. */
waste_status waste_bpe_piece(waste_bpe *b, const waste_ranks *r, const char *piece, size_t n,
                             waste_error *err);
/* Appends one id. */
waste_status waste_bpe_id(waste_bpe *b, int32_t id, waste_error *err);
void waste_bpe_clear(waste_bpe *b);

#endif
