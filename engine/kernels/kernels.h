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
 * Formulas: docs/model.md, sections as noted. */
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
    int tiled; /* laid out by the table's pack_matrix: only that table reads it */
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
    /* What the table's activations made of these n rows of x for a w of this shape and
     * group, whatever its format; unused unless w is tiled. */
    const void *activations;
} waste_matmul;

/* y = x / sqrt(mean(x^2) + eps) * w; y may be x. Range: batch rows. */
typedef struct waste_rmsnorm {
    const float *x, *w;
    float *y;
    size_t width, x_stride, y_stride;
    float eps;
} waste_rmsnorm;

/* SiLU(g) * u, or SiTU (docs/model.md 1). */
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

/* Causal depthwise convolution and SiLU (docs/model.md 6, step 2), in place. Rows
 * are taken in order; those of one sequence share a ring. Range: channels. */
typedef struct waste_conv {
    size_t n;
    int channels, taps;
    const float *w;     /* [channels][taps] */
    float *x;           /* [n][channels] */
    float *const *ring; /* per row: [channels][taps - 1], oldest first */
} waste_conv;

/* Decay gate and delta rule (docs/model.md 6, steps 3 to 5). Rows are taken in
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
    float *scratch;         /* WASTE_KDA_FLOATS(dim) (kernels_work.h) */
} waste_kda;

/* Attention over cached latents, absorbed form (docs/model.md 5.2). Row t sees
 * positions 0..last[t] of its own sequence, whose latents are there already.
 * Range: heads. */
#define WASTE_LATENT_BLOCK 64 /* positions to a block */

typedef struct waste_mla {
    size_t n;
    int heads, nope, rope, rank, v;
    waste_matrix kv_b; /* [heads * (nope + v)][rank] */
    float scale;
    const float *q;            /* [n][heads * (nope + rope)], rotated */
    int f16;                   /* latents are binary16, else f32; the result is that of their
                                 * f32 values, bit for bit */
    void *const *const *block; /* per row: blocks of [WASTE_LATENT_BLOCK][rank + rope] */
    const int64_t *last;       /* per row */
    float *o;                  /* [n][heads * v] */
    float *decoded;            /* scratch, rank */
    float *latent;             /* scratch, [2][n][rank] */
    void *work; /* scratch, waste_kernels_work_bytes; may be NULL in plain C with f32 */
} waste_mla;

/* One read of Attention Residuals (docs/model.md 4.2). Range: batch rows. */
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
    const void *packed; /* the books as the table's pack_books leaves them, or NULL */
} waste_vq_matrix;

/* How index bytes are read (docs/format.md 5.4, 5.5): one byte per stage, or four
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
    int planar;     /* the record went through pack_record */
    /* What expert_tables made of input row x_row[0] for the books of this gate and
     * up, with n == 1; NULL: the slot makes its own, to the same bits. */
    const void *tables;
    void *work; /* scratch, waste_kernels_work_bytes; may be NULL in plain C */
} waste_expert;

/* The largest shapes that slots will meet: sizes their scratch. */
typedef struct waste_kernel_limits {
    size_t rows;           /* of a batch */
    int64_t width, in;     /* expert: rows of gate, rows of down; 0: none */
    int heads, rank, rope; /* MLA; 0: none */
} waste_kernel_limits;

struct waste_record_layout; /* store/record.h */

typedef struct waste_kernels {
    const char *name; /* as in kernels.c */
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

    /* What a table wants prepared; NULL where it wants nothing, and all NULL in
     * plain C. Each is done once, before anyone else sees the bytes. A table that has
     * pack_matrix has activations too. */

    /* Rearranges payload and scales of a quantised matrix in place, in rows of the
     * same size, and sets w->tiled; leaves alone what the table does not speed up.
     * temp: waste_kernels_pack_bytes(w). */
    void (*pack_matrix)(waste_matrix *w, void *data, uint16_t *scales, void *temp);
    /* x of a matmul with a tiled w, for all matrices with as many columns and this
     * group. to: waste_kernels_activations_bytes, aligned to 64. Of `a`, y and the
     * weights are not looked at. Range: batch rows. */
    void (*activations)(const waste_matmul *a, void *to, int64_t lo, int64_t hi);
    /* Rearranges the indices of a record in place; the header keeps its meaning. Does
     * nothing for a geometry that the table does not speed up. */
    void (*pack_record)(void *record, const struct waste_record_layout *at,
                        const waste_vq_geometry *g);
    /* Bytes of one matrix's books, for experts of width rows of gate and input rows of down;
     * 0: they are to be left unpacked, books and records. */
    size_t (*books_bytes)(const waste_vq_geometry *g, int64_t width, int64_t input);
    /* to: books_bytes, aligned to 64. book: as in waste_vq_matrix. */
    void (*pack_books)(void *to, const waste_vq_geometry *g, const float *const *book);
    /* Bytes for the tables of one row of `cols` inputs. */
    size_t (*tables_bytes)(const waste_vq_geometry *g, int64_t cols);
    /* Tables of input row x_row[0] into `to`, for every expert with these books of
     * gate and up. Range: blocks of WASTE_TABLE_COLS columns of gate. */
    void (*expert_tables)(const waste_expert *a, void *to, int64_t lo, int64_t hi);
} waste_kernels;

#define WASTE_TABLE_COLS 128

/* Plain C for `cpu` 0 (base/cpu.h), else the fastest table that the bits allow. */
void waste_kernels_pick(waste_kernels *k, unsigned cpu);
/* The table of that name. 0: unknown, not for this CPU, or not in this build. */
int waste_kernels_named(waste_kernels *k, const char *name, unsigned cpu);

/* Bytes for the activations of n rows of up to `cols`, whatever the table and the group. */
size_t waste_kernels_activations_bytes(int64_t cols, size_t n);
/* Bytes of the `work` that a slot may need for shapes up to `l`, whatever the
 * table; one piece per thread that runs a part, aligned to 64. */
size_t waste_kernels_work_bytes(const waste_kernel_limits *l);
/* At least the tables_bytes of every table and geometry. */
size_t waste_kernels_tables_most(int64_t cols);
size_t waste_kernels_pack_bytes(const waste_matrix *w);

#endif
