/* convert/: whole conversions of small checkpoints, what they leave on disk, and
 * what is refused before anything is written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/plat.h"
#include "convert/source.h"
#include "convert/vq.h"
#include "emulated.h"
#include "kernels/quant.h"
#include "lib/checkpoint.h"
#include "model/config.h"
#include "store/record.h"

static char source[256], target[300];

static int make_dirs(void **state)
{
    (void)state;
    test_dir(source);
    snprintf(target, sizeof target, "%s.waste", source);
    return 0;
}

static int remove_dirs(void **state)
{
    (void)state;
    test_dir_remove(source);
    test_dir_remove(target);
    return 0;
}

static waste_status run(const waste_convert_options *opt, waste_error *err)
{
    waste_convert *c;
    waste_convert_row row;
    waste_status st;
    uint64_t done = 0;

    memset(err, 0, sizeof *err);
    st = waste_convert_open(&c, source, target, opt, err);
    while (!st) {
        st = waste_convert_next(c, &row, err);
        if (st < 0) break;
        assert_true(row.done >= done && row.done <= row.total);
        done = row.done;
    }
    if (st == WASTE_DONE) assert_int_equal(row.done, row.total);
    waste_convert_close(c);
    return st;
}

static void expect(waste_status got, waste_status want, const waste_error *err, const char *about)
{
    if (got != want) fail_msg("status %d, wanted %d: %s", got, want, err->text);
    if (!strstr(err->text, about)) fail_msg("\"%s\" does not say \"%s\"", err->text, about);
}

static char *load(const char *name, size_t *bytes)
{
    char path[600], *data;
    waste_error err = {0};

    snprintf(path, sizeof path, "%s/%s", target, name);
    assert_int_equal(waste_file_load(path, 1 << 28, &data, bytes, &err), WASTE_OK);
    return data;
}

static int has(const char *name)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", target, name);
    return waste_path_exists(path);
}

/* ---- what is in a container ------------------------------------------------------ */

static void decode_trunk(const waste_trunk_entry *e, const char *trunk, float *to)
{
    int64_t bytes = waste_quant_row_bytes(e->fmt, e->cols, e->group), r;

    for (r = 0; r < e->rows; r++) {
        int64_t groups = e->group ? (e->cols + e->group - 1) / e->group : 0;
        waste_quant_decode_row(e->fmt, trunk + e->off + (uint64_t)(r * bytes),
                               trunk + e->scale_off + (uint64_t)(2 * r * groups), e->cols, e->group,
                               to + r * e->cols);
    }
}

static double distance(const float *a, const float *b, int64_t n)
{
    double wrong = 0, all = 0;
    int64_t i;

    for (i = 0; i < n; i++) {
        wrong += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)a[i] * (double)a[i];
    }
    return sqrt(wrong / all);
}

/* Every trunk tensor against the weight it came from. */
static void compare_trunk(const waste_manifest *m, waste_source *s, waste_fmt matrix)
{
    static const double bound[] = {[WASTE_FMT_F32] = 1e-9,
                                   [WASTE_FMT_Q8G] = 0.01,
                                   [WASTE_FMT_Q4G] = 0.15,
                                   [WASTE_FMT_Q3G] = 0.35};
    size_t i, bytes, seen = 0;
    char *trunk = load("trunk.bin", &bytes), name[256];
    waste_error err = {0};

    for (i = 0; i < m->n_trunk; i++) {
        const waste_trunk_entry *e = m->trunk + i;
        const char *moe = strstr(e->name, ".block_sparse_moe.");
        float *got = malloc((size_t)(e->rows * e->cols) * sizeof *got), *want;
        waste_weight w;

        snprintf(name, sizeof name, "%s", e->name);
        if (moe && !waste_source_has(s, name))
            snprintf(name, sizeof name, "%.*s.mlp.%s", (int)(moe - e->name), e->name,
                     moe + strlen(".block_sparse_moe."));
        if (!waste_source_has(s, name)) strcpy(name, "model.embed_tokens.weight"); /* tied */
        assert_int_equal(waste_weight_find(s, name, &w, &err), WASTE_OK);
        assert_int_equal(w.rows * w.cols, e->rows * e->cols);
        want = malloc((size_t)(w.rows * w.cols) * sizeof *want);
        assert_int_equal(waste_weight_rows(s, &w, 0, w.rows, want, &err), WASTE_OK);
        decode_trunk(e, trunk, got);
        if (distance(want, got, w.rows * w.cols) > bound[e->fmt])
            fail_msg("%s is %g off", e->name, distance(want, got, w.rows * w.cols));
        seen += e->fmt == matrix;
        free(got);
        free(want);
    }
    assert_true(seen >= 3); /* the dense layer's matrices */
    waste_mem_free(trunk);
}

static int index_at(const waste_quant *q, const unsigned char *p, int s)
{
    uint32_t u;

    if (q->index_bits == 8) return p[s];
    u = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
    return (int)(u >> 6 * s & 63);
}

static void decode_matrix(const waste_quant *q, const unsigned char *books, int first,
                          const unsigned char *indices, const unsigned char *scales, int rows,
                          int cols, float *to)
{
    const size_t bytes = waste_vq_book_bytes(q);
    int r, v, s, d;

    for (r = 0; r < rows; r++)
        for (v = 0; v < cols / 8; v++)
            for (d = 0; d < 8; d++) {
                const unsigned char *p = indices + waste_record_index_pos(q, cols / 8, r, v);
                float sum = 0;
                for (s = 0; s < q->stages; s++) {
                    const unsigned char *e =
                        books + (size_t)(first + s) * bytes + 16 + 2 * (index_at(q, p, s) * 8 + d);
                    sum += waste_f16_to_f32((uint16_t)(e[0] | e[1] << 8));
                }
                to[r * cols + v * 8 + d] =
                    sum * waste_f16_to_f32((uint16_t)(scales[2 * r] | scales[2 * r + 1] << 8));
            }
}

static void compare_experts(const waste_manifest *m, waste_source *s, const char *names,
                            double bound)
{
    const char *const kind[] = {strstr(names, "mlp") ? "gate_proj" : "w1",
                                strstr(names, "mlp") ? "up_proj" : "w3",
                                strstr(names, "mlp") ? "down_proj" : "w2"};
    size_t bytes;
    char *books = load("codebooks.bin", &bytes), name[256];
    waste_record_layout l;
    waste_record_header h;
    waste_error err = {0};
    int layer, e, k;

    assert_int_equal(bytes, 2u * 3u * (size_t)m->quant.stages * waste_vq_book_bytes(&m->quant));
    waste_record_layout_of(&l, &m->quant, CKPT_WIDTH, CKPT_HIDDEN);
    for (layer = 1; layer < CKPT_LAYERS; layer++) {
        const waste_bank_entry *b = m->bank + layer;
        char *bank = load(b->file, &bytes);
        assert_int_equal(bytes, CKPT_EXPERTS * l.bytes);
        for (e = 0; e < CKPT_EXPERTS; e++) {
            const unsigned char *r = (unsigned char *)bank + (size_t)e * l.bytes;
            const uint64_t part[] = {l.gate_off, l.up_off, l.down_off};
            const unsigned char *scales = r + l.scale_off;
            memcpy(&h, r, sizeof h);
            assert_int_equal(waste_record_check(&h, &l, &m->quant, layer, e, b->codebook_base,
                                                b->record_bytes, b->file, &err),
                             WASTE_OK);
            assert_int_equal(waste_record_crc(r, &l), h.crc32);
            for (k = 0; k < 3; k++) {
                int rows = k == 2 ? CKPT_HIDDEN : CKPT_WIDTH,
                    cols = k == 2 ? CKPT_WIDTH : CKPT_HIDDEN;
                float got[CKPT_WIDTH * CKPT_HIDDEN], want[CKPT_WIDTH * CKPT_HIDDEN];
                waste_weight w;
                snprintf(name, sizeof name, "%smodel.layers.%d.%s.experts.%d.%s.weight", m->prefix,
                         layer, names, e, kind[k]);
                assert_int_equal(waste_weight_find(s, name, &w, &err), WASTE_OK);
                assert_int_equal(waste_weight_rows(s, &w, 0, rows, want, &err), WASTE_OK);
                decode_matrix(&m->quant, (unsigned char *)books, h.codebook + k * m->quant.stages,
                              r + part[k], scales, rows, cols, got);
                if (distance(want, got, rows * cols) > bound)
                    fail_msg("%s is %g off", name, distance(want, got, rows * cols));
                scales += 2 * rows;
            }
        }
        waste_mem_free(bank);
    }
    waste_mem_free(books);
}

static void check_container(const char *names, waste_fmt matrix, double bound)
{
    waste_manifest *m;
    waste_config config;
    waste_source *s;
    waste_error err = {0};

    if (waste_manifest_open(&m, target, &err)) fail_msg("%s", err.text);
    if (waste_config_read(&config, m, &err)) fail_msg("%s", err.text);
    assert_int_equal(waste_source_open(&s, source, &err), WASTE_OK);
    compare_trunk(m, s, matrix);
    compare_experts(m, s, names, bound);
    waste_source_close(s);
    waste_manifest_close(m);
}

static void clean(void)
{
    test_dir_remove(source);
    test_dir_remove(target);
    assert_int_equal(waste_path_make_dir(source, NULL), WASTE_OK);
}

/* ---- conversions -------------------------------------------------------------------- */

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
        clean();
        ckpt_model(source, 0, NULL);
        expect(run(&opt, &err), WASTE_DONE, &err, "");
        check_container("block_sparse_moe", want[i].matrix, want[i].bound);
    }
}

static void converts_deepseek_names_and_keys(void **state)
{
    waste_error err;
    waste_manifest *m;
    (void)state;
    clean();
    ckpt_model(source, CKPT_DEEPSEEK, NULL);
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
        clean();
        ckpt_model(source, flags[i], NULL);
        expect(run(NULL, &err), WASTE_DONE, &err, "");
        check_container(i ? "block_sparse_moe" : "mlp", WASTE_FMT_Q4G, 0.30);
    }
    clean();
    ckpt_model(source, flags[0], "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv");
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
    clean();
    ckpt_model(source, CKPT_NESTED | CKPT_PACKED, NULL);
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
    clean();
    ckpt_model(source, CKPT_TIED, NULL);
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
    clean();
    ckpt_model(source, CKPT_PACKED, NULL);
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

/* Whoever did the work and however many they were. */
static void threads_do_not_change_a_byte(void **state)
{
    static const int threads[] = {1, 2, 7};
    static const char *const files[] = {"codebooks.bin", "experts-L1.bin", "experts-L2.bin",
                                        "trunk.bin", "manifest.json"};
    char *first[5];
    size_t bytes[5], n, i, k;
    waste_error err;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    clean();
    ckpt_model(source, CKPT_PACKED, NULL);
    for (i = 0; i < 3; i++) {
        waste_convert_options opt = {.threads = threads[i], .overwrite = 1};
        expect(run(&opt, &err), WASTE_DONE, &err, "");
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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

/* ---- refusals ------------------------------------------------------------------------- */

static void refuses_options_and_targets_by_name(void **state)
{
    waste_convert_options bits = {.trunk_bits = 5}, form = {.experts = "vq9"};
    waste_convert *c;
    waste_error err;
    char path[600];
    (void)state;
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, 0, "model.layers.1.self_attn.kv_b_proj.weight");
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, CKPT_SHARDS, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, CKPT_SHARDS, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, 0, NULL);
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
    clean();
    ckpt_model(source, CKPT_NESTED | CKPT_PACKED, NULL);
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
        cmocka_unit_test(converts_every_width_and_expert_format),
        cmocka_unit_test(converts_deepseek_names_and_keys),
        cmocka_unit_test(flattens_vision_and_nests_the_outer_configuration),
        cmocka_unit_test(writes_a_tied_head_from_the_embedding),
        cmocka_unit_test(two_runs_are_equal_byte_for_byte),
        cmocka_unit_test(threads_do_not_change_a_byte),
        cmocka_unit_test(every_effort_converts),
        cmocka_unit_test(importance_changes_the_layer_it_names),
        cmocka_unit_test(carries_the_text_files_over),
        cmocka_unit_test(refuses_options_and_targets_by_name),
        cmocka_unit_test(counts_what_the_checkpoint_lacks),
        cmocka_unit_test(refuses_configurations_by_key),
        cmocka_unit_test(names_weights_that_are_not_finite),
        cmocka_unit_test(converts_fp8_from_shards),
        cmocka_unit_test(closing_early_is_gone_on_with),
        cmocka_unit_test(a_publication_is_finished_by_the_next_run),
        cmocka_unit_test(leftovers_are_not_believed),
        cmocka_unit_test(a_trial_publishes_nothing_and_is_gone_on_with),
        cmocka_unit_test(two_conversions_exclude_each_other),
        cmocka_unit_test(an_old_container_stays_until_the_new_one_is_there),
        cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(a_failed_conversion_stays_failed),
        cmocka_unit_test(leaves_nothing_behind_when_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
