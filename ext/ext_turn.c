/* A turn: see ext_turn.h. In order: look the session up, open its model, read the
 * conversation and take its state up (one short read transaction); compute; write
 * everything (one short write transaction, which checks that nobody has written
 * meanwhile). */
#include "ext_turn.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "ext_args.h"
#include "ext_progress.h"
#include "ext_rows.h"
#include "ext_talk.h"
#include "ext_truncate.h"

SQLITE_EXTENSION_INIT3

#define CLOSING_ROOM 48 /* positions kept free for the end of the model's message */
#define STEP_ROWS    64

struct waste_turn {
    waste_session session;
    waste_talk talk;
    waste_lease lease;
    waste_identity identity;
    waste_progress progress;
    waste_cancel cancel;
    waste_chat_request chat;
    uint64_t owner;
    waste_seq *seq;
    waste_gen *gen;
    waste_ids ids;      /* of the whole conversation, as far as it has gone */
    int64_t reused;     /* tokens that the sequence had at first */
    int64_t rejected;   /* rows of waste_state that failed their check */
    const char *source; /* where the sequence came from */
    waste_buf user;     /* the message as its row has it */
    waste_buf content;  /* of the reply */
    waste_step_stats sum;
};

/* "session 3 ('work')" */
static void describe(const waste_session *s, char *out, size_t cap)
{
    if (s->name)
        snprintf(out, cap, "session %lld ('%.80s')", (long long)s->id, s->name);
    else
        snprintf(out, cap, "session %lld", (long long)s->id);
}

static waste_status append(waste_ids *to, const int32_t *id, size_t n, waste_error *err)
{
    int32_t *grown;

    if (!n) return WASTE_OK;
    grown = waste_mem_resize(to->id, (to->n + n) * sizeof *grown);
    if (!grown) return waste_fail(err, WASTE_NOMEM, "out of memory for tokens");
    to->id = grown;
    memcpy(grown + to->n, id, n * sizeof *id);
    to->n += n;
    return WASTE_OK;
}

/* ---- before anything is computed --------------------------------------------------------- */

/* Better now than after minutes. */
static waste_status check_writable(const waste_session *s, waste_error *err)
{
    sqlite3_stmt *q = NULL;
    int closed = sqlite3_db_readonly(s->db, s->schema) == 1;

    if (!closed && sqlite3_prepare_v2(s->db, "PRAGMA query_only", -1, &q, NULL) == SQLITE_OK)
        closed = sqlite3_step(q) == SQLITE_ROW && sqlite3_column_int(q, 0);
    sqlite3_finalize(q);
    if (!closed) return WASTE_OK;
    return waste_fail(err, WASTE_IO,
                      "database '%s' is read-only: a turn of a session is written to it",
                      s->schema);
}

/* The new message, for the renderer and as its row. */
static waste_status add_message(waste_turn *t, waste_error *err)
{
    waste_session *s = &t->session;
    const waste_prompt *p = &t->talk.request.prompt;
    const waste_session_draft d = {.role = t->talk.role,
                                   .content = p->text,
                                   .name = t->talk.name,
                                   .call_id = t->talk.call_id,
                                   .parts = p->parts,
                                   .n_parts = p->n_parts};
    waste_session_message *m;
    waste_status st = waste_session_draft_add(s, &d, err);
    size_t i;

    t->user.len = 0;
    waste_buf_add(&t->user, p->text.text, p->text.bytes);
    for (i = 0; i < p->n_parts; i++) {
        waste_buf_text(&t->user, "\n\n");
        waste_buf_add(&t->user, p->parts[i].text, p->parts[i].bytes);
    }
    if (!st && t->user.failed) st = waste_fail(err, WASTE_NOMEM, "out of memory for a message");
    if (st) return st;
    m = waste_session_add(s, err);
    if (!m) return WASTE_NOMEM;
    m->seq = s->last_seq + 1;
    m->role = waste_session_role_of(t->talk.role.text);
    return WASTE_OK;
}

static waste_status check_room(waste_turn *t, size_t prompt, waste_error *err)
{
    const int64_t context = waste_model_context(t->lease.model), used = (int64_t)t->session.ids.n;
    const int64_t need = (int64_t)prompt + 1 + CLOSING_ROOM;
    char which[128];

    if (!waste_container_info(t->lease.container)->mla_layers) return WASTE_OK;
    if (used + need > context) {
        describe(&t->session, which, sizeof which);
        return waste_fail(err, WASTE_ARG,
                          "%s has %lld tokens%s and this turn needs at least %lld more, but the "
                          "model's context is %lld; nothing was written",
                          which, (long long)used, t->session.cut ? " that cannot be left out" : "",
                          (long long)need, (long long)context);
    }
    if (t->talk.request.params.max_tokens > context - used - need + 1)
        t->talk.request.params.max_tokens = context - used - need + 1;
    return WASTE_OK;
}

/* Two sessions do not take each other's place, in one database or in two. */
static uint64_t owner_of(const waste_session *s)
{
    const char *file = sqlite3_db_filename(s->db, s->schema);
    struct {
        uint64_t place[2];
        int64_t id;
        char schema[16];
    } key;

    memset(&key, 0, sizeof key);
    key.id = s->id;
    if (!file || !*file || waste_path_identity(file, key.place, NULL)) {
        key.place[0] = (uint64_t)(uintptr_t)s->db;
        snprintf(key.schema, sizeof key.schema, "%s", s->schema);
    }
    return waste_tokens_hash(0, (const int32_t *)(const void *)&key, sizeof key / sizeof(int32_t));
}

static waste_status take_up(waste_turn *t, waste_error *err)
{
    waste_session *s = &t->session;
    waste_model *m = t->lease.model;
    waste_status st = WASTE_OK;

    t->source = "memory";
    t->seq = waste_seq_wake(m, s->ids.id, s->ids.n, t->owner);
    if (!t->seq && s->keep > 0) {
        t->source = "rows";
        st = waste_rows_load(&t->seq, &t->rejected, s, m, err);
    }
    if (!st && !t->seq) {
        t->source = "none";
        st = waste_seq_new(&t->seq, m, err);
    }
    t->reused = st ? 0 : waste_seq_length(t->seq);
    return st;
}

/* The messages that the model is shown, and the ids of those that it has not read. */
static waste_status read_messages(waste_turn *t, waste_ids *prompt, waste_error *err)
{
    waste_session *s = &t->session;
    const waste_container *c = t->lease.container;
    const int truncate = t->talk.request.truncate && waste_container_info(c)->mla_layers;
    waste_status st;

    do {
        st = waste_session_read(s, t->identity.text, err);
        if (!st) st = waste_truncate_open(s, &t->talk, c, err);
        if (!st) st = add_message(t, err);
        if (!st) st = waste_talk_split(&t->talk, s, c, prompt, err);
    } while (!st && truncate &&
             waste_truncate(s, (int64_t)(s->ids.n + prompt->n), waste_model_context(t->lease.model),
                            t->talk.request.params.max_tokens, CLOSING_ROOM));
    return st;
}

/* What is read of the database, as of one moment. */
static waste_status read_conversation(waste_turn *t, waste_error *err)
{
    waste_session *s = &t->session;
    waste_ids prompt = {0};
    waste_session_scope scope;
    waste_status st = waste_session_begin(&scope, s->db, 0, &t->cancel, "reading the session", err);

    if (st) return st;
    st = waste_session_reread(s, err);
    if (!st) st = read_messages(t, &prompt, err);
    if (!st) st = check_room(t, prompt.n, err);
    if (!st) st = take_up(t, err);
    if (!st) st = append(&t->ids, s->ids.id, s->ids.n, err);
    if (!st) st = append(&t->ids, prompt.id, prompt.n, err);
    waste_ids_clear(&prompt);
    return waste_session_end(&scope, s->db, st, "reading the session", err);
}

static waste_status open_generation(waste_turn *t, waste_error *err)
{
    waste_session *s = &t->session;
    waste_gen_params *params = &t->talk.request.params;
    waste_prompt p = {0};
    waste_status st = waste_talk_request(&t->talk, s, s->tail_n, 1, &t->chat, err);

    p.chat = &t->chat;
    p.before = s->ids.id;
    p.n_before = s->ids.n;
    p.seq = t->seq;
    waste_progress_begin(&t->progress, t->talk.request.progress, t->lease.model);
    params->cancel = waste_progress_cancel(&t->progress, &t->cancel);
    if (!st) st = waste_gen_open(&t->gen, t->lease.model, &p, params, err);
    waste_progress_of(&t->progress, t->gen);
    return st;
}

waste_status waste_turn_open(waste_turn **out, waste_conn *c, const waste_turn_args *a,
                             const waste_cancel *cancel, waste_error *err)
{
    waste_turn *t;
    waste_status st;

    *out = NULL;
    if (sqlite3_value_type(a->session) == SQLITE_NULL) return WASTE_DONE;
    t = waste_mem_zero(sizeof *t);
    if (!t) return waste_fail(err, WASTE_NOMEM, "out of memory for a turn");
    t->cancel = *cancel;
    st = waste_session_find(&t->session, waste_models_db(c), a->session, a->who, err);
    if (!st)
        st = waste_talk_read(&t->talk, &t->session, a->who, a->logprobs ? WASTE_TAKES_LOGPROBS : 0,
                             a->message, a->options, a->n_parts, a->parts, err);
    if (!st) st = check_writable(&t->session, err);
    if (!st) st = waste_models_weights(&t->lease, c, t->session.model, cancel, err);
    if (!st) st = waste_model_identity(t->lease.model, &t->identity, err);
    if (!st) {
        t->owner = owner_of(&t->session);
        st = read_conversation(t, err);
    }
    if (!st) st = open_generation(t, err);
    if (st)
        waste_turn_close(t);
    else
        *out = t;
    return st;
}

void waste_turn_close(waste_turn *t)
{
    if (!t) return;
    waste_progress_end(&t->progress);
    waste_gen_close(t->gen);
    waste_seq_free(t->seq);
    waste_models_end(&t->lease);
    waste_talk_clear(&t->talk);
    waste_session_clear(&t->session);
    waste_ids_clear(&t->ids);
    waste_buf_clear(&t->user);
    waste_buf_clear(&t->content);
    waste_mem_free(t);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void add_stats(waste_buf *b, const waste_turn *t)
{
    waste_usage u;

    waste_gen_usage(t->gen, &u);
    waste_buf_printf(b,
                     "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                     "\"reasoning_tokens\":%lld,\"forced_tokens\":%lld,\"prefilled\":%lld,"
                     "\"reused\":%lld,\"source\":\"%s\",\"rejected\":%lld,"
                     "\"omitted\":%lld,\"omitted_tokens\":%lld,\"prompt_ms\":",
                     (long long)u.prompt_tokens, (long long)u.completion_tokens,
                     (long long)u.reasoning_tokens, (long long)u.forced_tokens,
                     (long long)(u.prompt_tokens - t->reused), (long long)t->reused, t->source,
                     (long long)t->rejected, (long long)t->session.cut_n,
                     (long long)t->session.cut_tokens);
    waste_args_number(b, u.prompt_ms);
    waste_buf_text(b, ",\"total_ms\":");
    waste_args_number(b, u.total_ms);
    waste_buf_printf(b, ",\"hits\":%llu,\"misses\":%llu,\"bytes_read\":%llu}",
                     (unsigned long long)t->sum.hits, (unsigned long long)t->sum.misses,
                     (unsigned long long)t->sum.bytes_read);
}

/* The row's own columns in 1.., then what concerns its tokens. */
static void bind_tokens(sqlite3_stmt *q, int i, const waste_turn *t, const waste_session_message *m)
{
    const int32_t *id = t->ids.id + m->from;
    const size_t n = m->to - m->from;

    sqlite3_bind_int64(q, i, (sqlite3_int64)n);
    sqlite3_bind_blob64(q, i + 1, n ? (const void *)id : "", n * sizeof *id, SQLITE_STATIC);
    sqlite3_bind_int64(q, i + 2, (sqlite3_int64)waste_tokens_hash(0, id, n));
}

static void bind_str(sqlite3_stmt *q, int i, waste_str v)
{
    if (v.text) sqlite3_bind_text64(q, i, v.text, v.bytes, SQLITE_STATIC, SQLITE_UTF8);
}

static const char message_sql[] =
    "INSERT INTO $waste_messages(session, seq, n_tokens, tokens, tokens_sum, role, content, name,"
    " tool_call_id, reasoning, tool_calls, finish, stats)"
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

static waste_status write_user(waste_turn *t, waste_error *err)
{
    const waste_session *s = &t->session;
    const waste_session_message *m = &s->message[s->n - 2];
    const waste_str content = {t->user.data ? t->user.data : "", t->user.len};
    sqlite3_stmt *q;
    waste_status st = waste_session_prepare(&q, s->db, s->schema, message_sql, err);

    if (st) return st;
    sqlite3_bind_int64(q, 1, s->id);
    sqlite3_bind_int64(q, 2, m->seq);
    bind_tokens(q, 3, t, m);
    bind_str(q, 6, t->talk.role);
    bind_str(q, 7, content);
    bind_str(q, 8, t->talk.name);
    bind_str(q, 9, t->talk.call_id);
    return waste_session_run(q, "writing waste_messages", err);
}

static waste_status write_reply(waste_turn *t, waste_error *err)
{
    static const waste_str role = {"assistant", 9};
    const waste_session *s = &t->session;
    const waste_session_message *m = &s->message[s->n - 1];
    waste_text text = {NULL, 0};
    waste_json *doc = NULL;
    const waste_json *calls;
    waste_buf stats = {0};
    waste_str content = {NULL, 0}, reasoning = {NULL, 0};
    char *dump = NULL;
    size_t bytes = 0;
    sqlite3_stmt *q = NULL;
    waste_status st = waste_gen_message(t->gen, &text, err);

    if (!st) st = waste_json_parse(&doc, text.text, text.bytes, 0, "the reply", WASTE_FORMAT, err);
    calls = waste_json_get(doc, "tool_calls");
    if (!st && calls && !(dump = waste_json_dump(calls, &bytes)))
        st = waste_fail(err, WASTE_NOMEM, "out of memory for a reply");
    if (!st) st = waste_session_prepare(&q, s->db, s->schema, message_sql, err);
    if (!st) {
        content.text = waste_json_text(waste_json_get(doc, "content"), &content.bytes);
        reasoning.text =
            waste_json_text(waste_json_get(doc, "reasoning_content"), &reasoning.bytes);
        if (!content.text) content.text = "";
        add_stats(&stats, t);
        sqlite3_bind_int64(q, 1, s->id);
        sqlite3_bind_int64(q, 2, m->seq);
        bind_tokens(q, 3, t, m);
        bind_str(q, 6, role);
        bind_str(q, 7, content);
        bind_str(q, 10, reasoning);
        if (dump) sqlite3_bind_text64(q, 11, dump, bytes, SQLITE_STATIC, SQLITE_UTF8);
        sqlite3_bind_text(q, 12, waste_gen_finish_reason(t->gen), -1, SQLITE_STATIC);
        sqlite3_bind_text64(q, 13, stats.data, stats.len, SQLITE_STATIC, SQLITE_UTF8);
        st = waste_session_run(q, "writing waste_messages", err);
    }
    waste_mem_free(dump);
    waste_buf_clear(&stats);
    waste_json_free(doc);
    waste_text_clear(&text);
    return st;
}

/* Messages that were there without tokens, or with others, have them now. */
static waste_status write_unread(waste_turn *t, waste_error *err)
{
    const waste_session *s = &t->session;
    sqlite3_stmt *q;
    size_t i;
    waste_status st = WASTE_OK;

    for (i = 0; i + 2 < s->n && !st; i++) {
        if (i < s->known && !s->message[i].fresh) continue;
        st = waste_session_prepare(&q, s->db, s->schema,
                                   "UPDATE $waste_messages SET n_tokens = ?1, tokens = ?2,"
                                   " tokens_sum = ?3, span = NULL WHERE session = ?4 AND seq = ?5",
                                   err);
        if (st) break;
        bind_tokens(q, 1, t, &s->message[i]);
        sqlite3_bind_int64(q, 4, s->id);
        sqlite3_bind_int64(q, 5, s->message[i].seq);
        st = waste_session_run(q, "writing waste_messages", err);
    }
    return st;
}

static waste_status write_session(waste_turn *t, waste_error *err)
{
    waste_session *s = &t->session;
    char id[40];
    sqlite3_stmt *q;
    waste_status st = waste_session_prepare(
        &q, s->db, s->schema,
        "UPDATE $waste_sessions SET state_rev = state_rev + 1, n_tokens = ?1, model_id = ?2,"
        " updated = CURRENT_TIMESTAMP WHERE id = ?3",
        err);

    if (st) return st;
    snprintf(id, sizeof id, "%016llx-%016llx", (unsigned long long)t->identity.weights,
             (unsigned long long)t->identity.text);
    sqlite3_bind_int64(q, 1, (sqlite3_int64)t->ids.n);
    sqlite3_bind_text(q, 2, id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 3, s->id);
    return waste_session_run(q, "writing waste_sessions", err);
}

/* Where SQLite offers nothing to undo a turn with: a statement of the caller's is
 * writing, and need not be undone itself when it fails. The session's own row is written
 * last, so it has not changed. */
static void take_back(const waste_turn *t)
{
    static const char written[] = "DELETE FROM $waste_messages WHERE session = ?1 AND seq > ?2";
    static const char omitted[] =
        "UPDATE $waste_messages SET omitted = NULL WHERE session = ?1 AND omitted > ?2";
    static const char read[] =
        "UPDATE $waste_messages SET tokens = NULL, n_tokens = NULL, tokens_sum = NULL"
        " WHERE session = ?1 AND seq <= ?2 AND seq >= ?3";
    static const char *const undo[] = {written, omitted, read};
    const waste_session *s = &t->session;
    /* with other tokens in front than it had before, the first message is to be read again */
    const size_t unread = s->n && s->message[0].fresh ? 0 : s->known;
    waste_error ignored = {0};
    sqlite3_stmt *q;
    size_t i;

    for (i = 0; i < (unread + 2 < s->n ? 3 : 2); i++) {
        if (waste_session_prepare(&q, s->db, s->schema, undo[i], &ignored)) return;
        sqlite3_bind_int64(q, 1, s->id);
        sqlite3_bind_int64(q, 2, s->last_seq);
        if (i == 2) sqlite3_bind_int64(q, 3, s->message[unread].seq);
        waste_session_run(q, "undoing a turn", &ignored);
    }
}

static waste_status write_rows(waste_turn *t, const waste_session_scope *scope, waste_error *err)
{
    waste_session *s = &t->session;
    waste_status st = waste_session_unchanged(s, err), begun = st;

    if (!st) st = waste_truncate_write(s, s->message[s->n - 2].seq, err);
    if (!st) st = write_unread(t, err);
    if (!st) st = write_user(t, err);
    if (!st) st = write_reply(t, err);
    if (!st && s->keep > 0)
        st = waste_rows_save(s, t->lease.model, t->seq, t->ids.id, t->reused, t->rejected > 0, err);
    if (!st && s->keep > 0) st = waste_rows_prune(s, err);
    if (!st) st = write_session(t, err);
    if (st && !begun && scope->kind == WASTE_SCOPE_NONE) take_back(t);
    return st;
}

/* On another connection, while this one cannot write. */
static waste_status write_aside(waste_turn *t, waste_error *err)
{
    static char main_schema[] = "main";
    waste_session *s = &t->session;
    sqlite3 *db = s->db, *aside;
    char *schema = s->schema;
    waste_session_scope scope;
    waste_status st = waste_session_aside(&aside, db, schema, err);

    if (st) return st;
    s->db = aside;
    s->schema = main_schema;
    st = waste_session_begin(&scope, aside, 1, &t->cancel, "writing the turn", err);
    if (!st) st = write_rows(t, &scope, err);
    st = waste_session_end(&scope, aside, st, "writing the turn", err);
    s->db = db;
    s->schema = schema;
    sqlite3_close(aside);
    return st;
}

static waste_status write_turn(waste_turn *t, waste_error *err)
{
    sqlite3 *db = t->session.db;
    waste_error why = {0};
    waste_session_scope scope;
    waste_status st = waste_session_begin(&scope, db, 1, &t->cancel, "writing the turn", &why);
    const int outdated = st && waste_session_outdated(db);

    if (!st) st = write_rows(t, &scope, &why);
    st = waste_session_end(&scope, db, st, "writing the turn", &why);
    if (outdated) return write_aside(t, err);
    return st ? waste_fail(err, st, "%s", why.text) : WASTE_OK;
}

/* ---- the turn itself ---------------------------------------------------------------------- */

/* What the sequence lacks of the reply and what completes the model's message go into it,
 * so that it stands where the next message begins. */
static waste_status complete(waste_turn *t, waste_error *err)
{
    const size_t from = (size_t)waste_seq_length(t->seq);
    waste_row rows[STEP_ROWS];
    waste_ids closing = {0};
    size_t at, n;
    waste_status st = waste_gen_closing(t->gen, &closing, err);

    if (!st) st = append(&t->ids, closing.id, closing.n, err);
    waste_ids_clear(&closing);
    for (at = from; at < t->ids.n && !st; at += n) {
        for (n = 0; n < STEP_ROWS && at + n < t->ids.n; n++) {
            rows[n].seq = t->seq;
            rows[n].token = t->ids.id[at + n];
            rows[n].logits = NULL;
        }
        st = waste_step(t->lease.model, rows, n, &t->cancel, NULL, err);
    }
    return st;
}

static waste_status finish(waste_turn *t, waste_error *err)
{
    waste_session *s = &t->session;
    waste_session_message *m;
    waste_status st = complete(t, err);

    if (st) return st;
    m = waste_session_add(s, err);
    if (!m) return WASTE_NOMEM;
    m->seq = s->message[s->n - 2].seq + 1;
    m->from = s->message[s->n - 2].to;
    m->to = t->ids.n;
    m->role = WASTE_SESSION_ASSISTANT;
    st = write_turn(t, err);
    if (st) return st;
    waste_seq_rest(t->seq, t->ids.id, t->owner);
    t->seq = NULL;
    return WASTE_OK;
}

waste_status waste_turn_next(waste_turn *t, waste_gen_token *out, waste_error *err)
{
    waste_status st = waste_gen_next(t->gen, out, err);

    if (st) return st;
    waste_progress_token(&t->progress, out);
    t->sum.hits += out->stats.hits;
    t->sum.misses += out->stats.misses;
    t->sum.bytes_read += out->stats.bytes_read;
    waste_buf_add(&t->content, out->piece.text, out->piece.bytes);
    if (t->content.failed) return waste_fail(err, WASTE_NOMEM, "out of memory for the reply");
    if (out->token >= 0) st = append(&t->ids, &out->token, 1, err);
    if (!st && out->finish != WASTE_FINISH_NONE && out->finish != WASTE_FINISH_TIMEOUT)
        st = finish(t, err);
    return st;
}

/* ---- what came of it ------------------------------------------------------------------------ */

const waste_buf *waste_turn_content(const waste_turn *t)
{
    return &t->content;
}

int64_t waste_turn_made(const waste_turn *t)
{
    waste_usage u;

    waste_gen_usage(t->gen, &u);
    return u.completion_tokens;
}

int64_t waste_turn_timeout(const waste_turn *t)
{
    return t->talk.request.params.timeout_ms;
}

const waste_container *waste_turn_container(const waste_turn *t)
{
    return t->lease.container;
}

int waste_turn_logprobs(const waste_turn *t)
{
    return t->talk.request.logprobs;
}
