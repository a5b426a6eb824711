/* Whether the trunk has every tensor that the model of these settings needs, with
 * its shape (docs/model.md 3), so that a conversion which no engine could open fails
 * before anything is written. */
#ifndef WASTE_CENSUS_H
#define WASTE_CENSUS_H

#include "convert/trunk.h"

/* WASTE_FORMAT naming the first tensor that is missing or has another shape, and
 * how many there are. */
waste_status waste_census_check(const waste_trunk *t, const waste_settings *c, waste_error *err);

/* How many tensors of the trunk no engine asks for (vision aside), and in `first`, of
 * WASTE_TRUNK_NAME bytes, the first of them. WASTE_NOMEM is the only error. */
waste_status waste_census_unknown(const waste_trunk *t, const waste_settings *c, size_t *n,
                                  char *first, waste_error *err);

#endif
