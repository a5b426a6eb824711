/* The one forward pass, over a batch of rows (docs/map.md). A prompt is many
 * rows of one sequence, decoding is a batch of one row; there is no second path.
 *
 * The caller holds the model's turn: scratch and sequences belong to the pass
 * while it runs. What a row gets does not depend on which rows share its pass. */
#ifndef WASTE_FORWARD_H
#define WASTE_FORWARD_H

#include "kernels/kernels.h"
#include "model/scratch.h"
#include "model/sequence.h"
#include "model/weights.h"
#include "store/cache.h"

#define WASTE_FORWARD_ROWS 64 /* rows computed together; more are taken in turns */

#define WASTE_LOOKAHEAD      6  /* experts guessed per layer, by default (docs/measured.md) */
#define WASTE_LOOKAHEAD_MOST 64 /* where an option is refused */

/* Everything a pass needs, and the chunk it is at. */
typedef struct waste_pass {
    const waste_config *config;
    const waste_weights *weights;
    const waste_tensors *tensors;
    const waste_kernels *kernels;
    const waste_quant *quant;
    const waste_banks *banks; /* NULL without experts */
    waste_cache *cache;
    waste_scratch *s;
    int lookahead;              /* experts guessed per row and layer; 0: none */
    const waste_cancel *cancel; /* or NULL */
    waste_error *err;

    int touched; /* some sequence's state has changed */
    const waste_row *rows;
    size_t n; /* 1..s->rows */
} waste_pass;

/* Computes rows[0..n), any n, in chunks of s->rows. Rows are checked already,
 * their sequences have room. Sequences advance chunk by chunk: when this fails
 * and p->touched is set, those of the batch hold a half-made state. */
waste_status waste_forward(waste_pass *p, const waste_row *rows, size_t n);

/* y[t] = w x[t] for the rows of the chunk, no gaps between rows. */
void waste_forward_matmul(const waste_pass *p, const waste_tensor *w, const float *x, float *y);
/* y[i] = rmsnorm(x[i]) for n vectors of `width`, `stride` floats apart. */
void waste_forward_norm(const waste_pass *p, const float *x, const float *w, float *y, size_t n,
                        size_t width, size_t stride);
/* WASTE_CANCELLED when the caller says so. */
waste_status waste_forward_cancelled(const waste_pass *p, int layer);

/* The sub-layers, each from s->normed to s->out for the rows of the chunk, each
 * in the file of its name. The attention layers advance their sequences' state of
 * that layer. */
void waste_attn_kda(const waste_pass *p, int layer);
void waste_attn_mla(const waste_pass *p, int layer);
void waste_ffn_rows(const waste_pass *p, const waste_ffn *f);
waste_status waste_moe(const waste_pass *p, int layer);

/* Tells the cache which experts the MoE layer after `layer` will probably want:
 * the best by its router, given what `layer` sees (s->normed). Overwrites
 * s->route_logits and s->decoded, decides nothing. For chunks of few rows; others
 * are left alone. */
void waste_lookahead(const waste_pass *p, int layer);

/* The model's activation, for kernels. */
waste_act_kind waste_ffn_act(const waste_config *c);

#endif
