/* Between sequences and the rows of waste_state. A span is the tokens of one message;
 * rows of it hold the latents of its own positions and, for the last of a session and
 * as many turns before as `keep` says, what KDA layers hold at its end. Belongs to the
 * thread that runs the connection, within a transaction. */
#ifndef EXT_ROWS_H
#define EXT_ROWS_H

#include "ext_session.h"

/* The longest beginning of the conversation's known messages that rows give whole and
 * unharmed, as a sequence; *out NULL when there is none. *rejected counts rows that
 * were there and failed their check. */
waste_status waste_rows_load(waste_seq **out, int64_t *rejected, const waste_session *s,
                             waste_model *m, waste_error *err);

/* Writes what rows lack of the state of all of s->message, whose tokens made `seq` and
 * are ids. Latents before position `stored` are there already; others may be, shared by
 * a fork, and are left alone unless `distrust`. Messages without a span get one; so do
 * their rows. */
waste_status waste_rows_save(waste_session *s, waste_model *m, const waste_seq *seq,
                             const int32_t *ids, int64_t stored, int distrust, waste_error *err);

/* Deletes what KDA layers held at the ends of turns that s need not keep any more and
 * no other session does. */
waste_status waste_rows_prune(const waste_session *s, waste_error *err);

#endif
