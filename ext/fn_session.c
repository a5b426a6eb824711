/* waste_session(model [, name [, options]]): the number of a session, a new one or the
 * one of that name.
 * waste_fork(session [, name [, options]]): the number of a copy that goes its own way.
 * waste_chat(session, message [, options [, part...]]): the reply.
 *
 *     SELECT waste_session('demo', 'mine', '{"system":"Be brief."}');   -- 1
 *     SELECT waste_chat('mine', 'My name is Ada.');
 *     -- Nice to meet you, Ada!
 *     SELECT waste_fork('mine', 'another', '{"at":2}');                 -- 2
 *     SELECT waste_chat('another', 'What is my name?');
 *     -- Your name is Ada.
 *
 * A session is its number or its name. Its rows are in waste_sessions and
 * waste_messages, what the model remembers of it in waste_state (sql/schema.sql). A turn
 * writes two messages and the state, all or nothing, inside the caller's transaction or
 * in one of its own; in that case nothing is locked while the model computes, and
 * SQLITE_BUSY says that somebody else wrote the session meanwhile.
 *
 * Options of waste_session: system, state ("keep", "none", or how many of the last turns
 * can be forked without computing them again), and what its turns take unless they say
 * otherwise. Of waste_fork: at, the seq of the last message to take along. Of waste_chat:
 * those of waste_generate about the reply, those of waste_chat_json about the prompt,
 * truncate ("oldest": leave out the oldest turns when the context is full), and role, name,
 * tool_call_id of the message. NULL in, NULL out. */
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_direct.h"
#include "ext_interrupt.h"
#include "ext_session.h"
#include "ext_talk.h"
#include "ext_turn.h"
#include "fn.h"
#include "schema.h"

SQLITE_EXTENSION_INIT3

static int is_null(int argc, sqlite3_value **argv, int i)
{
    return i >= argc || sqlite3_value_type(argv[i]) == SQLITE_NULL;
}

/* TEMP triggers on the tables may call functions of ours in turn. */
static void give_id(sqlite3_context *ctx, int argc, sqlite3_value **argv,
                    waste_status (*of)(int64_t *, waste_conn *, int, sqlite3_value **,
                                       waste_error *))
{
    waste_conn *c = sqlite3_user_data(ctx);
    waste_error err = {0};
    int64_t id = 0;
    waste_status st;

    if (is_null(argc, argv, 0)) return;
    st = waste_direct_enter(waste_models_depth(c), &err);
    if (!st) {
        st = of(&id, c, argc, argv, &err);
        waste_direct_leave(waste_models_depth(c));
    }
    if (st)
        waste_args_fail(ctx, &err);
    else
        sqlite3_result_int64(ctx, id);
}

/* A name that looks like a number would be taken for one. */
static waste_status read_name(const char **name, sqlite3_value *v, const char *who,
                              waste_error *err)
{
    char what[64];
    waste_status st;

    sqlite3_snprintf((int)sizeof what, what, "%s: the name", who);
    st = waste_args_name(v, what, name, err);
    if (!st && sqlite3_value_numeric_type(v) != SQLITE_TEXT)
        st = waste_fail(err, WASTE_ARG, "%s: the name '%.40s' is a number, and numbers are given",
                        who, *name);
    return st;
}

/* ---- waste_session ---- */

static int same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The session of that name, if it is what would be made. */
static waste_status join(const waste_session *s, const char *name, sqlite3_value *model,
                         const waste_buf *options, int given, int64_t keep, waste_error *err)
{
    const char *has = (const char *)sqlite3_value_text(s->model);
    const char *want = (const char *)sqlite3_value_text(model);

    if (!same_text(has, want))
        return waste_fail(err, WASTE_ARG, "waste_session: session '%.100s' is of model '%.100s'",
                          name, has ? has : "");
    if (given && (keep != s->keep || !same_text(s->options, options->len ? options->data : NULL)))
        return waste_fail(err, WASTE_ARG,
                          "waste_session: session '%.100s' is there with other options (%.200s)",
                          name, s->options ? s->options : "none");
    return WASTE_OK;
}

static waste_status insert_system(sqlite3 *db, const char *schema, int64_t id, const char *system,
                                  waste_error *err)
{
    sqlite3_stmt *q;
    waste_status st = waste_session_prepare(&q, db, schema,
                                            "INSERT INTO $waste_messages(session, seq, role,"
                                            " content) VALUES(?1, 0, 'system', ?2)",
                                            err);

    if (st) return st;
    sqlite3_bind_int64(q, 1, id);
    sqlite3_bind_text(q, 2, system, -1, SQLITE_STATIC);
    return waste_session_run(q, "writing waste_messages", err);
}

static waste_status insert(int64_t *id, sqlite3 *db, const char *schema, const char *name,
                           const char *model, const waste_buf *options, int64_t keep,
                           const char *system, waste_error *err)
{
    sqlite3_stmt *q;
    waste_status st = waste_session_prepare(
        &q, db, schema,
        "INSERT INTO $waste_sessions(name, model, options, keep) VALUES(?1, ?2, ?3, ?4)", err);

    if (st) return st;
    if (name) sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, model, -1, SQLITE_STATIC);
    if (options->len)
        sqlite3_bind_text64(q, 3, options->data, options->len, SQLITE_STATIC, SQLITE_UTF8);
    sqlite3_bind_int64(q, 4, keep);
    st = waste_session_run(q, "writing waste_sessions", err);
    if (st) return st;
    *id = sqlite3_last_insert_rowid(db);
    return system ? insert_system(db, schema, *id, system, err) : WASTE_OK;
}

/* Looks for the name; *found 0 when there is none. */
static waste_status look(waste_session *s, int *found, sqlite3 *db, sqlite3_value *name,
                         waste_error *err)
{
    waste_error none = {0};
    waste_status st = waste_session_find(s, db, name, "waste_session", &none);

    *found = !st;
    if (!st || (st == WASTE_ARG && strstr(none.text, "no session"))) return WASTE_OK;
    return waste_fail(err, st, "%s", none.text);
}

static waste_status make_tables(sqlite3 *db, const char *schema, waste_error *err)
{
    if (sqlite3_table_column_metadata(db, schema, "waste_state", NULL, NULL, NULL, NULL, NULL,
                                      NULL) == SQLITE_OK)
        return WASTE_OK;
    if (sqlite3_exec(db, schema_sql, NULL, NULL, NULL) == SQLITE_OK) return WASTE_OK;
    return waste_session_failed(db, "making the session tables", err);
}

static waste_status make(int64_t *id, waste_conn *c, int argc, sqlite3_value **argv,
                         waste_error *err)
{
    sqlite3 *db = waste_models_db(c);
    const char *name = NULL, *model;
    char *schema = NULL, *system = NULL;
    waste_buf options = {0};
    waste_session s = {0};
    waste_model_ref ref = {0};
    waste_session_scope scope;
    int64_t keep;
    int found = 0;
    waste_status st = waste_models_find(&ref, c, argv[0], err);

    if (!st && !is_null(argc, argv, 1)) st = read_name(&name, argv[1], "waste_session", err);
    if (!st) st = waste_talk_defaults(db, argc > 2 ? argv[2] : NULL, &options, &system, &keep, err);
    if (!st) st = waste_session_schema(&schema, db, err);
    model = (const char *)sqlite3_value_text(argv[0]);
    if (!st) {
        st = waste_session_begin(&scope, db, 1, NULL, "making a session", err);
        if (!st) st = make_tables(db, schema, err);
        if (!st && name) st = look(&s, &found, db, argv[1], err);
        if (!st && found) {
            *id = s.id;
            st = join(&s, name, argv[0], &options, !is_null(argc, argv, 2), keep, err);
        } else if (!st) {
            st = insert(id, db, schema, name, model, &options, keep, system, err);
        }
        st = waste_session_end(&scope, db, st, "making a session", err);
    }
    waste_session_clear(&s);
    waste_models_ref_clear(&ref);
    waste_mem_free(schema);
    waste_mem_free(system);
    waste_buf_clear(&options);
    return st;
}

void waste_fn_session(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    give_id(ctx, argc, argv, make);
}

/* ---- waste_fork ---- */

static waste_status read_at(sqlite3_value *options, int64_t *at, waste_error *err)
{
    static const waste_option table[] = {
        {"at", WASTE_OPTION_INT, 1, 0, 0, 9007199254740992.0, "the seq of a message", NULL}};
    waste_json *doc = NULL;
    waste_status st = WASTE_OK;

    *at = -1;
    if (options) st = waste_args_object(&doc, options, "waste_fork: options", err);
    if (!st) st = waste_args_read(table, 1, 1, at, NULL, doc, "waste_fork", err);
    waste_json_free(doc);
    return st;
}

static waste_status check_at(const waste_session *s, int64_t at, waste_error *err)
{
    sqlite3_stmt *q;
    int there;
    waste_status st;

    if (at < 0) return WASTE_OK;
    st = waste_session_prepare(
        &q, s->db, s->schema, "SELECT 1 FROM $waste_messages WHERE session = ?1 AND seq = ?2", err);
    if (st) return st;
    sqlite3_bind_int64(q, 1, s->id);
    sqlite3_bind_int64(q, 2, at);
    there = sqlite3_step(q) == SQLITE_ROW;
    sqlite3_finalize(q);
    if (there) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "waste_fork: session %lld has no message %lld",
                      (long long)s->id, (long long)at);
}

/* ?1: the new session, ?2: the old one, ?3: the last message or -1. */
static const char copy_messages[] =
    "INSERT INTO $waste_messages(session, seq, role, content, name, reasoning, tool_calls,"
    " tool_call_id, images, finish, stats, n_tokens, tokens, tokens_sum, span, omitted)"
    " SELECT ?1, seq, role, content, name, reasoning, tool_calls, tool_call_id, images, finish,"
    " stats, n_tokens, tokens, tokens_sum, span, omitted FROM $waste_messages"
    " WHERE session = ?2 AND (?3 < 0 OR seq <= ?3) ORDER BY seq";
/* What was left out by a turn that does not come along is there again, and is read again
 * with all that follows it: the tokens of that are those of the shorter conversation. */
static const char restore_messages[] =
    "UPDATE $waste_messages SET omitted = NULL, span = NULL, tokens = NULL, n_tokens = NULL,"
    " tokens_sum = NULL WHERE session = ?1 AND ?3 >= 0 AND seq >="
    " (SELECT min(seq) FROM $waste_messages WHERE session = ?1 AND omitted > ?3)"
    " AND (omitted IS NULL OR omitted > ?3)";
/* Messages at the end whose tokens count to a later one that does not come along are
 * unread again. */
static const char unread_messages[] =
    "UPDATE $waste_messages SET tokens = NULL, n_tokens = NULL, tokens_sum = NULL"
    " WHERE session = ?1 AND seq > (SELECT coalesce(max(seq), -1)"
    " FROM $waste_messages WHERE session = ?1 AND n_tokens > 0)";
static const char count_tokens[] =
    "UPDATE $waste_sessions SET n_tokens = (SELECT coalesce(sum(n_tokens), 0)"
    " FROM $waste_messages WHERE session = ?1 AND omitted IS NULL) WHERE id = ?1";
static const char *const copies[] = {copy_messages, restore_messages, unread_messages,
                                     count_tokens};

static waste_status copy(int64_t *id, const waste_session *s, const char *name, int64_t at,
                         waste_error *err)
{
    sqlite3_stmt *q;
    size_t i;
    waste_status st = waste_session_prepare(
        &q, s->db, s->schema,
        "INSERT INTO $waste_sessions(name, model, parent, options, keep, model_id)"
        " SELECT ?1, model, id, options, keep, model_id FROM $waste_sessions WHERE id = ?2",
        err);

    if (st) return st;
    if (name) sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, s->id);
    st = waste_session_run(q, "writing waste_sessions", err);
    *id = sqlite3_last_insert_rowid(s->db);
    for (i = 0; i < sizeof copies / sizeof *copies && !st; i++) {
        st = waste_session_prepare(&q, s->db, s->schema, copies[i], err);
        if (st) break;
        sqlite3_bind_int64(q, 1, *id);
        sqlite3_bind_int64(q, 2, s->id); /* those that have no such place take no notice */
        sqlite3_bind_int64(q, 3, at);
        st = waste_session_run(q, "writing waste_messages", err);
    }
    return st;
}

static waste_status fork_session(int64_t *id, waste_conn *c, int argc, sqlite3_value **argv,
                                 waste_error *err)
{
    sqlite3 *db = waste_models_db(c);
    const char *name = NULL;
    waste_session s = {0};
    waste_session_scope scope;
    int64_t at;
    waste_status st = WASTE_OK;

    if (!is_null(argc, argv, 1)) st = read_name(&name, argv[1], "waste_fork", err);
    if (!st) st = read_at(argc > 2 ? argv[2] : NULL, &at, err);
    if (st) return st;
    st = waste_session_begin(&scope, db, 1, NULL, "forking a session", err);
    if (!st) st = waste_session_find(&s, db, argv[0], "waste_fork", err);
    if (!st) st = check_at(&s, at, err);
    if (!st) st = copy(id, &s, name, at, err);
    waste_session_clear(&s);
    return waste_session_end(&scope, db, st, "forking a session", err);
}

void waste_fn_fork(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    give_id(ctx, argc, argv, fork_session);
}

/* ---- waste_chat ---- */

static waste_status chat(waste_buf *out, waste_conn *c, int argc, sqlite3_value **argv,
                         const waste_cancel *cancel, waste_error *err)
{
    const waste_turn_args a = {.who = "waste_chat",
                               .session = argv[0],
                               .message = argv[1],
                               .options = argc > 2 ? argv[2] : NULL,
                               .parts = argv + 3,
                               .n_parts = argc - 3};
    waste_turn *t;
    waste_gen_token token = {0};
    waste_status st = waste_turn_open(&t, c, &a, cancel, err);
    const waste_buf *content;

    if (st) return st;
    while (!st && !(st = waste_turn_next(t, &token, err)))
        if (token.finish == WASTE_FINISH_TIMEOUT)
            st = waste_fail(
                err, WASTE_TIMEOUT,
                "waste_chat: timeout_ms %lld passed after %lld tokens; nothing was written",
                (long long)waste_turn_timeout(t), (long long)waste_turn_made(t));
    if (st == WASTE_DONE) {
        content = waste_turn_content(t);
        waste_buf_add(out, content->data, content->len);
        st = WASTE_OK;
    }
    waste_turn_close(t);
    return st;
}

void waste_fn_chat(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_conn *c = sqlite3_user_data(ctx);
    waste_interrupt stop;
    waste_cancel cancel;
    waste_buf out = {0};
    waste_error err = {0};
    waste_status st;

    if (argc < 2) {
        sqlite3_result_error(ctx, "waste_chat needs a session and a message", -1);
        return;
    }
    st = waste_direct_enter(waste_models_depth(c), &err);
    if (!st) {
        waste_interrupt_begin(&stop, waste_models_db(c));
        cancel = waste_interrupt_cancel(&stop);
        st = chat(&out, c, argc, argv, &cancel, &err);
        waste_interrupt_end(&stop);
        waste_direct_leave(waste_models_depth(c));
    }
    if (st < 0)
        waste_args_fail(ctx, &err);
    else if (!st)
        waste_args_result(ctx, &out);
    waste_buf_clear(&out);
}
