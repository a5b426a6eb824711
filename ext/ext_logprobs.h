/* Log-probabilities of a generation's tokens as JSON, for all who report them:
 *
 *     {"token":5,"piece":" Rome","logprob":-0.1}          one candidate
 *     {"token":5,"piece":" Rome","logprob":-0.1,"top":[candidates]}
 *
 * `piece` is null for an id that stands for nothing. */
#ifndef EXT_LOGPROBS_H
#define EXT_LOGPROBS_H

#include "base/buf.h"
#include "waste.h"

/* Appends the token with its candidates. */
void waste_logprobs_token(waste_buf *b, const waste_container *c, const waste_gen_token *t);
/* Appends the array of candidates alone. */
void waste_logprobs_top(waste_buf *b, const waste_container *c, const waste_gen_token *t);

#endif
