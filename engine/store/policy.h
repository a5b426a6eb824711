/* Which record goes when a slot is needed: pure logic, no locks, no clock.
 *
 * A record's worth is how likely the next pass through its layer wants it: three
 * exponentially decayed counts of use, kept for every record of every layer
 * whether resident or not. Layers come in a fixed cycle, so what is compared is
 * worth / sqrt(d), d being the part of a cycle until the record's layer comes
 * round: of two equally likely records the one needed later goes first. Constants
 * and what they give on real routing traces: docs/measured.md.
 *
 * Records are named by number, layer * experts + expert, layers counted from the
 * first that has experts. Numbers are in range: the cache has checked them. */
#ifndef WASTE_POLICY_H
#define WASTE_POLICY_H

#include "base/error.h"

#define WASTE_POLICY_NAME  "decayed use, layer distance"
#define WASTE_POLICY_RANKS 128           /* guesses that are told apart by their rank */
#define WASTE_POLICY_UNIT  ((float)1e6f) /* hits of a record that every pass wants */

typedef struct waste_policy waste_policy;

waste_status waste_policy_open(waste_policy **out, int layers, int experts, waste_error *err);
void waste_policy_close(waste_policy *p);
uint64_t waste_policy_bytes(int layers, int experts); /* allocated by open */

/* A pass of `rows` rows through a layer: rows[i] of them chose expert ids[i], or
 * one did (uses NULL). Ids are distinct. O(experts). */
void waste_policy_pass(waste_policy *p, int layer, const int *ids, const int *uses, size_t n,
                       size_t rows);
/* What is known from before, hits of WASTE_POLICY_UNIT. Only ever adds. */
void waste_policy_seed(waste_policy *p, int32_t record, uint32_t hits);
uint32_t waste_policy_hits(const waste_policy *p, int32_t record); /* 0: never wanted */

/* A record that may go is offered; one that is used, asked for or awaited is
 * withheld. Both are fine when it is so already. O(log experts). */
void waste_policy_offer(waste_policy *p, int32_t record);
void waste_policy_withhold(waste_policy *p, int32_t record);
/* Of the offered records the one of the least index (worth by distance), if that is
 * below `than`; -1 when there is none. O(layers). */
int32_t waste_policy_least(const waste_policy *p, float than);

/* Index of a record that the lookahead ranked `rank`-th (0: likeliest): from how
 * often guesses of that rank came true. */
float waste_policy_guess(const waste_policy *p, int layer, int rank);
void waste_policy_guessed(waste_policy *p, int rank, int came_true);

#endif
