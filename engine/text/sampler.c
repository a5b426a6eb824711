/* The sampler: see sampler.h for the order of things. Owns a scratch copy of the
 * logits, a heap of ids and the counts of what was seen. One thread at a time;
 * what always holds is that ids in the heap have a logit above -INFINITY. */
#include "text/sampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define SEED_FOR_ZERO 0x853c49e6748fea9bu

struct waste_sampler {
    size_t vocab;
    double temperature, top_p, min_p;
    double repetition, presence, frequency;
    size_t top_k; /* vocab when off */
    uint64_t x;   /* the generator */
    waste_bias *bias;
    size_t n_bias;
    float *work;     /* logits after bias and penalties, NaN replaced; vocab */
    int32_t *heap;   /* vocab; sampling from a ranking only */
    double *weight;  /* of what is kept, by falling probability; vocab, likewise */
    uint32_t *times; /* in the reply; vocab */
    uint8_t *known;  /* in prompt or reply; vocab */
    int32_t *seen;   /* the distinct known ids; vocab */
    size_t n_seen;
};

/* ---- options ----------------------------------------------------------- */

/* NaN is in no range. */
static waste_status in_range(const char *name, double v, double lo, double hi, waste_error *err)
{
    if (v >= lo && v <= hi) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s is %g, wanted a number from %g to %g", name, v, lo, hi);
}

static waste_status positive(const char *name, double v, double hi, waste_error *err)
{
    if (v > 0 && v <= hi) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s is %g, wanted a number above 0 and at most %g", name, v,
                      hi);
}

static waste_status check(const waste_gen_params *p, size_t vocab, waste_error *err)
{
    waste_status st = in_range("temperature", p->temperature, 0, 1e6, err);
    size_t i;

    if (!st) st = positive("top_p", p->top_p, 1, err);
    if (!st) st = in_range("min_p", p->min_p, 0, 1, err);
    if (!st) st = positive("repetition_penalty", p->repetition_penalty, 1e6, err);
    if (!st) st = in_range("presence_penalty", p->presence_penalty, -1e6, 1e6, err);
    if (!st) st = in_range("frequency_penalty", p->frequency_penalty, -1e6, 1e6, err);
    if (!st && p->top_k < 0)
        st = waste_fail(err, WASTE_ARG, "top_k is %lld, wanted 0 (off) or more",
                        (long long)p->top_k);
    for (i = 0; !st && i < p->n_logit_bias; i++) {
        const waste_bias *b = &p->logit_bias[i];
        if (b->token < 0 || (size_t)b->token >= vocab)
            st = waste_fail(err, WASTE_ARG,
                            "logit_bias names token %ld, the vocabulary has 0 to %zu",
                            (long)b->token, vocab - 1);
        else if (isnan(b->bias))
            st = waste_fail(err, WASTE_ARG, "logit_bias of token %ld is not a number",
                            (long)b->token);
    }
    return st;
}

waste_status waste_sampler_open(waste_sampler **out, const waste_gen_params *p, size_t vocab,
                                waste_error *err)
{
    waste_sampler *s;
    int ranked, ok;
    waste_status st;

    *out = NULL;
    st = check(p, vocab, err);
    if (st) return st;
    s = waste_mem_zero(sizeof *s);
    if (!s) return waste_fail(err, WASTE_NOMEM, "out of memory for a sampler");
    s->vocab = vocab;
    s->temperature = p->temperature;
    s->top_p = p->top_p;
    s->min_p = p->min_p;
    s->repetition = p->repetition_penalty;
    s->presence = p->presence_penalty;
    s->frequency = p->frequency_penalty;
    s->top_k = p->top_k == 0 || (uint64_t)p->top_k > vocab ? vocab : (size_t)p->top_k;
    s->x = p->seed ? p->seed : SEED_FOR_ZERO;
    s->n_bias = p->n_logit_bias;

    ranked = s->temperature > 0 && (s->top_k < vocab || s->top_p < 1 || s->min_p > 0);
    s->work = waste_mem_array(vocab, sizeof *s->work);
    s->times = waste_mem_array(vocab, sizeof *s->times);
    s->known = waste_mem_array(vocab, sizeof *s->known);
    s->seen = waste_mem_array(vocab, sizeof *s->seen);
    ok = s->work && s->times && s->known && s->seen;
    if (ok && ranked) {
        s->heap = waste_mem_array(vocab, sizeof *s->heap);
        s->weight = waste_mem_array(s->top_k, sizeof *s->weight);
        ok = s->heap && s->weight;
    }
    if (ok && s->n_bias) {
        s->bias = waste_mem_array(s->n_bias, sizeof *s->bias);
        ok = s->bias != NULL;
        if (ok) memcpy(s->bias, p->logit_bias, s->n_bias * sizeof *s->bias);
    }
    if (!ok) {
        waste_sampler_close(s);
        return waste_fail(err, WASTE_NOMEM, "out of memory for a sampler of %zu tokens", vocab);
    }
    *out = s;
    return WASTE_OK;
}

void waste_sampler_close(waste_sampler *s)
{
    if (!s) return;
    waste_mem_free(s->bias);
    waste_mem_free(s->work);
    waste_mem_free(s->heap);
    waste_mem_free(s->weight);
    waste_mem_free(s->times);
    waste_mem_free(s->known);
    waste_mem_free(s->seen);
    waste_mem_free(s);
}

void waste_sampler_saw(waste_sampler *s, int32_t token, int reply)
{
    if (!s->known[token]) {
        s->known[token] = 1;
        s->seen[s->n_seen++] = token;
    }
    if (reply && s->times[token] < UINT32_MAX) s->times[token]++;
}

/* ---- logits ------------------------------------------------------------ */

static void apply_options(waste_sampler *s, const float *logits)
{
    size_t i;

    memcpy(s->work, logits, s->vocab * sizeof *s->work);
    for (i = 0; i < s->n_bias; i++) s->work[s->bias[i].token] += s->bias[i].bias;
    for (i = 0; i < s->n_seen; i++) {
        int32_t id = s->seen[i];
        double l = s->work[id];

        l = l > 0 ? l / s->repetition : l * s->repetition;
        if (s->times[id]) l -= s->presence + s->frequency * s->times[id];
        s->work[id] = (float)l;
    }
    for (i = 0; i < s->vocab; i++) {
        if (isnan(s->work[i])) s->work[i] = -INFINITY;
    }
}

/* Lowest id among the largest; -1 when nothing may be chosen. */
static int32_t largest(const waste_sampler *s)
{
    int32_t best = -1;
    float top = -INFINITY;
    size_t i;

    for (i = 0; i < s->vocab; i++) {
        if (s->work[i] > top) {
            top = s->work[i];
            best = (int32_t)i;
        }
    }
    return best;
}

/* Relative to the largest; the equality keeps infinity minus infinity out. */
static double weigh(const waste_sampler *s, double l, double max)
{
    return l == max ? 1 : exp((l - max) / s->temperature);
}

static double draw(waste_sampler *s)
{
    s->x = s->x * 6364136223846793005u + 1442695040888963407u;
    return (double)(s->x >> 11) * 0x1p-53;
}

static int32_t walk_ids(waste_sampler *s, double max)
{
    double sum = 0, cumulative = 0, target;
    int32_t last = -1;
    size_t i;

    for (i = 0; i < s->vocab; i++) sum += weigh(s, s->work[i], max);
    target = draw(s) * sum;
    for (i = 0; i < s->vocab; i++) {
        double w = weigh(s, s->work[i], max);
        if (w == 0) continue; /* a draw of 0 must not choose what is banned */
        last = (int32_t)i;
        cumulative += w;
        if (cumulative >= target) break;
    }
    return last;
}

/* ---- ranking: a heap gives the best first, and only as many as are wanted - */

static int before(const waste_sampler *s, int32_t a, int32_t b)
{
    return s->work[a] != s->work[b] ? s->work[a] > s->work[b] : a < b;
}

static void sift(waste_sampler *s, size_t n, size_t at)
{
    int32_t id = s->heap[at];

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && before(s, s->heap[child + 1], s->heap[child])) child++;
        if (!before(s, s->heap[child], id)) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = id;
}

static size_t heap_fill(waste_sampler *s)
{
    size_t n = 0, i;

    for (i = 0; i < s->vocab; i++) {
        if (s->work[i] > -INFINITY) s->heap[n++] = (int32_t)i;
    }
    for (i = n / 2; i-- > 0;) sift(s, n, i);
    return n;
}

/* Moves the best of n to the end of the heap's array: what was taken stands
 * there, best last. */
static void heap_take(waste_sampler *s, size_t n)
{
    int32_t best = s->heap[0];

    s->heap[0] = s->heap[n - 1];
    s->heap[n - 1] = best;
    sift(s, n - 1, 0);
}

static int32_t walk_ranking(waste_sampler *s, double max)
{
    size_t n = heap_fill(s), limit = n < s->top_k ? n : s->top_k, kept, i;
    double sum = 0, cumulative = 0, target;

    /* With top_k the sum is over what it keeps; without, over everything, and
     * then only the tokens that top_p needs are ever ranked. */
    if (s->top_k == s->vocab) {
        for (i = 0; i < n; i++) sum += weigh(s, s->work[s->heap[i]], max);
    } else {
        for (i = 0; i < limit; i++) {
            heap_take(s, n - i);
            s->weight[i] = weigh(s, s->work[s->heap[n - 1 - i]], max);
            sum += s->weight[i];
        }
    }
    for (kept = 0; kept < limit && (kept == 0 || cumulative < s->top_p); kept++) {
        if (s->top_k == s->vocab) {
            heap_take(s, n - kept);
            s->weight[kept] = weigh(s, s->work[s->heap[n - 1 - kept]], max);
        }
        if (s->weight[kept] < s->min_p) break;
        cumulative += s->weight[kept] / sum;
    }
    target = draw(s) * cumulative;
    cumulative = 0;
    for (i = 0; i < kept; i++) {
        cumulative += s->weight[i] / sum;
        if (cumulative >= target) break;
    }
    return s->heap[n - 1 - (i < kept ? i : kept - 1)];
}

waste_status waste_sampler_pick(waste_sampler *s, const float *logits, int32_t *token,
                                waste_error *err)
{
    int32_t best;
    size_t i;

    apply_options(s, logits);
    best = largest(s);
    if (best < 0) {
        for (i = 0; i < s->vocab; i++) {
            if (logits[i] > -INFINITY)
                return waste_fail(err, WASTE_ARG, "logit_bias leaves no token to choose");
        }
        return waste_fail(err, WASTE_FORMAT,
                          "the model gave no usable logit: all %zu are NaN or -infinity", s->vocab);
    }
    if (s->temperature == 0)
        *token = best;
    else if (s->heap)
        *token = walk_ranking(s, s->work[best]);
    else
        *token = walk_ids(s, s->work[best]);
    return WASTE_OK;
}

double waste_sampler_logprob(const float *logits, size_t n, int32_t token)
{
    double max = -INFINITY, sum = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        if (logits[i] > max) max = logits[i];
    }
    if (!(logits[token] > -INFINITY)) return -INFINITY;
    for (i = 0; i < n; i++) {
        if (logits[i] == max)
            sum += 1;
        else if (!isnan(logits[i]))
            sum += exp(logits[i] - max);
    }
    return (logits[token] == max ? 0 : logits[token] - max) - log(sum);
}
