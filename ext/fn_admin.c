/* waste_version, waste_setup, waste_register, waste_open, waste_close.
 *
 *     SELECT waste_register('demo', 'examples/demo/demo.waste', '{"context":2048}');
 *     -- {"name":"demo","path":"/.../demo.waste","arch":"kimi-k3","layers":...}
 *     SELECT waste_open('demo') ->> 'memory_bytes';
 *     SELECT waste_close('demo');   -- 1
 *
 * waste_register writes one row of waste_models (and makes the table); it reads
 * the container's manifest and tokenizer, never its weights. waste_open loads
 * the weights now instead of at the first use, and its options go over those of
 * the row. waste_close ends this connection's use: the memory is free when no
 * other connection uses the model. Before that it saves what the model has
 * learned, if its option "usage" says so; should that fail, the model is closed
 * all the same and the error says why. Unlike the functions that answer something,
 * register takes no NULL for an answer: a registration that did not happen must
 * not look like one that did. */
#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "ext_args.h"
#include "ext_direct.h"
#include "ext_interrupt.h"
#include "ext_models.h"
#include "ext_usage.h"
#include "fn.h"
#include "schema.h"

SQLITE_EXTENSION_INIT3

void waste_fn_version(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    (void)argc;
    (void)argv;
    sqlite3_result_text(ctx, waste_version(), -1, SQLITE_STATIC);
}

/* ---- tables ---- */

static waste_status db_failed(sqlite3 *db, const char *doing, waste_error *err)
{
    int rc = sqlite3_errcode(db) & 0xff;
    waste_status st = rc == SQLITE_NOMEM       ? WASTE_NOMEM
                      : rc == SQLITE_INTERRUPT ? WASTE_CANCELLED
                      : rc == SQLITE_BUSY      ? WASTE_BUSY
                                               : WASTE_IO;

    return waste_fail(err, st, "%s: %s", doing, sqlite3_errmsg(db));
}

static waste_status make_tables(sqlite3 *db, waste_error *err)
{
    if (sqlite3_exec(db, schema_sql, NULL, NULL, NULL) == SQLITE_OK) return WASTE_OK;
    return db_failed(db, "making the waste_* tables", err);
}

void waste_fn_setup(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    sqlite3 *db = waste_models_db(sqlite3_user_data(ctx));
    waste_error err = {0};

    (void)argc;
    (void)argv;
    if (waste_direct_check(db, &err) || make_tables(db, &err))
        waste_args_fail(ctx, &err);
    else
        sqlite3_result_text(ctx, "ok", 2, SQLITE_STATIC);
}

/* ---- summaries ---- */

static const char *chat_name(waste_chat_format chat)
{
    return chat == WASTE_CHAT_XTML ? "xtml" : chat == WASTE_CHAT_PLAIN ? "plain" : "none";
}

static void add_text(waste_buf *b, const char *key, const char *text)
{
    waste_buf_printf(b, "%s\"%s\":", b->len > 1 ? "," : "", key);
    waste_json_quote(b, text, strlen(text));
}

static void add_int(waste_buf *b, const char *key, int64_t v)
{
    waste_buf_printf(b, ",\"%s\":%lld", key, (long long)v);
}

/* Leaves the object open for more members. */
static void summary(waste_buf *b, const char *name, const char *path, const waste_container *c)
{
    const waste_info *i = waste_container_info(c);

    waste_buf_byte(b, '{');
    add_text(b, "name", name);
    add_text(b, "path", path);
    add_text(b, "arch", i->arch);
    add_int(b, "layers", i->layers);
    add_int(b, "experts", i->experts);
    add_int(b, "top_k", i->top_k);
    add_int(b, "vocab", i->vocab);
    add_int(b, "params", i->params);
    add_int(b, "active_params", i->active_params);
    add_int(b, "trunk_bytes", i->trunk_bytes);
    add_int(b, "expert_bytes", i->expert_bytes);
    add_text(b, "expert_format", i->expert_format);
    add_text(b, "chat", chat_name(i->chat));
}

/* ---- waste_register ---- */

static waste_status check_name(const char *name, waste_error *err)
{
    if (strpbrk(name, WASTE_PATH_SEPARATORS))
        return waste_fail(err, WASTE_ARG,
                          "waste_register: the name '%.200s' holds a '/': that is how a path is "
                          "told from a name",
                          name);
    return WASTE_OK;
}

/* A relative path in "usage", as the absolute one; empty when there is nothing to
 * change. As for the container: the next process has another current directory. */
static waste_status absolute_usage(char out[WASTE_PATH_MAX], const waste_usage_choice *u,
                                   waste_error *err)
{
    waste_status st;

    out[0] = 0;
    if (u->kind != WASTE_USAGE_FILE) return WASTE_OK;
    st = waste_path_absolute(out, u->path, err);
    if (!st && strcmp(out, u->path) == 0) out[0] = 0;
    return st;
}

/* The object with another "usage". */
static waste_status replace_usage(waste_buf *out, const waste_json *options, const char *usage,
                                  waste_error *err)
{
    waste_json_iter it = {0};

    waste_buf_byte(out, '{');
    while (waste_json_each(&it, options)) {
        size_t n = 0;
        char *value;

        if (out->len > 1) waste_buf_byte(out, ',');
        waste_json_quote(out, it.key, strlen(it.key));
        waste_buf_byte(out, ':');
        if (strcmp(it.key, "usage") == 0) {
            waste_json_quote(out, usage, strlen(usage));
            continue;
        }
        value = waste_json_dump(it.value, &n);
        if (!value) out->failed = 1;
        if (value) waste_buf_add(out, value, n);
        waste_mem_free(value);
    }
    waste_buf_byte(out, '}');
    return out->failed ? waste_fail(err, WASTE_NOMEM, "out of memory for options") : WASTE_OK;
}

/* The options as they will be stored, or an error; *out is NULL for none. Free it
 * with waste_mem_free. */
static waste_status check_options(char **out, sqlite3_value *v, waste_error *err)
{
    char usage[WASTE_PATH_MAX] = "";
    waste_json *doc = NULL;
    waste_buf changed = {0};
    waste_str given = {0};
    waste_wish wish;
    waste_status st;

    *out = NULL;
    memset(&wish, 0, sizeof wish);
    if (!v) return WASTE_OK;
    st = waste_args_object(&doc, v, "waste_register: options", err);
    if (!st) st = waste_wish_read(&wish, doc, "waste_register", err);
    if (!st) st = absolute_usage(usage, &wish.usage, err);
    if (!st && usage[0]) st = replace_usage(&changed, doc, usage, err);
    if (!st && doc && !usage[0]) st = waste_args_text(v, "options", &given, err);
    if (!st && usage[0]) given = (waste_str){changed.data, changed.len};
    if (!st && given.text) {
        *out = waste_mem_text(given.text, given.bytes);
        if (!*out) st = waste_fail(err, WASTE_NOMEM, "out of memory for options");
    }
    waste_buf_clear(&changed);
    waste_json_free(doc);
    return st;
}

static waste_status store_row(waste_conn *conn, const waste_model_ref *row, waste_error *err)
{
    sqlite3 *db = waste_models_db(conn);
    sqlite3_stmt *q = NULL;
    waste_status st = make_tables(db, err);
    int rc;

    if (!st) st = waste_direct_enter(waste_models_depth(conn), err);
    if (st) return st;
    rc = sqlite3_prepare_v2(db,
                            "INSERT INTO waste_models(name, path, options) VALUES(?1, ?2, ?3) "
                            "ON CONFLICT(name) DO UPDATE SET path = excluded.path, "
                            "options = excluded.options",
                            -1, &q, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(q, 1, row->label, -1, SQLITE_STATIC);
        sqlite3_bind_text(q, 2, row->path, -1, SQLITE_STATIC);
        if (row->options) sqlite3_bind_text(q, 3, row->options, -1, SQLITE_STATIC);
        rc = sqlite3_step(q);
    }
    if (rc != SQLITE_DONE) st = db_failed(db, "writing waste_models", err);
    sqlite3_finalize(q);
    waste_direct_leave(waste_models_depth(conn));
    return st;
}

/* A model that only this connection uses would go on with its old options until
 * it is closed, so it is closed now; with others it stays as it is, and using it
 * says who has it. Should what it learned not be kept, it stays open, too. */
static void let_go(waste_conn *conn, const waste_model_ref *row)
{
    waste_error ignored = {0};
    waste_usage_kept what;
    int64_t rows;

    if (!waste_models_stale(conn, row)) return;
    if (waste_usage_keep(&what, &rows, conn, row, &ignored) == WASTE_OK)
        waste_models_close(conn, row);
}

static waste_status check_container(waste_container **out, sqlite3 *db, const char *path,
                                    waste_error *err)
{
    waste_interrupt stop;
    waste_cancel cancel;
    waste_status st;

    waste_interrupt_begin(&stop, db);
    cancel = waste_interrupt_cancel(&stop);
    st = waste_container_open(out, path, &cancel, err);
    waste_interrupt_end(&stop);
    if (!st) st = waste_container_check_arch(*out, err);
    if (!st) st = waste_container_check_chat(*out, err);
    return st;
}

static waste_status register_model(waste_buf *out, waste_conn *conn, int argc, sqlite3_value **argv,
                                   waste_error *err)
{
    const char *name, *path;
    waste_model_ref row = {0}; /* as it will be: label and path are borrowed */
    char full[WASTE_PATH_MAX];
    waste_container *c = NULL;
    waste_status st = waste_direct_check(waste_models_db(conn), err);

    if (!st) st = waste_args_name(argv[0], "waste_register: the name", &name, err);
    if (!st) st = waste_args_name(argv[1], "waste_register: the path", &path, err);
    if (!st) st = check_name(name, err);
    if (!st) st = check_options(&row.options, argc > 2 ? argv[2] : NULL, err);
    if (!st) st = check_container(&c, waste_models_db(conn), path, err);
    if (!st) {
        /* whoever opens the database later has another current directory */
        st = waste_path_real(full, path, err);
    }
    if (!st) {
        row.label = (char *)name;
        row.path = full;
        st = store_row(conn, &row, err);
    }
    if (!st) {
        let_go(conn, &row);
        summary(out, name, full, c);
        waste_buf_byte(out, '}');
    }
    waste_mem_free(row.options);
    waste_container_close(c);
    return st;
}

void waste_fn_register(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_buf out = {0};
    waste_error err = {0};

    if (register_model(&out, sqlite3_user_data(ctx), argc, argv, &err))
        waste_args_fail(ctx, &err);
    else
        waste_args_result_json(ctx, &out);
    waste_buf_clear(&out);
}

/* ---- waste_open, waste_close ---- */

static const char *verify_name(int verify)
{
    return verify ? "true" : "false";
}

static void open_summary(waste_buf *out, const waste_model_ref *ref, const waste_lease *l)
{
    const waste_model_options *o = waste_models_options(l);
    waste_model_stats stats;

    waste_model_stats_get(l->model, &stats);
    summary(out, ref->label, ref->path, l->container);
    add_int(out, "context", waste_model_context(l->model));
    add_text(out, "precision", o->precision == WASTE_PRECISION_EXACT ? "exact" : "fast");
    add_text(out, "kv", o->kv == WASTE_KV_F16 ? "f16" : "f32");
    waste_buf_printf(out, ",\"verify\":%s", verify_name(o->verify));
    add_int(out, "memory_bytes", (int64_t)stats.memory_bytes);
    add_int(out, "cache_slots", (int64_t)stats.cache_slots);
    add_int(out, "connections", waste_models_users(l));
    waste_buf_byte(out, '}');
}

void waste_fn_open(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_conn *conn = sqlite3_user_data(ctx);
    waste_model_ref ref = {0};
    waste_json *options = NULL;
    waste_lease l = {0};
    waste_interrupt stop = {0};
    waste_cancel cancel = waste_interrupt_cancel(&stop);
    waste_buf out = {0};
    waste_error err = {0};
    waste_status st = WASTE_OK;

    if (sqlite3_value_type(argv[0]) == SQLITE_NULL) return;
    waste_interrupt_begin(&stop, waste_models_db(conn));
    if (argc > 1) st = waste_args_object(&options, argv[1], "waste_open: options", &err);
    if (!st) st = waste_models_find(&ref, conn, argv[0], &err);
    if (!st) st = waste_models_open(&l, conn, &ref, options, &cancel, &err);
    if (st) {
        waste_args_fail(ctx, &err);
    } else {
        open_summary(&out, &ref, &l);
        waste_args_result_json(ctx, &out);
    }
    waste_interrupt_end(&stop);
    waste_models_end(&l);
    waste_models_ref_clear(&ref);
    waste_json_free(options);
    waste_buf_clear(&out);
}

void waste_fn_close(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_conn *conn = sqlite3_user_data(ctx);
    waste_model_ref ref;
    waste_error err = {0}, unsaved = {0};
    waste_usage_kept what;
    int64_t rows;
    int closed;

    (void)argc;
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL) return;
    if (waste_models_find(&ref, conn, argv[0], &err)) {
        waste_args_fail(ctx, &err);
        return;
    }
    waste_usage_keep(&what, &rows, conn, &ref, &unsaved);
    closed = waste_models_close(conn, &ref);
    if (unsaved.status) {
        waste_fail(&err, unsaved.status, "waste_close: %s (the model is closed)", unsaved.text);
        waste_args_fail(ctx, &err);
    } else {
        sqlite3_result_int(ctx, closed);
    }
    waste_models_ref_clear(&ref);
}
