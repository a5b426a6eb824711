/* The threads of a conversion, each with a coder for the beam search. */
#ifndef WASTE_VQ_TEAM_H
#define WASTE_VQ_TEAM_H

#include "convert/vq_beam.h"
#include "convert/vq_pool.h"

typedef struct waste_vq_team {
    waste_vq_pool *pool;
    waste_vq_coder **coder; /* one per worker; NULL: none of this geometry */
    int size;
} waste_vq_team;

/* core: NULL for the fastest. A geometry that no beam fits has no coders. Clear also
 * after a failure. */
waste_status waste_vq_team_init(waste_vq_team *t, const waste_quant *q, int threads,
                                const waste_vq_core *core, waste_error *err);
void waste_vq_team_clear(waste_vq_team *t);

/* Gives every coder these books. Parts of a job can also set their own. */
waste_status waste_vq_team_set(waste_vq_team *t, const waste_vq_books *b,
                               const waste_cancel *cancel, waste_error *err);

#endif
