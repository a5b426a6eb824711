/* The tensors of the text model by handle (docs/model.md 3). Names are resolved
 * once, when the model opens; the pass looks up nothing. Immutable after
 * waste_tensors_load; any thread may read. */
#ifndef WASTE_WEIGHTS_H
#define WASTE_WEIGHTS_H

#include "kernels/kernels.h"
#include "model/config.h"
#include "store/tensors.h"

/* W2 act(W1 x, W3 x): gate and up [width, hidden], down [hidden, width]. */
typedef struct waste_ffn {
    const waste_tensor *gate, *up, *down;
    int width;
} waste_ffn;

/* Shapes as in docs/model.md 3; NULL where the layer or the configuration has none. */
typedef struct waste_layer {
    const float *attn_norm, *ffn_norm;
    const float *attn_res_norm, *attn_res_proj, *ffn_res_norm, *ffn_res_proj;
    /* KDA and MLA */
    const waste_tensor *q, *g, *o; /* q: also MLA's direct query; g: KDA full rank, MLA gate */
    /* KDA */
    const waste_tensor *k, *v, *f_a, *f_b, *b, *g_a, *g_b;
    const float *conv_q, *conv_k, *conv_v, *a_log, *dt_bias, *o_norm;
    /* MLA */
    const waste_tensor *q_a, *q_b, *kv_a, *kv_b;
    const float *q_a_norm, *kv_a_norm;
    /* feed-forward */
    waste_ffn ffn; /* dense, or the shared experts */
    const waste_tensor *router, *latent_down, *latent_up;
    const float *router_bias, *latent_norm;
    const void *packed[3]; /* books of gate, up, down for the kernels (pack.h); or NULL */
} waste_layer;

/* How experts are kept for the kernels in force: see pack.h. */
typedef struct waste_packing {
    const waste_kernels *kernels;
    waste_vq_geometry geometry;
    const struct waste_record_layout *layout;
    int planar;  /* records went through kernels->pack_record */
    void *books; /* of all layers */
} waste_packing;

typedef struct waste_weights {
    const waste_tensor *embedding, *head;
    const float *norm, *out_res_norm, *out_res_proj;
    float *rope;       /* [waste_rope_pairs] */
    float mla_scale;   /* of attention scores */
    uint64_t resident; /* bytes that waste_tensors_load will read */
    waste_packing packing;
    waste_layer layer[WASTE_MAX_LAYERS];
} waste_weights;

/* Asks `t` for every tensor the pass will index; data arrives with
 * waste_tensors_load. WASTE_FORMAT names the tensor that is missing or of
 * another shape. */
waste_status waste_weights_open(waste_weights **out, waste_tensors *t, const waste_manifest *m,
                                const waste_config *c, waste_error *err);
void waste_weights_close(waste_weights *w);

static inline waste_matrix waste_weights_matrix(const waste_tensor *t)
{
    waste_matrix m = {t->fmt,   t->data,     t->scales,    t->rows, t->cols,
                      t->group, t->n_groups, t->row_bytes, t->tiled};
    return m;
}

#endif
