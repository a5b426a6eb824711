/* Options of sessions and turns, and the tokens of messages: see ext_talk.h. The
 * options are read twice: what concerns the reply by ext_request.c, what shapes the
 * prompt by the engine's renderer, which gets them as text. */
#include "ext_talk.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ext_args.h"

SQLITE_EXTENSION_INIT3

#define SPLIT_MOST 32 /* unread messages whose tokens are told apart */
#define KEEP_MOST  1000000

/* Options of every turn. */
#define TURN (WASTE_TAKES_SAMPLING | WASTE_TAKES_CHAT | WASTE_TAKES_TRUNCATE)

static const char *const of_message[] = {"role", "name", "tool_call_id", NULL};
static const char *const of_session[] = {"system", "state", NULL};
static const char *const of_nobody[] = {"add_generation_prompt", "image_prompts", NULL};
static const char *const about_thinking[] = {"thinking", "reasoning_effort", "thinking_effort",
                                             "reasoning", NULL};

static int is_among(const char *key, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(key, *words) == 0) return 1;
    return 0;
}

static int is_given(const waste_json *object, const char *key)
{
    return waste_json_kind_of(waste_json_get(object, key)) > WASTE_JSON_NULL;
}

static waste_status refuse(const waste_json *doc, const char *const *words, const char *who,
                           const char *why, waste_error *err)
{
    for (; *words; words++)
        if (waste_json_get(doc, *words))
            return waste_fail(err, WASTE_ARG, "%s takes no option '%s': %s", who, *words, why);
    return WASTE_OK;
}

static waste_status read_word(waste_str *out, const waste_json *doc, const char *key,
                              const char *who, waste_error *err)
{
    const waste_json *j = waste_json_get(doc, key);

    if (!is_given(doc, key)) return WASTE_OK;
    out->text = waste_json_text(j, &out->bytes);
    if (out->text) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s: option '%s' is %s, wanted text", who, key,
                      waste_json_kind_name(waste_json_kind_of(j)));
}

/* Appends to an object that has no closing brace yet what `doc` says about prompt and
 * reply, and `over` does not. */
static waste_status merge(waste_buf *b, const waste_json *doc, const waste_json *over,
                          waste_error *err)
{
    waste_json_iter it = {0};
    size_t n;
    char *text;

    while (waste_json_each(&it, doc)) {
        if (!is_given(doc, it.key) || is_given(over, it.key) || is_among(it.key, of_message) ||
            is_among(it.key, of_session))
            continue;
        text = waste_json_dump(it.value, &n);
        if (!text) return waste_fail(err, WASTE_NOMEM, "out of memory for options");
        if (b->len > 1) waste_buf_byte(b, ',');
        waste_json_quote(b, it.key, strlen(it.key));
        waste_buf_byte(b, ':');
        waste_buf_add(b, text, n);
        waste_mem_free(text);
    }
    return b->failed ? waste_fail(err, WASTE_NOMEM, "out of memory for options") : WASTE_OK;
}

/* Thinking takes many tokens, so it is asked for, here as in waste_generate. */
static void add_thinking(waste_buf *b, const waste_json *below, const waste_json *own)
{
    const char *const *word = about_thinking;

    for (; *word; word++)
        if (is_given(below, *word) || is_given(own, *word)) return;
    waste_buf_text(b, b->len > 1 ? ",\"thinking\":false" : "\"thinking\":false");
}

/* Text as an SQL value, which is what requests are read from. */
static waste_status make_value(sqlite3_value **out, sqlite3 *db, const waste_buf *text,
                               waste_error *err)
{
    sqlite3_stmt *q = NULL;

    *out = NULL;
    if (sqlite3_prepare_v2(db, "SELECT ?1", -1, &q, NULL) == SQLITE_OK &&
        sqlite3_bind_text64(q, 1, text->data, text->len, SQLITE_STATIC, SQLITE_UTF8) == SQLITE_OK &&
        sqlite3_step(q) == SQLITE_ROW)
        *out = sqlite3_value_dup(sqlite3_column_value(q, 0));
    sqlite3_finalize(q);
    return *out ? WASTE_OK : waste_session_failed(db, "reading the options", err);
}

/* ---- a turn's options ----------------------------------------------------------------- */

static waste_status read_message_options(waste_talk *t, const char *who, waste_error *err)
{
    static const char *const roles[] = {"user", "tool", "system", NULL};
    waste_status st = read_word(&t->role, t->own, "role", who, err);

    if (!st) st = read_word(&t->name, t->own, "name", who, err);
    if (!st) st = read_word(&t->call_id, t->own, "tool_call_id", who, err);
    if (st) return st;
    if (!t->role.text) {
        t->role.text = t->call_id.text ? "tool" : "user";
        t->role.bytes = 4;
    }
    if (is_among(t->role.text, roles)) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s: option 'role' is '%.40s', wanted user, tool or system",
                      who, t->role.text);
}

waste_status waste_talk_read(waste_talk *t, const waste_session *s, const char *who, unsigned takes,
                             sqlite3_value *message, sqlite3_value *options, int n_parts,
                             sqlite3_value **parts, waste_error *err)
{
    waste_json *below = NULL;
    waste_buf all = {0};
    char what[64];
    waste_status st = WASTE_OK;

    snprintf(what, sizeof what, "%s: options", who);
    if (s->options)
        st = waste_args_object_text(&below, s->options, strlen(s->options), "the session's options",
                                    err);
    if (!st && options) st = waste_args_object(&t->own, options, what, err);
    if (!st) st = refuse(t->own, of_session, who, "it is of waste_session", err);
    if (!st) st = refuse(t->own, of_nobody, who, "a turn is always answered, without images", err);
    if (!st) st = read_message_options(t, who, err);
    waste_buf_byte(&all, '{');
    if (!st) st = merge(&all, below, t->own, err);
    if (!st) st = merge(&all, t->own, NULL, err);
    add_thinking(&all, below, t->own);
    waste_buf_add(&t->shape, all.data, all.len);
    waste_buf_byte(&all, '}');
    if (!st && (all.failed || t->shape.failed))
        st = waste_fail(err, WASTE_NOMEM, "out of memory for options");
    if (!st) st = make_value(&t->merged, s->db, &all, err);
    if (!st) st = waste_request_read(&t->request, who, takes | TURN, message, t->merged, err);
    if (!st) st = waste_request_parts(&t->request, who, 4, n_parts, parts, err);
    waste_buf_clear(&all);
    waste_json_free(below);
    return st;
}

void waste_talk_clear(waste_talk *t)
{
    waste_request_clear(&t->request);
    waste_json_free(t->own);
    sqlite3_value_free(t->merged);
    waste_buf_clear(&t->shape);
    waste_buf_clear(&t->whole);
    waste_buf_clear(&t->messages);
    memset(t, 0, sizeof *t);
}

/* ---- a session's options --------------------------------------------------------------- */

static waste_status read_keep(const waste_json *j, int64_t *keep, waste_error *err)
{
    static const char *const words[] = {"none", "keep", NULL};
    const int word = waste_args_word(j, words);

    *keep = 1;
    if (waste_json_kind_of(j) <= WASTE_JSON_NULL) return WASTE_OK;
    if (word >= 0) *keep = word;
    if (word >= 0 || (!waste_json_int(j, keep) && *keep >= 1 && *keep <= KEEP_MOST))
        return WASTE_OK;
    return waste_fail(
        err, WASTE_ARG,
        "waste_session: option 'state' wants \"keep\", \"none\" or how many of the last "
        "turns to keep, from 1 to %d",
        KEEP_MOST);
}

/* Whether turns would take them. */
static waste_status try_options(sqlite3 *db, const waste_buf *rest, waste_error *err)
{
    waste_request r = {0};
    sqlite3_value *value;
    waste_status st = make_value(&value, db, rest, err);

    if (!st) st = waste_request_read(&r, "waste_session", TURN, value, value, err);
    waste_request_clear(&r);
    sqlite3_value_free(value);
    return st;
}

waste_status waste_talk_defaults(sqlite3 *db, sqlite3_value *options, waste_buf *rest,
                                 char **system, int64_t *keep, waste_error *err)
{
    static const char who[] = "waste_session";
    waste_str text = {NULL, 0};
    waste_json *doc = NULL;
    waste_status st = WASTE_OK;

    *system = NULL;
    *keep = 1;
    if (options) st = waste_args_object(&doc, options, "waste_session: options", err);
    if (!st) st = refuse(doc, of_message, who, "it is of a single message", err);
    if (!st) st = refuse(doc, of_nobody, who, "a turn is always answered, without images", err);
    if (!st) st = read_keep(waste_json_get(doc, "state"), keep, err);
    if (!st) st = read_word(&text, doc, "system", who, err);
    waste_buf_byte(rest, '{');
    if (!st) st = merge(rest, doc, NULL, err);
    waste_buf_byte(rest, '}');
    if (!st && rest->failed) st = waste_fail(err, WASTE_NOMEM, "out of memory for options");
    if (!st) st = try_options(db, rest, err);
    if (rest->len == 2) rest->len = 0;
    if (!st && text.text && !(*system = waste_mem_text(text.text, text.bytes)))
        st = waste_fail(err, WASTE_NOMEM, "out of memory for options");
    waste_json_free(doc);
    return st;
}

/* ---- tokens ----------------------------------------------------------------------------- */

waste_status waste_talk_request(waste_talk *t, const waste_session *s, size_t n, int floor,
                                waste_chat_request *out, waste_error *err)
{
    t->messages.len = t->whole.len = 0;
    waste_buf_add(&t->messages, s->tail.data, s->at[n - 1]);
    waste_buf_byte(&t->messages, ']');
    waste_buf_add(&t->whole, t->shape.data, t->shape.len);
    waste_buf_printf(&t->whole, ",\"add_generation_prompt\":%s}", floor ? "true" : "false");
    if (t->messages.failed || t->whole.failed)
        return waste_fail(err, WASTE_NOMEM, "out of memory for a prompt");
    out->messages.text = t->messages.data;
    out->messages.bytes = t->messages.len;
    out->options.text = t->whole.data;
    out->options.bytes = t->whole.len;
    out->skip = s->skip;
    return WASTE_OK;
}

/* Ids of what is unread among the first n messages of the tail. */
static waste_status render(waste_talk *t, const waste_session *s, const waste_container *c,
                           size_t n, int floor, waste_ids *out, waste_error *err)
{
    waste_chat_request chat;
    waste_prompt p = {0};
    waste_status st = waste_talk_request(t, s, n, floor, &chat, err);

    p.chat = &chat;
    waste_ids_clear(out);
    return st ? st : waste_prompt_ids(c, &p, out, err);
}

waste_status waste_talk_opening(waste_talk *t, const waste_container *c, waste_ids *out,
                                waste_error *err)
{
#define ANY "{\"role\":\"user\",\"content\":\"x\"}"
    static const char any[] = "[" ANY "," ANY "]";
    waste_ids with = {0}, without = {0};
    waste_chat_request chat = {{"[" ANY "]", sizeof "[" ANY "]" - 1}, {NULL, 0}, 0};
    waste_prompt p = {.chat = &chat};
    waste_status st;

    t->whole.len = 0;
    waste_buf_add(&t->whole, t->shape.data, t->shape.len);
    waste_buf_text(&t->whole, ",\"add_generation_prompt\":false}");
    if (t->whole.failed) return waste_fail(err, WASTE_NOMEM, "out of memory for a prompt");
    chat.options.text = t->whole.data;
    chat.options.bytes = t->whole.len;
    st = waste_prompt_ids(c, &p, &with, err);
    chat.messages.text = any;
    chat.messages.bytes = sizeof any - 1;
    chat.skip = 1;
    if (!st) st = waste_prompt_ids(c, &p, &without, err);
    if (!st) with.n -= without.n; /* segments are tokenized apart, so one begins the other */
    waste_ids_clear(&without);
    if (st)
        waste_ids_clear(&with);
    else
        *out = with;
    return st;
#undef ANY
}

static int begins(const waste_ids *a, const waste_ids *b)
{
    return a->n <= b->n && (!a->n || memcmp(a->id, b->id, a->n * sizeof *a->id) == 0);
}

/* Messages whose tokens cannot be told from those of a later one have none. */
static void empty_out(waste_session *s, size_t from, size_t to)
{
    for (; from < to; from++) s->message[from].from = s->message[from].to = s->ids.n;
}

/* Which message made which tokens is found by rendering one more at a time. Where that
 * does not just lengthen the prompt (tool results are put in order), they count to the
 * later message. */
waste_status waste_talk_split(waste_talk *t, waste_session *s, const waste_container *c,
                              waste_ids *prompt, waste_error *err)
{
    const size_t fresh = s->n - s->known;
    waste_ids before = {0}, now = {0};
    size_t i = fresh > SPLIT_MOST ? fresh - 1 : 0;
    waste_status st = WASTE_OK;

    empty_out(s, s->known, s->known + i);
    for (; i < fresh && !st; i++) {
        waste_session_message *m = &s->message[s->known + i];

        st = render(t, s, c, s->skip + i + 1, 0, &now, err);
        if (!st && !begins(&before, &now)) {
            empty_out(s, s->known, s->known + i);
            before.n = 0;
        }
        m->from = s->ids.n + before.n;
        m->to = s->ids.n + now.n;
        waste_ids_clear(&before);
        before = now;
        now.id = NULL;
        now.n = 0;
    }
    if (!st) st = render(t, s, c, s->skip + fresh, 1, prompt, err);
    if (!st && !begins(&before, prompt)) empty_out(s, s->known, s->n);
    waste_ids_clear(&before);
    waste_ids_clear(&now);
    return st;
}
