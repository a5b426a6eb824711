/* K3's prompt language (docs/chat.md 2 and 3): a whole conversation as segments. */
#ifndef WASTE_CHAT_XTML_H
#define WASTE_CHAT_XTML_H

#include "text/chat.h"
#include "text/chat_request.h"

/* Appends the prompt. Orders the tool results of p first, so that calling it again
 * gives the same. WASTE_ARG: a tool result without a name; images that are more
 * or fewer than their places. After an error s is of no use. */
waste_status waste_chat_xtml_render(waste_chat_parsed *p, waste_segments *s, waste_error *err);

/* p->thinking, or what K3 does when nobody said: it thinks. */
int waste_chat_xtml_thinks(const waste_chat_parsed *p);

#endif
