/* convert/: whole conversions of small checkpoints, and what they leave on disk. */
#include <fenv.h>

#include "conversion.h"
#include "emulated.h"

/* 128 vectors per sampled matrix: three stages of 256 entries hold them almost
 * exactly, 64 entries less so. */
static void converts_every_width_and_expert_format(void **state)
{
    static const struct {
        int bits;
        const char *experts;
        waste_fmt matrix;
        double bound;
    } want[] = {{0, NULL, WASTE_FMT_Q4G, 0.30},
                {8, "vq2r", WASTE_FMT_Q8G, 0.40},
                {3, "vq4p", WASTE_FMT_Q3G, 0.30}};
    waste_error err;
    size_t i;
    (void)state;
    for (i = 0; i < 3; i++) {
        waste_convert_options opt = {.trunk_bits = want[i].bits, .experts = want[i].experts};
        begin(0, NULL);
        expect(run(&opt, &err), WASTE_DONE, &err, "");
        check_container("block_sparse_moe", want[i].matrix, want[i].bound);
    }
}

static void converts_deepseek_names_and_keys(void **state)
{
    waste_error err;
    waste_manifest *m;
    (void)state;
    begin(CKPT_DEEPSEEK, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    check_container("mlp", WASTE_FMT_Q4G, 0.30);
    assert_int_equal(waste_manifest_open(&m, target, &err), WASTE_OK);
    assert_string_equal(m->arch, "DeepseekV3ForCausalLM");
    assert_non_null(waste_manifest_tensor(m, "model.layers.1.block_sparse_moe.gate.weight"));
    assert_null(waste_manifest_tensor(m, "model.layers.1.mlp.gate.weight"));
    assert_non_null(waste_manifest_tensor(m, "model.layers.0.mlp.gate_proj.weight"));
    /* the block for multi-token prediction is behind the last layer */
    assert_null(waste_manifest_tensor(m, "model.layers.3.input_layernorm.weight"));
    assert_true(waste_json_kind_of(waste_json_get(m->config, "moe_renormalize")) ==
                WASTE_JSON_BOOL);
    waste_manifest_close(m);
}

/* Values and block scales, edge tiles among them, in a checkpoint of three shards. */
static void converts_fp8_from_shards(void **state)
{
    static const int flags[] = {CKPT_FP8 | CKPT_DEEPSEEK, CKPT_FP8 | CKPT_SHARDS | CKPT_NESTED};
    waste_error err;
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        begin(flags[i], NULL);
        expect(run(NULL, &err), WASTE_DONE, &err, "");
        check_container(i ? "block_sparse_moe" : "mlp", WASTE_FMT_Q4G, 0.30);
    }
    begin(flags[0], "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv");
    expect(run(NULL, &err), WASTE_FORMAT, &err,
           "experts.2.up_proj.weight is F8_E4M3 and has no model.layers.1.mlp.experts.2.up_proj");
}

static void flattens_vision_and_nests_the_outer_configuration(void **state)
{
    waste_error err;
    waste_manifest *m;
    waste_json *v;
    const waste_trunk_entry *e;
    size_t bytes;
    int64_t n;
    char *text;
    (void)state;
    begin(CKPT_NESTED | CKPT_PACKED, NULL);
    test_text(source, "preprocessor_config.json",
              "{\"media_proc_cfg\":{\"image_mean\":[0.4,0.5,0.6],\"in_patch_limit\":77}}");
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.30);
    assert_int_equal(waste_manifest_open(&m, target, &err), WASTE_OK);
    assert_string_equal(m->arch, "kimi-k3");
    assert_string_equal(m->prefix, "language_model.");
    assert_null(waste_json_get(m->outer, "text_config"));
    /* readers switch this on by its presence */
    assert_null(waste_json_get(m->config, "latent_moe_use_norm"));
    e = waste_manifest_tensor(m, "vision_tower.patch_embed.proj.weight");
    assert_int_equal(e->fmt, WASTE_FMT_Q8G);
    assert_int_equal(e->dims, 2);
    assert_int_equal(e->rows, 128);
    assert_int_equal(e->cols, 588);
    e = waste_manifest_tensor(m, "vision_tower.patch_embed.pos_emb.weight");
    assert_int_equal(e->rows, 1024);
    assert_int_equal(e->cols, 128);
    assert_int_equal(waste_manifest_tensor(m, "mm_projector.post_norm.weight")->fmt, WASTE_FMT_F32);
    waste_manifest_close(m);

    text = load("vision.json", &bytes);
    assert_int_equal(waste_json_parse(&v, text, bytes, 1, "vision.json", WASTE_FORMAT, &err),
                     WASTE_OK);
    waste_mem_free(text);
    assert_null(waste_json_get(v, "_private"));
    assert_int_equal(waste_json_int(waste_json_get(v, "media_placeholder_token_id"), &n), 0);
    assert_int_equal(n, 9);
    assert_int_equal(waste_json_int(waste_json_get(v, "in_patch_limit"), &n), 0);
    assert_int_equal(n, 77);
    assert_int_equal(waste_json_int(waste_json_get(v, "patch_size"), &n), 0);
    assert_int_equal(n, 14);
    assert_int_equal(waste_json_count(waste_json_get(v, "image_std")), 3);
    waste_json_free(v);
}

static void writes_a_tied_head_from_the_embedding(void **state)
{
    waste_error err;
    waste_manifest *m;
    (void)state;
    begin(CKPT_TIED, NULL);
    expect(run(NULL, &err), WASTE_DONE, &err, "");
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.30);
    assert_int_equal(waste_manifest_open(&m, target, &err), WASTE_OK);
    assert_int_equal(waste_manifest_tensor(m, "lm_head.weight")->fmt, WASTE_FMT_Q8G);
    waste_manifest_close(m);
}

static void two_runs_are_equal_byte_for_byte(void **state)
{
    static const char *const names[] = {"manifest.json", "trunk.bin", "codebooks.bin",
                                        "experts-L1.bin", "experts-L2.bin"};
    waste_convert_options opt = {0};
    char *first[5], *again;
    size_t bytes[5], n, i;
    waste_error err;
    (void)state;
    begin(CKPT_PACKED, NULL);
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    for (i = 0; i < 5; i++) first[i] = load(names[i], bytes + i);
    opt.overwrite = 1;
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    for (i = 0; i < 5; i++) {
        again = load(names[i], &n);
        assert_int_equal(n, bytes[i]);
        assert_memory_equal(again, first[i], n);
        waste_mem_free(again);
        waste_mem_free(first[i]);
    }
}

/* Whoever did the work and however many they were; the last time, who asks for it rounds
 * upward. */
static void threads_do_not_change_a_byte(void **state)
{
    static const int threads[] = {1, 2, 7, 2};
    static const char *const files[] = {"codebooks.bin", "experts-L1.bin", "experts-L2.bin",
                                        "trunk.bin", "manifest.json"};
    char *first[5];
    size_t bytes[5], n, i, k;
    waste_error err;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(CKPT_PACKED, NULL);
    for (i = 0; i < 4; i++) {
        waste_convert_options opt = {.threads = threads[i], .overwrite = 1};
        if (i == 3) assert_int_equal(fesetround(FE_UPWARD), 0);
        expect(run(&opt, &err), WASTE_DONE, &err, "");
        assert_int_equal(fegetround(), i == 3 ? FE_UPWARD : FE_TONEAREST);
        fesetround(FE_TONEAREST);
        for (k = 0; k < 5; k++) {
            char *text = load(files[k], &n);
            if (i == 0) {
                first[k] = text;
                bytes[k] = n;
                continue;
            }
            assert_int_equal(n, bytes[k]);
            assert_memory_equal(text, first[k], n);
            waste_mem_free(text);
        }
    }
    for (k = 0; k < 5; k++) waste_mem_free(first[k]);
}

static void every_effort_converts(void **state)
{
    static const char *const efforts[] = {"fast", "default", "best"};
    char *bank[3];
    size_t n, i;
    waste_error err;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, NULL);
    for (i = 0; i < 3; i++) {
        waste_convert_options opt = {.effort = efforts[i], .overwrite = 1};
        expect(run(&opt, &err), WASTE_DONE, &err, "");
        check_container("block_sparse_moe", WASTE_FMT_Q4G, i ? 0.18 : 0.30);
        bank[i] = load("experts-L1.bin", &n);
    }
    assert_memory_not_equal(bank[0], bank[1], n);
    assert_memory_not_equal(bank[1], bank[2], n);
    for (i = 0; i < 3; i++) waste_mem_free(bank[i]);
}

/* A file for layer 1 alone. */
static void importance_changes_the_layer_it_names(void **state)
{
    char path[600], text[4096], *before[2], *after[2];
    static const char *const files[] = {"experts-L1.bin", "experts-L2.bin"};
    waste_convert_options opt = {.overwrite = 1};
    size_t n = 0, bytes[2], i;
    waste_error err;
    (void)state;
    begin(0, NULL);
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    for (i = 0; i < 2; i++) before[i] = load(files[i], bytes + i);
    n += (size_t)sprintf(text + n, "{\"layers\":{\"1\":{\"gate_up\":[");
    for (i = 0; i < CKPT_HIDDEN; i++)
        n += (size_t)sprintf(text + n, "%s%d", i ? "," : "", (int)(i % 5 * 4 + 1));
    n += (size_t)sprintf(text + n, "],\"down\":[");
    for (i = 0; i < CKPT_WIDTH; i++)
        n += (size_t)sprintf(text + n, "%s%d", i ? "," : "", (int)(i % 3 + 1));
    sprintf(text + n, "]}}}");
    test_text(source, "importance.json", text);
    snprintf(path, sizeof path, "%s/importance.json", source);
    opt.importance = path;
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    check_container("block_sparse_moe", WASTE_FMT_Q4G, 0.30);
    for (i = 0; i < 2; i++) after[i] = load(files[i], bytes + i);
    assert_memory_not_equal(before[0], after[0], bytes[0]);
    assert_memory_equal(before[1], after[1], bytes[1]);
    for (i = 0; i < 2; i++) {
        waste_mem_free(before[i]);
        waste_mem_free(after[i]);
    }
    opt.effort = "fast";
    expect(run(&opt, &err), WASTE_ARG, &err, "importance has no effect");
    opt.effort = NULL;
    test_text(source, "importance.json", "{\"layers\":{\"0\":{}}}");
    expect(run(&opt, &err), WASTE_ARG, &err, "\"0\" is no layer with experts");
}

static void carries_the_text_files_over(void **state)
{
    waste_convert_options opt = {0};
    waste_error err;
    char *text;
    size_t n;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    begin(0, NULL);
    test_text(source, "tiktoken.model", "YQ== 0\n");
    test_text(source, "tokenizer_config.json",
              "{\"added_tokens_decoder\":{\"11\":{\"content\":\"<|im_end|>\"},"
              "\"9\":{\"content\":\"<|im_user|>\"},\"10\":{\"content\":\"<|im_system|>\"},"
              "\"12\":{\"content\":\"<|im_assistant|>\"},\"13\":{\"content\":\"<|im_middle|>\"}},"
              "\"chat_template\":\"{{ messages }}\"}");
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    text = load("tokenizer.model", &n);
    assert_string_equal(text, "YQ== 0\n");
    waste_mem_free(text);
    text = load("specials.json", &n);
    assert_string_equal(text, "[\n{\"id\":9,\"text\":\"<|im_user|>\"},\n"
                              "{\"id\":10,\"text\":\"<|im_system|>\"},\n"
                              "{\"id\":11,\"text\":\"<|im_end|>\"},\n"
                              "{\"id\":12,\"text\":\"<|im_assistant|>\"},\n"
                              "{\"id\":13,\"text\":\"<|im_middle|>\"}\n]\n");
    waste_mem_free(text);
    text = load("chat_template.jinja", &n);
    assert_string_equal(text, "{{ messages }}");
    waste_mem_free(text);
    text = load("chat.json", &n);
    assert_non_null(strstr(text, "\"open\": \"<|im_assistant|>assistant<|im_middle|>\""));
    waste_mem_free(text);

    /* an edited chat.json wins; what the new container lacks goes; and without
     * one of its markers the format is not installed */
    test_text(target, "chat.json", "edited");
    test_text(target, "experts-L9.bin", "old");
    test_text(target, "usage.waste", "old");
    opt.overwrite = 1;
    test_text(source, "tokenizer_config.json",
              "{\"added_tokens_decoder\":{\"11\":{\"content\":\"<|im_end|>\"}}}");
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    text = load("chat.json", &n);
    assert_string_equal(text, "edited");
    waste_mem_free(text);
    assert_false(has("experts-L9.bin") || has("usage.waste") || has("chat_template.jinja"));
    test_dir_remove(target);
    expect(run(&opt, &err), WASTE_DONE, &err, "");
    assert_false(has("chat.json"));

    test_text(source, "tokenizer_config.json",
              "{\"added_tokens_decoder\":{\"2048\":{\"content\":\"x\"}}}");
    expect(run(&opt, &err), WASTE_FORMAT, &err, "added token \"2048\" is no id");
    test_text(source, "tokenizer_config.json", "{\"added_tokens_decoder\":{\"1\":{}}}");
    expect(run(&opt, &err), WASTE_FORMAT, &err, "added token \"1\" has no content");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converts_every_width_and_expert_format),
        cmocka_unit_test(converts_deepseek_names_and_keys),
        cmocka_unit_test(converts_fp8_from_shards),
        cmocka_unit_test(flattens_vision_and_nests_the_outer_configuration),
        cmocka_unit_test(writes_a_tied_head_from_the_embedding),
        cmocka_unit_test(two_runs_are_equal_byte_for_byte),
        cmocka_unit_test(threads_do_not_change_a_byte),
        cmocka_unit_test(every_effort_converts),
        cmocka_unit_test(importance_changes_the_layer_it_names),
        cmocka_unit_test(carries_the_text_files_over),
    };
    return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
