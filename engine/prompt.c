/* Prompts, of waste.h: from what a caller gives to segments and ids. Owns nothing
 * beyond a call; any thread. What always holds: every text from outside is content,
 * unless the caller asked for markup by name. */
#include "prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "internal.h"
#include "text/chat_json.h"
#include "text/chat_request.h"

static int is_templated(const waste_container *c, const waste_prompt *p)
{
    return p->text.text && !p->raw && waste_chat_kind(c->chat) != WASTE_CHAT_NONE;
}

static waste_status check_chat(const waste_prompt *p, waste_error *err)
{
    if (p->text.text || p->n_tokens || p->system.text || p->n_parts || p->raw || p->markup ||
        p->thinking)
        return waste_fail(err, WASTE_ARG,
                          "a prompt that is a chat request has everything in the request");
    return WASTE_OK;
}

/* What cannot be honoured is refused: a system text that goes nowhere would look
 * like a model that does not listen. */
static waste_status check_prompt(const waste_container *c, const waste_prompt *p, waste_error *err)
{
    if (p->chat) return check_chat(p, err);
    if (p->text.text && p->n_tokens)
        return waste_fail(err, WASTE_ARG, "the prompt is text or token ids, not both");
    if (!p->text.text && (p->system.text || p->n_parts || p->thinking))
        return waste_fail(err, WASTE_ARG,
                          "a prompt of token ids is taken as it is: it has no place for %s",
                          p->system.text ? "a system text"
                          : p->n_parts   ? "parts"
                                         : "thinking");
    if (p->text.text && !c->tokenizer)
        return waste_fail(err, WASTE_UNSUPPORTED,
                          "the container has no tokenizer; pass the prompt as {\"tokens\":[...]}");
    if (is_templated(c, p)) {
        if (p->markup) return waste_fail(err, WASTE_ARG, "markup is possible in raw prompts only");
    } else if (p->system.text || p->thinking) {
        return waste_fail(err, p->raw ? WASTE_ARG : WASTE_UNSUPPORTED,
                          "%s a chat format, and the prompt is %s",
                          p->system.text ? "a system text needs" : "thinking needs",
                          p->raw ? "raw" : "for a container without one");
    }
    return WASTE_OK;
}

waste_status waste_prompt_take(const waste_container *c, const waste_prompt *p, waste_ids *out,
                               waste_error *err)
{
    size_t vocab = (size_t)c->info.vocab, i;
    int32_t *grown;

    for (i = 0; i < p->n_tokens; i++) {
        if (p->tokens[i] < 0 || (size_t)p->tokens[i] >= vocab)
            return waste_fail(err, WASTE_ARG,
                              "tokens[%zu] is %ld, the vocabulary has %zu tokens (0 to %zu)", i,
                              (long)p->tokens[i], vocab, vocab - 1);
    }
    if (p->n_tokens == 0) return WASTE_OK;
    grown = NULL;
    if (p->n_tokens <= SIZE_MAX / 2 / sizeof *grown - out->n)
        grown = waste_mem_resize(out->id, (out->n + p->n_tokens) * sizeof *grown);
    if (!grown)
        return waste_fail(err, WASTE_NOMEM, "out of memory for a prompt of %zu tokens",
                          p->n_tokens);
    out->id = grown;
    memcpy(out->id + out->n, p->tokens, p->n_tokens * sizeof *grown);
    out->n += p->n_tokens;
    return WASTE_OK;
}

/* The text is markup when the caller says so; parts never are. */
static void segment_raw(const waste_prompt *p, waste_segments *s)
{
    waste_prompt parts = *p;

    waste_chat_add(s, p->text.text, p->text.bytes, p->markup);
    parts.text.bytes = 0;
    waste_chat_content(s, &parts);
}

static waste_status segment_chat(const waste_container *c, const waste_chat_request *r,
                                 waste_segments *s, waste_prompt_outlook *ahead, waste_error *err)
{
    waste_chat_parsed p;
    waste_status st;

    memset(&p, 0, sizeof p);
    st = waste_chat_request_read(&p, r, err);
    if (!st) st = waste_chat_render(c->chat, &p, s, err);
    ahead->format = waste_chat_kind(c->chat);
    ahead->thinking = waste_chat_thinks(c->chat, &p);
    ahead->tools = waste_chat_request_has_tools(&p);
    ahead->floor = p.floor;
    if (!waste_chat_request_image(&p, ahead->image, sizeof ahead->image) && p.image)
        snprintf(ahead->image, sizeof ahead->image, "image_prompts");
    waste_chat_request_clear(&p);
    return st;
}

/* A prompt that is not of token ids, as segments. */
static waste_status segment_prompt(const waste_container *c, const waste_prompt *p,
                                   waste_segments *s, waste_prompt_outlook *ahead, waste_error *err)
{
    memset(ahead, 0, sizeof *ahead);
    ahead->floor = 1;
    if (p->chat) return segment_chat(c, p->chat, s, ahead, err);
    if (!is_templated(c, p)) {
        segment_raw(p, s);
        return WASTE_OK;
    }
    ahead->format = waste_chat_kind(c->chat);
    ahead->thinking = p->thinking;
    return waste_chat_turn(c->chat, p, s, err);
}

waste_status waste_prompt_make(const waste_container *c, const waste_prompt *p, waste_ids *out,
                               waste_prompt_outlook *ahead, waste_error *err)
{
    size_t had = out->n;
    waste_segments s = {0};
    waste_status st = check_prompt(c, p, err);

    if (st) return st;
    if (p->text.text || p->chat) {
        st = segment_prompt(c, p, &s, ahead, err);
        if (!st) st = waste_chat_encode(&s, c->tokenizer, out, err);
        waste_chat_segments_clear(&s);
    } else {
        memset(ahead, 0, sizeof *ahead);
        ahead->floor = 1;
        st = waste_prompt_take(c, p, out, err);
    }
    if (!st && out->n == had) st = waste_fail(err, WASTE_ARG, "the prompt is empty");
    return st;
}

waste_status waste_prompt_ids(const waste_container *c, const waste_prompt *p, waste_ids *out,
                              waste_error *err)
{
    waste_prompt_outlook ahead;

    return waste_prompt_make(c, p, out, &ahead, err);
}

/* ---- texts made for the caller ----------------------------------------- */

void waste_text_clear(waste_text *t)
{
    waste_mem_free(t->text);
    t->text = NULL;
    t->bytes = 0;
}

waste_status waste_prompt_text(waste_buf *b, waste_status st, waste_text *out, waste_error *err)
{
    if (!st && b->failed) st = waste_fail(err, WASTE_NOMEM, "out of memory for a text");
    if (st) {
        waste_buf_clear(b);
        return st;
    }
    out->text = b->data;
    out->bytes = b->len;
    return WASTE_OK;
}

waste_status waste_prompt_render(const waste_container *c, const waste_prompt *p, waste_text *out,
                                 waste_error *err)
{
    waste_segments s = {0};
    waste_buf b = {0};
    waste_prompt_outlook ahead;
    size_t i;
    waste_status st = check_prompt(c, p, err);

    out->text = NULL;
    out->bytes = 0;
    if (!st && !p->text.text && !p->chat)
        st = waste_fail(err, WASTE_ARG, "a prompt of token ids has no segments");
    if (!st) st = segment_prompt(c, p, &s, &ahead, err);
    if (!st && s.failed) st = waste_fail(err, WASTE_NOMEM, "out of memory building a prompt");
    waste_buf_byte(&b, '[');
    for (i = 0; !st && i < s.n; i++) {
        const waste_segment g = waste_chat_segment(&s, i);
        waste_buf_text(&b, i ? ",{\"text\":" : "{\"text\":");
        waste_chat_json_quote(&b, g.text, g.bytes);
        waste_buf_text(&b, g.markup ? ",\"markup\":true}" : ",\"markup\":false}");
    }
    waste_buf_byte(&b, ']');
    waste_chat_segments_clear(&s);
    return waste_prompt_text(&b, st, out, err);
}
