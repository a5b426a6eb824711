/* Chat formats: which one a container has, segment lists, and one turn as the
 * short conversation it is. Opened once with the container, read by any thread
 * after that; what always holds is that text from outside reaches a segment only
 * with markup 0. */
#include "text/chat.h"

#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "text/chat_plain.h"
#include "text/chat_request.h"
#include "text/chat_xtml.h"

static const char *const mark_texts[WASTE_MARKS] = {"<|open|>", "<|close|>", "<|sep|>",
                                                    "<|end_of_msg|>"};

struct waste_chat {
    waste_chat_format kind;
    int32_t mark[WASTE_MARKS]; /* XTML; else -1 */
    waste_chat_plain *plain;   /* chat.json that can be used; else NULL */
    waste_error bad;           /* why it cannot */
};

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

    if (t && find_marks(c, t)) {
        c->kind = WASTE_CHAT_XTML;
    } else if (t && waste_path_exists(path)) {
        c->kind = WASTE_CHAT_PLAIN;
        st = waste_chat_plain_open(&c->plain, path, t, &c->bad);
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
    waste_chat_plain_close(c->plain);
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
    return c->plain ? waste_chat_plain_stop(c->plain) : -1;
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

/* ---- prompts ----------------------------------------------------------- */

static const waste_str gap = {"\n\n", 2};

void waste_chat_content(waste_segments *s, const waste_prompt *p)
{
    size_t i;

    waste_chat_add(s, p->text.text, p->text.bytes, 0);
    for (i = 0; i < p->n_parts; i++) {
        waste_chat_add(s, gap.text, gap.bytes, 0);
        waste_chat_add(s, p->parts[i].text, p->parts[i].bytes, 0);
    }
}

waste_status waste_chat_render(const waste_chat *c, waste_chat_parsed *p, waste_segments *s,
                               waste_error *err)
{
    waste_status st;

    switch (c->kind) {
    case WASTE_CHAT_XTML: return waste_chat_xtml_render(p, s, err);
    case WASTE_CHAT_PLAIN:
        st = waste_chat_check(c, err);
        return st ? st : waste_chat_plain_render(c->plain, p, s, err);
    default: return waste_fail(err, WASTE_UNSUPPORTED, "the container has no chat format");
    }
}

int waste_chat_thinks(const waste_chat *c, const waste_chat_parsed *p)
{
    return c->kind == WASTE_CHAT_XTML && waste_chat_xtml_thinks(p);
}

waste_str waste_chat_suffix(const waste_chat *c, int stopped)
{
    const waste_str none = {NULL, 0};

    return c->plain ? waste_chat_plain_suffix(c->plain, stopped) : none;
}

waste_status waste_chat_turn(const waste_chat *c, const waste_prompt *p, waste_segments *s,
                             waste_error *err)
{
    waste_chat_part system = {p->system, 0};
    waste_chat_message message[2];
    waste_chat_parsed talk;
    waste_chat_part *part;
    waste_status st;
    size_t n = 0, i;

    if (p->n_parts > SIZE_MAX / 8 / sizeof *part)
        part = NULL;
    else
        part = waste_mem_array(1 + 2 * p->n_parts, sizeof *part);
    if (!part) return waste_fail(err, WASTE_NOMEM, "out of memory for %zu parts", p->n_parts);
    part[0].text = p->text;
    for (i = 0; i < p->n_parts; i++) {
        part[1 + 2 * i].text = gap;
        part[2 + 2 * i].text = p->parts[i];
    }
    memset(message, 0, sizeof message);
    memset(&talk, 0, sizeof talk);
    if (p->system.text) {
        message[n].role = WASTE_CHAT_SYSTEM;
        message[n].part = &system;
        message[n++].n_parts = 1;
    }
    message[n].role = WASTE_CHAT_USER;
    message[n].part = part;
    message[n++].n_parts = 1 + 2 * p->n_parts;
    talk.messages.message = message;
    talk.messages.n = n;
    talk.thinking = p->thinking != 0;
    talk.floor = 1;
    st = waste_chat_render(c, &talk, s, err);
    waste_mem_free(part);
    return st;
}
