/* Codebooks for the beam search, all stages trained together: vectors are assigned
 * by the beam, then all entries are replaced by the least-squares solution for
 * these assignments; old assignments fade from the equations. (k-means stage by
 * stage, as vq.h has it, suits the greedy search and only that.) The same sample
 * gives the same books whatever the number of threads: what they sum is integers. */
#ifndef WASTE_VQ_JOINT_H
#define WASTE_VQ_JOINT_H

#include "convert/vq_team.h"

typedef struct waste_vq_schedule {
    int passes, beam;
    size_t batch; /* vectors drawn for each pass; no more than there are */
} waste_vq_schedule;

/* Improves the books from where they stand, with n >= 1 sample vectors of rows with
 * RMS 1. Results are f16 values, and all stages but the first have mean zero. */
waste_status waste_vq_joint_train(waste_vq_books *b, const float *x, size_t n,
                                  const waste_vq_schedule *how, waste_vq_random *r,
                                  waste_vq_team *team, const waste_cancel *cancel,
                                  waste_error *err);

/* ||x - y|| / ||x|| of n vectors as these books encode them. */
waste_status waste_vq_joint_error(const waste_vq_books *b, const float *x, size_t n, int beam,
                                  waste_vq_team *team, double *out, const waste_cancel *cancel,
                                  waste_error *err);

#endif
