/* Log-probabilities as JSON: see ext_logprobs.h. Owns nothing. */
#include "ext_logprobs.h"

#include "base/json.h"
#include "ext_args.h"

/* Without the closing brace. */
static void open_one(waste_buf *b, const waste_container *c, int32_t token, double logprob)
{
    size_t bytes = 0;
    const char *piece = waste_token_bytes(c, token, &bytes);

    waste_buf_printf(b, "{\"token\":%d,\"piece\":", (int)token);
    if (piece)
        waste_json_quote(b, piece, bytes);
    else
        waste_buf_text(b, "null");
    waste_buf_text(b, ",\"logprob\":");
    waste_args_number(b, logprob);
}

void waste_logprobs_top(waste_buf *b, const waste_container *c, const waste_gen_token *t)
{
    int i;

    waste_buf_byte(b, '[');
    for (i = 0; i < t->n_top; i++) {
        if (i) waste_buf_byte(b, ',');
        open_one(b, c, t->top[i].token, t->top[i].logprob);
        waste_buf_byte(b, '}');
    }
    waste_buf_byte(b, ']');
}

void waste_logprobs_token(waste_buf *b, const waste_container *c, const waste_gen_token *t)
{
    open_one(b, c, t->token, t->logprob);
    waste_buf_text(b, ",\"top\":");
    waste_logprobs_top(b, c, t);
    waste_buf_byte(b, '}');
}
