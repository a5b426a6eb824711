/* A reply as JSON, in the OpenAI chat schema (docs/chat.md 6). One thread. */
#ifndef WASTE_REPLY_JSON_H
#define WASTE_REPLY_JSON_H

#include "text/reply.h"

/* Appends the arguments as OpenAI's `arguments` string: the raw block, else one
 * JSON object ({} without any). Values are converted by their declared type;
 * one that does not parse stays a string. Numbers, objects and arrays keep the
 * spelling they were written in, so integers keep all their digits. A number
 * that overflows a double, or nesting deeper than WASTE_JSON_DEPTH, is kept as
 * text. */
waste_status waste_reply_json_arguments(const waste_reply_call *call, waste_buf *out,
                                        waste_error *err);

/* Appends the assistant's message: role, content (null when empty),
 * reasoning_content (only when there is some) and tool_calls (only when there are
 * any), with the texts given. The reply must have ended. */
waste_status waste_reply_json_message(const waste_reply *r, waste_str content, waste_str reasoning,
                                      waste_buf *out, waste_error *err);

#endif
