/* container: what a .waste directory adds up to, without its weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "waste.h"

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

static void tells_what_it_is(void **state)
{
    waste_error e = {0};
    waste_container *c;
    const waste_info *i;
    char path[80];
    (void)state;
    snprintf(path, sizeof path, "%s///", box.dir);
    assert_int_equal(waste_container_open(&c, path, NULL, &e), WASTE_OK);
    i = waste_container_info(c);
    assert_string_equal(i->path, path); /* as given */
    assert_string_equal(i->arch, "kimi-k3");
    assert_string_equal(i->expert_format, "VQ");
    assert_true(i->expert_bits == 3.0);
    assert_int_equal(i->layers, 3);
    assert_int_equal(i->kda_layers, 2);
    assert_int_equal(i->mla_layers, 1);
    assert_int_equal(i->moe_layers, 2);
    /* embedding 320, norm 16, head 320, conv 8; the vision tensor is not the text model's */
    assert_int_equal(i->params, 320 + 16 + 320 + 8 + 3 * 24 * 16 * 8 * 2);
    assert_int_equal(i->active_params, 16 + 320 + 8 + 3 * 24 * 16 * 2 * 2);
    assert_int_equal(i->trunk_bytes, 360 + 64 + 200 + 32);
    assert_int_equal(i->resident_bytes, 64 + 200 + 32);
    assert_int_equal(i->expert_bytes, 2 * 32768);
    assert_int_equal(i->record_bytes, 4096);
    assert_int_equal(i->eos_token, -1);
    assert_false(i->has_tokenizer);
    assert_false(i->has_vision);
    assert_int_equal(i->chat, WASTE_CHAT_NONE);
    assert_int_equal(waste_container_check_chat(c, &e), WASTE_OK);
    waste_container_close(c);
}

static void lists_tensors_and_banks(void **state)
{
    waste_error e = {0};
    waste_container *c;
    waste_tensor_info t;
    waste_bank_info b;
    (void)state;
    assert_int_equal(waste_container_open(&c, box.dir, NULL, &e), WASTE_OK);
    assert_int_equal(waste_container_tensors(c), 5);
    waste_container_tensor(c, 0, &t);
    assert_string_equal(t.name, "t.conv.weight");
    assert_string_equal(t.format, "F32");
    assert_int_equal(t.dims, 3);
    assert_int_equal(t.shape[2], 2);
    assert_int_equal(t.group, 0);
    assert_int_equal(t.bytes, 32);
    assert_true(t.resident);
    waste_container_tensor(c, 2, &t);
    assert_string_equal(t.name, "t.model.embed_tokens.weight");
    assert_string_equal(t.format, "Q8G");
    assert_int_equal(t.group, 16);
    assert_false(t.resident); /* read a row at a time */
    waste_container_tensor(c, 4, &t);
    assert_string_equal(t.name, "vision.x");
    assert_false(t.resident);
    waste_container_tensor(c, 5, &t);
    assert_null(t.name);
    waste_container_bank(c, 0, &b);
    assert_null(b.file);
    waste_container_bank(c, 2, &b);
    assert_string_equal(b.file, "b.bin");
    assert_int_equal(b.experts, 8);
    assert_int_equal(b.record_bytes, 4096);
    assert_int_equal(b.codebook_base, 10);
    waste_container_bank(c, 3, &b);
    assert_null(b.file);
    waste_container_bank(c, -1, &b);
    assert_null(b.file);
    waste_container_close(c);
}

static void sees_the_files_beside_the_manifest(void **state)
{
    waste_error e = {0};
    waste_container *c;
    (void)state;
    fixture_put(&box, "vision.json", "{}", 2);
    fixture_edit(&box, "\"vocab_size\": 20", "\"vocab_size\": 20, \"eos_token_id\": 7");
    assert_int_equal(waste_container_open(&c, box.dir, NULL, &e), WASTE_OK);
    assert_true(waste_container_info(c)->has_vision);
    assert_int_equal(waste_container_info(c)->eos_token, 7);
    waste_container_close(c);
    waste_path_remove(fixture_path(&box, "vision.json"));
    fixture_reset(&box);
}

static void tokenizes_only_with_a_tokenizer(void **state)
{
    static const char ranks[] = "YQ== 0\nYg== 1\nYWI= 2\n"; /* a, b, ab */
    waste_error e = {0};
    waste_container *c;
    waste_ids ids = {NULL, 0};
    const char *s;
    size_t n = 9;
    (void)state;
    assert_int_equal(waste_container_open(&c, box.dir, NULL, &e), WASTE_OK);
    assert_int_equal(waste_tokenize(c, "ab", 2, 0, &ids, &e), WASTE_UNSUPPORTED);
    assert_non_null(strstr(e.text, box.dir));
    assert_null(waste_token_bytes(c, 0, &n));
    assert_int_equal(n, 0);
    waste_container_close(c);
    memset(&e, 0, sizeof e);

    fixture_put(&box, "tokenizer.model", ranks, sizeof ranks - 1);
    assert_int_equal(waste_container_open(&c, box.dir, NULL, &e), WASTE_OK);
    assert_true(waste_container_info(c)->has_tokenizer);
    assert_int_equal(waste_container_info(c)->eos_token, 5); /* three ranks: 3 + 2 */
    assert_int_equal(waste_tokenize(c, "aba", 3, 0, &ids, &e), WASTE_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 2);
    assert_int_equal(ids.id[1], 0);
    s = waste_token_bytes(c, 2, &n);
    assert_int_equal(n, 2);
    assert_memory_equal(s, "ab", 2);
    waste_ids_clear(&ids);
    assert_null(ids.id);
    assert_int_equal(ids.n, 0);
    waste_ids_clear(&ids);
    waste_container_close(c);
    waste_path_remove(fixture_path(&box, "tokenizer.model"));
}

static void one_container_has_one_identity(void **state)
{
    waste_error e = {0};
    uint64_t a[2], b[2];
    char other[80];
    (void)state;
    snprintf(other, sizeof other, "%s/../%s/", box.dir, strrchr(box.dir, '/') + 1);
    assert_int_equal(waste_container_identity(box.dir, a, &e), WASTE_OK);
    assert_int_equal(waste_container_identity(other, b, &e), WASTE_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(waste_container_identity("/no/such/place", b, &e), WASTE_IO);
    assert_non_null(strstr(e.text, "/no/such/place"));
}

static void bad_paths_are_named(void **state)
{
    waste_error e = {0};
    waste_container *c;
    (void)state;
    assert_int_equal(waste_container_open(&c, "/no/such/place", NULL, &e), WASTE_IO);
    assert_null(c);
    assert_non_null(strstr(e.text, "/no/such/place"));
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_container_open(&c, "", NULL, &e), WASTE_ARG);
    memset(&e, 0, sizeof e);
    assert_int_equal(waste_container_open(&c, NULL, NULL, &e), WASTE_ARG);
    waste_container_close(NULL);
}

static void failed_allocations_leave_nothing(void **state)
{
    uint64_t before = waste_mem_used(), n;
    waste_status st = WASTE_NOMEM;
    (void)state;
    for (n = 1; st != WASTE_OK; n++) {
        waste_error e = {0};
        waste_container *c;
        assert_true(n < 5000);
        waste_mem_fail_at(n, 1);
        st = waste_container_open(&c, box.dir, NULL, &e);
        waste_mem_fail_at(0, 0);
        waste_container_close(c);
        assert_int_equal(waste_mem_used(), before);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_what_it_is),
        cmocka_unit_test(lists_tensors_and_banks),
        cmocka_unit_test(sees_the_files_beside_the_manifest),
        cmocka_unit_test(tokenizes_only_with_a_tokenizer),
        cmocka_unit_test(one_container_has_one_identity),
        cmocka_unit_test(bad_paths_are_named),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
