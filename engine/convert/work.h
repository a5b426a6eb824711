/* The pieces of work of a conversion, for convert.c and estimate.c. */
#ifndef WASTE_WORK_H
#define WASTE_WORK_H

#include "convert/conversion.h"

/* Sets c->total and what is left. */
void waste_work_count(waste_convert *c);
/* Takes the target and finds out what earlier runs have finished; sets c->phase. */
waste_status waste_work_start(waste_convert *c, waste_error *err);
/* Does the next piece: WASTE_OK, or WASTE_DONE when there was none. May fill row->note. */
waste_status waste_work_next(waste_convert *c, waste_convert_row *row, waste_error *err);

/* Bytes of all files of the container, and of the codebook parts beside them. */
uint64_t waste_work_bytes(const waste_convert *c);

#endif
