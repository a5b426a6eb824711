/* model/config: what the configuration says, what is refused, and what the rest
 * of the manifest has to agree with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "model/config.h"

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

static waste_status read_config(waste_config *c, waste_error *e)
{
    waste_manifest *m;
    waste_status st;

    memset(e, 0, sizeof *e);
    assert_int_equal(waste_manifest_open(&m, box.dir, e), WASTE_OK);
    st = waste_config_read(c, m, e);
    waste_manifest_close(m);
    return st;
}

/* Up to four replacements, then the reading has to fail with `says`, or to work
 * when that is NULL. */
typedef struct edit {
    const char *says;
    const char *change[4][2];
} edit;

static void apply(const edit *x)
{
    size_t i;

    fixture_reset(&box);
    for (i = 0; i < 4 && x->change[i][0]; i++) fixture_edit(&box, x->change[i][0], x->change[i][1]);
}

static void try_edits(const edit *x, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        waste_config c;
        waste_error e;
        waste_status st;
        apply(&x[i]);
        st = read_config(&c, &e);
        if (!x[i].says) {
            if (st) fail_msg("\"%s\" refused: %s", x[i].change[0][1], e.text);
            continue;
        }
        if (st != WASTE_FORMAT) fail_msg("status %d, wanted \"%s\"", st, x[i].says);
        if (!strstr(e.text, x[i].says)) fail_msg("\"%s\" lacks \"%s\"", e.text, x[i].says);
        assert_non_null(strstr(e.text, "manifest.json"));
    }
    fixture_reset(&box);
}

static void reads_shapes_and_defaults(void **state)
{
    waste_config c;
    waste_error e;
    (void)state;
    assert_int_equal(read_config(&c, &e), WASTE_OK);
    assert_int_equal(c.layers, 3);
    assert_int_equal(c.hidden, 16);
    assert_int_equal(c.vocab, 20);
    assert_true(c.eps == 1e-6f);
    assert_int_equal(c.n_kda, 2);
    assert_int_equal(c.n_mla, 1);
    assert_int_equal(c.is_kda[0] + 2 * c.is_kda[1] + 4 * c.is_kda[2], 3); /* 1-based list */
    assert_int_equal(c.taps, 4);
    assert_int_equal(c.experts, 8);
    assert_int_equal(c.top_k, 2);
    assert_int_equal(c.shared_width, 24); /* even without num_shared_experts */
    assert_int_equal(c.expert_in, 16);
    assert_true(c.route_scale == 1.0f);
    assert_int_equal(c.rotate, 0);
    assert_int_equal(c.renorm + c.latent_norm + c.out_gate + c.full_gate + c.situ, 0);
    assert_int_equal(c.eos, -1);
    assert_false(waste_config_is_moe(&c, 0));
    assert_true(waste_config_is_moe(&c, 1));
}

static void bounds_every_number(void **state)
{
    static const edit edits[] = {
        {"num_hidden_layers is missing", {{"\"num_hidden_layers\": 3,", ""}}},
        {"num_hidden_layers is 0", {{"\"num_hidden_layers\": 3", "\"num_hidden_layers\": 0"}}},
        {"num_hidden_layers is 129", {{"\"num_hidden_layers\": 3", "\"num_hidden_layers\": 129"}}},
        {"hidden_size is 128.5", {{"\"hidden_size\": 16", "\"hidden_size\": 128.5"}}},
        {"hidden_size is a string", {{"\"hidden_size\": 16", "\"hidden_size\": \"16\""}}},
        {"hidden_size is an array", {{"\"hidden_size\": 16", "\"hidden_size\": [16]"}}},
        {"hidden_size is missing", {{"\"hidden_size\": 16", "\"hidden_size\": null"}}},
        {NULL, {{"\"hidden_size\": 16", "\"hidden_size\": 1.6e1"}}},
        {"vocab_size is 16777217", {{"\"vocab_size\": 20", "\"vocab_size\": 16777217"}}},
        {"num_attention_heads is 65537",
         {{"\"num_attention_heads\": 2", "\"num_attention_heads\": 65537"}}},
        {"rms_norm_eps is 0", {{"1e-6", "0"}}},
        {"rms_norm_eps is 1", {{"1e-6", "1"}}},
        {"rms_norm_eps", {{"1e-6", "1e-300"}}}, /* zero as a float */
        {"rms_norm_eps is -1", {{"1e-6", "-1"}}},
        {"num_experts is a string", {{"\"num_experts\": 8", "\"num_experts\": \"8\""}}},
        {"num_experts is 65536", {{"\"num_experts\": 8", "\"num_experts\": 65536"}}},
        {"num_experts_per_token is 0", {{"_per_token\": 2", "_per_token\": 0"}}},
        {"num_experts_per_token is 9", {{"_per_token\": 2", "_per_token\": 9"}}},
        {"num_experts_per_token is missing", {{"\"num_experts_per_token\": 2,", ""}}},
        {"moe_intermediate_size is 0",
         {{"\"moe_intermediate_size\": 24", "\"moe_intermediate_size\": 0"}}},
        {"intermediate_size is 0", {{"\"intermediate_size\": 32", "\"intermediate_size\": 0"}}},
        {"first_k_dense_replace is 4",
         {{"\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 4"}}},
        {"num_shared_experts is 65",
         {{"\"num_experts\": 8", "\"num_experts\": 8, \"num_shared_experts\": 65"}}},
        {"attn_res_block_size is 4",
         {{"\"num_experts\": 8", "\"num_experts\": 8, \"attn_res_block_size\": 4"}}},
        {"kv_lora_rank is 0", {{"\"kv_lora_rank\": 8", "\"kv_lora_rank\": 0"}}},
        {"v_head_dim is 0", {{"\"v_head_dim\": 4", "\"v_head_dim\": 0"}}},
        {"num_attention_heads x v_head_dim is 2147483648",
         {{"\"v_head_dim\": 4", "\"v_head_dim\": 65536"},
          {"\"num_attention_heads\": 2", "\"num_attention_heads\": 32768"}}},
        {"num_heads x head_dim",
         {{"\"num_heads\": 2, \"head_dim\": 4", "\"num_heads\": 65536, \"head_dim\": 65536"}}},
        {"num_heads is 0", {{"\"num_heads\": 2", "\"num_heads\": 0"}}},
        {"short_conv_kernel_size is 0",
         {{"\"num_heads\": 2", "\"num_heads\": 2, \"short_conv_kernel_size\": 0"}}},
        {"kda_layers is an integer", {{"[1, 2]", "5"}}},
        {"kda_layers is a string", {{"[1, 2]", "[1, \"2\"]"}}},
        {"linear_attn_config is an array",
         {{"\"linear_attn_config\": {", "\"linear_attn_config\": [1], \"x\": {"}}},
        {"activation_situ_beta is 0",
         {{"\"num_experts\": 8",
           "\"num_experts\": 8, \"hidden_act\": \"situ\", \"activation_situ_beta\": 0"}}},
        {"routed_scaling_factor is 1e+300",
         {{"\"num_experts\": 8", "\"num_experts\": 8, \"routed_scaling_factor\": 1e300"}}},
    };
    (void)state;
    try_edits(edits, sizeof edits / sizeof *edits);
}

static void layer_numbers_out_of_range_are_ignored(void **state)
{
    static const edit x = {NULL, {{"[1, 2]", "[0, -5, 1, 1000000, 4, 3, 3]"}}};
    waste_config c;
    waste_error e;
    (void)state;
    apply(&x);
    assert_int_equal(read_config(&c, &e), WASTE_OK);
    assert_int_equal(c.n_kda, 2);
    assert_int_equal(c.is_kda[0] + 2 * c.is_kda[1] + 4 * c.is_kda[2], 5);
    fixture_reset(&box);
}

static void switches_count_by_presence(void **state)
{
    static const edit on = {NULL,
                            {{"\"num_experts\": 8", "\"num_experts\": 8, \"moe_renormalize\": 0,"
                                                    " \"latent_moe_use_norm\": true"},
                             {"\"num_heads\": 2", "\"num_heads\": 2, \"use_full_rank_gate\": \"\","
                                                  " \"gate_lower_bound\": -5"},
                             {"\"vocab_size\": 20", "\"vocab_size\": 20, \"eos_token_id\": 19,"
                                                    " \"mla_use_output_gate\": {}"}}};
    static const edit off = {
        NULL,
        {{"\"num_experts\": 8",
          "\"num_experts\": 8, \"moe_renormalize\": false, \"latent_moe_use_norm\": null"},
         {"\"num_heads\": 2", "\"num_heads\": 2, \"use_full_rank_gate\": null"},
         {"\"vocab_size\": 20",
          "\"vocab_size\": 20, \"eos_token_id\": [1], \"mla_use_output_gate\": false"}}};
    waste_config c;
    waste_error e;
    (void)state;
    apply(&on);
    assert_int_equal(read_config(&c, &e), WASTE_OK);
    assert_int_equal(c.renorm + c.latent_norm + c.out_gate + c.full_gate, 4);
    assert_int_equal(c.eos, 19);
    assert_true(c.gate_bound == -5.0f);
    apply(&off);
    assert_int_equal(read_config(&c, &e), WASTE_OK);
    assert_int_equal(c.renorm + c.latent_norm + c.out_gate + c.full_gate, 0);
    assert_int_equal(c.eos, -1);
    fixture_reset(&box);
}

#define ROTATED                       \
    {                                 \
        "\"mla_use_nope\": true,", "" \
    }
#define SCALING(s)                                                       \
    {                                                                    \
        "\"vocab_size\": 20", "\"vocab_size\": 20, \"rope_scaling\": " s \
    }

static void rotary_rules_are_kept(void **state)
{
    static const edit edits[] = {
        {"mla_use_nope is an integer", {{"\"mla_use_nope\": true", "\"mla_use_nope\": 1"}}},
        {"mla_use_nope is a string", {{"\"mla_use_nope\": true", "\"mla_use_nope\": \"true\""}}},
        {"mla_use_nope is null", {{"\"mla_use_nope\": true", "\"mla_use_nope\": null"}}},
        {NULL, {SCALING("5")}}, /* nothing rotates: not looked at */
        {NULL, {ROTATED, SCALING("{}")}},
        {NULL, {ROTATED, SCALING("null")}},
        {"rope_scaling is an integer", {ROTATED, SCALING("5")}},
        {"type of rope_scaling is nothing", {ROTATED, SCALING("{\"factor\": 1}")}},
        {"type of rope_scaling is null",
         {ROTATED, SCALING("{\"type\": null, \"rope_type\": \"yarn\"}")}},
        {"type of rope_scaling is dynamic", {ROTATED, SCALING("{\"type\": \"dynamic\"}")}},
        {NULL, {ROTATED, SCALING("{\"rope_type\": \"yarn\"}")}},
        {"mscale is 1 and mscale_all_dim is 0",
         {ROTATED, SCALING("{\"type\": \"yarn\", \"factor\": 4}")}},
        {"factor is a string", {ROTATED, SCALING("{\"type\": \"yarn\", \"factor\": \"4\"}")}},
        {"beta_fast is 0",
         {ROTATED, SCALING("{\"type\": \"yarn\", \"factor\": 4, \"mscale\": 0, "
                           "\"beta_fast\": 0}")}},
        {"rope_theta is 1",
         {ROTATED, {"\"vocab_size\": 20", "\"vocab_size\": 20, \"rope_theta\": 1"}}},
        {"qk_rope_head_dim is 130",
         {ROTATED, {"\"qk_rope_head_dim\": 4", "\"qk_rope_head_dim\": 130"}}},
        {"qk_rope_head_dim is 7",
         {ROTATED, {"\"qk_rope_head_dim\": 4", "\"qk_rope_head_dim\": 7"}}},
        {NULL, {ROTATED, {"\"qk_rope_head_dim\": 4", "\"qk_rope_head_dim\": 1"}}},
        {NULL, {{"\"qk_rope_head_dim\": 4", "\"qk_rope_head_dim\": 4096"}}},
    };
    static const edit yarn = {
        NULL,
        {ROTATED,
         SCALING("{\"type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 1, \"mscale\": 0.5,"
                 " \"mscale_all_dim\": 0.5}")}};
    static const edit plain = {
        NULL, {ROTATED, SCALING("{\"type\": \"yarn\", \"factor\": 1, \"mscale\": 7}")}};
    waste_config c;
    waste_error e;
    (void)state;
    try_edits(edits, sizeof edits / sizeof *edits);
    apply(&yarn);
    assert_int_equal(read_config(&c, &e), WASTE_OK);
    assert_int_equal(c.rotate, 1);
    assert_true(c.rope_factor == 32 && c.rope_base == 10000 && c.rope_original == 4096);
    assert_true(c.rope_beta_fast == 1 && c.rope_beta_slow == 1 && c.rope_mscale_all == 0.5);
    apply(&plain); /* a factor of one comes before the rule on mscale */
    assert_int_equal(read_config(&c, &e), WASTE_OK);
    assert_true(c.rotate && c.rope_factor == 1 && c.rope_mscale_all == 0);
    fixture_reset(&box);
}

static void banks_agree_with_the_configuration(void **state)
{
    static const edit edits[] = {
        {"layer 0 has the bank a.bin", {{"{\"1\"", "{\"0\""}}},
        {"layer 1 has no bank", {{"{\"1\"", "{\"5\""}}},
        {"layer 1 has the bank",
         {{"\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 2"}}},
        {"layer 1 has the bank", {{"\"num_experts\": 8", "\"num_experts\": 0"}}},
        {"layer 1 has experts 8", {{"\"num_experts\": 8", "\"num_experts\": 7"}}},
        {"layer 1 (a.bin) has records of 8192", {{"\"bytes\": 32768", "\"bytes\": 65536"}}},
        {"codebook_base 10 and needs 12", {{"\"stages\": 3", "\"stages\": 4"}}},
        {"codebook_base 11 and needs 9", {{"\"codebook_base\": 10", "\"codebook_base\": 11"}}},
        {"vec_dim 8 does not divide",
         {{"\"moe_intermediate_size\": 24", "\"moe_intermediate_size\": 23"}}},
        {"vec_dim 8 does not divide routed_expert_hidden_size 12",
         {{"\"num_experts\": 8", "\"num_experts\": 8, \"routed_expert_hidden_size\": 12"}}},
        {NULL,
         {{"{\"1\"", "{\"77\": {\"file\": \"q\", \"experts\": 1, \"bytes\": 1,"
                     " \"codebook_base\": 0}, \"1\""}}},
    };
    (void)state;
    try_edits(edits, sizeof edits / sizeof *edits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_shapes_and_defaults),
        cmocka_unit_test(bounds_every_number),
        cmocka_unit_test(layer_numbers_out_of_range_are_ignored),
        cmocka_unit_test(switches_count_by_presence),
        cmocka_unit_test(rotary_rules_are_kept),
        cmocka_unit_test(banks_agree_with_the_configuration),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
