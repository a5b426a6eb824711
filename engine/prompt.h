/* Prompts as ids, and what they say about the reply. For generate.c; the public
 * functions of prompt.c are in waste.h. Any thread. */
#ifndef WASTE_PROMPT_H
#define WASTE_PROMPT_H

#include "base/buf.h"
#include "waste.h"

/* What a prompt says about its reply. */
typedef struct waste_prompt_outlook {
    waste_chat_format format;
    int thinking;   /* the reasoning channel is open */
    int tools;      /* declared: calls may follow the answer */
    int floor;      /* it is the model's turn */
    char image[64]; /* field of the first image in it, or empty */
} waste_prompt_outlook;

/* As waste_prompt_ids, and fills *ahead. */
waste_status waste_prompt_make(const waste_container *c, const waste_prompt *p, waste_ids *out,
                               waste_prompt_outlook *ahead, waste_error *err);

/* Only its token ids, checked against the vocabulary and appended; none is fine. */
waste_status waste_prompt_take(const waste_container *c, const waste_prompt *p, waste_ids *out,
                               waste_error *err);

/* What was built becomes the caller's, or is released when st, or building it,
 * failed. */
waste_status waste_prompt_text(waste_buf *b, waste_status st, waste_text *out, waste_error *err);

#endif
