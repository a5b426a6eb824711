/* waste_tokenize, waste_detokenize, waste_token_count. They read the container's
 * tokenizer and never load its weights.
 *
 *     SELECT waste_tokenize('demo', 'Rome is');                  -- [82,458,287]
 *     SELECT waste_detokenize('demo', '[82,458,287]');           -- Rome is
 *     SELECT waste_token_count('demo', '<|sep|>');               -- 6: text, not a token
 *     SELECT waste_token_count('demo', '<|sep|>', '{"markup":true}');   -- 1
 *
 * Text is content: the spelling of a control token is ordinary characters unless
 * {"markup":true}. NUL bytes and invalid UTF-8 keep their bytes. NULL in, NULL
 * out. A container without a tokenizer is an error. */
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"
#include "ext_models.h"
#include "ext_request.h"
#include "fn.h"

SQLITE_EXTENSION_INIT3

/* WASTE_DONE: an argument is NULL, so the answer is. */
static waste_status ids_of(waste_ids *out, sqlite3_context *ctx, const char *who, int argc,
                           sqlite3_value **argv, waste_error *err)
{
    waste_request r = {0};
    waste_lease l = {0};
    waste_status st;

    if (sqlite3_value_type(argv[0]) == SQLITE_NULL) return WASTE_DONE;
    st = waste_request_read(&r, who, WASTE_TAKES_MARKUP, argv[1], argc > 2 ? argv[2] : NULL, err);
    if (!st) st = waste_models_container(&l, sqlite3_user_data(ctx), argv[0], err);
    if (!st)
        st = waste_tokenize(l.container, r.prompt.text.text, r.prompt.text.bytes, r.prompt.markup,
                            out, err);
    waste_models_end(&l);
    waste_request_clear(&r);
    return st;
}

void waste_fn_tokenize(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_ids ids = {0};
    waste_buf out = {0};
    waste_error err = {0};
    waste_status st = ids_of(&ids, ctx, "waste_tokenize", argc, argv, &err);
    size_t i;

    if (st < 0) {
        waste_args_fail(ctx, &err);
    } else if (!st) {
        waste_buf_byte(&out, '[');
        for (i = 0; i < ids.n; i++) waste_buf_printf(&out, i ? ",%d" : "%d", (int)ids.id[i]);
        waste_buf_byte(&out, ']');
        waste_args_result_json(ctx, &out);
    }
    waste_buf_clear(&out);
    waste_ids_clear(&ids);
}

void waste_fn_token_count(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    waste_ids ids = {0};
    waste_error err = {0};
    waste_status st = ids_of(&ids, ctx, "waste_token_count", argc, argv, &err);

    if (st < 0)
        waste_args_fail(ctx, &err);
    else if (!st)
        sqlite3_result_int64(ctx, (sqlite3_int64)ids.n);
    waste_ids_clear(&ids);
}

/* ---- waste_detokenize ---- */

static waste_status read_ids(int32_t **ids, size_t *n, sqlite3_value *v, waste_error *err)
{
    waste_json *doc = NULL;
    waste_str text;
    waste_status st = waste_args_text(v, "waste_detokenize: the list of ids", &text, err);

    if (!st && memchr(text.text, 0, text.bytes))
        st = waste_fail(err, WASTE_ARG, "waste_detokenize: the list of ids holds a NUL byte");
    if (!st)
        st = waste_json_parse(&doc, text.text, text.bytes, 0, "waste_detokenize: ids", WASTE_ARG,
                              err);
    if (!st) st = waste_args_ids(doc, ids, n, err);
    if (st == WASTE_ARG) /* unless more was said */
        waste_fail(err, st, "waste_detokenize: wanted a JSON array of token ids, found %s",
                   waste_json_kind_name(waste_json_kind_of(doc)));
    waste_json_free(doc);
    return st;
}

static waste_status spell(waste_buf *out, const waste_container *c, const int32_t *ids, size_t n,
                          waste_error *err)
{
    const waste_info *info = waste_container_info(c);
    waste_utf8 u = {{0}, 0};
    char *to;
    size_t i;

    if (!info->has_tokenizer)
        return waste_fail(err, WASTE_UNSUPPORTED, "%s: the container has no tokenizer", info->path);
    for (i = 0; i < n; i++) {
        size_t bytes;
        const char *text;
        if (ids[i] >= info->vocab)
            return waste_fail(err, WASTE_ARG,
                              "waste_detokenize: token %d is outside the vocabulary (%d tokens)",
                              (int)ids[i], info->vocab);
        text = waste_token_bytes(c, ids[i], &bytes);
        to = text ? waste_buf_room(out, 3 * (bytes + 4)) : NULL;
        if (to) out->len += waste_utf8_push(&u, text, bytes, to);
    }
    to = waste_buf_room(out, 3 * 4);
    if (to) out->len += waste_utf8_end(&u, to);
    return out->failed ? waste_fail(err, WASTE_NOMEM, "out of memory") : WASTE_OK;
}

void waste_fn_detokenize(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    int32_t *ids = NULL;
    size_t n = 0;
    waste_lease l = {0};
    waste_buf out = {0};
    waste_error err = {0};
    waste_status st;

    (void)argc;
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL || sqlite3_value_type(argv[1]) == SQLITE_NULL)
        return;
    st = read_ids(&ids, &n, argv[1], &err);
    if (!st) st = waste_models_container(&l, sqlite3_user_data(ctx), argv[0], &err);
    if (!st) st = spell(&out, l.container, ids, n, &err);
    if (st)
        waste_args_fail(ctx, &err);
    else
        waste_args_result(ctx, &out);
    waste_models_end(&l);
    waste_mem_free(ids);
    waste_buf_clear(&out);
}
