/* text/chat_message.c: what a message may be, how it is refused, and the order of
 * tool results. */
#include "chat_talk.h"

static void messages_are_refused_by_index_and_field(void **state)
{
    static const char *const bad[][2] = {
        {"", "messages|JSON"},
        {"{}", "messages is an object|an array"},
        {"[]", "messages is empty"},
        {"[1]", "messages[0] is a number|an object"},
        {"[{\"role\":\"user\"},\"x\"]", "messages[1] is a string"},
        {"[{}]", "messages[0].role is nothing"},
        {"[{\"role\":null}]", "messages[0].role is null"},
        {"[{\"role\":\"oracle\"}]", "messages[0].role is 'oracle'|developer"},
        {"[{\"role\":\"user\",\"content\":5}]", "messages[0].content is a number"},
        {"[{\"role\":\"user\",\"content\":{}}]", "messages[0].content is an object"},
        {"[{\"role\":\"user\",\"content\":[\"x\"]}]", "messages[0].content[0] is a string"},
        {"[{\"role\":\"user\",\"content\":[{}]}]", "messages[0].content[0].type is nothing"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"\"}]}]",
         "messages[0].content[0].type is empty"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\"}]}"
         "]",
         "messages[0].content[1].text is nothing|a string"},
        {"[{\"role\":\"user\"},{\"role\":\"user\"},{\"role\":\"user\",\"content\":[{\"type\":"
         "\"text\",\"text\":7}]}]",
         "messages[2].content[0].text is a number"},
        {"[{\"role\":\"user\",\"name\":7}]", "messages[0].name is a number"},
        {"[{\"role\":\"user\",\"tool_calls\":[]}]", "messages[0].tool_calls|of user"},
        {"[{\"role\":\"tool\",\"tool_calls\":[{}]}]", "messages[0].tool_calls|of tool"},
        {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", "messages[0].tool_calls is an object"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[3]}]", "messages[0].tool_calls[0] is a number"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":3}]}]",
         "messages[0].tool_calls[0].function is a number"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}]",
         "messages[0].tool_calls[0].function.name is nothing"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"\"}]}]",
         "messages[0].tool_calls[0].name is empty"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{}]}]",
         "messages[0].tool_calls[0].name is nothing"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":1,\"name\":\"f\"}]}]",
         "messages[0].tool_calls[0].id is a number"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":[]}]}]",
         "messages[0].tool_calls[0].arguments is an array"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"g\"},{\"function\":{\"name\":\"f\","
         "\"arguments\":\" [1] \"}}]}]",
         "messages[0].tool_calls[1].function.arguments is the JSON text of an array|an object"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"null\"}]}]",
         "arguments is the JSON text of null"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":{\"x\":1e999}}]}]",
         "messages: the number 1e999"},
        {"[{\"role\":\"assistant\",\"reasoning_content\":1}]",
         "messages[0].reasoning_content is a number"},
        {"[{\"role\":\"assistant\",\"reasoning\":[]}]", "messages[0].reasoning is an array"},
        {"[{\"role\":\"system\",\"tools\":{}}]", "messages[0].tools is an object"},
        {"[{\"role\":\"tool\",\"tool_call_id\":4}]", "messages[0].tool_call_id is a number"},
        {"[{\"role\":\"tool\",\"tool\":4}]", "messages[0].tool is a number"},
        {"[{\"role\":\"tool\",\"content\":\"x\"}]", "messages[0]|without a name"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\"}]},{\"role\":\"tool\"},"
         "{\"role\":\"user\"},{\"role\":\"tool\"}]",
         "messages[3]|without a name|result 2"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\"}]},{\"role\":\"assistant\"},"
         "{\"role\":\"tool\"}]",
         "messages[2]|without a name"},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof bad / sizeof *bad; i++) talk_refused(bad[i][0], NULL, bad[i][1]);
}

static waste_chat_messages ordered(const char *json, size_t from)
{
    waste_chat_messages m = {NULL, NULL, 0};
    waste_error e = {0};

    if (waste_chat_message_read(&m, json, strlen(json), &e) ||
        waste_chat_message_order(&m, from, &e))
        fail_msg("%s: %s", json, e.text);
    return m;
}

/* at and tool name of each tool message, in order: "2 Rome, 1 Paris" */
static void assert_order(const char *json, size_t from, const char *want)
{
    waste_chat_messages m = ordered(json, from);
    waste_error e = {0};
    int again;

    for (again = 0; again < 2; again++) {
        waste_buf b = {0};
        size_t i;

        for (i = 0; i < m.n; i++) {
            const waste_chat_message *x = &m.message[i];
            if (x->role != WASTE_CHAT_TOOL) continue;
            waste_buf_printf(&b, "%s%zu %.*s%lld", b.len ? ", " : "", x->at, (int)x->tool.bytes,
                             x->tool.text, (long long)x->index);
        }
        assert_string_equal(b.data, want);
        waste_buf_clear(&b);
        assert_int_equal(waste_chat_message_order(&m, from, &e), WASTE_OK);
    }
    waste_chat_message_clear(&m);
}

#define CALLS                                                                 \
    "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"name\":\"f\"}," \
    "{\"name\":\"no_id\"},{\"id\":\"b\",\"name\":\"g\"},{\"id\":\"a\",\"name\":\"h\"}]}"
#define RESULT(more) ",{\"role\":\"tool\"" more "}"
#define OF(id)       RESULT(",\"tool_call_id\":\"" id "\"")

static void results_stand_in_the_order_of_their_calls(void **state)
{
    (void)state;
    assert_order(CALLS OF("b") OF("a") "]", 0, "2 f1, 1 g2");
    assert_order(CALLS OF("b") OF("a") OF("b") OF("a") "]", 0, "2 f1, 4 f2, 1 g3, 3 g4");
    /* one that matches nothing leaves the whole run, and its names, as they are */
    assert_order(CALLS OF("b") OF("x") OF("a") "]", 0, "1 f1, 2 no_id2, 3 g3");
    assert_order(CALLS OF("b") RESULT("") "]", 0, "1 f1, 2 no_id2");
    /* a match overrides a stale name; `id` counts when there is no tool_call_id */
    assert_order(CALLS RESULT(",\"id\":\"b\",\"tool\":\"old\"")
                     RESULT(",\"tool_call_id\":\"a\",\"name\":\"old\"") "]",
                 0, "2 f1, 1 g2");
    assert_order(CALLS RESULT(",\"id\":\"b\",\"tool_call_id\":\"a\"") OF("a") "]", 0, "1 f1, 2 f2");
    /* another role ends a run, and does not restart the count */
    assert_order(CALLS OF("b") ",{\"role\":\"user\"}" OF("a") "]", 0, "1 g1, 3 f2");
    /* an assistant message without calls clears the table */
    assert_order(CALLS OF("b") ",{\"role\":\"assistant\"}" RESULT(
                     ",\"tool\":\"own\",\"tool_call_id\":\"a\"") "]",
                 0, "1 g1, 3 own1");
}

static void results_are_named_by_tool_then_name_then_position(void **state)
{
    (void)state;
    assert_order(CALLS RESULT(",\"tool\":\"t\",\"name\":\"n\"") RESULT(",\"name\":\"n\"")
                     RESULT(",\"name\":\"\"") RESULT(",\"tool\":null,\"name\":\"n\"") "]",
                 0, "1 t1, 2 n2, 3 g3, 4 h4");
}

/* What was rendered stays where it is; what is new is ordered among itself. */
static void results_that_were_rendered_stay(void **state)
{
    (void)state;
    assert_order(CALLS OF("b") OF("b") OF("a") "]", 2, "1 f1, 3 f2, 2 g3");
    assert_order(CALLS OF("b") OF("a") "]", 3, "1 f1, 2 no_id2");
}

static void white_space_is_unicodes(void **state)
{
    (void)state;
    assert_true(waste_chat_message_blank(talk_str("")));
    assert_true(waste_chat_message_blank(talk_str(" \t\n\r\v\f\x1c\x1f")));
    assert_true(waste_chat_message_blank(talk_str("\xC2\xA0\xC2\x85\xE2\x80\x83\xE3\x80\x80")));
    assert_false(waste_chat_message_blank(talk_str(" \xE2\x80\x8B"))); /* zero width */
    assert_false(waste_chat_message_blank(talk_str(" .")));
}

static void parts_are_texts_and_places_of_images(void **state)
{
    waste_chat_messages m =
        ordered("[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\\u0000b\"},"
                "{\"type\":\"image_url\",\"image_url\":{}},{\"type\":\"image\"},"
                "{\"type\":\"input_file\",\"text\":\"\"}]},{\"role\":\"user\",\"content\":null},"
                "{\"role\":\"user\",\"content\":[]},{\"role\":\"user\",\"tool_calls\":null}]",
                0);
    const waste_chat_part *p = m.message[0].part;
    (void)state;

    assert_int_equal(m.message[0].role, WASTE_CHAT_SYSTEM);
    assert_int_equal(m.message[0].n_parts, 4);
    assert_int_equal(p[0].text.bytes, 3);
    assert_memory_equal(p[0].text.text, "a\0b", 3);
    assert_true(!p[0].image && p[1].image && p[2].image && !p[3].image);
    assert_int_equal(m.message[1].n_parts + m.message[2].n_parts + m.message[3].n_parts, 0);
    waste_chat_message_clear(&m);
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    static const char json[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
        "{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":[{\"id\":\"a\",\"name\":\"f\","
        "\"arguments\":\"{\\\"k\\\":[1,2]}\"},{\"id\":\"b\",\"name\":\"g\",\"arguments\":\"{\"}]"
        "}" OF("b") OF("a") "]";
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;

    for (n = 1; st == WASTE_NOMEM; n++) {
        waste_chat_messages m = {NULL, NULL, 0};
        waste_error e = {0};

        waste_mem_fail_at(n, 1);
        st = waste_chat_message_read(&m, json, sizeof json - 1, &e);
        if (!st) st = waste_chat_message_order(&m, 0, &e);
        waste_mem_fail_at(0, 0);
        assert_true(st == WASTE_OK || st == WASTE_NOMEM);
        assert_int_equal(e.status, st);
        if (!st) assert_non_null(m.message[1].call[1].raw.text);
        waste_chat_message_clear(&m);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_refused_by_index_and_field),
        cmocka_unit_test(results_stand_in_the_order_of_their_calls),
        cmocka_unit_test(results_are_named_by_tool_then_name_then_position),
        cmocka_unit_test(results_that_were_rendered_stay),
        cmocka_unit_test(white_space_is_unicodes),
        cmocka_unit_test(parts_are_texts_and_places_of_images),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
