/* text/pretok: where the pattern cuts, and where long texts are cut first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/pretok.h"

/* The pieces of text[0..n), each followed by a '|'. */
static char *pieces(const char *text, size_t n)
{
    waste_buf b = {0};
    size_t at = 0;

    while (at < n) {
        size_t piece = waste_pretok_piece(text + at, n - at);
        assert_in_range(piece, 1, n - at);
        waste_buf_add(&b, text + at, piece);
        waste_buf_byte(&b, '|');
        at += piece;
    }
    waste_buf_byte(&b, 0);
    assert_false(b.failed);
    return b.data;
}

typedef struct split {
    const char *text, *want;
} split;

static void check(const split *s, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        char *got = pieces(s[i].text, strlen(s[i].text));
        assert_string_equal(got, s[i].want);
        waste_mem_free(got);
    }
}

#define CHECK(table) check(table, sizeof(table) / sizeof *(table))

/* The table of docs/format.md 8.3, and more. */
static void verified_splits(void **state)
{
    static const split table[] = {
        {"Hello, world!", "Hello|,| world|!|"},
        {"don't can't we've I'll you're it's", "don't| can't| we've| I'll| you're| it's|"},
        {"DON'T", "DON'T|"},
        {"IT'Sx", "IT'S|x|"},
        {"'tis 'S", "'tis| '|S|"},
        {"numbers 1234567 and 42", "numbers| |123|456|7| and| |42|"},
        {"100,000.5", "100|,|000|.|5|"},
        {"½ ٣٤٥٦", "½| |٣٤٥|٦|"},
        {"CamelCase SCREAMING_CASE snake_case iPhone",
         "Camel|Case| SCREAMING|_CASE| snake|_case| i|Phone|"},
        {"  indented\n\ttabbed\n\nblank line", " | indented|\n|\ttabbed|\n\n|blank| line|"},
        {"a  b", "a| | b|"},
        {"a  ", "a|  |"},
        {"trailing   \n  next", "trailing|   \n| | next|"},
        {"a\tb\t\tc", "a|\tb|\t|\tc|"},
        {"\r\n\r\nx", "\r\n\r\n|x|"},
        {"=== title\n\nx", "===| title|\n\n|x|"},
        {"x=1;y=2;/*comment*/", "x|=|1|;y|=|2|;/*|comment|*/|"},
        {"好的!世界", "好的|!|世界|"},
        {"!好", "!|好|"},
        {"价格100元", "价格|100|元|"},
        {"日本語のテキスト", "日本語|のテキスト|"},
        {"々〇", "々〇|"},
        {"한국어 텍스트", "한국어| 텍스트|"},
        {"emoji 🎉🎉 ok", "emoji| 🎉🎉| ok|"},
        {"cafe\xCC\x81", "cafe\xCC\x81|"},
        {"a\xC2\xA0"
         "b",
         "a|\xC2\xA0"
         "b|"},
        {"a\xE3\x80\x80"
         "b",
         "a|\xE3\x80\x80"
         "b|"},
        {"a\xE2\x80\x8B"
         "b",
         "a|\xE2\x80\x8B"
         "b|"},
    };
    char *got;

    (void)state;
    CHECK(table);
    got = pieces("\0a", 2);
    assert_memory_equal(got, "\0a|", 4);
    waste_mem_free(got);
    got = pieces("role=\"user\"<|sep|>", 18);
    assert_string_equal(got, "role|=\"|user|\"<||sep||>|");
    waste_mem_free(got);
}

static void words_may_have_to_give_letters_back(void **state)
{
    static const split table[] = {
        {"カタカナABC", "カタカナ|ABC|"},
        {"ABCカナdef", "ABCカナdef|"},
        {"\xCC\x81"
         "ABC",
         "\xCC\x81|ABC|"},
        {"-ABC", "-ABC|"},
        {"ªB", "ª|B|"},
        {"AªBªC", "AªBª|C|"},
        {"ǅ", "ǅ|"},
        {"ABCdEF", "ABCd|EF|"},
        {"\xCC\x81\xCC\x81"
         "A",
         "\xCC\x81\xCC\x81|A|"},
        {"-\xCC\x81", "-\xCC\x81|"},
    };
    (void)state;
    CHECK(table);
}

static void suffixes_ignore_case_and_have_an_order(void **state)
{
    static const split table[] = {
        {"x'Re", "x'Re|"},    {"x'r e", "x|'r| e|"},
        {"x'lly", "x'll|y|"}, {"x'ly", "x|'ly|"},
        {"x'", "x|'|"},       {"X'VE'D", "X'VE|'D|"},
        {"1's", "1|'s|"},     {"中's", "中|'s|"},
        {"A'ſt", "A'ſ|t|"},   {"x\xE2\x80\x99s", "x|\xE2\x80\x99s|"},
    };
    (void)state;
    CHECK(table);
}

static void white_space_keeps_its_last_for_the_next(void **state)
{
    static const split table[] = {
        {"   ", "   |"},
        {"   1", "  | |1|"},
        {"   !", "  | !|"},
        {"\t!", "\t|!|"},
        {" \n \n  x", " \n \n| | x|"},
        {"!\r\n \n", "!\r\n| \n|"},
        {"\n\n", "\n\n|"},
        {"x\xE2\x80\xA8y", "x|\xE2\x80\xA8y|"},
    };
    (void)state;
    CHECK(table);
}

static void broken_utf8_is_a_character_without_a_class(void **state)
{
    static const split table[] = {
        {"\xFF\xFE", "\xFF\xFE|"},         /* like punctuation */
        {"\xFFzz", "\xFFzz|"},             /* leads a word */
        {"a\xE4\xBD!", "a|\xE4\xBD!|"},    /* half a Han character is none */
        {"\xED\xA0\x80", "\xED\xA0\x80|"}, /* a surrogate */
        {" \xC0\x80", " \xC0\x80|"},
    };
    (void)state;
    CHECK(table);
}

/* Unicode 16.0.0. */
static void classes_have_their_sizes(void **state)
{
    static const unsigned want[7] = {99030, 141028, 1911, 42584, 42953, 25, 2};
    unsigned got[7] = {0}, bit;
    uint32_t c;

    (void)state;
    for (c = 0; c <= 0x10FFFF; c++)
        for (bit = 0; bit < 7; bit++) got[bit] += waste_pretok_class_of(c) >> bit & 1;
    for (bit = 0; bit < 7; bit++) assert_int_equal(got[bit], want[bit]);
    assert_int_equal(waste_pretok_class_of(0x110000), 0);
    assert_int_equal(waste_pretok_class_of(0x200B), 0);
    assert_int_equal(waste_pretok_class_of(0x3007), WASTE_PRETOK_HAN | WASTE_PRETOK_NUMBER);
    assert_int_equal(waste_pretok_class_of(0x16FF0), WASTE_PRETOK_HAN);
}

/* Lengths of the stretches of a text, as "a b c". */
static char *stretches(const char *text, size_t n)
{
    waste_buf b = {0};
    size_t at = 0, chunk = 0;

    while (at < n) {
        size_t k = waste_pretok_stretch(text + at, n - at, &chunk);
        assert_in_range(k, 1, n - at);
        waste_buf_printf(&b, at ? " %u" : "%u", (unsigned)k);
        at += k;
    }
    return b.data;
}

static void expect_stretches(waste_buf *b, const char *want)
{
    char *got = stretches(b->data, b->len);

    assert_false(b->failed);
    assert_string_equal(got, want);
    waste_mem_free(got);
    waste_buf_clear(b);
}

static void add_times(waste_buf *b, const char *unit, size_t times)
{
    while (times--) waste_buf_text(b, unit);
}

static void long_runs_are_cut(void **state)
{
    waste_buf b = {0};

    (void)state;
    add_times(&b, "=", 25000);
    expect_stretches(&b, "25000");
    add_times(&b, "=", 25001);
    expect_stretches(&b, "25000 1");
    add_times(&b, "a", 10000);
    add_times(&b, " ", 25000);
    add_times(&b, "a", 25000);
    expect_stretches(&b, "60000");
    waste_buf_text(&b, "a");
    add_times(&b, "\n", 50001);
    expect_stretches(&b, "25001 25000 1");
    add_times(&b, "é", 25002); /* characters count, not bytes */
    expect_stretches(&b, "50000 4");
    add_times(&b, "\xFF", 25001); /* a stray byte counts as one */
    expect_stretches(&b, "25000 1");
}

static void long_texts_are_cut(void **state)
{
    waste_buf b = {0};

    (void)state;
    add_times(&b, "ab cé ", 66667); /* 400,002 characters of 7 bytes for 6 */
    expect_stretches(&b, "466666 3");
    add_times(&b, "a ", 187500); /* the run is counted anew in each chunk */
    add_times(&b, "a", 25000 + 24999);
    expect_stretches(&b, "400000 24999");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verified_splits),
        cmocka_unit_test(words_may_have_to_give_letters_back),
        cmocka_unit_test(suffixes_ignore_case_and_have_an_order),
        cmocka_unit_test(white_space_keeps_its_last_for_the_next),
        cmocka_unit_test(broken_utf8_is_a_character_without_a_class),
        cmocka_unit_test(classes_have_their_sizes),
        cmocka_unit_test(long_runs_are_cut),
        cmocka_unit_test(long_texts_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
