/* Directories for unit tests: a byte tokenizer, and a model whose next token
 * depends on nothing but the last one, so that a test decides what it says.
 *
 * The model has one MLA layer whose outputs are all zero: the embedding, a
 * one-hot vector, reaches the head unchanged, and head[to][from] decides. */
#ifndef TINY_H
#define TINY_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/portable.h"

#define TINY_PATH 512

static const char *const tiny_files[] = {"tokenizer.model", "specials.json", "chat.json",
                                         "manifest.json",   "trunk.bin",     "codebooks.bin"};

static inline void tiny_dir(char *dir)
{
    snprintf(dir, TINY_PATH, "%s/tests/unit/tiny-XXXXXX", TEST_BUILD);
    assert_non_null(mkdtemp(dir));
}

static inline FILE *tiny_file(const char *dir, const char *name)
{
    char path[TINY_PATH + 32];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}

static inline void tiny_put(const char *dir, const char *name, const char *text)
{
    FILE *f = tiny_file(dir, name);

    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static inline void tiny_remove(const char *dir)
{
    char path[TINY_PATH + 32];
    size_t i;

    for (i = 0; i < sizeof tiny_files / sizeof *tiny_files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, tiny_files[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
}

static inline void tiny_base64(FILE *f, const unsigned char *s, size_t n)
{
    static const char d[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t i;

    for (i = 0; i < n; i += 3) {
        unsigned v = (unsigned)s[i] << 16 | (i + 1 < n ? (unsigned)s[i + 1] << 8 : 0) |
                     (i + 2 < n ? s[i + 2] : 0);
        fprintf(f, "%c%c%c%c", d[v >> 18], d[v >> 12 & 63], i + 1 < n ? d[v >> 6 & 63] : '=',
                i + 2 < n ? d[v & 63] : '=');
    }
}

/* Token i < 256 is the byte i; then `words`, then `specials` (NULL ends each).
 * Returns the size of the vocabulary. */
static inline int tiny_tokenizer(const char *dir, const char *const *words,
                                 const char *const *specials)
{
    FILE *f = tiny_file(dir, "tokenizer.model");
    int n = 0, i;

    for (; n < 256; n++) {
        unsigned char c = (unsigned char)n;
        tiny_base64(f, &c, 1);
        fprintf(f, " %d\n", n);
    }
    for (i = 0; words[i]; i++, n++) {
        tiny_base64(f, (const unsigned char *)words[i], strlen(words[i]));
        fprintf(f, " %d\n", n);
    }
    assert_int_equal(fclose(f), 0);
    f = tiny_file(dir, "specials.json");
    fputc('[', f);
    for (i = 0; specials[i]; i++, n++)
        fprintf(f, "%s{\"id\": %d, \"text\": \"%s\"}", i ? ", " : "", n, specials[i]);
    fputc(']', f);
    assert_int_equal(fclose(f), 0);
    return n;
}

typedef struct tiny_edge {
    int from, to;
    float logit;
} tiny_edge;

static inline void tiny_tensor(FILE *f, long *off, const char *name, int rows, int cols)
{
    fprintf(f, "%s{\"name\": \"%s\", \"fmt\": 0, \"off\": %ld, \"shape\": ", *off ? ",\n" : "",
            name, *off);
    if (cols)
        fprintf(f, "[%d, %d]}", rows, cols);
    else
        fprintf(f, "[%d]}", rows);
    *off += (long)rows * (cols ? cols : 1) * 4;
}

static inline void tiny_floats(FILE *f, const float *v, size_t n)
{
    assert_int_equal(fwrite(v, sizeof *v, n, f), n);
}

/* Writes manifest.json, trunk.bin and codebooks.bin of a model with n tokens. All
 * logits are 0 but those of the edges. */
static inline void tiny_model(const char *dir, int n, int eos, const tiny_edge *edge, size_t n_edge)
{
    static const char *const zero[] = {"self_attn.q_proj",    "self_attn.kv_a_proj_with_mqa",
                                       "self_attn.kv_b_proj", "self_attn.o_proj",
                                       "mlp.gate_proj",       "mlp.up_proj",
                                       "mlp.down_proj"};
    const int shape[][2] = {{2, n}, {2, n}, {2, 1}, {n, 1}, {1, n}, {1, n}, {n, 1}};
    FILE *m = tiny_file(dir, "manifest.json"), *t = tiny_file(dir, "trunk.bin");
    size_t square = (size_t)n * (size_t)n, i;
    float *v = calloc(square, sizeof *v);
    char name[128];
    long off = 0;

    assert_non_null(v);
    fprintf(
        m,
        "{\"format_version\": 0, \"config\": {\"hidden_size\": %d, \"num_hidden_layers\": 1,"
        " \"first_k_dense_replace\": 1, \"intermediate_size\": 1, \"num_attention_heads\": 1,"
        " \"qk_nope_head_dim\": 1, \"qk_rope_head_dim\": 1, \"v_head_dim\": 1,"
        " \"kv_lora_rank\": 1, \"mla_use_nope\": true, \"rms_norm_eps\": 1e-12, \"vocab_size\": %d,"
        " \"eos_token_id\": %d},\n\"layers\": {}, \"trunk\": [\n",
        n, n, eos);
    tiny_tensor(m, &off, "model.embed_tokens.weight", n, n);
    for (i = 0; i < (size_t)n; i++) v[i * (size_t)n + i] = 1;
    tiny_floats(t, v, square);

    /* the last norm turns the one-hot vector's 1 into sqrt(n) */
    tiny_tensor(m, &off, "lm_head.weight", n, n);
    memset(v, 0, square * sizeof *v);
    for (i = 0; i < n_edge; i++)
        v[(size_t)edge[i].to * (size_t)n + (size_t)edge[i].from] = edge[i].logit / sqrtf((float)n);
    tiny_floats(t, v, square);

    for (i = 0; i < (size_t)n; i++) v[i] = 1;
    tiny_tensor(m, &off, "model.norm.weight", n, 0);
    tiny_floats(t, v, (size_t)n);
    tiny_tensor(m, &off, "model.layers.0.input_layernorm.weight", n, 0);
    tiny_floats(t, v, (size_t)n);
    tiny_tensor(m, &off, "model.layers.0.post_attention_layernorm.weight", n, 0);
    tiny_floats(t, v, (size_t)n);
    tiny_tensor(m, &off, "model.layers.0.self_attn.kv_a_layernorm.weight", 1, 0);
    tiny_floats(t, v, 1);
    memset(v, 0, square * sizeof *v);
    for (i = 0; i < sizeof zero / sizeof *zero; i++) {
        snprintf(name, sizeof name, "model.layers.0.%s.weight", zero[i]);
        tiny_tensor(m, &off, name, shape[i][0], shape[i][1]);
        tiny_floats(t, v, (size_t)(shape[i][0] * shape[i][1]));
    }
    fprintf(m, "\n]}\n");
    free(v);
    assert_int_equal(fclose(m), 0);
    assert_int_equal(fclose(t), 0);
    tiny_put(dir, "codebooks.bin", "");
}

#endif
