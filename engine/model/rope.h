/* Rotary position embedding with YaRN scaling (docs/model.md 5.3). Pairs are
 * adjacent elements (2j, 2j + 1). Pure functions. */
#ifndef WASTE_ROPE_H
#define WASTE_ROPE_H

#include <stdint.h>

#include "model/config.h"

/* Pairs that are turned; 0 when the model does not rotate. */
int waste_rope_pairs(const waste_config *c);

/* Fills inv[0..pairs) with inverse frequencies and returns m, the factor that
 * YaRN puts on the attention scale (1 when it does not apply). */
float waste_rope_table(const waste_config *c, float *inv);

/* cos and sin of every pair at a position, interleaved: cs[2 * pairs]. */
void waste_rope_angles(const float *inv, int pairs, int64_t position, float *cs);

/* Turns x[0..2 * pairs) in place. */
void waste_rope_turn(float *x, const float *cs, int pairs);

#endif
