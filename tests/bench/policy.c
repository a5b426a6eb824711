/* policy: hit rates of the expert cache on recorded routing, for its policy as it is,
 * for variations of it, and for one that knows the future; and what a decision costs.
 *
 *   policy [options] TRACE...
 *       TRACE is one of tests/golden/traces or made by tests/tools/routes.c. Prints
 *       a line per rule, hits in % of demand at each share of all records:
 *         engine   store/policy.c itself
 *         rule     the same rule with what the options change (without any: the same)
 *         belady   drops what is wanted last of all (Belady 1966)
 *   policy cost
 *       The policy's time at the size of Kimi K3, on made-up routing.
 *
 *   --share S,..        capacities (0.03,0.06,0.12,0.24,0.48)
 *   --tokens A:B        ends after token B, counts from A on (everything)
 *   --decay A,B,C  --weight A,B,C  --unknown U  --distance X
 *                       the constants of store/policy.c; X: power of the distance
 *   --search N          climbs from these constants in N random steps to the mean hit
 *                       rate of all traces and shares, and prints where it got
 * What a running model knows besides, from traces with scores:
 *   --near M,W          experts ranked after the chosen ones, down to M, count as W of
 *                       a use, less and less with their rank
 *   --by-score W        uses count by their score: W of them, 1 - W evenly
 *   --expect            what the lookahead says of the next layer goes into its
 *                       records' worth, by how often each rank came true
 * and what it cannot know:
 *   --known N           exactly what the next N layers will want
 *
 * Nothing is read ahead: a hit is a record that stayed. Exit: 0, 1, 2 as usual. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/policy.h"
#include "trace.h"

#define COUNTS   3
#define SHARES   8
#define TRACES   8
#define LEARNING 0.02f

typedef struct rule {
    float decay[COUNTS], weight[COUNTS], unknown, distance;
    float near_weight, by_score;
    int near, expect, known;
} rule;

typedef struct options {
    rule rule;
    double share[SHARES];
    int n_shares, from, to, steps;
    trace trace[TRACES];
    int n_traces;
} options;

static void *need(void *p)
{
    if (p) return p;
    fprintf(stderr, "policy: out of memory\n");
    exit(1);
}

static int usage(const char *what, const char *about)
{
    fprintf(stderr, "policy: %s %s; see the head of tests/bench/policy.c\n", what, about);
    return 2;
}

/* ---- the rule and its variations ------------------------------------------------ */

typedef struct sim {
    const trace *t;
    const rule *r;
    float (*count)[COUNTS]; /* [records] */
    float *worth;           /* [records] */
    unsigned char *there, *used;
    int *list, n, capacity; /* records that are there */
    float *nearness;        /* [2 * layers], by layers to go - 1 */
    float *precision;       /* [experts]: of the lookahead, by rank */
    int token, layer;
} sim;

/* Whether a record is wanted when its layer comes round next; -1: not after the end. */
static int wanted(const sim *s, int record, int to_go)
{
    const trace *t = s->t;
    const int at = s->layer + to_go, token = s->token + at / t->layers;
    const uint16_t *id;
    int k;

    if (token >= t->tokens) return -1;
    id = trace_ids(t, token, at % t->layers);
    for (k = 0; k < t->chosen; k++)
        if (id[k] == record % t->experts) return 1;
    return 0;
}

/* What is compared. For a record of which it is known whether its next chance takes it,
 * the chance after that counts. */
static float index_of(const sim *s, int record)
{
    const trace *t = s->t;
    const int layer = record / t->experts;
    const int to_go = layer > s->layer ? layer - s->layer : layer - s->layer + t->layers;
    const float now = s->nearness[to_go - 1], later = s->nearness[t->layers + to_go - 1];
    const float worth = s->worth[record];

    if (to_go <= s->r->known) {
        const int yes = wanted(s, record, to_go);

        if (yes >= 0) return yes ? 1000.0f * now : worth * later;
    }
    if (s->r->expect && to_go == 1 && layer) {
        const size_t at = (size_t)s->token * (size_t)t->layers + (size_t)s->layer;
        const float p =
            s->precision[t->next_rank[at * (size_t)t->experts + (size_t)(record % t->experts)]];

        return p * now + (1 - p) * worth * later;
    }
    return worth * now;
}

static void drop_least(sim *s)
{
    float least = INFINITY;
    int i, best = 0;

    for (i = 0; i < s->n; i++) {
        const float x = s->used[s->list[i]] ? INFINITY : index_of(s, s->list[i]);

        if (!(x < least)) continue;
        least = x;
        best = i;
    }
    s->there[s->list[best]] = 0;
    s->list[best] = s->list[--s->n];
}

/* What one pass teaches about the records of its layer. */
static void learn(sim *s, const uint16_t *id)
{
    const trace *t = s->t;
    const rule *r = s->r;
    const int k = t->chosen, first = s->layer * t->experts;
    const size_t at = (size_t)s->token * (size_t)t->layers + (size_t)s->layer;
    const uint16_t *rank = t->rank ? t->rank + at * (size_t)t->experts : NULL;
    float sum = 0;
    int e, c, i;

    for (i = 0; r->by_score > 0 && i < k; i++) sum += t->score[at * (size_t)k + (size_t)i];
    for (e = 0; e < t->experts; e++)
        for (c = 0; c < COUNTS; c++) s->count[first + e][c] *= r->decay[c];
    for (i = 0; i < k; i++) {
        const float even = 1 - r->by_score;
        const float share =
            sum > 0 ? even + r->by_score * (float)k * t->score[at * (size_t)k + (size_t)i] / sum
                    : 1;

        for (c = 0; c < COUNTS; c++) s->count[first + id[i]][c] += (1 - r->decay[c]) * share;
    }
    for (e = 0; r->near > k && e < t->experts; e++) {
        const float share =
            rank[e] < k || rank[e] >= r->near
                ? 0
                : r->near_weight * (float)(r->near - rank[e]) / (float)(r->near - k);

        for (c = 0; c < COUNTS; c++) s->count[first + e][c] += (1 - r->decay[c]) * share;
    }
    for (e = 0; e < t->experts; e++) {
        s->worth[first + e] = r->unknown;
        for (c = 0; c < COUNTS; c++) s->worth[first + e] += r->weight[c] * s->count[first + e][c];
    }
    if (!r->expect || s->layer == 0) return;
    rank = t->next_rank + (at - 1) * (size_t)t->experts;
    for (e = 0; e < t->experts; e++)
        s->precision[rank[e]] += LEARNING * ((float)s->used[first + e] - s->precision[rank[e]]);
}

/* One layer of one token; returns its hits. */
static int pass(sim *s)
{
    const trace *t = s->t;
    const uint16_t *id = trace_ids(t, s->token, s->layer);
    const int first = s->layer * t->experts;
    int i, hits = 0;

    for (i = 0; i < t->chosen; i++) s->used[first + id[i]] = 1;
    learn(s, id);
    for (i = 0; i < t->chosen; i++) {
        if (s->there[first + id[i]]) {
            hits++;
            continue;
        }
        if (s->n == s->capacity) drop_least(s);
        s->there[first + id[i]] = 1;
        s->list[s->n++] = first + id[i];
    }
    for (i = 0; i < t->chosen; i++) s->used[first + id[i]] = 0;
    return hits;
}

/* Hits in percent. */
static double run_rule(const options *o, const trace *t, const rule *r, double share)
{
    const size_t records = (size_t)t->layers * (size_t)t->experts;
    const int to = o->to < t->tokens ? o->to : t->tokens;
    sim s = {.t = t, .r = r, .capacity = trace_capacity(t, share)};
    int64_t hits = 0;
    size_t i;

    s.count = need(calloc(records, sizeof *s.count));
    s.worth = need(malloc(records * sizeof *s.worth));
    s.there = need(calloc(records, 1));
    s.used = need(calloc(records, 1));
    s.list = need(calloc((size_t)s.capacity + 1, sizeof *s.list));
    s.nearness = need(malloc(2 * (size_t)t->layers * sizeof *s.nearness));
    s.precision = need(malloc((size_t)t->experts * sizeof *s.precision));
    for (i = 0; i < records; i++) s.worth[i] = r->unknown;
    for (i = 0; i < 2 * (size_t)t->layers; i++)
        s.nearness[i] = powf((float)t->layers / (float)(i + 1), r->distance);
    for (i = 0; i < (size_t)t->experts; i++) s.precision[i] = i < (size_t)t->chosen ? 0.5f : 0.02f;
    for (s.token = 0; s.token < to; s.token++)
        for (s.layer = 0; s.layer < t->layers; s.layer++) {
            const int n = pass(&s);

            if (s.token >= o->from) hits += n;
        }
    free(s.count);
    free(s.worth);
    free(s.there);
    free(s.used);
    free(s.list);
    free(s.nearness);
    free(s.precision);
    return 100.0 * (double)hits / ((double)(to - o->from) * t->layers * t->chosen);
}

/* ---- the engine's policy --------------------------------------------------------- */

static double run_engine(const options *o, const trace *t, double share)
{
    const int to = o->to < t->tokens ? o->to : t->tokens, full = trace_capacity(t, share);
    unsigned char *there = need(calloc((size_t)t->layers * (size_t)t->experts, 1));
    waste_error err = {0};
    waste_policy *p;
    int token, layer, i, n = 0, ids[1024];
    int64_t hits = 0;

    if (t->chosen > 1024 || waste_policy_open(&p, t->layers, t->experts, &err)) exit(1);
    for (token = 0; token < to; token++)
        for (layer = 0; layer < t->layers; layer++) {
            const int first = layer * t->experts;

            for (i = 0; i < t->chosen; i++) ids[i] = trace_ids(t, token, layer)[i];
            waste_policy_pass(p, layer, ids, NULL, (size_t)t->chosen, 1);
            for (i = 0; i < t->chosen; i++) waste_policy_withhold(p, first + ids[i]);
            for (i = 0; i < t->chosen; i++) {
                if (there[first + ids[i]]) {
                    hits += token >= o->from;
                    continue;
                }
                if (n == full) {
                    const int32_t victim = waste_policy_least(p, INFINITY);

                    if (victim < 0) break; /* everything is in use */
                    waste_policy_withhold(p, victim);
                    there[victim] = 0;
                    n--;
                }
                there[first + ids[i]] = 1;
                n++;
            }
            for (i = 0; i < t->chosen; i++)
                if (there[first + ids[i]]) waste_policy_offer(p, first + ids[i]);
        }
    waste_policy_close(p);
    free(there);
    return 100.0 * (double)hits / ((double)(to - o->from) * t->layers * t->chosen);
}

/* ---- knowing the future ------------------------------------------------------------ */

static double run_belady(const options *o, const trace *t, double share)
{
    const int to = o->to < t->tokens ? o->to : t->tokens, full = trace_capacity(t, share);
    const size_t records = (size_t)t->layers * (size_t)t->experts;
    const size_t n = (size_t)to * (size_t)t->layers * (size_t)t->chosen;
    size_t *next = need(malloc(n * sizeof *next)), *seen = need(malloc(records * sizeof *seen));
    int *list = need(calloc((size_t)full + 1, sizeof *list)), used = 0, j, last;
    unsigned char *there = need(calloc(records, 1));
    int64_t hits = 0;
    size_t i;

#define RECORD(i) \
    ((i) / (size_t)t->chosen % (size_t)t->layers * (size_t)t->experts + (size_t)t->id[i])
    for (i = 0; i < records; i++) seen[i] = SIZE_MAX;
    for (i = n; i-- > 0;) {
        next[i] = seen[RECORD(i)];
        seen[RECORD(i)] = i;
    }
    for (i = 0; i < n; i++) { /* seen: from here on, when a record that is there is wanted next */
        const size_t r = RECORD(i);

        if (there[r]) {
            hits += i / (size_t)t->chosen / (size_t)t->layers >= (size_t)o->from;
        } else {
            if (used == full) {
                for (last = 0, j = 1; j < used; j++)
                    if (seen[list[j]] > seen[list[last]]) last = j;
                there[list[last]] = 0;
                list[last] = list[--used];
            }
            there[r] = 1;
            list[used++] = (int)r;
        }
        seen[r] = next[i];
    }
#undef RECORD
    free(next);
    free(seen);
    free(list);
    free(there);
    return 100.0 * (double)hits / ((double)(to - o->from) * t->layers * t->chosen);
}

/* ---- searching constants ------------------------------------------------------------ */

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static double mean_hits(const options *o, const rule *r)
{
    double sum = 0;
    int i, k;

    for (k = 0; k < o->n_traces; k++)
        for (i = 0; i < o->n_shares; i++) sum += run_rule(o, &o->trace[k], r, o->share[i]);
    return sum / (o->n_traces * o->n_shares);
}

static rule changed(const rule *from, double by, uint64_t *seed)
{
    rule r = *from;
    int c;

#define CHANGE (by * (2 * uniform(seed) - 1))
    for (c = 0; c < COUNTS; c++)
        if (uniform(seed) < 0.4)
            r.decay[c] = (float)fmin(1 - (1 - r.decay[c]) * exp(2 * CHANGE), 0.9995);
    for (c = 0; c < COUNTS; c++) r.decay[c] = fmaxf(r.decay[c], 0.01f);
    for (c = 0; c < COUNTS - 1; c++)
        if (uniform(seed) < 0.4) r.weight[c] = fmaxf(r.weight[c] + 0.2f * (float)CHANGE, 0);
    r.weight[COUNTS - 1] = fmaxf(1 - r.weight[0] - r.weight[1], 0.02f);
    if (uniform(seed) < 0.4) r.unknown *= (float)exp(2 * CHANGE);
    if (uniform(seed) < 0.4) r.distance = fmaxf(r.distance + 0.3f * (float)CHANGE, 0);
#undef CHANGE
    return r;
}

static void search(options *o)
{
    const rule *r = &o->rule;
    double best = mean_hits(o, r), start = best;
    uint64_t seed = 1;
    int i;

    for (i = 0; i < o->steps; i++) {
        const rule try = changed(r, i % 3 ? 0.3 : 1, &seed);
        const double got = mean_hits(o, &try);

        if (got <= best) continue;
        best = got;
        o->rule = try;
    }
    printf("search: mean %.2f to %.2f with --decay %.3f,%.3f,%.4f --weight %.2f,%.2f,%.2f "
           "--unknown %.4f --distance %.2f\n",
           start, best, (double)r->decay[0], (double)r->decay[1], (double)r->decay[2],
           (double)r->weight[0], (double)r->weight[1], (double)r->weight[2], (double)r->unknown,
           (double)r->distance);
}

/* ---- what a decision costs ------------------------------------------------------------ */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A token of `chosen` experts a layer, some often and most seldom. */
static void made_up(trace *t, uint64_t *seed)
{
    const size_t n = trace_passes(t);
    size_t i;
    int k, j;

    for (i = 0; i < n; i++)
        for (k = 0; k < t->chosen; k++) {
            uint16_t *id = t->id + i * (size_t)t->chosen;

            do {
                id[k] = (uint16_t)(uniform(seed) * uniform(seed) * t->experts);
                for (j = 0; j < k && id[j] != id[k]; j++) continue;
            } while (j < k);
        }
}

static int cost(void)
{
    static const double share[] = {0.018, 0.1, 0.4}; /* 0.018: one working set */
    trace t = {.tokens = 150, .layers = 92, .experts = 896, .chosen = 16};
    options o = {.to = INT32_MAX};
    uint64_t seed = 1;
    double start, seconds, hits;
    size_t i;

    t.id = need(malloc(trace_passes(&t) * (size_t)t.chosen * sizeof *t.id));
    made_up(&t, &seed);
    for (i = 0; i < sizeof share / sizeof *share; i++) {
        start = now();
        hits = run_engine(&o, &t, share[i]);
        seconds = now() - start;
        printf("{\"name\":\"cost\",\"layers\":%d,\"experts\":%d,\"chosen\":%d,\"slots\":%d,"
               "\"hits\":%.1f,\"evictions_per_token\":%.0f,\"ms_per_token\":%.3f}\n",
               t.layers, t.experts, t.chosen, trace_capacity(&t, share[i]), hits,
               t.layers * t.chosen * (1 - hits / 100), 1e3 * seconds / t.tokens);
    }
    free(t.id);
    return 0;
}

/* ---- the command line ------------------------------------------------------------------ */

/* Up to `most` numbers; returns how many, 0 for anything else. */
static int numbers(const char *text, double *to, int most)
{
    char *end;
    int n = 0;

    for (;; text = end + 1) {
        if (n == most) return 0;
        to[n++] = strtod(text, &end);
        if (end == text) return 0;
        if (!*end) return n;
        if (*end != ',' && *end != ':') return 0;
    }
}

static int three(float *to, const double *v, int n)
{
    int i;

    for (i = 0; i < COUNTS && n == COUNTS; i++) to[i] = (float)v[i];
    return n == COUNTS;
}

static int option(options *o, const char *name, const char *value)
{
    double v[SHARES] = {0};
    const int n = numbers(value, v, SHARES);
    rule *r = &o->rule;
    int ok = n == 1;

    if (!strcmp(name, "--share")) {
        memcpy(o->share, v, sizeof v);
        o->n_shares = n;
        ok = n > 0;
    } else if (!strcmp(name, "--tokens")) {
        o->from = (int)v[0];
        o->to = (int)v[1];
        ok = n == 2 && v[0] >= 0 && v[1] > v[0];
    } else if (!strcmp(name, "--decay")) {
        ok = three(r->decay, v, n);
    } else if (!strcmp(name, "--weight")) {
        ok = three(r->weight, v, n);
    } else if (!strcmp(name, "--unknown")) {
        r->unknown = (float)v[0];
    } else if (!strcmp(name, "--distance")) {
        r->distance = (float)v[0];
    } else if (!strcmp(name, "--search")) {
        o->steps = (int)v[0];
    } else if (!strcmp(name, "--near")) {
        r->near = (int)v[0];
        r->near_weight = (float)v[1];
        ok = n == 2;
    } else if (!strcmp(name, "--by-score")) {
        r->by_score = (float)v[0];
    } else if (!strcmp(name, "--known")) {
        r->known = (int)v[0];
    } else {
        return usage("no option", name);
    }
    return ok ? 0 : usage("no value of the option:", value);
}

static void print(const options *o)
{
    static const char *const name[] = {"engine", "rule", "belady"};
    int k, row, i;

    for (k = 0; k < o->n_traces; k++)
        for (row = 0; row < 3; row++) {
            const trace *t = &o->trace[k];

            printf("%-16s %-7s", t->name, name[row]);
            for (i = 0; i < o->n_shares; i++)
                printf(" %6.2f", row == 0   ? run_engine(o, t, o->share[i])
                                 : row == 1 ? run_rule(o, t, &o->rule, o->share[i])
                                            : run_belady(o, t, o->share[i]));
            printf("\n");
        }
}

int main(int n, char **arg)
{
    options o = {.rule = {{0.5f, 0.9f, 0.995f}, {0.2f, 0.2f, 0.6f}, 0.01f, 0.5f, 0, 0, 0, 0, 0},
                 .share = {0.03, 0.06, 0.12, 0.24, 0.48},
                 .n_shares = 5,
                 .to = INT32_MAX};
    int i, k, rc = 0;

    if (n == 2 && !strcmp(arg[1], "cost")) return cost();
    for (i = 1; i < n && !rc; i++) {
        if (!strcmp(arg[i], "--expect")) {
            o.rule.expect = 1;
        } else if (!strncmp(arg[i], "--", 2)) {
            rc = i + 1 < n ? option(&o, arg[i], arg[i + 1]) : usage("no value for", arg[i]);
            i++;
        } else if (o.n_traces == TRACES) {
            rc = usage("too many traces:", arg[i]);
        } else {
            rc = trace_load(&o.trace[o.n_traces++], arg[i]);
        }
    }
    if (!rc && !o.n_traces) rc = usage("no", "trace");
    for (k = 0; k < o.n_traces && !rc; k++) {
        const trace *t = &o.trace[k];

        if (!t->rank && (o.rule.near || o.rule.by_score > 0 || o.rule.expect))
            rc = usage("this trace has no scores:", t->name);
        if (o.from >= t->tokens) rc = usage("too few tokens:", t->name);
        for (i = 0; i < o.n_shares && !rc; i++)
            if (trace_capacity(t, o.share[i]) < t->chosen)
                rc = usage("a share is smaller than one pass wants:", t->name);
    }
    if (!rc && o.steps) search(&o);
    if (!rc) print(&o);
    for (k = 0; k < o.n_traces; k++) trace_clear(&o.trace[k]);
    return rc;
}
