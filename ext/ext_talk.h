/* What is said in a turn: the options in force, which are the turn's own over the
 * session's, and the tokens of the messages that the model has not read yet. */
#ifndef EXT_TALK_H
#define EXT_TALK_H

#include "ext_request.h"
#include "ext_session.h"

typedef struct waste_talk {
    waste_request request; /* message, parts, and all about the reply */
    waste_str role, name, call_id;
    waste_json *own;       /* the turn's options */
    sqlite3_value *merged; /* those in force, but for the three above */
    waste_buf shape;       /* the same as text, without the closing brace */
    waste_buf whole;       /* with it, for a request of the renderer */
    waste_buf messages;    /* likewise */
} waste_talk;

/* Reads options, message and parts. WASTE_DONE: the message is NULL. Clear it in any
 * case. `takes`: more than what all turns take. */
waste_status waste_talk_read(waste_talk *t, const waste_session *s, const char *who, unsigned takes,
                             sqlite3_value *message, sqlite3_value *options, int n_parts,
                             sqlite3_value **parts, waste_error *err);
void waste_talk_clear(waste_talk *t);

/* The renderer's request for the first n messages of the tail; `floor`: the model's turn
 * follows. Borrowed until the next call. */
waste_status waste_talk_request(waste_talk *t, const waste_session *s, size_t n, int floor,
                                waste_chat_request *out, waste_error *err);
/* Renders all messages of the tail that are not known, sets where in the conversation
 * the tokens of each are, and gives them all, with the floor, in *prompt. */
waste_status waste_talk_split(waste_talk *t, waste_session *s, const waste_container *c,
                              waste_ids *prompt, waste_error *err);

/* The ids that open a conversation before its first message: what the options declare.
 * Often none. */
waste_status waste_talk_opening(waste_talk *t, const waste_container *c, waste_ids *out,
                                waste_error *err);

/* What waste_session() takes as options, checked: `system` is taken out (free with
 * waste_mem_free, NULL: none), `keep` is made of `state`, and *rest gets the others as
 * text; empty when there are none. */
waste_status waste_talk_defaults(sqlite3 *db, sqlite3_value *options, waste_buf *rest,
                                 char **system, int64_t *keep, waste_error *err);

#endif
