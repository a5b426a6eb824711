/* Reads a reply token by token (docs/chat.md 6): which bytes are the answer,
 * which are reasoning, tool calls or markup, and when the reply is over.
 *
 * Only a token's id decides: text that spells a marker is text. Nothing a model
 * writes is an error; the only status besides WASTE_OK is WASTE_NOMEM, after
 * which the reply must only be freed. All text given out is valid UTF-8: a code
 * point split over tokens comes with the token that completes it, bytes that
 * form none become U+FFFD. A reply belongs to one thread at a time. */
#ifndef WASTE_REPLY_H
#define WASTE_REPLY_H

#include "base/buf.h"
#include "text/chat.h"

typedef struct waste_reply waste_reply;

typedef struct waste_reply_options {
    waste_chat_format format;  /* NONE: all is content until eos */
    int32_t mark[WASTE_MARKS]; /* XTML: ids of the markers */
    int32_t stop;              /* PLAIN: the id that ends a reply */
    int32_t eos;               /* ends it in every format; -1: none */
    const char *channel;       /* XTML: element the prompt left open; NULL: none */
    /* XTML: 0 ends the reply once its response element is closed, which is all
     * there is when no tools were declared; 1 reads on to the end marker. */
    int to_end;
} waste_reply_options;

/* What one token released; borrowed until the next call on the reply. */
typedef struct waste_reply_delta {
    waste_str answer, reasoning;
    waste_str tools;     /* text of a tool argument or raw argument block */
    waste_region region; /* of the token itself */
    int done;            /* the reply is over */
} waste_reply_delta;

waste_status waste_reply_new(waste_reply **out, const waste_reply_options *o, waste_error *err);
void waste_reply_free(waste_reply *r);

/* One token and its bytes (none: NULL, 0). After `done` everything is ignored. */
waste_status waste_reply_push(waste_reply *r, int32_t id, const char *bytes, size_t n,
                              waste_reply_delta *delta, waste_error *err);
/* Before waste_reply_end when it is not the model that ended the reply but a
 * limit: a header that is being read stays markup and is dropped. */
void waste_reply_cut(waste_reply *r);
/* No more tokens: what was held comes out, an unfinished header as the text it
 * is, and what an open argument has so far is stored. */
waste_status waste_reply_end(waste_reply *r, waste_reply_delta *delta, waste_error *err);

/* ---- tool calls -------------------------------------------------------- */

typedef struct waste_reply_arg {
    waste_str key, type, text; /* type as declared, text as written */
} waste_reply_arg;

typedef struct waste_reply_call {
    waste_str name, id; /* id: the attribute, else "call_" and the index */
    int64_t index;      /* the attribute, else the ordinal from 1 */
    waste_str raw;      /* with has_raw: the arguments, verbatim; overrides arg */
    int has_raw;
    waste_reply_arg *arg; /* in order of first appearance; a repeated key overwrites */
    size_t n_args, cap_args;
} waste_reply_call;

/* Calls whose header is complete. Number i is borrowed until the next call on
 * the reply; its arguments are complete once the reply has ended. */
size_t waste_reply_calls(const waste_reply *r);
const waste_reply_call *waste_reply_call_at(const waste_reply *r, size_t i);

/* ---- what follows ------------------------------------------------------ */

/* Whether text of the next token would be reasoning. */
int waste_reply_thinks(const waste_reply *r);
/* Appends what ends it: the element is closed, and the response opened unless one was. */
void waste_reply_leave(const waste_reply *r, waste_segments *s);
/* Appends what completes the assistant's message after the tokens that were
 * pushed, so that the next message can follow: elements that are open are closed,
 * an answer that was never begun is empty. Nothing after the end marker, and nothing in
 * other formats than XTML. Call it after waste_reply_end. */
void waste_reply_closing(const waste_reply *r, waste_segments *s);
int waste_reply_stopped(const waste_reply *r); /* by the end marker or stop marker */

#endif
