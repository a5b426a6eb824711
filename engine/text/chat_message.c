/* Messages from JSON: see chat_message.h. Owns the parsed document and the
 * structs that point into it. One thread per list; what always holds: a
 * message's fields are those its role has, all others are empty. */
#include "text/chat_message.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char *const role_names[] = {"system", "user", "assistant", "tool", "developer"};

/* Where a value stands, for messages. */
typedef struct place {
    char text[112];
} place;

static place in_message(size_t i)
{
    place p;

    snprintf(p.text, sizeof p.text, "messages[%zu]", i);
    return p;
}

static place element(const place *of, const char *field, size_t i)
{
    place p;

    /* both have room: indexes have at most 20 digits, fields are ours */
    snprintf(p.text, sizeof p.text, "%.60s.%.20s[%zu]", of->text, field, i);
    return p;
}

static waste_status unwanted(const place *at, const char *field, const waste_json *found,
                             const char *wanted, waste_error *err)
{
    return waste_fail(err, WASTE_ARG, "%s%s%s is %s, wanted %s", at->text, *field ? "." : "", field,
                      waste_chat_json_kind(found), wanted);
}

int waste_chat_message_blank(waste_str s)
{
    size_t i = 0, k;

    for (; i < s.bytes; i += k) {
        uint32_t c;

        k = waste_utf8_span(s.text + i, s.bytes - i);
        if (k == 0) return 0;
        c = waste_utf8_decode(s.text + i, k);
        if (!((c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
              c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
              c == 0x202F || c == 0x205F || c == 0x3000))
            return 0;
    }
    return 1;
}

/* ---- fields ------------------------------------------------------------ */

/* A string, or text NULL when absent or null. */
static waste_status read_text(const waste_json *object, const place *at, const char *field,
                              waste_str *out, waste_error *err)
{
    const waste_json *j = waste_json_get(object, field);

    out->text = waste_json_text(j, &out->bytes);
    if (out->text) return WASTE_OK;
    out->bytes = 0;
    if (waste_json_kind_of(j) > WASTE_JSON_NULL) return unwanted(at, field, j, "a string", err);
    return WASTE_OK;
}

/* One part of a content list. */
static waste_status read_part(const waste_json *j, const place *at, waste_chat_part *out,
                              waste_error *err)
{
    const waste_json *type = waste_json_get(j, "type"), *text = waste_json_get(j, "text");
    const char *t;
    size_t n;

    if (waste_json_kind_of(j) != WASTE_JSON_OBJECT) return unwanted(at, "", j, "an object", err);
    t = waste_json_text(type, &n);
    if (!t) return unwanted(at, "type", type, "a string", err);
    if (n == 0)
        return waste_fail(err, WASTE_ARG, "%s.type is empty, wanted the kind of part", at->text);
    out->image = strcmp(t, "image") == 0 || strcmp(t, "image_url") == 0;
    if (out->image) return WASTE_OK;
    out->text.text = waste_json_text(text, &out->text.bytes);
    if (!out->text.text) return unwanted(at, "text", text, "a string", err);
    return WASTE_OK;
}

static waste_status read_content(waste_chat_message *m, const waste_json *object, const place *at,
                                 waste_error *err)
{
    const waste_json *j = waste_json_get(object, "content");
    waste_json_kind kind = waste_json_kind_of(j);
    size_t n = kind == WASTE_JSON_ARRAY ? waste_json_count(j) : 1, i;
    waste_status st = WASTE_OK;

    if (kind <= WASTE_JSON_NULL || n == 0) return WASTE_OK;
    if (kind != WASTE_JSON_ARRAY && kind != WASTE_JSON_TEXT)
        return unwanted(at, "content", j, "a string, an array of parts, or null", err);
    m->part = waste_mem_array(n, sizeof *m->part);
    if (!m->part) return waste_fail(err, WASTE_NOMEM, "out of memory for %s.content", at->text);
    m->n_parts = n;
    if (kind == WASTE_JSON_TEXT)
        m->part->text.text = waste_json_text(j, &m->part->text.bytes);
    else
        for (i = 0; !st && i < n; i++) {
            const place part = element(at, "content", i);
            st = read_part(waste_json_at(j, i), &part, &m->part[i], err);
        }
    return st;
}

/* ---- tool calls -------------------------------------------------------- */

/* Arguments that are a string: nothing, an object, or text that is no JSON. */
static waste_status read_argument_text(waste_chat_call *c, waste_str s, const place *at,
                                       const char *field, waste_error *err)
{
    waste_error why = {0};
    waste_status st;

    if (waste_chat_message_blank(s)) return WASTE_OK;
    st = waste_chat_json_open(&c->own, s.text, s.bytes, 0, field, WASTE_ARG, &why);
    if (st == WASTE_ARG) {
        c->raw = s;
        return WASTE_OK;
    }
    if (st) return waste_fail(err, st, "%s", why.text);
    c->doc = c->own;
    c->arguments = waste_chat_json_root(c->own);
    if (waste_json_kind_of(c->arguments) == WASTE_JSON_OBJECT) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s.%s is the JSON text of %s, wanted that of an object",
                      at->text, field, waste_chat_json_kind(c->arguments));
}

static waste_status read_call(waste_chat_call *c, const waste_chat_json *doc, const waste_json *j,
                              const place *at, waste_error *err)
{
    const waste_json *f = waste_json_get(j, "function"), *args;
    const int nested = waste_json_kind_of(f) > WASTE_JSON_NULL;
    const char *name = nested ? "function.name" : "name";
    const char *arguments = nested ? "function.arguments" : "arguments";
    waste_status st;
    waste_str s;

    if (waste_json_kind_of(j) != WASTE_JSON_OBJECT) return unwanted(at, "", j, "an object", err);
    if (nested && waste_json_kind_of(f) != WASTE_JSON_OBJECT)
        return unwanted(at, "function", f, "an object", err);
    if (!nested) f = j;
    st = read_text(j, at, "id", &c->id, err);
    if (st) return st;
    c->name.text = waste_json_text(waste_json_get(f, "name"), &c->name.bytes);
    if (!c->name.text)
        return unwanted(at, name, waste_json_get(f, "name"), "the name of a function", err);
    if (c->name.bytes == 0)
        return waste_fail(err, WASTE_ARG, "%s.%s is empty, wanted the name of a function", at->text,
                          name);
    args = waste_json_get(f, "arguments");
    s.text = waste_json_text(args, &s.bytes);
    if (s.text) return read_argument_text(c, s, at, arguments, err);
    if (waste_json_kind_of(args) <= WASTE_JSON_NULL) return WASTE_OK;
    if (waste_json_kind_of(args) != WASTE_JSON_OBJECT)
        return unwanted(at, arguments, args, "an object or a string", err);
    c->doc = doc;
    c->arguments = args;
    return WASTE_OK;
}

static waste_status read_calls(waste_chat_message *m, const waste_chat_json *doc,
                               const waste_json *object, const place *at, waste_error *err)
{
    const waste_json *j = waste_json_get(object, "tool_calls");
    size_t n = waste_json_count(j), i;
    waste_status st = WASTE_OK;

    if (waste_json_kind_of(j) <= WASTE_JSON_NULL) return WASTE_OK;
    if (m->role != WASTE_CHAT_ASSISTANT)
        return waste_fail(err, WASTE_ARG,
                          "%s.tool_calls: only assistant messages have tool calls, this is of %s",
                          at->text, role_names[m->role]);
    if (waste_json_kind_of(j) != WASTE_JSON_ARRAY)
        return unwanted(at, "tool_calls", j, "an array", err);
    if (n == 0) return WASTE_OK;
    m->call = waste_mem_array(n, sizeof *m->call);
    if (!m->call) return waste_fail(err, WASTE_NOMEM, "out of memory for %s.tool_calls", at->text);
    m->n_calls = n;
    for (i = 0; !st && i < n; i++) {
        const place call = element(at, "tool_calls", i);
        st = read_call(&m->call[i], doc, waste_json_at(j, i), &call, err);
    }
    return st;
}

/* ---- messages ---------------------------------------------------------- */

static waste_status read_role(waste_chat_message *m, const waste_json *object, const place *at,
                              waste_error *err)
{
    const waste_json *j = waste_json_get(object, "role");
    const char *role = waste_json_text(j, NULL);
    size_t i;

    if (!role) return unwanted(at, "role", j, "a string", err);
    for (i = 0; i < sizeof role_names / sizeof *role_names; i++) {
        if (strcmp(role, role_names[i]) == 0) break;
    }
    if (i == sizeof role_names / sizeof *role_names)
        return waste_fail(err, WASTE_ARG,
                          "%s.role is '%.40s', wanted system, developer, user, assistant or tool",
                          at->text, role);
    m->role = i < WASTE_CHAT_ROLES ? (waste_chat_role)i : WASTE_CHAT_SYSTEM;
    return WASTE_OK;
}

static waste_status read_reasoning(waste_chat_message *m, const waste_json *object, const place *at,
                                   waste_error *err)
{
    waste_str other;
    waste_status st = read_text(object, at, "reasoning_content", &m->reasoning, err);

    if (!st) st = read_text(object, at, "reasoning", &other, err);
    if (st) return st;
    if (m->reasoning.bytes == 0) m->reasoning = other;
    if (waste_chat_message_blank(m->reasoning)) m->reasoning.bytes = 0;
    return WASTE_OK;
}

static waste_status read_tools(waste_chat_message *m, const waste_json *object, const place *at,
                               waste_error *err)
{
    const waste_json *j = waste_json_get(object, "tools");

    if (waste_json_kind_of(j) <= WASTE_JSON_NULL) return WASTE_OK;
    if (waste_json_kind_of(j) != WASTE_JSON_ARRAY) return unwanted(at, "tools", j, "an array", err);
    if (waste_json_count(j)) m->tools = j;
    return WASTE_OK;
}

/* What a tool result says about its call. A `tool` that is null says "by
 * position", and `name` is not looked at; likewise tool_call_id and id. */
static waste_status read_result(waste_chat_message *m, const waste_json *object, const place *at,
                                waste_error *err)
{
    const char *id = waste_json_get(object, "tool_call_id") ? "tool_call_id" : "id";
    waste_status st = read_text(object, at, id, &m->call_id, err);

    if (!st) st = read_text(object, at, "tool", &m->tool, err);
    if (!st && !waste_json_get(object, "tool")) m->tool = m->name;
    return st;
}

static waste_status read_message(waste_chat_message *m, const waste_chat_json *doc,
                                 const waste_json *j, waste_error *err)
{
    const place at = in_message(m->at);
    waste_status st;

    if (waste_json_kind_of(j) != WASTE_JSON_OBJECT) return unwanted(&at, "", j, "an object", err);
    st = read_role(m, j, &at, err);
    if (!st) st = read_content(m, j, &at, err);
    if (!st) st = read_text(j, &at, "name", &m->name, err);
    if (!st) st = read_calls(m, doc, j, &at, err);
    if (!st && m->role == WASTE_CHAT_ASSISTANT) st = read_reasoning(m, j, &at, err);
    if (!st && m->role == WASTE_CHAT_SYSTEM) st = read_tools(m, j, &at, err);
    if (!st && m->role == WASTE_CHAT_TOOL) st = read_result(m, j, &at, err);
    return st;
}

waste_status waste_chat_message_read(waste_chat_messages *m, const char *json, size_t bytes,
                                     waste_error *err)
{
    waste_status st = waste_chat_json_open(&m->doc, json, bytes, 0, "messages", WASTE_ARG, err);
    const waste_json *root;
    size_t n, i;

    if (st) return st;
    root = waste_chat_json_root(m->doc);
    n = waste_json_count(root);
    if (waste_json_kind_of(root) != WASTE_JSON_ARRAY)
        return waste_fail(err, WASTE_ARG, "messages is %s, wanted an array of messages",
                          waste_chat_json_kind(root));
    if (n == 0) return waste_fail(err, WASTE_ARG, "messages is empty, wanted at least one");
    m->message = waste_mem_array(n, sizeof *m->message);
    if (!m->message) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu messages", n);
    m->n = n;
    for (i = 0; !st && i < n; i++) {
        m->message[i].at = i;
        st = read_message(&m->message[i], m->doc, waste_json_at(root, i), err);
    }
    return st;
}

void waste_chat_message_clear(waste_chat_messages *m)
{
    size_t i, k;

    for (i = 0; i < m->n; i++) {
        waste_chat_message *x = &m->message[i];
        for (k = 0; k < x->n_calls; k++) waste_chat_json_close(x->call[k].own);
        waste_mem_free(x->call);
        waste_mem_free(x->part);
    }
    waste_mem_free(m->message);
    waste_chat_json_close(m->doc);
    memset(m, 0, sizeof *m);
}

/* ---- tool results ------------------------------------------------------ */

/* Position of the call that a result names; n_calls when it names none. */
static size_t call_of(const waste_chat_message *calls, const waste_chat_message *result)
{
    size_t i, n = calls ? calls->n_calls : 0;

    if (!result->call_id.text) return n;
    for (i = 0; i < n; i++) {
        const waste_str id = calls->call[i].id;
        if (id.text && id.bytes == result->call_id.bytes &&
            memcmp(id.text, result->call_id.text, id.bytes) == 0)
            break;
    }
    return i;
}

/* Sorts a run of results by their calls, stably, and names them; not at all when
 * one of them names no call. A run is as long as somebody wanted, so the sort
 * counts: one pass over the calls' positions. */
static waste_status sort_run(waste_chat_message *run, size_t n, const waste_chat_message *calls,
                             waste_error *err)
{
    const size_t n_calls = calls ? calls->n_calls : 0;
    waste_chat_message *sorted;
    size_t *start, i, sum = 0;

    for (i = 0; i < n; i++) {
        if (call_of(calls, &run[i]) == n_calls) return WASTE_OK;
    }
    start = waste_mem_array(n_calls, sizeof *start);
    sorted = waste_mem_array(n, sizeof *sorted);
    if (!start || !sorted) {
        waste_mem_free(start);
        waste_mem_free(sorted);
        return waste_fail(err, WASTE_NOMEM, "out of memory for %zu tool results", n);
    }
    for (i = 0; i < n; i++) start[call_of(calls, &run[i])]++;
    for (i = 0; i < n_calls; i++) {
        const size_t here = start[i];
        start[i] = sum;
        sum += here;
    }
    for (i = 0; i < n; i++) {
        const size_t c = call_of(calls, &run[i]);
        run[i].tool = calls->call[c].name;
        sorted[start[c]++] = run[i];
    }
    memcpy(run, sorted, n * sizeof *run);
    waste_mem_free(start);
    waste_mem_free(sorted);
    return WASTE_OK;
}

waste_status waste_chat_message_order(waste_chat_messages *m, size_t from, waste_error *err)
{
    const waste_chat_message *calls = NULL; /* the last assistant message */
    size_t i, run;
    int64_t index = 0;
    waste_status st;

    for (i = 0; i < m->n; i++) {
        waste_chat_message *x = &m->message[i];

        if (x->role == WASTE_CHAT_ASSISTANT) {
            calls = x;
            index = 0;
        }
        if (x->role != WASTE_CHAT_TOOL) continue;
        /* results before `from` stand in a prompt already, in the order they had */
        if (i >= from && (i == from || i == 0 || m->message[i - 1].role != WASTE_CHAT_TOOL)) {
            for (run = 1; i + run < m->n && m->message[i + run].role == WASTE_CHAT_TOOL; run++)
                ;
            st = sort_run(x, run, calls, err);
            if (st) return st;
        }
        x->index = ++index;
        if (x->tool.bytes == 0 && calls && (size_t)index <= calls->n_calls)
            x->tool = calls->call[index - 1].name;
        if (x->tool.bytes == 0 && i >= from)
            return waste_fail(err, WASTE_ARG,
                              "messages[%zu]: a tool result without a name, and the assistant "
                              "message before it has %zu tool calls, this is result %lld",
                              x->at, calls ? calls->n_calls : 0, (long long)index);
    }
    return WASTE_OK;
}
