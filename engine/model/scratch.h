/* The working memory of a pass: one block, laid out once for a number of rows and
 * of threads. Every field has one use. Below, T is `rows`; shapes use the names of
 * config.h, C = kda_heads * kda_dim. */
#ifndef WASTE_SCRATCH_H
#define WASTE_SCRATCH_H

#include "model/config.h"

/* Rows that are computed together, at least and at most; more are taken in turns. The
 * plan decides (plan.h). */
#define WASTE_ROWS_LEAST 64
#define WASTE_ROWS_MOST  512

/* What a kernel needs for itself: one for each thread that runs a part. */
typedef struct waste_lane {
    float *decoded;  /* one or two rows of weights, the widest */
    void *work;      /* waste_kernels_work_bytes */
    float *mix;      /* AttnRes: scores, then [hidden] */
    float *kda_head; /* [WASTE_KDA_FLOATS(kda_dim)] */
    float *latent;   /* [2][WASTE_MLA_ROWS][kv_rank] */
} waste_lane;

#define WASTE_INPUTS 2

typedef struct waste_scratch {
    int rows;    /* T: the largest chunk */
    int threads; /* lanes */
    void *block;
    size_t bytes;

    float *x;       /* [T][hidden] residual stream */
    float *sum;     /* [T][hidden] AttnRes: running sum since the last block */
    float *history; /* [blocks][T][hidden] AttnRes */
    float *normed;  /* [T][hidden] input of a sub-layer */
    float *out;     /* [T][hidden] output of a sub-layer */
    float **logits; /* [T] */
    waste_lane *lane;
    /* [T] of the widest matrix: x as tiled matrices take it, of products that run
     * together (waste_kernels_activations_bytes) */
    void *input[WASTE_INPUTS];

    /* KDA */
    float *kda_q, *kda_k, *kda_v, *kda_decay, *kda_gate, *kda_o; /* [T][C] */
    float *kda_low, *gate_low;                                   /* [T][kda_dim] */
    float *kda_beta;                                             /* [T][kda_heads] */
    float **kda_state;                                           /* [T] */
    float **kda_ring;                                            /* [3][T] */

    /* MLA */
    float *turn;             /* [T][2 * pairs] cos and sin of the rows' positions */
    int64_t *position;       /* [T] */
    float *mla_q;            /* [T][heads * (nope_dim + rope_dim)] */
    float *mla_low;          /* [T][q_rank] */
    float *mla_o;            /* [T][heads * v_dim] */
    float *mla_gate;         /* [T][heads * v_dim] */
    float *mla_kv;           /* [T][kv_rank + rope_dim] */
    void *const **mla_block; /* [T] */

    /* feed-forward */
    float *ffn_gate, *ffn_up; /* [T][widest FFN of any layer] */
    float *route_logits;      /* [T][experts] */
    int *route_ids;           /* [T][top_k] */
    float *route_weights;     /* [T][top_k] */
    float *expert_in;         /* [T][expert_in] latent MoE: the projected input */
    float *expert_h;          /* [T * top_k][moe_width] of experts that run together */
    float *expert_out;        /* [T][top_k][expert_in] */
    float *expert_sum;        /* [T][expert_in] */
    float *routed;            /* [T][hidden] latent MoE: projected back */
    int *visit;               /* [min(experts, T * top_k)] distinct experts of a chunk */
    int *uses;                /* like visit: how many rows chose it */
    int *votes;               /* [experts] rows that the lookahead expects to want each */
    int *first, *last;        /* [experts] ends of a chain of T * top_k places; -1: none */
    int *next;                /* [T * top_k] */
    int *x_row, *y_row;       /* [T * top_k], like expert_h */
    void *tables;             /* of one row, for all experts of a layer */
} waste_scratch;

/* Sets every pointer into `block`, or with NULL only measures. Returns bytes; 0
 * when they do not fit a size_t. */
size_t waste_scratch_carve(waste_scratch *s, const waste_config *c, int rows, int threads,
                           char *block);

waste_status waste_scratch_open(waste_scratch **out, const waste_config *c, int rows, int threads,
                                waste_error *err);
void waste_scratch_close(waste_scratch *s);

#endif
