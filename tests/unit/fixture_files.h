/* A small container written from C, for tests that open one and then break it.
 *
 * Three layers of width 16: a dense one and two of eight experts (three stages
 * of 16 entries), one attention layer of each kind, and a trunk of five tensors
 * that stands for a whole one: opening the container works, running a model does
 * not. Every file can be replaced, and the manifest edited as text. */
#ifndef FIXTURE_FILES_H
#define FIXTURE_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/plat.h"
#include "lib/portable.h"
#include "store/record.h"

#define FIXTURE_EXPERTS 8
#define FIXTURE_WIDTH   24 /* moe_intermediate_size */
#define FIXTURE_HIDDEN  16
#define FIXTURE_ENTRIES 16

static const waste_quant fixture_quant = {3, 8, FIXTURE_ENTRIES, 64, 8, 3};

static const char fixture_manifest[] =
    "{\"format_version\": 0, \"arch\": \"x\", \"tensor_prefix\": \"t.\",\n"
    "\"config\": {\"num_hidden_layers\": 3, \"hidden_size\": 16, \"vocab_size\": 20,\n"
    " \"num_attention_heads\": 2, \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 4,\n"
    " \"qk_rope_head_dim\": 4, \"v_head_dim\": 4, \"mla_use_nope\": true,\n"
    " \"linear_attn_config\": {\"kda_layers\": [1, 2], \"num_heads\": 2, \"head_dim\": 4},\n"
    " \"first_k_dense_replace\": 1, \"intermediate_size\": 32, \"num_experts\": 8,\n"
    " \"num_experts_per_token\": 2, \"moe_intermediate_size\": 24, \"rms_norm_eps\": 1e-6,\n"
    " \"architectures\": [\"TestForCausalLM\"], \"_outer\": {\"architectures\": [\"AKimiK3B\"]}},\n"
    "\"expert_quant\": {\"stages\": 3, \"vec_dim\": 8, \"entries\": 16, \"index_block\": 64},\n"
    "\"layers\": {\"1\": {\"file\": \"a.bin\", \"experts\": 8, \"bytes\": 32768,"
    " \"codebook_base\": 0},\n"
    " \"2\": {\"file\": \"b.bin\", \"experts\": 8, \"bytes\": 32768, \"codebook_base\": 10}},\n"
    "\"trunk\": [\n"
    "{\"name\": \"t.model.norm.weight\", \"off\": 360, \"shape\": [16], \"bytes\": 64},\n"
    "{\"name\": \"t.model.embed_tokens.weight\", \"fmt\": 2, \"off\": 0, \"scale_off\": 320,"
    " \"shape\": [20, 16], \"group\": 16, \"bytes\": 360},\n"
    "{\"name\": \"t.lm_head.weight\", \"fmt\": 3, \"off\": 424, \"scale_off\": 584,"
    " \"shape\": [20, 16], \"group\": 16, \"bytes\": 200},\n"
    "{\"name\": \"t.conv.weight\", \"off\": 624, \"shape\": [4, 1, 2], \"bytes\": 32},\n"
    "{\"name\": \"vision.x\", \"off\": 656, \"shape\": [2]}\n"
    "]}\n";

typedef struct fixture {
    char dir[64];
    char manifest[8192]; /* as it is on disk now */
} fixture;

static inline const char *fixture_path(const fixture *f, const char *name)
{
    static char path[4][WASTE_PATH_MAX];
    static int turn;
    char *p = path[turn++ & 3];

    snprintf(p, WASTE_PATH_MAX, "%s/%s", f->dir, name);
    return p;
}

static inline void fixture_put(const fixture *f, const char *name, const void *data, size_t n)
{
    FILE *o = fopen(fixture_path(f, name), "wb");

    if (!o || (n && fwrite(data, n, 1, o) != 1) || fclose(o) != 0) abort();
}

/* Writes `n` bytes over the file's own at `at`. */
static inline void fixture_patch(const fixture *f, const char *name, long at, const void *data,
                                 size_t n)
{
    FILE *o = fopen(fixture_path(f, name), "r+b");

    if (!o || fseek(o, at, SEEK_SET) != 0 || fwrite(data, n, 1, o) != 1 || fclose(o) != 0) abort();
}

/* The manifest with the first `from` replaced by `to`. */
static inline void fixture_edit(fixture *f, const char *from, const char *to)
{
    const char *at = strstr(f->manifest, from);
    char rest[sizeof f->manifest];

    if (!at) abort();
    snprintf(rest, sizeof rest, "%s%s", to, at + strlen(from));
    snprintf(f->manifest + (at - f->manifest), sizeof f->manifest - (size_t)(at - f->manifest),
             "%s", rest);
    fixture_put(f, "manifest.json", f->manifest, strlen(f->manifest));
}

static inline void fixture_reset(fixture *f)
{
    snprintf(f->manifest, sizeof f->manifest, "%s", fixture_manifest);
    fixture_put(f, "manifest.json", f->manifest, strlen(f->manifest));
}

/* Embedding (r, c) is (r + c) * scale, scale 1 on even rows and 2 on odd ones;
 * the norm is 0, 1, 2, ...; the head's codes are c mod 8, its scales 0.5. */
static inline void fixture_trunk(const fixture *f)
{
    unsigned char b[664] = {0};
    uint16_t h;
    float v;
    int r, c;

    for (r = 0; r < 20; r++) {
        for (c = 0; c < 16; c++) b[r * 16 + c] = (unsigned char)(r + c);
        h = r % 2 ? 0x4000 : 0x3c00;
        memcpy(b + 320 + 2 * r, &h, 2);
        for (c = 0; c < 16; c += 2)
            b[424 + r * 8 + c / 2] = (unsigned char)((c % 8 + 8) | (c % 8 + 9) << 4);
        h = 0x3800;
        memcpy(b + 584 + 2 * r, &h, 2);
    }
    for (c = 0; c < 16; c++) {
        v = (float)c;
        memcpy(b + 360 + 4 * c, &v, 4);
        if (c < 8) memcpy(b + 624 + 4 * c, &v, 4);
    }
    fixture_put(f, "trunk.bin", b, sizeof b);
}

/* 19 books; number 9 is padding of zeros, as a resumed conversion leaves it. The
 * f16 bits of entry c, component d of book i are i + c + d: subnormal numbers. */
static inline void fixture_codebooks(const fixture *f)
{
    waste_buf b = {0};
    int i, k;

    for (i = 0; i < 19; i++) {
        waste_codebook_header h = {WASTE_CODEBOOK_MAGIC, (uint16_t)i, 4, 8, FIXTURE_ENTRIES, 0};
        if (i == 9) memset(&h, 0, sizeof h);
        waste_buf_add(&b, &h, sizeof h);
        for (k = 0; k < FIXTURE_ENTRIES * 8; k++) {
            uint16_t v = i == 9 ? 0 : (uint16_t)(i + k / 8 + k % 8);
            waste_buf_add(&b, &v, sizeof v);
        }
    }
    fixture_put(f, "codebooks.bin", b.data, b.len);
    waste_buf_clear(&b);
}

/* Record (layer, expert): every payload byte is layer * 16 + expert. */
static inline void fixture_bank_of(const fixture *f, const char *name, int layer, int codebook,
                                   int experts)
{
    waste_record_layout l;
    unsigned char *r;
    waste_buf b = {0};
    int e;

    waste_record_layout_of(&l, &fixture_quant, FIXTURE_WIDTH, FIXTURE_HIDDEN);
    r = calloc(1, l.bytes);
    for (e = 0; r && e < experts; e++) {
        waste_record_header h = {0};
        memset(r + 48, layer * 16 + e, l.scale_end - 48);
        h.magic = WASTE_EXPERT_MAGIC;
        h.layer = (uint16_t)layer;
        h.expert = (uint16_t)e;
        h.fmt = WASTE_FMT_VQ3R;
        h.codebook = (uint16_t)codebook;
        h.blocks = (uint32_t)(l.bytes / 4096);
        h.gate_off = (uint32_t)l.gate_off;
        h.up_off = (uint32_t)l.up_off;
        h.down_off = (uint32_t)l.down_off;
        h.scale_off = (uint32_t)l.scale_off;
        h.crc32 = waste_record_crc(r, &l);
        memcpy(r, &h, sizeof h);
        waste_buf_add(&b, r, l.bytes);
    }
    fixture_put(f, name, b.data, b.len);
    waste_buf_clear(&b);
    free(r);
}

static inline void fixture_bank(const fixture *f, const char *name, int layer, int codebook)
{
    fixture_bank_of(f, name, layer, codebook, FIXTURE_EXPERTS);
}

static inline void fixture_make(fixture *f)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/waste-test-XXXXXX");
    if (!mkdtemp(f->dir)) abort();
    fixture_reset(f);
    fixture_trunk(f);
    fixture_codebooks(f);
    fixture_bank(f, "a.bin", 1, 0);
    fixture_bank(f, "b.bin", 2, 10);
}

static inline void fixture_remove(const fixture *f)
{
    DIR *d = opendir(f->dir);
    const struct dirent *e;

    while (d && (e = readdir(d)) != NULL) unlink(fixture_path(f, e->d_name));
    if (d) closedir(d);
    rmdir(f->dir);
}

#endif
