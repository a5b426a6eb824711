/* waste_calibrate(model, text [, options]), an aggregate: the model reads the texts of all
 * rows, and what comes out is how large each input channel of its experts is, as JSON.
 * waste_importance_save(path, importance): writes that to a file, which waste_convert's
 * option "importance" takes (docs/convert.md 6.4).
 *
 *     SELECT waste_calibrate('demo', 'Rome is the capital of Italy.') -> 'tokens';   -- 10
 *     SELECT waste_importance_save('/tmp/a.json', waste_calibrate('demo', body)) FROM corpus;
 *     -- 18211: tokens
 *     SELECT waste_importance_save('/tmp/a.json', waste_calibrate('demo', body, '{"add":"/tmp/a.json"}'))
 *       FROM more;                                       -- as one call over all would give
 *
 * The two are apart because SQLite ends an aggregate in the same way when the statement
 * has failed: a file would be written of half the rows.
 *
 * Options: add (a file to go on from), window (positions that are read together, each
 * window without what was before it; the smaller of 512 and the context), markup
 * (spellings of control tokens in the text are those tokens), tokens (ids in place of a
 * NULL text), progress (a line on stderr). All rows must have the same model, add and
 * window.
 *
 * A NULL model, a NULL text without tokens and an empty text add nothing; NULL when
 * nothing was added, and saving NULL gives NULL. An interrupt ends it with
 * SQLITE_INTERRUPT. waste_calibrate reads the file of `add`. waste_importance_save replaces
 * a file as a whole; one that is there and is no importance file is left alone, with an
 * error, and so is everything when what is to be saved is none. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_interrupt.h"
#include "ext_models.h"
#include "ext_progress.h"
#include "fn.h"

SQLITE_EXTENSION_INIT3

#define WHO "waste_calibrate"

/* Of one row. Texts are borrowed from doc. */
typedef struct fields {
    waste_json *doc;
    waste_str add;
    int markup, progress;
    int64_t window; /* 0: the engine's choice */
    const waste_json *tokens;
} fields;

/* From the first row that adds something to the last. Allocated for itself: SQLite's
 * context has room for a pointer to it, zeroed. */
typedef struct calibration {
    waste_lease lease;
    waste_calibration *work;
    char *label; /* the model argument; and the options that all rows share */
    char *add;   /* NULL: none */
    int64_t window;
    int some; /* tokens were added */
    waste_progress progress;
    waste_cancel stop; /* of the row that is read */
} calibration;

static void end(calibration *c)
{
    if (!c) return;
    waste_calibration_close(c->work);
    waste_models_end(&c->lease);
    waste_mem_free(c->label);
    waste_mem_free(c->add);
    waste_mem_free(c);
}

/* ---- options ---- */

static waste_status keep_array(const waste_json *value, void *into, waste_error *err)
{
    (void)err;
    if (waste_json_kind_of(value) != WASTE_JSON_ARRAY) return WASTE_ARG;
    *(const waste_json **)into = value;
    return WASTE_OK;
}

#define AT(field) offsetof(fields, field)

static const waste_option table[] = {
    {"add", WASTE_OPTION_PATH, 1, AT(add), 0, 0, "the path of a file", NULL},
    {"window", WASTE_OPTION_INT, 1, AT(window), 1, 1 << 30, "an integer from 1 to 1073741824",
     NULL},
    {"markup", WASTE_OPTION_BOOL, 1, AT(markup), 0, 0, "true or false", NULL},
    {"tokens", WASTE_OPTION_CUSTOM, 1, AT(tokens), 0, 0, "an array of token ids", keep_array},
    {"progress", WASTE_OPTION_BOOL, 1, AT(progress), 0, 0, "true or false", NULL}};

static waste_status read_fields(fields *f, sqlite3_value *options, waste_error *err)
{
    waste_status st = WASTE_OK;

    if (options) st = waste_args_object(&f->doc, options, WHO ": options", err);
    if (!st)
        st = waste_args_read(table, sizeof table / sizeof *table, 1, f, NULL, f->doc, WHO, err);
    return st;
}

static int same_text(const char *a, waste_str b)
{
    return a ? b.text && strcmp(a, b.text) == 0 : !b.text;
}

static waste_status same(const calibration *c, const fields *f, const char *label, waste_error *err)
{
    const char *what = strcmp(c->label, label) != 0 ? "the model"
                       : !same_text(c->add, f->add) ? "option 'add'"
                       : c->window != f->window     ? "option 'window'"
                                                    : NULL;

    return what ? waste_fail(err, WASTE_ARG, WHO ": %s differs between rows", what) : WASTE_OK;
}

/* ---- one row ---- */

static waste_status ids_of(waste_ids *ids, const waste_container *c, const fields *f,
                           sqlite3_value *text, waste_error *err)
{
    waste_str s;
    waste_status st;

    if (!f->tokens) {
        st = waste_args_text(text, WHO ": the text", &s, err);
        return st ? st : waste_tokenize(c, s.text, s.bytes, f->markup, ids, err);
    }
    if (sqlite3_value_type(text) != SQLITE_NULL)
        return waste_fail(err, WASTE_ARG, WHO ": a text and the option 'tokens': one of them");
    st = waste_args_ids(f->tokens, &ids->id, &ids->n, err);
    if (st == WASTE_ARG) /* unless more was said */
        waste_fail(err, st, WHO ": option 'tokens': wanted an array of token ids");
    return st;
}

static waste_status start(calibration *c, waste_conn *conn, sqlite3_value *model, const fields *f,
                          const char *label, waste_error *err)
{
    waste_status st;

    c->label = waste_mem_text(label, strlen(label));
    if (f->add.text) c->add = waste_mem_text(f->add.text, f->add.bytes);
    if (!c->label || (f->add.text && !c->add))
        return waste_fail(err, WASTE_NOMEM, "out of memory for a calibration");
    c->window = f->window;
    st = waste_models_weights(&c->lease, conn, model, &c->stop, err);
    if (!st) st = waste_calibration_open(&c->work, c->lease.model, err);
    if (!st && c->add) st = waste_calibration_load(c->work, c->add, err);
    return st;
}

static void show(calibration *c, int last)
{
    char line[80];

    snprintf(line, sizeof line, "[calibration, %llu tokens]",
             (unsigned long long)waste_calibration_tokens(c->work));
    waste_progress_line(&c->progress, line, last);
}

static int asked(void *ctx)
{
    calibration *c = ctx;

    show(c, 0);
    return c->stop.asked(c->stop.ctx);
}

static waste_status add(calibration *c, const fields *f, sqlite3_value *text, waste_error *err)
{
    const waste_cancel cancel = {asked, c};
    waste_ids ids = {0};
    waste_status st = ids_of(&ids, c->lease.container, f, text, err);

    if (!st && f->progress && !c->progress.on) waste_progress_plain(&c->progress, 1);
    if (!st) st = waste_calibration_add(c->work, ids.id, ids.n, c->window, &cancel, err);
    c->some |= ids.n > 0;
    waste_ids_clear(&ids);
    return st;
}

static waste_status row(calibration **at, waste_conn *conn, const fields *f, sqlite3_value **argv,
                        const waste_cancel *stop, waste_error *err)
{
    const char *label;
    waste_status st = waste_args_name(argv[0], WHO ": the model", &label, err);

    if (st) return st;
    if (*at) {
        st = same(*at, f, label, err);
        (*at)->stop = *stop;
    } else {
        *at = waste_mem_zero(sizeof **at);
        if (!*at) return waste_fail(err, WASTE_NOMEM, "out of memory for a calibration");
        (*at)->stop = *stop;
        st = start(*at, conn, argv[0], f, label, err);
    }
    return st ? st : add(*at, f, argv[1], err);
}

void waste_fn_calibrate_step(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_conn *conn = sqlite3_user_data(ctx);
    calibration **at = sqlite3_aggregate_context(ctx, sizeof *at);
    waste_error err = {0};
    waste_interrupt stop;
    waste_cancel cancel;
    fields f = {0};
    waste_status st;

    if (!at) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    st = read_fields(&f, argc > 2 ? argv[2] : NULL, &err);
    waste_interrupt_begin(&stop, waste_models_db(conn));
    cancel = waste_interrupt_cancel(&stop);
    if (!st && sqlite3_value_type(argv[0]) != SQLITE_NULL &&
        (f.tokens || sqlite3_value_type(argv[1]) != SQLITE_NULL))
        st = row(at, conn, &f, argv, &cancel, &err);
    waste_interrupt_end(&stop);
    waste_json_free(f.doc);
    if (!st) return;
    waste_args_fail(ctx, &err);
    end(*at);
    *at = NULL;
}

/* ---- the result ---- */

/* SQLite calls this once for every group, after an error too. */
void waste_fn_calibrate_final(sqlite3_context *ctx)
{
    calibration **at = sqlite3_aggregate_context(ctx, 0);
    waste_error err = {0};
    waste_text text = {0};

    if (!at || !*at) return;
    show(*at, 1);
    if ((*at)->some) {
        if (waste_calibration_text((*at)->work, &text, &err)) {
            waste_args_fail(ctx, &err);
        } else {
            waste_buf out = {text.text, text.bytes, text.bytes, 0};
            waste_args_result_json(ctx, &out);
        }
    }
    end(*at);
    *at = NULL;
}

/* ---- waste_importance_save ---- */

void waste_fn_importance_save(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    const char *path;
    waste_str text = {0};
    waste_error err = {0};
    uint64_t tokens = 0;
    waste_status st;

    (void)argc;
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL || sqlite3_value_type(argv[1]) == SQLITE_NULL)
        return;
    st = waste_args_name(argv[0], "waste_importance_save: the path", &path, &err);
    if (!st) st = waste_args_text(argv[1], "waste_importance_save: the importance", &text, &err);
    if (!st) st = waste_importance_publish(path, text, &tokens, &err);
    if (st)
        waste_args_fail(ctx, &err);
    else
        sqlite3_result_int64(ctx, (sqlite3_int64)tokens);
}
