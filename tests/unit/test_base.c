/* base/: memory counting, buffers, number parsing, UTF-8, JSON reading, errors. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "emulated.h"

static void counts_what_is_held(void **state)
{
    uint64_t before = waste_mem_used();
    void *a = waste_mem_alloc(1000), *b = waste_mem_aligned(4096, 50);
    (void)state;

    assert_int_equal(waste_mem_used() - before, 1050);
    assert_int_equal((uintptr_t)b % 4096, 0);
    a = waste_mem_resize(a, 2000);
    assert_int_equal(waste_mem_used() - before, 2050);
    waste_mem_free(a);
    waste_mem_free(b);
    assert_int_equal(waste_mem_used(), before);
}

static void refuses_overflow_and_fails_on_demand(void **state)
{
    (void)state;
    assert_null(waste_mem_array(SIZE_MAX / 4, 8));
    assert_null(waste_mem_alloc(0));
    waste_mem_fail_at(2, 0);
    void *p = waste_mem_alloc(1);
    assert_non_null(p);
    assert_null(waste_mem_alloc(1));
    waste_mem_free(p);
    p = waste_mem_alloc(1);
    assert_non_null(p);
    waste_mem_free(p);
}

/* What stays resident can be asked for, and is malloc's or our own doing. */
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RESIDENT 1
#else
#define RESIDENT 0
#endif

#if RESIDENT

enum { THREADS = 4, BLOCKS = 100, BLOCK = 150000 }; /* latents of a layer, say */

static long resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

typedef struct heap_user {
    pthread_t thread;
    pthread_barrier_t *all;
    long most; /* resident while it holds its blocks */
} heap_user;

/* Small ones stay in between, as long as all have freed their large ones. */
static void *use_heap(void *arg)
{
    heap_user *u = arg;
    void *large[BLOCKS], *small[BLOCKS];
    int i;

    waste_mem_free(waste_mem_pages(20 * BLOCK));
    for (i = 0; i < BLOCKS; i++) {
        large[i] = waste_mem_pages(BLOCK);
        small[i] = waste_mem_alloc(100);
        assert_true(large[i] && small[i]);
        memset(large[i], 1, BLOCK);
    }
    u->most = resident();
    for (i = 0; i < BLOCKS; i++) waste_mem_free(large[i]);
    pthread_barrier_wait(u->all); /* measured in between */
    pthread_barrier_wait(u->all);
    for (i = 0; i < BLOCKS; i++) waste_mem_free(small[i]);
    return NULL;
}

#endif

/* What is not counted any more is not resident either, whoever had it. */
static void large_blocks_go_back_to_the_system(void **state)
{
    (void)state;
#if !RESIDENT
    print_message("SKIP: what a sanitizer or another system keeps resident is its own affair\n");
    skip();
#else
    const uint64_t used = waste_mem_used();
    const long before = resident();
    pthread_barrier_t all;
    heap_user u[THREADS];
    long after;
    int i;

    emulated_skip("what the emulator keeps is resident as well");
    assert_int_equal(pthread_barrier_init(&all, NULL, THREADS + 1), 0);
    for (i = 0; i < THREADS; i++) {
        u[i].all = &all;
        assert_int_equal(pthread_create(&u[i].thread, NULL, use_heap, &u[i]), 0);
    }
    pthread_barrier_wait(&all);
    after = resident();
    pthread_barrier_wait(&all);
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(u[i].thread, NULL), 0);
        assert_true(u[i].most - before > BLOCKS * BLOCK / 2);
    }
    pthread_barrier_destroy(&all);
    if (after - before > BLOCKS * BLOCK / 4)
        fail_msg("%ld bytes of %d are still resident", after - before, THREADS * BLOCKS * BLOCK);
    assert_int_equal(waste_mem_used(), used);
#endif
}

static void parses_whole_numbers_only(void **state)
{
    uint64_t v;
    (void)state;
    assert_int_equal(waste_parse_u64("18446744073709551615", 20, UINT64_MAX, &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(waste_parse_u64("18446744073709551616", 20, UINT64_MAX, &v), -1);
    assert_int_equal(waste_parse_u64("10", 2, 9, &v), -1);
    assert_int_equal(waste_parse_u64("9", 1, 9, &v), 0);
    assert_int_equal(waste_parse_u64("", 0, 9, &v), -1);
    assert_int_equal(waste_parse_u64("-1", 2, 9, &v), -1);
    assert_int_equal(waste_parse_u64("1x", 2, 99, &v), -1);
}

static void knows_utf8(void **state)
{
    (void)state;
    assert_int_equal(waste_utf8_span("\xE4\xBD\xA0", 3), 3);
    assert_int_equal(waste_utf8_decode("\xE4\xBD\xA0", 3), 0x4F60);
    assert_int_equal(waste_utf8_span("\xE4\xBD", 2), 0);
    assert_int_equal(waste_utf8_span("\xC0\x80", 2), 0);         /* overlong */
    assert_int_equal(waste_utf8_span("\xED\xA0\x80", 3), 0);     /* surrogate */
    assert_int_equal(waste_utf8_span("\xF4\x90\x80\x80", 4), 0); /* above 10FFFF */
    assert_int_equal(waste_utf8_span("", 1), 1);                 /* NUL */
    assert_int_equal(waste_utf8_tail("ab\xF0\x9F\x98", 5), 3);
    assert_int_equal(waste_utf8_tail("ab", 2), 0);
    assert_int_equal(waste_utf8_tail("\x80", 1), 0);
}

/* Every way to cut a text into pieces gives the same output. */
static void stream_releases_complete_code_points(void **state)
{
    static const char in[] = "a\xF0\x9F\x98\x80\xE4\xBD"
                             "b\xFF\xC3\xA9\xF0\x9F";
    static const char want[] = "a\xF0\x9F\x98\x80\xEF\xBF\xBD"
                               "b\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD";
    size_t n = sizeof in - 1, step;
    (void)state;
    for (step = 1; step <= n; step++) {
        waste_utf8 u = {{0}, 0};
        char out[200];
        size_t i, w = 0;
        for (i = 0; i < n; i += step) {
            w += waste_utf8_push(&u, in + i, i + step > n ? n - i : step, out + w);
            assert_true(waste_utf8_valid(out, w));
        }
        w += waste_utf8_end(&u, out + w);
        assert_int_equal(w, sizeof want - 1);
        assert_memory_equal(out, want, w);
    }
}

static waste_status parse(const char *s, int unique, waste_json **j, waste_error *e)
{
    memset(e, 0, sizeof *e);
    return waste_json_parse(j, s, strlen(s), unique, "options", WASTE_ARG, e);
}

static void json_refuses_with_a_reason(void **state)
{
    static const char *const bad[] = {"",    "{",           "[1,]",    "{\"a\":1}x",
                                      "nul", "{\"a\":NaN}", "\"\xFF\""};
    char deep[300];
    waste_json *j;
    waste_error e;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(bad[i], 0, &j, &e), WASTE_ARG);
        assert_null(j);
        assert_non_null(strstr(e.text, "options"));
    }
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    deep[130] = 0;
    assert_int_equal(parse(deep, 0, &j, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "deeper"));
    assert_int_equal(parse("{\"a\":1,\"a\":2}", 1, &j, &e), WASTE_ARG);
    assert_non_null(strstr(e.text, "a"));
}

static void json_reads_are_typed_and_bounded(void **state)
{
    waste_json *j;
    waste_error e;
    int64_t v;
    double d;
    (void)state;
    assert_int_equal(parse("{\"n\":5,\"r\":2.0,\"f\":2.5,\"s\":\"x\",\"z\":null}", 1, &j, &e),
                     WASTE_OK);
    assert_int_equal(waste_json_int_in(j, "n", 1, 0, 5, &v, "t", &e), WASTE_OK);
    assert_int_equal(v, 5);
    assert_int_equal(waste_json_int_in(j, "r", 1, 0, 5, &v, "t", &e), WASTE_OK);
    assert_int_equal(v, 2);
    assert_int_equal(waste_json_int_in(j, "z", 7, 0, 9, &v, "t", &e), WASTE_OK);
    assert_int_equal(v, 7);
    assert_int_equal(waste_json_int_in(j, "f", 1, 0, 5, &v, "t", &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "f is 2.5"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_json_number_in(j, "s", 1, 0, 5, &d, "t", &e), WASTE_FORMAT);
    assert_non_null(strstr(e.text, "s is a string"));
    waste_json_free(j);
}

static void json_out_of_memory_is_not_a_syntax_error(void **state)
{
    static const char text[] = "{\"a\":[1,2,{\"b\":\"c\"}],\"d\":{\"e\":1.5}}";
    uint64_t before = waste_mem_used();
    waste_status st = WASTE_NOMEM;
    int n;
    (void)state;
    for (n = 1; st; n++) {
        waste_json *j;
        waste_error e;
        waste_mem_fail_at((uint64_t)n, 1);
        st = parse(text, 1, &j, &e);
        waste_mem_fail_at(0, 0);
        assert_true(st == WASTE_OK || st == WASTE_NOMEM);
        waste_json_free(j);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 5);
}

static void first_error_wins_and_is_printable(void **state)
{
    waste_error e = {0};
    (void)state;
    assert_int_equal(waste_fail(&e, WASTE_IO, "bad %s", "\x01\xFFz"), WASTE_IO);
    assert_string_equal(e.text, "bad ??z");
    assert_int_equal(waste_fail(&e, WASTE_ARG, "second"), WASTE_ARG);
    assert_int_equal(e.status, WASTE_IO);
    assert_string_equal(e.text, "bad ??z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_is_held),
        cmocka_unit_test(refuses_overflow_and_fails_on_demand),
        cmocka_unit_test(large_blocks_go_back_to_the_system),
        cmocka_unit_test(parses_whole_numbers_only),
        cmocka_unit_test(knows_utf8),
        cmocka_unit_test(stream_releases_complete_code_points),
        cmocka_unit_test(json_refuses_with_a_reason),
        cmocka_unit_test(json_reads_are_typed_and_bounded),
        cmocka_unit_test(json_out_of_memory_is_not_a_syntax_error),
        cmocka_unit_test(first_error_wins_and_is_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
