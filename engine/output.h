/* What the tokens of a reply become: text in pieces and as a whole, tool calls, the end,
 * and tokens that nobody draws. For generate.c; the thread is the generation's.
 *
 * Forced tokens. Once max_thinking tokens of the reasoning channel have been read and it
 * is still open, the reply goes on with the format's own markup that closes it and opens
 * the answer, whatever the model would have said. They are tokens of the reply like all
 * others: the caller gives them to the sequence and back to waste_output_push. */
#ifndef WASTE_OUTPUT_H
#define WASTE_OUTPUT_H

#include "prompt.h"
#include "text/reply.h"
#include "text/stop.h"

typedef struct waste_output {
    const waste_chat *chat;
    const waste_tokenizer *tokenizer; /* NULL: none */
    waste_reply *reply;
    waste_stop *stop;
    waste_chat_format format;          /* of prompt and reply */
    waste_buf piece, reasoning, tools; /* of the last token */
    waste_buf content, thoughts;       /* of all of them */
    waste_region region;               /* of the last token */
    int64_t max_thinking;              /* -1: no limit */
    int64_t n_reasoning, n_forced;     /* tokens so far */
    waste_ids forced;                  /* those that come next are forced.id[n_forced..] */
} waste_output;

/* `o` is zero-initialised; clear it in any case. WASTE_ARG for stop strings that are
 * none, and WASTE_UNSUPPORTED for a limit on thinking where the prompt's format has no
 * reasoning channel. */
waste_status waste_output_open(waste_output *o, const waste_container *c,
                               const waste_prompt_outlook *ahead, const waste_gen_params *p,
                               waste_error *err);
void waste_output_clear(waste_output *o);

/* The next token when it is a forced one, and 1; else 0. */
int waste_output_forced(const waste_output *o, int32_t *id);

void waste_output_begin(waste_output *o); /* piece, reasoning and tools are emptied */
/* One token. *over: it ended the reply. */
waste_status waste_output_push(waste_output *o, int32_t id, int *over, waste_error *err);
/* No more tokens. What was held back comes out; LENGTH becomes STOP when there is a stop
 * string in it. */
waste_status waste_output_end(waste_output *o, waste_finish *finish, waste_error *err);
/* Fills the texts and the region of *out, and adds the texts to the whole. */
waste_status waste_output_lend(waste_output *o, waste_gen_token *out, waste_error *err);

/* After the end: as waste_gen_message and waste_gen_closing. */
waste_status waste_output_message(const waste_output *o, waste_text *out, waste_error *err);
waste_status waste_output_closing(const waste_output *o, waste_ids *out, waste_error *err);

#endif
