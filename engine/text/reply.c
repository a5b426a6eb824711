/* The reply parser: a stack of open elements, at most one header being read, at
 * most one open argument and one open raw block. Owns the tool calls and the
 * text released by the last token. One thread at a time; what always holds is
 * that everything routed anywhere has passed the UTF-8 stream, and that no
 * half code point crosses a marker. */
#include "text/reply.h"

#include <string.h>

#include "base/mem.h"
#include "text/header.h"

struct waste_reply {
    waste_reply_options o;
    int done;
    waste_utf8 utf8;
    waste_str *stack; /* names of open elements, innermost last */
    size_t depth, cap_depth;
    int in_header;  /* a marker was read and its separator was not */
    int cut_header; /* the reply ended there; mark and text are as they were */
    waste_mark header_mark;
    waste_buf header;
    int ended_by_mark;            /* the end marker or the stop marker was read */
    int answered, message_closed; /* a response element was opened; the message closed */
    int in_arg, in_raw;
    waste_str arg_key, arg_type;
    waste_buf arg, raw;
    waste_reply_call *call;
    size_t n_calls, cap_calls;
    waste_buf answer, reasoning, tools; /* of this token */
    waste_buf scratch;
    int nomem;
};

/* ---- owned strings ----------------------------------------------------- */

static void str_clear(waste_str *s)
{
    waste_mem_free((void *)s->text);
    s->text = NULL;
    s->bytes = 0;
}

static void str_set(waste_reply *r, waste_str *to, const char *text, size_t bytes)
{
    char *copy = waste_mem_text(text, bytes);

    if (!copy) {
        r->nomem = 1;
        return;
    }
    str_clear(to);
    to->text = copy;
    to->bytes = bytes;
}

static int str_is(waste_str s, const char *text)
{
    return s.bytes == strlen(text) && (s.bytes == 0 || memcmp(s.text, text, s.bytes) == 0);
}

static int str_same(waste_str a, waste_str b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.text, b.text, a.bytes) == 0);
}

/* One more element of an array of `size`; NULL when out of memory. */
static void *grow(waste_reply *r, void *array, size_t n, size_t *cap, size_t size)
{
    size_t want = *cap ? *cap * 2 : 4;
    void *p;

    if (n < *cap) return array;
    p = want <= SIZE_MAX / size / 2 ? waste_mem_resize(array, want * size) : NULL;
    if (!p) {
        r->nomem = 1;
        return NULL;
    }
    *cap = want;
    return p;
}

/* ---- headers ----------------------------------------------------------- */

static waste_str header_text(const waste_reply *r)
{
    waste_str s = {r->header.data ? r->header.data : "", r->header.len};

    return waste_header_trim(s);
}

static int attribute(waste_reply *r, waste_str h, const char *name, waste_buf *out)
{
    const int found = waste_header_attribute(h, name, out);

    if (out->failed) r->nomem = 1;
    return found;
}

static int parse_index(const waste_buf *b, int64_t *out)
{
    waste_str s = {b->data, b->len};
    uint64_t v;
    int minus;

    if (b->len == 0) return -1;
    s = waste_header_trim(s);
    minus = s.bytes && *s.text == '-';
    if (s.bytes && (*s.text == '-' || *s.text == '+')) {
        s.text++;
        s.bytes--;
    }
    if (waste_parse_u64(s.text, s.bytes, INT64_MAX, &v)) return -1;
    *out = minus ? -(int64_t)v : (int64_t)v;
    return 0;
}

/* ---- storing ----------------------------------------------------------- */

static void store_argument(waste_reply *r)
{
    waste_reply_call *c = r->n_calls ? &r->call[r->n_calls - 1] : NULL;
    waste_reply_arg *a;
    size_t i;

    if (!r->in_arg) return;
    r->in_arg = 0;
    if (!c || r->arg_key.bytes == 0) return;
    for (i = 0; i < c->n_args && !str_same(c->arg[i].key, r->arg_key); i++)
        ;
    if (i == c->n_args) {
        a = grow(r, c->arg, c->n_args, &c->cap_args, sizeof *a);
        if (!a) return;
        c->arg = a;
        memset(&c->arg[i], 0, sizeof *a);
        c->n_args++;
        str_set(r, &c->arg[i].key, r->arg_key.text, r->arg_key.bytes);
    }
    str_set(r, &c->arg[i].type, r->arg_type.text, r->arg_type.bytes);
    str_set(r, &c->arg[i].text, r->arg.data, r->arg.len);
}

static void store_raw(waste_reply *r)
{
    waste_reply_call *c = r->n_calls ? &r->call[r->n_calls - 1] : NULL;

    if (!r->in_raw) return;
    r->in_raw = 0;
    if (!c) return;
    str_set(r, &c->raw, r->raw.data, r->raw.len);
    c->has_raw = 1;
}

static void start_call(waste_reply *r, waste_str h)
{
    waste_reply_call *c = grow(r, r->call, r->n_calls, &r->cap_calls, sizeof *c);
    waste_buf *b = &r->scratch;

    if (!c) return;
    r->call = c;
    c = &r->call[r->n_calls];
    memset(c, 0, sizeof *c);
    r->n_calls++;
    attribute(r, h, "tool", b);
    str_set(r, &c->name, b->data, b->len);
    if (!attribute(r, h, "index", b) || parse_index(b, &c->index)) c->index = (int64_t)r->n_calls;
    attribute(r, h, "id", b);
    if (b->len == 0) waste_buf_printf(b, "call_%lld", (long long)c->index);
    if (b->failed) r->nomem = 1;
    str_set(r, &c->id, b->data, b->len);
}

static void start_argument(waste_reply *r, waste_str h)
{
    store_argument(r);
    attribute(r, h, "key", &r->scratch);
    str_set(r, &r->arg_key, r->scratch.data, r->scratch.len);
    attribute(r, h, "type", &r->scratch);
    str_set(r, &r->arg_type, r->scratch.data, r->scratch.len);
    r->arg.len = 0;
    r->in_arg = 1;
}

/* ---- the stack --------------------------------------------------------- */

static void push_element(waste_reply *r, waste_str name)
{
    waste_str *s = grow(r, r->stack, r->depth, &r->cap_depth, sizeof *s);

    if (!s) return;
    r->stack = s;
    memset(&s[r->depth], 0, sizeof *s);
    str_set(r, &s[r->depth], name.text, name.bytes);
    r->depth++;
}

static void pop_element(waste_reply *r)
{
    waste_str *top = &r->stack[--r->depth];

    if (str_is(*top, "argument")) store_argument(r);
    if (str_is(*top, "json")) store_raw(r);
    str_clear(top);
}

static int response_is_open(const waste_reply *r)
{
    size_t i;

    for (i = 0; i < r->depth; i++) {
        if (str_is(r->stack[i], "response")) return 1;
    }
    return 0;
}

static void apply_open(waste_reply *r, waste_str h)
{
    waste_str name = waste_header_name(h);

    if (str_is(name, "call")) start_call(r, h);
    if (str_is(name, "argument")) start_argument(r, h);
    if (str_is(name, "json")) {
        store_raw(r);
        r->raw.len = 0;
        r->in_raw = 1;
    }
    if (str_is(name, "response")) r->answered = 1;
    if (!r->nomem) push_element(r, name);
}

static void apply_close(waste_reply *r, waste_str h)
{
    waste_str name = waste_header_name(h);
    int was_open = !r->o.to_end && response_is_open(r);
    size_t at;

    if (str_is(name, "argument")) store_argument(r);
    if (str_is(name, "json")) store_raw(r);
    if (name.bytes == 0) {
        if (r->depth) pop_element(r);
    } else {
        for (at = r->depth; at > 0 && !str_same(r->stack[at - 1], name); at--)
            ;
        while (at > 0 && r->depth >= at) pop_element(r);
    }
    if (str_is(name, "message")) r->message_closed = 1;
    if (was_open && !response_is_open(r)) r->done = 1;
}

/* ---- text -------------------------------------------------------------- */

static int top_is(const waste_reply *r, const char *name)
{
    return r->depth && str_is(r->stack[r->depth - 1], name);
}

/* Where literal text goes now. */
static waste_region place(const waste_reply *r)
{
    if (r->in_header) return WASTE_REGION_MARKUP;
    if (r->in_raw || r->in_arg || top_is(r, "tools") || top_is(r, "call"))
        return WASTE_REGION_TOOLS;
    return top_is(r, "think") ? WASTE_REGION_REASONING : WASTE_REGION_ANSWER;
}

static void route(waste_reply *r, const char *text, size_t n)
{
    switch (place(r)) {
    case WASTE_REGION_MARKUP: waste_buf_add(&r->header, text, n); break;
    case WASTE_REGION_REASONING: waste_buf_add(&r->reasoning, text, n); break;
    case WASTE_REGION_ANSWER: waste_buf_add(&r->answer, text, n); break;
    case WASTE_REGION_TOOLS:
        if (!r->in_raw && !r->in_arg) break;
        waste_buf_add(r->in_raw ? &r->raw : &r->arg, text, n);
        waste_buf_add(&r->tools, text, n);
        break;
    }
}

static void literal(waste_reply *r, const char *bytes, size_t n)
{
    char *to = NULL;

    r->scratch.len = 0;
    if (n <= SIZE_MAX / 8) to = waste_buf_room(&r->scratch, 3 * (n + 4));
    if (!to) {
        r->nomem = 1;
        return;
    }
    route(r, to, waste_utf8_push(&r->utf8, bytes, n, to));
}

/* Bytes of a code point that a marker or the end cut short. */
static void flush_utf8(waste_reply *r)
{
    char rest[12];

    route(r, rest, waste_utf8_end(&r->utf8, rest));
}

static void xtml_token(waste_reply *r, int32_t id, const char *bytes, size_t n)
{
    int open = id == r->o.mark[WASTE_MARK_OPEN], sep = id == r->o.mark[WASTE_MARK_SEP];

    if (!open && !sep && id != r->o.mark[WASTE_MARK_CLOSE]) {
        literal(r, bytes, n);
        return;
    }
    flush_utf8(r);
    if (!sep) {
        r->in_header = 1;
        r->header_mark = open ? WASTE_MARK_OPEN : WASTE_MARK_CLOSE;
        r->header.len = 0;
    } else if (r->in_header) {
        r->in_header = 0;
        if (r->header_mark == WASTE_MARK_OPEN)
            apply_open(r, header_text(r));
        else
            apply_close(r, header_text(r));
    }
}

/* ---- the interface ----------------------------------------------------- */

waste_status waste_reply_new(waste_reply **out, const waste_reply_options *o, waste_error *err)
{
    waste_reply *r = waste_mem_zero(sizeof *r);

    *out = NULL;
    if (r) {
        r->o = *o;
        r->o.channel = NULL; /* the caller's; not kept */
        if (o->format == WASTE_CHAT_XTML && o->channel) {
            waste_str name = {o->channel, strlen(o->channel)};
            push_element(r, name);
            r->answered = str_is(name, "response");
        }
    }
    if (!r || r->nomem) {
        waste_reply_free(r);
        return waste_fail(err, WASTE_NOMEM, "out of memory for a reply");
    }
    *out = r;
    return WASTE_OK;
}

void waste_reply_free(waste_reply *r)
{
    size_t i, k;

    if (!r) return;
    for (i = 0; i < r->depth; i++) str_clear(&r->stack[i]);
    for (i = 0; i < r->n_calls; i++) {
        waste_reply_call *c = &r->call[i];
        for (k = 0; k < c->n_args; k++) {
            str_clear(&c->arg[k].key);
            str_clear(&c->arg[k].type);
            str_clear(&c->arg[k].text);
        }
        waste_mem_free(c->arg);
        str_clear(&c->name);
        str_clear(&c->id);
        str_clear(&c->raw);
    }
    waste_mem_free(r->stack);
    waste_mem_free(r->call);
    str_clear(&r->arg_key);
    str_clear(&r->arg_type);
    waste_buf_clear(&r->header);
    waste_buf_clear(&r->arg);
    waste_buf_clear(&r->raw);
    waste_buf_clear(&r->answer);
    waste_buf_clear(&r->reasoning);
    waste_buf_clear(&r->tools);
    waste_buf_clear(&r->scratch);
    waste_mem_free(r);
}

static void begin(waste_reply *r, waste_reply_delta *delta)
{
    memset(delta, 0, sizeof *delta);
    r->answer.len = r->reasoning.len = r->tools.len = 0;
}

static waste_str lend(const waste_buf *b)
{
    waste_str s = {b->len ? b->data : "", b->len};

    return s;
}

static waste_status finish(waste_reply *r, waste_reply_delta *delta, waste_error *err)
{
    const waste_buf *const all[] = {&r->header,    &r->arg,   &r->raw,    &r->answer,
                                    &r->reasoning, &r->tools, &r->scratch};
    size_t i;

    for (i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->failed) r->nomem = 1;
    }
    if (r->nomem) return waste_fail(err, WASTE_NOMEM, "out of memory reading a reply");
    delta->answer = lend(&r->answer);
    delta->reasoning = lend(&r->reasoning);
    delta->tools = lend(&r->tools);
    delta->done = r->done;
    return WASTE_OK;
}

waste_status waste_reply_push(waste_reply *r, int32_t id, const char *bytes, size_t n,
                              waste_reply_delta *delta, waste_error *err)
{
    int xtml = r->o.format == WASTE_CHAT_XTML;

    begin(r, delta);
    delta->region = place(r);
    if (!r->done && ((xtml && id == r->o.mark[WASTE_MARK_END]) ||
                     (r->o.format == WASTE_CHAT_PLAIN && id == r->o.stop)))
        r->ended_by_mark = 1;
    if (r->done || r->ended_by_mark || (r->o.eos >= 0 && id == r->o.eos)) {
        r->done = 1;
        delta->region = WASTE_REGION_MARKUP;
    } else if (xtml) {
        if (id == r->o.mark[WASTE_MARK_OPEN] || id == r->o.mark[WASTE_MARK_CLOSE] ||
            id == r->o.mark[WASTE_MARK_SEP])
            delta->region = WASTE_REGION_MARKUP;
        xtml_token(r, id, bytes, n);
    } else {
        literal(r, bytes, n);
    }
    return finish(r, delta, err);
}

void waste_reply_cut(waste_reply *r)
{
    if (!r->in_header) return;
    flush_utf8(r); /* into the header: its bytes are no text either */
    r->in_header = 0;
    r->cut_header = 1;
}

waste_status waste_reply_end(waste_reply *r, waste_reply_delta *delta, waste_error *err)
{
    begin(r, delta);
    delta->region = place(r);
    flush_utf8(r);
    if (r->in_header) {
        const char *mark = waste_chat_mark_text(r->header_mark);

        r->in_header = 0;
        r->cut_header = 1;
        route(r, mark, strlen(mark));
        route(r, r->header.data, r->header.len);
    }
    store_raw(r);
    store_argument(r);
    r->done = 1;
    return finish(r, delta, err);
}

size_t waste_reply_calls(const waste_reply *r)
{
    return r->n_calls;
}

const waste_reply_call *waste_reply_call_at(const waste_reply *r, size_t i)
{
    return &r->call[i];
}

/* ---- what follows ------------------------------------------------------ */

int waste_reply_stopped(const waste_reply *r)
{
    return r->ended_by_mark;
}

static void add_mark(waste_segments *s, waste_mark m)
{
    const char *text = waste_chat_mark_text(m);

    waste_chat_add(s, text, strlen(text), 1);
}

static void close_element(waste_segments *s, waste_str name)
{
    add_mark(s, WASTE_MARK_CLOSE);
    waste_chat_add(s, name.text, name.bytes, 0);
    add_mark(s, WASTE_MARK_SEP);
}

int waste_reply_thinks(const waste_reply *r)
{
    return r->o.format == WASTE_CHAT_XTML && !r->done && place(r) == WASTE_REGION_REASONING;
}

void waste_reply_leave(const waste_reply *r, waste_segments *s)
{
    waste_chat_element_close(s, "think");
    if (!r->answered) waste_chat_element_open(s, "response", NULL, 0);
}

void waste_reply_closing(const waste_reply *r, waste_segments *s)
{
    int answered = r->answered, closed = r->message_closed;
    size_t depth = r->depth, at;

    if (r->o.format != WASTE_CHAT_XTML || r->ended_by_mark) return;
    if (r->cut_header) { /* is ended, with the effect it then has */
        const waste_str name = waste_header_name(header_text(r));

        add_mark(s, WASTE_MARK_SEP);
        if (r->header_mark == WASTE_MARK_OPEN) {
            answered |= str_is(name, "response");
            close_element(s, name);
        } else {
            closed |= str_is(name, "message");
            for (at = depth; at > 0 && !str_same(r->stack[at - 1], name); at--)
                ;
            if (at > 0) depth = at - 1;
        }
    }
    if (!closed) {
        while (depth > 0) close_element(s, r->stack[--depth]);
        if (!answered) {
            waste_chat_element_open(s, "response", NULL, 0);
            waste_chat_element_close(s, "response");
        }
        waste_chat_element_close(s, "message");
    }
    add_mark(s, WASTE_MARK_END);
}
