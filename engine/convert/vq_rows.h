/* Rows of an expert matrix to scales and indices, on all threads. What a row becomes
 * depends on the row, the books and the settings alone. */
#ifndef WASTE_VQ_ROWS_H
#define WASTE_VQ_ROWS_H

#include "convert/convert.h"
#include "convert/vq_importance.h"
#include "convert/vq_team.h"

typedef struct waste_vq_rows waste_vq_rows;

typedef struct waste_vq_job {
    const waste_quant *quant;
    const waste_vq_books *books;
    /* 0: greedy, stage by stage, scaled by the largest weight, as other converters
     * of the format do. Otherwise the beam: scaled by the root of the mean square
     * while searching, then by the least-squares fit w.y / y.y. */
    int beam;
    const waste_vq_weights *weights; /* NULL: all columns alike; not with beam 0 */
    float *w;                        /* [rows][cols], lost */
    int64_t rows, cols;
    int64_t first;          /* number of row 0 in its matrix */
    unsigned char *indices; /* of the matrix, as a record has them */
    uint16_t *scale;        /* [rows]; infinite: the row does not fit into f16 */
} waste_vq_job;

/* `team` is borrowed. Jobs have at most `weights` weights in `rows` rows. */
waste_status waste_vq_rows_open(waste_vq_rows **out, const waste_quant *q, waste_vq_team *team,
                                int64_t rows, int64_t weights, waste_error *err);
void waste_vq_rows_close(waste_vq_rows *e);

/* Begins on the other threads and returns; _finish does its share, waits, and adds to
 * the loss. In between the job and what it points to stay as they are. */
waste_status waste_vq_rows_start(waste_vq_rows *e, const waste_vq_job *job,
                                 const waste_cancel *cancel, waste_error *err);
waste_status waste_vq_rows_finish(waste_vq_rows *e, waste_convert_loss *loss,
                                  const waste_cancel *cancel, waste_error *err);

#endif
