/* Sequences as rows: see ext_rows.h. */
#include "ext_rows.h"

#include <string.h>

#include "base/mem.h"
#include "ext_args.h"

SQLITE_EXTENSION_INIT3

static const char *part_name(waste_part_kind k)
{
    return k == WASTE_PART_STATE ? "state" : k == WASTE_PART_RING ? "ring" : "latents";
}

static void bind_part(sqlite3_stmt *q, int64_t span, const waste_seq_part *p)
{
    sqlite3_bind_int64(q, 1, span);
    sqlite3_bind_int(q, 2, p->layer);
    sqlite3_bind_text(q, 3, part_name(p->kind), -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 4, p->block);
}

/* ---- loading ------------------------------------------------------------------------ */

typedef struct loader {
    const waste_session *s;
    waste_model *m;
    int kda, mla;
    sqlite3_stmt *part, *any;
    uint64_t *hash; /* of the tokens up to the end of each known message */
    int64_t rejected;
    waste_error *err;
} loader;

static int is_empty(const waste_session_message *m)
{
    return m->from == m->to;
}

/* WASTE_DONE when a part is missing or fails its check. */
static waste_status put_part(loader *l, waste_seq *seq, int64_t span, const waste_seq_part *p,
                             uint64_t tokens)
{
    waste_error why = {0};
    waste_status st = WASTE_DONE;
    const void *data;
    int rc;

    bind_part(l->part, span, p);
    rc = sqlite3_step(l->part);
    if (rc == SQLITE_ROW) {
        data = sqlite3_column_blob(l->part, 0);
        st = WASTE_FORMAT;
        if (data && sqlite3_column_type(l->part, 0) == SQLITE_BLOB)
            st = waste_seq_put(seq, p, tokens, data, (size_t)sqlite3_column_bytes(l->part, 0),
                               (uint64_t)sqlite3_column_int64(l->part, 1), &why);
        if (st == WASTE_FORMAT) {
            l->rejected++;
            st = WASTE_DONE;
        } else if (st) {
            waste_fail(l->err, st, "%s", why.text);
        }
    } else if (rc == SQLITE_CORRUPT) {
        l->rejected++; /* pages of this row are damaged; the tokens may be fine */
    } else if (rc != SQLITE_DONE) {
        st = waste_session_failed(l->s->db, "reading waste_state", l->err);
    }
    sqlite3_reset(l->part);
    return st;
}

static waste_status put_parts(loader *l, waste_seq *seq, size_t i, int latents)
{
    const waste_session_message *m = &l->s->message[i];
    waste_seq_part *p;
    size_t n, k;
    waste_status st =
        waste_seq_parts(&p, &n, l->m, latents, (int64_t)m->from, (int64_t)m->to, l->err);

    for (k = 0; k < n && !st; k++) st = put_part(l, seq, m->span, &p[k], l->hash[i]);
    waste_seq_parts_free(p);
    return st;
}

/* Messages 0..j. WASTE_DONE when that cannot be, and *bad is the first message whose
 * own rows are to blame, or j. */
static waste_status load_to(loader *l, waste_seq **out, size_t j, size_t *bad)
{
    waste_seq *seq = NULL;
    size_t i;
    waste_status st = waste_seq_load(&seq, l->m, (int64_t)l->s->message[j].to, l->err);

    *bad = j;
    if (!st) st = put_parts(l, seq, j, 0);
    for (i = 0; i <= j && !st; i++) {
        if (is_empty(&l->s->message[i])) continue;
        st = put_parts(l, seq, i, 1);
        if (st) *bad = i;
    }
    if (!st) st = waste_seq_loaded(seq, l->err);
    if (st) {
        waste_seq_free(seq);
        seq = NULL;
    }
    *out = seq;
    return st;
}

/* 1, 0, or an error's status. */
static int has_snapshot(loader *l, size_t i)
{
    int rc;

    if (!l->kda) return 1;
    sqlite3_bind_int64(l->any, 1, l->s->message[i].span);
    rc = sqlite3_step(l->any);
    sqlite3_reset(l->any);
    if (rc == SQLITE_ROW || rc == SQLITE_CORRUPT) return 1;
    return rc == SQLITE_DONE ? 0
                             : (int)waste_session_failed(l->s->db, "reading waste_state", l->err);
}

static waste_status hash_ends(loader *l)
{
    const waste_session *s = l->s;
    uint64_t h = 0;
    size_t i;

    l->hash = waste_mem_array(s->n + 1, sizeof *l->hash);
    if (!l->hash) return waste_fail(l->err, WASTE_NOMEM, "out of memory for a session");
    for (i = 0; i < s->known; i++) {
        const waste_session_message *m = &s->message[i];
        h = waste_tokens_hash(h, s->ids.id + m->from, m->to - m->from);
        l->hash[i] = h;
    }
    return WASTE_OK;
}

/* From the end backwards: the first that works is the longest. */
static waste_status search(loader *l, waste_seq **out)
{
    const waste_session *s = l->s;
    const int64_t most = waste_model_context(l->m);
    size_t j = s->known, bad;
    waste_status st;
    int has;

    while (j > 0) {
        const waste_session_message *m = &s->message[--j];

        if (is_empty(m) || !m->span || (l->mla && (int64_t)m->to > most)) continue;
        has = has_snapshot(l, j);
        if (has < 0) return (waste_status)has;
        if (!has) continue;
        st = load_to(l, out, j, &bad);
        if (st != WASTE_DONE) return st;
        j = bad; /* no beginning that holds that message will do */
    }
    return WASTE_OK;
}

waste_status waste_rows_load(waste_seq **out, int64_t *rejected, const waste_session *s,
                             waste_model *m, waste_error *err)
{
    const waste_info *info = waste_container_info(waste_model_container(m));
    loader l = {
        .s = s, .m = m, .kda = info->kda_layers > 0, .mla = info->mla_layers > 0, .err = err};
    waste_status st;

    *out = NULL;
    *rejected = 0;
    if (!s->known) return WASTE_OK;
    st = waste_session_prepare(&l.part, s->db, s->schema,
                               "SELECT data, sum FROM $waste_state WHERE span = ?1 AND layer = ?2"
                               " AND part = ?3 AND block = ?4",
                               err);
    if (!st)
        st = waste_session_prepare(
            &l.any, s->db, s->schema,
            "SELECT 1 FROM $waste_state WHERE span = ?1 AND part = 'state' LIMIT 1", err);
    if (!st) st = hash_ends(&l);
    if (!st) st = search(&l, out);
    sqlite3_finalize(l.part);
    sqlite3_finalize(l.any);
    waste_mem_free(l.hash);
    *rejected = l.rejected;
    return st;
}

/* ---- saving ------------------------------------------------------------------------- */

typedef struct saver {
    waste_session *s;
    const waste_seq *seq;
    waste_model *m;
    int distrust; /* rows failed their check: what is there is written again */
    sqlite3_stmt *has, *put, *move;
    void *buf;
    size_t room;
    waste_error *err;
} saver;

static int64_t new_span(void)
{
    int64_t span;

    do {
        sqlite3_randomness((int)sizeof span, &span);
        span &= INT64_MAX;
    } while (!span);
    return span;
}

static waste_status step(saver *v, sqlite3_stmt *q)
{
    waste_status st = WASTE_OK;

    if (sqlite3_step(q) != SQLITE_DONE)
        st = waste_session_failed(v->s->db, "writing waste_state", v->err);
    sqlite3_reset(q);
    return st;
}

/* Whether the row is there with this size and check. */
static int is_stored(saver *v, int64_t span, const waste_seq_part *p, uint64_t check)
{
    int same;

    bind_part(v->has, span, p);
    same = sqlite3_step(v->has) == SQLITE_ROW &&
           sqlite3_column_int64(v->has, 0) == (sqlite3_int64)check &&
           sqlite3_column_int64(v->has, 1) == (sqlite3_int64)p->bytes;
    sqlite3_reset(v->has);
    return same;
}

static waste_status write_part(saver *v, int64_t span, const waste_seq_part *p, uint64_t tokens)
{
    uint64_t check;
    waste_status st;

    if (p->bytes > v->room) {
        waste_mem_free(v->buf);
        v->buf = waste_mem_alloc(p->bytes);
        v->room = v->buf ? p->bytes : 0;
        if (!v->buf) return waste_fail(v->err, WASTE_NOMEM, "out of memory for a part of a state");
    }
    st = waste_seq_save(v->seq, p, tokens, v->buf, &check, v->err);
    if (st || (!v->distrust && is_stored(v, span, p, check))) return st;
    bind_part(v->put, span, p);
    sqlite3_bind_blob64(v->put, 5, v->buf, p->bytes, SQLITE_STATIC);
    sqlite3_bind_int64(v->put, 6, (sqlite3_int64)check);
    st = step(v, v->put);
    sqlite3_clear_bindings(v->put);
    return st;
}

static waste_status write_parts(saver *v, const waste_session_message *m, int latents,
                                uint64_t tokens)
{
    waste_seq_part *p;
    size_t n, k;
    waste_status st =
        waste_seq_parts(&p, &n, v->m, latents, (int64_t)m->from, (int64_t)m->to, v->err);

    for (k = 0; k < n && !st; k++) st = write_part(v, m->span, &p[k], tokens);
    waste_seq_parts_free(p);
    return st;
}

static waste_status give_span(saver *v, waste_session_message *m)
{
    m->span = new_span();
    sqlite3_bind_int64(v->move, 1, m->span);
    sqlite3_bind_int64(v->move, 2, v->s->id);
    sqlite3_bind_int64(v->move, 3, m->seq);
    return step(v, v->move);
}

static waste_status write_all(saver *v, const int32_t *ids, int64_t stored)
{
    waste_session *s = v->s;
    waste_session_message *last = NULL;
    waste_status st = WASTE_OK;
    uint64_t h = 0;
    size_t i;

    for (i = 0; i < s->n && !st; i++) {
        waste_session_message *m = &s->message[i];
        int fresh = !m->span;

        if (is_empty(m)) continue;
        last = m;
        h = waste_tokens_hash(h, ids + m->from, m->to - m->from);
        if (fresh) st = give_span(v, m);
        if (!st && (fresh || (int64_t)m->to > stored)) st = write_parts(v, m, 1, h);
    }
    if (!st && last) st = write_parts(v, last, 0, h);
    return st;
}

waste_status waste_rows_save(waste_session *s, waste_model *m, const waste_seq *seq,
                             const int32_t *ids, int64_t stored, int distrust, waste_error *err)
{
    saver v = {.s = s, .seq = seq, .m = m, .distrust = distrust, .err = err};
    waste_status st;

    st = waste_session_prepare(&v.has, s->db, s->schema,
                               "SELECT sum, length(data) FROM $waste_state WHERE span = ?1 AND"
                               " layer = ?2 AND part = ?3 AND block = ?4",
                               err);
    if (!st)
        st = waste_session_prepare(&v.put, s->db, s->schema,
                                   "INSERT OR REPLACE INTO $waste_state"
                                   "(span, layer, part, block, data, sum)"
                                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
                                   err);
    if (!st)
        st = waste_session_prepare(&v.move, s->db, s->schema,
                                   "UPDATE $waste_messages SET span = ?1 WHERE session = ?2 AND"
                                   " seq = ?3",
                                   err);
    if (!st) st = write_all(&v, ids, stored);
    sqlite3_finalize(v.has);
    sqlite3_finalize(v.put);
    sqlite3_finalize(v.move);
    waste_mem_free(v.buf);
    return st;
}

/* A turn ends with a message of the model's. Another session needs the end of a message
 * when fewer than its `keep` turns come after that. */
waste_status waste_rows_prune(const waste_session *s, waste_error *err)
{
    sqlite3_stmt *q;
    waste_status st = waste_session_prepare(
        &q, s->db, s->schema,
        "DELETE FROM $waste_state WHERE part <> 'latents' AND span IN"
        " (SELECT span FROM $waste_messages WHERE session = ?1 AND seq <"
        "   (SELECT seq FROM $waste_messages WHERE session = ?1 AND role = 'assistant'"
        "     ORDER BY seq DESC LIMIT 1 OFFSET ?2 - 1))"
        " AND NOT EXISTS"
        " (SELECT 1 FROM $waste_messages m JOIN $waste_sessions o ON o.id = m.session"
        "   WHERE m.span = waste_state.span AND m.session <> ?1 AND o.keep >"
        "     (SELECT count(*) FROM $waste_messages l WHERE l.session = m.session"
        "       AND l.seq > m.seq AND l.role = 'assistant'))",
        err);

    if (st) return st;
    sqlite3_bind_int64(q, 1, s->id);
    sqlite3_bind_int64(q, 2, s->keep);
    return waste_session_run(q, "pruning waste_state", err);
}
