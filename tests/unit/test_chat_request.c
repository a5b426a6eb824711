/* text/chat_request.c: the fields beside the messages. */
#include "chat_talk.h"

#define USER "[{\"role\":\"user\",\"content\":\"go\"}]"

static waste_chat_parsed read_options(const char *options)
{
    const waste_chat_request r = {talk_str(USER), talk_str(options), 0};
    waste_chat_parsed p;
    waste_error e = {0};

    memset(&p, 0, sizeof p);
    if (waste_chat_request_read(&p, &r, &e)) fail_msg("%s: %s", options, e.text);
    return p;
}

static void an_effort_is_any_of_its_names(void **state)
{
    static const struct {
        const char *options;
        int thinking;
        const char *effort;
    } all[] = {
        {"{}", -1, NULL},
        {"{\"thinking\":true}", 1, NULL},
        {"{\"thinking\":false}", 0, NULL},
        {"{\"thinking\":0}", 0, NULL},
        {"{\"thinking\":1}", 1, NULL},
        {"{\"thinking\":null,\"reasoning_effort\":null}", -1, NULL},
        {"{\"reasoning_effort\":\"LOW\"}", 1, "low"},
        {"{\"reasoning_effort\":\"none\"}", 0, NULL},
        {"{\"reasoning_effort\":\"minimal\",\"thinking\":true}", 0, NULL},
        {"{\"reasoning_effort\":\"Off\",\"thinking\":false}", 0, NULL},
        {"{\"thinking_effort\":\"max\"}", 1, "max"},
        {"{\"thinking_effort\":\"off\"}", 0, NULL},
        {"{\"reasoning\":{\"effort\":\"high\"}}", 1, "high"},
        {"{\"reasoning\":{}}", -1, NULL},
        {"{\"reasoning_effort\":\"low\",\"thinking_effort\":\"max\",\"reasoning\":{\"effort\":"
         "\"high\"}}",
         1, "low"},
        {"{\"thinking_effort\":\"max\",\"reasoning\":{\"effort\":\"high\"},\"seed\":3}", 1, "max"},
        /* the prompt language's own word says nothing when thinking is off */
        {"{\"thinking\":false,\"thinking_effort\":\"high\"}", 0, NULL},
        {"{\"thinking\":false,\"thinking_effort\":\"medium\"}", 0, NULL},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof all / sizeof *all; i++) {
        waste_chat_parsed p = read_options(all[i].options);
        if (p.thinking != all[i].thinking) fail_msg("%s: %d", all[i].options, p.thinking);
        if (all[i].effort)
            assert_string_equal(p.effort, all[i].effort);
        else
            assert_null(p.effort);
        waste_chat_request_clear(&p);
    }
}

static void fields_are_refused_by_name(void **state)
{
    static const char *const bad[][2] = {
        {"[]", "options is an array"},
        {"{", "options|JSON"},
        {"{\"thinking\":\"yes\"}", "thinking is a string|true or false"},
        {"{\"thinking\":2}", "thinking is a number"},
        {"{\"thinking\":1.0}", "thinking is a number"},
        {"{\"reasoning_effort\":\"medium\"}", "reasoning_effort is 'medium'|low, high or max"},
        {"{\"reasoning_effort\":\"medium\",\"thinking\":false}", "reasoning_effort is 'medium'"},
        {"{\"thinking_effort\":\"medium\"}", "thinking_effort is 'medium'"},
        {"{\"thinking_effort\":\"\"}", "thinking_effort is ''"},
        {"{\"reasoning\":{\"effort\":\"huge\"}}", "reasoning.effort is 'huge'"},
        {"{\"reasoning\":{\"effort\":1}}", "reasoning.effort is a number"},
        {"{\"reasoning\":\"high\"}", "reasoning is a string"},
        {"{\"reasoning_effort\":1}", "reasoning_effort is a number"},
        {"{\"reasoning_effort\":\"low\",\"thinking\":false}", "thinking is false|reasoning_effort"},
        {"{\"reasoning\":{\"effort\":\"max\"},\"thinking\":false}", "false|reasoning.effort"},
        {"{\"tools\":{}}", "tools is an object"},
        {"{\"tools\":[{},\"f\"]}", "tools[1] is a string"},
        {"{\"tool_choice\":3}", "tool_choice is a number"},
        {"{\"tool_choice\":{\"function\":\"f\"}}", "tool_choice.function is a string"},
        {"{\"tool_choice\":{\"function\":{\"name\":1}}}", "tool_choice.function.name is a number"},
        {"{\"response_format\":\"json_object\"}", "response_format is a string"},
        {"{\"response_format\":{\"type\":1}}", "response_format.type is a number"},
        {"{\"add_generation_prompt\":\"no\"}", "add_generation_prompt is a string"},
        {"{\"image_prompts\":{}}", "image_prompts is an object"},
        {"{\"image_prompts\":[1]}", "image_prompts[0] is a number"},
        {"{\"image_prompts\":[\"<|open|>message\"]}", "image_prompts[0] is another text"},
        {"{\"image_prompts\":[\"<|media_begin|>image 1x<|media_content|><|media_pad|>"
         "<|media_end|>\"]}",
         "image_prompts[0]"},
        {"{\"image_prompts\":[\"<|media_begin|>image 1x1<|media_content|><|media_pad|>"
         "<|media_end|><|open|>\"]}",
         "image_prompts[0]"},
        {"{\"image_prompts\":[\"<|media_begin|>image 1x1<|media_content|><|media_pad|>"
         "<|media_end|>\\u0000<|open|>\"]}",
         "image_prompts[0]"},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof bad / sizeof *bad; i++) talk_refused(USER, bad[i][0], bad[i][1]);
}

static void what_says_nothing_is_nothing(void **state)
{
    static const char *const quiet[] = {
        "{\"tools\":[]}",
        "{\"tools\":null,\"tool_choice\":null,\"response_format\":null,\"image_prompts\":[]}",
        "{\"tool_choice\":\"auto\"}",
        "{\"tool_choice\":\"whatever\"}",
        "{\"response_format\":{\"type\":\"text\"}}",
        "{\"response_format\":{}}",
        "{\"temperature\":1e5,\"stop\":[\"x\"],\"add_generation_prompt\":true}",
    };
    waste_buf plain = talk_text(USER, NULL, 0);
    size_t i;
    (void)state;

    for (i = 0; i < sizeof quiet / sizeof *quiet; i++) {
        waste_buf b = talk_text(USER, quiet[i], 0);
        assert_string_equal(b.data, plain.data);
        waste_buf_clear(&b);
    }
    waste_buf_clear(&plain);
}

static void tools_may_be_declared_by_a_message(void **state)
{
    static const char *const all[][2] = {
        {"[{\"role\":\"user\"}]", "{\"tools\":[{}]}"},
        {"[{\"role\":\"system\",\"tools\":[{}]}]", "{}"},
        {"[{\"role\":\"user\",\"tools\":[{}]}]", "{\"tools\":[]}"},
    };
    size_t i;
    (void)state;

    for (i = 0; i < 3; i++) {
        const waste_chat_request r = {talk_str(all[i][0]), talk_str(all[i][1]), 0};
        waste_chat_parsed p;
        waste_error e = {0};

        memset(&p, 0, sizeof p);
        assert_int_equal(waste_chat_request_read(&p, &r, &e), WASTE_OK);
        assert_int_equal(waste_chat_request_has_tools(&p), i < 2);
        waste_chat_request_clear(&p);
    }
}

static void skipping_more_than_there_is_is_an_error(void **state)
{
    waste_segments s = {0};
    waste_error e = {0};
    (void)state;

    assert_int_equal(talk_render(USER, NULL, 2, &s, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "2 messages"));
    assert_int_equal(talk_render(USER, NULL, 1, &s, &e), WASTE_OK);
    waste_chat_segments_clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_effort_is_any_of_its_names),
        cmocka_unit_test(fields_are_refused_by_name),
        cmocka_unit_test(what_says_nothing_is_nothing),
        cmocka_unit_test(tools_may_be_declared_by_a_message),
        cmocka_unit_test(skipping_more_than_there_is_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
