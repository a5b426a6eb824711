/* Sizes of the scratch that fast tables use, in one place so that it can be
 * reserved without knowing which table will run. */
#ifndef WASTE_KERNELS_WORK_H
#define WASTE_KERNELS_WORK_H

/* Experts: rows of an index block, positions (of 8 columns) that share tables, inputs
 * that share a pass over a record, of which tables are made one by one and together. */
#define WASTE_VQ_INDEX_ROWS 64
#define WASTE_VQ_BLOCK      8
#define WASTE_VQ_ROWS       16
#define WASTE_VQ_MANY       32
/* Blocks of a row of `cols`, each with a scale and a unit. */
#define WASTE_VQ_BLOCKS(cols) (((cols) + 8 * WASTE_VQ_BLOCK - 1) / (8 * WASTE_VQ_BLOCK))
#define WASTE_VQ_TABLE_BYTES  (WASTE_VQ_BLOCK * 3 * 256 * 4) /* f32; 16-bit tables fit too */
#define WASTE_VQ_PLANE_BYTES  (2 * WASTE_VQ_BLOCK * 3 * 64)
/* Columns of a matrix that is computed without tables, at most: the decoded weights of as
 * many rows as a vector has lanes are kept where tables would be. */
#define WASTE_VQ_DIRECT_COLS 256
/* 16-bit tables of a block, its inputs in 16 bits, and the places of a row block's
 * entries in the tables. */
#define WASTE_VQ_MANY_TABLE  (WASTE_VQ_BLOCK * 3 * 256 * WASTE_VQ_MANY * 2)
#define WASTE_VQ_MANY_INPUTS (WASTE_VQ_BLOCK * 8 * WASTE_VQ_MANY * 2)
#define WASTE_VQ_MANY_PLACES (WASTE_VQ_BLOCK * 4 * 64 * 2)
#define WASTE_VQ_MANY_BYTES  (WASTE_VQ_MANY_TABLE + WASTE_VQ_MANY_INPUTS + WASTE_VQ_MANY_PLACES)

/* KDA: rows of one sequence that pass over 64 columns of its state together, and scratch
 * for their vectors and these columns. */
#define WASTE_KDA_ROWS        16
#define WASTE_KDA_FLOATS(dim) ((WASTE_KDA_ROWS * 4 + 64) * (size_t)(dim))

/* MLA: batch rows that share kv_b and each block of latents; rows of kv_b that are decoded
 * together. */
#define WASTE_MLA_ROWS    8
#define WASTE_MLA_DECODED 16 /* a vector of results */

#endif
