/* Tokenizer, chat and vision files: see files.h. All is read before the first
 * weight is converted, so that a bad file costs seconds and not a day. */
#include "convert/files.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/plat.h"

#define MAX_TEXT (64u << 20) /* of one file; K3's rank file has 3 MB */

typedef struct special {
    uint64_t id;
    const char *text; /* borrowed from the JSON */
    size_t bytes;
} special;

typedef struct specials {
    special *at; /* ascending id */
    size_t n;
} specials;

static waste_status no_memory(const char *path, waste_error *err)
{
    return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
}

static waste_buf *add(waste_files *f, const char *name)
{
    f->item[f->n].name = name;
    return &f->item[f->n++].data;
}

/* WASTE_OK and 0 in *there when the directory has no such file. */
static waste_status locate(const char *dir, const char *name, char *path, int *there,
                           waste_error *err)
{
    waste_status st = waste_path_join(path, WASTE_PATH_MAX, dir, name, err);

    *there = !st && waste_path_exists(path);
    return st;
}

static waste_status load_json(const char *dir, const char *name, waste_json **out, char *path,
                              waste_error *err)
{
    int there;
    waste_status st = locate(dir, name, path, &there, err);

    *out = NULL;
    if (st || !there) return st;
    st = waste_json_load(out, path, err);
    if (!st && waste_json_kind_of(*out) != WASTE_JSON_OBJECT)
        st = waste_fail(err, WASTE_FORMAT, "%s is not a JSON object", path);
    return st;
}

/* The first of `from` that the directory has, as `name`. */
static waste_status copy(waste_files *f, const char *dir, const char *const *from, size_t n,
                         const char *name, waste_error *err)
{
    char path[WASTE_PATH_MAX], *data;
    size_t i, bytes;
    int there = 0;
    waste_status st = WASTE_OK;
    waste_buf *b;

    for (i = 0; !st && !there && i < n; i++) st = locate(dir, from[i], path, &there, err);
    if (st || !there) return st;
    st = waste_file_load(path, MAX_TEXT, &data, &bytes, err);
    if (st) return st;
    b = add(f, name);
    waste_buf_add(b, data, bytes);
    waste_mem_free(data);
    return b->failed ? no_memory(path, err) : WASTE_OK;
}

/* ---- special tokens ------------------------------------------------------------------ */

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const special *)a)->id, y = ((const special *)b)->id;

    return x < y ? -1 : x > y;
}

static waste_status read_specials(specials *s, const waste_json *config, const waste_settings *c,
                                  const char *path, waste_error *err)
{
    const waste_json *list = waste_json_get(config, "added_tokens_decoder");
    waste_json_iter it = {0};
    size_t n = waste_json_count(list), i;

    if (!list) return WASTE_OK;
    if (waste_json_kind_of(list) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_FORMAT, "%s: added_tokens_decoder is not an object", path);
    if (n == 0) return WASTE_OK;
    s->at = waste_mem_array(n, sizeof *s->at);
    if (!s->at) return no_memory(path, err);
    while (waste_json_each(&it, list)) {
        special *t = s->at + s->n;
        t->text = waste_json_text(waste_json_get(it.value, "content"), &t->bytes);
        if (!t->text)
            return waste_fail(err, WASTE_FORMAT, "%s: added token \"%s\" has no content", path,
                              it.key);
        if (waste_parse_u64(it.key, strlen(it.key), (uint64_t)c->vocab - 1, &t->id))
            return waste_fail(err, WASTE_FORMAT,
                              "%s: added token \"%s\" is no id of a vocabulary of %d", path, it.key,
                              c->vocab);
        s->n++;
    }
    qsort(s->at, s->n, sizeof *s->at, by_id);
    for (i = 1; i < s->n; i++)
        if (s->at[i].id == s->at[i - 1].id)
            return waste_fail(err, WASTE_FORMAT, "%s: added token %llu is there twice", path,
                              (unsigned long long)s->at[i].id);
    return WASTE_OK;
}

static void put_specials(waste_buf *b, const specials *s)
{
    size_t i;

    waste_buf_byte(b, '[');
    for (i = 0; i < s->n; i++) {
        waste_buf_printf(b, "%s\n{\"id\":%llu,\"text\":", i ? "," : "",
                         (unsigned long long)s->at[i].id);
        waste_json_quote(b, s->at[i].text, s->at[i].bytes);
        waste_buf_byte(b, '}');
    }
    waste_buf_text(b, "\n]\n");
}

/* ---- chat ------------------------------------------------------------------------------ */

/* docs/chat.md 1: the formats of the architectures that are known. */
static const struct {
    const char *arch, *json;
} chats[] = {
    {"kimi-linear", "{\n"
                    " \"system\": [\"<|im_system|>system<|im_middle|>\", \"<|im_end|>\"],\n"
                    " \"user\": [\"<|im_user|>user<|im_middle|>\", \"<|im_end|>\"],\n"
                    " \"assistant\": [\"<|im_assistant|>assistant<|im_middle|>\", "
                    "\"<|im_end|>\"],\n"
                    " \"open\": \"<|im_assistant|>assistant<|im_middle|>\"\n"
                    "}\n"},
    {"kimi-k3", "{\n"
                " \"system\": [\"<|open|>message role=\\\"system\\\"<|sep|>\", "
                "\"<|close|>message<|sep|><|end_of_msg|>\"],\n"
                " \"user\": [\"<|open|>message role=\\\"user\\\"<|sep|>\", "
                "\"<|close|>message<|sep|><|end_of_msg|>\"],\n"
                " \"assistant\": [\"<|open|>message role=\\\"assistant\\\"<|sep|>"
                "<|open|>response<|sep|>\", "
                "\"<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>\"],\n"
                " \"open\": \"<|open|>message role=\\\"assistant\\\"<|sep|>"
                "<|open|>response<|sep|>\"\n"
                "}\n"},
};

static int is_special(const specials *s, const char *text, size_t bytes)
{
    size_t i;

    for (i = 0; i < s->n; i++)
        if (s->at[i].bytes == bytes && memcmp(s->at[i].text, text, bytes) == 0) return 1;
    return 0;
}

/* Every <|...|> of the template is one token of this tokenizer. */
static int all_markers_known(const char *json, const specials *s)
{
    const char *at = json, *end;

    while ((at = strstr(at, "<|")) != NULL) {
        end = strstr(at, "|>");
        if (!end || !is_special(s, at, (size_t)(end + 2 - at))) return 0;
        at = end + 2;
    }
    return 1;
}

static waste_status put_chat(waste_files *f, const waste_settings *c, const specials *s,
                             waste_error *err)
{
    size_t i;

    for (i = 0; i < sizeof chats / sizeof *chats; i++) {
        waste_buf *b;
        if (strcmp(chats[i].arch, c->arch) != 0 || !all_markers_known(chats[i].json, s)) continue;
        b = add(f, "chat.json");
        waste_buf_text(b, chats[i].json);
        if (b->failed) return no_memory("chat.json", err);
    }
    return WASTE_OK;
}

/* A template is text, or a list of {"name", "template"} with one named default. */
static const char *template_of(const waste_json *config, size_t *bytes)
{
    const waste_json *j = waste_json_get(config, "chat_template");
    size_t i;

    for (i = 0; waste_json_kind_of(j) == WASTE_JSON_ARRAY && i < waste_json_count(j); i++) {
        const waste_json *one = waste_json_at(j, i);
        const char *name = waste_json_text(waste_json_get(one, "name"), NULL);
        if (name && strcmp(name, "default") == 0)
            return waste_json_text(waste_json_get(one, "template"), bytes);
    }
    return waste_json_text(j, bytes);
}

static waste_status put_template(waste_files *f, const char *dir, const waste_json *config,
                                 waste_error *err)
{
    static const char *const from[] = {"chat_template.jinja"};
    char path[WASTE_PATH_MAX];
    waste_json *own = NULL;
    const char *text;
    size_t bytes;
    int before = f->n;
    waste_status st = copy(f, dir, from, 1, "chat_template.jinja", err);

    if (st || f->n > before) return st;
    st = load_json(dir, "chat_template.json", &own, path, err);
    text = template_of(own, &bytes);
    if (!text) text = template_of(config, &bytes);
    if (!st && text) {
        waste_buf *b = add(f, "chat_template.jinja");
        waste_buf_add(b, text, bytes);
        if (b->failed) st = no_memory("chat_template.jinja", err);
    }
    waste_json_free(own);
    return st;
}

/* ---- vision ------------------------------------------------------------------------------ */

static void put_member(waste_buf *b, const char *key, const waste_json *j)
{
    size_t n;
    char *text;

    if (!j) return;
    text = waste_json_dump(j, &n);
    waste_buf_text(b, b->len > 1 ? ",\n" : "\n");
    waste_json_quote(b, key, strlen(key));
    waste_buf_byte(b, ':');
    if (text)
        waste_buf_add(b, text, n);
    else
        b->failed = 1;
    waste_mem_free(text);
}

static int is_three_numbers(const waste_json *j)
{
    double x;

    return waste_json_count(j) == 3 && !waste_json_number(waste_json_at(j, 0), &x) &&
           !waste_json_number(waste_json_at(j, 1), &x) &&
           !waste_json_number(waste_json_at(j, 2), &x);
}

static waste_status put_vision(waste_files *f, const char *dir, const waste_settings *c,
                               waste_error *err)
{
    static const char *const pixels[] = {"image_mean", "image_std", "patch_size", "in_patch_limit",
                                         "patch_limit_on_one_side"};
    const waste_json *vision = waste_json_get(c->outer, "vision_config"), *cfg;
    char path[WASTE_PATH_MAX];
    waste_json_iter it = {0};
    waste_json *pre = NULL;
    waste_buf *b;
    size_t i;
    waste_status st;

    if (waste_json_kind_of(vision) != WASTE_JSON_OBJECT) return WASTE_OK;
    st = load_json(dir, "preprocessor_config.json", &pre, path, err);
    cfg = waste_json_get(pre, "media_proc_cfg");
    for (i = 0; !st && i < 2; i++)
        if (waste_json_get(cfg, pixels[i]) && !is_three_numbers(waste_json_get(cfg, pixels[i])))
            st = waste_fail(err, WASTE_FORMAT, "%s: %s is not three numbers", path, pixels[i]);
    if (st) {
        waste_json_free(pre);
        return st;
    }
    b = add(f, "vision.json");
    waste_buf_byte(b, '{');
    while (waste_json_each(&it, vision)) {
        int replaced = *it.key == '_' || strcmp(it.key, "vt_rms_eps") == 0 ||
                       strcmp(it.key, "max_patches") == 0 ||
                       strcmp(it.key, "media_placeholder_token_id") == 0;
        for (i = 0; i < sizeof pixels / sizeof *pixels; i++) {
            int own = i < 2 || waste_json_get(cfg, pixels[i]); /* mean and std always */
            replaced |= own && strcmp(it.key, pixels[i]) == 0;
        }
        if (!replaced) put_member(b, it.key, it.value);
    }
    put_member(b, "media_placeholder_token_id",
               waste_json_get(c->outer, "media_placeholder_token_id"));
    for (i = 0; i < sizeof pixels / sizeof *pixels; i++) {
        put_member(b, pixels[i], waste_json_get(cfg, pixels[i]));
        if (i < 2 && !waste_json_get(cfg, pixels[i])) /* K3's, not CLIP's */
            waste_buf_printf(b, "%s\n\"%s\":[0.5,0.5,0.5]", b->len > 1 ? "," : "", pixels[i]);
    }
    waste_buf_text(b, ",\n\"vt_rms_eps\":1.1920928955078125e-07,\n\"max_patches\":1024\n}\n");
    waste_json_free(pre);
    return b->failed ? no_memory("vision.json", err) : WASTE_OK;
}

/* ---- all of them ---------------------------------------------------------------------------- */

waste_status waste_files_prepare(waste_files *f, const char *dir, const waste_settings *c,
                                 waste_error *err)
{
    static const char *const ranks[] = {"tiktoken.model", "tokenizer.model"};
    char path[WASTE_PATH_MAX];
    waste_json *config = NULL;
    specials s = {0};
    waste_status st;

    memset(f, 0, sizeof *f);
    st = copy(f, dir, ranks, 2, "tokenizer.model", err);
    if (!st) st = load_json(dir, "tokenizer_config.json", &config, path, err);
    if (!st) st = read_specials(&s, config, c, path, err);
    if (!st && s.n) {
        waste_buf *b = add(f, "specials.json");
        put_specials(b, &s);
        if (b->failed) st = no_memory("specials.json", err);
    }
    if (!st) st = put_template(f, dir, config, err);
    if (!st) st = put_chat(f, c, &s, err);
    if (!st) st = put_vision(f, dir, c, err);
    waste_mem_free(s.at);
    waste_json_free(config);
    return st;
}

waste_status waste_files_write(const waste_files *f, waste_writer *w, waste_error *err)
{
    waste_status st = WASTE_OK;
    int i;

    for (i = 0; !st && i < f->n; i++) {
        if (strcmp(f->item[i].name, "chat.json") == 0 && waste_writer_has(w, "chat.json")) continue;
        st = waste_writer_file(w, f->item[i].name, f->item[i].data.data, f->item[i].data.len, err);
    }
    return st;
}

void waste_files_clear(waste_files *f)
{
    int i;

    for (i = 0; i < f->n; i++) waste_buf_clear(&f->item[i].data);
    f->n = 0;
}
