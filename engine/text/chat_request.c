/* Request fields: see chat_request.h. Owns the parsed options and the messages.
 * One thread per request; what always holds after reading: every field has a
 * value that a format can render or refuse. */
#include "text/chat_request.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static waste_status unwanted(const char *field, const waste_json *found, const char *wanted,
                             waste_error *err)
{
    return waste_fail(err, WASTE_ARG, "%s is %s, wanted %s", field, waste_chat_json_kind(found),
                      wanted);
}

/* Member `key`, with null as good as absent. */
static const waste_json *given(const waste_json *options, const char *key)
{
    const waste_json *j = waste_json_get(options, key);

    return waste_json_kind_of(j) == WASTE_JSON_NULL ? NULL : j;
}

/* SQL has no booleans, so 1 and 0 will do; numbers of a document are ordinals,
 * so their spelling decides. */
static waste_status read_switch(const waste_chat_parsed *p, const char *key, int *out,
                                waste_error *err)
{
    const waste_json *j = given(p->doc ? waste_chat_json_root(p->doc) : NULL, key);
    waste_buf b = {0};
    int known;

    if (!j || waste_json_bool(j, out) == 0) return WASTE_OK;
    if (waste_json_kind_of(j) != WASTE_JSON_INT) return unwanted(key, j, "true or false", err);
    waste_chat_json_compact(p->doc, j, &b);
    if (b.failed) {
        waste_buf_clear(&b);
        return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", key);
    }
    known = b.len == 1 && (b.data[0] == '0' || b.data[0] == '1');
    if (known) *out = b.data[0] == '1';
    waste_buf_clear(&b);
    return known ? WASTE_OK : unwanted(key, j, "true or false", err);
}

/* ---- thinking ---------------------------------------------------------- */

static int same_word(const char *s, size_t n, const char *word)
{
    size_t i;

    if (n != strlen(word)) return 0;
    for (i = 0; i < n; i++) {
        char c = s[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (c != word[i]) return 0;
    }
    return 1;
}

/* An effort sets `thinking` as well: it is the more exact wish. */
static waste_status use_effort(waste_chat_parsed *p, const char *field, const char *s, size_t n,
                               waste_error *err)
{
    static const char *const off[] = {"none", "minimal", "off"};
    static const char *const on[] = {"low", "high", "max"};
    size_t i;

    p->effort_field = field;
    for (i = 0; i < 3; i++) {
        if (same_word(s, n, off[i])) p->thinking = 0;
        if (same_word(s, n, on[i])) p->effort = on[i];
    }
    if (p->effort) p->thinking = 1;
    if (p->effort || (p->thinking == 0 && p->effort_field)) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s is '%.40s', wanted none, low, high or max", field, s);
}

/* Two names say the same to an application. thinking_effort is the prompt
 * language's own word, in which an effort without thinking says nothing; with the
 * other names that is a contradiction. */
static waste_status read_thinking(waste_chat_parsed *p, const waste_json *options, waste_error *err)
{
    const waste_json *inside = given(options, "reasoning"), *j;
    const char *field = "reasoning_effort", *s;
    int wanted = -1;
    size_t n = 0;
    waste_status st = read_switch(p, "thinking", &wanted, err);

    if (st) return st;
    p->thinking = wanted;
    if (inside && waste_json_kind_of(inside) != WASTE_JSON_OBJECT)
        return unwanted("reasoning", inside, "an object", err);
    j = given(options, field);
    if (!j) j = given(options, field = "thinking_effort");
    if (!j) {
        field = "reasoning.effort";
        j = given(inside, "effort");
    }
    if (!j) return WASTE_OK;
    s = waste_json_text(j, &n);
    if (!s) return unwanted(field, j, "a string", err);
    if (wanted == 0 && strcmp(field, "thinking_effort") == 0) return WASTE_OK;
    p->thinking = -1;
    st = use_effort(p, field, s, n, err);
    if (!st && wanted == 0 && p->effort)
        return waste_fail(err, WASTE_ARG, "thinking is false and %s is '%.40s': one of them only",
                          field, s);
    return st;
}

/* ---- tools and the answer's form --------------------------------------- */

static waste_status read_tools(waste_chat_parsed *p, const waste_json *options, waste_error *err)
{
    const waste_json *j = given(options, "tools");
    size_t i;

    if (!j) return WASTE_OK;
    if (waste_json_kind_of(j) != WASTE_JSON_ARRAY) return unwanted("tools", j, "an array", err);
    for (i = 0; i < waste_json_count(j); i++) {
        const waste_json *tool = waste_json_at(j, i);
        if (waste_json_kind_of(tool) != WASTE_JSON_OBJECT)
            return waste_fail(err, WASTE_ARG, "tools[%zu] is %s, wanted an object", i,
                              waste_chat_json_kind(tool));
    }
    if (i) p->tools = j;
    return WASTE_OK;
}

static waste_status read_choice(waste_chat_parsed *p, const waste_json *options, waste_error *err)
{
    const waste_json *j = given(options, "tool_choice"), *function, *name;
    const char *s = waste_json_text(j, NULL);

    if (!j) return WASTE_OK;
    p->has_choice = 1;
    if (s) {
        if (strcmp(s, "required") == 0) p->choice = WASTE_CHAT_CHOICE_REQUIRED;
        if (strcmp(s, "none") == 0) p->choice = WASTE_CHAT_CHOICE_NOTHING;
        return WASTE_OK;
    }
    if (waste_json_kind_of(j) != WASTE_JSON_OBJECT)
        return unwanted("tool_choice", j, "a string or an object", err);
    p->choice = WASTE_CHAT_CHOICE_REQUIRED;
    function = given(j, "function");
    if (function && waste_json_kind_of(function) != WASTE_JSON_OBJECT)
        return unwanted("tool_choice.function", function, "an object", err);
    name = given(function, "name");
    p->must_call.text = waste_json_text(name, &p->must_call.bytes);
    if (name && !p->must_call.text)
        return unwanted("tool_choice.function.name", name, "a string", err);
    if (name && p->must_call.bytes == 0) p->must_call.text = NULL;
    return WASTE_OK;
}

static waste_status read_answer(waste_chat_parsed *p, const waste_json *options, waste_error *err)
{
    const waste_json *j = given(options, "response_format"), *type, *schema;
    const char *s;

    if (!j) return WASTE_OK;
    if (waste_json_kind_of(j) != WASTE_JSON_OBJECT)
        return unwanted("response_format", j, "an object", err);
    p->has_answer = 1;
    type = given(j, "type");
    s = waste_json_text(type, NULL);
    if (type && !s) return unwanted("response_format.type", type, "a string", err);
    if (s && strcmp(s, "json_object") == 0) p->answer = WASTE_CHAT_ANSWER_OBJECT;
    if (!s || strcmp(s, "json_schema") != 0) return WASTE_OK;
    p->answer = WASTE_CHAT_ANSWER_SCHEMA;
    schema = waste_json_get(j, "json_schema");
    if (waste_json_get(schema, "schema"))
        schema = waste_json_get(schema, "schema");
    else if (waste_json_get(schema, "json_schema"))
        schema = waste_json_get(schema, "json_schema");
    p->schema = schema;
    return WASTE_OK;
}

/* ---- images ------------------------------------------------------------ */

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

/* Exactly a media block: these texts are the only ones of a request that become
 * markup, so nothing else may be in them. */
static int is_media(const char *s, size_t bytes)
{
    static const char before[] = "<|media_begin|>image ";
    static const char after[] = "<|media_content|><|media_pad|><|media_end|>";
    size_t k;

    if (strlen(s) != bytes || strncmp(s, before, sizeof before - 1) != 0) return 0;
    s += sizeof before - 1;
    k = digits(s);
    if (k == 0 || k > 9 || s[k] != 'x') return 0;
    s += k + 1;
    k = digits(s);
    return k > 0 && k <= 9 && strcmp(s + k, after) == 0;
}

static waste_status read_images(waste_chat_parsed *p, const waste_json *options, waste_error *err)
{
    const waste_json *j = given(options, "image_prompts");
    size_t n = waste_json_count(j), i;

    if (!j) return WASTE_OK;
    if (waste_json_kind_of(j) != WASTE_JSON_ARRAY)
        return unwanted("image_prompts", j, "an array", err);
    if (n == 0) return WASTE_OK;
    p->image = waste_mem_array(n, sizeof *p->image);
    if (!p->image) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu images", n);
    p->n_images = n;
    for (i = 0; i < n; i++) {
        const waste_json *e = waste_json_at(j, i);
        p->image[i].text = waste_json_text(e, &p->image[i].bytes);
        if (!p->image[i].text || !is_media(p->image[i].text, p->image[i].bytes))
            return waste_fail(err, WASTE_ARG,
                              "image_prompts[%zu] is %s, wanted <|media_begin|>image WxH"
                              "<|media_content|><|media_pad|><|media_end|>",
                              i, p->image[i].text ? "another text" : waste_chat_json_kind(e));
    }
    return WASTE_OK;
}

/* ---- the request ------------------------------------------------------- */

static waste_status read_options(waste_chat_parsed *p, waste_str text, waste_error *err)
{
    const waste_json *o;
    waste_status st =
        waste_chat_json_open(&p->doc, text.text, text.bytes, 0, "options", WASTE_ARG, err);

    if (st) return st;
    o = waste_chat_json_root(p->doc);
    if (waste_json_kind_of(o) != WASTE_JSON_OBJECT) return unwanted("options", o, "an object", err);
    st = read_tools(p, o, err);
    if (!st) st = read_choice(p, o, err);
    if (!st) st = read_answer(p, o, err);
    if (!st) st = read_thinking(p, o, err);
    if (!st) st = read_switch(p, "add_generation_prompt", &p->floor, err);
    if (!st) st = read_images(p, o, err);
    return st;
}

waste_status waste_chat_request_read(waste_chat_parsed *p, const waste_chat_request *r,
                                     waste_error *err)
{
    waste_status st;

    p->thinking = -1;
    p->floor = 1;
    p->skip = r->skip;
    if (!r->messages.text) return waste_fail(err, WASTE_ARG, "a chat request without messages");
    st = waste_chat_message_read(&p->messages, r->messages.text, r->messages.bytes, err);
    if (!st && r->options.text) st = read_options(p, r->options, err);
    if (!st && p->skip > p->messages.n)
        st = waste_fail(err, WASTE_ARG, "%zu messages are to be skipped, there are %zu", p->skip,
                        p->messages.n);
    return st;
}

void waste_chat_request_clear(waste_chat_parsed *p)
{
    waste_chat_message_clear(&p->messages);
    waste_chat_json_close(p->doc);
    waste_mem_free(p->image);
    memset(p, 0, sizeof *p);
}

int waste_chat_request_has_tools(const waste_chat_parsed *p)
{
    size_t i;

    if (p->tools) return 1;
    for (i = 0; i < p->messages.n; i++) {
        if (p->messages.message[i].tools) return 1;
    }
    return 0;
}

int waste_chat_request_image(const waste_chat_parsed *p, char *out, size_t cap)
{
    size_t i, k;

    for (i = p->skip; i < p->messages.n; i++) {
        const waste_chat_message *m = &p->messages.message[i];
        for (k = 0; k < m->n_parts; k++) {
            if (!m->part[k].image) continue;
            snprintf(out, cap, "messages[%zu].content[%zu]", m->at, k);
            return 1;
        }
    }
    return 0;
}
