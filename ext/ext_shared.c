/* Open models of the process: see ext_shared.h.
 *
 * Owns the list of entries, under one mutex. Opening and closing take long, so
 * they happen outside it: the entry stays in the list meanwhile, marked, and
 * whoever wants it waits on the condition variable. A closing entry is waited
 * for as well, since two copies of one model may not fit in memory together.
 *
 * What always holds: an entry in state OPEN has users > 0; only the thread that
 * marked an entry OPENING or CLOSING removes it or changes its state. */
#include "ext_shared.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/plat.h"

typedef enum state { OPENING, OPEN, CLOSING } state;

struct waste_shared {
    waste_shared *next;
    waste_place place;
    state state;
    int users;
    waste_wish wish; /* as opened; constant from OPEN on, like model */
    waste_model *model;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static waste_shared *entries;

waste_status waste_shared_place(waste_place *out, const char *path, waste_error *err)
{
    char manifest[WASTE_PATH_MAX];
    struct stat s;
    waste_status st = waste_container_identity(path, out->id, err);

    memset(out->stamp, 0, sizeof out->stamp);
    if (!st) st = waste_path_join(manifest, sizeof manifest, path, "manifest.json", err);
    if (st) return st;
    if (stat(manifest, &s)) return WASTE_OK; /* opening it will say what is missing */
    out->stamp[0] = (uint64_t)s.st_ino;
    out->stamp[1] = (uint64_t)s.st_size;
    out->stamp[2] = (uint64_t)s.st_mtim.tv_sec * 1000000000u + (uint64_t)s.st_mtim.tv_nsec;
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
    pthread_cond_broadcast(&changed);
}

/* Wakes now and then to ask whether the caller still wants to wait. Holds the
 * lock on entry and return, but not while asking. */
static waste_status wait_for_change(const waste_cancel *cancel, const char *path, waste_error *err)
{
    struct timespec until;
    int stop;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20 * 1000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&changed, &lock, &until);
    if (!cancel || !cancel->asked) return WASTE_OK;
    pthread_mutex_unlock(&lock);
    stop = cancel->asked(cancel->ctx);
    pthread_mutex_lock(&lock);
    return stop ? waste_fail(err, WASTE_CANCELLED, "%s: stopped waiting for it to open", path)
                : WASTE_OK;
}

/* ---- options ---- */

static const char *precision_name(waste_precision p)
{
    return p == WASTE_PRECISION_EXACT ? "exact" : "fast";
}

waste_status waste_shared_agrees(const waste_shared *s, const char *path, const waste_wish *wish,
                                 waste_error *err)
{
    static const char tail[] = "close it everywhere first (waste_close)";
    const waste_model_options *is = &s->wish.options, *want = &wish->options;
    int64_t context = waste_model_context(s->model);

    if ((wish->given & WASTE_GIVEN_BUDGET) && want->budget != is->budget) {
        if (!is->budget)
            return waste_fail(err, WASTE_ARG,
                              "%s is open with a budget of the engine's choice, not %llu; %s", path,
                              (unsigned long long)want->budget, tail);
        return waste_fail(err, WASTE_ARG, "%s is open with budget %llu, not %llu; %s", path,
                          (unsigned long long)is->budget, (unsigned long long)want->budget, tail);
    }
    if ((wish->given & WASTE_GIVEN_CONTEXT) && want->context != context)
        return waste_fail(err, WASTE_ARG, "%s is open with context %lld, not %lld; %s", path,
                          (long long)context, (long long)want->context, tail);
    if ((wish->given & WASTE_GIVEN_PRECISION) && want->precision != is->precision)
        return waste_fail(err, WASTE_ARG, "%s is open with precision '%s', not '%s'; %s", path,
                          precision_name(is->precision), precision_name(want->precision), tail);
    if ((wish->given & WASTE_GIVEN_VERIFY) && !want->verify != !is->verify)
        return waste_fail(err, WASTE_ARG, "%s is open with verify %s, not %s; %s", path,
                          is->verify ? "on" : "off", want->verify ? "on" : "off", tail);
    return WASTE_OK;
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
    st = waste_shared_agrees(s, path, wish, err);
    if (!st) s->users++;
    return st;
}

/* s is OPENING, by us; the lock is not held. */
static waste_status open_entry(waste_shared *s, const char *path, waste_error *err)
{
    waste_status st = waste_model_open(&s->model, path, &s->wish.options, err);

    pthread_mutex_lock(&lock);
    if (st)
        unlink_entry(s);
    else
        s->state = OPEN;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
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
    fresh->wish = *wish;
    fresh->users = 1;
    pthread_mutex_lock(&lock);
    while ((s = find(place)) && s->state != OPEN && !st) st = wait_for_change(cancel, path, err);
    if (!st && s) st = join(s, path, place, wish, err);
    if (!st && !s) {
        fresh->next = entries;
        entries = fresh;
    }
    pthread_mutex_unlock(&lock);
    if (st || s) {
        waste_mem_free(fresh);
    } else {
        s = fresh;
        st = open_entry(s, path, err);
    }
    if (!st) *out = s;
    return st;
}

void waste_shared_release(waste_shared *s)
{
    int last;

    if (!s) return;
    pthread_mutex_lock(&lock);
    last = --s->users == 0;
    if (last) s->state = CLOSING;
    pthread_mutex_unlock(&lock);
    if (!last) return;

    waste_model_close(s->model);
    pthread_mutex_lock(&lock);
    unlink_entry(s);
    pthread_mutex_unlock(&lock);
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

    pthread_mutex_lock(&lock);
    users = s->users;
    pthread_mutex_unlock(&lock);
    return users;
}
