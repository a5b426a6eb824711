/* One turn of a session: the caller's message, the model's reply, and both as rows
 * with the state they leave (docs/sessions.md).
 *
 *     waste_turn_open(&t, ...);
 *     while (!(st = waste_turn_next(t, &token, &err))) ...
 *     WASTE_DONE: the turn is written; waste_turn_content has the reply
 *     waste_turn_close(t);
 *
 * Nothing is written before the last token; a turn that is closed early, fails or
 * times out leaves the session as it was. No lock is held while the model computes,
 * but for those of the caller's own transaction. Belongs to the thread that runs the
 * connection. */
#ifndef EXT_TURN_H
#define EXT_TURN_H

#include "ext_session.h"

typedef struct waste_turn waste_turn;

typedef struct waste_turn_args {
    const char *who;        /* SQL name of the caller */
    sqlite3_value *session; /* none of them NULL but options */
    sqlite3_value *message;
    sqlite3_value *options;
    sqlite3_value **parts; /* further text of the message; part i is argument 4 + i */
    int n_parts;
    int logprobs; /* the caller has a place for them */
} waste_turn_args;

/* WASTE_DONE: the session or the message is NULL, so there is nothing to answer. The
 * values must stay until the turn is closed. `cancel` is asked throughout. */
waste_status waste_turn_open(waste_turn **out, waste_conn *c, const waste_turn_args *args,
                             const waste_cancel *cancel, waste_error *err);
/* As waste_gen_next; with the token that carries `finish` the turn is written, unless it
 * is a timeout. */
waste_status waste_turn_next(waste_turn *t, waste_gen_token *out, waste_error *err);
void waste_turn_close(waste_turn *t);

const waste_buf *waste_turn_content(const waste_turn *t);
int64_t waste_turn_made(const waste_turn *t);    /* tokens of the reply so far */
int64_t waste_turn_timeout(const waste_turn *t); /* timeout_ms in force */
const waste_container *waste_turn_container(const waste_turn *t);
int waste_turn_logprobs(const waste_turn *t); /* the option was given */

#endif
