/* Open models of the process: see ext_shared.h.
 *
 * Owns the list of entries, under one mutex. Opening and closing take long, so
 * they happen outside it: the entry stays in the list meanwhile, marked, and
 * whoever wants it waits on the condition variable. A closing entry is waited
 * for as well, since two copies of one model may not fit in memory together.
 *
 * What always holds: an entry in state OPEN has users > 0; only the thread that
 * marked an entry OPENING or CLOSING removes it or changes its state.
 *
 * A forked child starts with an empty list. What its connections held belongs to
 * the parent: they are told so, and releasing it does nothing. */
#include "ext_shared.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"

typedef enum state { OPENING, OPEN, CLOSING } state;

struct waste_shared {
    waste_shared *next;
    waste_place place;
    int64_t process; /* that opened it */
    state state;
    int users;
    waste_wish wish; /* as opened; constant from OPEN on, like model */
    waste_model *model;
};

static waste_process_gate gate = WASTE_PROCESS_GATE;
static waste_shared *entries;

static void enter(void)
{
    if (waste_process_enter(&gate)) entries = NULL;
}

static void leave(void)
{
    pthread_mutex_unlock(&gate.mutex);
}

waste_status waste_shared_place(waste_place *out, const char *path, waste_error *err)
{
    char manifest[WASTE_PATH_MAX];
    waste_path_info i;
    waste_status st = waste_container_identity(path, out->id, err);

    memset(out->stamp, 0, sizeof out->stamp);
    if (!st) st = waste_path_join(manifest, sizeof manifest, path, "manifest.json", err);
    if (st) return st;
    if (waste_path_stat(&i, manifest, NULL)) return WASTE_OK; /* opening says what is missing */
    out->stamp[0] = i.id[1];
    out->stamp[1] = i.bytes;
    out->stamp[2] = i.modified_ns;
    return WASTE_OK;
}

static waste_shared *find(const waste_place *place)
{
    waste_shared *s;

    for (s = entries; s; s = s->next)
        if (memcmp(s->place.id, place->id, sizeof place->id) == 0) return s;
    return NULL;
}

static void unlink_entry(waste_shared *s)
{
    waste_shared **at = &entries;

    while (*at != s) at = &(*at)->next;
    *at = s->next;
    pthread_cond_broadcast(&gate.changed);
}

/* Wakes now and then to ask whether the caller still wants to wait. Holds the
 * lock on entry and return, but not while asking. */
static waste_status wait_for_change(const waste_cancel *cancel, const char *path, waste_error *err)
{
    int stop;

    waste_process_wait(&gate.changed, &gate.mutex, 20 * 1000 * 1000);
    if (!cancel || !cancel->asked) return WASTE_OK;
    leave();
    stop = cancel->asked(cancel->ctx);
    enter();
    return stop ? waste_fail(err, WASTE_CANCELLED, "%s: stopped waiting for it to open", path)
                : WASTE_OK;
}

/* ---- options ---- */

static const char *precision_name(waste_precision p)
{
    return p == WASTE_PRECISION_EXACT ? "exact" : "fast";
}

static const char *kv_name(waste_kv kv)
{
    return kv == WASTE_KV_F16 ? "f16" : "f32";
}

/* What the engine made of a default, for those who name a number: -1 is none. */
static int in_force(int asked, int now)
{
    return asked ? asked : now > 0 ? now : -1;
}

static int shown(int v)
{
    return v > 0 ? v : 0;
}

/* Both sides of the first difference, for people; 0 when there is none. */
static int differ(const waste_shared *s, const waste_wish *wish, char is[64], char want[64])
{
    const waste_model_options *a = &s->wish.options, *b = &wish->options;
    const unsigned given = wish->given;
    const int64_t context = waste_model_context(s->model);
    const int64_t sequences = a->sequences ? a->sequences : 1;
    waste_model_stats now;
    int guesses, threads, computing;

    waste_model_stats_get(s->model, &now);
    guesses = in_force(a->lookahead, now.lookahead);
    threads = a->io_threads ? a->io_threads : now.io_threads;
    computing = a->threads ? a->threads : now.threads;
    if ((given & WASTE_GIVEN_BUDGET) && a->budget != b->budget) {
        snprintf(is, 64, "budget %llu", (unsigned long long)a->budget);
        if (!a->budget) snprintf(is, 64, "a budget of the engine's choice");
        snprintf(want, 64, "%llu", (unsigned long long)b->budget);
    } else if ((given & WASTE_GIVEN_CONTEXT) && context != b->context) {
        snprintf(is, 64, "context %lld", (long long)context);
        snprintf(want, 64, "%lld", (long long)b->context);
    } else if ((given & WASTE_GIVEN_SEQUENCES) && sequences != b->sequences) {
        snprintf(is, 64, "sequences %lld", (long long)sequences);
        snprintf(want, 64, "%lld", (long long)b->sequences);
    } else if ((given & WASTE_GIVEN_PRECISION) && a->precision != b->precision) {
        snprintf(is, 64, "precision '%s'", precision_name(a->precision));
        snprintf(want, 64, "'%s'", precision_name(b->precision));
    } else if ((given & WASTE_GIVEN_KV) && a->kv != b->kv) {
        snprintf(is, 64, "kv '%s'", kv_name(a->kv));
        snprintf(want, 64, "'%s'", kv_name(b->kv));
    } else if ((given & WASTE_GIVEN_VERIFY) && !a->verify != !b->verify) {
        snprintf(is, 64, "verify %s", a->verify ? "on" : "off");
        snprintf(want, 64, "%s", b->verify ? "on" : "off");
    } else if ((given & WASTE_GIVEN_DIRECT_IO) && !a->buffered != !b->buffered) {
        snprintf(is, 64, "direct_io %s", a->buffered ? "off" : "on");
        snprintf(want, 64, "%s", b->buffered ? "off" : "on");
    } else if ((given & WASTE_GIVEN_IO_THREADS) && b->io_threads && threads != b->io_threads) {
        snprintf(is, 64, "io_threads %d", threads);
        snprintf(want, 64, "%d", b->io_threads);
    } else if ((given & WASTE_GIVEN_LOOKAHEAD) && guesses != b->lookahead) {
        snprintf(is, 64, "lookahead %d", shown(guesses));
        snprintf(want, 64, "%d", shown(b->lookahead));
    } else if ((given & WASTE_GIVEN_EXCLUSIVE) && !a->exclusive != !b->exclusive) {
        snprintf(is, 64, "exclusive %s", a->exclusive ? "on" : "off");
        snprintf(want, 64, "%s", b->exclusive ? "on" : "off");
    } else if ((given & WASTE_GIVEN_THREADS) && b->threads && computing != b->threads) {
        snprintf(is, 64, "threads %d", computing);
        snprintf(want, 64, "%d", b->threads);
    } else if ((given & WASTE_GIVEN_CPUS) && strcmp(s->wish.cpus, wish->cpus) != 0) {
        snprintf(is, 64, "cpus '%.48s'", s->wish.cpus);
        snprintf(want, 64, "'%.48s'", wish->cpus);
    } else {
        return 0;
    }
    return 1;
}

static waste_status agrees(const waste_shared *s, int users, const char *path,
                           const waste_wish *wish, waste_error *err)
{
    char is[64], want[64];

    if (!differ(s, wish, is, want)) return WASTE_OK;
    return waste_fail(err, WASTE_ARG,
                      "%s is open here by %d connection%s with %s, not %s; close it everywhere "
                      "first (waste_close)",
                      path, users, users == 1 ? "" : "s", is, want);
}

waste_status waste_shared_agrees(const waste_shared *s, const char *path, const waste_wish *wish,
                                 waste_error *err)
{
    return agrees(s, waste_shared_users(s), path, wish, err);
}

waste_status waste_shared_here(const waste_shared *s, const char *path, waste_error *err)
{
    if (s->process == waste_process_id()) return WASTE_OK;
    return waste_fail(err, WASTE_BUSY,
                      "%s: this process was forked after the model was opened; open a new "
                      "connection",
                      path);
}

/* ---- hold and release ---- */

/* s is OPEN and the lock is held. */
static waste_status join(waste_shared *s, const char *path, const waste_place *place,
                         const waste_wish *wish, waste_error *err)
{
    waste_status st;

    if (memcmp(s->place.stamp, place->stamp, sizeof place->stamp) != 0)
        return waste_fail(err, WASTE_BUSY,
                          "%s has been replaced while another connection had it open; close it "
                          "there first (waste_close)",
                          path);
    st = agrees(s, s->users, path, wish, err);
    if (!st) s->users++;
    return st;
}

/* s is OPENING, by us; the lock is not held. */
static waste_status open_entry(waste_shared *s, const char *path, const waste_cancel *cancel,
                               waste_error *err)
{
    waste_usage_choice *u = &s->wish.usage;
    waste_model_options options;
    waste_status st = WASTE_OK;

    if (u->kind == WASTE_USAGE_INSIDE)
        st = waste_path_join(u->path, sizeof u->path, path, "usage.waste", err);
    if (u->kind == WASTE_USAGE_INSIDE || u->kind == WASTE_USAGE_FILE)
        s->wish.options.usage = u->path;
    if (s->wish.cpus[0]) s->wish.options.cpus = s->wish.cpus;
    options = s->wish.options;
    if (cancel) options.cancel = *cancel;
    if (!st) st = waste_model_open(&s->model, path, &options, err);
    enter();
    if (st)
        unlink_entry(s);
    else
        s->state = OPEN;
    pthread_cond_broadcast(&gate.changed);
    leave();
    if (st) waste_mem_free(s);
    return st;
}

waste_status waste_shared_hold(waste_shared **out, const char *path, const waste_place *place,
                               const waste_wish *wish, const waste_cancel *cancel, waste_error *err)
{
    waste_shared *s, *fresh = waste_mem_zero(sizeof *fresh);
    waste_status st = WASTE_OK;

    *out = NULL;
    if (!fresh) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    fresh->place = *place;
    fresh->process = waste_process_id();
    fresh->wish = *wish;
    fresh->users = 1;
    enter();
    while ((s = find(place)) && s->state != OPEN && !st) st = wait_for_change(cancel, path, err);
    if (!st && s) st = join(s, path, place, wish, err);
    if (!st && !s) {
        fresh->next = entries;
        entries = fresh;
    }
    leave();
    if (st || s) {
        waste_mem_free(fresh);
    } else {
        s = fresh;
        st = open_entry(s, path, cancel, err);
    }
    if (!st) *out = s;
    return st;
}

void waste_shared_release(waste_shared *s)
{
    int last;

    if (!s || s->process != waste_process_id()) return;
    enter();
    last = --s->users == 0;
    if (last) s->state = CLOSING;
    leave();
    if (!last) return;

    waste_model_close(s->model);
    enter();
    unlink_entry(s);
    leave();
    waste_mem_free(s);
}

waste_model *waste_shared_model(const waste_shared *s)
{
    return s->model;
}

const waste_model_options *waste_shared_options(const waste_shared *s)
{
    return &s->wish.options;
}

int waste_shared_users(const waste_shared *s)
{
    int users;

    enter();
    users = s->users;
    leave();
    return users;
}

/* The stats of each are taken with the list's lock, so that none closes
 * meanwhile; they need other locks for moments only. */
waste_status waste_shared_views(waste_shared_view **out, size_t *n, waste_error *err)
{
    const waste_shared *s;
    waste_shared_view *v;
    size_t count = 0;

    *out = NULL;
    *n = 0;
    enter();
    for (s = entries; s; s = s->next) count += s->state == OPEN;
    v = count ? waste_mem_array(count, sizeof *v) : NULL;
    for (s = v ? entries : NULL; s; s = s->next) {
        if (s->state != OPEN) continue;
        snprintf(v[*n].path, sizeof v->path, "%s",
                 waste_container_info(waste_model_container(s->model))->path);
        memcpy(v[*n].id, s->place.id, sizeof v->id);
        v[*n].users = s->users;
        v[*n].precision = s->wish.options.precision;
        v[*n].kv = s->wish.options.kv;
        waste_model_stats_get(s->model, &v[(*n)++].stats);
    }
    leave();
    *out = v;
    return count && !v ? waste_fail(err, WASTE_NOMEM, "out of memory for %zu models", count)
                       : WASTE_OK;
}
