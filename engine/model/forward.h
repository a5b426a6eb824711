/* The one forward pass, over a batch of rows (docs/map.md). A prompt is many
 * rows of one sequence, decoding is a batch of one row; there is no second path.
 *
 * The caller holds the model's turn: scratch and sequences belong to the pass
 * while it runs. What a row gets does not depend on which rows share its pass. */
#ifndef WASTE_FORWARD_H
#define WASTE_FORWARD_H

#include "base/pool.h"
#include "kernels/kernels.h"
#include "model/scratch.h"
#include "model/sequence.h"
#include "model/weights.h"
#include "store/cache.h"

#define WASTE_LOOKAHEAD      6  /* experts guessed per layer, by default */
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
    waste_pool_turn turn; /* threads, no more than s has lanes; zeroed: one */
    int64_t least;        /* work of a piece (waste_forward_grain); 0: the default */

    int touched; /* some sequence's state has changed */
    const waste_row *rows;
    size_t n;      /* 1..s->rows */
    int layer;     /* the next one */
    int half;      /* and its attention has been computed */
    size_t blocks; /* entries of the history */
} waste_pass;

/* One chunk of at most s->rows rows in pieces, for whoever has to look up in between:
 * begin, then layer until it gives WASTE_DONE, which is when the logits are there and
 * sequences have advanced. Rows are checked already, their sequences have room. When a
 * piece fails and p->touched is set, the sequences hold a half-made state. But a layer
 * that fails with p->half set (p->cancel may have asked for that) can be called again.
 * Owners of rows may go meanwhile: their seq is then NULL, and waste_forward_keep takes
 * them out before the next layer. The thread may be another one each time, with a turn of
 * its own in the pool. */
waste_status waste_forward_begin(waste_pass *p, const waste_row *rows, size_t n);
waste_status waste_forward_layer(waste_pass *p);
/* Between layers: leaves only the rows t with keep[t]; all of a sequence or none. rows
 * are p->rows, which close up likewise. The sequences of others hold half-made states. */
void waste_forward_keep(waste_pass *p, waste_row *rows, const unsigned char *keep);

/* ---- work for several threads ------------------------------------------------- */

/* Where a slot takes a range, the parts of it go to the pool. Work is counted in
 * multiply-adds, or what takes as long. */

/* Items that are worth a piece of their own, if one costs `work`. */
int64_t waste_forward_grain(const waste_pass *p, int64_t work);
/* part over 0..n-1, in pieces of at least as many. */
void waste_forward_share(const waste_pass *p, int64_t n, int64_t work, waste_pool_part part,
                         void *ctx);

/* Rows of a matrix are cut in tiles, of this many (kernels/tiles.h). */
#define WASTE_FORWARD_TILE 64

static inline int64_t waste_forward_tiles(int64_t rows)
{
    return (rows + WASTE_FORWARD_TILE - 1) / WASTE_FORWARD_TILE;
}

/* y[t] = w x[t] for the rows of the chunk, no gaps between rows. */
typedef struct waste_product {
    const waste_tensor *w;
    const float *x;
    float *y;
} waste_product;

#define WASTE_PRODUCTS 8 /* at most together */

/* Products that do not depend on one another, as one piece of work. */
void waste_forward_products(const waste_pass *p, const waste_product *list, size_t n);
/* One of them. */
void waste_forward_matmul(const waste_pass *p, const waste_tensor *w, const float *x, float *y);
/* n rows of x as a product with w takes them, in s->input[which]: for all tiled matrices
 * with as many columns and w's group. NULL where w is not tiled. */
const void *waste_forward_input(const waste_pass *p, const waste_tensor *w, const float *x,
                                size_t n, int which);
/* A product for a range of w's rows, by the thread that runs a part; `input` is what
 * waste_forward_input gave for it. */
waste_matmul waste_forward_rows(const waste_pass *p, const waste_tensor *w, const float *x,
                                const void *input, float *y, int thread);
/* x[i] += y[i] */
void waste_forward_add(const waste_pass *p, float *x, const float *y, size_t n);
/* y[i] = rmsnorm(x[i]) for n vectors of `width`, `stride` floats apart. */
void waste_forward_norm(const waste_pass *p, const float *x, const float *w, float *y, size_t n,
                        size_t width, size_t stride);

/* The sub-layers, each from s->normed to s->out for the rows of the chunk, each
 * in the file of its name. The attention layers advance their sequences' state of
 * that layer. */
void waste_attn_kda(const waste_pass *p, int layer);
void waste_attn_mla(const waste_pass *p, int layer);
void waste_ffn_rows(const waste_pass *p, const waste_ffn *f);
waste_status waste_moe(const waste_pass *p, int layer);

/* Tells the cache which experts the MoE layer after `layer` will probably want:
 * the best by its router, given what `layer` sees (s->normed). Overwrites
 * s->route_logits, decides nothing. Of more than a few rows it is what most of
 * them agree on. */
void waste_lookahead(const waste_pass *p, int layer);

/* The model's activation, for kernels. */
waste_act_kind waste_ffn_act(const waste_config *c);

#endif
