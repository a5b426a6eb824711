/* A sequence in parts, to be kept outside of memory and put together again
 * (docs/sessions.md 4). The parts are a function of the configuration and of
 * positions alone, so whoever reads them knows what there has to be:
 *
 *     per KDA layer   its state and its rings, as they are after position `to`
 *     per MLA layer   the latents of positions [from, to), which never change again
 *
 * all exact, F32, little-endian, cut into pieces of at most WASTE_PART_BYTES. Latents
 * that are kept as binary16 are widened, so that every part has one form; the model's
 * identity tells them apart, and putting them back gives the same bits.
 *
 * A check binds a part to everything that it depends on: its place, its bytes, the
 * model's identity and the tokens up to `to`. It finds accidents, not forgers.
 * Pure functions; a sequence belongs to one thread at a time. */
#ifndef WASTE_STATE_H
#define WASTE_STATE_H

#include "model/sequence.h"

/* Number of parts of this kind for [from, to), 0 <= from <= to. `of` bits: 1 what
 * KDA layers hold at `to`, 2 latents. With `out` not NULL all are written there. */
size_t waste_state_parts(const waste_config *c, int64_t from, int64_t to, unsigned of,
                         waste_seq_part *out);

/* WASTE_ARG unless p is one of the parts above for this configuration. */
waste_status waste_state_check_part(const waste_config *c, const waste_seq_part *p,
                                    waste_error *err);

/* Copies a part out of a sequence whose length is at least p->to; parts of KDA
 * layers must be asked for at exactly its length. `to` has room for p->bytes. */
waste_status waste_state_save(const waste_seq *s, const waste_seq_part *p, void *to,
                              waste_error *err);

/* Putting a sequence together: it is new, begin makes room for `length` positions
 * (and breaks it), every part is put in once, end makes it whole, or says how much
 * is missing. */
waste_status waste_state_begin(waste_seq *s, int64_t length, waste_error *err);
waste_status waste_state_put(waste_seq *s, const waste_seq_part *p, const void *from,
                             waste_error *err);
waste_status waste_state_end(waste_seq *s, waste_error *err);

/* Running hash of bytes: start with 0, feed what came out. */
uint64_t waste_state_hash(uint64_t h, const void *p, size_t n);
uint64_t waste_state_check(const waste_seq_part *p, const void *data, uint64_t model,
                           uint64_t tokens);

#endif
