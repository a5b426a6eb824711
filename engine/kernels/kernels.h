/* The arithmetic of the forward pass as a table of functions, chosen once.
 *
 * A slot works on the range [lo, hi) of the index that its struct names, so
 * that a pool can split one call over threads; nothing that another part of
 * the range writes is read. A slot cannot fail and keeps nothing: scratch
 * arrives in the struct, one per thread that runs a part.
 *
 * What holds in every table: the value computed for one row of a batch depends
 * on that row alone, bit for bit. How many rows share the call, where in it
 * they stand and how the range was cut never matter.
 *
 * Shapes are row-major; "[rows][n]" has no gaps unless a stride is given.
 * Formulas: spec model.md, sections as noted. */
#ifndef WASTE_KERNELS_H
#define WASTE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "store/format.h"

/* A trunk matrix [rows][cols] in memory (docs/format.md, block formats). */
typedef struct waste_matrix {
    waste_fmt fmt;
    const void *data;
    const uint16_t *scales; /* n_groups per row; unused for F32 */
    int64_t rows, cols, group, n_groups, row_bytes;
} waste_matrix;

/* y[t][o] = sum_i w[o][i] * x[t][i]. Range: rows of w. */
typedef struct waste_matmul {
    waste_matrix w;
    size_t n; /* rows of the batch */
    const float *x;
    size_t x_stride; /* floats from one row to the next */
    float *y;
    size_t y_stride;
    float *const *y_rows; /* when not NULL: row t goes to y_rows[t], y is unused */
    float *decoded;       /* scratch, w.cols floats */
} waste_matmul;

/* y = x / sqrt(mean(x^2) + eps) * w; y may be x. Range: batch rows. */
typedef struct waste_rmsnorm {
    const float *x, *w;
    float *y;
    size_t width, x_stride, y_stride;
    float eps;
} waste_rmsnorm;

/* SiLU(g) * u, or SiTU (model.md 1). */
typedef struct waste_act_kind {
    int situ;
    float beta, linear_beta; /* linear_beta <= 0: u is taken as it is */
} waste_act_kind;

/* y[i] = act(g[i], u[i]); y may be g. Range: elements. */
typedef struct waste_act {
    waste_act_kind kind;
    const float *g, *u;
    float *y;
} waste_act;

/* y[i] *= sigmoid(g[i]). Range: elements. */
typedef struct waste_gate {
    const float *g;
    float *y;
} waste_gate;

/* Causal depthwise convolution and SiLU (model.md 6, step 2), in place. Rows
 * are taken in order; those of one sequence share a ring. Range: channels. */
typedef struct waste_conv {
    size_t n;
    int channels, taps;
    const float *w;     /* [channels][taps] */
    float *x;           /* [n][channels] */
    float *const *ring; /* per row: [channels][taps - 1], oldest first */
} waste_conv;

/* Decay gate and delta rule (model.md 6, steps 3 to 5). Rows are taken in
 * order; those of one sequence share a state. Range: heads. */
typedef struct waste_kda {
    size_t n;
    int heads, dim;
    const float *q, *k, *v; /* [n][heads * dim], after the convolution */
    const float *decay;     /* [n][heads * dim]: f_b_proj(f_a_proj x) */
    const float *beta;      /* [n][heads]: b_proj x */
    const float *a_log;     /* [heads] */
    const float *dt_bias;   /* [heads * dim] */
    float bound;            /* gate_lower_bound */
    float *const *state;    /* per row: [heads][dim key][dim value] */
    float *o;               /* [n][heads * dim] */
    float *scratch;         /* 4 * dim */
} waste_kda;

/* Attention over cached latents, absorbed form (model.md 5.2). Row t sees
 * positions 0..last[t] of its own sequence, whose latents are there already.
 * Range: heads. */
#define WASTE_LATENT_BLOCK 64 /* positions to a block */

typedef struct waste_mla {
    size_t n;
    int heads, nope, rope, rank, v;
    waste_matrix kv_b; /* [heads * (nope + v)][rank] */
    float scale;
    const float *q;             /* [n][heads * (nope + rope)], rotated */
    float *const *const *block; /* per row: blocks of [WASTE_LATENT_BLOCK][rank + rope] */
    const int64_t *last;        /* per row */
    float *o;                   /* [n][heads * v] */
    float *decoded;             /* scratch, rank */
    float *latent;              /* scratch, [2][n][rank] */
} waste_mla;

/* One read of Attention Residuals (model.md 4.2). Range: batch rows. */
typedef struct waste_ares {
    size_t n_blocks, block_stride; /* floats from one block's rows to the next block's */
    const float *blocks;           /* [n_blocks][..][width] */
    const float *p;                /* [..][width] */
    const float *norm, *proj;      /* [width] */
    float *y;                      /* [..][width]; may be p */
    size_t width;
    float eps;
    float *scratch; /* n_blocks + 1, then width */
} waste_ares;

/* One matrix of an expert record: index bytes and row scales in place. */
typedef struct waste_vq_matrix {
    const unsigned char *index;
    const unsigned char *scale; /* f16 per row, any alignment */
    const float *book[8];       /* per stage: as many entries as an index can name */
    int64_t rows, cols;
} waste_vq_matrix;

/* How index bytes are read (container.md 5.4, 5.5): one byte per stage, or four
 * 6-bit indices in three. */
typedef struct waste_vq_geometry {
    int stages, vec_dim, index_block, index_bits, vector_bytes;
} waste_vq_geometry;

/* An expert for the rows that chose it: x_row[i] of the batch is its input i.
 * up:   h[i] = act(gate x, up x).    Range: rows of gate.
 * down: y[y_row[i]] = down h[i].     Range: rows of down. */
typedef struct waste_expert {
    waste_vq_geometry geometry;
    waste_vq_matrix gate, up, down;
    waste_act_kind act;
    size_t n;
    const float *x; /* [..][gate.cols] */
    const int *x_row;
    float *h; /* [n][gate.rows] */
    float *y; /* [..][down.rows] */
    const int *y_row;
    float *decoded; /* scratch, 2 * max(gate.cols, down.cols) */
} waste_expert;

typedef struct waste_kernels {
    const char *name; /* "plain C", ... */
    void (*matmul)(const waste_matmul *a, int64_t lo, int64_t hi);
    void (*rmsnorm)(const waste_rmsnorm *a, int64_t lo, int64_t hi);
    void (*act)(const waste_act *a, int64_t lo, int64_t hi);
    void (*gate)(const waste_gate *a, int64_t lo, int64_t hi);
    void (*conv)(const waste_conv *a, int64_t lo, int64_t hi);
    void (*kda)(const waste_kda *a, int64_t lo, int64_t hi);
    void (*mla)(const waste_mla *a, int64_t lo, int64_t hi);
    void (*ares)(const waste_ares *a, int64_t lo, int64_t hi);
    void (*expert_up)(const waste_expert *a, int64_t lo, int64_t hi);
    void (*expert_down)(const waste_expert *a, int64_t lo, int64_t hi);
} waste_kernels;

/* Fills every slot. `cpu`: feature bits that may be relied on; 0 gives plain C. */
void waste_kernels_pick(waste_kernels *k, unsigned cpu);

#endif
