/* How the fast tables keep a trunk matrix in memory: 64 rows side by side, so that a
 * vector holds the same columns of 16 rows and no sum crosses lanes.
 *
 * The matrix keeps its size. Tile t is where its 64 rows were; in it follow the
 * groups, in each group the steps, in each step four vectors of 64 bytes: vector q
 * holds rows 16 q .. 16 q + 15, four bytes each. Byte j of a row's four:
 *   Q8G  4 columns a step: code of column 4 s + j, plus 128
 *   Q4G  8 columns a step: columns 8 s + j (low half) and 8 s + 4 + j, as stored
 *   Q3G  32 columns a step, three of these sets of vectors: the low two bits of
 *        columns 32 s + 4 i + j, i = 0..3, at bits 2 i; the same of i = 4..7; then
 *        the third bits, i = 0..7, at bit i
 * Scales of a tile: [group][64]. Rows after the last whole tile stay as stored. */
#ifndef WASTE_TILES_H
#define WASTE_TILES_H

#include "kernels/kernels.h"

#define WASTE_TILE_ROWS 64

/* As waste_kernels.pack_matrix; plain code for every fast table. Left alone: F32,
 * fewer than 64 rows, and groups that are not whole steps or longer than
 * WASTE_TILES_GROUP. */
void waste_tiles_pack(waste_matrix *w, void *data, uint16_t *scales, void *temp);

/* Code of column `col` of a row as stored; scale times it is the weight. */
int waste_tiles_code(waste_fmt fmt, const unsigned char *row, int64_t col);

/* Activations are integers up to this, a scale for each group of columns; of so many at
 * most, or sums of their products could overflow 32 bits. */
#define WASTE_TILES_STEPS 32639.0f
#define WASTE_TILES_GROUP 256

/* What is taken from an unsigned code to give the signed one. */
static inline int waste_tiles_offset(waste_fmt fmt)
{
    return fmt == WASTE_FMT_Q8G ? 128 : fmt == WASTE_FMT_Q4G ? 8 : 4;
}

/* Where row t of a result goes. */
static inline float *waste_tiles_result(const waste_matmul *a, size_t t)
{
    return a->y_rows ? a->y_rows[t] : a->y + t * a->y_stride;
}

/* Rows of integers that stand for a row of x: what the first leaves of it is a second one
 * where a matrix has few columns, whose products it then takes twice as long to add up. That
 * is little of any model's time, and small models get the precision of f32. */
#define WASTE_TILES_NARROW 256

static inline size_t waste_tiles_terms(int64_t cols)
{
    return cols <= WASTE_TILES_NARROW ? 2 : 1;
}

/* Rows that are in tiles. */
static inline int64_t waste_tiles_rows(const waste_matrix *w)
{
    return w->tiled ? w->rows / WASTE_TILE_ROWS * WASTE_TILE_ROWS : 0;
}

/* Bytes of a group of one row, or of a tile divided by its rows. */
static inline int64_t waste_tiles_group_bytes(const waste_matrix *w)
{
    return w->fmt == WASTE_FMT_Q8G   ? w->group
           : w->fmt == WASTE_FMT_Q4G ? w->group / 2
                                     : w->group / 8 * 3;
}

#endif
