/* Prompts and generation, of waste.h: from a prompt to ids, and from ids to a
 * reply token by token. Owns one sequence per generation and everything between
 * logits and text. A generation belongs to one thread at a time; several may run
 * on one model. What always holds: the pieces given out, put together, are the
 * answer; each is valid UTF-8; no step is made after the last token. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/plat.h"
#include "internal.h"
#include "text/reply.h"
#include "text/sampler.h"
#include "text/stop.h"

#define TOP_MAX 20

struct waste_gen {
    waste_model *model;
    const waste_tokenizer *tokenizer; /* NULL: none; borrowed from the container */
    size_t vocab;
    int64_t limit; /* tokens this generation may give */
    int64_t timeout_ms;
    int top_logprobs;
    waste_cancel cancel; /* the caller's */
    waste_ids prompt;
    waste_row *rows; /* of the prompt; NULL once it is computed */
    waste_seq *seq;
    float *logits;
    waste_sampler *sampler;
    waste_stop *stop;
    waste_reply *reply;
    waste_buf piece, reasoning;
    waste_logprob top[TOP_MAX];
    int32_t last; /* the token given out last; its step is still to be made */
    waste_region region;
    int64_t made;
    int started, over;
    uint64_t start_ns;       /* of the first call of next */
    waste_status stopped_by; /* what asked() found: WASTE_CANCELLED or WASTE_TIMEOUT */
    waste_error failed;
    double prompt_ms, total_ms;
};

/* ---- prompts ----------------------------------------------------------- */

static int is_templated(const waste_container *c, const waste_prompt *p)
{
    return p->text.text && !p->raw && waste_chat_kind(c->chat) != WASTE_CHAT_NONE;
}

/* What cannot be honoured is refused: a system text that goes nowhere would look
 * like a model that does not listen. */
static waste_status check_prompt(const waste_container *c, const waste_prompt *p, waste_error *err)
{
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

static waste_status take_ids(const waste_container *c, const waste_prompt *p, waste_ids *out,
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
static waste_status encode_plain(const waste_container *c, const waste_prompt *p, waste_ids *out,
                                 waste_error *err)
{
    waste_segments s = {0};
    waste_prompt parts = *p;
    waste_status st;

    waste_chat_add(&s, p->text.text, p->text.bytes, p->markup);
    parts.text.bytes = 0;
    waste_chat_content(&s, &parts);
    st = waste_chat_encode(&s, c->tokenizer, out, err);
    waste_chat_segments_clear(&s);
    return st;
}

waste_status waste_prompt_ids(const waste_container *c, const waste_prompt *p, waste_ids *out,
                              waste_error *err)
{
    size_t had = out->n;
    waste_status st = check_prompt(c, p, err);

    if (st) return st;
    if (!p->text.text)
        st = take_ids(c, p, out, err);
    else if (is_templated(c, p))
        st = waste_chat_turn(c->chat, c->tokenizer, p, out, err);
    else
        st = encode_plain(c, p, out, err);
    if (!st && out->n == had) st = waste_fail(err, WASTE_ARG, "the prompt is empty");
    return st;
}

/* ---- opening ----------------------------------------------------------- */

void waste_gen_params_init(waste_gen_params *p)
{
    memset(p, 0, sizeof *p);
    p->max_tokens = 256;
    p->top_p = 1;
    p->repetition_penalty = 1;
}

static waste_status check_params(const waste_gen_params *p, waste_error *err)
{
    if (p->max_tokens < 1)
        return waste_fail(err, WASTE_ARG, "max_tokens is %lld, wanted 1 or more",
                          (long long)p->max_tokens);
    if (p->timeout_ms < 0)
        return waste_fail(err, WASTE_ARG, "timeout_ms is %lld, wanted 0 (none) or more",
                          (long long)p->timeout_ms);
    if (p->top_logprobs < 0 || p->top_logprobs > TOP_MAX)
        return waste_fail(err, WASTE_ARG, "top_logprobs is %d, wanted 0 to %d", p->top_logprobs,
                          TOP_MAX);
    return WASTE_OK;
}

/* How many tokens may follow the prompt. Only MLA layers keep something for each
 * position; without them a sequence has no end. */
static waste_status fit(waste_gen *g, const waste_info *info, int64_t max_tokens, waste_error *err)
{
    int64_t context = waste_model_context(g->model);

    g->limit = max_tokens;
    if (info->mla_layers == 0) return WASTE_OK;
    if (context <= 0 || g->prompt.n >= (uint64_t)context)
        return waste_fail(err, WASTE_ARG,
                          "the prompt has %zu tokens and the context %lld positions: none is left "
                          "for a reply",
                          g->prompt.n, (long long)context);
    if (g->limit > context - (int64_t)g->prompt.n) g->limit = context - (int64_t)g->prompt.n;
    return WASTE_OK;
}

static waste_status open_reply(waste_gen *g, const waste_container *c, const waste_prompt *p,
                               waste_error *err)
{
    waste_reply_options o = {0};
    int m;

    o.format = is_templated(c, p) ? waste_chat_kind(c->chat) : WASTE_CHAT_NONE;
    for (m = 0; m < WASTE_MARKS; m++) o.mark[m] = waste_chat_mark(c->chat, (waste_mark)m);
    o.stop = waste_chat_stop(c->chat);
    o.eos = c->info.eos_token;
    o.channel = p->thinking ? "think" : "response";
    return waste_reply_new(&g->reply, &o, err);
}

static waste_status lay_out_rows(waste_gen *g, waste_error *err)
{
    size_t i;

    g->logits = waste_mem_array(g->vocab, sizeof *g->logits);
    g->rows = waste_mem_array(g->prompt.n, sizeof *g->rows);
    if (!g->logits || !g->rows)
        return waste_fail(err, WASTE_NOMEM, "out of memory for a prompt of %zu tokens",
                          g->prompt.n);
    for (i = 0; i < g->prompt.n; i++) {
        g->rows[i].seq = g->seq;
        g->rows[i].token = g->prompt.id[i];
        waste_sampler_saw(g->sampler, g->prompt.id[i], 0);
    }
    g->rows[g->prompt.n - 1].logits = g->logits;
    return WASTE_OK;
}

waste_status waste_gen_open(waste_gen **out, waste_model *m, const waste_prompt *prompt,
                            const waste_gen_params *params, waste_error *err)
{
    const waste_container *c;
    const waste_info *info;
    waste_gen *g;
    waste_status st;

    *out = NULL;
    if (!m || !prompt || !params)
        return waste_fail(err, WASTE_ARG, "waste_gen_open: no %s",
                          !m        ? "model"
                          : !prompt ? "prompt"
                                    : "parameters");
    st = check_params(params, err);
    if (st) return st;
    c = waste_model_container(m);
    info = waste_container_info(c);
    g = waste_mem_zero(sizeof *g);
    if (!g) return waste_fail(err, WASTE_NOMEM, "out of memory for a generation");
    g->model = m;
    g->tokenizer = c->tokenizer;
    g->vocab = (size_t)info->vocab;
    g->timeout_ms = params->timeout_ms;
    g->top_logprobs = params->top_logprobs < info->vocab ? params->top_logprobs : info->vocab;
    g->cancel = params->cancel;

    st = waste_sampler_open(&g->sampler, params, g->vocab, err);
    if (!st) st = waste_stop_open(&g->stop, params->stop, params->n_stop, err);
    if (!st) st = waste_prompt_ids(c, prompt, &g->prompt, err);
    if (!st) st = fit(g, info, params->max_tokens, err);
    if (!st) st = open_reply(g, c, prompt, err);
    if (!st) st = waste_seq_new(&g->seq, m, err);
    if (!st) st = lay_out_rows(g, err);
    if (st) {
        waste_gen_close(g);
        return st;
    }
    *out = g;
    return WASTE_OK;
}

void waste_gen_close(waste_gen *g)
{
    if (!g) return;
    waste_seq_free(g->seq);
    waste_sampler_close(g->sampler);
    waste_stop_close(g->stop);
    waste_reply_free(g->reply);
    waste_ids_clear(&g->prompt);
    waste_mem_free(g->rows);
    waste_mem_free(g->logits);
    waste_buf_clear(&g->piece);
    waste_buf_clear(&g->reasoning);
    waste_mem_free(g);
}

void waste_gen_usage(const waste_gen *g, waste_usage *out)
{
    out->prompt_tokens = (int64_t)g->prompt.n;
    out->completion_tokens = g->made;
    out->prompt_ms = g->prompt_ms;
    out->total_ms = g->total_ms;
}

/* ---- one token --------------------------------------------------------- */

static double ms_since(uint64_t ns)
{
    return (double)(waste_clock_ns() - ns) * 1e-6;
}

/* The caller's cancel and the clock in one, so that the clock too is watched
 * inside a pass. The caller's comes first: it is the stronger wish. */
static int asked(void *ctx)
{
    waste_gen *g = ctx;

    if (g->cancel.asked && g->cancel.asked(g->cancel.ctx))
        g->stopped_by = WASTE_CANCELLED;
    else if (g->timeout_ms && (waste_clock_ns() - g->start_ns) / 1000000 >= (uint64_t)g->timeout_ms)
        g->stopped_by = WASTE_TIMEOUT;
    return g->stopped_by != WASTE_OK;
}

/* The prompt in one pass, after that the last token; logits of the last row. */
static waste_status compute(waste_gen *g, waste_step_stats *stats, waste_error *err)
{
    const waste_cancel both = {asked, g};
    waste_row row = {g->seq, g->last, g->logits};
    waste_status st;

    if (asked(g)) return WASTE_CANCELLED;
    if (!g->rows) return waste_step(g->model, &row, 1, &both, stats, err);
    st = waste_step(g->model, g->rows, g->prompt.n, &both, stats, err);
    if (st) return st;
    waste_mem_free(g->rows);
    g->rows = NULL;
    g->prompt_ms = ms_since(g->start_ns);
    return WASTE_OK;
}

static waste_status take_text(waste_gen *g, const waste_reply_delta *d, int *hit, waste_error *err)
{
    waste_buf_add(&g->reasoning, d->reasoning.text, d->reasoning.bytes);
    if (g->reasoning.failed) return waste_fail(err, WASTE_NOMEM, "out of memory for reasoning");
    return waste_stop_push(g->stop, d->answer.text, d->answer.bytes, &g->piece, hit, err);
}

/* Everything that was held back comes out with the last report. */
static waste_status flush(waste_gen *g, int *hit, waste_error *err)
{
    waste_reply_delta d;
    waste_status st = waste_reply_end(g->reply, &d, err);

    if (!st) st = take_text(g, &d, hit, err);
    if (!st) st = waste_stop_end(g->stop, &g->piece, err);
    g->over = 1;
    return st;
}

static void lend_text(waste_gen *g, waste_gen_token *out)
{
    out->piece.text = g->piece.len ? g->piece.data : "";
    out->piece.bytes = g->piece.len;
    out->reasoning.text = g->reasoning.len ? g->reasoning.data : "";
    out->reasoning.bytes = g->reasoning.len;
}

static waste_status give_token(waste_gen *g, waste_gen_token *out, waste_error *err)
{
    waste_reply_delta d;
    const char *bytes = NULL;
    size_t n = 0;
    int hit = 0;
    waste_status st = waste_sampler_pick(g->sampler, g->logits, &g->last, err);

    if (st) return st;
    waste_sampler_saw(g->sampler, g->last, 1);
    out->index = g->made++;
    out->token = g->last;
    out->logprob = waste_sampler_logprob(g->logits, g->vocab, g->last);
    if (g->top_logprobs) {
        st = waste_top(g->logits, g->vocab, (size_t)g->top_logprobs, g->top, err);
        if (st) return st;
        out->top = g->top;
        out->n_top = g->top_logprobs;
    }
    if (g->tokenizer) bytes = waste_tokenizer_bytes(g->tokenizer, g->last, &n);
    st = waste_reply_push(g->reply, g->last, bytes, bytes ? n : 0, &d, err);
    if (!st) st = take_text(g, &d, &hit, err);
    if (st) return st;
    out->region = g->region = d.region;
    if (d.done || hit)
        out->finish = WASTE_FINISH_STOP;
    else if (g->made == g->limit)
        out->finish = WASTE_FINISH_LENGTH;
    if (out->finish) {
        st = flush(g, &hit, err);
        if (hit) out->finish = WASTE_FINISH_STOP; /* in what the flush released */
    }
    return st;
}

static waste_status give_timeout(waste_gen *g, waste_gen_token *out, waste_error *err)
{
    int hit = 0;

    memset(&out->stats, 0, sizeof out->stats);
    out->index = g->made;
    out->token = -1;
    out->region = g->region;
    out->finish = WASTE_FINISH_TIMEOUT;
    return flush(g, &hit, err);
}

waste_status waste_gen_next(waste_gen *g, waste_gen_token *out, waste_error *err)
{
    waste_error why = {0};
    waste_status st;
    uint64_t begin;

    memset(out, 0, sizeof *out);
    out->token = -1;
    if (g->failed.status) return waste_fail(err, g->failed.status, "%s", g->failed.text);
    if (g->over) return WASTE_DONE;
    begin = waste_clock_ns();
    if (!g->started) g->start_ns = begin;
    g->started = 1;
    g->piece.len = g->reasoning.len = 0;

    st = compute(g, &out->stats, &why);
    if (!st) {
        st = give_token(g, out, &why);
    } else if (st == WASTE_CANCELLED && g->stopped_by == WASTE_TIMEOUT) {
        memset(&why, 0, sizeof why);
        st = give_timeout(g, out, &why);
    }
    lend_text(g, out);
    out->ms = ms_since(begin);
    g->total_ms = ms_since(g->start_ns);
    if (!st) return WASTE_OK;

    g->over = 1;
    waste_fail(&why, st, "the generation failed"); /* if nobody gave a reason */
    if (st == WASTE_CANCELLED) return waste_fail(err, st, "cancelled");
    g->failed = why;
    return waste_fail(err, st, "%s", why.text);
}
