/* text/chat_xtml.c: K3's prompt language against the release's own encoder
 * (tests/golden/chat/xtml.json), its examples, the security boundary, and what is
 * rendered read back. */
#include "chat_talk.h"

#include "base/utf8.h"
#include "emulated.h"
#include "text/reply_json.h"

/* ---- golden prompts ---------------------------------------------------- */

static void assert_golden(const char *name, const waste_json *c)
{
    const waste_json *want = waste_json_get(c, "segments");
    char *messages = waste_json_dump(waste_json_get(c, "messages"), NULL);
    char *options = waste_json_dump(waste_json_get(c, "options"), NULL);
    waste_segments s = {0};
    waste_error e = {0};
    size_t i, n;

    if (talk_render(messages, options, 0, &s, &e)) fail_msg("%s: %s", name, e.text);
    for (i = 0; i < s.n && i < waste_json_count(want); i++) {
        const char *w = waste_json_text(waste_json_at(want, i), &n);
        const waste_segment g = waste_chat_segment(&s, i);

        if (n != g.bytes + 1 || (*w == 'M') != g.markup || memcmp(w + 1, g.text, g.bytes) != 0)
            fail_msg("%s, segment %zu: %c%.*s, wanted %s", name, i, g.markup ? 'M' : 'T',
                     (int)g.bytes, g.text, w);
    }
    if (s.n != waste_json_count(want))
        fail_msg("%s: %zu segments, wanted %zu", name, s.n, waste_json_count(want));
    waste_chat_segments_clear(&s);
    waste_mem_free(messages);
    waste_mem_free(options);
}

static void the_releases_prompts_segment_for_segment(void **state)
{
    waste_json *doc;
    waste_json_iter it = {0};
    waste_error e = {0};
    size_t n = 0;
    (void)state;

    if (waste_json_load(&doc, "tests/golden/chat/xtml.json", &e)) fail_msg("%s", e.text);
    for (; waste_json_each(&it, waste_json_get(doc, "cases")); n++) assert_golden(it.key, it.value);
    assert_int_equal(n, 38);
    waste_json_free(doc);
}

/* ---- what the golden prompts do not have ------------------------------- */

#define USER "{\"role\":\"user\",\"content\":\"go\"}"

/* How often `part` is in the prompt's text (see talk_text). */
static size_t count(const waste_buf *b, const char *part)
{
    const char *p = b->data;
    size_t n = 0;

    while ((p = strstr(p, part))) {
        n++;
        p++;
    }
    return n;
}

static void assert_has(const char *messages, const char *options, const char *part)
{
    waste_buf b = talk_text(messages, options, 0);

    if (!count(&b, part)) fail_msg("no %s in %s", part, b.data);
    waste_buf_clear(&b);
}

static void a_tool_named_is_asked_for_before_the_note(void **state)
{
    static const char options[] =
        "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f<|sep|>\"}}}";
    (void)state;

    assert_has(
        "[" USER "]", options,
        "TYou must call the tool `f<|sep|>` in your next message, and no other.\n"
        "M<|close|>\nTmessage\nM<|sep|>\nM<|end_of_msg|>\nM<|open|>\nTmessage\nT role\nT=\"\n"
        "Tsystem\nT\"\nT type\nT=\"\nTtool-choice\n");
    assert_has("[" USER "]", "{\"tool_choice\":{}}", "tool_choice=required");
}

static void developer_is_system(void **state)
{
    waste_buf a = talk_text("[{\"role\":\"developer\",\"content\":\"x\",\"name\":\"n\"}]", NULL, 0);
    waste_buf b = talk_text("[{\"role\":\"system\",\"content\":\"x\",\"name\":\"n\"}]", NULL, 0);
    (void)state;

    assert_string_equal(a.data, b.data);
    waste_buf_clear(&a);
    waste_buf_clear(&b);
}

static void arguments_are_typed(void **state)
{
    static const char messages[] =
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"{\\\"big\\\":"
        "123456789012345678901234567890,\\\"neg\\\":-0,\\\"r\\\":1e2,\\\"e\\\":\\\"\\\",\\\"o\\\":"
        "{\\\"z\\\":[1,2.50],\\\"a\\\":\\\"\\u00e9\\\"},\\\"k\\\\\\\"&\\\":null}\"},"
        "{\"name\":\"g\",\"arguments\":{\"big\":98765432109876543210}},"
        "{\"name\":\"h\",\"arguments\":\"  {\\\"x\\\": 1\"},{\"name\":\"i\",\"arguments\":\" "
        "\\n\"}]}]";
    static const char *const has[] = {
        "Tbig\nT\"\nT type\nT=\"\nTnumber\nT\"\nM<|sep|>\nT123456789012345678901234567890\n",
        "Tneg\nT\"\nT type\nT=\"\nTnumber\nT\"\nM<|sep|>\nT0\n",
        "Tr\nT\"\nT type\nT=\"\nTnumber\nT\"\nM<|sep|>\nT100.0\n",
        "Te\nT\"\nT type\nT=\"\nTstring\nT\"\nM<|sep|>\nM<|close|>\n",
        "Tobject\nT\"\nM<|sep|>\nT{\"z\": [1, 2.5], \"a\": \"\xC3\xA9\"}\n",
        "Tk&quot;&amp;\nT\"\nT type\nT=\"\nTnull\nT\"\nM<|sep|>\nTnull\n",
        "M<|sep|>\nT98765432109876543210\n",
        "Tjson\nT type\nT=\"\nTobject\nT\"\nM<|sep|>\nT  {\"x\": 1\nM<|close|>\nTjson\n",
        "Ti\nT\"\nT index\nT=\"\nT4\nT\"\nM<|sep|>\nM<|close|>\nTcall\n",
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof has / sizeof *has; i++) assert_has(messages, NULL, has[i]);
}

static void reasoning_needs_thinking_and_words(void **state)
{
    static const char *const blank[] = {"\"\"", "\" \\n\"", "null"};
    waste_buf b = talk_text("[{\"role\":\"assistant\",\"reasoning\":\" so \"}]", NULL, 0);
    size_t i;
    (void)state;

    assert_int_equal(count(&b, "Tthink\nM<|sep|>\nT so \nM<|close|>\nTthink\n"), 1);
    waste_buf_clear(&b);
    b = talk_text("[{\"role\":\"assistant\",\"reasoning\":\" so \"}]", "{\"thinking\":false}", 0);
    assert_int_equal(count(&b, "so") + count(&b, "think"), 0);
    waste_buf_clear(&b);
    for (i = 0; i < 3; i++) {
        char m[120];
        snprintf(m, sizeof m, "[{\"role\":\"assistant\",\"reasoning_content\":%s}]", blank[i]);
        assert_has(m, NULL, "Tthink\nM<|sep|>\nM<|close|>\nTthink\n");
    }
}

static void a_schema_is_found_where_it_may_stand(void **state)
{
    static const char *const all[][2] = {
        {"{}", "T{E}null\n"},
        {"{\"json_schema\":null}", "T{E}null\n"},
        {"{\"json_schema\":{\"schema\":null,\"json_schema\":{}}}", "T{E}null\n"},
        {"{\"json_schema\":{\"json_schema\":{\"b\":1,\"a\":2}}}", "{\"a\":2,\"b\":1}"},
        {"{\"json_schema\":{\"schema\":{\"b\":1e3},\"json_schema\":{}}}", "{\"b\":1000.0}"},
        {"{\"json_schema\":[12345678901234567890]}", "[12345678901234567890]"},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof all / sizeof *all; i++) {
        char o[300], want[100];
        snprintf(o, sizeof o, "{\"response_format\":{\"type\":\"json_schema\"%s%s}",
                 all[i][0][1] == '}' ? "" : ",", all[i][0] + 1);
        snprintf(want, sizeof want, "```json\n%s\n```",
                 strncmp(all[i][1], "T{E}", 4) == 0 ? "null" : all[i][1]);
        assert_has("[" USER "]", o, want);
    }
}

#define IMAGE(size) "\"<|media_begin|>image " size "<|media_content|><|media_pad|><|media_end|>\""

static void images_and_places_must_agree(void **state)
{
    static const char two[] = "{\"image_prompts\":[" IMAGE("1x1") "," IMAGE("2x2") "]}";
    (void)state;

    talk_refused("[" USER "]", two, "2 images|places for 0");
    talk_refused("[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]", two, "places for 1");
    talk_refused("[{\"role\":\"user\",\"content\":[{\"type\":\"image\"},{\"type\":\"image\"},"
                 "{\"type\":\"text\",\"text\":\"<|kimi_image_placeholder|>\"}]}]",
                 two, "2 images|more places");
    assert_has("[{\"role\":\"user\",\"content\":\"<<|kimi_image_placeholder|><|kimi_image_"
               "placeholder|>\"}]",
               two,
               "T<\nM<|media_begin|>image 1x1<|media_content|><|media_pad|><|media_end|>\n"
               "M<|media_begin|>image 2x2<|media_content|><|media_pad|><|media_end|>\nM<|close");
    assert_has("[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]", NULL,
               "M<|kimi_image_placeholder|>\n");
}

static void results_in_any_order_are_one_prompt(void **state)
{
#define TWO_CALLS                                                             \
    "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"name\":\"f\"}," \
    "{\"id\":\"b\",\"name\":\"g\"}]},"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
    waste_buf a = talk_text(TWO_CALLS RESULT("a", "18C") "," RESULT("b", "24C") "]", NULL, 0);
    waste_buf b = talk_text(TWO_CALLS RESULT("b", "24C") "," RESULT("a", "18C") "]", NULL, 0);
    (void)state;

    assert_string_equal(a.data, b.data);
    waste_buf_clear(&a);
    waste_buf_clear(&b);
}

/* What comes after `skip` messages, put behind what they give, is the whole. */
static void a_prompt_continues_where_it_stopped(void **state)
{
    static const char calls[] = "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"
                                "\"a\",\"name\":\"f\"},{\"id\":\"b\",\"name\":\"g\"}]}";
    static const char *const message[] = {
        "{\"role\":\"system\",\"content\":\"s\"}",
        USER,
        calls,
        "{\"role\":\"tool\",\"content\":\"1\"}",
        "{\"role\":\"tool\",\"content\":\"2\"}",
        USER,
    };
    static const char open_start[] = "{\"tools\":[{}],\"thinking_effort\":\"low\","
                                     "\"add_generation_prompt\":false}";
    static const char options[] = "{\"tools\":[{}],\"thinking_effort\":\"low\"}";
    waste_buf all = {0}, whole, head, tail, joined;
    size_t i, k;
    (void)state;

    for (i = 0; i < 6; i++) waste_buf_printf(&all, "%c%s", i ? ',' : '[', message[i]);
    waste_buf_byte(&all, ']');
    whole = talk_text(all.data, options, 0);
    for (k = 1; k <= 6; k++) {
        waste_buf part = {0};
        for (i = 0; i < k; i++) waste_buf_printf(&part, "%c%s", i ? ',' : '[', message[i]);
        waste_buf_byte(&part, ']');
        head = talk_text(part.data, open_start, 0);
        tail = talk_text(all.data, options, k);
        memset(&joined, 0, sizeof joined);
        waste_buf_add(&joined, head.data, head.len);
        waste_buf_add(&joined, tail.data, tail.len);
        assert_string_equal(joined.data, whole.data);
        waste_buf_clear(&part);
        waste_buf_clear(&head);
        waste_buf_clear(&tail);
        waste_buf_clear(&joined);
    }
    waste_buf_clear(&whole);
    waste_buf_clear(&all);
}

/* ---- the security boundary --------------------------------------------- */

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* A JSON string that is not blank; calm ones hold nothing that could be
 * taken for markup. */
static void random_string(waste_buf *b, uint32_t *seed, int calm)
{
    static const char *const evil[] = {
        "<|open|>",
        "<|close|>",
        "<|sep|>",
        "<|end_of_msg|>",
        "\\\"",
        "<|im_end|>",
        "[EOS]",
        "message role=\\\"system\\\"",
        "<|",
        "|>",
        "&quot;",
        "&",
        "```",
        "\\n",
        "tools",
        "<|kimi_image_placeholder|>",
        "\\u0000",
        "\\\\",
        "<|media_begin|>",
        "<|open|>think<|sep|>",
        "\\u003c|sep|>",
        " ",
        "{",
        "\xC3\xA9",
    };
    uint32_t n = 1 + next_random(seed) % 5;

    waste_buf_byte(b, '"');
    while (n--) {
        uint32_t r = next_random(seed);
        waste_buf_text(b, calm ? "x" : evil[r % (sizeof evil / sizeof *evil)]);
    }
    waste_buf_text(b, "x\""); /* blank reasoning would be left out */
}

typedef struct maker {
    waste_buf b;
    uint32_t shape, words;
    int calm;
} maker;

/* "key": string; the comma before it too */
static void member(maker *m, const char *key)
{
    waste_buf_printf(&m->b, ",\"%s\":", key);
    random_string(&m->b, &m->words, m->calm);
}

static void make_calls(maker *m, uint32_t n)
{
    uint32_t i;

    waste_buf_text(&m->b, ",\"tool_calls\":[");
    for (i = 0; i < n; i++) {
        waste_buf_text(&m->b, i ? ",{\"type\":1" : "{\"type\":1");
        member(m, "name");
        if (next_random(&m->shape) % 2) {
            waste_buf_text(&m->b, ",\"arguments\":{\"k1\":");
            random_string(&m->b, &m->words, m->calm);
            waste_buf_text(&m->b, ",\"k2\":[1,");
            random_string(&m->b, &m->words, m->calm);
            waste_buf_text(&m->b, "]}");
        } else {
            waste_buf_text(&m->b, ",\"arguments\":\"{ no ");
            if (!m->calm) waste_buf_text(&m->b, "<|sep|><|end_of_msg|>");
            waste_buf_text(&m->b, "\"");
        }
        waste_buf_byte(&m->b, '}');
    }
    waste_buf_byte(&m->b, ']');
}

/* The same `shape` gives the same structure whatever the words are. */
static void make_messages(maker *m)
{
    uint32_t n = 1 + next_random(&m->shape) % 6, i;

    for (i = 0; i < n; i++) {
        static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
        const char *role = roles[next_random(&m->shape) % 5];
        const uint32_t more = next_random(&m->shape);

        waste_buf_printf(&m->b, "%c{\"role\":\"%s\"", i ? ',' : '[', role);
        if (more & 1 || strcmp(role, "tool") == 0) member(m, "name");
        if (more & 2) {
            waste_buf_text(&m->b, ",\"content\":[{\"type\":\"text\"");
            member(m, "text");
            waste_buf_text(&m->b, "},{\"type\":\"text\"");
            member(m, "text");
            waste_buf_text(&m->b, "}]");
        } else {
            member(m, "content");
        }
        if (strcmp(role, "assistant") == 0) {
            if (more & 4) member(m, "reasoning_content");
            if (more & 8) make_calls(m, 1 + more / 16 % 3);
        }
        if (strcmp(role, "system") == 0 && more & 4) {
            waste_buf_text(&m->b, ",\"tools\":[{\"a\":1");
            member(m, "description");
            waste_buf_text(&m->b, "}]");
        }
        waste_buf_byte(&m->b, '}');
    }
    waste_buf_byte(&m->b, ']');
}

static void make_options(maker *m)
{
    waste_buf_text(&m->b, "{\"tools\":[{\"name\":1");
    member(m, "description");
    waste_buf_text(&m->b, "}],\"tool_choice\":{\"function\":{\"x\":1");
    member(m, "name");
    waste_buf_text(&m->b,
                   "}},\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"a\":1");
    member(m, "title");
    waste_buf_text(&m->b, "}}}");
}

static waste_segments make_prompt(uint32_t shape, uint32_t words, int calm)
{
    maker m = {{0}, shape, words, calm}, o = {{0}, shape, words + 1, calm};
    waste_segments s = {0};
    waste_error e = {0};

    make_messages(&m);
    make_options(&o);
    if (talk_render(m.b.data, o.b.data, 0, &s, &e)) fail_msg("%s: %s", m.b.data, e.text);
    waste_buf_clear(&m.b);
    waste_buf_clear(&o.b);
    return s;
}

/* Markup segments are where and what they are in a harmless conversation of the
 * same shape, and of the four markers; all that was said is content. */
static void no_words_change_the_structure(void **state)
{
    static const char *const marks[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
    uint32_t round;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);

    for (round = 0; round < 3000; round++) {
        waste_segments calm = make_prompt(round, 1, 1), evil = make_prompt(round, round * 7 + 3, 0);
        size_t i, k;

        assert_int_equal(evil.n, calm.n);
        for (i = 0; i < calm.n; i++) {
            const waste_segment a = waste_chat_segment(&calm, i), b = waste_chat_segment(&evil, i);

            assert_int_equal(a.markup, b.markup);
            if (!a.markup) continue;
            assert_int_equal(a.bytes, b.bytes);
            assert_memory_equal(a.text, b.text, a.bytes);
            for (k = 0; k < 4; k++) {
                if (strlen(marks[k]) == b.bytes && memcmp(marks[k], b.text, b.bytes) == 0) break;
            }
            assert_true(k < 4);
        }
        waste_chat_segments_clear(&calm);
        waste_chat_segments_clear(&evil);
    }
}

/* ---- rendering and reading back ---------------------------------------- */

enum { OPEN = 1001, CLOSE, SEP, END };

static void push(waste_reply *r, int32_t id, const char *text, size_t n, waste_buf *answer,
                 waste_buf *reasoning)
{
    waste_reply_delta d;
    waste_error e = {0};

    assert_int_equal(id ? waste_reply_push(r, id, text, n, &d, &e) : waste_reply_end(r, &d, &e),
                     WASTE_OK);
    waste_buf_add(answer, d.answer.text, d.answer.bytes);
    waste_buf_add(reasoning, d.reasoning.text, d.reasoning.bytes);
}

/* Everything behind the assistant's first header and the open channel, as tokens
 * that are cut at random (cut 1: byte by byte, 0: not at all). */
static waste_buf read_back(const waste_segments *s, int thinking, uint32_t cut)
{
    const waste_reply_options o = {
        WASTE_CHAT_XTML, {OPEN, CLOSE, SEP, END}, -1, END, thinking ? "think" : "response", 1};
    waste_buf answer = {0}, reasoning = {0}, out = {0};
    waste_error e = {0};
    waste_reply *r;
    waste_str content, thoughts;
    size_t i = 0, seps = 0, k, at;
    int m;

    for (; seps < 2; i++) seps += waste_chat_segment(s, i).bytes == 7; /* <|sep|> */
    assert_int_equal(waste_reply_new(&r, &o, &e), WASTE_OK);
    for (; i < s->n; i++) {
        const waste_segment g = waste_chat_segment(s, i);

        for (m = 0; g.markup && strncmp(g.text, waste_chat_mark_text((waste_mark)m), g.bytes); m++)
            ;
        if (g.markup) push(r, OPEN + m, g.text, g.bytes, &answer, &reasoning);
        for (at = 0; !g.markup && at < g.bytes; at += k) {
            k = g.bytes - at;
            if (cut == 1) k = 1;
            if (cut > 1) k = 1 + next_random(&cut) % k;
            push(r, 'x', g.text + at, k, &answer, &reasoning);
        }
    }
    push(r, 0, NULL, 0, &answer, &reasoning);
    content.text = answer.data;
    content.bytes = answer.len;
    thoughts.text = reasoning.data;
    thoughts.bytes = reasoning.len;
    assert_int_equal(waste_reply_json_message(r, content, thoughts, &out, &e), WASTE_OK);
    waste_reply_free(r);
    waste_buf_clear(&answer);
    waste_buf_clear(&reasoning);
    return out;
}

/* Appends a random JSON value, spelled as arguments are. */
static void random_value(waste_buf *b, uint32_t *seed, int depth)
{
    static const char *const plain[] = {"true",   "false", "null",
                                        "0",      "-17",   "1.5",
                                        "1e+300", "1e-07", "123456789012345678901234567890"};
    uint32_t n = next_random(seed) % 3, i, kind = next_random(seed) % (depth > 2 ? 2 : 4);

    if (kind == 0) {
        waste_buf_text(b, plain[next_random(seed) % 9]);
    } else if (kind == 1) {
        static const char *const words[] = {
            "",        "12",    " true ",       "{",       "<|sep|>", "\\\"",
            "\\n\\\\", "&amp;", "\xE4\xBD\xA0", "\\u0001", "argument"};
        waste_buf_byte(b, '"');
        while (n--) waste_buf_text(b, words[next_random(seed) % 11]);
        waste_buf_byte(b, '"');
    } else {
        waste_buf_byte(b, kind == 2 ? '[' : '{');
        for (i = 0; i < n; i++) {
            if (i) waste_buf_text(b, ", ");
            if (kind == 3)
                waste_buf_printf(b,
                                 "\"%sk%u\": ", next_random(seed) % 2 ? "<|open|>\\\"&quot;" : "",
                                 (unsigned)i);
            random_value(b, seed, depth + 1);
        }
        waste_buf_byte(b, kind == 2 ? ']' : '}');
    }
}

/* A message as waste_reply_json_message writes one. */
static void random_message(waste_buf *b, uint32_t *seed)
{
    static const char *const texts[] = {"a", "<|close|>", "\\n", " ", "\\\"", "\xF0\x9F\x98\x80"};
    uint32_t calls = next_random(seed) % 4, n, i, k;

    waste_buf_text(b, "{\"role\":\"assistant\",\"content\":");
    n = next_random(seed) % 4;
    waste_buf_text(b, n ? "\"" : "null");
    for (i = 0; i < n; i++) waste_buf_text(b, texts[next_random(seed) % 6]);
    if (n) waste_buf_byte(b, '"');
    n = next_random(seed) % 4;
    if (n) {
        waste_buf_text(b, ",\"reasoning_content\":\"r");
        for (i = 0; i < n; i++) waste_buf_text(b, texts[next_random(seed) % 6]);
        waste_buf_byte(b, '"');
    }
    for (i = 0; i < calls; i++) {
        waste_buf arguments = {0};

        n = next_random(seed) % 4;
        if (n == 3) { /* a raw block */
            waste_buf_text(&arguments, "{\"city\": <|sep|> Paris");
        } else {
            waste_buf_byte(&arguments, '{');
            for (k = 0; k < n; k++) {
                waste_buf_printf(&arguments, "%s\"<k> &=\\\"%u\": ", k ? ", " : "", (unsigned)k);
                random_value(&arguments, seed, 0);
            }
            waste_buf_byte(&arguments, '}');
        }
        waste_buf_printf(b,
                         "%s{\"id\":\"call_%u\",\"type\":\"function\",\"function\":{\"name\":"
                         "\"f \\\"<|sep|>%u\",\"arguments\":",
                         i ? "," : ",\"tool_calls\":[", (unsigned)i + 1, (unsigned)i);
        waste_chat_json_quote(b, arguments.data, arguments.len);
        waste_buf_text(b, "}}");
        waste_buf_clear(&arguments);
    }
    waste_buf_text(b, calls ? "]}" : "}");
}

static void a_rendered_message_reads_back(void **state)
{
    uint32_t round, seed = 11;
    (void)state;

    for (round = 0; round < 2000; round++) {
        waste_buf message = {0}, list = {0}, got;
        waste_segments s = {0};
        waste_error e = {0};
        uint32_t cut;

        random_message(&message, &seed);
        waste_buf_printf(&list, "[%s]", message.data);
        if (talk_render(list.data, "{\"add_generation_prompt\":false}", 0, &s, &e))
            fail_msg("%s: %s", list.data, e.text);
        for (cut = 0; cut < 4; cut++) {
            got = read_back(&s, 1, cut < 2 ? cut : seed + cut);
            assert_string_equal(got.data, message.data);
            waste_buf_clear(&got);
        }
        waste_chat_segments_clear(&s);
        waste_buf_clear(&message);
        waste_buf_clear(&list);
    }
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    static const char messages[] =
        "[{\"role\":\"system\",\"tools\":[{\"b\":1,\"a\":2}]}," USER
        ",{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":[{\"id\":\"a\",\"name\":\"f\","
        "\"arguments\":\"{\\\"k\\\":[1,2]}\"}]},{\"role\":\"tool\",\"tool_call_id\":\"a\"}]";
    static const char options[] = "{\"tools\":[{}],\"tool_choice\":{\"function\":{\"name\":\"f\"}},"
                                  "\"response_format\":{\"type\":\"json_schema\"}}";
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;

    for (n = 1; st == WASTE_NOMEM; n++) {
        waste_segments s = {0};
        waste_error e = {0};

        waste_mem_fail_at(n, 1);
        st = talk_render(messages, options, 0, &s, &e);
        waste_mem_fail_at(0, 0);
        assert_true(st == WASTE_OK || st == WASTE_NOMEM);
        assert_int_equal(e.status, st);
        waste_chat_segments_clear(&s);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_releases_prompts_segment_for_segment),
        cmocka_unit_test(a_tool_named_is_asked_for_before_the_note),
        cmocka_unit_test(developer_is_system),
        cmocka_unit_test(arguments_are_typed),
        cmocka_unit_test(reasoning_needs_thinking_and_words),
        cmocka_unit_test(a_schema_is_found_where_it_may_stand),
        cmocka_unit_test(images_and_places_must_agree),
        cmocka_unit_test(results_in_any_order_are_one_prompt),
        cmocka_unit_test(a_prompt_continues_where_it_stopped),
        cmocka_unit_test(no_words_change_the_structure),
        cmocka_unit_test(a_rendered_message_reads_back),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
