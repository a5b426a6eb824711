/* Virtual tables: see ext_table.h. Owns nothing but the reference each table has
 * on its connection. */
#include "ext_table.h"

#include <string.h>

#include "base/mem.h"
#include "ext_args.h"

SQLITE_EXTENSION_INIT3

int waste_table_connect(sqlite3 *db, void *aux, const char *columns, sqlite3_vtab **out)
{
    waste_table *t;
    int rc = sqlite3_declare_vtab(db, columns);

    if (rc == SQLITE_OK) rc = sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
    if (rc != SQLITE_OK) return rc;
    t = waste_mem_zero(sizeof *t);
    if (!t) return SQLITE_NOMEM;
    t->conn = aux;
    waste_models_conn_hold(t->conn);
    *out = &t->base;
    return SQLITE_OK;
}

int waste_table_disconnect(sqlite3_vtab *base)
{
    waste_table *t = (waste_table *)base;

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
 * depends on a table not read yet makes the whole plan impossible. */
int waste_table_plan(sqlite3_index_info *info, int first, int n, int required, int sequence,
                     const char *needs)
{
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
        } else if (k < required) {
            lacks = 1;
        }
    }
    info->idxStr = lacks ? (char *)needs : NULL; /* static: SQLite does not free it */
    info->needToFreeIdxStr = 0;
    if (sequence >= 0 && info->nOrderBy == 1 && info->aOrderBy[0].iColumn == sequence &&
        !info->aOrderBy[0].desc)
        info->orderByConsumed = 1;
    info->estimatedCost = lacks ? COST_LACK : COST;
    info->estimatedRows = 100;
    return SQLITE_OK;
}

/* ---- arguments ---- */

int waste_table_args_set(waste_table_args *a, sqlite3_vtab *t, int idx_num, const char *idx_str,
                         int argc, sqlite3_value **argv)
{
    int k, i = 0;

    waste_table_args_clear(a);
    if (idx_str) {
        set_message(t, idx_str);
        return SQLITE_ERROR;
    }
    for (k = 0; k < WASTE_TABLE_ARGS && i < argc; k++) {
        if (!(idx_num & (1 << k))) continue;
        a->v[k] = sqlite3_value_dup(argv[i++]);
        if (!a->v[k]) return SQLITE_NOMEM;
    }
    return SQLITE_OK;
}

void waste_table_args_clear(waste_table_args *a)
{
    int k;

    for (k = 0; k < WASTE_TABLE_ARGS; k++) sqlite3_value_free(a->v[k]);
    memset(a, 0, sizeof *a);
}

int waste_table_args_null(const waste_table_args *a, int i)
{
    return !a->v[i] || sqlite3_value_type(a->v[i]) == SQLITE_NULL;
}

void waste_table_args_column(const waste_table_args *a, int i, sqlite3_context *ctx)
{
    if (i >= 0 && i < WASTE_TABLE_ARGS && a->v[i]) sqlite3_result_value(ctx, a->v[i]);
}

/* ---- results ---- */

int waste_table_fail(sqlite3_vtab *t, const waste_error *err)
{
    int rc = waste_args_code(err->status);

    if (rc != SQLITE_NOMEM && rc != SQLITE_INTERRUPT) set_message(t, err->text);
    return rc;
}

void waste_table_text(sqlite3_context *ctx, const char *text, size_t bytes)
{
    sqlite3_result_text64(ctx, text ? text : "", text ? bytes : 0, SQLITE_TRANSIENT, SQLITE_UTF8);
}
