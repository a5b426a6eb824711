/* Prompts and generation options: see ext_request.h. The table below is the
 * whole list of generation options; docs/sql.md describes them. */
#include "ext_request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

SQLITE_EXTENSION_INIT3

#define MAX_STOPS 256
#define MAX_BIAS  100000

/* Fields as the options give them; NULL pointers and defaults mean "not given". */
typedef struct fields {
    waste_str system, into;
    int raw, markup, thinking, progress, stats, prefix_cache, cache, truncate;
    const waste_json *tokens, *bias, *stop, *chat;
    int64_t max_tokens, max_thinking, top_k, seed, timeout_ms, logprobs, parallel;
    double temperature, top_p, min_p, repetition, presence, frequency;
} fields;

/* Kept for later: what it becomes needs memory of the request. */
static waste_status keep(const waste_json *j, void *into, waste_error *err)
{
    (void)err;
    *(const waste_json **)into = j;
    return WASTE_OK;
}

static waste_status keep_array(const waste_json *j, void *into, waste_error *err)
{
    return waste_json_kind_of(j) == WASTE_JSON_ARRAY ? keep(j, into, err) : WASTE_ARG;
}

static waste_status keep_object(const waste_json *j, void *into, waste_error *err)
{
    return waste_json_kind_of(j) == WASTE_JSON_OBJECT ? keep(j, into, err) : WASTE_ARG;
}

static waste_status keep_stop(const waste_json *j, void *into, waste_error *err)
{
    waste_json_kind k = waste_json_kind_of(j);

    return k == WASTE_JSON_ARRAY || k == WASTE_JSON_TEXT ? keep(j, into, err) : WASTE_ARG;
}

static waste_status read_truncate(const waste_json *j, void *into, waste_error *err)
{
    static const char *const words[] = {"none", "oldest", NULL};
    const int word = waste_args_word(j, words);

    (void)err;
    *(int *)into = word;
    return word < 0 ? WASTE_ARG : WASTE_OK;
}

#define AT(f)    offsetof(fields, f)
#define PROMPT   WASTE_TAKES_PROMPT
#define SAMPLING WASTE_TAKES_SAMPLING
#define CHAT     WASTE_TAKES_CHAT
#define ANY_INT  9007199254740992.0 /* what JSON numbers carry exactly everywhere */
#define ANY_TEXT "9007199254740992"

static const waste_option table[] = {
    {"system", WASTE_OPTION_TEXT, PROMPT, AT(system), 0, 0, "text", NULL},
    {"raw", WASTE_OPTION_BOOL, PROMPT, AT(raw), 0, 0, "true or false", NULL},
    {"markup", WASTE_OPTION_BOOL, PROMPT | WASTE_TAKES_MARKUP, AT(markup), 0, 0, "true or false",
     NULL},
    {"thinking", WASTE_OPTION_BOOL, PROMPT | CHAT, AT(thinking), 0, 0, "true or false", NULL},
    {"tools", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"tool_choice", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"response_format", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"reasoning_effort", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"thinking_effort", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"reasoning", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"add_generation_prompt", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"image_prompts", WASTE_OPTION_CUSTOM, CHAT, AT(chat), 0, 0, "", keep},
    {"tokens", WASTE_OPTION_CUSTOM, PROMPT, AT(tokens), 0, 0, "an array of token ids", keep_array},
    {"max_tokens", WASTE_OPTION_INT, SAMPLING, AT(max_tokens), 1, ANY_INT,
     "an integer from 1 to " ANY_TEXT, NULL},
    {"max_thinking_tokens", WASTE_OPTION_INT, SAMPLING, AT(max_thinking), 0, ANY_INT,
     "an integer from 0 to " ANY_TEXT, NULL},
    {"temperature", WASTE_OPTION_NUMBER, SAMPLING, AT(temperature), 0, 100,
     "a number from 0 to 100", NULL},
    {"top_k", WASTE_OPTION_INT, SAMPLING, AT(top_k), 0, ANY_INT, "an integer from 0 to " ANY_TEXT,
     NULL},
    {"top_p", WASTE_OPTION_NUMBER, SAMPLING, AT(top_p), 1e-9, 1, "a number above 0, at most 1",
     NULL},
    {"min_p", WASTE_OPTION_NUMBER, SAMPLING, AT(min_p), 0, 1, "a number from 0 to 1", NULL},
    {"repetition_penalty", WASTE_OPTION_NUMBER, SAMPLING, AT(repetition), 0.01, 100,
     "a number from 0.01 to 100", NULL},
    {"presence_penalty", WASTE_OPTION_NUMBER, SAMPLING, AT(presence), -100, 100,
     "a number from -100 to 100", NULL},
    {"frequency_penalty", WASTE_OPTION_NUMBER, SAMPLING, AT(frequency), -100, 100,
     "a number from -100 to 100", NULL},
    {"seed", WASTE_OPTION_INT, SAMPLING, AT(seed), 0, 9223372036854775807.0,
     "an integer from 0 to 9223372036854775807", NULL},
    {"logit_bias", WASTE_OPTION_CUSTOM, SAMPLING, AT(bias), 0, 0,
     "an object of token ids and numbers", keep_object},
    {"stop", WASTE_OPTION_CUSTOM, SAMPLING, AT(stop), 0, 0, "text or an array of texts", keep_stop},
    {"timeout_ms", WASTE_OPTION_INT, SAMPLING | WASTE_TAKES_TIMEOUT, AT(timeout_ms), 0, 1e12,
     "an integer from 0 to 1000000000000", NULL},
    {"logprobs", WASTE_OPTION_INT, WASTE_TAKES_LOGPROBS, AT(logprobs), 0, 20,
     "an integer from 0 to 20", NULL},
    {"cache", WASTE_OPTION_BOOL, WASTE_TAKES_CACHE, AT(cache), 0, 0, "true or false", NULL},
    {"truncate", WASTE_OPTION_CUSTOM, WASTE_TAKES_TRUNCATE, AT(truncate), 0, 0,
     "\"oldest\" or \"none\"", read_truncate},
    {"prefix_cache", WASTE_OPTION_BOOL, SAMPLING, AT(prefix_cache), 0, 0, "true or false", NULL},
    {"parallel", WASTE_OPTION_INT, WASTE_TAKES_BATCH, AT(parallel), 1, WASTE_BATCH_MOST,
     "an integer from 1 to 256", NULL},
    {"into", WASTE_OPTION_TEXT, WASTE_TAKES_BATCH, AT(into), 0, 0, "the name of a table", NULL},
    {"progress", WASTE_OPTION_BOOL, SAMPLING, AT(progress), 0, 0, "true or false", NULL},
    {"stats", WASTE_OPTION_BOOL, WASTE_TAKES_STATS, AT(stats), 0, 0, "true or false", NULL}};

/* What a reply can report has to have a place in the answer. */
static waste_status check_place(const waste_json *options, unsigned takes, const char *who,
                                waste_error *err)
{
    static const struct {
        const char *key;
        unsigned group;
        const char *place;
    } reports[] = {{"stats", WASTE_TAKES_STATS, "waste_generate_json does"},
                   {"logprobs", WASTE_TAKES_LOGPROBS, "waste_generate_json and waste_tokens do"}};
    size_t i;

    for (i = 0; i < sizeof reports / sizeof *reports; i++)
        if (!(takes & reports[i].group) && waste_json_get(options, reports[i].key))
            return waste_fail(err, WASTE_ARG, "%s takes no option '%s': %s", who, reports[i].key,
                              reports[i].place);
    return WASTE_OK;
}

/* ---- lists ---- */

/* Ids are keys, so they are text; null bans the token. */
static waste_status read_bias(waste_request *r, const waste_json *object, const char *who,
                              waste_error *err)
{
    waste_json_iter it = {0};
    size_t n = waste_json_count(object), i = 0;

    if (!n) return WASTE_OK;
    if (n > MAX_BIAS)
        return waste_fail(err, WASTE_ARG, "%s: option 'logit_bias' has %zu entries, at most %d",
                          who, n, MAX_BIAS);
    r->bias = waste_mem_array(n, sizeof *r->bias);
    if (!r->bias) return waste_fail(err, WASTE_NOMEM, "out of memory for logit_bias");
    for (; waste_json_each(&it, object); i++) {
        uint64_t id;
        double v = -INFINITY;
        if (waste_parse_u64(it.key, strlen(it.key), INT32_MAX, &id))
            return waste_fail(err, WASTE_ARG,
                              "%s: option 'logit_bias': key '%.40s' is not a token id", who,
                              it.key);
        if (waste_json_kind_of(it.value) != WASTE_JSON_NULL &&
            (waste_json_number(it.value, &v) || fabs(v) > 1e6))
            return waste_fail(err, WASTE_ARG,
                              "%s: option 'logit_bias' of token %s: wanted a number from -1e6 to "
                              "1e6, or null to ban it",
                              who, it.key);
        r->bias[i].token = (int32_t)id;
        r->bias[i].bias = (float)v;
    }
    r->params.logit_bias = r->bias;
    r->params.n_logit_bias = n;
    return WASTE_OK;
}

static waste_status read_stop(waste_request *r, const waste_json *j, const char *who,
                              waste_error *err)
{
    int alone = waste_json_kind_of(j) == WASTE_JSON_TEXT;
    size_t n = alone ? 1 : waste_json_count(j), i;

    if (!n) return WASTE_OK;
    if (n > MAX_STOPS)
        return waste_fail(err, WASTE_ARG, "%s: option 'stop' has %zu texts, at most %d", who, n,
                          MAX_STOPS);
    r->stop = waste_mem_array(n, sizeof *r->stop);
    if (!r->stop) return waste_fail(err, WASTE_NOMEM, "out of memory for stop texts");
    for (i = 0; i < n; i++) {
        const waste_json *e = alone ? j : waste_json_at(j, i);
        r->stop[i].text = waste_json_text(e, &r->stop[i].bytes);
        if (!r->stop[i].text)
            return waste_fail(err, WASTE_ARG, "%s: option 'stop': stop[%zu] is %s, wanted text",
                              who, i, waste_json_kind_name(waste_json_kind_of(e)));
        if (!r->stop[i].bytes)
            return waste_fail(err, WASTE_ARG, "%s: option 'stop': stop[%zu] is empty", who, i);
    }
    r->params.stop = r->stop;
    r->params.n_stop = n;
    return WASTE_OK;
}

/* ---- the request ---- */

/* Options that may hold a JSON schema, and so integers of any size: one beyond 64
 * bits is shown to the reader here as a real. What it stands in, the engine reads
 * from the text itself. */
static waste_status read_schema_object(waste_json **out, sqlite3_value *v, const char *what,
                                       waste_error *err)
{
    waste_buf b = {0};
    waste_str s;
    waste_status st;
    size_t i, k;
    int in_string = 0;

    if (sqlite3_value_type(v) != SQLITE_TEXT) return waste_args_object(out, v, what, err);
    st = waste_args_text(v, what, &s, err);
    if (st) return st;
    for (i = 0; i < s.bytes; i += k) {
        k = 1;
        if (in_string && s.text[i] == '\\' && i + 1 < s.bytes) {
            k = 2;
        } else if (s.text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && s.text[i] >= '0' && s.text[i] <= '9') {
            while (i + k < s.bytes && strchr("0123456789.eE+-", s.text[i + k]) && s.text[i + k])
                k++;
        }
        waste_buf_add(&b, s.text + i, k);
        if (k > 18 && strspn(s.text + i, "0123456789") >= k) waste_buf_text(&b, "e0");
    }
    if (b.failed)
        st = waste_fail(err, WASTE_NOMEM, "%s: out of memory", what);
    else
        st = waste_args_object_text(out, b.data, b.len, what, err);
    waste_buf_clear(&b);
    return st;
}

static fields defaults(const waste_gen_params *p)
{
    const fields f = {.max_tokens = p->max_tokens,
                      .max_thinking = p->max_thinking_tokens,
                      .top_k = p->top_k,
                      .logprobs = -1,
                      .temperature = p->temperature,
                      .top_p = p->top_p,
                      .min_p = p->min_p,
                      .repetition = p->repetition_penalty,
                      .presence = p->presence_penalty,
                      .frequency = p->frequency_penalty,
                      .seed = (int64_t)p->seed,
                      .timeout_ms = p->timeout_ms,
                      .prefix_cache = 1};

    return f;
}

static waste_status read_table(fields *f, unsigned takes, const waste_json *doc, const char *who,
                               waste_error *err)
{
    waste_status st = check_place(doc, takes, who, err);

    if (st) return st;
    return waste_args_read(table, sizeof table / sizeof *table, takes, f, NULL, doc, who, err);
}

static waste_status read_options(waste_request *r, const waste_json **tokens, const char *who,
                                 unsigned takes, const waste_json *base, sqlite3_value *options,
                                 waste_error *err)
{
    waste_gen_params *p = &r->params;
    fields f = defaults(p);
    char what[64];
    waste_status st = WASTE_OK;

    snprintf(what, sizeof what, "%s: options", who);
    if (options && takes & WASTE_TAKES_CHAT)
        st = read_schema_object(&r->doc, options, what, err);
    else if (options)
        st = waste_args_object(&r->doc, options, what, err);
    if (!st && base) st = read_table(&f, takes | WASTE_TAKES_BATCH, base, who, err);
    if (!st) st = read_table(&f, takes, r->doc, who, err);
    if (!st && f.bias) st = read_bias(r, f.bias, who, err);
    if (!st && f.stop) st = read_stop(r, f.stop, who, err);
    if (st) return st;

    r->prompt.system = f.system;
    r->prompt.raw = f.raw;
    r->prompt.markup = f.markup;
    r->prompt.thinking = f.thinking;
    p->max_tokens = f.max_tokens;
    p->max_thinking_tokens = f.max_thinking;
    p->top_k = f.top_k;
    p->temperature = f.temperature;
    p->top_p = f.top_p;
    p->min_p = f.min_p;
    p->repetition_penalty = f.repetition;
    p->presence_penalty = f.presence;
    p->frequency_penalty = f.frequency;
    p->seed = (uint64_t)f.seed;
    p->timeout_ms = f.timeout_ms;
    p->prefix_cache = f.prefix_cache;
    r->logprobs = f.logprobs >= 0;
    r->progress = f.progress;
    r->stats = f.stats;
    r->cache = f.cache;
    r->truncate = f.truncate;
    p->top_logprobs = f.logprobs > 0 ? (int)f.logprobs : 0;
    *tokens = f.tokens;
    return WASTE_OK;
}

waste_status waste_request_batch(const waste_json *base, const char *who, unsigned takes,
                                 int64_t *parallel, waste_str *into, waste_error *err)
{
    waste_gen_params p;
    fields f;
    waste_status st;

    waste_gen_params_init(&p);
    f = defaults(&p);
    st = read_table(&f, takes | WASTE_TAKES_BATCH, base, who, err);
    if (!st && f.tokens)
        st = waste_fail(err, WASTE_ARG,
                        "%s: option 'tokens' belongs to a row: give it with the "
                        "third column of the query",
                        who);
    *parallel = f.parallel;
    *into = f.into;
    return st;
}

waste_status waste_request_read(waste_request *r, const char *who, unsigned takes,
                                sqlite3_value *prompt, sqlite3_value *options, waste_error *err)
{
    return waste_request_read_over(r, who, takes, NULL, prompt, options, err);
}

waste_status waste_request_read_over(waste_request *r, const char *who, unsigned takes,
                                     const waste_json *base, sqlite3_value *prompt,
                                     sqlite3_value *options, waste_error *err)
{
    const waste_json *tokens = NULL;
    waste_status st;

    memset(r, 0, sizeof *r);
    waste_gen_params_init(&r->params);
    st = read_options(r, &tokens, who, takes, base, options, err);
    if (!st) st = waste_args_text(prompt, "the prompt", &r->prompt.text, err);
    if (st) return st;
    if (!tokens) return r->prompt.text.text ? WASTE_OK : WASTE_DONE;

    if (r->prompt.text.text)
        return waste_fail(err, WASTE_ARG,
                          "%s: option 'tokens' is given as well as a prompt; pass NULL as the "
                          "prompt",
                          who);
    if (r->prompt.system.text)
        return waste_fail(err, WASTE_ARG,
                          "%s: option 'system' needs a prompt of text, not 'tokens'", who);
    st = waste_args_ids(tokens, &r->tokens, &r->prompt.n_tokens, err);
    r->prompt.tokens = r->tokens;
    if (!st && !r->tokens)
        st = waste_fail(err, WASTE_ARG, "%s: option 'tokens' is an empty array", who);
    return st;
}

waste_status waste_request_parts(waste_request *r, const char *who, int first, int n,
                                 sqlite3_value **parts, waste_error *err)
{
    size_t kept = 0;
    waste_status st = WASTE_OK;
    int i;

    if (n <= 0) return WASTE_OK;
    r->parts = waste_mem_array((size_t)n, sizeof *r->parts);
    if (!r->parts) return waste_fail(err, WASTE_NOMEM, "out of memory for %d parts", n);
    for (i = 0; i < n && !st; i++) {
        if (sqlite3_value_type(parts[i]) == SQLITE_BLOB)
            return waste_fail(err, WASTE_UNSUPPORTED,
                              "%s: argument %d is a BLOB: this version takes no images (cast it to "
                              "TEXT if it is text)",
                              who, first + i);
        st = waste_args_text(parts[i], "a part", &r->parts[kept], err);
        if (!st && r->parts[kept].text) kept++;
    }
    if (!st && kept && r->prompt.tokens)
        st = waste_fail(err, WASTE_ARG, "%s: parts need a prompt of text, not 'tokens'", who);
    r->prompt.parts = kept ? r->parts : NULL;
    r->prompt.n_parts = kept;
    return st;
}

void waste_request_clear(waste_request *r)
{
    waste_json_free(r->doc);
    waste_mem_free(r->tokens);
    waste_mem_free(r->bias);
    waste_mem_free(r->stop);
    waste_mem_free(r->parts);
    memset(r, 0, sizeof *r);
}
