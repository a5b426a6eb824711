/* Calls answered already: see ext_memo.h. A statement's answers belong to SQLite, which
 * frees them when the statement ends. */
#include "ext_memo.h"

#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "ext_args.h"
#include "ext_direct.h"

SQLITE_EXTENSION_INIT3

#define KEEP       64        /* answers of a statement, at most */
#define KEEP_BYTES (1 << 20) /* that one of them may have, its call included */

/* Data of the whole statement: SQLite keeps what has a negative number until the
 * statement ends, as its own JSON functions need it to. */
#define STATEMENT (-1463898964)

typedef struct answer {
    char *call, *result;
    size_t call_bytes, result_bytes;
} answer;

typedef struct answers {
    size_t next; /* the oldest */
    answer a[KEEP];
} answers;

/* Length before bytes, so that no two lists of arguments look alike. */
static void add(waste_buf *out, sqlite3_value *v)
{
    const int type = sqlite3_value_type(v);
    const void *bytes =
        type == SQLITE_BLOB ? sqlite3_value_blob(v) : (const void *)sqlite3_value_text(v);
    const int n = sqlite3_value_bytes(v);

    waste_buf_printf(out, " %d:%d:", type, n);
    if (n && bytes) waste_buf_add(out, bytes, (size_t)n);
}

static void answer_clear(answer *a)
{
    waste_mem_free(a->call);
    waste_mem_free(a->result);
    memset(a, 0, sizeof *a);
}

static void answers_free(void *p)
{
    answers *s = p;
    size_t i;

    for (i = 0; i < KEEP; i++) answer_clear(&s->a[i]);
    waste_mem_free(s);
}

static int find(const waste_memo *m, sqlite3_context *ctx)
{
    const answers *s = sqlite3_get_auxdata(ctx, STATEMENT);
    const waste_buf *call = &m->call;
    size_t i;

    for (i = 0; s && !call->failed && i < KEEP; i++) {
        const answer *a = &s->a[i];

        if (!a->call || a->call_bytes != call->len || memcmp(a->call, call->data, call->len) != 0)
            continue;
        sqlite3_result_text64(ctx, a->result, a->result_bytes, SQLITE_TRANSIENT, SQLITE_UTF8);
        if (m->json) sqlite3_result_subtype(ctx, 'J');
        return 1;
    }
    return 0;
}

int waste_memo_begin(waste_memo *m, sqlite3_context *ctx, const char *who, int json, int argc,
                     sqlite3_value **argv)
{
    int i;

    memset(m, 0, sizeof *m);
    m->json = json;
    waste_buf_text(&m->call, who);
    for (i = 1; i < argc; i++) add(&m->call, argv[i]);
    m->request.bytes = m->call.len;
    if (argc) add(&m->call, argv[0]);
    m->request.text = m->call.failed ? NULL : m->call.data;
    if (!find(m, ctx)) return 0;
    waste_memo_clear(m);
    return 1;
}

void waste_memo_clear(waste_memo *m)
{
    waste_buf_clear(&m->call);
}

static char *copy(const waste_buf *b)
{
    char *p = waste_mem_alloc(b->len + 1);

    if (p && b->len) memcpy(p, b->data, b->len);
    return p;
}

static void keep(sqlite3_context *ctx, const waste_buf *call, const waste_buf *result)
{
    answers *s = sqlite3_get_auxdata(ctx, STATEMENT);
    answer *a;

    if (call->failed || result->failed || call->len > KEEP_BYTES ||
        result->len > KEEP_BYTES - call->len)
        return;
    if (!s) {
        s = waste_mem_zero(sizeof *s);
        if (!s) return;
        sqlite3_set_auxdata(ctx, STATEMENT, s, answers_free);
        s = sqlite3_get_auxdata(ctx, STATEMENT); /* NULL: SQLite had no memory and freed it */
        if (!s) return;
    }
    a = &s->a[s->next];
    answer_clear(a);
    a->call = copy(call);
    a->result = copy(result);
    if (!a->call || !a->result) {
        answer_clear(a);
        return;
    }
    a->call_bytes = call->len;
    a->result_bytes = result->len;
    s->next = (s->next + 1) % KEEP;
}

/* ---- the table ------------------------------------------------------------- */

static void key_of(char out[80], const waste_identity *id, waste_str request)
{
    uint64_t h = 0;
    size_t i;

    for (i = 0; i < request.bytes; i++) {
        const int32_t byte = (unsigned char)request.text[i];

        h = waste_tokens_hash(h, &byte, 1);
    }
    sqlite3_snprintf(80, out, "%016llx-%016llx-%016llx", (unsigned long long)id->weights,
                     (unsigned long long)id->text, (unsigned long long)h);
}

static waste_status failed(sqlite3 *db, const char *doing, waste_error *err)
{
    const int rc = sqlite3_errcode(db);

    if (rc == SQLITE_INTERRUPT) return waste_fail(err, WASTE_CANCELLED, "interrupted");
    return waste_fail(err, rc == SQLITE_NOMEM ? WASTE_NOMEM : WASTE_ARG, "%s waste_cache: %s",
                      doing, sqlite3_errmsg(db));
}

static int has_table(sqlite3 *db)
{
    return sqlite3_table_column_metadata(db, NULL, "waste_cache", NULL, NULL, NULL, NULL, NULL,
                                         NULL) == SQLITE_OK;
}

/* Anybody may have written it: whether a call gives such an answer. */
static int is_answer(const char *text, size_t bytes, int json)
{
    waste_json *doc = NULL;
    int is;

    if (!json) return waste_utf8_valid(text, bytes);
    is = !waste_json_parse(&doc, text, bytes, 0, "waste_cache", WASTE_ARG, NULL) &&
         waste_json_kind_of(doc) == WASTE_JSON_OBJECT;
    waste_json_free(doc);
    return is;
}

static waste_status read_stored(waste_buf *out, sqlite3 *db, const char *key, waste_str request,
                                int json, waste_error *err)
{
    sqlite3_stmt *q = NULL;
    waste_status st = WASTE_DONE;
    int rc;

    rc = sqlite3_prepare_v2(db, "SELECT result FROM waste_cache WHERE key = ?1 AND request = ?2",
                            -1, &q, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
        sqlite3_bind_blob64(q, 2, request.text, request.bytes, SQLITE_STATIC);
        rc = sqlite3_step(q);
    }
    if (rc == SQLITE_ROW && sqlite3_column_type(q, 0) == SQLITE_TEXT) {
        const char *text = (const char *)sqlite3_column_text(q, 0);
        const size_t bytes = text ? (size_t)sqlite3_column_bytes(q, 0) : 0;

        if (!text) {
            st = waste_fail(err, WASTE_NOMEM, "out of memory");
        } else if (is_answer(text, bytes, json)) {
            waste_buf_add(out, text, bytes);
            st = out->failed ? waste_fail(err, WASTE_NOMEM, "out of memory") : WASTE_OK;
        }
    } else if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        st = failed(db, "reading", err);
    }
    sqlite3_finalize(q);
    return st;
}

/* Appends the answer in the table; WASTE_DONE when it is not there. */
static waste_status find_stored(waste_buf *out, waste_conn *c, const waste_memo *m,
                                waste_error *err)
{
    sqlite3 *db = waste_models_db(c);
    char key[80];
    waste_status st;

    if (!m->request.text) return waste_fail(err, WASTE_NOMEM, "out of memory for a call");
    if (!has_table(db)) return WASTE_DONE;
    key_of(key, &m->id, m->request);
    st = waste_direct_enter(waste_models_depth(c), err);
    if (st) return st;
    st = read_stored(out, db, key, m->request, m->json, err);
    waste_direct_leave(waste_models_depth(c));
    return st;
}

static int run(sqlite3 *db, const char *sql, const char *key, waste_str request,
               const waste_buf *result)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);

    if (rc == SQLITE_OK && key) {
        sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
        sqlite3_bind_blob64(q, 2, request.text, request.bytes, SQLITE_STATIC);
        sqlite3_bind_text64(q, 3, result->len ? result->data : "", result->len, SQLITE_STATIC,
                            SQLITE_UTF8);
    }
    if (rc == SQLITE_OK) sqlite3_step(q);
    if (rc == SQLITE_OK) return sqlite3_finalize(q);
    sqlite3_finalize(q);
    return rc;
}

static waste_status store(waste_conn *c, const waste_identity *id, waste_str request,
                          const waste_buf *result, waste_error *err)
{
    sqlite3 *db = waste_models_db(c);
    char key[80];
    waste_status st;
    int rc = SQLITE_OK;

    if (result->failed) return waste_fail(err, WASTE_NOMEM, "out of memory for an answer");
    key_of(key, id, request);
    st = waste_direct_enter(waste_models_depth(c), err);
    if (st) return st;
    if (!has_table(db))
        rc = run(db,
                 "CREATE TABLE IF NOT EXISTS waste_cache(key TEXT PRIMARY KEY NOT NULL,"
                 " request BLOB NOT NULL, result TEXT NOT NULL,"
                 " created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
                 NULL, request, NULL);
    if (rc == SQLITE_OK)
        rc = run(db, "INSERT OR REPLACE INTO waste_cache(key, request, result) VALUES (?1, ?2, ?3)",
                 key, request, result);
    if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY && (rc & 0xff) != SQLITE_LOCKED)
        st = failed(db, "writing", err);
    waste_direct_leave(waste_models_depth(c));
    return st;
}

/* ---- one call -------------------------------------------------------------- */

waste_status waste_memo_look(waste_memo *m, waste_conn *c, waste_model *model, int cache,
                             waste_buf *out, waste_error *err)
{
    waste_status st;

    m->cache = cache;
    if (!cache) return WASTE_DONE;
    st = waste_model_identity(model, &m->id, err);
    if (!st) st = find_stored(out, c, m, err);
    m->stored = !st;
    return st;
}

waste_memo_keep waste_memo_where(waste_finish finish, const waste_usage *usage,
                                 const waste_gen_params *params)
{
    if (finish == WASTE_FINISH_TIMEOUT) return WASTE_MEMO_NOWHERE;
    return finish == WASTE_FINISH_LENGTH && usage->completion_tokens < params->max_tokens
               ? WASTE_MEMO_STATEMENT
               : WASTE_MEMO_TABLE;
}

void waste_memo_give(waste_memo *m, sqlite3_context *ctx, waste_buf *result, waste_memo_keep where)
{
    waste_error err = {0};

    if (where != WASTE_MEMO_NOWHERE) {
        if (m->cache && !m->stored && where == WASTE_MEMO_TABLE &&
            store(sqlite3_user_data(ctx), &m->id, m->request, result, &err)) {
            waste_args_fail(ctx, &err);
            return;
        }
        keep(ctx, &m->call, result);
    }
    if (m->json)
        waste_args_result_json(ctx, result);
    else
        waste_args_result(ctx, result);
}
