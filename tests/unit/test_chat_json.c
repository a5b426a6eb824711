/* text/chat_json.c: numbers of any length, the two ways to write, and what is no
 * JSON. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/chat_json.h"

static waste_chat_json *open_text(const char *text)
{
    waste_chat_json *d;
    waste_error e = {0};
    waste_status st = waste_chat_json_open(&d, text, strlen(text), 0, "test", WASTE_ARG, &e);

    if (st) fail_msg("%s: %s", text, e.text);
    return d;
}

static void assert_written(const char *text, const char *compact, const char *spaced)
{
    waste_chat_json *d = open_text(text);
    waste_buf b = {0};

    if (compact) {
        waste_chat_json_compact(d, waste_chat_json_root(d), &b);
        assert_string_equal(b.data, compact);
    }
    b.len = 0;
    waste_chat_json_spaced(d, waste_chat_json_root(d), &b);
    assert_string_equal(b.data, spaced);
    assert_false(b.failed);
    waste_buf_clear(&b);
    waste_chat_json_close(d);
}

static const char *const numbers[][2] = {
    {"0", "0"},
    {"-0", "0"},
    {"-12", "-12"},
    {"9223372036854775808", "9223372036854775808"},
    {"-123456789012345678901234567890", "-123456789012345678901234567890"},
    {"1.5", "1.5"},
    {"1.50", "1.5"},
    {"-0.0", "-0.0"},
    {"0.0", "0.0"},
    {"0e5", "0.0"},
    {"1e2", "100.0"},
    {"1E+2", "100.0"},
    {"12.5e1", "125.0"},
    {"1e15", "1000000000000000.0"},
    {"9999999999999998.0", "9999999999999998.0"},
    {"1e16", "1e+16"},
    {"123456789012345680000.0", "1.2345678901234568e+20"},
    {"1e-4", "0.0001"},
    {"0.00012", "0.00012"},
    {"1e-5", "1e-05"},
    {"0.0000123", "1.23e-05"},
    {"0.1", "0.1"},
    {"0.30000000000000004", "0.30000000000000004"},
    {"3.14159265358979", "3.14159265358979"},
    {"5e-324", "5e-324"},
    {"1e-400", "0.0"},
    {"1.7976931348623157e308", "1.7976931348623157e+308"},
    {"2.2250738585072014e-308", "2.2250738585072014e-308"},
    {"9007199254740993.0", "9007199254740992.0"},
    /* powers of two, where the nearest 16 digits are another double's and the next
     * ones up are right: 2^-44, 2^-1017, 2^89 */
    {"5.6843418860808015e-14", "5.684341886080802e-14"},
    {"7.1202363472230444e-307", "7.120236347223045e-307"},
    {"618970019642690137449562112e0", "6.189700196426902e+26"},
};

static void numbers_keep_what_they_say(void **state)
{
    size_t i;
    char text[200], want[200];
    (void)state;

    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_written(numbers[i][0], numbers[i][1], numbers[i][1]);
        snprintf(text, sizeof text, "{\"a\" :[ %s , %s]}", numbers[i][0], numbers[i][0]);
        snprintf(want, sizeof want, "{\"a\": [%s, %s]}", numbers[i][1], numbers[i][1]);
        assert_written(text, NULL, want);
    }
}

static void the_hosts_locale_changes_no_number(void **state)
{
    static const char *const places[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    size_t i;
    (void)state;

    for (i = 0; i < 3 && !setlocale(LC_NUMERIC, places[i]); i++)
        ;
    if (i == 3) skip(); /* none of them is installed here */
    numbers_keep_what_they_say(NULL);
    setlocale(LC_NUMERIC, "C");
}

static void keys_are_sorted_or_as_received(void **state)
{
    (void)state;
    assert_written("{\"b\":{\"z\":1,\"a\":[{\"y\":2,\"x\":3}]},\"a\":null,\"\":true}",
                   "{\"\":true,\"a\":null,\"b\":{\"a\":[{\"x\":3,\"y\":2}],\"z\":1}}",
                   "{\"b\": {\"z\": 1, \"a\": [{\"y\": 2, \"x\": 3}]}, \"a\": null, \"\": true}");
    /* by code point, which is the order of the bytes; by unit it would be another */
    assert_written("{\"\xF0\x9F\x98\x80\":1,\"\xEF\xBC\xA1\":2,\"Z\":3,\"a\":4,\"\xC3\xA9\":5}",
                   "{\"Z\":3,\"a\":4,\"\xC3\xA9\":5,\"\xEF\xBC\xA1\":2,\"\xF0\x9F\x98\x80\":1}",
                   "{\"\xF0\x9F\x98\x80\": 1, \"\xEF\xBC\xA1\": 2, \"Z\": 3, \"a\": 4, "
                   "\"\xC3\xA9\": 5}");
    assert_written(" [ ] ", "[]", "[]");
    assert_written("[{}, [] , {\"k\":{}}]", "[{},[],{\"k\":{}}]", "[{}, [], {\"k\": {}}]");
}

static void of_equal_keys_the_last_value_stands_first(void **state)
{
    (void)state;
    assert_written("{\"a\":1,\"b\":22,\"a\":333,\"c\":[4],\"b\":5.0}",
                   "{\"a\":333,\"b\":5.0,\"c\":[4]}", "{\"a\": 333, \"b\": 5.0, \"c\": [4]}");
}

static void strings_are_escaped_as_little_as_may_be(void **state)
{
    waste_buf b = {0};
    (void)state;

    assert_written("\"\\u0022\\\\\\/\\n\\r\\t\\b\\f\\u0001\\u001F\\u007f\\u00e9\\ud83d\\ude00 12\"",
                   "\"\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\xC3\xA9\xF0\x9F\x98\x80 12\"",
                   "\"\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\xC3\xA9\xF0\x9F\x98\x80 12\"");
    waste_chat_json_quote(&b, "a\0b\xFF", 4);
    assert_string_equal(b.data, "\"a\\u0000b\xEF\xBF\xBD\"");
    waste_buf_clear(&b);
}

static void what_is_no_json_is_refused_where_it_fails(void **state)
{
    static const char *const bad[][2] = {
        {"", "JSON"},
        {"[01]", "column"},
        {"[1.]", "column"},
        {"[.5]", "column"},
        {"[1e]", "column"},
        {"[+1]", "column"},
        {"[- 1]", "column"},
        {"[1 2]", "'2'"},
        {"[1-2]", "column"},
        {"[1.2.3]", "column"},
        {"{\"a\":12 34}", "'34'"},
        {"[NaN]", "column"},
        {"[Infinity]", "column"},
        {"[1e999]", "1e999 is beyond"},
        {"[-1.0E+400]", "beyond"},
        {"{\"a\":1", "JSON"},
        {"\"a", "JSON"},
        {"\"a\\", "JSON"},
        {"[123456789012345678901234567890 1]", "JSON"},
        {"tru", "JSON"},
        {"[1]]", "JSON"},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        waste_chat_json *d;
        waste_error e = {0};

        assert_int_equal(
            waste_chat_json_open(&d, bad[i][0], strlen(bad[i][0]), 0, "here", WASTE_FORMAT, &e),
            WASTE_FORMAT);
        assert_null(d);
        if (!strstr(e.text, "here") || !strstr(e.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], e.text);
    }
}

static void integers_beyond_the_doubles_are_refused_when_finite(void **state)
{
    char big[401];
    waste_chat_json *d;
    waste_error e = {0};
    (void)state;

    memset(big, '9', 400);
    big[400] = 0;
    assert_written(big, big, big);
    assert_int_equal(waste_chat_json_open(&d, big, 400, 1, "x", WASTE_ARG, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_chat_json_open(&d, big, 300, 1, "x", WASTE_ARG, &e), WASTE_OK);
    waste_chat_json_close(d);
}

static void many_numbers_keep_their_places(void **state)
{
    waste_buf text = {0}, want = {0}, got = {0};
    waste_chat_json *d;
    waste_error e = {0};
    int i;
    (void)state;

    for (i = 0; i < 20000; i++) {
        waste_buf_printf(&text, "%c%d", i ? ',' : '[', i % 7);
        waste_buf_printf(&want, "%c%d", i ? ',' : '[', i % 7);
    }
    waste_buf_byte(&text, ']');
    waste_buf_byte(&want, ']');
    assert_int_equal(waste_chat_json_open(&d, text.data, text.len, 0, "x", WASTE_ARG, &e), 0);
    waste_chat_json_compact(d, waste_chat_json_root(d), &got);
    assert_string_equal(got.data, want.data);
    waste_chat_json_close(d);
    waste_buf_clear(&text);
    waste_buf_clear(&want);
    waste_buf_clear(&got);
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    static const char text[] = "{\"b\":[1,2.5,\"x\"],\"a\":{\"c\":123456789012345678901234567890}}";
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;

    for (n = 1; st == WASTE_NOMEM; n++) {
        waste_chat_json *d;
        waste_buf b = {0};
        waste_error e = {0};

        waste_mem_fail_at(n, 1);
        st = waste_chat_json_open(&d, text, sizeof text - 1, 1, "x", WASTE_ARG, &e);
        if (!st) {
            waste_chat_json_compact(d, waste_chat_json_root(d), &b);
            if (b.failed) st = WASTE_NOMEM;
        }
        waste_mem_fail_at(0, 0);
        assert_true(st == WASTE_OK || st == WASTE_NOMEM);
        waste_chat_json_close(d);
        waste_buf_clear(&b);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_keep_what_they_say),
        cmocka_unit_test(the_hosts_locale_changes_no_number),
        cmocka_unit_test(keys_are_sorted_or_as_received),
        cmocka_unit_test(of_equal_keys_the_last_value_stands_first),
        cmocka_unit_test(strings_are_escaped_as_little_as_may_be),
        cmocka_unit_test(what_is_no_json_is_refused_where_it_fails),
        cmocka_unit_test(integers_beyond_the_doubles_are_refused_when_finite),
        cmocka_unit_test(many_numbers_keep_their_places),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
