/* K3's prompt language: see chat_xtml.h. Owns nothing. Any thread; what always
 * holds: markup segments are the four markers and the places of images, all text
 * from the request is content. */
#include "text/chat_xtml.h"

#include <stdio.h>
#include <string.h>

#define PLACEHOLDER "<|kimi_image_placeholder|>"
#define FENCE       "```"

typedef struct writer {
    waste_segments *s;
    int thinking;
    const waste_str *image; /* NULL: none were given */
    size_t n_images, used;
    int short_of_images;
} writer;

static waste_str str(const char *text)
{
    waste_str s = {text, strlen(text)};

    return s;
}

static waste_str lend(const waste_buf *b)
{
    waste_str s = {b->len ? b->data : "", b->len};

    return s;
}

/* Text of a buffer that was filled for it, which is given up. */
static void add_buffer(waste_segments *s, waste_buf *b)
{
    if (b->failed) s->failed = 1;
    waste_chat_add(s, b->data, b->len, 0);
    waste_buf_clear(b);
}

/* ---- content ----------------------------------------------------------- */

static void next_image(writer *w)
{
    if (!w->image) {
        waste_chat_add(w->s, PLACEHOLDER, sizeof PLACEHOLDER - 1, 1);
    } else if (w->used < w->n_images) {
        const waste_str m = w->image[w->used++];
        waste_chat_add(w->s, m.text, m.bytes, 1);
    } else {
        w->short_of_images = 1;
    }
}

static size_t find_placeholder(waste_str s)
{
    const size_t n = sizeof PLACEHOLDER - 1;
    size_t i;

    for (i = 0; i + n <= s.bytes; i++) {
        const char *p = memchr(s.text + i, '<', s.bytes - n - i + 1);
        if (!p) break;
        i = (size_t)(p - s.text);
        if (memcmp(p, PLACEHOLDER, n) == 0) return i;
    }
    return s.bytes;
}

static void add_text(writer *w, waste_str s)
{
    size_t at;

    if (!s.bytes) return;
    while (w->image && (at = find_placeholder(s)) < s.bytes) {
        waste_chat_add(w->s, s.text, at, 0);
        next_image(w);
        s.text += at + sizeof PLACEHOLDER - 1;
        s.bytes -= at + sizeof PLACEHOLDER - 1;
    }
    waste_chat_add(w->s, s.text, s.bytes, 0);
}

static void add_content(writer *w, const waste_chat_message *m)
{
    size_t i;

    for (i = 0; i < m->n_parts; i++) {
        if (m->part[i].image)
            next_image(w);
        else
            add_text(w, m->part[i].text);
    }
}

/* ---- messages ---------------------------------------------------------- */

static void open_message(writer *w, const char *role, waste_str name)
{
    const waste_attr a[] = {{"role", str(role)}, {"name", name}};

    waste_chat_element_open(w->s, "message", a, name.bytes ? 2 : 1);
}

static void close_message(writer *w)
{
    waste_chat_element_close(w->s, "message");
    waste_chat_message_end(w->s);
}

static void add_argument(writer *w, const waste_chat_json *doc, const char *key,
                         const waste_json *value)
{
    static const char *const types[] = {"null",   "null",   "boolean", "number",
                                        "number", "string", "array",   "object"};
    const waste_json_kind kind = waste_json_kind_of(value);
    const waste_attr a[] = {{"key", str(key)}, {"type", str(types[kind])}};
    waste_buf b = {0};
    waste_str text = {NULL, 0};

    waste_chat_element_open(w->s, "argument", a, 2);
    if (kind == WASTE_JSON_TEXT) {
        text.text = waste_json_text(value, &text.bytes);
    } else {
        waste_chat_json_spaced(doc, value, &b);
        text = lend(&b);
    }
    add_text(w, text);
    if (b.failed) w->s->failed = 1;
    waste_buf_clear(&b);
    waste_chat_element_close(w->s, "argument");
}

static void add_call(writer *w, const waste_chat_call *c, size_t number)
{
    const waste_attr json = {"type", str("object")};
    waste_attr a[2] = {{"tool", c->name}, {"index", {NULL, 0}}};
    waste_json_iter it = {0};
    char index[24];

    snprintf(index, sizeof index, "%zu", number);
    a[1].value = str(index);
    waste_chat_element_open(w->s, "call", a, 2);
    if (c->raw.text) {
        waste_chat_element_open(w->s, "json", &json, 1);
        add_text(w, c->raw);
        waste_chat_element_close(w->s, "json");
    }
    while (waste_json_each(&it, c->arguments)) add_argument(w, c->doc, it.key, it.value);
    waste_chat_element_close(w->s, "call");
}

static void add_assistant(writer *w, const waste_chat_message *m)
{
    size_t i;

    open_message(w, "assistant", m->name);
    if (w->thinking) {
        waste_chat_element_open(w->s, "think", NULL, 0);
        add_text(w, m->reasoning);
        waste_chat_element_close(w->s, "think");
    }
    waste_chat_element_open(w->s, "response", NULL, 0);
    add_content(w, m);
    waste_chat_element_close(w->s, "response");
    if (m->n_calls) {
        waste_chat_element_open(w->s, "tools", NULL, 0);
        for (i = 0; i < m->n_calls; i++) add_call(w, &m->call[i], i + 1);
        waste_chat_element_close(w->s, "tools");
    }
    close_message(w);
}

static void add_result(writer *w, const waste_chat_message *m)
{
    waste_attr a[3] = {{"role", str("tool")}, {"tool", m->tool}, {"index", {NULL, 0}}};
    char index[24];

    snprintf(index, sizeof index, "%lld", (long long)m->index);
    a[2].value = str(index);
    waste_chat_element_open(w->s, "message", a, 3);
    add_content(w, m);
    close_message(w);
}

/* ---- messages the format writes itself (3.1) --------------------------- */

/* A system message of `type` (NULL: without one); takes the body. */
static void add_note(writer *w, const char *type, waste_buf *body)
{
    const waste_attr a[] = {{"role", str("system")}, {"type", str(type ? type : "")}};

    waste_chat_element_open(w->s, "message", a, type ? 2 : 1);
    add_buffer(w->s, body);
    close_message(w);
}

static void add_note_text(writer *w, const char *type, const char *body)
{
    waste_buf b = {0};

    waste_buf_text(&b, body);
    add_note(w, type, &b);
}

static void fence(waste_buf *b, const waste_chat_json *doc, const waste_json *j)
{
    waste_buf_text(b, FENCE "json\n");
    waste_chat_json_compact(doc, j, b);
    waste_buf_text(b, "\n" FENCE);
}

static void add_tools(writer *w, const char *heading, const waste_chat_json *doc,
                      const waste_json *tools)
{
    waste_buf b = {0};

    waste_buf_text(&b, heading);
    fence(&b, doc, tools);
    add_note(w, "tool-declare", &b);
}

static void add_message(writer *w, const waste_chat_json *doc, const waste_chat_message *m)
{
    static const char more_tools[] =
        "## New Tools Available\n"
        "The system dynamically extends the toolset via lazy-loading.\n"
        "You have access to all existing and extended tools.\n"
        "Here are the specs for the extended tools.\n\n";

    switch (m->role) {
    case WASTE_CHAT_ASSISTANT: add_assistant(w, m); break;
    case WASTE_CHAT_TOOL: add_result(w, m); break;
    default:
        if (m->tools) {
            add_tools(w, more_tools, doc, m->tools);
            break;
        }
        open_message(w, m->role == WASTE_CHAT_USER ? "user" : "system", m->name);
        add_content(w, m);
        close_message(w);
    }
}

static void add_effort(writer *w, const char *effort)
{
    waste_buf b = {0};

    waste_buf_printf(&b,
                     "`thinking_effort` guides on how much to think in your thinking channel (not "
                     "including the response channel), supported values include `low`, `medium`, "
                     "`high`, and `max`.\n"
                     "Now the system is invoked with `thinking_effort=%s`.",
                     effort);
    add_note(w, "thinking-effort", &b);
}

static void add_choice(writer *w, const waste_chat_parsed *p)
{
    waste_buf b = {0};

    if (p->must_call.text) {
        waste_buf_text(&b, "You must call the tool `");
        waste_buf_add(&b, p->must_call.text, p->must_call.bytes);
        waste_buf_text(&b, "` in your next message, and no other.");
        add_note(w, NULL, &b);
    }
    if (p->choice == WASTE_CHAT_CHOICE_REQUIRED)
        add_note_text(w, "tool-choice",
                      "The system is invoked with `tool_choice=required`.\n"
                      "You MUST call tools in the next message.");
    if (p->choice == WASTE_CHAT_CHOICE_NOTHING)
        add_note_text(w, "tool-choice",
                      "The system is invoked with `tool_choice=none`.\n"
                      "You MUST NOT call any tools in the next message.");
}

static void add_answer(writer *w, const waste_chat_parsed *p)
{
    const int schema = p->answer == WASTE_CHAT_ANSWER_SCHEMA;
    waste_buf b = {0};

    if (p->answer == WASTE_CHAT_ANSWER_SILENT) return;
    waste_buf_printf(&b,
                     "The system is invoked with `response_format=%s`.\n"
                     "Your response must be raw JSON data without markdown code blocks "
                     "(" FENCE "json) or any additional formatting.",
                     schema ? "json_schema" : "json_object");
    if (schema) {
        waste_buf_text(&b, "\nThe JSON data must match the following schema:\n");
        fence(&b, p->doc, p->schema);
    }
    add_note(w, "response-format", &b);
}

/* ---- the prompt -------------------------------------------------------- */

int waste_chat_xtml_thinks(const waste_chat_parsed *p)
{
    return p->thinking != 0;
}

static waste_status check_images(const writer *w, waste_error *err)
{
    if (w->short_of_images)
        return waste_fail(err, WASTE_ARG,
                          "image_prompts has %zu images, the messages have more places for them",
                          w->n_images);
    if (w->used < w->n_images)
        return waste_fail(err, WASTE_ARG,
                          "image_prompts has %zu images, the messages have places for %zu",
                          w->n_images, w->used);
    return WASTE_OK;
}

waste_status waste_chat_xtml_render(waste_chat_parsed *p, waste_segments *s, waste_error *err)
{
    writer w = {s, waste_chat_xtml_thinks(p), p->image, p->n_images, 0, 0};
    waste_status st = waste_chat_message_order(&p->messages, p->skip, err);
    size_t i;

    if (st) return st;
    /* what opens a conversation stands before the messages that are skipped */
    if (p->skip == 0) {
        if (p->tools)
            add_tools(&w, "# Tools\nHere are the available tools, described in JSONSchema.\n\n",
                      p->doc, p->tools);
        if (w.thinking && p->effort) add_effort(&w, p->effort);
    }
    for (i = p->skip; i < p->messages.n; i++)
        add_message(&w, p->messages.doc, &p->messages.message[i]);
    add_choice(&w, p);
    add_answer(&w, p);
    if (p->floor) {
        open_message(&w, "assistant", str(""));
        waste_chat_element_open(s, w.thinking ? "think" : "response", NULL, 0);
    }
    if (s->failed) return waste_fail(err, WASTE_NOMEM, "out of memory building a prompt");
    return check_images(&w, err);
}
