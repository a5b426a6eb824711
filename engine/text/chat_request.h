/* A chat request: the conversation, and the fields beside it that shape the
 * prompt (docs/chat.md 3). Errors are WASTE_ARG and name the field.
 * Fields that are none of these are not looked at: they are the host's.
 *
 * One thread reads a request; read, it does not change. */
#ifndef WASTE_CHAT_REQUEST_H
#define WASTE_CHAT_REQUEST_H

#include "text/chat_message.h"

typedef enum waste_chat_choice {
    WASTE_CHAT_CHOICE_SILENT, /* not given, or one that adds nothing to a prompt */
    WASTE_CHAT_CHOICE_REQUIRED,
    WASTE_CHAT_CHOICE_NOTHING /* "none" */
} waste_chat_choice;

typedef enum waste_chat_answer {
    WASTE_CHAT_ANSWER_SILENT, /* not given, "text", ... */
    WASTE_CHAT_ANSWER_OBJECT,
    WASTE_CHAT_ANSWER_SCHEMA
} waste_chat_answer;

typedef struct waste_chat_parsed {
    waste_chat_messages messages;
    size_t skip;             /* messages at the front that are not rendered */
    waste_chat_json *doc;    /* of the options; NULL: none */
    const waste_json *tools; /* an array that is not empty, or NULL */
    waste_chat_choice choice;
    waste_str must_call; /* tool_choice as an object: that function; text NULL: none */
    int has_choice;      /* tool_choice is there, whatever it says */
    waste_chat_answer answer;
    int has_answer;           /* response_format is there */
    const waste_json *schema; /* NULL: none */
    int thinking;             /* 0, 1; -1: not said */
    const char *effort;       /* "low", "high", "max", or NULL; static */
    const char *effort_field; /* where it was given; static */
    int floor;                /* add_generation_prompt: the assistant's turn is opened */
    waste_str *image;         /* media segments to put in, checked; NULL: none given */
    size_t n_images;
} waste_chat_parsed;

/* Zero-initialised is no request. Clear it in any case. */
waste_status waste_chat_request_read(waste_chat_parsed *p, const waste_chat_request *r,
                                     waste_error *err);
void waste_chat_request_clear(waste_chat_parsed *p);

/* Whether the model may call tools: some are declared, in the options or by a
 * system message. */
int waste_chat_request_has_tools(const waste_chat_parsed *p);
/* "messages[2].content[0]" of the first image part that is rendered, into out, and
 * 1; 0 when there is none. */
int waste_chat_request_image(const waste_chat_parsed *p, char *out, size_t cap);

#endif
