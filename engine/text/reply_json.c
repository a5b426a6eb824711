/* Replies as JSON: see reply_json.h. Owns nothing. What always holds: what is
 * appended is valid JSON whatever a model wrote, but for a raw block, which is
 * the model's own text. */
#include "text/reply_json.h"

#include <string.h>

#include "text/chat_json.h"
#include "text/header.h"

static int str_is(waste_str s, const char *text)
{
    return s.bytes == strlen(text) && (s.bytes == 0 || memcmp(s.text, text, s.bytes) == 0);
}

/* Whether s is one JSON value whose numbers fit a double. */
static waste_status is_json(waste_str s, int *yes, waste_error *err)
{
    waste_chat_json *d = NULL;
    waste_error why = {0};
    waste_status st = waste_chat_json_open(&d, s.text, s.bytes, 1, "argument", WASTE_ARG, &why);

    waste_chat_json_close(d);
    *yes = st == WASTE_OK;
    return st == WASTE_NOMEM ? waste_fail(err, st, "%s", why.text) : WASTE_OK;
}

static int same_word(waste_str s, const char *word)
{
    size_t i;

    if (s.bytes != strlen(word)) return 0;
    for (i = 0; i < s.bytes; i++) {
        char c = s.text[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (c != word[i]) return 0;
    }
    return 1;
}

static waste_status add_value(const waste_reply_arg *a, waste_buf *out, waste_error *err)
{
    waste_str t = waste_header_trim(a->text);
    waste_status st = WASTE_OK;
    int bare = 0;

    if (str_is(a->type, "null")) {
        waste_buf_text(out, "null");
        return WASTE_OK;
    }
    if (str_is(a->type, "boolean")) {
        if (same_word(t, "true") || same_word(t, "false")) {
            waste_buf_text(out, t.bytes == 4 ? "true" : "false");
            return WASTE_OK;
        }
    } else if (!str_is(a->type, "string")) {
        st = is_json(t, &bare, err);
    }
    if (bare)
        waste_buf_add(out, t.text, t.bytes);
    else
        waste_chat_json_quote(out, a->text.text, a->text.bytes);
    return st;
}

waste_status waste_reply_json_arguments(const waste_reply_call *call, waste_buf *out,
                                        waste_error *err)
{
    waste_status st = WASTE_OK;
    size_t i;

    if (call->has_raw) {
        waste_buf_add(out, call->raw.text, call->raw.bytes);
    } else {
        waste_buf_byte(out, '{');
        for (i = 0; !st && i < call->n_args; i++) {
            if (i) waste_buf_text(out, ", ");
            waste_chat_json_quote(out, call->arg[i].key.text, call->arg[i].key.bytes);
            waste_buf_text(out, ": ");
            st = add_value(&call->arg[i], out, err);
        }
        waste_buf_byte(out, '}');
    }
    if (!st && out->failed)
        st = waste_fail(err, WASTE_NOMEM, "out of memory writing tool arguments");
    return st;
}

static waste_status add_call(const waste_reply_call *call, waste_buf *out, waste_error *err)
{
    waste_buf arguments = {0};
    waste_status st = waste_reply_json_arguments(call, &arguments, err);

    waste_buf_text(out, "{\"id\":");
    waste_chat_json_quote(out, call->id.text, call->id.bytes);
    waste_buf_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    waste_chat_json_quote(out, call->name.text, call->name.bytes);
    waste_buf_text(out, ",\"arguments\":");
    waste_chat_json_quote(out, arguments.data, arguments.len);
    waste_buf_text(out, "}}");
    waste_buf_clear(&arguments);
    return st;
}

waste_status waste_reply_json_message(const waste_reply *r, waste_str content, waste_str reasoning,
                                      waste_buf *out, waste_error *err)
{
    const size_t n = waste_reply_calls(r);
    waste_status st = WASTE_OK;
    size_t i;

    waste_buf_text(out, "{\"role\":\"assistant\",\"content\":");
    if (content.bytes)
        waste_chat_json_quote(out, content.text, content.bytes);
    else
        waste_buf_text(out, "null");
    if (reasoning.bytes) {
        waste_buf_text(out, ",\"reasoning_content\":");
        waste_chat_json_quote(out, reasoning.text, reasoning.bytes);
    }
    for (i = 0; !st && i < n; i++) {
        waste_buf_text(out, i ? "," : ",\"tool_calls\":[");
        st = add_call(waste_reply_call_at(r, i), out, err);
    }
    if (n) waste_buf_byte(out, ']');
    waste_buf_byte(out, '}');
    if (!st && out->failed) st = waste_fail(err, WASTE_NOMEM, "out of memory writing a message");
    return st;
}
