/* chat.json (docs/chat.md 1): four templates around text. */
#ifndef WASTE_CHAT_PLAIN_H
#define WASTE_CHAT_PLAIN_H

#include "text/chat.h"
#include "text/chat_request.h"

typedef struct waste_chat_plain waste_chat_plain;

/* Reads and checks the file by the rules of docs/chat.md 1.1; the error names the
 * file, the role or key, and the marker that is not a single token. */
waste_status waste_chat_plain_open(waste_chat_plain **out, const char *path,
                                   const waste_tokenizer *t, waste_error *err);
void waste_chat_plain_close(waste_chat_plain *c);
int32_t waste_chat_plain_stop(const waste_chat_plain *c); /* the id that ends a reply */

/* Appends the prompt. What the format has no place for is WASTE_UNSUPPORTED and
 * names the field: tools, tool_choice, response_format, thinking, images, tool
 * turns and calls, a role the file does not define. Speakers' names and past
 * reasoning have no place either, and are left out. */
waste_status waste_chat_plain_render(const waste_chat_plain *c, const waste_chat_parsed *p,
                                     waste_segments *s, waste_error *err);
/* What closes an assistant's turn: the whole suffix, or with `stopped` what
 * follows the marker that the model ended its reply with. */
waste_str waste_chat_plain_suffix(const waste_chat_plain *c, int stopped);

#endif
