/* Chat formats: which one a container has, and one turn in it. Owns the parsed
 * chat.json and segment lists. Opened once with the container, read by any
 * thread after that; what always holds is that text from outside reaches a
 * segment only with markup 0. */
#include "text/chat.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/plat.h"

/* A chat.json in use has a few hundred bytes. */
#define CHAT_FILE_MAX (1u << 20)

enum { SYSTEM, USER, ASSISTANT, ROLES };
enum { PREFIX, SUFFIX };

static const char *const role_names[ROLES] = {"system", "user", "assistant"};
static const char *const mark_texts[WASTE_MARKS] = {"<|open|>", "<|close|>", "<|sep|>",
                                                    "<|end_of_msg|>"};

struct waste_chat {
    waste_chat_format kind;
    int32_t mark[WASTE_MARKS]; /* XTML; else -1 */
    waste_json *json;          /* of chat.json; owns the strings below */
    waste_str role[ROLES][2];  /* text NULL: the file does not define it */
    waste_str open;
    int32_t stop;    /* chat.json; else -1 */
    waste_error bad; /* why the chat.json cannot be used */
};

/* ---- chat.json --------------------------------------------------------- */

/* The next <|...|> (no | or > inside) at or after *at; *at moves behind it. */
static int next_marker(waste_str s, size_t *at, waste_str *marker)
{
    size_t i, j;

    for (i = *at; i + 1 < s.bytes; i++) {
        if (s.text[i] != '<' || s.text[i + 1] != '|') continue;
        for (j = i + 2; j < s.bytes && s.text[j] != '|' && s.text[j] != '>'; j++)
            ;
        if (j + 1 < s.bytes && s.text[j] == '|' && s.text[j + 1] == '>') {
            marker->text = s.text + i;
            marker->bytes = j + 2 - i;
            *at = j + 2;
            return 1;
        }
    }
    *at = s.bytes;
    return 0;
}

static waste_status check_markers(const waste_tokenizer *t, waste_str s, const char *path,
                                  const char *what, waste_error *err)
{
    waste_str m;
    size_t at = 0;

    while (next_marker(s, &at, &m)) {
        if (waste_tokenizer_special(t, m.text, m.bytes) < 0)
            return waste_fail(err, WASTE_FORMAT,
                              "%s: %s holds %.*s, which is not a single token of this container",
                              path, what, (int)(m.bytes < 64 ? m.bytes : 64), m.text);
    }
    return WASTE_OK;
}

static waste_status read_role(waste_chat *c, const waste_tokenizer *t, int role, const char *path,
                              waste_error *err)
{
    static const char *const part_names[ROLES][2] = {
        {"the system prefix", "the system suffix"},
        {"the user prefix", "the user suffix"},
        {"the assistant prefix", "the assistant suffix"},
    };
    const waste_json *j = waste_json_get(c->json, role_names[role]);
    size_t i;

    if (!j) return WASTE_OK;
    if (waste_json_kind_of(j) != WASTE_JSON_ARRAY || waste_json_count(j) != 2)
        return waste_fail(err, WASTE_FORMAT, "%s: %s is %s%s, wanted an array of two strings", path,
                          role_names[role], waste_json_kind_name(waste_json_kind_of(j)),
                          waste_json_kind_of(j) == WASTE_JSON_ARRAY ? " of another length" : "");
    for (i = 0; i < 2; i++) {
        const waste_json *s = waste_json_at(j, i);
        waste_status st;

        c->role[role][i].text = waste_json_text(s, &c->role[role][i].bytes);
        if (!c->role[role][i].text)
            return waste_fail(err, WASTE_FORMAT, "%s: %s is %s, wanted a string", path,
                              part_names[role][i], waste_json_kind_name(waste_json_kind_of(s)));
        st = check_markers(t, c->role[role][i], path, part_names[role][i], err);
        if (st) return st;
    }
    return WASTE_OK;
}

static waste_status read_open(waste_chat *c, const waste_tokenizer *t, const char *path,
                              waste_error *err)
{
    const waste_json *j = waste_json_get(c->json, "open");

    c->open.text = waste_json_text(j, &c->open.bytes);
    if (!c->open.text || c->open.bytes == 0)
        return waste_fail(err, WASTE_FORMAT, "%s: open is %s, wanted a string that is not empty",
                          path,
                          c->open.text ? "empty" : waste_json_kind_name(waste_json_kind_of(j)));
    return check_markers(t, c->open, path, "open", err);
}

static waste_status read_plain(waste_chat *c, const waste_tokenizer *t, const char *path,
                               waste_error *err)
{
    waste_str stop;
    char *text;
    size_t bytes, at = 0;
    int role;
    waste_status st = waste_file_load(path, CHAT_FILE_MAX, &text, &bytes, err);

    if (st) return st;
    st = waste_json_parse(&c->json, text, bytes, 0, path, WASTE_FORMAT, err);
    waste_mem_free(text);
    if (st) return st;
    if (waste_json_kind_of(c->json) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s is %s, wanted an object", path,
                          waste_json_kind_name(waste_json_kind_of(c->json)));
    for (role = 0; !st && role < ROLES; role++) st = read_role(c, t, role, path, err);
    if (!st && !c->role[USER][PREFIX].text)
        st = waste_fail(err, WASTE_FORMAT, "%s: user is missing", path);
    if (!st) st = read_open(c, t, path, err);
    if (st) return st;
    if (!c->role[ASSISTANT][SUFFIX].text || !next_marker(c->role[ASSISTANT][SUFFIX], &at, &stop))
        return waste_fail(
            err, WASTE_FORMAT, "%s: the assistant suffix %s, so nothing tells where a reply ends",
            path, c->role[ASSISTANT][SUFFIX].text ? "holds no <|...|> marker" : "is missing");
    c->stop = waste_tokenizer_special(t, stop.text, stop.bytes);
    return WASTE_OK;
}

/* ---- opening ----------------------------------------------------------- */

static int find_marks(waste_chat *c, const waste_tokenizer *t)
{
    int m;

    for (m = 0; m < WASTE_MARKS; m++) {
        c->mark[m] = waste_tokenizer_special(t, mark_texts[m], strlen(mark_texts[m]));
        if (c->mark[m] < 0) break;
    }
    if (m == WASTE_MARKS) return 1;
    for (m = 0; m < WASTE_MARKS; m++) c->mark[m] = -1;
    return 0;
}

waste_status waste_chat_open(waste_chat **out, const char *dir, const waste_tokenizer *t,
                             waste_error *err)
{
    char path[WASTE_PATH_MAX];
    waste_chat *c;
    waste_status st;
    int m;

    *out = NULL;
    st = waste_path_join(path, sizeof path, dir, "chat.json", err);
    if (st) return st;
    c = waste_mem_zero(sizeof *c);
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory opening the chat format of %s", dir);
    for (m = 0; m < WASTE_MARKS; m++) c->mark[m] = -1;
    c->stop = -1;

    if (t && find_marks(c, t)) {
        c->kind = WASTE_CHAT_XTML;
    } else if (t && waste_path_exists(path)) {
        c->kind = WASTE_CHAT_PLAIN;
        st = read_plain(c, t, path, &c->bad);
        if (st == WASTE_NOMEM) {
            waste_fail(err, st, "%s", c->bad.text);
            waste_chat_close(c);
            return st;
        }
    }
    *out = c;
    return WASTE_OK;
}

void waste_chat_close(waste_chat *c)
{
    if (!c) return;
    waste_json_free(c->json);
    waste_mem_free(c);
}

waste_chat_format waste_chat_kind(const waste_chat *c)
{
    return c->kind;
}

waste_status waste_chat_check(const waste_chat *c, waste_error *err)
{
    return c->bad.status ? waste_fail(err, c->bad.status, "%s", c->bad.text) : WASTE_OK;
}

int32_t waste_chat_mark(const waste_chat *c, waste_mark m)
{
    return c->mark[m];
}

const char *waste_chat_mark_text(waste_mark m)
{
    return mark_texts[m];
}

int32_t waste_chat_stop(const waste_chat *c)
{
    return c->stop;
}

/* ---- segments ---------------------------------------------------------- */

void waste_chat_segments_clear(waste_segments *s)
{
    waste_mem_free(s->item);
    waste_buf_clear(&s->text);
    memset(s, 0, sizeof *s);
}

waste_segment waste_chat_segment(const waste_segments *s, size_t i)
{
    waste_segment g = {s->text.data + s->item[i].at, s->item[i].bytes, s->item[i].markup};

    return g;
}

/* The bytes from `at` to the end of s->text become a segment. */
static void finish_segment(waste_segments *s, size_t at, int markup)
{
    if (s->text.failed) s->failed = 1;
    if (s->failed || s->text.len == at) return;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 32;
        struct waste_segment_at *p =
            cap <= SIZE_MAX / sizeof *p ? waste_mem_resize(s->item, cap * sizeof *p) : NULL;
        if (!p) {
            s->failed = 1;
            return;
        }
        s->item = p;
        s->cap = cap;
    }
    s->item[s->n].at = at;
    s->item[s->n].bytes = s->text.len - at;
    s->item[s->n].markup = markup;
    s->n++;
}

void waste_chat_add(waste_segments *s, const char *text, size_t bytes, int markup)
{
    size_t at = s->text.len;

    waste_buf_add(&s->text, text, bytes);
    finish_segment(s, at, markup);
}

static void add_mark(waste_segments *s, waste_mark m)
{
    waste_chat_add(s, mark_texts[m], strlen(mark_texts[m]), 1);
}

static void add_text(waste_segments *s, const char *text)
{
    waste_chat_add(s, text, strlen(text), 0);
}

static void add_escaped(waste_segments *s, waste_str v)
{
    size_t at = s->text.len, i;

    for (i = 0; i < v.bytes; i++) {
        if (v.text[i] == '&')
            waste_buf_text(&s->text, "&amp;");
        else if (v.text[i] == '"')
            waste_buf_text(&s->text, "&quot;");
        else
            waste_buf_byte(&s->text, v.text[i]);
    }
    finish_segment(s, at, 0);
}

static void add_attr(waste_segments *s, const waste_attr *a)
{
    size_t at = s->text.len;

    waste_buf_byte(&s->text, ' ');
    waste_buf_text(&s->text, a->key);
    finish_segment(s, at, 0);
    add_text(s, "=\"");
    add_escaped(s, a->value);
    add_text(s, "\"");
}

void waste_chat_element_open(waste_segments *s, const char *tag, const waste_attr *attr, size_t n)
{
    size_t i;

    add_mark(s, WASTE_MARK_OPEN);
    add_text(s, tag);
    for (i = 0; i < n; i++) add_attr(s, &attr[i]);
    add_mark(s, WASTE_MARK_SEP);
}

void waste_chat_element_close(waste_segments *s, const char *tag)
{
    add_mark(s, WASTE_MARK_CLOSE);
    add_text(s, tag);
    add_mark(s, WASTE_MARK_SEP);
}

void waste_chat_message_end(waste_segments *s)
{
    add_mark(s, WASTE_MARK_END);
}

waste_status waste_chat_encode(const waste_segments *s, const waste_tokenizer *t, waste_ids *out,
                               waste_error *err)
{
    size_t had = out->n, i;
    waste_status st = WASTE_OK;

    if (s->failed) return waste_fail(err, WASTE_NOMEM, "out of memory building a prompt");
    if (!t)
        return waste_fail(err, WASTE_UNSUPPORTED,
                          "the container has no tokenizer; pass the prompt as {\"tokens\":[...]}");
    for (i = 0; !st && i < s->n; i++) {
        waste_segment g = waste_chat_segment(s, i);
        st = waste_tokenizer_encode(t, g.text, g.bytes, g.markup, out, err);
    }
    if (st) out->n = had;
    return st;
}

/* ---- one turn ---------------------------------------------------------- */

void waste_chat_content(waste_segments *s, const waste_prompt *p)
{
    size_t i;

    waste_chat_add(s, p->text.text, p->text.bytes, 0);
    for (i = 0; i < p->n_parts; i++) {
        add_text(s, "\n\n");
        waste_chat_add(s, p->parts[i].text, p->parts[i].bytes, 0);
    }
}

static void open_message(waste_segments *s, const char *role)
{
    const waste_attr a = {"role", {role, strlen(role)}};

    waste_chat_element_open(s, "message", &a, 1);
}

static void close_message(waste_segments *s)
{
    waste_chat_element_close(s, "message");
    waste_chat_message_end(s);
}

static void render_xtml(const waste_prompt *p, waste_segments *s)
{
    if (p->system.text) {
        open_message(s, "system");
        waste_chat_add(s, p->system.text, p->system.bytes, 0);
        close_message(s);
    }
    open_message(s, "user");
    waste_chat_content(s, p);
    close_message(s);
    open_message(s, "assistant");
    waste_chat_element_open(s, p->thinking ? "think" : "response", NULL, 0);
}

static void add_template(waste_segments *s, waste_str t)
{
    waste_chat_add(s, t.text, t.bytes, 1);
}

static waste_status render_plain(const waste_chat *c, const waste_prompt *p, waste_segments *s,
                                 waste_error *err)
{
    waste_status st = waste_chat_check(c, err);

    if (st) return st;
    if (p->thinking)
        return waste_fail(err, WASTE_UNSUPPORTED,
                          "thinking: the container's chat.json has no reasoning channel");
    if (p->system.text && !c->role[SYSTEM][PREFIX].text)
        return waste_fail(err, WASTE_UNSUPPORTED,
                          "system: the container's chat.json defines no system role");
    if (p->system.text) {
        add_template(s, c->role[SYSTEM][PREFIX]);
        waste_chat_add(s, p->system.text, p->system.bytes, 0);
        add_template(s, c->role[SYSTEM][SUFFIX]);
    }
    add_template(s, c->role[USER][PREFIX]);
    waste_chat_content(s, p);
    add_template(s, c->role[USER][SUFFIX]);
    add_template(s, c->open);
    return WASTE_OK;
}

waste_status waste_chat_render(const waste_chat *c, const waste_prompt *p, waste_segments *s,
                               waste_error *err)
{
    waste_status st = WASTE_OK;

    switch (c->kind) {
    case WASTE_CHAT_XTML: render_xtml(p, s); break;
    case WASTE_CHAT_PLAIN: st = render_plain(c, p, s, err); break;
    default: return waste_fail(err, WASTE_UNSUPPORTED, "the container has no chat format");
    }
    if (!st && s->failed) st = waste_fail(err, WASTE_NOMEM, "out of memory building a prompt");
    return st;
}

waste_status waste_chat_turn(const waste_chat *c, const waste_tokenizer *t, const waste_prompt *p,
                             waste_ids *out, waste_error *err)
{
    waste_segments s = {0};
    waste_status st = waste_chat_render(c, p, &s, err);

    if (!st) st = waste_chat_encode(&s, t, out, err);
    waste_chat_segments_clear(&s);
    return st;
}
