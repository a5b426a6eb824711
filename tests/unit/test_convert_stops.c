/* convert/: conversions that are refused before anything is written, interrupted, and
 * gone on with. */
#include "conversion.h"
#include "emulated.h"

/* ---- refusals ------------------------------------------------------------------------- */

static void refuses_options_and_targets_by_name(void **state)
{
    waste_convert_options bits = {.trunk_bits = 5}, form = {.experts = "vq9"};
    waste_convert *c;
    waste_error err;
    char path[600];
    (void)state;
    begin(0, NULL);
    expect(run(&bits, &err), WASTE_ARG, &err, "trunk_bits is 5");
    expect(run(&form, &err), WASTE_ARG, &err, "\"vq9\"");
    assert_false(waste_path_exists(target));

#define OPEN(from, to) (memset(&err, 0, sizeof err), waste_convert_open(&c, from, to, NULL, &err))
    expect(OPEN(source, source), WASTE_ARG, &err, "inside each other");
    snprintf(path, sizeof path, "%s/sub", source);
    expect(OPEN(source, path), WASTE_ARG, &err, "inside each other");
    snprintf(path, sizeof path, "%s/./../%s/x.waste", source, strrchr(source, '/') + 1);
    expect(OPEN(source, path), WASTE_ARG, &err, "inside each other");
    snprintf(path, sizeof path, "%s/..", source);
    expect(OPEN(source, path), WASTE_ARG, &err, "inside each other");
#if !defined(_WIN32) /* where making one takes a privilege */
    symlink(source, target);
    expect(OPEN(source, target), WASTE_ARG, &err, "inside each other");
    unlink(target);
#endif
    snprintf(path, sizeof path, "%s/no/where", source);
    expect(OPEN(source, path), WASTE_ARG, &err, "is not a directory");
    snprintf(path, sizeof path, "%s/config.json", source);
    expect(OPEN(source, path), WASTE_ARG, &err, "is not a directory");
    expect(OPEN(path, target), WASTE_IO, &err, "is not a directory");
    expect(OPEN(source, ""), WASTE_ARG, &err, "no target");
    assert_null(c);

    test_dir_remove(target);
    assert_int_equal(waste_path_make_dir(target, &err), WASTE_OK);
    test_text(target, "manifest.json", "{}");
    expect(OPEN(source, target), WASTE_ARG, &err, "manifest.json exists");
    assert_int_equal(test_dir_count(target), 1);
}

static void counts_what_the_checkpoint_lacks(void **state)
{
    waste_error err;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, "model.layers.1.self_attn.kv_b_proj.weight");
    expect(run(NULL, &err), WASTE_FORMAT, &err,
           "lacks 1 tensors, the first is model.layers.1.self_attn.kv_b_proj.weight");
    ckpt_model(source, 0, "lm_head.weight");
    expect(run(NULL, &err), WASTE_FORMAT, &err, "the first is lm_head.weight");
    ckpt_model(source, 0, "model.layers.2.block_sparse_moe.experts.3.w2.weight");
    expect(run(NULL, &err), WASTE_FORMAT, &err,
           "no tensor model.layers.2.block_sparse_moe.experts.3.w2.weight");
    ckpt_model(source, 0, "model.layers.1.block_sparse_moe.gate.e_score_correction_bias");
    expect(run(NULL, &err), WASTE_DONE, &err, ""); /* optional */
    test_dir_remove(target);
    assert_false(waste_path_exists(target));
}

/* config.json with one member changed; the tensors stay. */
static void refuse_config(const char *from, const char *to, const char *about)
{
    char path[600], text[8192], *old, *at;
    waste_error err = {0};
    size_t n;

    ckpt_model(source, 0, NULL);
    snprintf(path, sizeof path, "%s/config.json", source);
    assert_int_equal(waste_file_load(path, 8000, &old, &n, &err), WASTE_OK);
    at = strstr(old, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - old), old, to, at + strlen(from));
    waste_mem_free(old);
    test_text(source, "config.json", text);
    expect(run(NULL, &err), WASTE_FORMAT, &err, about);
    assert_false(waste_path_exists(target));
}

static void refuses_configurations_by_key(void **state)
{
    (void)state;
    clean();
    refuse_config("\"hidden_size\":32", "\"hidden_size\":0", "hidden_size is 0");
    refuse_config("\"hidden_size\":32", "\"hidden\":32", "has no hidden_size");
    refuse_config("\"num_hidden_layers\":3", "\"num_hidden_layers\":129",
                  "num_hidden_layers is 129");
    refuse_config("\"num_experts\":4", "\"num_experts\":65536", "num_experts is 65536");
    refuse_config("\"num_experts_per_token\":2", "\"num_experts_per_token\":5",
                  "num_experts_per_token is 5");
    refuse_config("\"kda_layers\":[1,3]", "\"kda_layers\":[0]", "kda_layers has an entry outside");
    refuse_config("\"kv_lora_rank\":16", "\"kv_lora_rank\":17", "3 tensors have the wrong shape");
    refuse_config("\"first_k_dense_replace\":1", "\"first_k_dense_replace\":4",
                  "first_k_dense_replace is 4 of 3");
    refuse_config("\"moe_intermediate_size\":64", "\"moe_intermediate_size\":60",
                  "not multiples of 8");
    refuse_config("\"mla_use_nope\":true", "\"mla_use_nope\":1", "mla_use_nope");
    refuse_config("{", "{\"text_config\":7,", "text_config is an integer");
}

static void names_weights_that_are_not_finite(void **state)
{
    static const unsigned char nan[2] = {0xC0, 0x7F};
    char path[600];
    waste_error err;
    FILE *f;
    (void)state;
    begin(0, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -2, SEEK_END); /* the last weight of the last expert */
    fwrite(nan, 1, 2, f);
    fclose(f);
    expect(run(NULL, &err), WASTE_FORMAT, &err, "experts.3.w2.weight holds a weight");
    assert_false(has("manifest.json"));
    assert_true(has(".convert/trunk.bin")); /* what was finished before is kept */
    assert_true(has(".convert/experts-L1.bin"));
    /* with the shard repaired it is another source */
    ckpt_model(source, 0, NULL);
    expect(run(NULL, &err), WASTE_ARG, &err, "unfinished conversion of another source");
    {
        waste_convert_options opt = {.overwrite = 1};
        expect(run(&opt, &err), WASTE_DONE, &err, "");
    }
    assert_false(has(".convert"));
}

/* ---- interruptions --------------------------------------------------------------------- */

/* Every file of a container, to be compared with later. */
#define FILES 5
static const char *const file_names[FILES] = {"manifest.json", "trunk.bin", "codebooks.bin",
                                              "experts-L1.bin", "experts-L2.bin"};
static char *kept[FILES];
static size_t kept_bytes[FILES];

static void keep_files(void)
{
    int i;

    for (i = 0; i < FILES; i++) kept[i] = load(file_names[i], kept_bytes + i);
}

static void compare_files(void)
{
    char *again;
    size_t n;
    int i;

    for (i = 0; i < FILES; i++) {
        again = load(file_names[i], &n);
        assert_int_equal(n, kept_bytes[i]);
        assert_memory_equal(again, kept[i], n);
        waste_mem_free(again);
    }
    assert_false(has(".convert"));
}

static void forget_files(void)
{
    int i;

    for (i = 0; i < FILES; i++) waste_mem_free(kept[i]);
}

/* Closed after every few steps, and taken up again. The last five, from the small
 * files to the publication, are one run's. */
static void closing_early_is_gone_on_with(void **state)
{
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    int steps, k, runs;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(CKPT_SHARDS, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    keep_files();
    for (steps = 1; steps < 8; steps++) {
        uint64_t done = 0;
        test_dir_remove(target);
        for (runs = 0; runs < 4; runs++) {
            assert_int_equal(waste_convert_open(&c, source, target, NULL, &err), WASTE_OK);
            for (k = 0; k < steps; k++) {
                assert_true(waste_convert_next(c, &row, &err) >= 0);
                if (strcmp(row.phase, "experts") != 0) continue;
                assert_true(row.done > done); /* no layer is done twice */
                done = row.done;
            }
            waste_convert_close(c);
            if (has("manifest.json")) break;
            assert_true(has(".convert/trunk.bin"));
        }
        if (!has("manifest.json")) expect(run(NULL, &err), WASTE_DONE, &err, "");
        compare_files();
    }
    /* before anything is finished nothing stays */
    test_dir_remove(target);
    assert_int_equal(waste_convert_open(&c, source, target, NULL, &err), WASTE_OK);
    assert_false(waste_path_exists(target));
    waste_convert_close(c);
    assert_false(waste_path_exists(target));
    forget_files();
}

static void an_old_container_stays_until_the_new_one_is_there(void **state)
{
    waste_convert_options opt = {.experts = "vq2r", .overwrite = 1};
    waste_convert *c;
    waste_convert_row row;
    waste_error err;
    int files;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    files = test_dir_count(target);
    assert_int_equal(waste_convert_open(&c, source, target, &opt, &err), WASTE_OK);
    do assert_int_equal(waste_convert_next(c, &row, &err), WASTE_OK);
    while (strcmp(row.phase, "proof") != 0);
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.30); /* vq3r still */
    waste_convert_close(c);
    assert_int_equal(test_dir_count(target), files + 1); /* .convert */
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.30);
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.45);
}

/* The publication, cut short before any of its renames. */
static void a_publication_is_finished_by_the_next_run(void **state)
{
    char from[700], to[700];
    waste_error err;
    int cut, i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(CKPT_SHARDS, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    keep_files();
    for (cut = 0; cut <= FILES; cut++) {
        waste_convert *c;
        waste_convert_row row;
        test_dir_remove(target);
        assert_int_equal(waste_convert_open(&c, source, target, NULL, &err), WASTE_OK);
        do assert_int_equal(waste_convert_next(c, &row, &err), WASTE_OK);
        while (row.done + 1 < row.total);
        waste_convert_close(c);
        snprintf(from, sizeof from, "%s/.convert/job.json", target);
        snprintf(to, sizeof to, "%s/.convert/publish.json", target);
        assert_int_equal(rename(from, to), 0);
        for (i = 1; i <= cut; i++) { /* the manifest, number 0, is the last */
            snprintf(from, sizeof from, "%s/.convert/%s", target, file_names[i % FILES]);
            snprintf(to, sizeof to, "%s/%s", target, file_names[i % FILES]);
            assert_int_equal(rename(from, to), 0);
        }
        expect(run(NULL, &err), WASTE_DONE, &err, "");
        compare_files();
    }
    forget_files();
}

/* A bank cut at any place, with junk behind it, or a record that was damaged. */
static void leftovers_are_not_believed(void **state)
{
    char bank[700], other[700];
    waste_convert_options trial = {.layers = "1"};
    waste_error err;
    char *data;
    size_t n, i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    keep_files();
    for (i = 0; i < 5; i++) {
        test_dir_remove(target);
        expect(run(&trial, &err), WASTE_DONE, &err, "");
        assert_false(has("manifest.json"));
        snprintf(bank, sizeof bank, "%s/.convert/experts-L1.bin", target);
        assert_int_equal(waste_file_load(bank, 1 << 28, &data, &n, &err), WASTE_OK);
        if (i == 0) data[0] ^= 1;           /* a header of a finished bank */
        if (i == 1) n -= 1;                 /* its length */
        if (i == 2) data[n / 2 + 100] ^= 1; /* a payload of an unfinished one */
        if (i == 3) data[n - 1] ^= 1;       /* its padding */
        if (i == 4) n = n / 4 * 3 - 7;      /* a record cut short */
        snprintf(bank, sizeof bank, ".convert/experts-L1.bin%s", i < 2 ? "" : ".tmp");
        if (i >= 2) {
            snprintf(other, sizeof other, "%s/.convert/experts-L1.bin", target);
            unlink(other);
        }
        test_write(target, bank, data, n);
        waste_mem_free(data);
        expect(run(NULL, &err), WASTE_DONE, &err, "");
        compare_files();
    }
    forget_files();
}

static void a_trial_publishes_nothing_and_is_gone_on_with(void **state)
{
    waste_convert_options opt = {.layers = "2"};
    static const char *const bad[] = {"", "0", "3", "1,", ",1", "1-", "2-1", "1;2", "x", "1,,2"};
    waste_convert *c;
    waste_convert_row row;
    waste_error err;
    size_t i;
    int kinds = 0;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, NULL);
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        waste_convert_options o = {.layers = bad[i]};
        expect(run(&o, &err), WASTE_ARG, &err, "wanted numbers and ranges of layers");
    }
    memset(&err, 0, sizeof err);
    assert_int_equal(waste_convert_open(&c, source, target, &opt, &err), WASTE_OK);
    while (waste_convert_next(c, &row, &err) == WASTE_OK) {
        if (strcmp(row.phase, "layer") != 0) continue;
        assert_int_equal(row.layer, 2);
        assert_string_equal(row.kind, kinds == 0 ? "gate" : kinds == 1 ? "up" : "down");
        assert_true(row.error > 0 && row.error < 0.3);
        kinds++;
    }
    waste_convert_close(c);
    assert_int_equal(err.status, WASTE_OK);
    assert_int_equal(kinds, 3);
    assert_false(has("manifest.json") || has(".convert/experts-L1.bin"));
    assert_true(has(".convert/experts-L2.bin"));
    opt.layers = "1-2";
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.30);
}

static void two_conversions_exclude_each_other(void **state)
{
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, NULL);
    assert_int_equal(waste_convert_open(&c, source, target, NULL, &err), WASTE_OK);
    assert_int_equal(waste_convert_next(c, &row, &err), WASTE_OK);
    expect(run(NULL, &err), WASTE_BUSY, &err, "in use by another conversion");
    assert_true(has(".convert/trunk.bin"));
    memset(&err, 0, sizeof err);
    while (waste_convert_next(c, &row, &err) == WASTE_OK) continue;
    waste_convert_close(c);
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.30);
}

static int countdown(void *ctx)
{
    return --*(int *)ctx <= 0;
}

static void stops_when_asked(void **state)
{
    int left, n;
    waste_error err;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, NULL);
    for (n = 1; n < 100000; n = n * 3 + 1) {
        waste_convert_options opt = {.cancel = {countdown, NULL}};
        left = n;
        opt.cancel.ctx = &left;
        waste_status st = run(&opt, &err);
        if (st == WASTE_DONE) break;
        expect(st, WASTE_CANCELLED, &err, "cancelled");
        assert_false(has("manifest.json"));
        test_dir_remove(target);
    }
    assert_in_range(n, 100, 99999); /* asked often, even for so small a model */
}

static void a_failed_conversion_stays_failed(void **state)
{
    int left = 1;
    waste_convert_options opt = {.cancel = {countdown, &left}};
    waste_convert *c;
    waste_convert_row row;
    waste_error err = {0};
    (void)state;
    begin(0, NULL);
    assert_int_equal(waste_convert_open(&c, source, target, &opt, &err), WASTE_OK);
    assert_int_equal(waste_convert_next(c, &row, &err), WASTE_CANCELLED);
    memset(&err, 0, sizeof err);
    left = 100000;
    expect(waste_convert_next(c, &row, &err), WASTE_ARG, &err, "failed before");
    waste_convert_close(c);
    assert_false(waste_path_exists(target));
}

static void leaves_nothing_behind_when_memory_runs_out(void **state)
{
    uint64_t before, n;
    waste_error err;
    waste_status st;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(CKPT_NESTED | CKPT_PACKED, NULL);
    test_text(source, "tokenizer_config.json",
              "{\"added_tokens_decoder\":{\"11\":{\"content\":\"<|im_end|>\"}}}");
    before = waste_mem_used();
    /* densely at first, where things are opened, then in strides */
    for (n = 1;; n += n < 40 ? 1 : n / 8) {
        waste_mem_fail_at(n, 1);
        st = run(NULL, &err);
        waste_mem_fail_at(0, 0);
        assert_int_equal(waste_mem_used(), before);
        if (st == WASTE_DONE) break;
        expect(st, WASTE_NOMEM, &err, "memory");
        assert_false(has("manifest.json"));
        test_dir_remove(target);
    }
    assert_in_range(n, 100, 1000000);
    waste_convert_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_options_and_targets_by_name),
        cmocka_unit_test(counts_what_the_checkpoint_lacks),
        cmocka_unit_test(refuses_configurations_by_key),
        cmocka_unit_test(names_weights_that_are_not_finite),
        cmocka_unit_test(closing_early_is_gone_on_with),
        cmocka_unit_test(an_old_container_stays_until_the_new_one_is_there),
        cmocka_unit_test(a_publication_is_finished_by_the_next_run),
        cmocka_unit_test(leftovers_are_not_believed),
        cmocka_unit_test(a_trial_publishes_nothing_and_is_gone_on_with),
        cmocka_unit_test(two_conversions_exclude_each_other),
        cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(a_failed_conversion_stays_failed),
        cmocka_unit_test(leaves_nothing_behind_when_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
