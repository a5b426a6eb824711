/* chat.json: see chat_plain.h. Owns the parsed file. Immutable once opened, any
 * thread; what always holds: markup segments are the file's templates, all text
 * from the request is content. */
#include "text/chat_plain.h"

#include <string.h>

#include "base/mem.h"
#include "base/plat.h"

/* A chat.json in use has a few hundred bytes. */
#define CHAT_FILE_MAX (1u << 20)

enum { ROLES = WASTE_CHAT_TOOL }; /* system, user, assistant: as in the enum */
enum { PREFIX, SUFFIX };

static const char *const role_names[ROLES] = {"system", "user", "assistant"};

struct waste_chat_plain {
    waste_json *json;         /* owns the strings below */
    waste_str role[ROLES][2]; /* text NULL: the file does not define it */
    waste_str open;
    int32_t stop;
    size_t after_stop; /* where the stop marker ends in the assistant suffix */
};

/* ---- reading ----------------------------------------------------------- */

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

static waste_status read_role(waste_chat_plain *c, const waste_tokenizer *t, int role,
                              const char *path, waste_error *err)
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

static waste_status read_open(waste_chat_plain *c, const waste_tokenizer *t, const char *path,
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

static waste_status read_plain(waste_chat_plain *c, const waste_tokenizer *t, const char *path,
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
    if (!st && !c->role[WASTE_CHAT_USER][PREFIX].text)
        st = waste_fail(err, WASTE_FORMAT, "%s: user is missing", path);
    if (!st) st = read_open(c, t, path, err);
    if (st) return st;
    if (!c->role[WASTE_CHAT_ASSISTANT][SUFFIX].text ||
        !next_marker(c->role[WASTE_CHAT_ASSISTANT][SUFFIX], &at, &stop))
        return waste_fail(err, WASTE_FORMAT,
                          "%s: the assistant suffix %s, so nothing tells where a reply ends", path,
                          c->role[WASTE_CHAT_ASSISTANT][SUFFIX].text ? "holds no <|...|> marker"
                                                                     : "is missing");
    c->stop = waste_tokenizer_special(t, stop.text, stop.bytes);
    c->after_stop = at;
    return WASTE_OK;
}

waste_status waste_chat_plain_open(waste_chat_plain **out, const char *path,
                                   const waste_tokenizer *t, waste_error *err)
{
    waste_chat_plain *c = waste_mem_zero(sizeof *c);
    waste_status st;

    *out = NULL;
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    st = read_plain(c, t, path, err);
    if (st) {
        waste_chat_plain_close(c);
        return st;
    }
    *out = c;
    return WASTE_OK;
}

void waste_chat_plain_close(waste_chat_plain *c)
{
    if (!c) return;
    waste_json_free(c->json);
    waste_mem_free(c);
}

int32_t waste_chat_plain_stop(const waste_chat_plain *c)
{
    return c->stop;
}

waste_str waste_chat_plain_suffix(const waste_chat_plain *c, int stopped)
{
    waste_str s = c->role[WASTE_CHAT_ASSISTANT][SUFFIX];

    if (stopped) {
        s.text += c->after_stop;
        s.bytes -= c->after_stop;
    }
    return s;
}

/* ---- rendering --------------------------------------------------------- */

static waste_status refuse(const char *field, const char *what, waste_error *err)
{
    return waste_fail(err, WASTE_UNSUPPORTED, "%s: the container's chat.json has no %s", field,
                      what);
}

static waste_status check_message(const waste_chat_plain *c, const waste_chat_parsed *p,
                                  const waste_chat_message *m, waste_error *err)
{
    const char *field = NULL;

    if (m->tools) field = "tools";
    if (m->n_calls) field = "tool_calls";
    if (m->role == WASTE_CHAT_TOOL) field = "role";
    if (field)
        return waste_fail(err, WASTE_UNSUPPORTED,
                          "messages[%zu].%s: the container's chat.json has no tools", m->at, field);
    if (!c->role[m->role][PREFIX].text && !p->messages.doc) /* of a single turn */
        return refuse(role_names[m->role], "such role", err);
    if (!c->role[m->role][PREFIX].text)
        return waste_fail(err, WASTE_UNSUPPORTED,
                          "messages[%zu].role: the container's chat.json defines no %s role", m->at,
                          role_names[m->role]);
    return WASTE_OK;
}

static waste_status check_request(const waste_chat_plain *c, const waste_chat_parsed *p,
                                  waste_error *err)
{
    char field[64];
    size_t i;
    waste_status st = WASTE_OK;

    if (p->tools) return refuse("tools", "tools", err);
    if (p->has_choice) return refuse("tool_choice", "tools", err);
    if (p->has_answer) return refuse("response_format", "place for it", err);
    if (p->thinking > 0)
        return refuse(p->effort ? p->effort_field : "thinking", "reasoning channel", err);
    if (p->image) return refuse("image_prompts", "images", err);
    for (i = p->skip; !st && i < p->messages.n; i++)
        st = check_message(c, p, &p->messages.message[i], err);
    if (!st && waste_chat_request_image(p, field, sizeof field)) st = refuse(field, "images", err);
    return st;
}

static void add_template(waste_segments *s, waste_str t)
{
    waste_chat_add(s, t.text, t.bytes, 1);
}

waste_status waste_chat_plain_render(const waste_chat_plain *c, const waste_chat_parsed *p,
                                     waste_segments *s, waste_error *err)
{
    waste_status st = check_request(c, p, err);
    size_t i, k;

    if (st) return st;
    for (i = p->skip; i < p->messages.n; i++) {
        const waste_chat_message *m = &p->messages.message[i];

        add_template(s, c->role[m->role][PREFIX]);
        for (k = 0; k < m->n_parts; k++)
            waste_chat_add(s, m->part[k].text.text, m->part[k].text.bytes, 0);
        add_template(s, c->role[m->role][SUFFIX]);
    }
    if (p->floor) add_template(s, c->open);
    return s->failed ? waste_fail(err, WASTE_NOMEM, "out of memory building a prompt") : WASTE_OK;
}
