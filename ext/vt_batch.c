/* waste_batch(model, query [, options]): answers a table of prompts, many at once.
 *
 *     SELECT key, text, finish FROM waste_batch('demo', 'SELECT id, question FROM faq');
 *     SELECT count(*) FROM waste_batch('demo', 'SELECT id, question FROM faq',
 *                                      '{"max_tokens":64,"into":"answers"}');
 *
 * The query runs on this connection and only reads: its first column is the key, the
 * second the prompt, a third one, if there is one, the row's own options, which go
 * over those of the call. It is stepped as rows are needed. Up to `parallel` prompts
 * are worked on together, so that weights and experts are read once for all; as soon
 * as one ends the next one takes its place. What a row gets is what waste_generate
 * gives for it.
 *
 * Columns: key; text; finish: stop, length, timeout; error, and then no text; and of
 * prompts that were answered prompt_tokens, reused_tokens (of these, not computed
 * again), tokens (of the reply), ms. In the order in which they end. A row with a NULL
 * prompt has a NULL text. Hidden: model, query, options.
 *
 * {"into":"t"} also writes each row to table t when it ends (ext_into.h), committed at
 * once unless a transaction is open, and leaves out the keys that are there: what was
 * cut short goes on when it is called again. Rows for which there was no room, or which
 * a file could not be read for, are not written.
 *
 * An error of the query comes after the rows that it gave before. LIMIT, or closing
 * the statement, stops the work; an interrupt is SQLITE_INTERRUPT. */
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_direct.h"
#include "ext_interrupt.h"
#include "ext_into.h"
#include "ext_request.h"
#include "ext_table.h"
#include "vt.h"

SQLITE_EXTENSION_INIT3

enum {
    COL_KEY,
    COL_TEXT,
    COL_FINISH,
    COL_ERROR,
    COL_PROMPT_TOKENS,
    COL_REUSED_TOKENS,
    COL_TOKENS,
    COL_MS,
    COL_MODEL,
    COL_QUERY,
    COL_OPTIONS
};

#define PARALLEL 64 /* by default, where there is room */
#define TAKES    (WASTE_TAKES_PROMPT | WASTE_TAKES_SAMPLING)

/* A row of the query. Its request borrows from its values. */
typedef struct job {
    struct job *next; /* in cursor.jobs */
    sqlite3_value *value[3];
    waste_request request;
} job;

typedef struct cursor {
    waste_cursor head;
    waste_json *options;
    waste_lease lease;
    sqlite3_stmt *query; /* NULL: at its end */
    int columns;
    waste_error failed; /* the query's error, for when all before it are through */
    waste_into into;
    waste_batch *batch;
    size_t parallel;
    job *jobs;    /* all there are */
    job *waiting; /* for room in the batch */
    job *row;     /* the row; NULL: at the end */
    waste_gen *gen;
    waste_error error;
} cursor;

/* ---- rows of the query ------------------------------------------------------ */

static void job_free(cursor *c, job *j)
{
    job **at;
    int i;

    if (!j) return;
    for (at = &c->jobs; *at && *at != j; at = &(*at)->next) continue;
    if (*at) *at = j->next;
    waste_request_clear(&j->request);
    for (i = 0; i < 3; i++) sqlite3_value_free(j->value[i]);
    waste_mem_free(j);
}

static void row_free(cursor *c)
{
    waste_gen_close(c->gen);
    c->gen = NULL;
    job_free(c, c->row);
    c->row = NULL;
    memset(&c->error, 0, sizeof c->error);
}

/* What SQLite makes no statement of: space, comments, semicolons. */
static waste_status nothing_follows(sqlite3 *db, const char *rest, const char *end,
                                    waste_error *err)
{
    while (rest < end) {
        const char *at = rest;
        sqlite3_stmt *more = NULL;
        const int rc = sqlite3_prepare_v2(db, at, (int)(end - at), &more, &rest);
        const int statement = more != NULL;

        sqlite3_finalize(more);
        if (rc != SQLITE_OK || statement)
            return waste_fail(err, WASTE_ARG, "waste_batch: after the query there is more: %.40s",
                              at + strspn(at, " \t\r\n\f"));
    }
    return WASTE_OK;
}

static waste_status open_query(cursor *c, waste_error *err)
{
    sqlite3 *db = waste_cursor_db(&c->head);
    waste_str sql;
    const char *rest = "";
    waste_status st = waste_args_text(c->head.args.v[1], "the query", &sql, err);

    if (st) return st;
    if (sql.bytes > INT32_MAX) return waste_fail(err, WASTE_ARG, "the query is too long");
    if (memchr(sql.text, 0, sql.bytes))
        return waste_fail(err, WASTE_ARG, "waste_batch: the query holds a NUL byte");
    if (sqlite3_prepare_v2(db, sql.text, (int)sql.bytes, &c->query, &rest) != SQLITE_OK)
        return waste_fail(err, WASTE_ARG, "waste_batch: in the query: %s", sqlite3_errmsg(db));
    if (!c->query) return waste_fail(err, WASTE_ARG, "waste_batch: the query is empty");
    st = nothing_follows(db, rest, sql.text + sql.bytes, err);
    if (st) return st;
    c->columns = sqlite3_column_count(c->query);
    if (!sqlite3_stmt_readonly(c->query))
        return waste_fail(err, WASTE_ARG, "waste_batch: the query writes; it has to be a SELECT");
    if (sqlite3_bind_parameter_count(c->query))
        return waste_fail(err, WASTE_ARG,
                          "waste_batch: the query has parameters; nothing binds "
                          "them");
    if (c->columns < 2 || c->columns > 3)
        return waste_fail(err, WASTE_ARG,
                          "waste_batch: the query has %d column%s, wanted a key, a prompt and "
                          "perhaps options",
                          c->columns, c->columns == 1 ? "" : "s");
    return WASTE_OK;
}

/* The next row of the query; WASTE_DONE after the last one, or the one before an
 * error. The query may run views of the user's that call us again. */
static waste_status fetch(cursor *c, job **out, waste_error *err)
{
    int *depth = waste_models_depth(waste_cursor_conn(&c->head));
    waste_status st;
    job *j;
    int rc, i;

    if (!c->query) return WASTE_DONE;
    st = waste_direct_enter(depth, err);
    if (st) return st;
    rc = sqlite3_step(c->query);
    waste_direct_leave(depth);
    if (rc != SQLITE_ROW) {
        if (rc == SQLITE_INTERRUPT) return waste_fail(err, WASTE_CANCELLED, "interrupted");
        if (rc != SQLITE_DONE)
            waste_fail(&c->failed, rc == SQLITE_NOMEM ? WASTE_NOMEM : WASTE_ARG,
                       "waste_batch: in the query: %s", sqlite3_errmsg(waste_cursor_db(&c->head)));
        sqlite3_finalize(c->query);
        c->query = NULL;
        return WASTE_DONE;
    }
    j = waste_mem_zero(sizeof *j);
    if (!j) return waste_fail(err, WASTE_NOMEM, "out of memory for a row");
    j->next = c->jobs;
    c->jobs = j;
    for (i = 0; i < c->columns; i++)
        if (!(j->value[i] = sqlite3_value_dup(sqlite3_column_value(c->query, i))))
            return waste_fail(err, WASTE_NOMEM, "out of memory for a row");
    *out = j;
    return WASTE_OK;
}

/* With a table to write to: whether there is nothing to do for this row. The first one
 * of a key counts. */
static waste_status is_done(cursor *c, const job *j, int *done, waste_error *err)
{
    const job *o;
    waste_status st;

    *done = 0;
    if (!c->into.db) return WASTE_OK;
    st = waste_into_has(&c->into, j->value[0], done, err);
    for (o = c->jobs; o && !st && !*done; o = o->next)
        *done = o != j && waste_into_same(&c->into, o->value[0], j->value[0]);
    return st;
}

/* ---- the work ------------------------------------------------------------------ */

static waste_status read_job(cursor *c, job *j, waste_error *err)
{
    waste_request *r = &j->request;
    waste_status st;

    waste_request_clear(r);
    st =
        waste_request_read_over(r, "waste_batch", TAKES, c->options, j->value[1], j->value[2], err);
    if (!st && r->progress)
        st =
            waste_fail(err, WASTE_ARG, "waste_batch takes no option 'progress': its rows are that");
    return st;
}

static waste_into_row row_of(const cursor *c)
{
    waste_into_row r;

    memset(&r, 0, sizeof r);
    if (c->error.status) {
        r.error = c->error.text;
    } else if (c->gen) {
        r.text = waste_gen_text(c->gen);
        r.finish = waste_gen_finish_reason(c->gen);
        r.tokens = 1;
        waste_gen_usage(c->gen, &r.usage);
    }
    return r;
}

/* Into the table. Writing it runs triggers of the user's, and TEMP ones may
 * call us again. */
static waste_status write_row(cursor *c, waste_error *err)
{
    const waste_cancel cancel = waste_interrupt_cancel(&c->head.stop);
    int *depth = waste_models_depth(waste_cursor_conn(&c->head));
    const waste_into_row row = row_of(c);
    waste_status st = waste_direct_enter(depth, err);

    if (st) return st;
    st = waste_into_add(&c->into, c->row->value[0], &row, &cancel, err);
    waste_direct_leave(depth);
    return st;
}

/* Puts rows of the query to work. WASTE_DONE: c->row is one that has ended already. */
static waste_status admit(cursor *c, waste_error *err)
{
    while (waste_batch_size(c->batch) < c->parallel) {
        waste_error why = {0};
        waste_status st = WASTE_OK;
        job *j = c->waiting;
        int done = 0;

        c->waiting = NULL;
        if (!j) {
            st = fetch(c, &j, err);
            if (st) return st == WASTE_DONE ? WASTE_OK : st;
            st = is_done(c, j, &done, err);
            if (st) return st;
        }
        if (done) {
            job_free(c, j);
            continue;
        }
        st = read_job(c, j, &why);
        if (!st) st = waste_batch_add(c->batch, &j->request.prompt, &j->request.params, j, &why);
        if (st == WASTE_BUSY && waste_batch_size(c->batch)) {
            c->waiting = j;
            return WASTE_OK;
        }
        if (st) {
            c->row = j;
            if (st < 0) c->error = why;
            return WASTE_DONE;
        }
    }
    return WASTE_OK;
}

/* What is wrong at the moment, and not with the row: that is no answer to write down, so
 * that the row is tried again by the next call. */
static int is_passing(waste_status st)
{
    return st == WASTE_NOMEM || st == WASTE_RAM_BUDGET || st == WASTE_BUSY || st == WASTE_IO;
}

/* The next row, or the end. */
static waste_status step(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    waste_batch_end ended = {0};
    waste_status st;

    row_free(c);
    st = admit(c, err);
    if (!st) {
        st = waste_batch_next(c->batch, &ended, err);
        if (st == WASTE_DONE && c->failed.status)
            return waste_fail(err, c->failed.status, "%s", c->failed.text);
        if (st) return st; /* WASTE_DONE: nothing can be waiting */
        c->row = ended.tag;
        c->gen = ended.gen;
        c->error = ended.error;
    } else if (st != WASTE_DONE) {
        return st;
    }
    return c->into.db && !is_passing(c->error.status) ? write_row(c, err) : WASTE_OK;
}

static waste_status start(waste_cursor *base, waste_error *err)
{
    cursor *c = (cursor *)base;
    const waste_cancel cancel = waste_interrupt_cancel(&c->head.stop);
    int64_t parallel = 0;
    waste_str into = {0};
    waste_status st = WASTE_OK;

    if (c->head.args.v[2])
        st = waste_args_object(&c->options, c->head.args.v[2], "waste_batch: options", err);
    if (!st) st = waste_request_batch(c->options, "waste_batch", TAKES, &parallel, &into, err);
    if (!st) st = open_query(c, err);
    if (!st)
        st = waste_models_weights(&c->lease, waste_cursor_conn(&c->head), c->head.args.v[0],
                                  &cancel, err);
    c->parallel = parallel ? (size_t)parallel : PARALLEL;
    if (!st) st = waste_batch_open(&c->batch, c->lease.model, (int)c->parallel, &cancel, err);
    /* last: a call that cannot begin makes no table */
    if (!st && into.text) st = waste_into_open(&c->into, waste_cursor_db(&c->head), into, err);
    return st;
}

static void end(waste_cursor *base)
{
    cursor *c = (cursor *)base;

    row_free(c);
    waste_batch_close(c->batch);
    c->batch = NULL;
    while (c->jobs) job_free(c, c->jobs);
    c->waiting = NULL;
    sqlite3_finalize(c->query);
    c->query = NULL;
    waste_into_close(&c->into);
    waste_models_end(&c->lease);
    waste_json_free(c->options);
    c->options = NULL;
    memset(&c->failed, 0, sizeof c->failed);
}

static void column(const waste_cursor *base, sqlite3_context *ctx, int column)
{
    const cursor *c = (const cursor *)base;
    const waste_into_row r = row_of(c);

    switch (column) {
    case COL_KEY: sqlite3_result_value(ctx, c->row->value[0]); break;
    case COL_TEXT:
        if (r.text.text) waste_table_text(ctx, r.text.text, r.text.bytes);
        break;
    case COL_FINISH:
        if (r.finish) sqlite3_result_text(ctx, r.finish, -1, SQLITE_STATIC);
        break;
    case COL_ERROR:
        if (r.error) waste_table_text(ctx, r.error, strlen(r.error));
        break;
    case COL_PROMPT_TOKENS:
        if (r.tokens) sqlite3_result_int64(ctx, r.usage.prompt_tokens);
        break;
    case COL_REUSED_TOKENS:
        if (r.tokens) sqlite3_result_int64(ctx, r.usage.reused_tokens);
        break;
    case COL_TOKENS:
        if (r.tokens) sqlite3_result_int64(ctx, r.usage.completion_tokens);
        break;
    default:
        if (r.tokens) sqlite3_result_double(ctx, r.usage.total_ms);
        break;
    }
}

const waste_table_kind waste_vt_batch = {
    .columns = "CREATE TABLE x(key, text TEXT, finish TEXT, error TEXT, prompt_tokens INTEGER,"
               " reused_tokens INTEGER, tokens INTEGER, ms REAL, model HIDDEN, query HIDDEN,"
               " options HIDDEN)",
    .first = COL_MODEL,
    .args = 3,
    .required = 2,
    .wanted = 2,
    .needs = "waste_batch needs a model and a query",
    .ascending = -1,
    .cursor_bytes = sizeof(cursor),
    .start = start,
    .step = step,
    .column = column,
    .end = end,
};
