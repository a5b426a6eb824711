/* text/tokenizer, ranks, specials, bpe: files that are odd or broken, the two
 * modes, decoding, linear time. What tiktoken says is in test_tokenizer_golden. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/plat.h"
#include "emulated.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

#define DIR   TEST_BUILD "/tests/unit/tokenizer.tmp"
#define SMALL "tests/golden/tokenizer/small"
#define VOCAB 1000

static void put(const char *name, const char *data)
{
    char path[WASTE_PATH_MAX];
    waste_error err = {0};

    assert_int_equal(waste_path_make_dir(DIR, &err), WASTE_OK);
    assert_int_equal(waste_path_join(path, sizeof path, DIR, name, &err), WASTE_OK);
    if (!data)
        waste_path_remove(path);
    else if (waste_file_publish(path, data, strlen(data), &err))
        fail_msg("%s", err.text);
}

static void put_all(const char *ranks, const char *second, const char *specials)
{
    put("tokenizer.model", ranks);
    put("tiktoken.model", second);
    put("specials.json", specials);
}

static waste_tokenizer *open_dir(const char *dir, int64_t n_vocab)
{
    waste_error err = {0};
    waste_tokenizer *t;

    if (waste_tokenizer_open(&t, dir, n_vocab, &err)) fail_msg("%s", err.text);
    assert_non_null(t);
    return t;
}

static waste_ids encode(const waste_tokenizer *t, const char *s, size_t n, int markup)
{
    waste_ids ids = {0};
    waste_error err = {0};

    if (waste_tokenizer_encode(t, s, n, markup, &ids, &err)) fail_msg("%s", err.text);
    return ids;
}

/* The ids of s as "1 2 3". */
static void expect_ids(const waste_tokenizer *t, const char *s, int markup, const char *want)
{
    waste_ids ids = encode(t, s, strlen(s), markup);
    waste_buf b = {0};
    size_t i;

    waste_buf_text(&b, "");
    for (i = 0; i < ids.n; i++) waste_buf_printf(&b, i ? " %d" : "%d", ids.id[i]);
    assert_string_equal(b.data ? b.data : "", want);
    waste_buf_clear(&b);
    waste_mem_free(ids.id);
}

static void expect_text(const waste_tokenizer *t, int32_t id, const char *want)
{
    size_t n = 99;
    const char *s = waste_tokenizer_bytes(t, id, &n);

    if (!want) {
        assert_null(s);
        assert_int_equal(n, 0);
        return;
    }
    assert_non_null(s);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(s, want, n);
}

static void refuses(const char *ranks, const char *specials, const char *names, const char *why)
{
    uint64_t before = waste_mem_used();
    waste_error err = {0};
    waste_tokenizer *t;

    put_all(ranks, NULL, specials);
    assert_int_equal(waste_tokenizer_open(&t, DIR, VOCAB, &err), WASTE_FORMAT);
    assert_null(t);
    if (!strstr(err.text, names)) fail_msg("\"%s\" does not name %s", err.text, names);
    if (!strstr(err.text, why)) fail_msg("\"%s\" does not say %s", err.text, why);
    assert_int_equal(waste_mem_used(), before);
}

static void no_rank_file_is_no_tokenizer(void **state)
{
    waste_error err = {0};
    waste_tokenizer *t;

    (void)state;
    put_all(NULL, NULL, "[]");
    assert_int_equal(waste_tokenizer_open(&t, DIR, VOCAB, &err), WASTE_OK);
    assert_null(t);
    waste_tokenizer_close(NULL);
}

static void tokenizer_model_comes_before_tiktoken_model(void **state)
{
    waste_tokenizer *t;

    (void)state;
    put_all(NULL, "YQ== 5\n", NULL);
    t = open_dir(DIR, VOCAB);
    expect_text(t, 5, "a");
    assert_int_equal(waste_tokenizer_ranks(t), 6);
    assert_int_equal(waste_tokenizer_specials(t), 0);
    waste_tokenizer_close(t);
    put("tokenizer.model", "YQ== 7\n");
    t = open_dir(DIR, VOCAB);
    expect_text(t, 7, "a");
    expect_text(t, 5, NULL);
    waste_tokenizer_close(t);
}

/* The examples of docs/format.md 8.4. */
static void merges_as_the_spec_shows(void **state)
{
    static const char *const tokens[] = {"he",   "ll", "llo",   " w", "or",
                                         " wor", "ld", "hello", "lo"};
    static const char *const base64[] = {
        "aGU=", "bGw=", "bGxv", "IHc=", "b3I=", "IHdvcg==", "bGQ=", "aGVsbG8=", "bG8="};
    waste_buf b = {0};
    waste_tokenizer *t;
    unsigned i;

    (void)state;
    for (i = 0; i < 256; i++) {
        static const char d[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        waste_buf_printf(&b, "%c%c== %u\n", d[i >> 2], d[(i & 3) << 4], i);
    }
    for (i = 0; i < 9; i++) waste_buf_printf(&b, "%s %u\n", base64[i], 256 + i);
    put_all(b.data, NULL, NULL);
    waste_buf_clear(&b);
    t = open_dir(DIR, VOCAB);
    for (i = 0; i < 9; i++) expect_text(t, (int32_t)(256 + i), tokens[i]);
    expect_ids(t, "hello", 0, "263");
    expect_ids(t, " world", 0, "261 262");
    expect_ids(t, "hellos", 0, "263 115");
    expect_ids(t, "lloo", 0, "258 111");
    expect_ids(t, "好", 0, "229 165 189");
    expect_ids(t, "", 0, "");
    expect_ids(t, "", 1, "");
    waste_tokenizer_close(t);
}

/* "aaa" has two pairs of one rank: the left one is merged. A token that no
 * merge leads to is found only as a whole piece. */
static void leftmost_of_equals_and_whole_pieces(void **state)
{
    waste_tokenizer *t;

    (void)state;
    put_all("YQ== 0\nYg== 1\nYWE= 2\nYmFiYg== 3\n", NULL, NULL);
    t = open_dir(DIR, VOCAB);
    expect_ids(t, "aaa", 0, "2 0");
    expect_ids(t, "aaaaa", 0, "2 2 0");
    expect_ids(t, "babb", 0, "3");
    expect_ids(t, "babba", 0, "1 0 1 1 0");
    waste_tokenizer_close(t);
}

static void odd_rank_files_are_read(void **state)
{
    waste_tokenizer *t;

    (void)state;
    /* CR LF, empty lines, lines without a space, no newline at the end, no
     * padding; id 1 twice: the first counts; "c" twice: encoded as the lower. */
    put_all("YQ== 0\r\n\r\n\nheader\nYg== 1\nZA== 1\nYw 900\nYw== 2\nYWI= 999", NULL, NULL);
    t = open_dir(DIR, VOCAB);
    assert_int_equal(waste_tokenizer_ranks(t), 1000);
    expect_ids(t, "abcab", 0, "999 2 999");
    expect_text(t, 1, "b");
    expect_text(t, 900, "c");
    expect_text(t, 2, "c");
    expect_text(t, 3, NULL);
    expect_text(t, -1, NULL);
    expect_text(t, 1000, NULL);
    expect_text(t, INT32_MAX, NULL);
    expect_text(t, INT32_MIN, NULL);
    waste_tokenizer_close(t);
}

static void broken_rank_lines_are_named(void **state)
{
    (void)state;
    refuses("", NULL, "tokenizer.model", "no tokens");
    refuses("\n\nnothing\n", NULL, "tokenizer.model", "no tokens");
    refuses("YQ== 0\n!!!! 5\n", NULL, "tokenizer.model, line 2", "base64");
    refuses("YQ== 0\n\nY 5\n", NULL, "line 3", "base64");
    refuses("Y=Q= 5\n", NULL, "line 1", "base64");
    refuses("YQ==== 5\n", NULL, "line 1", "base64");
    refuses("=== 6\n", NULL, "line 1", "base64");
    refuses("YQ== 0\n 1\n", NULL, "line 2", "empty");
    refuses("== 1\n", NULL, "line 1", "empty");
    refuses("YQ== -1\n", NULL, "line 1", "from 0 to 999");
    refuses("YQ== 1000\n", NULL, "line 1", "from 0 to 999");
    refuses("YQ== 1000000000000000000000000000000\n", NULL, "line 1", "from 0 to 999");
    refuses("YQ== \n", NULL, "line 1", "from 0 to 999");
    refuses("YQ==  1\n", NULL, "line 1", "from 0 to 999");
    refuses("YQ== 1 2\n", NULL, "line 1", "from 0 to 999");
}

static void ids_are_bounded_even_for_a_huge_vocabulary(void **state)
{
    waste_error err = {0};
    waste_tokenizer *t;

    (void)state;
    put_all("YQ== 16777216\n", NULL, NULL);
    assert_int_equal(waste_tokenizer_open(&t, DIR, INT32_MAX, &err), WASTE_FORMAT);
    assert_non_null(strstr(err.text, "16777215"));
    memset(&err, 0, sizeof err);
    assert_int_equal(waste_tokenizer_open(&t, DIR, 0, &err), WASTE_ARG);
}

static void broken_specials_are_named(void **state)
{
    waste_buf b = {0};
    int i;

    (void)state;
    refuses("YQ== 0\n", "\"id\" \"text\" : {", "specials.json", "JSON");
    refuses("YQ== 0\n", "{}", "specials.json", "an array");
    refuses("YQ== 0\n", "[{\"id\":1,\"text\":\"x\"},5]", "specials.json: element 1", "an object");
    refuses("YQ== 0\n", "[{\"id\":-5,\"text\":\"x\"}]", "id of element 0", "0 to 999");
    refuses("YQ== 0\n", "[{\"id\":1000,\"text\":\"x\"}]", "id of element 0", "0 to 999");
    refuses("YQ== 0\n", "[{\"id\":\"1\",\"text\":\"x\"}]", "id of element 0", "0 to 999");
    refuses("YQ== 0\n", "[{\"id\":1.5,\"text\":\"x\"}]", "id of element 0", "0 to 999");
    refuses("YQ== 0\n", "[{\"text\":\"x\"}]", "id of element 0", "0 to 999");
    refuses("YQ== 0\n", "[{\"id\":1}]", "text of element 0", "string");
    refuses("YQ== 0\n", "[{\"id\":1,\"text\":\"x\"},{\"id\":2,\"text\":\"x\"}]", "specials.json",
            "\"x\" stands for id");
    refuses("YQ== 0\n", "[{\"id\":1,\"text\":\"x\"},{\"id\":1,\"text\":\"y\"}]", "specials.json",
            "id 1 stands for");
    waste_buf_text(&b, "[{\"id\":1,\"text\":\"");
    for (i = 0; i < 1025; i++) waste_buf_byte(&b, 'x');
    waste_buf_text(&b, "\"}]");
    refuses("YQ== 0\n", b.data, "text of element 0", "1025 bytes");
    waste_buf_clear(&b);
    for (i = 0; i < 100000; i++) waste_buf_byte(&b, '[');
    refuses("YQ== 0\n", b.data, "specials.json", "deeper");
    waste_buf_clear(&b);
}

static void specials_are_found_by_id_text_and_order(void **state)
{
    waste_tokenizer *t;
    waste_str s;

    (void)state;
    put_all("YQ== 0\nYg== 1\n", NULL,
            "[{\"id\":30,\"text\":\"<|\\u00e9\\\"\\n|>\"},{\"id\":7,\"text\":\"\"},"
            "{\"id\":0,\"text\":\"[A]\",\"more\":1},{\"id\":20.0,\"text\":\"a\"}]");
    t = open_dir(DIR, VOCAB);
    assert_int_equal(waste_tokenizer_specials(t), 3);
    assert_int_equal(waste_tokenizer_special_at(t, 0, &s), 0);
    assert_int_equal(waste_tokenizer_special_at(t, 1, &s), 20);
    assert_int_equal(waste_tokenizer_special_at(t, 2, &s), 30);
    assert_int_equal(s.bytes, 8);
    assert_memory_equal(s.text, "<|\xC3\xA9\"\n|>", 8);
    assert_int_equal(waste_tokenizer_special(t, s.text, s.bytes), 30);
    assert_int_equal(waste_tokenizer_special(t, s.text, s.bytes - 1), -1);
    assert_int_equal(waste_tokenizer_special(t, "[A]x", 4), -1);
    assert_int_equal(waste_tokenizer_special(t, "", 0), -1);
    assert_int_equal(waste_tokenizer_special(t, "[A]", 3), 0);
    assert_true(waste_tokenizer_is_special(t, 30));
    assert_false(waste_tokenizer_is_special(t, 1));
    assert_false(waste_tokenizer_is_special(t, 7));
    assert_false(waste_tokenizer_is_special(t, -1));
    expect_text(t, 0, "[A]"); /* not "a", which the rank file says */
    expect_text(t, 1, "b");
    expect_text(t, 7, NULL);
    expect_ids(t, "ab", 1, "20 1");
    expect_ids(t, "ab", 0, "0 1");
    waste_tokenizer_close(t);
}

static void markup_takes_the_earliest_then_the_longest(void **state)
{
    waste_tokenizer *t;

    (void)state;
    put_all(
        "YQ== 0\nYg== 1\nPA== 2\nYWE= 3\n", NULL,
        "[{\"id\":10,\"text\":\"<a\"},{\"id\":11,\"text\":\"<aab\"},{\"id\":12,\"text\":\"ab\"},"
        "{\"id\":13,\"text\":\"<<\"}]");
    t = open_dir(DIR, VOCAB);
    expect_ids(t, "<aab", 1, "11");
    expect_ids(t, "<aaa", 1, "10 3");
    expect_ids(t, "<aa", 1, "10 0");
    expect_ids(t, "aab", 1, "0 12"); /* the piece "aab" ends where "ab" starts */
    expect_ids(t, "<<<a", 1, "13 10");
    expect_ids(t, "<", 1, "2");
    expect_ids(t, "<aab", 0, "2 3 1");
    waste_tokenizer_close(t);
}

static void content_holds_no_control_token(void **state)
{
    waste_tokenizer *t = open_dir(SMALL, 1 << 20);
    waste_buf b = {0};
    waste_ids ids;
    waste_str s;
    size_t i, n = waste_tokenizer_specials(t), found = 0;

    (void)state;
    assert_true(n > 10);
    for (i = 0; i < n; i++) {
        waste_tokenizer_special_at(t, i, &s);
        waste_buf_add(&b, s.text, s.bytes);
        waste_buf_add(&b, s.text, s.bytes);
        waste_buf_text(&b, " hi");
        waste_buf_add(&b, s.text, s.bytes);
        waste_buf_text(&b, "\n");
    }
    ids = encode(t, b.data, b.len, 0);
    for (i = 0; i < ids.n; i++) assert_false(waste_tokenizer_is_special(t, ids.id[i]));
    waste_mem_free(ids.id);
    ids = encode(t, b.data, b.len, 1);
    for (i = 0; i < ids.n; i++) found += (size_t)waste_tokenizer_is_special(t, ids.id[i]);
    assert_true(found >= 3 * n - 3); /* "<|a|>" then "<|a|>b" make others */
    waste_mem_free(ids.id);
    waste_buf_clear(&b);
    waste_tokenizer_close(t);
}

static void missing_byte_is_named_and_nothing_appended(void **state)
{
    waste_tokenizer *t;
    int32_t *first;
    waste_ids ids;
    waste_error err = {0};

    (void)state;
    put_all("aGVsbG8= 0\nYQ== 1\nYmM= 2\n", NULL, NULL);
    t = open_dir(DIR, VOCAB);
    ids = encode(t, "hello", 5, 0);
    first = ids.id;
    assert_int_equal(waste_tokenizer_encode(t, "aaa\xC3\xA9", 5, 0, &ids, &err), WASTE_FORMAT);
    assert_non_null(strstr(err.text, "0xC3"));
    assert_ptr_equal(ids.id, first);
    assert_int_equal(ids.n, 1);
    expect_ids(t, "abca", 0, "1 2 1"); /* neither b nor c alone, but together */
    waste_mem_free(ids.id);
    waste_tokenizer_close(t);
}

static void ids_are_appended(void **state)
{
    waste_tokenizer *t = open_dir(SMALL, 1 << 20);
    waste_ids ids = encode(t, "a", 1, 0);
    waste_error err = {0};

    (void)state;
    assert_int_equal(waste_tokenizer_encode(t, "b", 1, 0, &ids, &err), WASTE_OK);
    assert_int_equal(waste_tokenizer_encode(t, "", 0, 0, &ids, &err), WASTE_OK);
    assert_int_equal(waste_tokenizer_encode(t, NULL, 0, 1, &ids, &err), WASTE_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 'a');
    assert_int_equal(ids.id[1], 'b');
    waste_mem_free(ids.id);
    waste_tokenizer_close(t);
}

static uint32_t random_next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void check_bytes_survive(const waste_tokenizer *t, const char *s, size_t n, int markup)
{
    waste_ids ids = encode(t, s, n, markup);
    waste_buf b = {0};
    size_t i;

    assert_true(ids.n <= n);
    for (i = 0; i < ids.n; i++) {
        size_t k;
        const char *p = waste_tokenizer_bytes(t, ids.id[i], &k);
        assert_non_null(p);
        waste_buf_add(&b, p, k);
    }
    assert_int_equal(b.len, n);
    if (n) assert_memory_equal(b.data, s, n);
    waste_buf_clear(&b);
    waste_mem_free(ids.id);
}

/* Any bytes at all; bytes of a small range, which make long runs and broken
 * sequences; pieces of control tokens between them. */
static void decoding_gives_back_any_bytes(void **state)
{
    static const char alphabet[] = "aA1 \n\r\t'<|>sep\xE4\xBD\xA0\xCC\x81\xF0\x9F\x98\x80\xFF\xC0";
    waste_tokenizer *t = open_dir(SMALL, 1 << 20);
    uint32_t seed = 7;
    int round;

    (void)state;
    for (round = 0; round < 2000; round++) {
        char text[300];
        size_t n = random_next(&seed) % sizeof text, i;
        for (i = 0; i < n; i++) {
            uint32_t r = random_next(&seed);
            /* sizeof: its NUL is a byte like others */
            text[i] = round % 2 ? (char)r : alphabet[r % sizeof alphabet];
        }
        check_bytes_survive(t, text, n, 0);
        check_bytes_survive(t, text, n, 1);
    }
    waste_tokenizer_close(t);
}

static void failed_allocations_leak_nothing(void **state)
{
    static const char text[] = "Nobody <|open|>expects naïve\n\n  allocations<|sep|>";
    uint64_t before;
    uint64_t n;
    waste_tokenizer *t = open_dir(SMALL, 1 << 20); /* what is made once is made */

    (void)state;
    waste_tokenizer_close(t);
    before = waste_mem_used();
    for (n = 1;; n++) {
        waste_error err = {0};
        waste_ids ids = {0};
        waste_status st, encoded = WASTE_NOMEM;

        waste_mem_fail_at(n, 1);
        st = waste_tokenizer_open(&t, SMALL, 1 << 20, &err);
        if (!st) encoded = waste_tokenizer_encode(t, text, sizeof text, 1, &ids, &err);
        waste_mem_fail_at(0, 0);
        if (st) assert_null(t);
        if (st || encoded) assert_true(err.text[0] != 0);
        if (encoded) assert_null(ids.id);
        waste_tokenizer_close(t);
        waste_mem_free(ids.id);
        assert_int_equal(waste_mem_used(), before);
        if (!st && !encoded) break;
        assert_in_range(n, 1, 1000);
    }
    assert_true(n > 10);
}

/* Far above what it takes under a sanitizer on a busy machine (seconds), far
 * below what anything quadratic would (hours). */
#define PATIENCE_NS (120 * UINT64_C(1000000000))

static void ten_megabytes_take_seconds(void **state)
{
    /* text, no space, one character; then, shorter, what else could be slow */
    static const char *const units[] = {"The quick brown fox isn't 12345 years old; 今天 perché?\n",
                                        "abcdefgzyxw",
                                        "=",
                                        "a",
                                        "A",
                                        " ",
                                        "\n",
                                        "<",
                                        "<|",
                                        "中",
                                        "<|open|>",
                                        "\xFF",
                                        "\xCC\x81",
                                        "Aª"};
    enum { most = 10 * 1000 * 1000, less = 500 * 1000 };
    waste_tokenizer *t = open_dir(SMALL, 1 << 20);
    char *text = waste_mem_alloc(most);
    uint64_t start = waste_clock_ns();
    size_t i, k;

    (void)state;
    emulated_skip("a limit of time");
    assert_non_null(text);
    for (i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i]), bytes = i < 3 ? most : less;
        for (k = 0; k < bytes; k++) text[k] = units[i][k % n];
        check_bytes_survive(t, text, bytes, i % 2);
        if (waste_clock_ns() - start > PATIENCE_NS) fail_msg("unit \"%s\" is too slow", units[i]);
    }
    waste_mem_free(text);
    waste_tokenizer_close(t);
}

/* No piece of a real text is as long as this, since texts are cut before: the
 * merge by itself is held to it. */
static void one_huge_piece_is_merged_in_seconds(void **state)
{
    enum { bytes = 2000000 };
    waste_ranks *r;
    waste_error err = {0};
    waste_bpe b = {0};
    char *piece = waste_mem_alloc(bytes);
    uint64_t start = waste_clock_ns();

    (void)state;
    emulated_skip("a limit of time");
    assert_non_null(piece);
    memset(piece, 'a', bytes);
    put_all("YQ== 0\nYWE= 1\nYWFhYQ== 2\nYWFhYWFhYWE= 3\nYWFh 4\n", NULL, NULL);
    assert_int_equal(waste_ranks_open(&r, DIR "/tokenizer.model", VOCAB, &err), WASTE_OK);
    assert_int_equal(waste_bpe_piece(&b, r, piece, bytes, &err), WASTE_OK);
    assert_int_equal(b.n, bytes / 8);
    assert_int_equal(b.ids[0], 3);
    assert_int_equal(b.ids[b.n - 1], 3);
    if (waste_clock_ns() - start > PATIENCE_NS) fail_msg("too slow");
    waste_bpe_clear(&b);
    waste_ranks_close(r);
    waste_mem_free(piece);
}

static const char shared_text[] = "Many hands, one <|open|>tokenizer<|sep|>: 1234 次。";

/* NULL when every answer was the same; cmocka's checks are the main thread's. */
static void *encode_often(void *tokenizer)
{
    waste_ids first = {0};
    int i;
    void *wrong = NULL;

    for (i = 0; i < 200; i++) {
        waste_ids ids = {0};
        waste_error err = {0};
        if (waste_tokenizer_encode(tokenizer, shared_text, sizeof shared_text, 1, &ids, &err)) {
            wrong = tokenizer;
        } else if (i == 0) {
            first = ids;
            continue;
        } else if (ids.n != first.n || memcmp(ids.id, first.id, ids.n * sizeof *ids.id)) {
            wrong = tokenizer;
        }
        waste_mem_free(ids.id);
    }
    waste_mem_free(first.id);
    return wrong;
}

static void threads_share_a_tokenizer(void **state)
{
    waste_tokenizer *t = open_dir(SMALL, 1 << 20);
    pthread_t threads[4];
    int i;

    (void)state;
    for (i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    waste_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rank_file_is_no_tokenizer),
        cmocka_unit_test(tokenizer_model_comes_before_tiktoken_model),
        cmocka_unit_test(merges_as_the_spec_shows),
        cmocka_unit_test(leftmost_of_equals_and_whole_pieces),
        cmocka_unit_test(odd_rank_files_are_read),
        cmocka_unit_test(broken_rank_lines_are_named),
        cmocka_unit_test(ids_are_bounded_even_for_a_huge_vocabulary),
        cmocka_unit_test(broken_specials_are_named),
        cmocka_unit_test(specials_are_found_by_id_text_and_order),
        cmocka_unit_test(markup_takes_the_earliest_then_the_longest),
        cmocka_unit_test(content_holds_no_control_token),
        cmocka_unit_test(missing_byte_is_named_and_nothing_appended),
        cmocka_unit_test(ids_are_appended),
        cmocka_unit_test(decoding_gives_back_any_bytes),
        cmocka_unit_test(failed_allocations_leak_nothing),
        cmocka_unit_test(ten_megabytes_take_seconds),
        cmocka_unit_test(one_huge_piece_is_merged_in_seconds),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
