/* What the parts of a conversion share; the conversion itself is in waste.h.
 * One thread per conversion. */
#ifndef WASTE_CONVERT_H
#define WASTE_CONVERT_H

#include "base/error.h"

/* Floats of the source that are held at once: row ranges are read in pieces of
 * about this size, whatever the model's. */
#define WASTE_CONVERT_PIECE ((int64_t)1 << 20)

/* WASTE_CANCELLED when the caller wants to stop; asked every few dozen
 * milliseconds of work. */
static inline waste_status waste_convert_asked(const waste_cancel *cancel, waste_error *err)
{
    if (!cancel || !cancel->asked || !cancel->asked(cancel->ctx)) return WASTE_OK;
    return waste_fail(err, WASTE_CANCELLED, "the conversion was cancelled");
}

/* ||W - W'|| / ||W|| of what was stored, gathered as sums of squares. */
typedef struct waste_convert_loss {
    double wrong, all;
} waste_convert_loss;

#endif
