/* Learned demand between runs: see ext_usage.h. Keeps nothing; the rows are in
 * the connection's database, the file is the engine's. */
#include "ext_usage.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "ext_direct.h"
#include "schema.h"

SQLITE_EXTENSION_INIT3

waste_status waste_usage_option(const waste_json *value, void *into, waste_error *err)
{
    waste_usage_choice *c = into;
    size_t bytes;
    const char *text = waste_json_text(value, &bytes);
    int64_t n = -1;
    int on;

    memset(c, 0, sizeof *c);
    if (!text) {
        if (waste_json_bool(value, &on)) {
            if (waste_json_int(value, &n) || n < 0 || n > 1) return WASTE_ARG;
            on = (int)n;
        }
        c->kind = on ? WASTE_USAGE_INSIDE : WASTE_USAGE_OFF;
        return WASTE_OK;
    }
    if (bytes == 5 && memcmp(text, "table", 5) == 0) {
        c->kind = WASTE_USAGE_TABLE;
        return WASTE_OK;
    }
    if (strcspn(text, WASTE_PATH_SEPARATORS) >= bytes || memchr(text, 0, bytes)) return WASTE_ARG;
    if (bytes >= sizeof c->path)
        return waste_fail(err, WASTE_ARG, "option 'usage': the path has %zu bytes, at most %zu",
                          bytes, sizeof c->path - 1);
    memcpy(c->path, text, bytes);
    c->kind = WASTE_USAGE_FILE;
    return WASTE_OK;
}

/* Most rows a model can have. */
static size_t most_rows(waste_model *m)
{
    const waste_info *i = waste_container_info(waste_model_container(m));

    return (size_t)i->moe_layers * (size_t)i->experts;
}

/* ---- restore ---- */

void waste_usage_restore(sqlite3 *db, const char *name, waste_model *m)
{
    const size_t most = most_rows(m);
    waste_usage_row *rows = waste_mem_array(most, sizeof *rows);
    waste_error ignored = {0};
    sqlite3_stmt *q = NULL;
    size_t n = 0;

    if (rows &&
        sqlite3_prepare_v2(db,
                           "SELECT layer, expert, hits FROM waste_usage WHERE model = ?1 AND "
                           "layer BETWEEN 0 AND 65535 AND expert BETWEEN 0 AND 65535 AND "
                           "hits BETWEEN 1 AND 4294967295 ORDER BY hits DESC, layer, expert "
                           "LIMIT ?2",
                           -1, &q, NULL) == SQLITE_OK) {
        sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 2, (sqlite3_int64)most);
        for (; n < most && sqlite3_step(q) == SQLITE_ROW; n++) {
            rows[n].layer = sqlite3_column_int(q, 0);
            rows[n].expert = sqlite3_column_int(q, 1);
            rows[n].hits = (uint32_t)sqlite3_column_int64(q, 2);
        }
    }
    sqlite3_finalize(q);
    if (n) waste_usage_warm(m, rows, n, &ignored);
    waste_mem_free(rows);
}

/* ---- keep ---- */

static waste_status db_failed(sqlite3 *db, const char *name, waste_error *err)
{
    int rc = sqlite3_errcode(db) & 0xff;
    waste_status st = rc == SQLITE_NOMEM                         ? WASTE_NOMEM
                      : rc == SQLITE_INTERRUPT                   ? WASTE_CANCELLED
                      : rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? WASTE_BUSY
                                                                 : WASTE_IO;

    return waste_fail(err, st, "writing the usage of model '%s' to waste_usage: %s", name,
                      sqlite3_errmsg(db));
}

/* Two decimal digits a byte, so that hex() spells them. */
static void add_digits(waste_buf *b, uint64_t v, int bytes)
{
    char pairs[8];
    int i;

    for (i = bytes; i-- > 0; v /= 100) pairs[i] = (char)((v / 10 % 10) << 4 | v % 10);
    waste_buf_add(b, pairs, (size_t)bytes);
}

static waste_status learned(waste_buf *text, int64_t *n, waste_model *m, waste_error *err)
{
    const size_t most = most_rows(m);
    waste_usage_row *rows = waste_mem_array(most, sizeof *rows);
    size_t count = 0, i;
    waste_status st;

    if (!most) return WASTE_OK;
    if (!rows) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu usage rows", most);
    st = waste_usage_get(m, rows, most, &count, err);
    for (i = 0; i < count && !st; i++) {
        add_digits(text, (uint64_t)rows[i].layer, 2);
        add_digits(text, (uint64_t)rows[i].expert, 5);
        add_digits(text, rows[i].hits, 5);
    }
    waste_mem_free(rows);
    if (!st && text->failed) st = waste_fail(err, WASTE_NOMEM, "out of memory for the usage");
    *n = (int64_t)count;
    return st;
}

/* All rows in one statement: outside a transaction each would be one of its own,
 * and synced to disk. They travel as digits in a blob, of which substr() costs
 * nothing, and come out by hex(): a cast to text would read the blob as UTF-16
 * where that is the database's encoding. */
static waste_status insert(sqlite3 *db, const char *name, const waste_buf *text, int64_t n,
                           waste_error *err)
{
    static const char *const sql[] = {
        "DELETE FROM waste_usage WHERE model = ?1",
        "WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i + 1 < ?3) "
        "INSERT INTO waste_usage(model, layer, expert, hits) SELECT ?1, "
        "CAST(hex(substr(?2, 12 * i + 1, 2)) AS INTEGER), "
        "CAST(hex(substr(?2, 12 * i + 3, 5)) AS INTEGER), "
        "CAST(hex(substr(?2, 12 * i + 8, 5)) AS INTEGER) FROM r"};
    waste_status st = WASTE_OK;
    size_t i;

    for (i = 0; i < (n ? 2u : 1u) && !st; i++) {
        sqlite3_stmt *q = NULL;
        int rc = sqlite3_prepare_v2(db, sql[i], -1, &q, NULL);

        if (rc == SQLITE_OK) {
            sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
            if (i) {
                sqlite3_bind_blob64(q, 2, text->data, text->len, SQLITE_STATIC);
                sqlite3_bind_int64(q, 3, n);
            }
            rc = sqlite3_step(q);
        }
        if (rc != SQLITE_DONE) st = db_failed(db, name, err);
        sqlite3_finalize(q);
    }
    return st;
}

static waste_status keep_table(int64_t *rows, waste_conn *conn, const char *name, waste_model *m,
                               waste_error *err)
{
    sqlite3 *db = waste_models_db(conn);
    waste_buf text = {0};
    waste_status st = learned(&text, rows, m, err);

    if (!st && sqlite3_exec(db, schema_sql, NULL, NULL, NULL) != SQLITE_OK)
        st = db_failed(db, name, err);
    if (!st) st = waste_direct_enter(waste_models_depth(conn), err);
    if (!st) {
        st = insert(db, name, &text, *rows, err);
        waste_direct_leave(waste_models_depth(conn));
    }
    waste_buf_clear(&text);
    return st;
}

static waste_status keep_file(int64_t *rows, const char *path, waste_model *m, waste_error *err)
{
    waste_path_info i;
    waste_status st = waste_usage_save(m, path, err);

    if (!st && waste_path_stat(&i, path, NULL) == WASTE_OK && i.bytes >= 16)
        *rows = (int64_t)(i.bytes - 16) / 16;
    return st;
}

waste_status waste_usage_keep(waste_usage_kept *what, int64_t *rows, waste_conn *conn,
                              const waste_model_ref *ref, waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_lease l;
    waste_status st = waste_models_opened(&l, conn, ref, err);
    const waste_usage_choice *choice;

    *rows = 0;
    *what = WASTE_USAGE_NOT_OPEN;
    if (st) return st == WASTE_DONE ? WASTE_OK : st;
    choice = waste_models_usage(&l);
    *what = choice->kind == WASTE_USAGE_OFF ? WASTE_USAGE_NOWHERE : WASTE_USAGE_KEPT;
    if (choice->kind == WASTE_USAGE_TABLE)
        st = keep_table(rows, conn, ref->label, l.model, err);
    else if (choice->kind == WASTE_USAGE_FILE)
        st = keep_file(rows, choice->path, l.model, err);
    else if (choice->kind == WASTE_USAGE_INSIDE)
        st = waste_path_join(path, sizeof path, ref->path, "usage.waste", err);
    if (!st && choice->kind == WASTE_USAGE_INSIDE) st = keep_file(rows, path, l.model, err);
    waste_models_end(&l);
    return st;
}
