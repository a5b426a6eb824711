/* Virtual tables: see ext_table.h. A module and each of its tables hold their
 * connection; a cursor owns its arguments. */
#include "ext_table.h"

#include <string.h>

#include "base/mem.h"
#include "ext_args.h"

SQLITE_EXTENSION_INIT3

/* Client data of a module. */
typedef struct registration {
    waste_conn *conn; /* held */
    const waste_table_kind *kind;
} registration;

typedef struct table {
    sqlite3_vtab base;
    waste_conn *conn; /* held */
    const waste_table_kind *kind;
} table;

static const waste_table_kind *kind_of(const waste_cursor *c)
{
    return ((const table *)c->base.pVtab)->kind;
}

waste_conn *waste_cursor_conn(const waste_cursor *c)
{
    return ((const table *)c->base.pVtab)->conn;
}

sqlite3 *waste_cursor_db(const waste_cursor *c)
{
    return waste_models_db(waste_cursor_conn(c));
}

static int table_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **message)
{
    const registration *r = aux;
    table *t;
    int rc = sqlite3_declare_vtab(db, r->kind->columns);

    (void)argc;
    (void)argv;
    (void)message;
    if (rc == SQLITE_OK) rc = sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
    if (rc != SQLITE_OK) return rc;
    t = waste_mem_zero(sizeof *t);
    if (!t) return SQLITE_NOMEM;
    t->conn = r->conn;
    t->kind = r->kind;
    waste_models_conn_hold(t->conn);
    *out = &t->base;
    return SQLITE_OK;
}

static int table_disconnect(sqlite3_vtab *base)
{
    table *t = (table *)base;

    waste_models_conn_release(t->conn);
    waste_mem_free(t);
    return SQLITE_OK;
}

/* ---- planning ---- */

static void set_message(sqlite3_vtab *t, const char *text)
{
    sqlite3_free(t->zErrMsg);
    t->zErrMsg = sqlite3_mprintf("%s", text);
}

#define COST      1e6  /* a model runs: better once than often */
#define COST_LACK 1e60 /* never, if there is another way */

/* An argument may be constrained twice, as in t(x) WHERE arg = y: one serves as
 * the argument, SQLite checks the other against the hidden column. One that
 * depends on a table not read yet makes the whole plan impossible. idxNum gets a bit
 * per argument.
 *
 * SQLite also asks for plans it will not run: for the terms of an OR it leaves the
 * arguments out. So a plan without them is a very dear one, and only running it is
 * an error, which travels in idxStr. */
static int table_best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
    const waste_table_kind *kind = ((const table *)base)->kind;
    const int first = kind->first, n = kind->args;
    int at[WASTE_TABLE_ARGS], later[WASTE_TABLE_ARGS] = {0};
    int i, k, given = 0, lacks = 0;

    for (k = 0; k < n; k++) at[k] = -1;
    for (i = 0; i < info->nConstraint; i++) {
        k = info->aConstraint[i].iColumn - first;
        if (k < 0 || k >= n || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ) continue;
        if (!info->aConstraint[i].usable)
            later[k] = 1;
        else if (at[k] < 0)
            at[k] = i;
    }
    for (k = 0; k < n; k++)
        if (at[k] < 0 && later[k]) return SQLITE_CONSTRAINT;

    info->idxNum = 0;
    for (k = 0; k < n; k++) {
        if (at[k] >= 0) {
            info->aConstraintUsage[at[k]].argvIndex = ++given;
            info->aConstraintUsage[at[k]].omit = 1;
            info->idxNum |= 1 << k;
        } else if (k < kind->required) {
            lacks = 1;
        }
    }
    info->idxStr = lacks ? (char *)kind->needs : NULL; /* static: SQLite does not free it */
    info->needToFreeIdxStr = 0;
    if (kind->ascending >= 0 && info->nOrderBy == 1 &&
        info->aOrderBy[0].iColumn == kind->ascending && !info->aOrderBy[0].desc)
        info->orderByConsumed = 1;
    info->estimatedCost = lacks ? COST_LACK : COST;
    info->estimatedRows = 100;
    return SQLITE_OK;
}

/* ---- arguments ---- */

static void clear_args(waste_table_args *a)
{
    int k;

    for (k = 0; k < WASTE_TABLE_ARGS; k++) sqlite3_value_free(a->v[k]);
    memset(a, 0, sizeof *a);
}

/* From what xFilter gets; idx_str is the error of a plan without its arguments. */
static int set_args(waste_cursor *c, int idx_num, const char *idx_str, int argc,
                    sqlite3_value **argv)
{
    int k, i = 0;

    clear_args(&c->args);
    if (idx_str) {
        set_message(c->base.pVtab, idx_str);
        return SQLITE_ERROR;
    }
    for (k = 0; k < WASTE_TABLE_ARGS && i < argc; k++) {
        if (!(idx_num & (1 << k))) continue;
        c->args.v[k] = sqlite3_value_dup(argv[i++]);
        if (!c->args.v[k]) return SQLITE_NOMEM;
    }
    return SQLITE_OK;
}

int waste_table_args_null(const waste_table_args *a, int i)
{
    return !a->v[i] || sqlite3_value_type(a->v[i]) == SQLITE_NULL;
}

/* ---- rows ---- */

static int table_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    waste_cursor *c = waste_mem_zero(((const table *)base)->kind->cursor_bytes);

    if (!c) return SQLITE_NOMEM;
    c->over = 1;
    *out = &c->base;
    return SQLITE_OK;
}

static int table_close(sqlite3_vtab_cursor *base)
{
    waste_cursor *c = (waste_cursor *)base;

    kind_of(c)->end(c);
    clear_args(&c->args);
    waste_mem_free(c);
    return SQLITE_OK;
}

/* Hands err to SQLite and returns its code. */
static int fail(sqlite3_vtab *t, const waste_error *err)
{
    int rc = waste_args_code(err->status);

    if (rc != SQLITE_NOMEM && rc != SQLITE_INTERRUPT) set_message(t, err->text);
    return rc;
}

/* After a failure a call is over, too. */
static int advance(waste_cursor *c, int starts)
{
    const waste_table_kind *kind = kind_of(c);
    waste_error err = {0};
    waste_status st = WASTE_OK;

    waste_interrupt_begin(&c->stop, waste_cursor_db(c));
    if (starts) st = kind->start(c, &err);
    if (!st) st = kind->step(c, &err);
    c->n++;
    c->over = st != WASTE_OK;
    if (st) kind->end(c);
    waste_interrupt_end(&c->stop);
    return st < 0 ? fail(c->base.pVtab, &err) : SQLITE_OK;
}

static int table_filter(sqlite3_vtab_cursor *base, int idx_num, const char *idx_str, int argc,
                        sqlite3_value **argv)
{
    waste_cursor *c = (waste_cursor *)base;
    const waste_table_kind *kind = kind_of(c);
    int i, rc;

    kind->end(c);
    c->n = 0;
    c->over = 1;
    rc = set_args(c, idx_num, idx_str, argc, argv);
    for (i = 0; i < kind->wanted && rc == SQLITE_OK; i++)
        if (waste_table_args_null(&c->args, i)) return SQLITE_OK;
    return rc == SQLITE_OK ? advance(c, 1) : rc;
}

static int table_next(sqlite3_vtab_cursor *base)
{
    return advance((waste_cursor *)base, 0);
}

static int table_eof(sqlite3_vtab_cursor *base)
{
    return ((const waste_cursor *)base)->over;
}

static int table_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
    const waste_cursor *c = (const waste_cursor *)base;
    const waste_table_kind *kind = kind_of(c);

    if (!kind->args || column < kind->first)
        kind->column(c, ctx, column);
    else if (c->args.v[column - kind->first])
        sqlite3_result_value(ctx, c->args.v[column - kind->first]);
    return SQLITE_OK;
}

static int table_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = ((const waste_cursor *)base)->n;
    return SQLITE_OK;
}

void waste_table_text(sqlite3_context *ctx, const char *text, size_t bytes)
{
    sqlite3_result_text64(ctx, text ? text : "", text ? bytes : 0, SQLITE_TRANSIENT, SQLITE_UTF8);
}

/* ---- registration ---- */

static const sqlite3_module module = {
    .iVersion = 0,
    .xCreate = NULL, /* eponymous only: a function, not a table to create */
    .xConnect = table_connect,
    .xBestIndex = table_best_index,
    .xDisconnect = table_disconnect,
    .xOpen = table_open,
    .xClose = table_close,
    .xFilter = table_filter,
    .xNext = table_next,
    .xEof = table_eof,
    .xColumn = table_column,
    .xRowid = table_rowid,
};

static void forget(void *aux)
{
    registration *r = aux;

    waste_models_conn_release(r->conn);
    waste_mem_free(r);
}

int waste_table_register(sqlite3 *db, const char *name, const waste_table_kind *kind,
                         waste_conn *conn)
{
    registration *r;

    if (!conn) return sqlite3_create_module_v2(db, name, NULL, NULL, NULL);
    r = waste_mem_zero(sizeof *r);
    if (!r) return SQLITE_NOMEM;
    r->conn = conn;
    r->kind = kind;
    waste_models_conn_hold(conn);
    return sqlite3_create_module_v2(db, name, &module, r, forget); /* on failure, too */
}
