/* Chat formats: from a turn to prompt segments (spec chat.md). Segments are
 * tokenized one by one and never merged. */
#ifndef WASTE_CHAT_H
#define WASTE_CHAT_H

#include "text/tokenizer.h"

typedef struct waste_chat waste_chat; /* a container's format, checked */

typedef enum waste_mark {
    WASTE_MARK_OPEN,
    WASTE_MARK_CLOSE,
    WASTE_MARK_SEP,
    WASTE_MARK_END
} waste_mark;

/* XTML when its four markers are single tokens, else dir/chat.json, else none
 * (*out is then a chat of kind WASTE_CHAT_NONE). A chat.json that cannot be used
 * does not fail the opening: waste_chat_check says what is wrong with it. */
waste_status waste_chat_open(waste_chat **out, const char *dir, const waste_tokenizer *t,
                             waste_error *err);
void waste_chat_close(waste_chat *c);
waste_chat_format waste_chat_kind(const waste_chat *c);
waste_status waste_chat_check(const waste_chat *c, waste_error *err);

/* One turn: optional system text, the user's text and parts, generation prompt. */
waste_status waste_chat_turn(const waste_chat *c, const waste_tokenizer *t, const waste_prompt *p,
                             waste_ids *out, waste_error *err);

/* XTML: the id of a marker. -1 otherwise. */
int32_t waste_chat_mark(const waste_chat *c, waste_mark m);
/* chat.json: the id that ends a reply. -1 when there is none. */
int32_t waste_chat_stop(const waste_chat *c);

#endif
