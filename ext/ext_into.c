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

/* `sql` with the table's database and name in it. */
static int prepare(sqlite3 *db, sqlite3_stmt **q, const char *sql, const char *schema,
                   const char *name)
{
    char *text = sqlite3_mprintf(sql, schema, name);
    int rc = SQLITE_NOMEM;

    if (text) rc = sqlite3_prepare_v2(db, text, -1, q, NULL);
    sqlite3_free(text);
    return rc;
}

static waste_status prepare_all(waste_into *i, sqlite3 *db, const char *schema, waste_error *err)
{
    int rc = prepare(db, &i->find, "SELECT 1 FROM \"%w\".\"%w\" WHERE key IS ?1", schema, i->name);

    if (rc == SQLITE_OK)
        rc = prepare(db, &i->add,
                     "INSERT INTO \"%w\".\"%w\"(key, text, finish, error, prompt_tokens,"
                     " reused_tokens, tokens, ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
                     " ON CONFLICT(key) DO NOTHING",
                     schema, i->name);
    return rc == SQLITE_OK ? WASTE_OK : failed(i, "using", err);
}

/* Sets i->schema to where SQLite finds the table, else to the main database. */
static waste_status locate(waste_into *i, int *there, waste_error *err)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(i->db,
                                "SELECT name FROM pragma_database_list"
                                " ORDER BY seq <> 1, seq" /* 1 is temp */,
                                -1, &q, NULL);

    *there = 0;
    while (rc == SQLITE_OK && !*there && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        const char *schema = (const char *)sqlite3_column_text(q, 0);

        rc = schema ? SQLITE_OK : SQLITE_NOMEM;
        *there = schema && sqlite3_table_column_metadata(i->db, schema, i->name, NULL, NULL, NULL,
                                                         NULL, NULL, NULL) == SQLITE_OK;
        if (*there) i->schema = sqlite3_mprintf("%s", schema);
    }
    if (sqlite3_finalize(q) != SQLITE_OK) return failed(i, "looking for", err);
    if (!*there) i->schema = sqlite3_mprintf("main");
    return i->schema ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory for a name");
}

static waste_status make_table(waste_into *i, waste_error *err)
{
    sqlite3_stmt *make = NULL;
    int rc = prepare(i->db, &make,
                     "CREATE TABLE IF NOT EXISTS \"%w\".\"%w\"(key PRIMARY KEY, text TEXT,"
                     " finish TEXT, error TEXT, prompt_tokens INTEGER, reused_tokens INTEGER,"
                     " tokens INTEGER, ms REAL)",
                     i->schema, i->name);

    if (rc == SQLITE_OK) rc = sqlite3_step(make) == SQLITE_DONE ? SQLITE_OK : SQLITE_ERROR;
    if (sqlite3_finalize(make) != SQLITE_OK) rc = SQLITE_ERROR;
    return rc == SQLITE_OK ? WASTE_OK : failed(i, "creating", err);
}

waste_status waste_into_open(waste_into *i, sqlite3 *db, waste_str name, waste_error *err)
{
    const char *type = NULL;
    int there, primary = 0;
    waste_status st;

    memset(i, 0, sizeof *i);
    i->db = db;
    if (name.bytes == 0 || name.bytes > 1000 || memchr(name.text, 0, name.bytes))
        return waste_fail(err, WASTE_ARG, "waste_batch: option 'into' is no name of a table");
    i->name = sqlite3_mprintf("%.*s", (int)name.bytes, name.text);
    if (!i->name) return waste_fail(err, WASTE_NOMEM, "out of memory for the name of a table");
    st = locate(i, &there, err);
    if (!st && !there) st = make_table(i, err);
    if (!st) st = prepare_all(i, db, i->schema, err);
    if (st) return st;
    /* A comparison by IN takes affinity and collation from the column, which it reads
     * nothing of. */
    if (prepare(db, &i->same,
                "SELECT ?1 IN (SELECT ?2 UNION ALL SELECT key FROM \"%w\".\"%w\" WHERE 0)"
                " OR (?1 IS NULL AND ?2 IS NULL)",
                i->schema, i->name) != SQLITE_OK)
        return failed(i, "using", err);
    i->counts_up = sqlite3_table_column_metadata(db, i->schema, i->name, "key", &type, NULL, NULL,
                                                 &primary, NULL) == SQLITE_OK &&
                   primary && type && sqlite3_stricmp(type, "INTEGER") == 0;
    return WASTE_OK;
}

void waste_into_close(waste_into *i)
{
    sqlite3_finalize(i->find);
    sqlite3_finalize(i->same);
    sqlite3_finalize(i->add);
    sqlite3_close(i->own);
    sqlite3_free(i->schema);
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

/* Also when that cannot be told. */
static int has_temp_trigger(const waste_into *i)
{
    sqlite3_stmt *q = NULL;
    int none = 0;

    if (sqlite3_prepare_v2(i->db,
                           "SELECT 1 FROM sqlite_temp_master WHERE type = 'trigger'"
                           " AND tbl_name = ?1 COLLATE NOCASE",
                           -1, &q, NULL) == SQLITE_OK) {
        sqlite3_bind_text(q, 1, i->name, -1, SQLITE_STATIC);
        none = sqlite3_step(q) == SQLITE_DONE;
    }
    sqlite3_finalize(q);
    return !none;
}

/* What checks the rows, and what they set off, is the same there. */
static int open_like(sqlite3 **out, sqlite3 *db, const char *schema)
{
    static const int settings[] = {SQLITE_DBCONFIG_ENABLE_FKEY, SQLITE_DBCONFIG_ENABLE_TRIGGER};
    const char *file = sqlite3_db_filename(db, schema);
    sqlite3_vfs *vfs = NULL;
    size_t i;
    int rc, on;

    if (!file || !*file) return SQLITE_CANTOPEN;
    rc = sqlite3_file_control(db, schema, SQLITE_FCNTL_VFS_POINTER, &vfs);
    if (rc == SQLITE_OK)
        rc = sqlite3_open_v2(file, out, SQLITE_OPEN_READWRITE, vfs ? vfs->zName : NULL);
    if (rc == SQLITE_OK) rc = sqlite3_busy_timeout(*out, 200);
    for (i = 0; i < sizeof settings / sizeof *settings && rc == SQLITE_OK; i++) {
        rc = sqlite3_db_config(db, settings[i], -1, &on);
        if (rc == SQLITE_OK) rc = sqlite3_db_config(*out, settings[i], on, NULL);
    }
    return rc;
}

/* From now on a second connection writes. It has no TEMP triggers. */
static waste_status second(waste_into *i, waste_error *err)
{
    if (has_temp_trigger(i))
        return waste_fail(err, WASTE_BUSY,
                          "waste_batch: the database has changed, and the table %.100s has TEMP "
                          "triggers: it takes no more rows in this statement",
                          i->name);
    sqlite3_finalize(i->find);
    sqlite3_finalize(i->add);
    i->find = i->add = NULL;
    if (open_like(&i->own, i->db, i->schema) != SQLITE_OK)
        return waste_fail(err, WASTE_BUSY,
                          "waste_batch: no second connection to write the table %.100s: %s",
                          i->name, i->own ? sqlite3_errmsg(i->own) : "no file");
    return prepare_all(i, i->own, "main", err);
}

/* An error names the row by its key. */
static waste_status not_added(const waste_into *i, sqlite3_value *key, waste_error *err)
{
    const int type = sqlite3_value_type(key);
    sqlite3_value *copy = type == SQLITE_BLOB ? NULL : sqlite3_value_dup(key);
    const char *text = copy ? (const char *)sqlite3_value_text(copy) : NULL;
    char doing[160];

    sqlite3_snprintf(sizeof doing, doing, "writing the row with key %.100s to",
                     text                  ? text
                     : type == SQLITE_BLOB ? "(a BLOB)"
                                           : "NULL");
    sqlite3_value_free(copy);
    return failed(i, doing, err);
}

waste_status waste_into_add(waste_into *i, sqlite3_value *key, const waste_into_row *row,
                            const waste_cancel *cancel, waste_error *err)
{
    const uint64_t began = waste_clock_ns();
    waste_status st;
    int rc;

    if (i->counts_up && sqlite3_value_type(key) == SQLITE_NULL)
        return waste_fail(err, WASTE_ARG,
                          "waste_batch: the table %.100s has an INTEGER PRIMARY KEY, which takes "
                          "no row with key NULL",
                          i->name);
    while ((rc = add(i, key, row)) != SQLITE_OK) {
        if ((rc & 0xff) != SQLITE_BUSY) break;
        if (sqlite3_extended_errcode(i->own ? i->own : i->db) == BUSY_SNAPSHOT) {
            if (i->own || !sqlite3_get_autocommit(i->db)) break;
            st = second(i, err);
            if (st) return st;
            continue;
        }
        /* first: asking may run a statement, and SQLite then has no error to tell */
        if (waste_clock_ns() - began > WAIT_MS * UINT64_C(1000000)) break;
        if (cancel->asked(cancel->ctx)) return waste_fail(err, WASTE_CANCELLED, "interrupted");
        sqlite3_sleep(20);
    }
    return rc == SQLITE_OK ? WASTE_OK : not_added(i, key, err);
}
