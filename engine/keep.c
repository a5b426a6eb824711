/* Sequences beyond one call, of waste.h: forks, parts to store and load, and those
 * that rest with their model until somebody goes on with them or needs the memory.
 *
 * The list of resting sequences is guarded by the model's lock, held for moments; a
 * sequence that was taken out of the list belongs to the thread that took it. What
 * always holds: the tokens beside a resting sequence are those that made it, one
 * for each position. */
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "internal.h"
#include "model/state.h"

struct waste_resting {
    waste_resting *next;
    waste_seq *seq;
    uint64_t owner;
    int prefix; /* nobody's: the beginning of prompts (prefix.c) */
    size_t n;
    int32_t id[]; /* n of them */
};

/* ---- forks and parts ------------------------------------------------------------- */

waste_status waste_seq_fork(waste_seq **out, const waste_seq *s, waste_error *err)
{
    uint64_t bytes;
    waste_status st;

    if (!out) return waste_fail(err, WASTE_ARG, "waste_seq_fork: no place for the fork");
    *out = NULL;
    if (!s) return waste_fail(err, WASTE_ARG, "waste_seq_fork: no sequence");
    if (s->broken) return waste_fail(err, WASTE_ARG, "the sequence is broken: a step has failed");
    bytes = waste_sequence_fork_bytes(s);
    st = waste_model_take_sequence(s->model, bytes, err);
    if (st) return st;
    st = waste_sequence_fork(out, s, err);
    if (st) waste_model_give_sequence(s->model, bytes);
    return st;
}

waste_status waste_seq_parts(waste_seq_part **out, size_t *n, const waste_model *m, int latents,
                             int64_t from, int64_t to, waste_error *err)
{
    const waste_config *c;
    const unsigned of = latents ? 2 : 1;

    *out = NULL;
    *n = 0;
    if (!m) return waste_fail(err, WASTE_ARG, "waste_seq_parts: no model");
    if (from < 0 || to < from || to > ((int64_t)1 << 40))
        return waste_fail(err, WASTE_ARG, "positions %lld to %lld", (long long)from, (long long)to);
    c = &m->container->config;
    *n = waste_state_parts(c, from, to, of, NULL);
    if (*n == 0) return WASTE_OK;
    *out = waste_mem_array(*n, sizeof **out);
    if (!*out) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu parts", *n);
    waste_state_parts(c, from, to, of, *out);
    return WASTE_OK;
}

void waste_seq_parts_free(waste_seq_part *parts)
{
    waste_mem_free(parts);
}

uint64_t waste_tokens_hash(uint64_t h, const int32_t *ids, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) h = waste_state_hash(h, &ids[i], sizeof *ids);
    return h;
}

waste_status waste_seq_save(const waste_seq *s, const waste_seq_part *p, uint64_t tokens, void *to,
                            uint64_t *check, waste_error *err)
{
    waste_identity id;
    waste_status st;

    if (!s || !p || !to || !check)
        return waste_fail(err, WASTE_ARG, "waste_seq_save: an argument is missing");
    st = waste_model_identity(s->model, &id, err);
    if (!st) st = waste_state_save(s, p, to, err);
    if (!st) *check = waste_state_check(p, to, id.weights, tokens);
    return st;
}

waste_status waste_seq_load(waste_seq **out, waste_model *m, int64_t length, waste_error *err)
{
    const waste_config *c;
    uint64_t bytes;
    waste_status st;

    *out = NULL;
    if (!m) return waste_fail(err, WASTE_ARG, "waste_seq_load: no model");
    c = &m->container->config;
    if (length < 0 || (c->n_mla && length > m->options.context))
        return waste_fail(err, WASTE_ARG, "a sequence of %lld positions, the context has %lld",
                          (long long)length, (long long)m->options.context);
    bytes = waste_sequence_bytes(c, m->options.kv, length);
    st = waste_model_take_sequence(m, bytes, err);
    if (st) return st;
    st = waste_sequence_new(out, m, c, m->options.kv, err);
    if (!st) st = waste_state_begin(*out, length, err);
    if (st) {
        waste_sequence_free(*out);
        *out = NULL;
        waste_model_give_sequence(m, bytes);
    }
    return st;
}

waste_status waste_seq_put(waste_seq *s, const waste_seq_part *p, uint64_t tokens, const void *from,
                           size_t bytes, uint64_t check, waste_error *err)
{
    waste_identity id;
    waste_status st;

    if (!s || !p || !from)
        return waste_fail(err, WASTE_ARG, "waste_seq_put: an argument is missing");
    if (bytes != p->bytes)
        return waste_fail(err, WASTE_FORMAT, "a part of layer %d has %zu bytes, wanted %zu",
                          p->layer, bytes, p->bytes);
    st = waste_state_check_part(s->config, p, err);
    if (!st) st = waste_model_identity(s->model, &id, err);
    if (st) return st;
    if (waste_state_check(p, from, id.weights, tokens) != check)
        return waste_fail(err, WASTE_FORMAT,
                          "a part of layer %d fails its check: damaged, or of another model or "
                          "conversation",
                          p->layer);
    return waste_state_put(s, p, from, err);
}

waste_status waste_seq_loaded(waste_seq *s, waste_error *err)
{
    if (!s) return waste_fail(err, WASTE_ARG, "waste_seq_loaded: no sequence");
    return waste_state_end(s, err);
}

/* ---- rest -------------------------------------------------------------------------- */

static uint64_t entry_bytes(size_t n)
{
    return sizeof(waste_resting) + n * sizeof(int32_t);
}

static void entry_free(waste_model *m, waste_resting *e)
{
    waste_seq_free(e->seq);
    waste_model_give_sequence(m, entry_bytes(e->n));
    waste_mem_free(e);
}

int waste_keep_drop(waste_model *m)
{
    waste_resting **at, *last = NULL;

    if (!m->has_turn || m->process != waste_process_id()) return 0;
    pthread_mutex_lock(&m->turn);
    for (at = &m->resting; *at; at = &(*at)->next) {
        if ((*at)->next) continue;
        last = *at;
        *at = NULL;
        break;
    }
    pthread_mutex_unlock(&m->turn);
    if (last) entry_free(m, last);
    return last != NULL;
}

/* Takes what the owner left out of the list; NULL when it left nothing. */
static waste_resting *take_owned(waste_model *m, uint64_t owner)
{
    waste_resting **at, *found = NULL;

    pthread_mutex_lock(&m->turn);
    for (at = &m->resting; *at && !found;) {
        if (!(*at)->prefix && (*at)->owner == owner) {
            found = *at;
            *at = found->next;
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&m->turn);
    return found;
}

static void put_back(waste_model *m, waste_resting *e)
{
    pthread_mutex_lock(&m->turn);
    e->next = m->resting;
    m->resting = e;
    pthread_mutex_unlock(&m->turn);
}

static void rest(waste_model *m, waste_seq *s, const int32_t *ids, uint64_t owner, int prefix)
{
    waste_resting *e = NULL;
    const size_t n = (size_t)s->length;

    if (!s->broken && n && !waste_model_take_sequence(m, entry_bytes(n), NULL)) {
        e = waste_mem_alloc(entry_bytes(n));
        if (!e) waste_model_give_sequence(m, entry_bytes(n));
    }
    if (!e) return waste_seq_free(s);
    e->seq = s;
    e->owner = owner;
    e->prefix = prefix;
    e->n = n;
    memcpy(e->id, ids, n * sizeof *ids);
    put_back(m, e);
}

void waste_seq_rest(waste_seq *s, const int32_t *ids, uint64_t owner)
{
    waste_resting *before;

    if (!s) return;
    if (s->model->process != waste_process_id()) return waste_seq_free(s);
    while ((before = take_owned(s->model, owner))) entry_free(s->model, before);
    rest(s->model, s, ids, owner, 0);
}

/* Takes the best entry out of the list: longest, and the owner's among equals. */
static waste_resting *take_best(waste_model *m, const int32_t *ids, size_t n, uint64_t owner)
{
    waste_resting **at, **best = NULL, *found = NULL;

    pthread_mutex_lock(&m->turn);
    for (at = &m->resting; *at; at = &(*at)->next) {
        const waste_resting *e = *at;

        if (e->n > n || (best && (e->n < (*best)->n || (e->n == (*best)->n && e->owner != owner))))
            continue;
        if (memcmp(e->id, ids, e->n * sizeof *ids) == 0) best = at;
    }
    if (best) {
        found = *best;
        *best = found->next;
    }
    pthread_mutex_unlock(&m->turn);
    return found;
}

/* While it is forked an entry is in nobody's list, so that it cannot be dropped. */
waste_seq *waste_seq_wake(waste_model *m, const int32_t *ids, size_t n, uint64_t owner)
{
    waste_seq *s = NULL;
    waste_resting *e;

    if (!m || !n || m->process != waste_process_id()) return NULL;
    e = take_best(m, ids, n, owner);
    if (!e) return NULL;
    if ((e->prefix || e->owner != owner) && !waste_seq_fork(&s, e->seq, NULL)) {
        put_back(m, e);
        return s;
    }
    /* its own, or there is no room for two */
    s = e->seq;
    e->seq = NULL;
    entry_free(m, e);
    return s;
}

/* ---- beginnings of prompts ------------------------------------------------------------ */

/* Takes the beginning that was not used for longest out of the list, if there are more
 * than `most`. */
static waste_resting *take_oldest_prefix(waste_model *m, size_t most)
{
    waste_resting **at, **last = NULL, *found = NULL;
    size_t n = 0;

    pthread_mutex_lock(&m->turn);
    for (at = &m->resting; *at; at = &(*at)->next) {
        if (!(*at)->prefix) continue;
        n++;
        last = at;
    }
    if (n > most) {
        found = *last;
        *last = found->next;
    }
    pthread_mutex_unlock(&m->turn);
    return found;
}

static int rests(waste_model *m, const int32_t *ids, size_t n)
{
    const waste_resting *e;

    pthread_mutex_lock(&m->turn);
    for (e = m->resting; e; e = e->next)
        if (e->n == n && memcmp(e->id, ids, n * sizeof *ids) == 0) break;
    pthread_mutex_unlock(&m->turn);
    return e != NULL;
}

void waste_keep_prefix(const waste_seq *s, const int32_t *ids)
{
    waste_model *m = s->model;
    const uint64_t need = waste_sequence_fork_bytes(s) + entry_bytes((size_t)s->length);
    waste_resting *e;
    waste_seq *f;

    if (rests(m, ids, (size_t)s->length)) return;
    while ((e = take_oldest_prefix(m, WASTE_KEEP_PREFIXES - 1))) entry_free(m, e);
    while (waste_model_spare(m) < need) {
        e = take_oldest_prefix(m, 0);
        if (!e) return;
        entry_free(m, e);
    }
    if (!waste_seq_fork(&f, s, NULL)) rest(m, f, ids, 0, 1);
}

waste_seq *waste_keep_fork(waste_model *m, const int32_t *ids, size_t n)
{
    waste_seq *s = NULL;
    waste_resting *e = n ? take_best(m, ids, n, 0) : NULL;

    if (!e) return NULL;
    if (waste_model_spare(m) >= waste_sequence_fork_bytes(e->seq)) waste_seq_fork(&s, e->seq, NULL);
    put_back(m, e);
    return s;
}

size_t waste_keep_prefixes(const waste_model *m)
{
    const waste_resting *e;
    size_t n = 0;

    for (e = m->resting; e; e = e->next) n += e->prefix != 0;
    return n;
}
