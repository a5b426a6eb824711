/* What goes into the routed experts: for every channel the sum of its squares over the
 * rows of the sequences that carry the observer (waste_seq.observer). Nothing else of a
 * pass changes by it. Sums are taken in the order of a row's ranks and of rows: who else
 * was in the pass, threads and the order of reads do not show.
 *
 * An observer belongs to the thread whose sequences carry it; the pass that they are in
 * writes it. A pass that fails leaves sums of no use. */
#ifndef WASTE_OBSERVER_H
#define WASTE_OBSERVER_H

#include "model/config.h"

struct waste_pass;

typedef struct waste_observer {
    const waste_config *config;
    double *in;     /* [moe layers][expert_in]: of what gate and up get */
    double *hidden; /* [moe layers][moe_width]: of what down gets, over all ranks */
    float *h;       /* [rows of a chunk][top_k][moe_width]: of the layer that is computed */
} waste_observer;

/* The model has experts, and computes `rows` at a time. */
waste_status waste_observer_open(waste_observer **out, const waste_config *c, size_t rows,
                                 waste_error *err);
void waste_observer_close(waste_observer *o);
uint64_t waste_observer_bytes(const waste_config *c, size_t rows);

/* Whether some row of the chunk is observed. */
int waste_observer_wanted(const struct waste_pass *p);
/* n results of an expert's gate and up, [n][moe_width], and their places (row * top_k +
 * rank) in the chunk. */
void waste_observer_hidden(const struct waste_pass *p, const float *h, const int *place, size_t n);
/* Adds a layer, once all its experts were told of. x: their inputs, [rows][expert_in]. */
void waste_observer_layer(const struct waste_pass *p, int layer, const float *x);

#endif
