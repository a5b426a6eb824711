/* From a reply's tokens to its texts: see output.h. What always holds: the pieces lent,
 * put together, are `content`; each is valid UTF-8. */
#include "output.h"

#include <string.h>

#include "base/mem.h"
#include "internal.h"
#include "text/reply_json.h"

/* ---- opening ----------------------------------------------------------- */

static waste_status open_reply(waste_output *o, const waste_container *c,
                               const waste_prompt_outlook *ahead, waste_error *err)
{
    waste_reply_options r = {0};
    int m;

    o->format = r.format = ahead->format;
    for (m = 0; m < WASTE_MARKS; m++) r.mark[m] = waste_chat_mark(c->chat, (waste_mark)m);
    r.stop = waste_chat_stop(c->chat);
    r.eos = c->info.eos_token;
    r.channel = ahead->thinking ? "think" : "response";
    r.to_end = ahead->tools;
    return waste_reply_new(&o->reply, &r, err);
}

/* A limit that nothing can keep would look like one that is kept. */
static waste_status check_limit(const waste_output *o, waste_error *err)
{
    if (o->max_thinking < 0 || o->format == WASTE_CHAT_XTML) return WASTE_OK;
    return waste_fail(
        err, WASTE_UNSUPPORTED, "max_thinking_tokens is %lld, but %s has no reasoning channel",
        (long long)o->max_thinking,
        o->format == WASTE_CHAT_PLAIN                 ? "the container's chat.json"
        : waste_chat_kind(o->chat) == WASTE_CHAT_NONE ? "a container without a chat format"
                                                      : "a prompt that is no chat turn");
}

/* The limit is reached and thinking goes on: what ends it comes next. */
static waste_status force(waste_output *o, waste_error *err)
{
    waste_segments s = {0};
    waste_status st;

    if (o->max_thinking < 0 || o->n_reasoning < o->max_thinking || !waste_reply_thinks(o->reply))
        return WASTE_OK;
    waste_reply_leave(o->reply, &s);
    st = waste_chat_encode(&s, o->tokenizer, &o->forced, err);
    waste_chat_segments_clear(&s);
    return st;
}

waste_status waste_output_open(waste_output *o, const waste_container *c,
                               const waste_prompt_outlook *ahead, const waste_gen_params *p,
                               waste_error *err)
{
    waste_status st = waste_stop_open(&o->stop, p->stop, p->n_stop, err);

    o->chat = c->chat;
    o->tokenizer = c->tokenizer;
    o->max_thinking = p->max_thinking_tokens;
    if (!st) st = open_reply(o, c, ahead, err);
    if (!st) st = check_limit(o, err);
    return st ? st : force(o, err);
}

void waste_output_clear(waste_output *o)
{
    waste_stop_close(o->stop);
    waste_reply_free(o->reply);
    waste_ids_clear(&o->forced);
    waste_buf_clear(&o->piece);
    waste_buf_clear(&o->reasoning);
    waste_buf_clear(&o->tools);
    waste_buf_clear(&o->content);
    waste_buf_clear(&o->thoughts);
}

/* ---- tokens ------------------------------------------------------------ */

int waste_output_forced(const waste_output *o, int32_t *id)
{
    if ((size_t)o->n_forced == o->forced.n) return 0;
    *id = o->forced.id[o->n_forced];
    return 1;
}

void waste_output_begin(waste_output *o)
{
    o->piece.len = o->reasoning.len = o->tools.len = 0;
}

static waste_status take_text(waste_output *o, const waste_reply_delta *d, int *hit,
                              waste_error *err)
{
    waste_buf_add(&o->reasoning, d->reasoning.text, d->reasoning.bytes);
    waste_buf_add(&o->tools, d->tools.text, d->tools.bytes);
    if (o->reasoning.failed || o->tools.failed)
        return waste_fail(err, WASTE_NOMEM, "out of memory for a reply");
    return waste_stop_push(o->stop, d->answer.text, d->answer.bytes, &o->piece, hit, err);
}

static waste_status read_token(waste_output *o, int32_t id, waste_reply_delta *d, waste_error *err)
{
    const char *bytes = NULL;
    size_t n = 0;

    if (o->tokenizer) bytes = waste_tokenizer_bytes(o->tokenizer, id, &n);
    return waste_reply_push(o->reply, id, bytes, bytes ? n : 0, d, err);
}

waste_status waste_output_push(waste_output *o, int32_t id, int *over, waste_error *err)
{
    waste_reply_delta d;
    int32_t next;
    const int forced = waste_output_forced(o, &next);
    int hit = 0;
    waste_status st = read_token(o, id, &d, err);

    if (!st) st = take_text(o, &d, &hit, err);
    if (st) return st;
    o->region = d.region;
    o->n_forced += forced;
    o->n_reasoning += d.region == WASTE_REGION_REASONING;
    *over = d.done || hit;
    return *over || forced ? WASTE_OK : force(o, err);
}

/* What a limit cut off in the middle of markup is no text: only its model could have made
 * it some. Forced tokens that a limit cut off are still to come (waste_output_closing). */
waste_status waste_output_end(waste_output *o, waste_finish *finish, waste_error *err)
{
    waste_reply_delta d;
    waste_status st = WASTE_OK;
    size_t i;
    int hit = 0;

    for (i = (size_t)o->n_forced; i < o->forced.n && !st; i++)
        st = read_token(o, o->forced.id[i], &d, err);
    if (st) return st;
    if (*finish != WASTE_FINISH_STOP) waste_reply_cut(o->reply);
    st = waste_reply_end(o->reply, &d, err);
    if (!st) st = take_text(o, &d, &hit, err);
    if (!st) st = waste_stop_end(o->stop, &o->piece, err);
    if (hit && *finish == WASTE_FINISH_LENGTH) *finish = WASTE_FINISH_STOP;
    return st;
}

static waste_str lend(const waste_buf *b)
{
    waste_str s = {b->len ? b->data : "", b->len};

    return s;
}

waste_status waste_output_lend(waste_output *o, waste_gen_token *out, waste_error *err)
{
    out->region = o->region;
    out->piece = lend(&o->piece);
    out->reasoning = lend(&o->reasoning);
    out->tools = lend(&o->tools);
    waste_buf_add(&o->content, out->piece.text, out->piece.bytes);
    waste_buf_add(&o->thoughts, out->reasoning.text, out->reasoning.bytes);
    if (o->content.failed || o->thoughts.failed)
        return waste_fail(err, WASTE_NOMEM, "out of memory for a reply");
    return WASTE_OK;
}

/* ---- the whole reply --------------------------------------------------- */

waste_status waste_output_message(const waste_output *o, waste_text *out, waste_error *err)
{
    waste_buf b = {0};
    waste_status st =
        waste_reply_json_message(o->reply, lend(&o->content), lend(&o->thoughts), &b, err);

    return waste_prompt_text(&b, st, out, err);
}

static waste_status add_ids(waste_ids *out, const int32_t *id, size_t n, waste_error *err)
{
    int32_t *grown;

    grown = waste_mem_resize(out->id, (out->n + n) * sizeof *grown);
    if (!grown) return waste_fail(err, WASTE_NOMEM, "out of memory for a reply");
    memcpy(grown + out->n, id, n * sizeof *id);
    out->id = grown;
    out->n += n;
    return WASTE_OK;
}

waste_status waste_output_closing(const waste_output *o, waste_ids *out, waste_error *err)
{
    waste_segments s = {0};
    waste_str suffix;
    const size_t made = (size_t)o->n_forced;
    waste_status st = WASTE_OK;

    if (made < o->forced.n) st = add_ids(out, o->forced.id + made, o->forced.n - made, err);
    if (st) return st;
    waste_reply_closing(o->reply, &s);
    if (o->format == WASTE_CHAT_PLAIN) {
        suffix = waste_chat_suffix(o->chat, waste_reply_stopped(o->reply));
        waste_chat_add(&s, suffix.text, suffix.bytes, 1);
    }
    if (s.n || s.failed) st = waste_chat_encode(&s, o->tokenizer, out, err);
    waste_chat_segments_clear(&s);
    return st;
}
