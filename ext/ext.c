/* Entry point, and the one table of all SQL names.
 *
 * sqlite3_waste_init is the only symbol the shared object exports. Loading
 * registers everything or, when any part fails, nothing. Unloading happens when
 * the connection closes: each registration holds the connection object, and the
 * last one to go closes the models it had open. */
#include <ctype.h>
#include <string.h>

#include "base/process.h"
#include "base/utf8.h"
#include "ext_models.h"
#include "fn.h"
#include "sqlite3ext.h"
#include "vt.h"

SQLITE_EXTENSION_INIT1

#define OLDEST_SQLITE 3031000 /* direct-only functions and tables */

/* Flags that newer headers have; older hosts ignore bits they do not know. */
#define RESULT_SUBTYPE 0x001000000 /* 3.45: sets a subtype (JSON) */

/* Arguments may be paths, so nothing but a direct call may reach them. */
#define FILES (SQLITE_UTF8 | SQLITE_DIRECTONLY)
#define JSON  (FILES | RESULT_SUBTYPE)
/* Not deterministic: an index over a version is wrong after an upgrade. */
#define PURE (SQLITE_UTF8 | SQLITE_INNOCUOUS)

static const struct function {
    const char *name;
    int args; /* -1: any number, checked by the function */
    int flags;
    void (*call)(sqlite3_context *, int, sqlite3_value **); /* of an aggregate: a row */
    void (*final)(sqlite3_context *);                       /* NULL: a scalar */
} functions[] = {
    {"waste_version", 0, PURE, waste_fn_version, NULL},
    {"waste_setup", 0, FILES, waste_fn_setup, NULL},
    {"waste_register", 2, JSON, waste_fn_register, NULL},
    {"waste_register", 3, JSON, waste_fn_register, NULL},
    {"waste_open", 1, JSON, waste_fn_open, NULL},
    {"waste_open", 2, JSON, waste_fn_open, NULL},
    {"waste_close", 1, FILES, waste_fn_close, NULL},
    {"waste_calibrate", 2, JSON, waste_fn_calibrate_step, waste_fn_calibrate_final},
    {"waste_calibrate", 3, JSON, waste_fn_calibrate_step, waste_fn_calibrate_final},
    {"waste_importance_save", 2, FILES, waste_fn_importance_save, NULL},
    {"waste_usage_save", 1, FILES, waste_fn_usage_save, NULL},
    {"waste_tokenize", 2, JSON, waste_fn_tokenize, NULL},
    {"waste_tokenize", 3, JSON, waste_fn_tokenize, NULL},
    {"waste_detokenize", 2, FILES, waste_fn_detokenize, NULL},
    {"waste_token_count", 2, FILES, waste_fn_token_count, NULL},
    {"waste_token_count", 3, FILES, waste_fn_token_count, NULL},
    {"waste_generate", -1, FILES, waste_fn_generate, NULL},
    {"waste_generate_json", -1, JSON, waste_fn_generate_json, NULL},
    {"waste_render", 2, JSON, waste_fn_render, NULL},
    {"waste_render", 3, JSON, waste_fn_render, NULL},
    {"waste_chat_json", 2, JSON, waste_fn_chat_json, NULL},
    {"waste_chat_json", 3, JSON, waste_fn_chat_json, NULL},
    {"waste_session", 1, FILES, waste_fn_session, NULL},
    {"waste_session", 2, FILES, waste_fn_session, NULL},
    {"waste_session", 3, FILES, waste_fn_session, NULL},
    {"waste_fork", 1, FILES, waste_fn_fork, NULL},
    {"waste_fork", 2, FILES, waste_fn_fork, NULL},
    {"waste_fork", 3, FILES, waste_fn_fork, NULL},
    {"waste_chat", -1, FILES, waste_fn_chat, NULL},
};

static const struct table {
    const char *name;
    const waste_table_kind *kind;
} tables[] = {
    {"waste_tokens", &waste_vt_tokens},
    {"waste_next", &waste_vt_next},
    {"waste_info", &waste_vt_info},
    {"waste_tensors", &waste_vt_tensors},
    {"waste_experts", &waste_vt_experts},
    {"waste_convert", &waste_vt_convert},
    {"waste_verify", &waste_vt_verify},
    {"waste_stats", &waste_vt_stats},
    {"waste_batch", &waste_vt_batch},
    {"waste_plan", &waste_vt_plan},
    {"waste_chat_tokens", &waste_vt_chat_tokens},
};

#define N_FUNCTIONS (sizeof functions / sizeof *functions)
#define N_TABLES    (sizeof tables / sizeof *tables)

/* SQLite's functions reach us through one pointer for the whole process, so two
 * copies of SQLite cannot use this library at once. It is written only while no
 * connection uses it. */
static int take_api(const sqlite3_api_routines *api)
{
    static waste_process_gate gate = WASTE_PROCESS_GATE;
    int taken;

    waste_process_enter(&gate); /* what it guards is the same in a forked child */
    if (sqlite3_api != api && waste_models_conns() == 0) sqlite3_api = api;
    taken = sqlite3_api == api;
    pthread_mutex_unlock(&gate.mutex);
    return taken;
}

/* Registers item i of the list functions, tables; or removes it (conn NULL). */
static int set_item(sqlite3 *db, size_t i, waste_conn *conn)
{
    void (*release)(void *) = conn ? waste_models_conn_release : NULL;
    const struct function *f;
    const struct table *t;

    if (i >= N_FUNCTIONS) {
        t = &tables[i - N_FUNCTIONS];
        return waste_table_register(db, t->name, t->kind, conn);
    }
    f = &functions[i];
    if (conn) waste_models_conn_hold(conn); /* released by SQLite, on failure too */
    return sqlite3_create_function_v2(
        db, f->name, f->args, f->flags, conn, conn && !f->final ? f->call : NULL,
        conn && f->final ? f->call : NULL, conn ? f->final : NULL, release);
}

static const char *item_name(size_t i)
{
    return i < N_FUNCTIONS ? functions[i].name : tables[i - N_FUNCTIONS].name;
}

/* One pass: the text may be a megabyte of values, and each row asks. */
/* Whether the name stands at `at` as a whole: waste_session is not waste_sessions, a
 * table that anybody may write to. */
static int stands_at(const char *at, const char *name)
{
    const size_t n = strlen(name);

    return sqlite3_strnicmp(at, name, (int)n) == 0 && !isalnum((unsigned char)at[n]) &&
           at[n] != '_';
}

int waste_fn_named(const char *sql)
{
    const char *at = sql ? waste_utf8_find(sql, "waste_") : NULL;
    size_t i;

    for (; at; at = waste_utf8_find(at + 1, "waste_"))
        for (i = 0; i < N_FUNCTIONS + N_TABLES; i++)
            if (stands_at(at, item_name(i))) return 1;
    return 0;
}

static int report(sqlite3 *db, int rc, size_t i, char **message)
{
    *message = sqlite3_mprintf("waste: registering %s: %s", item_name(i), sqlite3_errmsg(db));
    return rc;
}

/* All or nothing. Names that are taken are freed first: that is where a running
 * statement makes SQLite refuse, and nothing has been changed by then. */
static int register_all(sqlite3 *db, waste_conn *conn, char **message)
{
    size_t i, undo, n = N_FUNCTIONS + N_TABLES;
    int rc;

    for (i = 0; i < N_FUNCTIONS; i++)
        if ((rc = set_item(db, i, NULL)) != SQLITE_OK) return report(db, rc, i, message);
    for (i = 0; i < n; i++) {
        if ((rc = set_item(db, i, conn)) == SQLITE_OK) continue;
        report(db, rc, i, message);
        /* After a failed init SQLite unloads the library. What cannot be taken back
         * (functions while a statement runs, such as SELECT load_extension(...)) would
         * then point at nothing, so the library stays. */
        for (undo = 0; undo < n; undo++)
            if (set_item(db, undo, NULL) != SQLITE_OK) waste_process_stay_loaded();
        return rc;
    }
    return SQLITE_OK;
}

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT int sqlite3_waste_init(sqlite3 *db, char **message, const sqlite3_api_routines *api);

int sqlite3_waste_init(sqlite3 *db, char **message, const sqlite3_api_routines *api)
{
    waste_conn *conn;
    int rc;

    if (!take_api(api)) {
        *message = api->mprintf("waste: another copy of SQLite in this process uses it already");
        return SQLITE_ERROR;
    }
    if (sqlite3_libversion_number() < OLDEST_SQLITE) {
        *message =
            sqlite3_mprintf("waste needs SQLite 3.31 or newer, this is %s", sqlite3_libversion());
        return SQLITE_ERROR;
    }
    conn = waste_models_conn_new(db);
    if (!conn) return SQLITE_NOMEM;
    rc = register_all(db, conn, message);
    waste_models_conn_release(conn);
    return rc;
}
