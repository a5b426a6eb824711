/* Generation, of waste.h: from a prompt's ids to a reply token by token. Owns one
 * sequence per generation, unless the caller lends one to go on with, and everything
 * between logits and tokens; what these say is output.c's. A generation belongs to one
 * thread at a time; several may run on one model. What always holds: no step is made
 * after the last token, and none for a token that is known beforehand. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "generate.h"
#include "internal.h"
#include "model/forward.h"
#include "output.h"
#include "prefix.h"
#include "prompt.h"
#include "text/sampler.h"

#define TOP_MAX 20

struct waste_gen {
    waste_model *model;
    size_t vocab;
    int64_t limit; /* tokens this generation may give */
    int64_t timeout_ms;
    int top_logprobs;
    waste_cancel cancel; /* the caller's */
    waste_output output;
    waste_ids ids;   /* the prompt, then the tokens made; all that the sequence will see */
    size_t ids_room; /* of ids */
    size_t n_prompt; /* ids that are the prompt */
    size_t first;    /* ids that were in seq when this began */
    size_t computed; /* ids that are in seq */
    waste_seq *seq;
    int borrowed; /* seq is the caller's */
    int prefix_cache;
    int met;          /* what others left was looked for */
    size_t keep_at;   /* where to leave something; 0: nowhere */
    int64_t reserved; /* positions; 0: none */
    uint64_t counted; /* bytes within the model's ceiling */
    float *logits;
    waste_sampler *sampler;
    waste_logprob top[TOP_MAX];
    int64_t made;
    int started, over;
    waste_finish finish;
    uint64_t start_ns;       /* of the first call of next */
    uint64_t begin_ns;       /* of the token that is being made */
    waste_status stopped_by; /* what asked() found: WASTE_CANCELLED or WASTE_TIMEOUT */
    waste_error failed;
    double prompt_ms, total_ms;
};

/* ---- opening ----------------------------------------------------------- */

void waste_gen_params_init(waste_gen_params *p)
{
    memset(p, 0, sizeof *p);
    p->max_tokens = 256;
    p->max_thinking_tokens = -1;
    p->top_p = 1;
    p->repetition_penalty = 1;
}

static waste_status check_params(const waste_gen_params *p, waste_error *err)
{
    if (p->max_tokens < 1)
        return waste_fail(err, WASTE_ARG, "max_tokens is %lld, wanted 1 or more",
                          (long long)p->max_tokens);
    if (p->max_thinking_tokens < -1)
        return waste_fail(err, WASTE_ARG,
                          "max_thinking_tokens is %lld, wanted -1 (no limit), 0 or more",
                          (long long)p->max_thinking_tokens);
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
    if (context <= 0 || g->n_prompt >= (uint64_t)context)
        return waste_fail(err, WASTE_ARG,
                          "the prompt has %zu tokens and the context %lld positions: none is left "
                          "for a reply",
                          g->n_prompt, (long long)context);
    if (g->limit > context - (int64_t)g->n_prompt) g->limit = context - (int64_t)g->n_prompt;
    return WASTE_OK;
}

/* The sampler's and the prompt's buffers, within the budget. */
static waste_status count_buffers(waste_gen *g, int vocab, waste_error *err)
{
    const uint64_t bytes = waste_plan_generation(vocab, g->n_prompt);
    waste_status st = waste_model_take_generation(g->model, bytes, err);

    if (!st) g->counted = bytes;
    return st;
}

/* What the prompt goes on with. The penalties count it; of it is computed what its
 * sequence has not seen. */
static waste_status take_before(waste_gen *g, const waste_container *c, const waste_prompt *p,
                                waste_error *err)
{
    const waste_prompt before = {.tokens = p->before, .n_tokens = p->n_before};
    const int64_t has = p->seq ? waste_seq_length(p->seq) : 0;

    if (has < 0 || (uint64_t)has > p->n_before)
        return waste_fail(err, WASTE_ARG, "the sequence has %lld tokens, %zu are said to be before",
                          (long long)has, p->n_before);
    g->first = g->computed = (size_t)has;
    return waste_prompt_take(c, &before, &g->ids, err);
}

/* The prompt's ids, and what has to be true of one that is to be answered. */
static waste_status take_prompt(waste_gen *g, const waste_container *c, const waste_prompt *p,
                                waste_prompt_outlook *ahead, waste_error *err)
{
    waste_status st = take_before(g, c, p, err);

    if (!st) st = waste_prompt_make(c, p, &g->ids, ahead, err);
    g->n_prompt = g->ids_room = g->ids.n;
    if (!st && !ahead->floor)
        st = waste_fail(err, WASTE_ARG,
                        "add_generation_prompt is false: the model has no turn to answer in");
    if (!st && ahead->image[0]) /* an answer about it would be made up */
        st = waste_fail(err, WASTE_UNSUPPORTED, "%s: this version takes no images", ahead->image);
    return st;
}

/* The caller's sequence, or one of its own. */
static waste_status take_sequence(waste_gen *g, waste_seq *given, waste_error *err)
{
    if (!given) return waste_seq_new(&g->seq, g->model, err);
    g->seq = given; /* waste_step says what is wrong with it */
    g->borrowed = 1;
    return WASTE_OK;
}

static waste_status see_prompt(waste_gen *g, waste_error *err)
{
    size_t i;

    g->logits = waste_mem_array(g->vocab, sizeof *g->logits);
    if (!g->logits)
        return waste_fail(err, WASTE_NOMEM, "out of memory for the logits of %zu tokens", g->vocab);
    for (i = 0; i < g->n_prompt; i++) waste_sampler_saw(g->sampler, g->ids.id[i], 0);
    return WASTE_OK;
}

waste_status waste_gen_open(waste_gen **out, waste_model *m, const waste_prompt *prompt,
                            const waste_gen_params *params, waste_error *err)
{
    const waste_container *c;
    const waste_info *info;
    waste_prompt_outlook ahead;
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
    g->vocab = (size_t)info->vocab;
    g->timeout_ms = params->timeout_ms;
    g->top_logprobs = params->top_logprobs < info->vocab ? params->top_logprobs : info->vocab;
    g->cancel = params->cancel;
    g->prefix_cache = params->prefix_cache && !prompt->seq;

    st = take_prompt(g, c, prompt, &ahead, err);
    if (!st) st = fit(g, info, params->max_tokens, err);
    if (!st) st = count_buffers(g, info->vocab, err);
    if (!st) st = waste_sampler_open(&g->sampler, params, g->vocab, err);
    if (!st) st = waste_output_open(&g->output, c, &ahead, params, err);
    if (!st) st = take_sequence(g, prompt->seq, err);
    if (!st) st = see_prompt(g, err);
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
    if (!g->borrowed) waste_seq_free(g->seq);
    waste_model_give_generation(g->model, g->counted);
    waste_sampler_close(g->sampler);
    waste_output_clear(&g->output);
    waste_ids_clear(&g->ids);
    waste_mem_free(g->logits);
    waste_mem_free(g);
}

void waste_gen_usage(const waste_gen *g, waste_usage *out)
{
    out->prompt_tokens = (int64_t)g->n_prompt;
    out->completion_tokens = g->made;
    out->reused_tokens = (int64_t)g->first;
    out->reasoning_tokens = g->output.n_reasoning;
    out->forced_tokens = g->output.n_forced;
    out->prompt_ms = g->prompt_ms;
    out->total_ms = g->total_ms;
}

int64_t waste_gen_prompt_done(const waste_gen *g)
{
    return (int64_t)(g->computed < g->n_prompt ? g->computed : g->n_prompt);
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

int waste_gen_known(const waste_gen *g)
{
    int32_t id;

    return waste_output_forced(&g->output, &id);
}

size_t waste_gen_pending(const waste_gen *g)
{
    return g->ids.n - g->computed;
}

/* Looks for what others have left, as late as possible: in a batch that is what those
 * before it leave. Memory was reserved for the sequence that it replaces. */
static void meet(waste_gen *g)
{
    waste_seq *s;

    g->met = 1;
    s = waste_keep_fork(g->model, g->ids.id, g->n_prompt - 1);
    if (s && g->reserved && waste_model_reserve(s, g->reserved, NULL)) {
        waste_seq_free(s);
        s = NULL;
    }
    if (s) {
        waste_seq_free(g->seq);
        g->seq = s;
        g->first = g->computed = (size_t)waste_seq_length(s);
    }
    g->keep_at = waste_prefix_meet(g->model, g->ids.id, g->n_prompt, g->first);
}

size_t waste_gen_rows(waste_gen *g, waste_row *rows, size_t most)
{
    size_t left, n, i;

    if (g->prefix_cache && !g->met) meet(g);
    left = g->ids.n - g->computed;
    if (g->computed < g->keep_at) left = g->keep_at - g->computed;
    n = left < most ? left : most;
    for (i = 0; i < n; i++) {
        rows[i].seq = g->seq;
        rows[i].token = g->ids.id[g->computed + i];
        rows[i].logits = NULL;
    }
    if (n && g->computed + n == g->ids.n) rows[n - 1].logits = g->logits;
    return n;
}

int waste_gen_stepped(waste_gen *g, size_t n)
{
    const size_t before = g->computed;

    g->computed += n;
    if (g->computed == g->keep_at) waste_keep_prefix(g->seq, g->ids.id);
    if (before < g->n_prompt && g->computed >= g->n_prompt && g->prompt_ms == 0)
        g->prompt_ms = ms_since(g->start_ns);
    return g->computed == g->ids.n;
}

/* The prompt, after that the last token; logits of the last row. A pass at a time:
 * others who use the model get their turns in between, and the pieces are those
 * that one long step would be cut into. */
static waste_status compute(waste_gen *g, waste_step_stats *stats, waste_error *err)
{
    const waste_cancel both = {asked, g};
    waste_row rows[WASTE_ROWS_MOST];
    waste_step_stats part;
    waste_status st;
    size_t n;

    if (asked(g)) return WASTE_CANCELLED;
    do {
        n = waste_gen_rows(g, rows, (size_t)g->model->plan.rows);
        st = waste_step(g->model, rows, n, &both, &part, err);
        stats->hits += part.hits;
        stats->misses += part.misses;
        stats->bytes_read += part.bytes_read;
        stats->io_ns += part.io_ns;
        stats->known_ns += part.known_ns;
        stats->disk_ns += part.disk_ns;
    } while (!st && !waste_gen_stepped(g, n));
    return st;
}

/* A token becomes part of what the sequence will see. */
static waste_status append(waste_gen *g, int32_t token, waste_error *err)
{
    if (g->ids.n == g->ids_room) {
        const size_t room = g->ids_room + g->ids_room / 2 + 64;
        int32_t *grown = NULL;

        if (room <= SIZE_MAX / sizeof *grown)
            grown = waste_mem_resize(g->ids.id, room * sizeof *grown);
        if (!grown) return waste_fail(err, WASTE_NOMEM, "out of memory for a reply");
        g->ids.id = grown;
        g->ids_room = room;
    }
    g->ids.id[g->ids.n++] = token;
    waste_sampler_saw(g->sampler, token, 1);
    return WASTE_OK;
}

/* What the model would say next. */
static waste_status pick(waste_gen *g, waste_gen_token *out, waste_error *err)
{
    waste_status st = waste_sampler_pick(g->sampler, g->logits, &out->token, err);

    if (st) return st;
    out->logprob = waste_sampler_logprob(g->logits, g->vocab, out->token);
    if (!g->top_logprobs) return WASTE_OK;
    out->top = g->top;
    out->n_top = g->top_logprobs;
    return waste_top(g->logits, g->vocab, (size_t)g->top_logprobs, g->top, err);
}

static waste_status give_token(waste_gen *g, waste_gen_token *out, waste_error *err)
{
    int over = 0;
    waste_status st = WASTE_OK;

    if (waste_output_forced(&g->output, &out->token))
        out->logprob = NAN;
    else
        st = pick(g, out, err);
    if (!st) st = append(g, out->token, err);
    if (st) return st;
    out->index = g->made++;
    st = waste_output_push(&g->output, out->token, &over, err);
    if (over)
        out->finish = WASTE_FINISH_STOP;
    else if (g->made == g->limit)
        out->finish = WASTE_FINISH_LENGTH;
    return st;
}

static void give_timeout(waste_gen *g, waste_gen_token *out)
{
    out->index = g->made;
    out->token = -1;
    out->finish = WASTE_FINISH_TIMEOUT;
}

waste_status waste_gen_begin(waste_gen *g, waste_error *err)
{
    if (g->failed.status) return waste_fail(err, g->failed.status, "%s", g->failed.text);
    if (g->over) return WASTE_DONE;
    g->begin_ns = waste_clock_ns();
    if (!g->started) g->start_ns = g->begin_ns;
    g->started = 1;
    waste_output_begin(&g->output);
    return WASTE_OK;
}

waste_status waste_gen_end(waste_gen *g, waste_status st, waste_gen_token *out, waste_error *why,
                           waste_error *err)
{
    if (!st) {
        st = give_token(g, out, why);
    } else if (st == WASTE_CANCELLED && g->stopped_by == WASTE_TIMEOUT) {
        memset(why, 0, sizeof *why);
        give_timeout(g, out);
        st = WASTE_OK;
    }
    if (!st && out->finish) {
        g->over = 1;
        st = waste_output_end(&g->output, &out->finish, why);
    }
    if (!st) st = waste_output_lend(&g->output, out, why);
    if (!st) g->finish = out->finish;
    out->ms = ms_since(g->begin_ns);
    g->total_ms = ms_since(g->start_ns);
    if (!st) return WASTE_OK;

    g->over = 1;
    waste_fail(why, st, "the generation failed"); /* if nobody gave a reason */
    if (st == WASTE_CANCELLED) return waste_fail(err, st, "cancelled");
    g->failed = *why;
    return waste_fail(err, st, "%s", why->text);
}

waste_status waste_gen_next(waste_gen *g, waste_gen_token *out, waste_error *err)
{
    waste_error why = {0};
    waste_status st = waste_gen_begin(g, err);

    memset(out, 0, sizeof *out);
    out->token = -1;
    if (st) return st;
    if (!waste_gen_known(g)) st = compute(g, &out->stats, &why);
    return waste_gen_end(g, st, out, &why, err);
}

/* ---- for batches ------------------------------------------------------- */

int waste_gen_late(waste_gen *g)
{
    return asked(g);
}

int waste_gen_broken(const waste_gen *g)
{
    return g->seq->broken;
}

waste_status waste_gen_reserve(waste_gen *g, waste_error *err)
{
    const waste_status st = waste_model_reserve(g->seq, (int64_t)g->n_prompt + g->limit, err);

    if (!st) g->reserved = (int64_t)g->n_prompt + g->limit;
    return st;
}

waste_status waste_gen_rewind(waste_gen *g, waste_error *err)
{
    waste_seq_free(g->seq);
    g->seq = NULL;
    g->first = g->computed = g->keep_at = 0;
    g->met = 1;
    return waste_seq_new(&g->seq, g->model, err);
}

/* ---- the whole reply --------------------------------------------------- */

waste_str waste_gen_text(const waste_gen *g)
{
    const waste_buf *b = &g->output.content;
    const waste_str s = {b->len ? b->data : "", b->len};

    return s;
}

size_t waste_gen_calls(const waste_gen *g)
{
    return waste_reply_calls(g->output.reply);
}

void waste_gen_call(const waste_gen *g, size_t i, waste_str *id, waste_str *name)
{
    const waste_reply_call *c = waste_reply_call_at(g->output.reply, i);

    *id = c->id;
    *name = c->name;
}

static waste_status check_over(const waste_gen *g, waste_error *err)
{
    if (g->finish) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "the reply has not ended");
}

waste_status waste_gen_message(const waste_gen *g, waste_text *out, waste_error *err)
{
    waste_status st = check_over(g, err);

    out->text = NULL;
    out->bytes = 0;
    return st ? st : waste_output_message(&g->output, out, err);
}

const char *waste_gen_finish_reason(const waste_gen *g)
{
    switch (g->finish) {
    case WASTE_FINISH_NONE: return NULL;
    case WASTE_FINISH_TIMEOUT: return "timeout";
    default: break;
    }
    if (waste_gen_calls(g)) return "tool_calls";
    return g->finish == WASTE_FINISH_STOP ? "stop" : "length";
}

waste_status waste_gen_closing(const waste_gen *g, waste_ids *out, waste_error *err)
{
    waste_status st = check_over(g, err);

    return st ? st : waste_output_closing(&g->output, out, err);
}
