/* Messages of a conversation, read from JSON in the OpenAI chat schema
 * (docs/chat.md 3.3 to 3.7). Errors are WASTE_ARG and name message and field:
 * "messages[2].content[0].text is a number, wanted a string". Unknown fields are
 * ignored, as servers of that schema do.
 *
 * Texts are borrowed from the document that the list owns. A list belongs to one
 * thread; once read (and ordered) it does not change. */
#ifndef WASTE_CHAT_MESSAGE_H
#define WASTE_CHAT_MESSAGE_H

#include "text/chat_json.h"

typedef enum waste_chat_role {
    WASTE_CHAT_SYSTEM, /* and developer */
    WASTE_CHAT_USER,
    WASTE_CHAT_ASSISTANT,
    WASTE_CHAT_TOOL,
    WASTE_CHAT_ROLES
} waste_chat_role;

typedef struct waste_chat_part {
    waste_str text; /* may be empty */
    int image;      /* the place of an image; no text */
} waste_chat_part;

typedef struct waste_chat_call {
    waste_str name, id;          /* id.text NULL: none */
    waste_str raw;               /* arguments that do not parse; text NULL: they do */
    const waste_json *arguments; /* an object of `doc`; NULL: none */
    const waste_chat_json *doc;
    waste_chat_json *own; /* `doc` of arguments that were given as a string */
} waste_chat_call;

typedef struct waste_chat_message {
    waste_chat_role role;
    size_t at;      /* position in the request */
    waste_str name; /* of the speaker; bytes 0: none */
    waste_chat_part *part;
    size_t n_parts;
    waste_str reasoning; /* assistant; bytes 0: none, or nothing but white space */
    waste_chat_call *call;
    size_t n_calls;
    const waste_json *tools; /* system; an array that is not empty, or NULL */
    waste_str call_id;       /* tool: of the call this answers; text NULL: none */
    waste_str tool;          /* tool: its name; bytes 0: named by position */
    int64_t index;           /* tool: set by waste_chat_message_order */
} waste_chat_message;

typedef struct waste_chat_messages {
    waste_chat_json *doc; /* NULL: not read from JSON */
    waste_chat_message *message;
    size_t n;
} waste_chat_messages;

/* Zero-initialised is empty. Clear it in any case. */
waste_status waste_chat_message_read(waste_chat_messages *m, const char *json, size_t bytes,
                                     waste_error *err);
void waste_chat_message_clear(waste_chat_messages *m);

/* Tool results from message `from` on into the order of their calls, and a name
 * and an index for each (3.6). A result that no name can be found for is an
 * error. Doing it twice changes nothing. */
waste_status waste_chat_message_order(waste_chat_messages *m, size_t from, waste_error *err);

/* Nothing but white space, Unicode's included. */
int waste_chat_message_blank(waste_str s);

#endif
