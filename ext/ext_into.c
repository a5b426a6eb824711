/* Answers into a table: see ext_into.h. Owns its statements.
 *
 * The statement that waste_batch serves reads the database for as long as it runs. A
 * row is nevertheless committed at once: SQLite commits a write when it ends, whatever
 * reads are open beside it. Only where somebody else has committed in between, with a
 * write-ahead log, a connection that still reads the old state may write no more;
 * then a second connection to the same file does, until the call ends. */
#include "ext_into.h"

#include <string.h>

#include "base/error.h"
#include "base/plat.h"

SQLITE_EXTENSION_INIT3

#define BUSY_SNAPSHOT (SQLITE_BUSY | (2 << 8)) /* SQLITE_BUSY_SNAPSHOT; not in the oldest headers */
#define WAIT_MS       10000                    /* for others who write */

static waste_status failed(const waste_into *i, const char *doing, waste_error *err)
{
    sqlite3 *db = i->own ? i->own : i->db;
    const int rc = sqlite3_errcode(db);

    if (rc == SQLITE_INTERRUPT) return waste_fail(err, WASTE_CANCELLED, "interrupted");
    return waste_fail(err,
                      rc == SQLITE_NOMEM  ? WASTE_NOMEM
                      : rc == SQLITE_BUSY ? WASTE_BUSY
                                          : WASTE_ARG,
                      "waste_batch: %s the table %.100s: %s", doing, i->name, sqlite3_errmsg(db));
}

static int prepare(sqlite3 *db, sqlite3_stmt **q, const char *sql, const char *name)
{
    char *text = sqlite3_mprintf(sql, name);
    int rc = SQLITE_NOMEM;

    if (text) rc = sqlite3_prepare_v2(db, text, -1, q, NULL);
    sqlite3_free(text);
    return rc;
}

static waste_status prepare_all(waste_into *i, sqlite3 *db, waste_error *err)
{
    int rc = prepare(db, &i->find, "SELECT 1 FROM \"%w\" WHERE key IS ?1", i->name);

    if (rc == SQLITE_OK)
        rc = prepare(db, &i->add,
                     "INSERT INTO \"%w\"(key, text, finish, error, prompt_tokens, reused_tokens,"
                     " tokens, ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
                     " ON CONFLICT(key) DO NOTHING",
                     i->name);
    return rc == SQLITE_OK ? WASTE_OK : failed(i, "using", err);
}

waste_status waste_into_open(waste_into *i, sqlite3 *db, waste_str name, waste_error *err)
{
    sqlite3_stmt *make = NULL;
    int rc;

    memset(i, 0, sizeof *i);
    i->db = db;
    if (name.bytes == 0 || name.bytes > 1000 || memchr(name.text, 0, name.bytes))
        return waste_fail(err, WASTE_ARG, "waste_batch: option 'into' is no name of a table");
    i->name = sqlite3_mprintf("%.*s", (int)name.bytes, name.text);
    if (!i->name) return waste_fail(err, WASTE_NOMEM, "out of memory for the name of a table");
    rc = prepare(db, &make,
                 "CREATE TABLE IF NOT EXISTS \"%w\"(key PRIMARY KEY, text TEXT, finish TEXT,"
                 " error TEXT, prompt_tokens INTEGER, reused_tokens INTEGER, tokens INTEGER,"
                 " ms REAL)",
                 i->name);
    if (rc == SQLITE_OK) rc = sqlite3_step(make) == SQLITE_DONE ? SQLITE_OK : SQLITE_ERROR;
    if (sqlite3_finalize(make) != SQLITE_OK) rc = SQLITE_ERROR;
    if (rc != SQLITE_OK) return failed(i, "creating", err);
    if (sqlite3_prepare_v2(db, "SELECT ?1 IS ?2", -1, &i->same, NULL) != SQLITE_OK)
        return failed(i, "using", err);
    return prepare_all(i, db, err);
}

void waste_into_close(waste_into *i)
{
    sqlite3_finalize(i->find);
    sqlite3_finalize(i->same);
    sqlite3_finalize(i->add);
    sqlite3_close(i->own);
    sqlite3_free(i->name);
    memset(i, 0, sizeof *i);
}

waste_status waste_into_has(waste_into *i, sqlite3_value *key, int *has, waste_error *err)
{
    int rc;

    sqlite3_bind_value(i->find, 1, key);
    rc = sqlite3_step(i->find);
    *has = rc == SQLITE_ROW;
    sqlite3_reset(i->find);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? WASTE_OK : failed(i, "reading", err);
}

int waste_into_same(waste_into *i, sqlite3_value *a, sqlite3_value *b)
{
    int is = 0;

    sqlite3_bind_value(i->same, 1, a);
    sqlite3_bind_value(i->same, 2, b);
    if (sqlite3_step(i->same) == SQLITE_ROW) is = sqlite3_column_int(i->same, 0);
    sqlite3_reset(i->same);
    return is;
}

/* ---- adding --------------------------------------------------------------- */

static void bind_text(sqlite3_stmt *q, int at, const char *text)
{
    if (text) sqlite3_bind_text(q, at, text, -1, SQLITE_TRANSIENT);
}

static int add(waste_into *i, sqlite3_value *key, const waste_into_row *row)
{
    sqlite3_stmt *q = i->add;

    sqlite3_clear_bindings(q);
    sqlite3_bind_value(q, 1, key);
    if (row->text.text)
        sqlite3_bind_text64(q, 2, row->text.text, row->text.bytes, SQLITE_TRANSIENT, SQLITE_UTF8);
    bind_text(q, 3, row->finish);
    bind_text(q, 4, row->error);
    if (row->tokens) {
        sqlite3_bind_int64(q, 5, row->usage.prompt_tokens);
        sqlite3_bind_int64(q, 6, row->usage.reused_tokens);
        sqlite3_bind_int64(q, 7, row->usage.completion_tokens);
        sqlite3_bind_double(q, 8, row->usage.total_ms);
    }
    sqlite3_step(q);
    return sqlite3_reset(q);
}

/* 0 when there can be no second connection. */
static int second(waste_into *i, waste_error *err)
{
    const char *file = sqlite3_db_filename(i->db, "main");

    if (i->own || !file || !*file || !sqlite3_get_autocommit(i->db)) return 0;
    sqlite3_finalize(i->find);
    sqlite3_finalize(i->add);
    i->find = i->add = NULL;
    if (sqlite3_open_v2(file, &i->own, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(i->own, 200) != SQLITE_OK || prepare_all(i, i->own, err))
        return 0;
    return 1;
}

waste_status waste_into_add(waste_into *i, sqlite3_value *key, const waste_into_row *row,
                            const waste_cancel *cancel, waste_error *err)
{
    const uint64_t began = waste_clock_ns();
    int rc;

    while ((rc = add(i, key, row)) != SQLITE_OK) {
        if ((rc & 0xff) != SQLITE_BUSY) break;
        if (sqlite3_extended_errcode(i->own ? i->own : i->db) == BUSY_SNAPSHOT) {
            if (second(i, err)) continue;
            if (!i->add) return waste_fail(err, WASTE_BUSY, "waste_batch: no second connection");
            break;
        }
        if (cancel->asked(cancel->ctx)) return waste_fail(err, WASTE_CANCELLED, "interrupted");
        if (waste_clock_ns() - began > WAIT_MS * UINT64_C(1000000)) break;
        sqlite3_sleep(20);
    }
    return rc == SQLITE_OK ? WASTE_OK : failed(i, "writing", err);
}
