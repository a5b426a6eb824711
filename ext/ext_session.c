/* Sessions and their messages: see ext_session.h. What goes between the rows and the
 * model is ext_turn.c's. */
#include "ext_session.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_direct.h"

SQLITE_EXTENSION_INIT3

#define BUSY_TRIES 100 /* times 50 ms: a reply that took minutes waits for a writer */

/* ---- statements -------------------------------------------------------------------- */

waste_status waste_session_failed(sqlite3 *db, const char *doing, waste_error *err)
{
    const int rc = sqlite3_errcode(db) & 0xff;
    const char *text = sqlite3_errmsg(db);
    waste_status st = rc == SQLITE_NOMEM       ? WASTE_NOMEM
                      : rc == SQLITE_INTERRUPT ? WASTE_CANCELLED
                      : rc == SQLITE_BUSY      ? WASTE_BUSY
                                               : WASTE_IO;

    if (st == WASTE_IO && strstr(text, "no such table"))
        return waste_fail(err, WASTE_ARG,
                          "%s: %s; waste_setup() makes the tables, waste_session() a session",
                          doing, text);
    return waste_fail(err, st, "%s: %s", doing, text);
}

waste_status waste_session_prepare(sqlite3_stmt **q, sqlite3 *db, const char *schema,
                                   const char *sql, waste_error *err)
{
    waste_buf b = {0};
    char *prefix = sqlite3_mprintf("\"%w\".", schema);
    waste_status st = WASTE_OK;
    const char *p;

    *q = NULL;
    for (p = sql; prefix && *p; p++) {
        if (*p == '$')
            waste_buf_text(&b, prefix);
        else
            waste_buf_byte(&b, *p);
    }
    if (!prefix || b.failed)
        st = waste_fail(err, WASTE_NOMEM, "out of memory");
    else if (sqlite3_prepare_v2(db, b.data, -1, q, NULL) != SQLITE_OK)
        st = waste_session_failed(db, "reading the session tables", err);
    waste_buf_clear(&b);
    sqlite3_free(prefix);
    return st;
}

waste_status waste_session_run(sqlite3_stmt *q, const char *doing, waste_error *err)
{
    sqlite3 *db = sqlite3_db_handle(q);
    waste_status st = WASTE_OK;

    if (sqlite3_step(q) != SQLITE_DONE) st = waste_session_failed(db, doing, err);
    sqlite3_finalize(q);
    return st;
}

/* ---- transactions ------------------------------------------------------------------ */

static void pause_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};

    nanosleep(&t, NULL);
}

/* The caller's own busy handler has had its turn each time. */
static int begin_own(waste_session_scope *scope, sqlite3 *db, const waste_cancel *cancel)
{
    int rc, tries = 0;

    for (;;) {
        if (scope->write) {
            sqlite3_step(scope->guard);
            rc = sqlite3_reset(scope->guard);
        } else {
            rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
        }
        if (rc != SQLITE_BUSY || ++tries > BUSY_TRIES) return rc;
        if (waste_session_outdated(db)) return rc; /* waiting would not help */
        if (cancel && cancel->asked && cancel->asked(cancel->ctx)) return SQLITE_INTERRUPT;
        pause_ms(50);
    }
}

waste_status waste_session_begin(waste_session_scope *scope, sqlite3 *db, int write,
                                 const waste_cancel *cancel, const char *doing, waste_error *err)
{
    const int own = sqlite3_get_autocommit(db);
    int rc;

    memset(scope, 0, sizeof *scope);
    scope->write = write;
    if (sqlite3_prepare_v2(db, "BEGIN IMMEDIATE", -1, &scope->guard, NULL) != SQLITE_OK)
        return waste_session_failed(db, doing, err);
    /* A savepoint tells whether the caller's own statement is writing. */
    if (sqlite3_exec(db, "SAVEPOINT waste_turn", NULL, NULL, NULL) != SQLITE_OK) {
        if (sqlite3_errcode(db) == SQLITE_BUSY) return WASTE_OK;
        return waste_session_failed(db, doing, err);
    }
    scope->kind = WASTE_SCOPE_SAVEPOINT;
    if (!own) return WASTE_OK;
    rc = sqlite3_exec(db, "RELEASE waste_turn", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return waste_session_failed(db, doing, err);
    scope->kind = WASTE_SCOPE_NONE;
    rc = begin_own(scope, db, cancel);
    if (rc == SQLITE_INTERRUPT) return waste_fail(err, WASTE_CANCELLED, "interrupted");
    if (rc != SQLITE_OK) return waste_session_failed(db, doing, err);
    scope->kind = WASTE_SCOPE_OWN;
    return WASTE_OK;
}

int waste_session_outdated(sqlite3 *db)
{
    return sqlite3_get_autocommit(db) && sqlite3_extended_errcode(db) == SQLITE_BUSY_SNAPSHOT;
}

waste_status waste_session_aside(sqlite3 **out, sqlite3 *db, const char *schema, waste_error *err)
{
    const char *file = sqlite3_db_filename(db, schema);
    char *vfs = NULL;
    int rc = SQLITE_CANTOPEN;

    *out = NULL;
    sqlite3_file_control(db, schema, SQLITE_FCNTL_VFSNAME, &vfs);
    if (file && *file) rc = sqlite3_open_v2(file, out, SQLITE_OPEN_READWRITE, vfs);
    sqlite3_free(vfs);
    if (rc == SQLITE_OK) {
        sqlite3_busy_timeout(*out, BUSY_TRIES);
        return WASTE_OK;
    }
    sqlite3_close(*out);
    *out = NULL;
    return waste_fail(err, WASTE_BUSY,
                      "somebody has written to database '%s' since the calling statement began to "
                      "read it; nothing was written",
                      schema);
}

/* After sqlite3_interrupt no statement runs as long as the calling one does, ROLLBACK
 * neither. But a statement that would write, and is interrupted, takes the transaction
 * with it: the guard never gets to do anything else. That is what SQLite documents for
 * an interrupt in a transaction, and a savepoint left behind by reading does no harm. */
static void undo(const waste_session_scope *scope, sqlite3 *db)
{
    int rc = SQLITE_OK;

    if (scope->kind == WASTE_SCOPE_NONE || sqlite3_get_autocommit(db)) return;
    if (scope->kind == WASTE_SCOPE_OWN)
        rc = sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    else
        rc = sqlite3_exec(db, "ROLLBACK TO waste_turn; RELEASE waste_turn", NULL, NULL, NULL);
    if (rc == SQLITE_INTERRUPT && (scope->write || scope->kind == WASTE_SCOPE_OWN))
        sqlite3_step(scope->guard);
}

waste_status waste_session_end(waste_session_scope *scope, sqlite3 *db, waste_status st,
                               const char *doing, waste_error *err)
{
    int rc = SQLITE_OK;

    if (st >= 0 && scope->kind == WASTE_SCOPE_OWN)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (st >= 0 && scope->kind == WASTE_SCOPE_SAVEPOINT)
        rc = sqlite3_exec(db, "RELEASE waste_turn", NULL, NULL, NULL);
    if (rc != SQLITE_OK) st = waste_session_failed(db, doing, err);
    if (st < 0) undo(scope, db);
    sqlite3_finalize(scope->guard);
    memset(scope, 0, sizeof *scope);
    return st;
}

/* ---- finding ----------------------------------------------------------------------- */

/* Where the tables are: main's come first, then those of the first database that has
 * them. */
waste_status waste_session_schema(char **out, sqlite3 *db, waste_error *err)
{
    sqlite3_stmt *q = NULL;
    const char *name = NULL;

    *out = NULL;
    if (sqlite3_table_column_metadata(db, "main", "waste_sessions", NULL, NULL, NULL, NULL, NULL,
                                      NULL) != SQLITE_OK &&
        sqlite3_prepare_v2(db, "PRAGMA database_list", -1, &q, NULL) == SQLITE_OK) {
        while (sqlite3_step(q) == SQLITE_ROW) {
            name = (const char *)sqlite3_column_text(q, 1);
            if (name && sqlite3_table_column_metadata(db, name, "waste_sessions", NULL, NULL, NULL,
                                                      NULL, NULL, NULL) == SQLITE_OK)
                break;
            name = NULL;
        }
    }
    if (!name) name = "main";
    *out = waste_mem_text(name, strlen(name));
    sqlite3_finalize(q);
    return *out ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory");
}

static waste_status column_text(char **out, sqlite3_stmt *q, int i, waste_error *err)
{
    const char *text = (const char *)sqlite3_column_text(q, i);

    *out = NULL;
    if (sqlite3_column_type(q, i) == SQLITE_NULL) return WASTE_OK;
    *out = text ? waste_mem_text(text, (size_t)sqlite3_column_bytes(q, i)) : NULL;
    return *out ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory");
}

static waste_status take_row(waste_session *s, sqlite3_stmt *q, waste_error *err)
{
    waste_status st;

    s->id = sqlite3_column_int64(q, 0);
    s->keep = sqlite3_column_int64(q, 4);
    s->rev = sqlite3_column_int64(q, 5);
    s->model = sqlite3_value_dup(sqlite3_column_value(q, 2));
    if (!s->model) return waste_fail(err, WASTE_NOMEM, "out of memory");
    st = column_text(&s->name, q, 1, err);
    if (!st) st = column_text(&s->options, q, 3, err);
    if (!st) st = column_text(&s->model_id, q, 6, err);
    return st;
}

static waste_status no_session(const waste_session *s, sqlite3_value *which, const char *who,
                               waste_error *err)
{
    const char *text = (const char *)sqlite3_value_text(which);
    const char *quote = sqlite3_value_numeric_type(which) == SQLITE_TEXT ? "'" : "";

    return waste_fail(err, WASTE_ARG, "%s: no session %s%.200s%s in %s.waste_sessions", who, quote,
                      text ? text : "", quote, s->schema);
}

waste_status waste_session_find(waste_session *s, sqlite3 *db, sqlite3_value *which,
                                const char *who, waste_error *err)
{
    const int type = sqlite3_value_numeric_type(which); /* '12' is number 12 */
    sqlite3_stmt *q = NULL;
    waste_status st;
    int rc;

    memset(s, 0, sizeof *s);
    s->db = db;
    s->last_seq = -1;
    if (type != SQLITE_TEXT && type != SQLITE_INTEGER)
        return waste_fail(err, WASTE_ARG, "%s: a session is a number or a name", who);
    st = waste_direct_check(db, err);
    if (!st) st = waste_session_schema(&s->schema, db, err);
    if (!st)
        st = waste_session_prepare(
            &q, db, s->schema,
            type == SQLITE_TEXT ? "SELECT id, name, model, options, keep, state_rev, model_id"
                                  " FROM $waste_sessions WHERE name = ?1"
                                : "SELECT id, name, model, options, keep, state_rev, model_id"
                                  " FROM $waste_sessions WHERE id = ?1",
            err);
    if (st) return st;
    sqlite3_bind_value(q, 1, which);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        st = take_row(s, q, err);
    else if (rc == SQLITE_DONE)
        st = no_session(s, which, who, err);
    else
        st = waste_session_failed(db, "reading waste_sessions", err);
    sqlite3_finalize(q);
    return st;
}

waste_status waste_session_reread(waste_session *s, waste_error *err)
{
    sqlite3_stmt *q;
    int rc;
    waste_status st = waste_session_prepare(
        &q, s->db, s->schema, "SELECT keep, state_rev, model_id FROM $waste_sessions WHERE id = ?1",
        err);

    if (st) return st;
    sqlite3_bind_int64(q, 1, s->id);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        s->keep = sqlite3_column_int64(q, 0);
        s->rev = sqlite3_column_int64(q, 1);
        waste_mem_free(s->model_id);
        st = column_text(&s->model_id, q, 2, err);
    } else if (rc == SQLITE_DONE) {
        st = waste_fail(err, WASTE_ARG, "session %lld was deleted meanwhile", (long long)s->id);
    } else {
        st = waste_session_failed(s->db, "reading waste_sessions", err);
    }
    sqlite3_finalize(q);
    return st;
}

void waste_session_clear(waste_session *s)
{
    waste_mem_free(s->schema);
    waste_mem_free(s->name);
    waste_mem_free(s->options);
    waste_mem_free(s->model_id);
    sqlite3_value_free(s->model);
    waste_mem_free(s->message);
    waste_ids_clear(&s->ids);
    waste_buf_clear(&s->tail);
    waste_mem_free(s->at);
    memset(s, 0, sizeof *s);
}

/* ---- reading ----------------------------------------------------------------------- */

waste_session_message *waste_session_add(waste_session *s, waste_error *err)
{
    size_t cap = s->cap ? 2 * s->cap : 16;
    waste_session_message *p = s->message;

    if (s->n == s->cap) {
        p = waste_mem_resize(s->message, cap * sizeof *p);
        if (!p) {
            waste_fail(err, WASTE_NOMEM, "out of memory for the messages of a session");
            return NULL;
        }
        s->message = p;
        s->cap = cap;
    }
    memset(&p[s->n], 0, sizeof *p);
    return &p[s->n++];
}

/* The ids in column i of q; 0 when they are not there or not whole. */
static int take_ids(waste_session *s, sqlite3_stmt *q, int i, int sum, waste_error *err)
{
    const void *data = sqlite3_column_blob(q, i);
    const size_t bytes = (size_t)sqlite3_column_bytes(q, i), n = bytes / sizeof(int32_t);
    int32_t *grown;

    if (sqlite3_column_type(q, i) != SQLITE_BLOB || bytes % sizeof(int32_t)) return 0;
    if (n) {
        grown = waste_mem_resize(s->ids.id, (s->ids.n + n) * sizeof *grown);
        if (!grown) {
            waste_fail(err, WASTE_NOMEM, "out of memory for the tokens of a session");
            return 0;
        }
        s->ids.id = grown;
        memcpy(grown + s->ids.n, data, bytes);
    }
    if ((int64_t)waste_tokens_hash(0, s->ids.id + s->ids.n, n) != sqlite3_column_int64(q, sum))
        return 0;
    s->ids.n += n;
    return 1;
}

static int same_tokenizer(const waste_session *s, uint64_t text)
{
    char want[20];
    const char *dash = s->model_id ? strchr(s->model_id, '-') : NULL;

    snprintf(want, sizeof want, "-%016llx", (unsigned long long)text);
    return !s->model_id || (dash && strcmp(dash, want) == 0);
}

waste_session_role waste_session_role_of(const char *text)
{
    static const char *const names[] = {"", "system", "user", "assistant"};
    int i;

    for (i = WASTE_SESSION_ASSISTANT; i > WASTE_SESSION_OTHER; i--)
        if (text && strcmp(text, names[i]) == 0) break;
    return (waste_session_role)i;
}

/* Counts a row; 1 when the model is not shown it. */
static int is_left_out(waste_session *s, sqlite3_stmt *q, waste_session_role role)
{
    const int omitted = sqlite3_column_type(q, 6) != SQLITE_NULL;

    s->last_seq = sqlite3_column_int64(q, 0);
    s->counted[0]++;
    s->counted[1] += sqlite3_column_int64(q, 5);
    s->counted[2] += sqlite3_column_type(q, 3) == SQLITE_NULL;
    s->counted[3] += omitted;
    if (omitted || !s->cut || s->last_seq >= s->cut || role == WASTE_SESSION_SYSTEM) return omitted;
    if (s->n == 0) s->headless = 1;
    s->cut_n++;
    s->cut_tokens += sqlite3_column_int64(q, 5);
    return 1;
}

static waste_status read_tokens(waste_session *s, uint64_t text, waste_error *err)
{
    sqlite3_stmt *q;
    int rc, known = same_tokenizer(s, text);
    waste_status st =
        waste_session_prepare(&q, s->db, s->schema,
                              "SELECT seq, role, span, tokens, tokens_sum, n_tokens, omitted"
                              " FROM $waste_messages WHERE session = ?1 ORDER BY seq",
                              err);

    if (st) return st;
    sqlite3_bind_int64(q, 1, s->id);
    while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        const waste_session_role role =
            waste_session_role_of((const char *)sqlite3_column_text(q, 1));
        waste_session_message *m;

        if (is_left_out(s, q, role)) continue;
        m = waste_session_add(s, err);
        if (!m) {
            st = WASTE_NOMEM;
            break;
        }
        m->seq = s->last_seq;
        m->role = role;
        m->from = s->ids.n;
        known = known && take_ids(s, q, 3, 4, err);
        if (err->status) st = err->status;
        m->known = known;
        /* a state of other tokens before these is of no use */
        m->span = known && !s->cut_n ? sqlite3_column_int64(q, 2) : 0;
        m->to = s->ids.n;
        s->known += (size_t)known;
    }
    if (!st && rc != SQLITE_DONE) st = waste_session_failed(s->db, "reading waste_messages", err);
    sqlite3_finalize(q);
    return st;
}

static void add_member(waste_buf *b, const char *key, waste_str v)
{
    if (!v.text) return;
    waste_buf_printf(b, ",\"%s\":", key);
    waste_json_quote(b, v.text, v.bytes);
}

static void add_part(waste_buf *b, waste_str text)
{
    waste_buf_text(b, "{\"type\":\"text\",\"text\":");
    waste_json_quote(b, text.text, text.bytes);
    waste_buf_byte(b, '}');
}

static void add_content(waste_buf *b, const waste_session_draft *d)
{
    const waste_str gap = {"\n\n", 2};
    size_t i;

    waste_buf_text(b, ",\"content\":");
    if (!d->content.text) {
        waste_buf_text(b, "null");
    } else if (!d->n_parts) {
        waste_json_quote(b, d->content.text, d->content.bytes);
    } else {
        waste_buf_byte(b, '[');
        add_part(b, d->content);
        for (i = 0; i < d->n_parts; i++) {
            waste_buf_byte(b, ',');
            add_part(b, gap);
            waste_buf_byte(b, ',');
            add_part(b, d->parts[i]);
        }
        waste_buf_byte(b, ']');
    }
}

waste_status waste_session_draft_add(waste_session *s, const waste_session_draft *d,
                                     waste_error *err)
{
    size_t *at = waste_mem_resize(s->at, (s->tail_n + 1) * sizeof *at);
    waste_buf *b = &s->tail;

    if (at) s->at = at;
    waste_buf_text(b, s->tail_n ? "," : "[");
    waste_buf_text(b, "{\"role\":");
    waste_json_quote(b, d->role.text, d->role.bytes);
    add_content(b, d);
    add_member(b, "name", d->name);
    add_member(b, "reasoning_content", d->reasoning);
    add_member(b, "tool_call_id", d->call_id);
    if (d->tool_calls) {
        waste_buf_text(b, ",\"tool_calls\":");
        waste_buf_text(b, d->tool_calls);
    }
    waste_buf_byte(b, '}');
    if (!at || b->failed) return waste_fail(err, WASTE_NOMEM, "out of memory for a message");
    s->at[s->tail_n++] = b->len;
    return WASTE_OK;
}

static waste_str text_of(sqlite3_stmt *q, int i)
{
    waste_str s = {(const char *)sqlite3_column_text(q, i), 0};

    s.bytes = s.text ? (size_t)sqlite3_column_bytes(q, i) : 0;
    if (!s.text && sqlite3_column_type(q, i) != SQLITE_NULL) s.text = "";
    return s;
}

/* The renderer numbers tool results by the calls they answer, so it is shown the
 * messages from the model's last on. */
static waste_status read_tail(waste_session *s, waste_error *err)
{
    sqlite3_stmt *q;
    size_t from = s->known;
    int rc;
    waste_status st;

    if (!s->n) return WASTE_OK;
    while (from > 0 && s->message[from - 1].role != WASTE_SESSION_ASSISTANT) from--;
    if (from > 0)
        from--;
    else if (s->known > 0)
        from = s->known - 1;
    s->skip = s->known - from;
    st = waste_session_prepare(&q, s->db, s->schema,
                               "SELECT role, content, name, reasoning, tool_call_id, tool_calls"
                               " FROM $waste_messages WHERE session = ?1 AND seq >= ?2"
                               " AND omitted IS NULL AND (seq >= ?3 OR role = 'system')"
                               " ORDER BY seq",
                               err);
    if (st) return st;
    sqlite3_bind_int64(q, 1, s->id);
    sqlite3_bind_int64(q, 2, s->message[from].seq);
    sqlite3_bind_int64(q, 3, s->cut ? s->cut : INT64_MIN);
    while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        const waste_session_draft d = {.role = text_of(q, 0),
                                       .content = text_of(q, 1),
                                       .name = text_of(q, 2),
                                       .reasoning = text_of(q, 3),
                                       .call_id = text_of(q, 4),
                                       .tool_calls = (const char *)sqlite3_column_text(q, 5)};
        st = waste_session_draft_add(s, &d, err);
    }
    if (!st && rc != SQLITE_DONE) st = waste_session_failed(s->db, "reading waste_messages", err);
    sqlite3_finalize(q);
    return st;
}

waste_status waste_session_read(waste_session *s, uint64_t text, waste_error *err)
{
    waste_status st;

    s->n = s->known = s->ids.n = s->tail.len = s->tail_n = s->skip = 0;
    s->cut_n = s->cut_tokens = s->headless = 0;
    s->last_seq = -1;
    memset(s->counted, 0, sizeof s->counted);
    st = read_tokens(s, text, err);
    return st ? st : read_tail(s, err);
}

waste_status waste_session_unchanged(const waste_session *s, waste_error *err)
{
    sqlite3_stmt *q;
    int same, there;
    waste_status st = waste_session_prepare(
        &q, s->db, s->schema,
        "SELECT (SELECT state_rev FROM $waste_sessions WHERE id = ?1), count(*),"
        " coalesce(sum(n_tokens), 0), coalesce(sum(tokens IS NULL), 0), coalesce(max(seq), -1),"
        " coalesce(sum(omitted IS NOT NULL), 0)"
        " FROM $waste_messages WHERE session = ?1",
        err);

    if (st) return st;
    sqlite3_bind_int64(q, 1, s->id);
    if (sqlite3_step(q) != SQLITE_ROW) {
        st = waste_session_failed(s->db, "reading waste_messages", err);
        sqlite3_finalize(q);
        return st;
    }
    there = sqlite3_column_type(q, 0) != SQLITE_NULL;
    same = there && sqlite3_column_int64(q, 0) == s->rev &&
           sqlite3_column_int64(q, 1) == s->counted[0] &&
           sqlite3_column_int64(q, 2) == s->counted[1] &&
           sqlite3_column_int64(q, 3) == s->counted[2] &&
           sqlite3_column_int64(q, 5) == s->counted[3] && sqlite3_column_int64(q, 4) == s->last_seq;
    sqlite3_finalize(q);
    if (same) return WASTE_OK;
    return waste_fail(err, WASTE_BUSY,
                      "session %lld was %s while the model was at work; nothing was written",
                      (long long)s->id, there ? "changed" : "deleted");
}
