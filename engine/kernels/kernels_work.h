/* Sizes of the scratch that fast tables use, in one place so that it can be
 * reserved without knowing which table will run. */
#ifndef WASTE_KERNELS_WORK_H
#define WASTE_KERNELS_WORK_H

/* Experts: positions (of 8 columns) that share tables, inputs that share a pass over
 * a record. */
#define WASTE_VQ_BLOCK       8
#define WASTE_VQ_ROWS        16
#define WASTE_VQ_TABLE_BYTES (WASTE_VQ_BLOCK * 3 * 256 * 4) /* f32; 16-bit tables fit too */
#define WASTE_VQ_PLANE_BYTES (2 * WASTE_VQ_BLOCK * 3 * 64)

/* KDA: rows of one sequence that pass over 64 columns of its state together, and scratch
 * for their vectors and these columns. */
#define WASTE_KDA_ROWS        16
#define WASTE_KDA_FLOATS(dim) ((WASTE_KDA_ROWS * 4 + 64) * (size_t)(dim))

/* MLA: batch rows that share kv_b and each block of latents; rows of kv_b that are decoded
 * together. */
#define WASTE_MLA_ROWS    8
#define WASTE_MLA_DECODED 16 /* a vector of results */

#endif
