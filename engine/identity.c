/* What a model computes, as a number (waste.h): so that state which was made by
 * another model of the same name is never taken up.
 *
 * A container holds no digest of itself, and reading all of it may take half an
 * hour. So this hashes the whole manifest, of every tensor its first, middle and
 * last bytes, and of every bank the headers of three records, which carry the
 * crc32 of the record. Training changes every tensor, conversion every code: no two
 * models that differ in earnest agree in all of that. Any thread. */
#include "base/mem.h"
#include "base/plat.h"
#include "internal.h"
#include "model/state.h"

#define PIECE 4096         /* bytes of a sample */
#define WHOLE (16 * PIECE) /* what is no longer than this is hashed whole */
#define LARGE ((uint64_t)1 << 30)

typedef struct sampler {
    const char *dir;
    waste_file file;
    char path[WASTE_PATH_MAX];
    unsigned char *buf; /* WHOLE bytes */
    uint64_t hash;
    waste_error *err;
} sampler;

static waste_status take(sampler *s, uint64_t at, uint64_t bytes)
{
    waste_status st = waste_file_read(&s->file, s->path, s->buf, (size_t)bytes, at, s->err);

    if (!st) s->hash = waste_state_hash(s->hash, s->buf, (size_t)bytes);
    return st;
}

static waste_status take_range(sampler *s, uint64_t at, uint64_t bytes)
{
    waste_status st;

    if (bytes <= WHOLE) return bytes ? take(s, at, bytes) : WASTE_OK;
    st = take(s, at, PIECE);
    if (!st) st = take(s, at + bytes / 2, PIECE);
    return st ? st : take(s, at + bytes - PIECE, PIECE);
}

static waste_status begin(sampler *s, const char *name)
{
    waste_status st = waste_path_join(s->path, sizeof s->path, s->dir, name, s->err);

    return st ? st : waste_file_open(&s->file, s->path, s->err);
}

static waste_status sample_trunk(sampler *s, const waste_manifest *m)
{
    waste_status st = begin(s, "trunk.bin");
    size_t i;

    for (i = 0; i < m->n_trunk && !st; i++) {
        st = take_range(s, m->trunk[i].off, m->trunk[i].payload_bytes);
        if (!st) st = take_range(s, m->trunk[i].scale_off, m->trunk[i].scale_bytes);
    }
    waste_file_close(&s->file);
    return st;
}

static waste_status sample_bank(sampler *s, const waste_bank_entry *b)
{
    waste_status st = begin(s, b->file);
    int k;

    for (k = 0; k < 3 && !st; k++) {
        const uint64_t expert = (uint64_t)(b->experts - 1) * (uint64_t)k / 2;
        st = take(s, expert * b->record_bytes, WASTE_RECORD_HEADER);
    }
    waste_file_close(&s->file);
    return st;
}

static waste_status sample_codebooks(sampler *s)
{
    uint64_t bytes = 0;
    waste_status st = begin(s, "codebooks.bin");

    if (!st) st = waste_file_size(&s->file, s->path, &bytes, s->err);
    if (!st) st = take_range(s, 0, bytes);
    waste_file_close(&s->file);
    return st;
}

/* The whole of a file that need not be there. */
static waste_status add_file(const char *dir, const char *name, uint64_t *hash, waste_error *err)
{
    char path[WASTE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    waste_status st = waste_path_join(path, sizeof path, dir, name, err);

    if (st || !waste_path_exists(path)) return st;
    st = waste_file_load(path, LARGE, &data, &bytes, err);
    if (!st) *hash = waste_state_hash(*hash, data, bytes);
    waste_mem_free(data);
    return st;
}

static waste_status sample(const waste_container *c, const waste_model_options *o,
                           waste_identity *out, waste_error *err)
{
    static const char *const text[] = {"tokenizer.model", "tiktoken.model", "specials.json",
                                       "chat.json"};
    const waste_manifest *m = c->manifest;
    const int32_t how[2] = {(int32_t)o->precision, (int32_t)o->kv};
    sampler s = {.dir = m->dir, .file = {WASTE_FILE_CLOSED}, .err = err};
    waste_status st;
    size_t i;

    s.hash = waste_state_hash(0, how, sizeof how);
    s.buf = waste_mem_alloc(WHOLE);
    if (!s.buf) return waste_fail(err, WASTE_NOMEM, "out of memory identifying %s", m->dir);
    st = add_file(m->dir, "manifest.json", &s.hash, err);
    if (!st) st = sample_trunk(&s, m);
    for (i = 0; i < WASTE_MAX_LAYERS && !st; i++)
        if (m->bank[i].file && m->bank[i].experts > 0) st = sample_bank(&s, &m->bank[i]);
    if (!st && c->info.moe_layers) st = sample_codebooks(&s);
    waste_mem_free(s.buf);
    out->weights = s.hash;
    out->text = 0;
    for (i = 0; i < sizeof text / sizeof *text && !st; i++)
        st = add_file(m->dir, text[i], &out->text, err);
    return st;
}

waste_status waste_model_identity(waste_model *m, waste_identity *out, waste_error *err)
{
    waste_status st;

    out->weights = out->text = 0;
    if (!m) return waste_fail(err, WASTE_ARG, "waste_model_identity: no model");
    st = waste_model_here(m, err);
    if (st) return st;
    pthread_mutex_lock(&m->turn);
    if (m->has_identity) *out = m->identity;
    st = m->has_identity ? WASTE_DONE : WASTE_OK;
    pthread_mutex_unlock(&m->turn);
    if (st) return WASTE_OK;

    st = sample(m->container, &m->options, out, err);
    if (st) return st;
    pthread_mutex_lock(&m->turn);
    m->identity = *out;
    m->has_identity = 1;
    pthread_mutex_unlock(&m->turn);
    return WASTE_OK;
}
