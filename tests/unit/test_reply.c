/* text/reply.c: the examples of docs/chat.md 6 and the cases around them.
 *
 * A reply is written as a string: \1 \2 \3 \4 are the four control tokens
 * (open, close, separator, end), \5 is an end token of the model, all else is
 * text. How the text is cut into tokens changes nothing, so every case is read
 * in one piece, byte by byte, and cut at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/reply_json.h"

enum { OPEN = 1001, CLOSE, SEP, END, EOS, STOP };

typedef struct result {
    waste_buf answer, reasoning, tools;
    waste_reply *r;
    int done;      /* before the end was announced */
    size_t tokens; /* read until done */
} result;

static waste_reply_options xtml(const char *channel, int to_end)
{
    waste_reply_options o = {WASTE_CHAT_XTML, {OPEN, CLOSE, SEP, END}, -1, EOS, channel, to_end};

    return o;
}

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 16;
}

static void keep(result *out, const waste_reply_delta *d)
{
    assert_true(waste_utf8_valid(d->answer.text, d->answer.bytes));
    assert_true(waste_utf8_valid(d->reasoning.text, d->reasoning.bytes));
    assert_true(waste_utf8_valid(d->tools.text, d->tools.bytes));
    waste_buf_add(&out->answer, d->answer.text, d->answer.bytes);
    waste_buf_add(&out->reasoning, d->reasoning.text, d->reasoning.bytes);
    waste_buf_add(&out->tools, d->tools.text, d->tools.bytes);
}

/* cut 0: texts in one piece; 1: byte by byte; else the seed of random cuts. */
static result read_n(waste_reply_options o, const char *s, size_t n, uint32_t cut)
{
    result out;
    waste_reply_delta d;
    waste_error e = {0};
    size_t i = 0, k;

    memset(&out, 0, sizeof out);
    assert_int_equal(waste_reply_new(&out.r, &o, &e), WASTE_OK);
    while (i < n) {
        size_t text = 0;
        while (i + text < n && (unsigned char)s[i + text] > 5) text++;
        k = text;
        if (cut == 1 && k > 1) k = 1;
        if (cut > 1 && k > 1) k = 1 + next_random(&cut) % k;
        if (k)
            assert_int_equal(waste_reply_push(out.r, 'x', s + i, k, &d, &e), WASTE_OK);
        else
            assert_int_equal(waste_reply_push(out.r, 1000 + s[i], "<?>", 3, &d, &e), WASTE_OK);
        keep(&out, &d);
        i += k ? k : 1;
        if (!out.done) out.tokens++;
        out.done = d.done;
    }
    assert_int_equal(waste_reply_end(out.r, &d, &e), WASTE_OK);
    keep(&out, &d);
    assert_true(d.done);
    return out;
}

static result read_all(waste_reply_options o, const char *s, uint32_t cut)
{
    return read_n(o, s, strlen(s), cut);
}

static void drop(result *r)
{
    waste_reply_free(r->r);
    waste_buf_clear(&r->answer);
    waste_buf_clear(&r->reasoning);
    waste_buf_clear(&r->tools);
}

static void assert_text(const waste_buf *b, const char *want)
{
    assert_string_equal(b->len ? b->data : "", want);
}

static void assert_arguments(const result *r, size_t i, const char *want)
{
    waste_buf b = {0};
    waste_error e = {0};

    assert_int_equal(waste_reply_json_arguments(waste_reply_call_at(r->r, i), &b, &e), WASTE_OK);
    assert_text(&b, want);
    waste_buf_clear(&b);
}

/* arguments NULL: no call */
typedef struct example {
    const char *channel, *reply, *reasoning, *answer, *arguments;
} example;

static void check(const example *x)
{
    uint32_t cut;

    for (cut = 0; cut < 8; cut++) {
        result r = read_all(xtml(x->channel, 1), x->reply, cut);
        assert_text(&r.reasoning, x->reasoning);
        assert_text(&r.answer, x->answer);
        assert_int_equal(waste_reply_calls(r.r), x->arguments ? 1 : 0);
        if (x->arguments) assert_arguments(&r, 0, x->arguments);
        drop(&r);
    }
}

#define ANSWERED "\2think\3\1response\3"
#define CALLING  ANSWERED "\2response\3\1tools\3\1call tool=\"f\" index=\"1\"\3"

static void reads_the_examples_of_the_format(void **state)
{
    static const example all[] = {
        {"think", "Two plus two. " ANSWERED "4\2response\3\2message\3\4", "Two plus two. ", "4",
         NULL},
        {"think", "half a thought", "half a thought", "", NULL},
        {"think", "done\2think\3\1resp", "done", "<|open|>resp", NULL},
        {"think", ANSWERED "The marker is <|sep|> here\2response\3", "",
         "The marker is <|sep|> here", NULL},
        {"think",
         CALLING "\1argument key=\"n\" type=\"number\"\3"
                 "3\2argument\3\2call\3\2tools\3",
         "", "", "{\"n\": 3}"},
        {"think", CALLING "\1argument key=\"n\" type=\"string\"\3Par", "", "", "{\"n\": \"Par\"}"},
        {"think", "a\2nonesuch\3b", "ab", "", NULL},
        {"think", "a\3b", "ab", "", NULL},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof all / sizeof *all; i++) check(&all[i]);
}

static void odd_markup_is_read_as_the_format_says(void **state)
{
    static const example all[] = {
        {"response", "a\4b\1response\3c", "", "a", NULL},               /* after the end: ignored */
        {"response", "a\1x \1think\3r\2think\3b", "r", "ab", NULL},     /* header discarded */
        {"response", "a\1box\3b\2\3c", "", "abc", NULL},                /* an empty name pops one */
        {"think", "r\1b\3x\1c\3y\2b\3s\2\3a\2\3b", "rs", "xyab", NULL}, /* pops through */
        {NULL, "x\2\3y", "", "xy", NULL},
        {"response", "a\2  think \3", "", "a", NULL},
        {"think", "r\2think", "r<|close|>think", "", NULL},
        {"response", "a\1", "", "a<|open|>", NULL},
        {"response", "a\1tools\3 dropped \1call\3 too \2tools\3b", "", "ab", "{}"},
        /* an argument without a key, and one outside of any call, are dropped */
        {"response", "\1tools\3\1call\3\1argument type=\"string\"\3x\2argument\3\2tools\3y", "",
         "y", "{}"},
        {"response", "\1argument key=\"k\"\3x\2argument\3y", "", "y", NULL},
        {"response", "\1json\3{}\2json\3y", "", "y", NULL},
        /* closing call or tools, or a new argument, stores the open one first */
        {"response",
         "\1tools\3\1call\3\1argument key=\"k\"\3"
         "1\2call\3\2tools\3y",
         "", "y", "{\"k\": 1}"},
        {"response",
         "\1call\3\1argument key=\"a\"\3"
         "1\1argument key=\"b\"\3"
         "2",
         "", "", "{\"a\": 1, \"b\": 2}"},
        {"response",
         "\1call\3\1argument key=\"a\"\3"
         "1\2argument\3\1argument key=\"b\"\3"
         "2\2argument\3"
         "\1argument key=\"a\"\3"
         "3",
         "", "", "{\"a\": 3, \"b\": 2}"},
        {"response",
         "\1call\3\2json\3\1argument key=\"a\"\3"
         "1",
         "", "", "{\"a\": 1}"},
        {"response", "\1call\3\1json type=\"object\"\3{\"city\": Paris\2json\3", "", "",
         "{\"city\": Paris"},
        {"response",
         "\1call\3\1json\3x\1json\3y\2call\3\1argument key=\"a\"\3"
         "1",
         "", "", "y"},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof all / sizeof *all; i++) check(&all[i]);
}

static void headers_name_calls(void **state)
{
    static const struct {
        const char *header, *name, *id;
        int64_t index;
    } all[] = {
        {"call tool=\"f\" index=\"3\"", "f", "call_3", 3},
        {"call", "", "call_1", 1},
        {"call  index = \"x\" tool=\"f\"", "", "call_1", 1}, /* a space ends the value */
        {"call tool=f index=7 id=abc", "f", "abc", 7},
        {"call\ttool=\"f\"", NULL, NULL, 0}, /* only a space ends a name */
        {"call tool=\"a &quot;b&quot; &amp;amp; c\" index=\"-2\"", "a \"b\" &amp; c", "call_-2",
         -2},
        {"call tool=\"never closed", "never closed", "call_1", 1},
        {"call =\"x\" tool=\"f\" trailing", "f", "call_1", 1},
        {"call tool=\"a\" tool=\"b\"", "b", "call_1", 1},
        {"call index=\"99999999999999999999\" tool=\"f\" id=\"\"", "f", "call_1", 1},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof all / sizeof *all; i++) {
        char s[200];
        result r;

        snprintf(s, sizeof s, "\1%s\3", all[i].header);
        r = read_all(xtml("response", 1), s, 1);
        assert_int_equal(waste_reply_calls(r.r), all[i].name ? 1 : 0);
        if (all[i].name) {
            const waste_reply_call *c = waste_reply_call_at(r.r, 0);
            assert_string_equal(c->name.text, all[i].name);
            assert_string_equal(c->id.text, all[i].id);
            assert_int_equal(c->index, all[i].index);
        }
        drop(&r);
    }
}

static void arguments_become_json_by_their_type(void **state)
{
    static char big[500], wide[500];
    const struct {
        const char *type, *text, *want;
    } all[] = {
        {"string", "42", "\"42\""},
        {"string", "", "\"\""},
        {"string", "a\"b\\\n\t\x7f\xC3\xA9", "\"a\\\"b\\\\\\n\\t\x7f\xC3\xA9\""},
        {"null", "anything", "null"},
        {"boolean", " TRUE\n", "true"},
        {"boolean", "False", "false"},
        {"boolean", "1", "\"1\""},
        {"number", " 1.50 ", "1.50"},
        {"number", "123456789012345678901234567890", "123456789012345678901234567890"},
        {"number", "-0", "-0"},
        {"number", "[1]", "[1]"},
        {"number", "NaN", "\"NaN\""},
        {"number", "-Infinity", "\"-Infinity\""},
        {"number", "1e999", "\"1e999\""},
        {"number", "1e308", "1e308"},
        {"number", "01", "\"01\""},
        {"number", "1.", "\"1.\""},
        {"number", "", "\"\""},
        {"number", big, NULL},
        {"array", wide, NULL},
        {"object", "{\"k\": [1, -2.5e3, \"3\\\"4\", null]}",
         "{\"k\": [1, -2.5e3, \"3\\\"4\", null]}"},
        {"object", "{\"k\": 1} x", "\"{\\\"k\\\": 1} x\""},
        {"array", "[1,]", "\"[1,]\""},
        {"", "true", "true"},
        {"", "tru", "\"tru\""},
        {"integer", "12", "12"},
        {"integer", "twelve", "\"twelve\""},
    };
    size_t i;
    (void)state;

    memset(big, '9', 400);  /* beyond the doubles */
    memset(wide, '[', 100); /* deeper than is read */
    memset(wide + 100, ']', 100);
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        char s[1024], want[1024];
        result r;

        snprintf(s, sizeof s,
                 "\1call tool=\"f\"\3\1argument key=\"a\\\xC3\xA9\" type=\"%s\"\3%s\2argument\3",
                 all[i].type, all[i].text);
        r = read_all(xtml("response", 1), s, 5);
        if (all[i].want)
            snprintf(want, sizeof want, "{\"a\\\\\xC3\xA9\": %s}", all[i].want);
        else
            snprintf(want, sizeof want, "{\"a\\\\\xC3\xA9\": \"%s\"}", all[i].text);
        assert_arguments(&r, 0, want);
        assert_text(&r.tools, all[i].text);
        drop(&r);
    }
}

static void a_closed_response_ends_the_reply_without_tools(void **state)
{
    static const char s[] = "hm" ANSWERED "ok\2response\3\2message\3\4";
    result r = read_all(xtml("think", 0), s, 0);
    (void)state;

    assert_true(r.done);
    assert_int_equal(r.tokens, 1 + 3 + 3 + 1 + 3);
    assert_text(&r.answer, "ok");
    drop(&r);
    r = read_all(xtml("think", 1), s, 0);
    assert_true(r.done);
    assert_int_equal(r.tokens, 1 + 3 + 3 + 1 + 3 + 3 + 1);
    drop(&r);
    /* what encloses the response closes it too; another element does not */
    r = read_all(xtml(NULL, 0), "\1m\3\1response\3a\2x\3b\2m\3c", 1);
    assert_true(r.done);
    assert_text(&r.answer, "ab");
    drop(&r);
    /* a response in a response */
    r = read_all(xtml("response", 0), "a\1response\3b\2response\3c", 0);
    assert_false(r.done);
    assert_text(&r.answer, "abc");
    drop(&r);
}

/* \xf0\x9f is half a code point in the header: no text either. */
static void a_header_that_a_limit_cuts_is_dropped(void **state)
{
    static const char *const cut[] = {"\1", "\1resp", "\2", "\2response", "\2re\xf0\x9f"};
    const char *before = "so";
    size_t i, k;
    (void)state;

    for (i = 0; i < sizeof cut / sizeof *cut; i++) {
        waste_reply_options o = xtml("response", (int)(i & 1));
        waste_reply *r;
        waste_reply_delta d;
        waste_error e = {0};

        assert_int_equal(waste_reply_new(&r, &o, &e), WASTE_OK);
        assert_int_equal(waste_reply_push(r, 'x', before, 2, &d, &e), WASTE_OK);
        for (k = 0; cut[i][k]; k++) {
            int marker = cut[i][k] > 0 && cut[i][k] < 5;
            assert_int_equal(waste_reply_push(r, marker ? 1000 + cut[i][k] : 'x',
                                              marker ? "<?>" : &cut[i][k], marker ? 3 : 1, &d, &e),
                             WASTE_OK);
            assert_int_equal(d.answer.bytes, 0);
        }
        waste_reply_cut(r);
        assert_int_equal(waste_reply_end(r, &d, &e), WASTE_OK);
        assert_int_equal(d.answer.bytes + d.reasoning.bytes + d.tools.bytes, 0);
        waste_reply_free(r);
    }
}

static void the_end_token_ends_every_format(void **state)
{
    waste_reply_options o = xtml("response", 1);
    waste_reply_delta d;
    waste_error e = {0};
    waste_reply *r;
    result x = read_all(o, "a\5b", 0);
    (void)state;

    assert_text(&x.answer, "a");
    drop(&x);

    o.format = WASTE_CHAT_PLAIN;
    o.stop = STOP;
    x = read_all(o, "a\1b\4c\5d", 0); /* markers of another format are text */
    assert_text(&x.answer, "a<?>b<?>c");
    drop(&x);
    assert_int_equal(waste_reply_new(&r, &o, &e), WASTE_OK);
    assert_int_equal(waste_reply_push(r, 'x', "hi", 2, &d, &e), WASTE_OK);
    assert_int_equal(d.region, WASTE_REGION_ANSWER);
    assert_int_equal(waste_reply_push(r, STOP, "<|im_end|>", 10, &d, &e), WASTE_OK);
    assert_int_equal(d.region, WASTE_REGION_MARKUP);
    assert_true(d.done);
    assert_int_equal(d.answer.bytes, 0);
    waste_reply_free(r);

    o.format = WASTE_CHAT_NONE;
    o.eos = -1;
    x = read_all(o, "a\1b\4c\5d", 0);
    assert_false(x.done);
    assert_text(&x.answer, "a<?>b<?>c<?>d");
    drop(&x);
}

static void each_token_has_a_region(void **state)
{
    static const struct {
        int32_t id;
        const char *text;
        waste_region region;
    } all[] = {
        {'x', "t", WASTE_REGION_REASONING},
        {CLOSE, "", WASTE_REGION_MARKUP},
        {'x', "think", WASTE_REGION_MARKUP},
        {SEP, "", WASTE_REGION_MARKUP},
        {OPEN, "", WASTE_REGION_MARKUP},
        {'x', "response", WASTE_REGION_MARKUP},
        {SEP, "", WASTE_REGION_MARKUP},
        {'x', "a", WASTE_REGION_ANSWER},
        {CLOSE, "", WASTE_REGION_MARKUP},
        {'x', "response", WASTE_REGION_MARKUP},
        {SEP, "", WASTE_REGION_MARKUP},
        {OPEN, "", WASTE_REGION_MARKUP},
        {'x', "call", WASTE_REGION_MARKUP},
        {SEP, "", WASTE_REGION_MARKUP},
        {'x', "dropped", WASTE_REGION_TOOLS},
        {OPEN, "", WASTE_REGION_MARKUP},
        {'x', "argument key=\"k\"", WASTE_REGION_MARKUP},
        {SEP, "", WASTE_REGION_MARKUP},
        {'x', "v", WASTE_REGION_TOOLS},
        {END, "", WASTE_REGION_MARKUP},
    };
    waste_reply_options o = xtml("think", 1);
    waste_reply_delta d;
    waste_error e = {0};
    waste_reply *r;
    size_t i;
    (void)state;

    assert_int_equal(waste_reply_new(&r, &o, &e), WASTE_OK);
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(waste_reply_push(r, all[i].id, all[i].text, strlen(all[i].text), &d, &e),
                         WASTE_OK);
        assert_int_equal(d.region, all[i].region);
        assert_int_equal(d.done, all[i].id == END);
    }
    waste_reply_free(r);
}

/* A code point comes with the token that completes it, and never crosses a
 * marker: what a marker cuts short is U+FFFD where it stood. */
static void half_code_points_wait_and_never_cross_a_marker(void **state)
{
    waste_reply_options o = xtml("response", 1);
    waste_reply_delta d;
    waste_error e = {0};
    waste_reply *r;
    result x;
    (void)state;

    assert_int_equal(waste_reply_new(&r, &o, &e), WASTE_OK);
    waste_reply_push(r, 'x', "a\xF0\x9F", 3, &d, &e);
    assert_int_equal(d.answer.bytes, 1);
    waste_reply_push(r, 'x', "\x98", 1, &d, &e);
    assert_int_equal(d.answer.bytes, 0);
    waste_reply_push(r, 'x',
                     "\x80"
                     "b",
                     2, &d, &e);
    assert_int_equal(d.answer.bytes, 5);
    assert_memory_equal(d.answer.text,
                        "\xF0\x9F\x98\x80"
                        "b",
                        5);
    waste_reply_free(r);

    x = read_all(xtml("think", 1), "t\xE4\2think\3\xBD\1response\3\xA0\xE4\xBD", 1);
    assert_text(&x.reasoning, "t\xEF\xBF\xBD");
    assert_text(&x.answer, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    drop(&x);
}

/* ---- rendering and reading back ---------------------------------------- */

/* Random text, with what could be taken for markup. */
static void random_text(waste_buf *b, uint32_t *seed)
{
    static const char *const words[] = {"a",     " ",      "\n", "<|sep|>",  "<|open|>",
                                        "\"",    "&quot;", "=",  "\xC3\xA9", "\xF0\x9F\x98\x80",
                                        "think", "{",      "3"};
    uint32_t n = next_random(seed) % 6;

    while (n--) waste_buf_text(b, words[next_random(seed) % (sizeof words / sizeof *words)]);
}

static waste_str lend(const waste_buf *b)
{
    waste_str s = {b->len ? b->data : "", b->len};

    return s;
}

static void element_text(waste_segments *s, const char *tag, const waste_attr *a, size_t n,
                         const waste_buf *text)
{
    waste_chat_element_open(s, tag, a, n);
    waste_chat_add(s, text->data, text->len, 0);
    waste_chat_element_close(s, tag);
}

/* Control tokens as this file writes them. */
static void write_script(const waste_segments *s, waste_buf *out)
{
    size_t i;
    int m;

    for (i = 0; i < s->n; i++) {
        waste_segment g = waste_chat_segment(s, i);
        if (!g.markup) {
            waste_buf_add(out, g.text, g.bytes);
            continue;
        }
        for (m = 0; m < WASTE_MARKS; m++) {
            const char *t = waste_chat_mark_text((waste_mark)m);
            if (g.bytes == strlen(t) && memcmp(g.text, t, g.bytes) == 0)
                waste_buf_byte(out, (char)(m + 1));
        }
    }
}

static void a_rendered_reply_reads_back(void **state)
{
    uint32_t seed = 7, round;
    (void)state;

    for (round = 0; round < 300; round++) {
        waste_buf think = {0}, say = {0}, name = {0}, key = {0}, value = {0}, script = {0};
        waste_segments s = {0};
        waste_attr call[2], arg[2];
        result r;
        const waste_reply_call *c;

        random_text(&think, &seed);
        random_text(&say, &seed);
        random_text(&name, &seed);
        waste_buf_text(&key, "k");
        random_text(&key, &seed);
        random_text(&value, &seed);
        call[0].key = "tool";
        call[0].value = lend(&name);
        call[1].key = "index";
        call[1].value.text = "1";
        call[1].value.bytes = 1;
        arg[0].key = "key";
        arg[0].value = lend(&key);
        arg[1].key = "type";
        arg[1].value.text = "string";
        arg[1].value.bytes = 6;

        waste_chat_add(&s, think.data, think.len, 0);
        waste_chat_element_close(&s, "think");
        element_text(&s, "response", NULL, 0, &say);
        waste_chat_element_open(&s, "tools", NULL, 0);
        waste_chat_element_open(&s, "call", call, 2);
        element_text(&s, "argument", arg, 2, &value);
        waste_chat_element_close(&s, "call");
        waste_chat_element_close(&s, "tools");
        waste_chat_element_close(&s, "message");
        waste_chat_message_end(&s);
        assert_false(s.failed);
        write_script(&s, &script);

        r = read_n(xtml("think", 1), script.data, script.len, round + 1);
        assert_true(r.done);
        assert_text(&r.reasoning, lend(&think).text);
        assert_text(&r.answer, lend(&say).text);
        assert_int_equal(waste_reply_calls(r.r), 1);
        c = waste_reply_call_at(r.r, 0);
        assert_string_equal(c->name.text, lend(&name).text);
        assert_int_equal(c->n_args, 1);
        assert_string_equal(c->arg[0].key.text, key.data);
        assert_string_equal(c->arg[0].text.text, lend(&value).text);
        drop(&r);
        waste_chat_segments_clear(&s);
        waste_buf_clear(&think);
        waste_buf_clear(&say);
        waste_buf_clear(&name);
        waste_buf_clear(&key);
        waste_buf_clear(&value);
        waste_buf_clear(&script);
    }
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    static const char s[] =
        "hm" CALLING "\1argument key=\"k\" type=\"t\"\3v\2argument\3\1json\3{}\4";
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;

    for (n = 1; st == WASTE_NOMEM; n++) {
        waste_reply_options o = xtml("think", 1);
        waste_reply_delta d;
        waste_error e = {0};
        waste_reply *r;
        size_t i;

        waste_mem_fail_at(n, 1);
        st = waste_reply_new(&r, &o, &e);
        for (i = 0; !st && i < sizeof s - 1; i++)
            st = waste_reply_push(r, s[i] > 5 ? 'x' : 1000 + s[i], s + i, 1, &d, &e);
        if (!st) st = waste_reply_end(r, &d, &e);
        waste_mem_fail_at(0, 0);
        assert_true(st == WASTE_OK || st == WASTE_NOMEM);
        assert_int_equal(e.status, st);
        waste_reply_free(r);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_examples_of_the_format),
        cmocka_unit_test(odd_markup_is_read_as_the_format_says),
        cmocka_unit_test(headers_name_calls),
        cmocka_unit_test(arguments_become_json_by_their_type),
        cmocka_unit_test(a_closed_response_ends_the_reply_without_tools),
        cmocka_unit_test(a_header_that_a_limit_cuts_is_dropped),
        cmocka_unit_test(the_end_token_ends_every_format),
        cmocka_unit_test(each_token_has_a_region),
        cmocka_unit_test(half_code_points_wait_and_never_cross_a_marker),
        cmocka_unit_test(a_rendered_reply_reads_back),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
