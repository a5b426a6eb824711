/* store/manifest: what is read, what is refused and how that is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "store/manifest.h"

static fixture box;

static int setup(void **state)
{
    (void)state;
    fixture_make(&box);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_remove(&box);
    return 0;
}

static void reads_what_is_there(void **state)
{
    waste_error e = {0};
    waste_manifest *m;
    const waste_trunk_entry *t;
    (void)state;
    assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_OK);
    assert_string_equal(m->arch, "kimi-k3"); /* the outer name wins */
    assert_string_equal(m->prefix, "t.");
    assert_memory_equal(&m->quant, &fixture_quant, sizeof m->quant);
    assert_int_equal(m->n_codebooks, 19);
    assert_null(m->bank[0].file);
    assert_string_equal(m->bank[2].file, "b.bin");
    assert_int_equal(m->bank[2].codebook_base, 10);
    assert_int_equal(m->bank[2].record_bytes, 4096);
    assert_int_equal(m->n_trunk, 5);
    t = waste_manifest_tensor(m, "t.lm_head.weight");
    assert_non_null(t);
    assert_int_equal(t->payload_bytes, 160);
    assert_int_equal(t->scale_bytes, 40);
    t = waste_manifest_tensor(m, "t.conv.weight");
    assert_int_equal(t->rows, 4);
    assert_int_equal(t->cols, 2);
    assert_int_equal(t->group, 0);
    assert_null(waste_manifest_tensor(m, "t.conv"));
    waste_manifest_close(m);
}

typedef struct edit {
    const char *from, *to;
    const char *says; /* NULL: accepted */
} edit;

static void try_edits(const edit *x, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        waste_error e = {0};
        waste_manifest *m;
        waste_status st;
        fixture_reset(&box);
        fixture_edit(&box, x[i].from, x[i].to);
        st = waste_manifest_open(&m, box.dir, &e);
        if (!x[i].says) {
            assert_int_equal(st, WASTE_OK);
        } else {
            assert_int_equal(st, WASTE_FORMAT);
            assert_null(m);
            if (!strstr(e.text, x[i].says)) fail_msg("\"%s\" lacks \"%s\"", e.text, x[i].says);
            assert_non_null(strstr(e.text, box.dir));
        }
        waste_manifest_close(m);
    }
    fixture_reset(&box);
}

static void refuses_a_head_it_does_not_understand(void **state)
{
    static const edit edits[] = {
        {"\"format_version\": 0,", "", "no format_version; this reader supports version 0"},
        {"\"format_version\": 0", "\"format_version\": 1", "format_version is 1"},
        {"\"format_version\": 0", "\"format_version\": \"0\"", "format_version is a string"},
        {"\"config\":", "\"konfig\":", "no config object"},
        {"\"config\": {", "\"config\": null, \"k\": {", "no config object"},
        {"\"t.\"", "7", "tensor_prefix is an integer"},
        {"\"t.\"", "\"0123456789012345678901234567890123456789012345678901234567890123\"",
         "tensor_prefix has 64 bytes"},
        {"{\"format_version\"", "[{\"format_version\"", "not valid JSON"},
    };
    (void)state;
    try_edits(edits, sizeof edits / sizeof *edits);
}

static void bounds_the_quantiser(void **state)
{
    static const edit edits[] = {
        {"\"stages\": 3", "\"stages\": 0", "expert_quant: stages is 0"},
        {"\"stages\": 3", "\"stages\": 9", "expert_quant: stages is 9"},
        {"\"vec_dim\": 8", "\"vec_dim\": 65", "vec_dim is 65"},
        {"\"entries\": 16", "\"entries\": 257", "entries is 257"},
        {"\"index_block\": 64", "\"index_block\": 32", "index_block is 32"},
        {"\"index_block\": 64", "\"index_block\": 0", NULL},
        {"\"stages\": 3", "\"index_bits\": 7", "index_bits is 7"},
        {"\"stages\": 3", "\"index_bits\": 6", "stages 4, entries 64"},
        {"\"stages\": 3,", "", NULL}, /* the default */
        {"\"entries\": 16", "\"entries\": 17", "codebooks.bin has 5168 bytes"},
    };
    (void)state;
    try_edits(edits, sizeof edits / sizeof *edits);
}

static void bounds_the_layers(void **state)
{
    static const edit edits[] = {
        {"\"a.bin\"", "\"../a.bin\"", "layer 1: file is ../a.bin"},
        {"\"a.bin\"", "\"..\"", "layer 1: file"},
        {"\"a.bin\"", "\"x\\\\y\"", "layer 1: file"},
        {"\"a.bin\"", "\"\"", "layer 1: file"},
        {"\"a.bin\"", "\"a\\u0000b\"", "layer 1: file"},
        {"\"experts\": 8", "\"experts\": 0", "layer 1: experts is 0"},
        {"\"experts\": 8", "\"experts\": 65536", "layer 1: experts is 65536"},
        {"\"bytes\": 32768,", "\"bytes\": 32769,", "layer 1: bytes is 32769"},
        {"\"bytes\": 32768,", "", "layer 1: bytes is missing"},
        {"\"codebook_base\": 0", "\"codebook_base\": -1", "layer 1: codebook_base is -1"},
        {"{\"1\": {", "{\"9999\": 5, \"-1\": 6, \"01\": 7, \"1\": {", NULL},
        {"{\"1\": {", "{\"7\": 5, \"1\": {", "layer 7 is an integer"},
    };
    (void)state;
    try_edits(edits, sizeof edits / sizeof *edits);
}

static void bounds_every_tensor(void **state)
{
    static const edit edits[] = {
        {"\"off\": 360", "\"off\": -1", "t.model.norm.weight: off is -1"},
        {"\"off\": 360", "\"off\": 601", "t.model.norm.weight: the data at offset 601"},
        {"\"off\": 360", "\"off\": 1e300", "off is 1.0"},
        {"\"scale_off\": 320", "\"scale_off\": 625", "embed_tokens.weight: the scales"},
        {"\"shape\": [16]", "\"shape\": []", "0 dimensions"},
        {"\"shape\": [16]", "\"shape\": [1,1,1,1,16]", "5 dimensions"},
        {"\"shape\": [16]", "\"shape\": \"16\"", "shape is a string"},
        {"\"shape\": [16]", "\"shape\": [0]", "dimension 1"},
        {"\"shape\": [16], \"bytes\": 64", "\"shape\": [4194304, 4194304, 4194304]",
         "does not fit"},
        {"\"shape\": [16], \"bytes\": 64", "\"shape\": [67108864]", "does not fit"},
        {"\"fmt\": 2", "\"fmt\": 1", "fmt is 1"},
        {"\"fmt\": 2", "\"fmt\": 4", "fmt is 4"},
        {"\"group\": 16", "\"group\": 0", "group is 0"},
        {"\"fmt\": 3", "\"group\": 15, \"g\": 1, \"fmt\": 3", NULL}, /* the last one counts */
        {"\"fmt\": 2, \"off\": 0, \"scale_off\": 320, \"shape\": [20, 16], \"group\": 16",
         "\"fmt\": 3, \"off\": 0, \"shape\": [20, 16], \"group\": 15", "share a byte"},
        {"\"bytes\": 360", "\"bytes\": 361", "bytes is not the 360"},
        {", \"bytes\": 360", "", NULL},
        {"\"t.conv.weight\"", "5", "trunk entry 3: name"},
        {"\"trunk\": [", "\"trunk\": {}, \"x\": [", "trunk is an object"},
        {"\"trunk\": [", "\"x\": [", "trunk lists no tensor"},
    };
    (void)state;
    try_edits(edits, sizeof edits / sizeof *edits);
}

static void first_of_equal_names_wins(void **state)
{
    waste_error e = {0};
    waste_manifest *m;
    (void)state;
    fixture_edit(&box, "\"trunk\": [",
                 "\"trunk\": [{\"name\": \"vision.x\", \"off\": 8, \"shape\": [3]},"
                 "{\"name\": \"vision.x\", \"off\": 4, \"shape\": [5]},");
    assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_OK);
    assert_int_equal(m->n_trunk, 5);
    assert_int_equal(waste_manifest_tensor(m, "vision.x")->cols, 3);
    waste_manifest_close(m);
    fixture_reset(&box);
}

static void nested_configuration_is_found(void **state)
{
    waste_error e = {0};
    waste_manifest *m;
    (void)state;
    fixture_edit(&box, "\"tensor_prefix\": \"t.\",", "");
    fixture_edit(&box, "\"config\": {", "\"config\": {\"text_config\": {\"hidden_size\": 9},");
    fixture_edit(&box, ", \"_outer\": {\"architectures\": [\"AKimiK3B\"]}", "");
    assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_OK);
    assert_string_equal(m->prefix, "language_model.");
    assert_string_equal(m->arch, "TestForCausalLM");
    assert_int_equal(waste_json_count(m->config), 1);
    waste_manifest_close(m);
    fixture_reset(&box);
}

static void missing_places_are_named(void **state)
{
    waste_error e = {0};
    waste_manifest *m;
    char file[200];
    (void)state;
    assert_int_equal(waste_manifest_open(&m, "/no/such/place", &e), WASTE_IO);
    assert_non_null(strstr(e.text, "/no/such/place: it does not exist"));
    memset(&e, 0, sizeof e);
    snprintf(file, sizeof file, "%s/trunk.bin", box.dir);
    assert_int_equal(waste_manifest_open(&m, file, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "not a directory"));
    memset(&e, 0, sizeof e);
    waste_path_remove(fixture_path(&box, "manifest.json"));
    assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "no manifest.json"));
    memset(&e, 0, sizeof e);
    fixture_reset(&box);
    waste_path_remove(fixture_path(&box, "codebooks.bin"));
    assert_int_equal(waste_manifest_open(&m, box.dir, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "codebooks.bin"));
    fixture_codebooks(&box);
}

static void failed_allocations_leave_nothing(void **state)
{
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;
    for (n = 1; st != WASTE_OK; n++) {
        waste_error e = {0};
        waste_manifest *m;
        assert_true(n < 5000);
        waste_mem_fail_at(n, 1);
        st = waste_manifest_open(&m, box.dir, &e);
        waste_mem_fail_at(0, 0);
        /* the JSON library cannot always tell what stopped it */
        assert_true(st == WASTE_OK || st == WASTE_NOMEM);
        waste_manifest_close(m);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_there),
        cmocka_unit_test(refuses_a_head_it_does_not_understand),
        cmocka_unit_test(bounds_the_quantiser),
        cmocka_unit_test(bounds_the_layers),
        cmocka_unit_test(bounds_every_tensor),
        cmocka_unit_test(first_of_equal_names_wins),
        cmocka_unit_test(nested_configuration_is_found),
        cmocka_unit_test(missing_places_are_named),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
