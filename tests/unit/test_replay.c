/* store/cache on real routing: the cache itself, its reader and its policy run
 * through recorded traces (tests/golden/traces), and have to reach the hit rates
 * that docs/measured.md states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "emulated.h"
#include "fixture_files.h"
#include "store/cache.h"

enum { FIRST = 1 }; /* layers that have no experts */

typedef struct trace {
    uint32_t tokens, layers, experts, chosen;
    unsigned char *id; /* [tokens][layers][chosen] */
} trace;

static fixture box;
static trace now;
static waste_manifest *manifest;
static waste_banks *banks;

static void load(trace *t, const char *name)
{
    waste_error e = {0};
    char path[128], *data;
    size_t bytes;

    snprintf(path, sizeof path, "tests/golden/traces/%s", name);
    if (waste_file_load(path, 1 << 20, &data, &bytes, &e)) fail_msg("%s", e.text);
    memcpy(t, data, 16);
    assert_int_equal(bytes, 16 + (size_t)t->tokens * t->layers * t->chosen);
    t->id = waste_mem_alloc(bytes - 16);
    memcpy(t->id, data + 16, bytes - 16);
    waste_mem_free(data);
}

/* A container whose records are as many as the trace's model has, 4 KiB each. */
static void write_container(const trace *t)
{
    const char *from = strstr(fixture_manifest, "\"layers\""),
               *to = strstr(fixture_manifest, "\"trunk\"");
    waste_buf b = {0};
    uint32_t i;

    fixture_make(&box);
    waste_buf_add(&b, fixture_manifest, (size_t)(from - fixture_manifest));
    waste_buf_text(&b, "\"layers\": {");
    for (i = FIRST; i < FIRST + t->layers; i++) {
        char name[32];

        snprintf(name, sizeof name, "layer%u.bin", i);
        fixture_bank_of(&box, name, (int)i, 0, (int)t->experts);
        waste_buf_printf(&b,
                         "%s\"%u\": {\"file\": \"%s\", \"experts\": %u, \"bytes\": %u, "
                         "\"codebook_base\": 0}",
                         i == FIRST ? "" : ", ", i, name, t->experts, t->experts * 4096);
    }
    waste_buf_text(&b, "},\n");
    waste_buf_text(&b, to);
    fixture_put(&box, "manifest.json", b.data, b.len);
    waste_buf_clear(&b);
}

static void open_all(const char *name)
{
    waste_bank_shape shape = {0, FIRST, 0, FIXTURE_WIDTH, FIXTURE_HIDDEN};
    waste_error e = {0};

    load(&now, name);
    write_container(&now);
    shape.layers = FIRST + (int)now.layers;
    shape.experts = (int)now.experts;
    if (waste_manifest_open(&manifest, box.dir, &e) ||
        waste_banks_open(&banks, manifest, &shape, WASTE_BANKS_BUFFERED, NULL, &e))
        fail_msg("%s", e.text);
}

static void close_all(void)
{
    waste_banks_close(banks);
    waste_manifest_close(manifest);
    fixture_remove(&box);
    waste_mem_free(now.id);
}

/* One layer of one token: ask, take all, release each. */
static void pass(waste_cache *c, int layer, const unsigned char *id)
{
    waste_error e = {0};
    const void *record;
    int ids[64], expert;
    uint32_t i;
    waste_status st;

    for (i = 0; i < now.chosen; i++) ids[i] = id[i];
    st = waste_cache_ask(c, layer, ids, NULL, now.chosen, 1, &e);
    for (i = 0; !st; i++) {
        st = waste_cache_take(c, &expert, &record, NULL, &e);
        if (st) break;
        assert_int_equal(((const waste_record_header *)record)->layer, layer);
        assert_int_equal(((const waste_record_header *)record)->expert, expert);
        waste_cache_release(c, layer, expert);
    }
    if (st != WASTE_DONE) fail_msg("%s", e.text);
    assert_int_equal(i, now.chosen);
}

/* Hits of all demand accesses in percent, with room for `share` of all records. */
static double hit_rate(double share, int io_threads)
{
    const uint64_t slots = (uint64_t)((double)now.layers * now.experts * share);
    const unsigned char *id = now.id;
    waste_cache_counts n;
    waste_error e = {0};
    waste_cache *c;
    uint32_t t, l;

    if (waste_cache_open(&c, banks, slots, io_threads, &e)) fail_msg("%s", e.text);
    for (t = 0; t < now.tokens; t++)
        for (l = 0; l < now.layers; l++, id += now.chosen) pass(c, (int)(FIRST + l), id);
    waste_cache_counts_get(c, &n);
    waste_cache_close(c);
    assert_int_equal(n.hits + n.misses, (uint64_t)now.tokens * now.layers * now.chosen);
    assert_int_equal(n.bytes_read, n.misses * 4096);
    assert_true(n.used <= slots);
    return 100.0 * (double)n.hits / (double)(n.hits + n.misses);
}

static void replay(const char *name, const double (*want)[2], size_t n)
{
    size_t i;

    open_all(name);
    for (i = 0; i < n; i++) {
        const double got = hit_rate(want[i][0], -1);

        print_message("# %s: %.0f %% of the records: %.2f %% hits\n", name, 100 * want[i][0], got);
        if (got < want[i][1]) fail_msg("%s at %g: %.2f %%", name, want[i][0], got);
    }
    /* reading ahead with threads decides nothing */
    assert_true(hit_rate(want[0][0], 2) >= want[0][1]);
    close_all();
}

static void kimi_linear_hits(void **state)
{
    static const double want[][2] = {
        {0.03, 35.0}, {0.06, 47.8}, {0.12, 60.5}, {0.24, 73.5}, {0.48, 86.9}};
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    replay("kimi_linear.bin", want, sizeof want / sizeof *want);
}

static void olmoe_hits(void **state)
{
    static const double want[][2] = {{0.06, 26.0}, {0.12, 42.0}, {0.24, 59.8}};
    (void)state;
    replay("olmoe.bin", want, sizeof want / sizeof *want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kimi_linear_hits),
        cmocka_unit_test(olmoe_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
