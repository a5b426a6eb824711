/* text/stop.c: against a plain search, however the text is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/stop.h"

static waste_str str(const char *s)
{
    waste_str v = {s, strlen(s)};

    return v;
}

static waste_stop *open_one(const char *a, const char *b)
{
    waste_str s[2] = {str(a), str(b ? b : "")};
    waste_error e = {0};
    waste_stop *stop;

    assert_int_equal(waste_stop_open(&stop, s, b ? 2 : 1, &e), WASTE_OK);
    return stop;
}

static void push(waste_stop *s, const char *text, const char *released, int hit)
{
    waste_buf out = {0};
    waste_error e = {0};
    int was = -1;

    assert_int_equal(waste_stop_push(s, text, strlen(text), &out, &was, &e), WASTE_OK);
    assert_string_equal(out.len ? out.data : "", released);
    assert_int_equal(was, hit);
    waste_buf_clear(&out);
}

static void end(waste_stop *s, const char *released)
{
    waste_buf out = {0};
    waste_error e = {0};

    assert_int_equal(waste_stop_end(s, &out, &e), WASTE_OK);
    assert_string_equal(out.len ? out.data : "", released);
    waste_buf_clear(&out);
}

static void matches_across_tokens_and_cuts(void **state)
{
    waste_stop *s = open_one("END", NULL);
    (void)state;

    push(s, "one E", "one ", 0);
    push(s, "N", "", 0);
    push(s, "D more", "", 1);
    push(s, "never", "", 1);
    end(s, "");
    waste_stop_close(s);
}

static void releases_what_can_no_longer_match(void **state)
{
    waste_stop *s = open_one("aab", NULL);
    (void)state;

    push(s, "a", "", 0);
    push(s, "a", "", 0);
    push(s, "a", "a", 0); /* the last two may still begin it */
    push(s, "x", "aax", 0);
    push(s, "aa", "", 0);
    end(s, "aa");
    waste_stop_close(s);
}

static void the_string_complete_first_wins(void **state)
{
    waste_stop *s = open_one("abc", "b");
    (void)state;

    push(s, "xabc", "xa", 1);
    waste_stop_close(s);
    s = open_one("bc", "abc"); /* both end at one byte: the longer is cut */
    push(s, "xab", "x", 0);
    push(s, "c", "", 1);
    waste_stop_close(s);
}

static void without_strings_all_passes(void **state)
{
    waste_stop *s;
    waste_error e = {0};
    (void)state;

    assert_int_equal(waste_stop_open(&s, NULL, 0, &e), WASTE_OK);
    push(s, "", "", 0);
    push(s, "text", "text", 0);
    end(s, "");
    waste_stop_close(s);
}

static void held_text_is_whole_code_points(void **state)
{
    waste_stop *s = open_one("\xC3\xA9\xC3\xA8", NULL);
    (void)state;

    push(s, "\xC3\xA9", "", 0);
    push(s, "\xC3\xAA", "\xC3\xA9\xC3\xAA", 0); /* shares a first byte with the second letter */
    push(s, "\xC3\xA9\xC3\xA8!", "", 1);
    waste_stop_close(s);
}

static void bad_strings_are_named(void **state)
{
    static char text[WASTE_STOP_BYTES_MAX + 1];
    waste_str s[WASTE_STOP_MAX + 1];
    waste_error e;
    waste_stop *stop;
    size_t i;
    (void)state;

    for (i = 0; i <= WASTE_STOP_MAX; i++) s[i] = str("x");
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_stop_open(&stop, s, WASTE_STOP_MAX + 1, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "65 stop strings"));
    assert_null(stop);
    s[2] = str("");
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_stop_open(&stop, s, 3, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "stop[2] is empty"));
    s[1] = str("\x80");
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_stop_open(&stop, s, 3, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "stop[1] is not valid UTF-8"));
    memset(text, 'a', sizeof text);
    s[0].text = text;
    s[0].bytes = sizeof text;
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_stop_open(&stop, s, 3, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "stop[0] has 4097 bytes"));
    s[0].bytes--;
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_stop_open(&stop, s, 1, &e), WASTE_OK);
    waste_stop_close(stop);
}

/* ---- against a plain search --------------------------------------------- */

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 16;
}

static size_t letters(char *to, size_t n, uint32_t *seed)
{
    size_t i;

    for (i = 0; i < n; i++) to[i] = "ab"[next_random(seed) % 2];
    to[n] = 0;
    return n;
}

/* Bytes of text that remain; *hit whether a string was found. */
static size_t search(const char *text, size_t n, const waste_str *s, size_t n_s, int *hit)
{
    size_t end_at, i, longest = 0;

    for (end_at = 1; end_at <= n && !longest; end_at++) {
        for (i = 0; i < n_s; i++) {
            if (s[i].bytes <= end_at && s[i].bytes > longest &&
                memcmp(text + end_at - s[i].bytes, s[i].text, s[i].bytes) == 0)
                longest = s[i].bytes;
        }
    }
    *hit = longest > 0;
    return longest ? end_at - 1 - longest : n;
}

static void cutting_the_text_changes_nothing(void **state)
{
    uint32_t seed = 3, round;
    int found = 0;
    (void)state;

    for (round = 0; round < 3000; round++) {
        char text[64], strings[3][12];
        waste_str s[3];
        size_t n_s = 1 + next_random(&seed) % 3, n, i, want;
        waste_buf out = {0};
        waste_error e = {0};
        waste_stop *stop;
        int hit = 0, expect;

        for (i = 0; i < n_s; i++) {
            s[i].text = strings[i];
            s[i].bytes = letters(strings[i], 2 + next_random(&seed) % 8, &seed);
        }
        n = letters(text, next_random(&seed) % 60, &seed);
        want = search(text, n, s, n_s, &expect);
        found += expect;
        assert_int_equal(waste_stop_open(&stop, s, n_s, &e), WASTE_OK);
        for (i = 0; i < n && !hit;) {
            size_t k = 1 + next_random(&seed) % 5;
            if (k > n - i) k = n - i;
            assert_int_equal(waste_stop_push(stop, text + i, k, &out, &hit, &e), WASTE_OK);
            assert_true(out.len <= want); /* nothing is released and then taken back */
            i += k;
        }
        assert_int_equal(waste_stop_end(stop, &out, &e), WASTE_OK);
        assert_int_equal(hit, expect);
        assert_int_equal(out.len, want);
        if (want) assert_memory_equal(out.data, text, want);
        waste_stop_close(stop);
        waste_buf_clear(&out);
    }
    assert_in_range(found, 500, 2900);
}

/* The worst case of a naive search: every position almost matches. Linear time
 * takes well under a second even under a sanitizer. */
static void time_is_linear(void **state)
{
    static char pattern[WASTE_STOP_BYTES_MAX], text[1 << 16];
    waste_str s[WASTE_STOP_MAX];
    waste_buf out = {0};
    waste_error e = {0};
    waste_stop *stop;
    size_t i;
    int hit;
    (void)state;

    memset(pattern, 'a', sizeof pattern);
    memset(text, 'a', sizeof text);
    pattern[sizeof pattern - 1] = 'b';
    for (i = 0; i < WASTE_STOP_MAX; i++) {
        s[i].text = pattern;
        s[i].bytes = sizeof pattern;
    }
    assert_int_equal(waste_stop_open(&stop, s, WASTE_STOP_MAX, &e), WASTE_OK);
    for (i = 0; i < sizeof text; i += 512)
        assert_int_equal(waste_stop_push(stop, text + i, 512, &out, &hit, &e), WASTE_OK);
    assert_false(hit);
    assert_int_equal(out.len, sizeof text - (sizeof pattern - 1));
    assert_int_equal(waste_stop_push(stop, "b", 1, &out, &hit, &e), WASTE_OK);
    assert_true(hit);
    waste_stop_close(stop);
    waste_buf_clear(&out);
}

static void out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    waste_str s[2] = {str("abc"), str("bd")};
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;

    for (n = 1; st == WASTE_NOMEM; n++) {
        waste_buf out = {0};
        waste_error e = {0};
        waste_stop *stop;
        int hit;

        waste_mem_fail_at(n, 1);
        st = waste_stop_open(&stop, s, 2, &e);
        if (!st) st = waste_stop_push(stop, "xab", 3, &out, &hit, &e);
        if (!st) st = waste_stop_end(stop, &out, &e);
        waste_mem_fail_at(0, 0);
        assert_int_equal(e.status, st);
        waste_stop_close(stop);
        waste_buf_clear(&out);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_int_equal(st, WASTE_OK);
    assert_true(n > 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_across_tokens_and_cuts),
        cmocka_unit_test(releases_what_can_no_longer_match),
        cmocka_unit_test(the_string_complete_first_wins),
        cmocka_unit_test(without_strings_all_passes),
        cmocka_unit_test(held_text_is_whole_code_points),
        cmocka_unit_test(bad_strings_are_named),
        cmocka_unit_test(cutting_the_text_changes_nothing),
        cmocka_unit_test(time_is_linear),
        cmocka_unit_test(out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
