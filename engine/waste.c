/* The public interface for models and sequences, over the parts below it.
 *
 * Steps of one model run one after the other, on the threads that asked for
 * them: a step owns the model's scratch while model->busy is set. The mutex
 * beside it is held for moments only. Container functions are in container.c,
 * generation in generate.c. */
#include "waste.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/plat.h"
#include "internal.h"
#include "model/forward.h"

#define DEFAULT_CONTEXT 4096
#define MAX_CONTEXT     ((int64_t)1 << 30)
#define SLOT_TABLE      64       /* bookkeeping of the cache, per slot */
#define ASK_EVERY_NS    50000000 /* how often a waiting caller is asked about cancelling */

/* ---- opening ---------------------------------------------------------------- */

static waste_status check_options(waste_model *m, const waste_model_options *opt, waste_error *err)
{
    if (opt) m->options = *opt;
    if (m->options.context == 0) m->options.context = DEFAULT_CONTEXT;
    if (m->options.context < 1 || m->options.context > MAX_CONTEXT)
        return waste_fail(err, WASTE_ARG, "a context of %lld positions is not in 1..%lld",
                          (long long)m->options.context, (long long)MAX_CONTEXT);
    if (m->options.precision != WASTE_PRECISION_FAST &&
        m->options.precision != WASTE_PRECISION_EXACT)
        return waste_fail(err, WASTE_ARG, "precision %d is neither fast nor exact",
                          (int)m->options.precision);
    return WASTE_OK;
}

/* Experts that some layer really has. */
static int has_experts(const waste_config *c)
{
    return c->experts > 0 && c->dense_layers < c->layers;
}

static waste_status plan(waste_model *m, waste_error *err)
{
    const waste_config *c = &m->container->config;
    const waste_manifest *man = m->container->manifest;
    waste_plan *p = &m->plan;
    const waste_quant *q = &man->quant;
    /* floats of one layer's codebooks in memory (waste_banks_codebook) */
    const uint64_t books =
        3 * (uint64_t)q->stages * (q->index_bits == 6 ? 64 : 256) * (uint64_t)q->vec_dim;
    waste_scratch measure;
    uint64_t size;
    int i;

    memset(&measure, 0, sizeof measure);
    p->trunk = m->weights->resident;
    /* Small things, from above: JSON nodes and handles per tensor, tokens. */
    p->tables = 1 << 18;
    p->tables += man->n_trunk * (uint64_t)1536;
    if (m->container->tokenizer) p->tables += (uint64_t)c->vocab * 160;
    p->scratch = waste_scratch_carve(&measure, c, WASTE_FORWARD_ROWS, NULL);
    if (!p->scratch)
        return waste_fail(err, WASTE_RAM_BUDGET,
                          "the model's scratch does not fit the address space");
    p->state = waste_sequence_bytes(c, m->options.context);
    p->top_k = c->top_k;
    for (i = c->dense_layers; has_experts(c) && i < c->layers; i++) {
        size = man->bank[i].record_bytes;
        if (size > p->record) p->record = size;
        p->records += (uint64_t)c->experts;
        p->trunk += books * sizeof(float);
    }
    if (p->record) p->record += SLOT_TABLE;
    p->tables += p->records * sizeof(int32_t);
    return waste_plan_divide(p, m->options.budget, err);
}

static waste_status open_experts(waste_model *m, waste_error *err)
{
    const waste_config *c = &m->container->config;
    const waste_bank_shape shape = {c->layers, c->dense_layers, c->experts, c->moe_width,
                                    c->expert_in};
    waste_status st;

    st = waste_banks_open(&m->banks, m->container->manifest, &shape, m->options.verify, err);
    if (!st) st = waste_cache_open(&m->cache, m->banks, m->plan.slots, err);
    return st;
}

static waste_status open_parts(waste_model *m, const char *path, const waste_model_options *opt,
                               waste_error *err)
{
    const waste_config *c;
    waste_status st;

    st = check_options(m, opt, err);
    if (st) return st;
    m->has_turn = pthread_mutex_init(&m->turn, NULL) == 0;
    m->has_idle = pthread_cond_init(&m->idle, NULL) == 0;
    if (!m->has_turn || !m->has_idle)
        return waste_fail(err, WASTE_NOMEM, "no lock could be made for the model");
    st = waste_container_open(&m->container, path, err);
    if (st) return st;
    c = &m->container->config;
    waste_kernels_pick(&m->kernels, 0);

    /* Handles first: what the plan refuses must not have been loaded. */
    st = waste_tensors_open(&m->tensors, m->container->manifest, err);
    if (!st) st = waste_weights_open(&m->weights, m->tensors, m->container->manifest, c, err);
    if (!st) st = plan(m, err);
    if (!st) st = waste_tensors_load(m->tensors, err);
    if (!st && has_experts(c)) st = open_experts(m, err);
    if (!st) st = waste_scratch_open(&m->scratch, c, WASTE_FORWARD_ROWS, err);
    return st;
}

waste_status waste_model_open(waste_model **out, const char *path, const waste_model_options *opt,
                              waste_error *err)
{
    waste_model *m;
    waste_status st;

    if (!out) return waste_fail(err, WASTE_ARG, "waste_model_open: no place for the model");
    *out = NULL;
    if (!path) return waste_fail(err, WASTE_ARG, "waste_model_open: no path");
    m = waste_mem_zero(sizeof *m);
    if (!m) return waste_fail(err, WASTE_NOMEM, "%s: out of memory", path);
    st = open_parts(m, path, opt, err);
    if (st) {
        waste_model_close(m);
        return st;
    }
    *out = m;
    return WASTE_OK;
}

void waste_model_close(waste_model *m)
{
    if (!m) return;
    waste_scratch_close(m->scratch);
    waste_cache_close(m->cache);
    waste_banks_close(m->banks);
    waste_weights_close(m->weights);
    waste_tensors_close(m->tensors);
    waste_container_close(m->container);
    if (m->has_idle) pthread_cond_destroy(&m->idle);
    if (m->has_turn) pthread_mutex_destroy(&m->turn);
    waste_mem_free(m);
}

const waste_container *waste_model_container(const waste_model *m)
{
    return m->container;
}

int64_t waste_model_context(const waste_model *m)
{
    return m->options.context;
}

void waste_model_stats_get(waste_model *m, waste_model_stats *out)
{
    waste_cache_counts counts = {0};

    if (m->cache) waste_cache_counts_get(m->cache, &counts);
    pthread_mutex_lock(&m->turn);
    *out = m->stats;
    pthread_mutex_unlock(&m->turn);
    out->hits = counts.hits;
    out->misses = counts.misses;
    out->bytes_read = counts.bytes_read;
    out->io_ns = counts.io_ns;
    out->cache_slots = counts.slots;
    out->cache_used = counts.used;
    out->memory_bytes = waste_mem_used();
}

/* ---- sequences ---------------------------------------------------------------- */

/* Counts `bytes` more against what sequences may take in all. */
static waste_status take_bytes(waste_model *m, uint64_t bytes, waste_error *err)
{
    uint64_t left;

    pthread_mutex_lock(&m->turn);
    left = m->plan.sequences - m->sequence_bytes;
    if (bytes <= left) m->sequence_bytes += bytes;
    pthread_mutex_unlock(&m->turn);
    if (bytes <= left) return WASTE_OK;
    return waste_fail(err, WASTE_RAM_BUDGET,
                      "the budget of %llu bytes leaves %llu for sequences, %llu more are needed",
                      (unsigned long long)m->options.budget, (unsigned long long)left,
                      (unsigned long long)bytes);
}

static void give_bytes(waste_model *m, uint64_t bytes)
{
    pthread_mutex_lock(&m->turn);
    m->sequence_bytes -= bytes;
    pthread_mutex_unlock(&m->turn);
}

waste_status waste_seq_new(waste_seq **out, waste_model *m, waste_error *err)
{
    const waste_config *c;
    waste_status st;

    if (!out) return waste_fail(err, WASTE_ARG, "waste_seq_new: no place for the sequence");
    *out = NULL;
    if (!m) return waste_fail(err, WASTE_ARG, "waste_seq_new: no model");
    c = &m->container->config;
    st = take_bytes(m, waste_sequence_bytes(c, 0), err);
    if (st) return st;
    st = waste_sequence_new(out, m, c, err);
    if (st) give_bytes(m, waste_sequence_bytes(c, 0));
    return st;
}

void waste_seq_free(waste_seq *s)
{
    if (!s) return;
    give_bytes(s->model, waste_sequence_bytes(s->config, s->reserved));
    waste_sequence_free(s);
}

int64_t waste_seq_length(const waste_seq *s)
{
    return s->length;
}

/* Room for what is planned, within the budget. Rows of one sequence after the
 * first find it done. */
static waste_status reserve(waste_model *m, waste_seq *s, waste_error *err)
{
    const waste_config *c = s->config;
    uint64_t more;
    waste_status st;

    if (s->planned <= s->reserved) return WASTE_OK;
    more = waste_sequence_bytes(c, s->planned) - waste_sequence_bytes(c, s->reserved);
    st = take_bytes(m, more, err);
    if (st) return st;
    st = waste_sequence_reserve(s, s->planned, err);
    if (st) give_bytes(m, more);
    return st;
}

/* ---- steps ---------------------------------------------------------------------- */

static waste_status check_rows(const waste_model *m, const waste_row *rows, size_t n,
                               waste_error *err)
{
    const waste_config *c = &m->container->config;
    size_t i;

    for (i = 0; i < n; i++) {
        waste_seq *s = rows[i].seq;

        if (!s) return waste_fail(err, WASTE_ARG, "row %zu has no sequence", i);
        if (s->model != m)
            return waste_fail(err, WASTE_ARG, "the sequence of row %zu belongs to another model",
                              i);
        if (s->broken)
            return waste_fail(err, WASTE_ARG,
                              "the sequence of row %zu is broken: a step with it has failed", i);
        if (rows[i].token < 0 || rows[i].token >= c->vocab)
            return waste_fail(err, WASTE_ARG, "token %ld of row %zu is not in 0..%d",
                              (long)rows[i].token, i, c->vocab - 1);
        s->planned = s->length;
    }
    for (i = 0; i < n; i++) rows[i].seq->planned++;
    for (i = 0; i < n && c->n_mla; i++) {
        const waste_seq *s = rows[i].seq;

        if (s->planned > m->options.context)
            return waste_fail(err, WASTE_ARG,
                              "the context of %lld positions is full: %lld used, %lld more asked",
                              (long long)m->options.context, (long long)s->length,
                              (long long)(s->planned - s->length));
    }
    return WASTE_OK;
}

static struct timespec soon(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += ASK_EVERY_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* Waits until the model is idle and makes it busy. The caller's callback runs
 * without the lock. */
static waste_status take_turn(waste_model *m, const waste_cancel *cancel, waste_error *err)
{
    const int ask = cancel && cancel->asked;
    waste_status st = WASTE_OK;

    pthread_mutex_lock(&m->turn);
    while (m->busy && !st) {
        struct timespec t = soon();

        if (!ask) {
            pthread_cond_wait(&m->idle, &m->turn);
            continue;
        }
        pthread_cond_timedwait(&m->idle, &m->turn, &t);
        if (!m->busy) break;
        pthread_mutex_unlock(&m->turn);
        if (cancel->asked(cancel->ctx))
            st = waste_fail(err, WASTE_CANCELLED, "cancelled while waiting for the model");
        pthread_mutex_lock(&m->turn);
    }
    if (!st) m->busy = 1;
    pthread_mutex_unlock(&m->turn);
    return st;
}

static void end_turn(waste_model *m, size_t tokens, uint64_t ns)
{
    pthread_mutex_lock(&m->turn);
    m->busy = 0;
    m->stats.tokens += tokens;
    m->stats.step_ns += ns;
    pthread_cond_signal(&m->idle);
    pthread_mutex_unlock(&m->turn);
}

/* The step itself, by the thread that has the turn. */
static waste_status run(waste_model *m, const waste_row *rows, size_t n, const waste_cancel *cancel,
                        waste_error *err)
{
    waste_pass p = {
        .config = &m->container->config,
        .weights = m->weights,
        .tensors = m->tensors,
        .kernels = &m->kernels,
        .quant = &m->container->manifest->quant,
        .banks = m->banks,
        .cache = m->cache,
        .s = m->scratch,
        .cancel = cancel,
        .err = err,
    };
    waste_status st = WASTE_OK;
    size_t i;

    /* For the whole batch, so that running out of memory breaks nothing. */
    for (i = 0; i < n && !st; i++) st = reserve(m, rows[i].seq, err);
    if (!st) st = waste_forward(&p, rows, n);
    if (st && p.touched)
        for (i = 0; i < n; i++) rows[i].seq->broken = 1;
    return st;
}

waste_status waste_step(waste_model *m, const waste_row *rows, size_t n, const waste_cancel *cancel,
                        waste_step_stats *stats, waste_error *err)
{
    waste_cache_counts before = {0}, after = {0};
    uint64_t start;
    waste_status st;

    if (stats) memset(stats, 0, sizeof *stats);
    if (!m) return waste_fail(err, WASTE_ARG, "waste_step: no model");
    if (n && !rows) return waste_fail(err, WASTE_ARG, "waste_step: no rows");
    st = check_rows(m, rows, n, err);
    if (!st && n) st = take_turn(m, cancel, err);
    if (st || !n) return st;

    start = waste_clock_ns();
    if (m->cache) waste_cache_counts_get(m->cache, &before);
    st = run(m, rows, n, cancel, err);
    if (m->cache) waste_cache_counts_get(m->cache, &after);
    end_turn(m, st ? 0 : n, waste_clock_ns() - start);
    if (stats) {
        stats->hits = after.hits - before.hits;
        stats->misses = after.misses - before.misses;
        stats->bytes_read = after.bytes_read - before.bytes_read;
        stats->io_ns = after.io_ns - before.io_ns;
    }
    return st;
}

/* ---- the largest logits ----------------------------------------------------------- */

/* What a logit counts as: one that is not a number comes last. */
static double rank_of(float logit)
{
    return isnan(logit) ? -INFINITY : (double)logit;
}

/* Whether a comes before b: larger first, lower id among equals. */
static int precedes(const waste_logprob *a, const waste_logprob *b)
{
    const double x = rank_of(a->logit), y = rank_of(b->logit);

    return x > y || (x == y && a->token < b->token);
}

static int by_rank(const void *a, const void *b)
{
    return precedes(a, b) ? -1 : 1;
}

/* h[0..k) is a heap with the last of them at the root; place i may break it. */
static void sift(waste_logprob *h, size_t k, size_t i)
{
    const waste_logprob x = h[i];
    size_t child;

    while ((child = 2 * i + 1) < k) {
        if (child + 1 < k && precedes(&h[child], &h[child + 1])) child++;
        if (!precedes(&x, &h[child])) break;
        h[i] = h[child];
        i = child;
    }
    h[i] = x;
}

/* e^(logit - top); an infinite top shares everything among those that reach it. */
static double share(float logit, double top)
{
    const double x = rank_of(logit);

    return x == top ? 1 : exp(x - top);
}

/* ln of the sum of shares, n >= 1. */
static double log_sum(const float *logits, size_t n, double top)
{
    double sum = share(logits[0], top);
    size_t i;

    for (i = 1; i < n; i++) sum += share(logits[i], top);
    return log(sum);
}

waste_status waste_top(const float *logits, size_t n, size_t k, waste_logprob *out,
                       waste_error *err)
{
    double top = -INFINITY, sum;
    size_t i;

    if (k > n || n > INT32_MAX)
        return waste_fail(err, WASTE_ARG, "waste_top: %zu of %zu logits", k, n);
    if (k == 0) return WASTE_OK;
    if (!logits || !out) return waste_fail(err, WASTE_ARG, "waste_top: a pointer is NULL");
    for (i = 0; i < n; i++) {
        const waste_logprob x = {(int32_t)i, logits[i], 0};
        size_t j;

        if (i < k) {
            out[i] = x;
            for (j = i + 1 == k ? k / 2 : 0; j-- > 0;) sift(out, k, j);
        } else if (precedes(&x, &out[0])) {
            out[0] = x;
            sift(out, k, 0);
        }
        if (rank_of(logits[i]) > top) top = rank_of(logits[i]);
    }
    qsort(out, k, sizeof *out, by_rank);
    sum = log_sum(logits, n, top);
    for (i = 0; i < k; i++) {
        const double x = rank_of(out[i].logit);
        out[i].logprob = (x == top ? 0 : x - top) - sum;
    }
    return WASTE_OK;
}
