/* Residual vector quantisation of expert matrices (docs/convert.md 6): codebooks by
 * k-means, stage by stage, and greedy encoding against them. Vectors have 8
 * components. No state is shared; the same input gives the same bits on every
 * machine: sums run in one stated order and nothing is contracted. */
#ifndef WASTE_VQ_H
#define WASTE_VQ_H

#include "base/error.h"
#include "store/manifest.h"

#define WASTE_VQ_DIM     8
#define WASTE_VQ_ENTRIES 256
#define WASTE_VQ_STAGES  8

/* Generator of the samples: splitmix64 (Steele, Lea and Flood 2014). */
typedef struct waste_vq_random {
    uint64_t state;
} waste_vq_random;
uint64_t waste_vq_next(waste_vq_random *r);
uint64_t waste_vq_below(waste_vq_random *r, uint64_t n); /* 0..n-1, n >= 1 */

/* One book, its components apart so that distances to all entries are computed
 * side by side. half[c] is |entry c|^2 / 2; entries a short book does not have
 * are never nearest. */
typedef struct waste_vq_book {
    float part[WASTE_VQ_DIM][WASTE_VQ_ENTRIES];
    float half[WASTE_VQ_ENTRIES];
} waste_vq_book;

typedef struct waste_vq_books {
    int stages, entries;
    waste_vq_book book[WASTE_VQ_STAGES];
} waste_vq_books;

/* The books of one matrix kind from n >= 1 sample vectors (n * 8 floats), which
 * are consumed: at the end they hold the residuals. Entries are f16 values. With
 * fewer samples than entries the surplus entries repeat. WASTE_CANCELLED and
 * WASTE_NOMEM are the only errors; cancel is asked in every k-means round. */
waste_status waste_vq_train(waste_vq_books *b, const waste_quant *q, float *sample, size_t n,
                            waste_vq_random *r, const waste_cancel *cancel, waste_error *err);

/* Rounds the entries to f16, which is what a reader will see and what encoding has
 * to aim at, and sets half. */
void waste_vq_book_round(waste_vq_book *b, int entries);

/* 16 + entries * 16 bytes of codebooks.bin (docs/format.md 6) for one book. */
size_t waste_vq_book_bytes(const waste_quant *q);
void waste_vq_book_write(const waste_vq_book *b, const waste_quant *q, unsigned id,
                         unsigned char *to);

/* The f16 row scale: max |w|, at least 1e-8. Infinite when it does not fit. */
uint16_t waste_vq_row_scale(const float *row, int64_t cols);
/* The same from the root of the mean square, which leaves the vectors of a row near
 * length sqrt(8); not below 1e-8 either. */
uint16_t waste_vq_row_rms(const float *row, int64_t cols);
/* row / scale into to; zeros when the scale is zero. */
void waste_vq_normalise(const float *row, int64_t cols, uint16_t scale, float *to);

/* Encodes n vectors in place: index[v * stages + s], and each vector becomes
 * its final residual. */
void waste_vq_encode(const waste_vq_books *b, float *vector, size_t n, uint8_t *index);

/* Stage indices of one vector as stored: bytes, or four 6-bit fields. */
void waste_vq_pack(const waste_quant *q, const uint8_t *index, uint8_t *to);

#endif
