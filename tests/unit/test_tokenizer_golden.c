/* text/tokenizer against tiktoken: the corpus and the Unicode blocks of
 * tests/golden/tokenizer, whose answers tests/oracle/tokenizer.mjs wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plat.h"
#include "emulated.h"
#include "text/tokenizer.h"

#define GOLDEN "tests/golden/tokenizer"
#define PAIRS  TEST_BUILD "/tests/unit/tokenizer-pairs.tmp"

static waste_tokenizer *open_tokenizer(const char *dir)
{
    waste_error err = {0};
    waste_tokenizer *t;

    if (waste_tokenizer_open(&t, dir, 1 << 20, &err)) fail_msg("%s", err.text);
    assert_non_null(t);
    return t;
}

static waste_json *load(const char *path)
{
    waste_error err = {0};
    waste_json *j;

    if (waste_json_load(&j, path, &err)) fail_msg("%s", err.text);
    return j;
}

static int64_t int_of(const waste_json *j)
{
    int64_t v = -1;

    assert_int_equal(waste_json_int(j, &v), 0);
    return v;
}

/* Number of the first id that is not the answer's, or -1. An answer that is a
 * sum has no place to tell. */
static int64_t difference(const waste_json *answer, const waste_ids *ids)
{
    size_t i;

    if (waste_json_kind_of(answer) == WASTE_JSON_OBJECT) {
        uint32_t crc = libdeflate_crc32(0, ids->id, ids->n * sizeof *ids->id);
        return (size_t)int_of(waste_json_get(answer, "n")) != ids->n ||
                       (uint32_t)int_of(waste_json_get(answer, "crc32")) != crc
                   ? 0
                   : -1;
    }
    assert_int_equal(waste_json_kind_of(answer), WASTE_JSON_ARRAY);
    for (i = 0; i < ids->n && i < waste_json_count(answer); i++)
        if (int_of(waste_json_at(answer, i)) != ids->id[i]) return (int64_t)i;
    return i < ids->n || i < waste_json_count(answer) ? (int64_t)i : -1;
}

static void build_text(waste_buf *b, const waste_json *parts)
{
    size_t i;

    for (i = 0; i < waste_json_count(parts); i++) {
        const waste_json *part = waste_json_at(parts, i);
        int64_t times = int_of(waste_json_at(part, 1));
        size_t n;
        const char *unit = waste_json_text(waste_json_at(part, 0), &n);

        assert_non_null(unit);
        while (times-- > 0) waste_buf_add(b, unit, n);
    }
    assert_false(b->failed);
}

static void check_row(const waste_tokenizer *t, const waste_buf *text, int markup,
                      const waste_json *answer, size_t row)
{
    waste_ids ids = {0};
    waste_error err = {0};
    waste_buf back = {0};
    int64_t at;
    size_t i;

    if (waste_tokenizer_encode(t, text->data, text->len, markup, &ids, &err))
        fail_msg("row %u: %s", (unsigned)row, err.text);
    at = difference(answer, &ids);
    if (at >= 0)
        fail_msg("row %u, \"%.60s\", markup %d: wrong from id number %d on", (unsigned)row,
                 text->data, markup, (int)at);
    for (i = 0; i < ids.n; i++) {
        size_t n;
        const char *s = waste_tokenizer_bytes(t, ids.id[i], &n);
        waste_buf_add(&back, s, n);
    }
    assert_int_equal(back.len, text->len);
    if (back.len) assert_memory_equal(back.data, text->data, back.len);
    waste_buf_clear(&back);
    waste_mem_free(ids.id);
}

static void corpus_matches_tiktoken(void **state)
{
    waste_tokenizer *small = open_tokenizer(GOLDEN "/small");
    waste_tokenizer *demo = open_tokenizer("examples/demo/checkpoint");
    waste_json *rows = load(GOLDEN "/corpus.json");
    size_t n = waste_json_count(rows), i;

    (void)state;
    assert_in_range(n, 700, 100000);
    for (i = 0; i < n; i++) {
        const waste_json *row = waste_json_at(rows, i);
        waste_buf text = {0};

        build_text(&text, waste_json_get(row, "parts"));
        check_row(small, &text, 0, waste_json_get(row, "content"), i);
        check_row(small, &text, 1, waste_json_get(row, "markup"), i);
        check_row(demo, &text, 0, waste_json_get(row, "demo"), i);
        waste_buf_clear(&text);
    }
    waste_json_free(rows);
    waste_tokenizer_close(small);
    waste_tokenizer_close(demo);
}

static void add_base64(waste_buf *b, const unsigned char *s, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t v = (uint32_t)s[0] << 16 | (n > 1 ? (uint32_t)s[1] << 8 : 0);

    waste_buf_byte(b, digits[v >> 18]);
    waste_buf_byte(b, digits[v >> 12 & 63]);
    waste_buf_byte(b, n > 1 ? digits[v >> 6 & 63] : '=');
    waste_buf_byte(b, '=');
}

/* As pairs() in tests/oracle/vocab.mjs: all bytes, all pairs of bytes, the rank
 * of a pair a permutation. */
static void write_pairs(void)
{
    waste_error err = {0};
    waste_buf b = {0};
    unsigned i;

    for (i = 0; i < 256; i++) {
        unsigned char s[1] = {(unsigned char)i};
        add_base64(&b, s, 1);
        waste_buf_printf(&b, " %u\n", i);
    }
    for (i = 0; i < 65536; i++) {
        unsigned char s[2] = {(unsigned char)(i >> 8), (unsigned char)i};
        add_base64(&b, s, 2);
        waste_buf_printf(&b, " %u\n", 256 + ((i * 40503u + 12345u) & 65535u));
    }
    assert_false(b.failed);
    assert_int_equal(waste_path_make_dir(PAIRS, &err), WASTE_OK);
    assert_int_equal(waste_file_publish(PAIRS "/tokenizer.model", b.data, b.len, &err), WASTE_OK);
    waste_buf_clear(&b);
}

static void add_utf8(waste_buf *b, uint32_t c)
{
    if (c < 0x80) {
        waste_buf_byte(b, (char)c);
    } else if (c < 0x800) {
        waste_buf_byte(b, (char)(0xC0 | c >> 6));
    } else if (c < 0x10000) {
        waste_buf_byte(b, (char)(0xE0 | c >> 12));
        waste_buf_byte(b, (char)(0x80 | (c >> 6 & 63)));
    } else {
        waste_buf_byte(b, (char)(0xF0 | c >> 18));
        waste_buf_byte(b, (char)(0x80 | (c >> 12 & 63)));
        waste_buf_byte(b, (char)(0x80 | (c >> 6 & 63)));
    }
    if (c >= 0x80) waste_buf_byte(b, (char)(0x80 | (c & 63)));
}

/* The text that tokenizer.mjs makes of a block: '@' stands for the character. */
static void add_contexts(waste_buf *b, uint32_t first)
{
    static const char contexts[] = "a@b A@B@@c1@@2中@ @-@\t@'s@\n";
    uint32_t c;
    const char *p;

    for (c = first; c < first + 1024; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        for (p = contexts; *p; p++) {
            if (*p == '@')
                add_utf8(b, c);
            else
                waste_buf_byte(b, *p);
        }
    }
    assert_false(b->failed);
}

static void every_character_is_classed_as_by_tiktoken(void **state)
{
    waste_json *blocks = load(GOLDEN "/unicode.json");
    size_t n = waste_json_count(blocks), i;
    waste_tokenizer *t;

    (void)state;
    write_pairs();
    t = open_tokenizer(PAIRS);
    assert_in_range(n, 200, 2000);
    for (i = 0; i < n; i += emulated() ? 5 : 1) {
        const waste_json *block = waste_json_at(blocks, i);
        uint32_t first = (uint32_t)int_of(waste_json_get(block, "first"));
        waste_error err = {0};
        waste_ids ids = {0};
        waste_buf text = {0};

        add_contexts(&text, first);
        if (waste_tokenizer_encode(t, text.data, text.len, 0, &ids, &err)) fail_msg("%s", err.text);
        if (difference(block, &ids) >= 0)
            fail_msg("U+%04X..U+%04X: other ids than tiktoken's", first, first + 1023);
        waste_mem_free(ids.id);
        waste_buf_clear(&text);
    }
    waste_json_free(blocks);
    waste_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_matches_tiktoken),
        cmocka_unit_test(every_character_is_classed_as_by_tiktoken),
    };

    emulated_say("one block of characters in five");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
