/* What the tokens of one sequence have left behind (spec model.md 9): per KDA
 * layer the recurrent state and the convolution rings, per MLA layer the latents,
 * in blocks that are added as the sequence grows. One thread at a time. */
#ifndef WASTE_SEQUENCE_H
#define WASTE_SEQUENCE_H

#include "model/config.h"

typedef struct waste_seq_layer {
    float *state;           /* KDA: [heads][dim key][dim value] */
    float *ring[3];         /* KDA: q, k, v, each [channels][taps - 1], oldest first */
    float **block;          /* MLA: each [WASTE_LATENT_BLOCK][rank + rope] */
    size_t n_blocks, space; /* filled, and room in `block` */
} waste_seq_layer;

struct waste_seq {
    waste_model *model; /* whose it is; this file does not look inside */
    const waste_config *config;
    int64_t length;   /* positions computed */
    int64_t planned;  /* length once the running step is done */
    int64_t reserved; /* positions that there is room for */
    int broken;       /* a pass failed half-way: the state means nothing */
    float *fixed;     /* what the KDA layers' pointers point into */
    waste_seq_layer layer[WASTE_MAX_LAYERS];
};

waste_status waste_sequence_new(waste_seq **out, waste_model *m, const waste_config *c,
                                waste_error *err);
void waste_sequence_free(waste_seq *s); /* NULL is fine */

/* Room for `positions` in every MLA layer. On failure the sequence is as it was
 * but for spare room. */
waste_status waste_sequence_reserve(waste_seq *s, int64_t positions, waste_error *err);

/* Bytes of a sequence with room for that many positions. */
uint64_t waste_sequence_bytes(const waste_config *c, int64_t positions);

#endif
