/* From logits to a token.
 *
 * Order: logit_bias; repetition penalty on every token of prompt and reply
 * (Keskar et al. 2019: divide a positive logit, multiply another); presence and
 * frequency penalty on tokens of the reply. Then, at temperature 0, the largest
 * logit, lowest id among equals. Otherwise p_i ~ exp((l_i - max) / temperature)
 * and, each on what the one before left: top_k largest; the shortest prefix by
 * falling probability (ties by id) that reaches top_p; those with at least min_p
 * of the largest probability. One draw per token.
 *
 * The generator is the 64-bit linear congruential one of Knuth's MMIX, the same
 * on every platform: x <- x * 6364136223846793005 + 1442695040888963407 mod 2^64
 * and u = (x >> 11) * 2^-53, from x = seed, or 0x853c49e6748fea9b for seed 0.
 * With top_k off, top_p 1 and min_p 0 the draw walks ids in ascending order to the
 * first with cumulative >= u * sum; otherwise it walks what is kept by falling
 * probability to the first with cumulative >= u * (sum of what is kept).
 *
 * A NaN logit counts as -INFINITY; neither is ever chosen. A sampler belongs to
 * one thread at a time; arithmetic on probabilities is in double. */
#ifndef WASTE_SAMPLER_H
#define WASTE_SAMPLER_H

#include "base/error.h"

typedef struct waste_sampler waste_sampler;

/* Checks and copies the sampling part of p (temperature to logit_bias); WASTE_ARG
 * names the option, what it is and what was wanted. vocab >= 1. */
waste_status waste_sampler_open(waste_sampler **out, const waste_gen_params *p, size_t vocab,
                                waste_error *err);
void waste_sampler_close(waste_sampler *s);

/* A token of the prompt (reply 0) or of the reply (1) that later picks count.
 * 0 <= token < vocab. */
void waste_sampler_saw(waste_sampler *s, int32_t token, int reply);

/* Chooses among logits[0..vocab), which stay as they are; does not count it as
 * seen. WASTE_ARG when logit_bias bans every token that has a finite logit,
 * WASTE_FORMAT when the model gave no usable logit at all. */
waste_status waste_sampler_pick(waste_sampler *s, const float *logits, int32_t *token,
                                waste_error *err);

/* Natural logarithm of the token's probability under the logits as given, no
 * option applied. -INFINITY for a NaN or -INFINITY logit. */
double waste_sampler_logprob(const float *logits, size_t n, int32_t token);

#endif
