/* Models by name or path, per connection: see ext_models.h.
 *
 * Owns the connection object and its list of held things. A held thing is a
 * container of its own or a share in an open model; leases on it are counted,
 * and dropping it from the list frees it when the last lease ends. All of it is
 * touched only by the thread that runs the connection.
 *
 * No statement on the database lives beyond the call that prepared it: the host
 * could not close the connection otherwise, and no read transaction stays open
 * while a model computes. */
#include "ext_models.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "ext_args.h"
#include "ext_direct.h"
#include "ext_interrupt.h"
#include "ext_usage.h"

SQLITE_EXTENSION_INIT3

#define MAX_CONTAINERS 8   /* kept without their weights */
#define MAX_NAMES      500 /* looked at for the nearest one */
#define NAMES_LISTED   5
#define NAME_HINT      240

struct waste_held {
    waste_held *next;
    waste_place place;
    char *path;
    char *row_options;    /* of waste_models, as they were when it was opened */
    waste_shared *shared; /* NULL: only the container */
    waste_usage_choice usage;
    waste_container *opened; /* NULL: the model's own is used */
    int leases;
    int listed; /* still in the connection's list */
};

struct waste_conn {
    sqlite3 *db;
    int refs;
    int depth;        /* of SQL of ours that runs SQL of others (ext_direct.h) */
    waste_held *held; /* latest first */
};

static _Atomic int conns;

/* ---- held things ---- */

static void held_free(waste_held *h)
{
    waste_shared_release(h->shared);
    waste_container_close(h->opened);
    waste_mem_free(h->row_options);
    waste_mem_free(h->path);
    waste_mem_free(h);
}

static void held_drop(waste_conn *c, waste_held *h)
{
    waste_held **at = &c->held;

    while (*at != h) at = &(*at)->next;
    *at = h->next;
    h->listed = 0;
    if (!h->leases) held_free(h);
}

static waste_held *held_new(waste_conn *c, const char *path, const waste_place *place)
{
    waste_held *h = waste_mem_zero(sizeof *h);

    if (!h) return NULL;
    h->place = *place;
    h->path = waste_mem_text(path, strlen(path));
    h->listed = 1;
    h->next = c->held;
    c->held = h;
    if (h->path) return h;
    held_drop(c, h);
    return NULL;
}

static int same_id(const waste_held *h, const waste_place *p)
{
    return memcmp(h->place.id, p->id, sizeof p->id) == 0;
}

/* What is held of this place, and with weights if `weights`. Whatever was there
 * before, at the same path or with another manifest, is let go. */
static waste_held *held_find(waste_conn *c, const char *path, const waste_place *place, int weights)
{
    waste_held *h = c->held, *next, *found = NULL;

    for (; h; h = next) {
        next = h->next;
        if (!same_id(h, place)) {
            if (strcmp(h->path, path) == 0) held_drop(c, h);
        } else if (memcmp(h->place.stamp, place->stamp, sizeof place->stamp) != 0) {
            held_drop(c, h);
        } else if (h->shared || (!weights && !found)) {
            found = h;
        }
    }
    return found;
}

static void forget_containers(waste_conn *c, const waste_place *place)
{
    waste_held *h = c->held, *next;
    int n = 0;

    for (; h; h = next) {
        next = h->next;
        if (!h->shared && ((place && same_id(h, place)) || ++n > MAX_CONTAINERS)) held_drop(c, h);
    }
}

static void lease(waste_lease *out, waste_held *h, int weights)
{
    waste_model *m = h->shared ? waste_shared_model(h->shared) : NULL;

    h->leases++;
    out->held = h;
    out->container = m ? waste_model_container(m) : h->opened;
    out->model = weights ? m : NULL;
}

void waste_models_end(waste_lease *l)
{
    waste_held *h = l->held;

    memset(l, 0, sizeof *l);
    if (h && --h->leases == 0 && !h->listed) held_free(h);
}

/* ---- connection ---- */

waste_conn *waste_models_conn_new(sqlite3 *db)
{
    waste_conn *c = waste_mem_zero(sizeof *c);

    if (!c) return NULL;
    c->db = db;
    c->refs = 1;
    atomic_fetch_add(&conns, 1);
    return c;
}

void waste_models_conn_hold(waste_conn *c)
{
    c->refs++;
}

void waste_models_conn_release(void *conn)
{
    waste_conn *c = conn;

    if (!c || --c->refs) return;
    while (c->held) held_drop(c, c->held);
    waste_mem_free(c);
    if (atomic_fetch_sub(&conns, 1) == 1) waste_settle(); /* the library may be unloaded next */
}

sqlite3 *waste_models_db(const waste_conn *c)
{
    return c->db;
}

int *waste_models_depth(waste_conn *c)
{
    return &c->depth;
}

int waste_models_conns(void)
{
    return atomic_load(&conns);
}

/* ---- waste_models ---- */

/* What "demo.waste" is most likely to mean: the directory of that name here. */
static const char *path_hint(char out[NAME_HINT], const char *label)
{
    out[0] = 0;
    if (waste_path_is_dir(label))
        snprintf(out, NAME_HINT, "; a path holds a '/': './%.200s'", label);
    return out;
}

static waste_status sql_failed(waste_conn *c, const char *label, waste_error *err)
{
    int rc = sqlite3_errcode(c->db) & 0xff;
    const char *text = sqlite3_errmsg(c->db);
    char hint[NAME_HINT];

    if (rc == SQLITE_NOMEM) return waste_fail(err, WASTE_NOMEM, "out of memory");
    if (rc == SQLITE_INTERRUPT) return waste_fail(err, WASTE_CANCELLED, "interrupted");
    if (strstr(text, "no such table: waste_models"))
        return waste_fail(err, WASTE_ARG,
                          "no model '%.120s': this database has no waste_models table; call "
                          "waste_register('%.120s', path)%s",
                          label, label, path_hint(hint, label));
    return waste_fail(err, rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? WASTE_BUSY : WASTE_ARG,
                      "looking for model '%s' in waste_models: %s", label, text);
}

/* Names the nearest model there is and a few of the others. */
static waste_status no_such_model(waste_conn *c, const char *label, waste_error *err)
{
    sqlite3_stmt *q = NULL;
    waste_buf known = {0};
    char nearest[64] = "", hint[NAME_HINT];
    unsigned far = waste_args_slack(label) + 1, d;
    int n = 0;
    waste_status st;

    if (sqlite3_prepare_v2(c->db, "SELECT name FROM waste_models ORDER BY name LIMIT ?1", -1, &q,
                           NULL) == SQLITE_OK)
        sqlite3_bind_int(q, 1, MAX_NAMES);
    while (q && sqlite3_step(q) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(q, 0);
        if (!name) continue;
        if (n++ < NAMES_LISTED) waste_buf_printf(&known, "%s'%.40s'", known.len ? ", " : "", name);
        d = waste_args_distance(label, name);
        if (d < far) {
            far = d;
            snprintf(nearest, sizeof nearest, "%s", name);
        }
    }
    sqlite3_finalize(q);
    if (n > NAMES_LISTED) waste_buf_text(&known, ", ...");
    if (!n)
        st = waste_fail(err, WASTE_ARG,
                        "no model '%.120s': waste_models is empty; call "
                        "waste_register('%.120s', path)%s",
                        label, label, path_hint(hint, label));
    else if (nearest[0])
        st = waste_fail(err, WASTE_ARG,
                        "no model '%.120s' in waste_models (did you mean '%s'? known: %s)%s", label,
                        nearest, known.failed ? "" : known.data, path_hint(hint, label));
    else
        st = waste_fail(err, WASTE_ARG, "no model '%.120s' in waste_models (known: %s)%s", label,
                        known.failed ? "" : known.data, path_hint(hint, label));
    waste_buf_clear(&known);
    return st;
}

/* A column as text of its own; NULL stays NULL. */
static waste_status take_column(char **out, sqlite3_stmt *q, int i, const char *label,
                                waste_error *err)
{
    const char *text = (const char *)sqlite3_column_text(q, i);
    size_t n = (size_t)sqlite3_column_bytes(q, i);

    *out = NULL;
    if (sqlite3_column_type(q, i) == SQLITE_NULL) return WASTE_OK;
    if (sqlite3_column_type(q, i) == SQLITE_BLOB || (text && memchr(text, 0, n)))
        return waste_fail(err, WASTE_ARG, "waste_models row '%s': %s is not plain text", label,
                          i ? "options" : "path");
    *out = text ? waste_mem_text(text, n) : NULL;
    return *out ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory");
}

static waste_status read_row(waste_model_ref *out, waste_conn *c, waste_error *err)
{
    sqlite3_stmt *q = NULL;
    waste_status st = waste_direct_enter(&c->depth, err);
    int rc;

    if (st) return st;
    rc = sqlite3_prepare_v2(c->db, "SELECT path, options FROM waste_models WHERE name = ?1", -1, &q,
                            NULL);
    if (rc == SQLITE_OK) rc = sqlite3_bind_text(q, 1, out->label, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        st = take_column(&out->path, q, 0, out->label, err);
        if (!st) st = take_column(&out->options, q, 1, out->label, err);
        if (!st && (!out->path || !out->path[0]))
            st = waste_fail(err, WASTE_ARG, "waste_models row '%s' has no path", out->label);
    } else if (rc != SQLITE_DONE) {
        st = sql_failed(c, out->label, err);
    }
    sqlite3_finalize(q);
    if (rc == SQLITE_DONE) st = no_such_model(c, out->label, err);
    waste_direct_leave(&c->depth);
    return st;
}

waste_status waste_models_find(waste_model_ref *out, waste_conn *c, sqlite3_value *model,
                               waste_error *err)
{
    const char *text;
    waste_status st;

    memset(out, 0, sizeof *out);
    st = waste_direct_check(c->db, err);
    if (!st) st = waste_args_name(model, "the model argument", &text, err);
    if (st) return st;
    out->label = waste_mem_text(text, strlen(text));
    if (!out->label) return waste_fail(err, WASTE_NOMEM, "out of memory");
    if (strpbrk(text, WASTE_PATH_SEPARATORS)) {
        out->path = waste_mem_text(text, strlen(text));
        st = out->path ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory");
    } else {
        out->by_name = 1;
        st = read_row(out, c, err);
    }
    if (st) waste_models_ref_clear(out);
    return st;
}

void waste_models_ref_clear(waste_model_ref *r)
{
    waste_mem_free(r->label);
    waste_mem_free(r->path);
    waste_mem_free(r->options);
    memset(r, 0, sizeof *r);
}

/* ---- options ---- */

/* The row's options, and `extra` over them. */
static waste_status wish_of(waste_wish *wish, const waste_model_ref *ref, const waste_json *extra,
                            waste_error *err)
{
    char who[160];
    waste_json *doc = NULL;
    waste_status st = WASTE_OK;

    memset(wish, 0, sizeof *wish);
    snprintf(who, sizeof who, "options of model '%.120s'", ref->label);
    if (ref->options)
        st = waste_args_object_text(&doc, ref->options, strlen(ref->options), who, err);
    if (!st) st = waste_wish_read(wish, doc, who, err);
    if (!st) st = waste_wish_read(wish, extra, "options", err);
    waste_json_free(doc);
    return st;
}

/* ---- leases ---- */

static waste_status container_at(waste_lease *out, waste_conn *c, const char *path,
                                 waste_error *err)
{
    waste_place place;
    waste_held *h;
    waste_interrupt stop;
    waste_cancel cancel;
    waste_status st = waste_shared_place(&place, path, err);

    if (st) return st;
    h = held_find(c, path, &place, 0);
    if (!h) {
        h = held_new(c, path, &place);
        if (!h) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
        waste_interrupt_begin(&stop, c->db);
        cancel = waste_interrupt_cancel(&stop);
        st = waste_container_open(&h->opened, path, &cancel, err);
        waste_interrupt_end(&stop);
        if (st) {
            held_drop(c, h);
            return st;
        }
        forget_containers(c, NULL);
    }
    lease(out, h, 0);
    return WASTE_OK;
}

waste_status waste_models_container(waste_lease *out, waste_conn *c, sqlite3_value *model,
                                    waste_error *err)
{
    waste_model_ref ref;
    waste_status st = waste_models_find(&ref, c, model, err);

    memset(out, 0, sizeof *out);
    if (st) return st;
    st = container_at(out, c, ref.path, err);
    waste_models_ref_clear(&ref);
    return st;
}

static int same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static waste_status set_row_options(waste_held *h, const char *options, waste_error *err)
{
    char *copy = options ? waste_mem_text(options, strlen(options)) : NULL;

    if (options && !copy) return waste_fail(err, WASTE_NOMEM, "out of memory");
    waste_mem_free(h->row_options);
    h->row_options = copy;
    return WASTE_OK;
}

/* Already open here. The row's options were taken into account then, and what
 * waste_open put over them stays; only what is new since is compared. */
static waste_status use_open(waste_held *h, const waste_model_ref *ref, const waste_json *extra,
                             waste_error *err)
{
    waste_wish wish;
    waste_status st;
    int changed = !same_text(h->row_options, ref->options);

    st = waste_shared_here(h->shared, ref->path, err);
    if (st || (!changed && !extra)) return st;
    memset(&wish, 0, sizeof wish);
    if (changed)
        st = wish_of(&wish, ref, extra, err);
    else
        st = waste_wish_read(&wish, extra, "options", err);
    if (!st) st = waste_shared_agrees(h->shared, ref->path, &wish, err);
    if (!st && changed) st = set_row_options(h, ref->options, err);
    if (!st && (wish.given & WASTE_GIVEN_USAGE)) h->usage = wish.usage;
    return st;
}

static waste_status open_now(waste_held **out, waste_conn *c, const waste_model_ref *ref,
                             const waste_place *place, const waste_json *extra,
                             const waste_cancel *cancel, waste_error *err)
{
    waste_wish wish;
    waste_held *h;
    waste_status st = wish_of(&wish, ref, extra, err);

    if (st) return st;
    forget_containers(c, place); /* the model brings its own */
    h = held_new(c, ref->path, place);
    if (!h) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", ref->path);
    st = set_row_options(h, ref->options, err);
    h->usage = wish.usage;
    if (!st) st = waste_shared_hold(&h->shared, ref->path, place, &wish, cancel, err);
    if (st) {
        held_drop(c, h);
        return st;
    }
    /* who joins others finds the model warm from them */
    if (h->usage.kind == WASTE_USAGE_TABLE && waste_shared_users(h->shared) == 1)
        waste_usage_restore(c->db, ref->label, waste_shared_model(h->shared));
    *out = h;
    return WASTE_OK;
}

waste_status waste_models_open(waste_lease *out, waste_conn *c, const waste_model_ref *ref,
                               const waste_json *extra, const waste_cancel *cancel,
                               waste_error *err)
{
    waste_place place;
    waste_held *h;
    waste_status st = waste_shared_place(&place, ref->path, err);

    memset(out, 0, sizeof *out);
    if (st) return st;
    h = held_find(c, ref->path, &place, 1);
    st = h ? use_open(h, ref, extra, err) : open_now(&h, c, ref, &place, extra, cancel, err);
    if (!st) lease(out, h, 1);
    return st;
}

waste_status waste_models_weights(waste_lease *out, waste_conn *c, sqlite3_value *model,
                                  const waste_cancel *cancel, waste_error *err)
{
    waste_model_ref ref;
    waste_status st = waste_models_find(&ref, c, model, err);

    memset(out, 0, sizeof *out);
    if (st) return st;
    st = waste_models_open(out, c, &ref, NULL, cancel, err);
    waste_models_ref_clear(&ref);
    return st;
}

waste_status waste_models_opened(waste_lease *out, waste_conn *c, const waste_model_ref *ref,
                                 waste_error *err)
{
    waste_place place;
    waste_wish wish;
    waste_error ignored = {0};
    waste_status st = WASTE_OK;
    waste_held *h;

    memset(out, 0, sizeof *out);
    if (waste_shared_place(&place, ref->path, &ignored)) return WASTE_DONE;
    h = held_find(c, ref->path, &place, 1);
    if (!h || waste_shared_here(h->shared, ref->path, &ignored)) return WASTE_DONE;
    /* the row may have got another place for the usage meanwhile */
    if (!same_text(h->row_options, ref->options)) {
        st = wish_of(&wish, ref, NULL, err);
        if (!st && (wish.given & WASTE_GIVEN_USAGE)) h->usage = wish.usage;
    }
    if (!st) lease(out, h, 1);
    return st;
}

int waste_models_close(waste_conn *c, const waste_model_ref *ref)
{
    waste_place place;
    waste_error gone = {0}; /* closing what has vanished from the disk is fine */
    waste_held *h = c->held, *next;
    int known = !waste_shared_place(&place, ref->path, &gone), closed = 0;

    for (; h; h = next) {
        next = h->next;
        if (strcmp(h->path, ref->path) != 0 && !(known && same_id(h, &place))) continue;
        if (h->shared) closed = 1;
        held_drop(c, h);
    }
    return closed;
}

/* All but where the usage is kept: that can change while the model is open. */
static int same_model(const waste_wish *a, const waste_wish *b)
{
    const waste_model_options *x = &a->options, *y = &b->options;

    return ((a->given ^ b->given) & ~(unsigned)WASTE_GIVEN_USAGE) == 0 && x->budget == y->budget &&
           x->context == y->context && x->sequences == y->sequences &&
           x->precision == y->precision && x->kv == y->kv && !x->verify == !y->verify &&
           !x->buffered == !y->buffered && x->io_threads == y->io_threads &&
           x->lookahead == y->lookahead && !x->exclusive == !y->exclusive &&
           x->threads == y->threads && strcmp(a->cpus, b->cpus) == 0;
}

int waste_models_stale(waste_conn *c, const waste_model_ref *ref)
{
    waste_error ignored = {0};
    waste_place place;
    waste_wish was, is;
    const waste_held *h;
    waste_model_ref old = *ref;

    if (waste_shared_place(&place, ref->path, &ignored)) return 0;
    h = held_find(c, ref->path, &place, 1);
    if (!h || waste_shared_here(h->shared, ref->path, &ignored)) return 0;
    old.options = h->row_options;
    return !wish_of(&was, &old, NULL, &ignored) && !wish_of(&is, ref, NULL, &ignored) &&
           !same_model(&was, &is) && waste_shared_users(h->shared) == 1;
}

int waste_models_users(const waste_lease *l)
{
    return l->held->shared ? waste_shared_users(l->held->shared) : 0;
}

const waste_model_options *waste_models_options(const waste_lease *l)
{
    return l->held->shared ? waste_shared_options(l->held->shared) : NULL;
}

const waste_usage_choice *waste_models_usage(const waste_lease *l)
{
    return &l->held->usage;
}

void waste_models_names(waste_buf *out, waste_conn *c, const uint64_t id[2])
{
    sqlite3_stmt *q = NULL;
    uint64_t its[2];
    int n = 0;

    if (sqlite3_prepare_v2(c->db, "SELECT name, path FROM waste_models ORDER BY name", -1, &q,
                           NULL) != SQLITE_OK)
        return; /* no such table: no names */
    while (n++ < MAX_NAMES && sqlite3_step(q) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(q, 0);
        const char *path = (const char *)sqlite3_column_text(q, 1);
        waste_error ignored = {0};

        if (!name || !path || waste_container_identity(path, its, &ignored) ||
            memcmp(its, id, sizeof its) != 0)
            continue;
        if (out->len) waste_buf_text(out, ", ");
        waste_buf_text(out, name);
    }
    sqlite3_finalize(q);
}
