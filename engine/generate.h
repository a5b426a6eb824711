/* A generation taken apart, for batch.c: whoever steps many at once asks each for its
 * rows and hands back the news. One token is
 *
 *     waste_gen_begin
 *     unless waste_gen_known: until waste_gen_stepped says 1: waste_gen_rows, a step
 *         with these rows
 *     waste_gen_end
 *
 * which is what waste_gen_next does with one alone. The thread is the generation's. */
#ifndef WASTE_GENERATE_H
#define WASTE_GENERATE_H

#include "waste.h"

/* Starts a token. WASTE_DONE, or the error it ended with, when it is over. */
waste_status waste_gen_begin(waste_gen *g, waste_error *err);
/* The token is not the model's to choose (output.h): no step is needed for it. */
int waste_gen_known(const waste_gen *g);
size_t waste_gen_pending(const waste_gen *g); /* rows to compute, before reuse */
/* The next rows that its sequence has to compute, at most `most`; none never. The
 * last of them has logits. */
size_t waste_gen_rows(waste_gen *g, waste_row *rows, size_t most);
/* n of them were computed; 1 when that was the last. */
int waste_gen_stepped(waste_gen *g, size_t n);
/* Picks the token; st and *why are the step's. out is zero but for stats. */
waste_status waste_gen_end(waste_gen *g, waste_status st, waste_gen_token *out, waste_error *why,
                           waste_error *err);

int waste_gen_late(waste_gen *g); /* its timeout has passed, or its cancel says so */
int waste_gen_broken(const waste_gen *g);
/* Memory for everything that it may yet compute. */
waste_status waste_gen_reserve(waste_gen *g, waste_error *err);
/* Starts its sequence anew: all tokens so far are to be computed again, with the same
 * result. On failure it has none and can only be closed. */
waste_status waste_gen_rewind(waste_gen *g, waste_error *err);

#endif
