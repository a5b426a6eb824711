/* Steps of one model that run together. Callers on several threads do not queue behind
 * each other: whoever finds the model idle runs a pass for the rows of all who wait.
 * That grouping changes no bit of any result. */
#ifndef WASTE_COMBINE_H
#define WASTE_COMBINE_H

#include "waste.h"

typedef struct waste_combine waste_combine;

/* Of a model whose parts are open. */
waste_status waste_combine_open(waste_combine **out, waste_model *m, waste_error *err);
void waste_combine_close(waste_combine *c); /* NULL is fine */

/* Computes rows that are checked and have room, n > 0; any thread. Returns soon after
 * the caller's cancel says so, whatever the others do: its rows leave the pass, and only
 * its sequences are broken. */
waste_status waste_combine_run(waste_model *m, const waste_row *rows, size_t n,
                               const waste_cancel *cancel, waste_step_stats *stats,
                               waste_error *err);

#endif
