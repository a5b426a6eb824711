/* What the tokens of one sequence have left behind (docs/model.md 9): per KDA
 * layer the recurrent state and the convolution rings, per MLA layer the latents,
 * in blocks that are added as the sequence grows. A fork shares the blocks that are
 * full: nobody writes them again, and the last sequence to let go of one frees it.
 * One thread at a time; sequences that share blocks may be on several. */
#ifndef WASTE_SEQUENCE_H
#define WASTE_SEQUENCE_H

#include "model/config.h"

typedef struct waste_seq_layer {
    float *state;           /* KDA: [heads][dim key][dim value] */
    float *ring[3];         /* KDA: q, k, v, each [channels][taps - 1], oldest first */
    void **block;           /* MLA: each [WASTE_LATENT_BLOCK][rank + rope] of kv; counted */
    size_t n_blocks, space; /* filled, and room in `block` */
} waste_seq_layer;

struct waste_observer; /* observer.h */

struct waste_seq {
    waste_model *model; /* whose it is; this file does not look inside */
    const waste_config *config;
    waste_kv kv;                     /* how its latents are kept */
    int64_t length;                  /* positions computed */
    int64_t planned;                 /* length once the running step is done */
    int64_t reserved;                /* positions that there is room for */
    int broken;                      /* a pass failed half-way: the state means nothing */
    uint64_t loaded;                 /* bytes loaded so far, while its parts are (state.h) */
    struct waste_observer *observer; /* of its rows; borrowed, NULL: none. A fork has none */
    float *fixed;                    /* what the KDA layers' pointers point into */
    waste_seq_layer layer[WASTE_MAX_LAYERS];
};

waste_status waste_sequence_new(waste_seq **out, waste_model *m, const waste_config *c, waste_kv kv,
                                waste_error *err);
/* The same state once more, with room for no more than its length. Its full blocks
 * are those of s. s is not broken. */
waste_status waste_sequence_fork(waste_seq **out, const waste_seq *s, waste_error *err);
/* NULL is fine. Returns the bytes that are free now: blocks that others share stay. */
uint64_t waste_sequence_free(waste_seq *s);

/* Room for `positions` in every MLA layer. On failure the sequence is as it was
 * but for spare room. */
waste_status waste_sequence_reserve(waste_seq *s, int64_t positions, waste_error *err);

/* Latents of positions [from, to) of an MLA layer, which must be reserved: f32 at any
 * alignment outside, [to - from][rank + rope], and of s->kv inside. What is put in comes
 * out rounded to that; what came out goes in unchanged. */
void waste_sequence_put_latents(waste_seq *s, int layer, int64_t from, int64_t to, const void *in);
void waste_sequence_get_latents(const waste_seq *s, int layer, int64_t from, int64_t to, void *out);

/* Bytes of a sequence with room for that many positions. */
uint64_t waste_sequence_bytes(const waste_config *c, waste_kv kv, int64_t positions);
/* Bytes that a fork of it allocates. */
uint64_t waste_sequence_fork_bytes(const waste_seq *s);

/* Numbers in one KDA layer's S, in its three rings together, and in one position's
 * latents in one MLA layer, whichever kv. */
size_t waste_sequence_state_floats(const waste_config *c);
size_t waste_sequence_ring_floats(const waste_config *c);
size_t waste_sequence_latent_floats(const waste_config *c);
/* Bytes of one position's latents as they are kept. */
size_t waste_sequence_latent_bytes(const waste_config *c, waste_kv kv);

#endif
