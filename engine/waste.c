/* The public interface for sequences, their steps and logits, over the parts below it.
 *
 * The model's mutex is held for moments only, never while something computes.
 * Models are opened in open.c; how steps of several threads come together is in combine.c,
 * container functions are in container.c, generation in generate.c. */
#include "waste.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/process.h"
#include "combine.h"
#include "internal.h"
#include "model/forward.h"

/* ---- sequences ---------------------------------------------------------------- */

/* Of plan.sequences, with the lock held. The first generation's buffers have a
 * part of their own in the plan. */
static uint64_t taken(const waste_model *m)
{
    const uint64_t own = m->plan.generation;

    return m->sequence_bytes + (m->generation_bytes > own ? m->generation_bytes - own : 0);
}

/* Adds `bytes` to *of, one of the two counts, if the plan has room for them or
 * resting sequences can make it. */
static waste_status take_bytes(waste_model *m, uint64_t *of, uint64_t bytes, waste_error *err)
{
    uint64_t before, after;

    do {
        pthread_mutex_lock(&m->turn);
        before = taken(m);
        *of += bytes;
        after = taken(m);
        if (after > m->plan.sequences) *of -= bytes;
        pthread_mutex_unlock(&m->turn);
        if (after <= m->plan.sequences) return WASTE_OK;
    } while (waste_keep_drop(m));
    return waste_fail(
        err, WASTE_RAM_BUDGET,
        "the %s of %llu bytes leaves %llu for sequences, %llu more are needed",
        m->options.budget ? "budget" : "limit by usable RAM", (unsigned long long)m->plan.limit,
        (unsigned long long)(m->plan.sequences - before), (unsigned long long)(after - before));
}

uint64_t waste_model_spare(waste_model *m)
{
    uint64_t used;

    pthread_mutex_lock(&m->turn);
    used = taken(m);
    pthread_mutex_unlock(&m->turn);
    return used < m->plan.sequences ? m->plan.sequences - used : 0;
}

static void give_bytes(waste_model *m, uint64_t *of, uint64_t bytes)
{
    pthread_mutex_lock(&m->turn);
    *of -= bytes;
    pthread_mutex_unlock(&m->turn);
}

waste_status waste_model_take_generation(waste_model *m, uint64_t bytes, waste_error *err)
{
    waste_status st = waste_model_here(m, err);

    return st ? st : take_bytes(m, &m->generation_bytes, bytes, err);
}

void waste_model_give_generation(waste_model *m, uint64_t bytes)
{
    if (m->process == waste_process_id()) give_bytes(m, &m->generation_bytes, bytes);
}

waste_status waste_model_take_sequence(waste_model *m, uint64_t bytes, waste_error *err)
{
    waste_status st = waste_model_here(m, err);

    return st ? st : take_bytes(m, &m->sequence_bytes, bytes, err);
}

void waste_model_give_sequence(waste_model *m, uint64_t bytes)
{
    if (m->process == waste_process_id()) give_bytes(m, &m->sequence_bytes, bytes);
}

waste_status waste_seq_new(waste_seq **out, waste_model *m, waste_error *err)
{
    const waste_config *c;
    uint64_t bytes;
    waste_status st;

    if (!out) return waste_fail(err, WASTE_ARG, "waste_seq_new: no place for the sequence");
    *out = NULL;
    if (!m) return waste_fail(err, WASTE_ARG, "waste_seq_new: no model");
    c = &m->container->config;
    bytes = waste_sequence_bytes(c, m->options.kv, 0);
    st = waste_model_take_sequence(m, bytes, err);
    if (st) return st;
    st = waste_sequence_new(out, m, c, m->options.kv, err);
    if (st) waste_model_give_sequence(m, bytes);
    return st;
}

void waste_seq_free(waste_seq *s)
{
    waste_model *m;

    if (!s) return;
    m = s->model;
    waste_model_give_sequence(m, waste_sequence_free(s));
}

int64_t waste_seq_length(const waste_seq *s)
{
    return s->length;
}

waste_status waste_model_reserve(waste_seq *s, int64_t positions, waste_error *err)
{
    const waste_config *c = s->config;
    waste_model *m = s->model;
    uint64_t more;
    waste_status st;

    if (positions <= s->reserved) return WASTE_OK;
    more = waste_sequence_bytes(c, s->kv, positions) - waste_sequence_bytes(c, s->kv, s->reserved);
    st = take_bytes(m, &m->sequence_bytes, more, err);
    if (st) return st;
    st = waste_sequence_reserve(s, positions, err);
    if (st) give_bytes(m, &m->sequence_bytes, more);
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

waste_status waste_step(waste_model *m, const waste_row *rows, size_t n, const waste_cancel *cancel,
                        waste_step_stats *stats, waste_error *err)
{
    waste_status st;
    size_t i;

    if (stats) memset(stats, 0, sizeof *stats);
    if (!m) return waste_fail(err, WASTE_ARG, "waste_step: no model");
    if (n && !rows) return waste_fail(err, WASTE_ARG, "waste_step: no rows");
    st = waste_model_here(m, err);
    if (!st) st = check_rows(m, rows, n, err);
    /* For the whole batch, so that running out of memory breaks nothing. */
    for (i = 0; i < n && !st; i++) st = waste_model_reserve(rows[i].seq, rows[i].seq->planned, err);
    return st || !n ? st : waste_combine_run(m, rows, n, cancel, stats, err);
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
