/* {"truncate":"oldest"}: a conversation that has outgrown the context goes on without its
 * oldest turns. A turn begins with a message of the user and ends before the next one, so
 * that a tool's result stays with its call. Messages of the system stay, and so does what
 * options declare at the beginning. The rows stay too, and say when they were left out
 * (waste_messages.omitted).
 *
 * All is computed again then, so it is done seldom: not before a reply has no room, and
 * then until half of the context is free, as far as whole turns do that. */
#ifndef EXT_TRUNCATE_H
#define EXT_TRUNCATE_H

#include "ext_session.h"
#include "ext_talk.h"

/* Whether `tokens`, those of all messages that were read and of the prompt, leave too
 * little of `context` for a reply of max_tokens and `closing` more, and something can be
 * done about it: then s->cut says what is to go, and the session is to be read again. */
int waste_truncate(waste_session *s, int64_t tokens, int64_t context, int64_t max_tokens,
                   int64_t closing);
/* After reading, when the first message is gone: what was declared before it comes before
 * the next one. */
waste_status waste_truncate_open(waste_session *s, waste_talk *talk, const waste_container *c,
                                 waste_error *err);
/* Marks the rows, in the turn whose first message is `seq`. */
waste_status waste_truncate_write(const waste_session *s, int64_t seq, waste_error *err);

#endif
