/* State of one sequence: see sequence.h. The KDA part is one block of fixed
 * size, zero at the start; latents come in blocks and are never moved. Before each
 * block stands how many sequences hold it. What always holds: a block that more
 * than one holds is full. */
#include "model/sequence.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

static size_t kda_channels(const waste_config *c)
{
    return (size_t)c->kda_heads * (size_t)c->kda_dim;
}

#define BLOCK_HEAD 64 /* of each block, before its floats; keeps them aligned */

size_t waste_sequence_state_floats(const waste_config *c)
{
    return kda_channels(c) * (size_t)c->kda_dim;
}

size_t waste_sequence_ring_floats(const waste_config *c)
{
    return 3 * kda_channels(c) * (size_t)(c->taps - 1);
}

size_t waste_sequence_latent_floats(const waste_config *c)
{
    return (size_t)c->kv_rank + (size_t)c->rope_dim;
}

/* Floats of one KDA layer: at most 2^31 * 2^16 + 3 * 2^31 * 63 (docs/format.md 2.5). */
static size_t kda_floats(const waste_config *c)
{
    return waste_sequence_state_floats(c) + waste_sequence_ring_floats(c);
}

/* Of all KDA layers; 0, which no allocation gives, when that is no size. */
static size_t fixed_bytes(const waste_config *c)
{
    const size_t n = kda_floats(c), most = SIZE_MAX / sizeof(float);

    return n > most / (size_t)c->n_kda ? 0 : n * (size_t)c->n_kda * sizeof(float);
}

size_t waste_sequence_latent_bytes(const waste_config *c, waste_kv kv)
{
    return waste_sequence_latent_floats(c) *
           (kv == WASTE_KV_F16 ? sizeof(uint16_t) : sizeof(float));
}

static size_t block_bytes(const waste_config *c, waste_kv kv)
{
    return BLOCK_HEAD + WASTE_LATENT_BLOCK * waste_sequence_latent_bytes(c, kv);
}

/* ---- blocks ---------------------------------------------------------------- */

static _Atomic int *holders(void *block)
{
    return (_Atomic int *)(void *)((char *)block - BLOCK_HEAD);
}

static void *block_new(size_t bytes)
{
    char *p = waste_mem_pages(bytes);

    if (!p) return NULL;
    atomic_init(holders(p + BLOCK_HEAD), 1);
    return p + BLOCK_HEAD;
}

/* 1 when that was the last hold. */
static int block_release(void *block)
{
    if (atomic_fetch_sub(holders(block), 1) != 1) return 0;
    waste_mem_free((char *)block - BLOCK_HEAD);
    return 1;
}

/* ---- sequences --------------------------------------------------------------- */

static size_t blocks_for(int64_t positions)
{
    return (size_t)(positions / WASTE_LATENT_BLOCK + (positions % WASTE_LATENT_BLOCK != 0));
}

/* Without the blocks themselves. The table of them has room for twice as many at
 * most. */
static uint64_t own_bytes(const waste_config *c, int64_t positions)
{
    uint64_t n = sizeof(waste_seq);

    if (c->n_kda) n += (uint64_t)c->n_kda * kda_floats(c) * sizeof(float);
    if (c->n_mla) n += (uint64_t)c->n_mla * blocks_for(positions) * 2 * sizeof(void *);
    return n;
}

uint64_t waste_sequence_bytes(const waste_config *c, waste_kv kv, int64_t positions)
{
    return own_bytes(c, positions) +
           (c->n_mla ? (uint64_t)c->n_mla * blocks_for(positions) * block_bytes(c, kv) : 0);
}

uint64_t waste_sequence_fork_bytes(const waste_seq *s)
{
    const int tail = s->length % WASTE_LATENT_BLOCK != 0;

    return own_bytes(s->config, s->length) +
           (tail ? (uint64_t)s->config->n_mla * block_bytes(s->config, s->kv) : 0);
}

waste_status waste_sequence_new(waste_seq **out, waste_model *m, const waste_config *c, waste_kv kv,
                                waste_error *err)
{
    waste_seq *s = waste_mem_zero(sizeof *s);
    float *at;
    int i, j;

    *out = NULL;
    if (s && c->n_kda) s->fixed = waste_mem_pages(fixed_bytes(c));
    if (!s || (c->n_kda && !s->fixed)) {
        waste_sequence_free(s);
        return waste_fail(err, WASTE_NOMEM, "out of memory for a sequence of %llu bytes",
                          (unsigned long long)waste_sequence_bytes(c, kv, 0));
    }
    s->model = m;
    s->config = c;
    s->kv = kv;
    at = s->fixed;
    for (i = 0; i < c->layers; i++) {
        if (!c->is_kda[i]) continue;
        s->layer[i].state = at;
        at += kda_channels(c) * (size_t)c->kda_dim;
        for (j = 0; j < 3; j++, at += kda_channels(c) * (size_t)(c->taps - 1))
            s->layer[i].ring[j] = at;
    }
    *out = s;
    return WASTE_OK;
}

uint64_t waste_sequence_free(waste_seq *s)
{
    uint64_t bytes;
    size_t b;
    int i;

    if (!s) return 0;
    bytes = s->config ? own_bytes(s->config, s->reserved) : 0;
    for (i = 0; i < WASTE_MAX_LAYERS; i++) {
        for (b = 0; b < s->layer[i].n_blocks; b++)
            if (block_release(s->layer[i].block[b])) bytes += block_bytes(s->config, s->kv);
        waste_mem_free(s->layer[i].block);
    }
    waste_mem_free(s->fixed);
    waste_mem_free(s);
    return bytes;
}

static int make_room(waste_seq_layer *l, size_t blocks)
{
    size_t space = blocks > 2 * l->space ? blocks : 2 * l->space;
    void **p;

    if (blocks <= l->space) return 0;
    p = waste_mem_resize(l->block, space * sizeof *p);
    if (!p) return -1;
    l->block = p;
    l->space = space;
    return 0;
}

static int grow(waste_seq_layer *l, size_t blocks, size_t bytes)
{
    if (make_room(l, blocks)) return -1;
    while (l->n_blocks < blocks) {
        void *p = block_new(bytes);

        if (!p) return -1;
        l->block[l->n_blocks++] = p;
    }
    return 0;
}

/* Takes back blocks that nobody else can hold yet. */
static void cut(waste_seq_layer *l, size_t blocks)
{
    while (l->n_blocks > blocks) (void)block_release(l->block[--l->n_blocks]);
}

waste_status waste_sequence_reserve(waste_seq *s, int64_t positions, waste_error *err)
{
    const waste_config *c = s->config;
    int i;

    for (i = 0; i < c->layers && positions > s->reserved; i++) {
        if (c->is_kda[i] || !grow(&s->layer[i], blocks_for(positions), block_bytes(c, s->kv)))
            continue;
        for (; i >= 0; i--) cut(&s->layer[i], blocks_for(s->reserved));
        return waste_fail(err, WASTE_NOMEM, "out of memory for %lld positions of a sequence",
                          (long long)positions);
    }
    if (positions > s->reserved) s->reserved = positions;
    return WASTE_OK;
}

/* Full blocks are held once more, the one that is not full is copied. */
static int share(waste_seq_layer *to, const waste_seq_layer *from, int64_t length, size_t bytes)
{
    const size_t full = (size_t)(length / WASTE_LATENT_BLOCK);

    if (make_room(to, blocks_for(length))) return -1;
    for (; to->n_blocks < full; to->n_blocks++) {
        to->block[to->n_blocks] = from->block[to->n_blocks];
        atomic_fetch_add(holders(to->block[to->n_blocks]), 1);
    }
    if (grow(to, blocks_for(length), bytes)) return -1;
    if (length % WASTE_LATENT_BLOCK) memcpy(to->block[full], from->block[full], bytes - BLOCK_HEAD);
    return 0;
}

waste_status waste_sequence_fork(waste_seq **out, const waste_seq *s, waste_error *err)
{
    const waste_config *c = s->config;
    waste_seq *f;
    waste_status st = waste_sequence_new(&f, s->model, c, s->kv, err);
    int i, failed = 0;

    *out = NULL;
    if (st) return st;
    if (c->n_kda) memcpy(f->fixed, s->fixed, (size_t)c->n_kda * kda_floats(c) * sizeof *f->fixed);
    for (i = 0; i < c->layers && !failed; i++)
        if (!c->is_kda[i])
            failed = share(&f->layer[i], &s->layer[i], s->length, block_bytes(c, s->kv));
    if (failed) {
        waste_sequence_free(f);
        return waste_fail(err, WASTE_NOMEM, "out of memory for a fork of %lld positions",
                          (long long)s->length);
    }
    f->length = f->reserved = s->length;
    *out = f;
    return WASTE_OK;
}

/* ---- latents ------------------------------------------------------------------ */

static char *latents_at(const waste_seq *s, int layer, int64_t position)
{
    char *block = s->layer[layer].block[position / WASTE_LATENT_BLOCK];

    return block +
           (size_t)(position % WASTE_LATENT_BLOCK) * waste_sequence_latent_bytes(s->config, s->kv);
}

#define SOME 256 /* numbers that are rounded at a time */

static void put_half(char *to, const char *in, size_t n)
{
    float x[SOME];
    uint16_t h[SOME];
    size_t m;

    for (; n; n -= m, in += m * sizeof *x, to += m * sizeof *h) {
        m = n < SOME ? n : SOME;
        memcpy(x, in, m * sizeof *x);
        waste_f16_narrow(x, m, h);
        memcpy(to, h, m * sizeof *h);
    }
}

static void get_half(char *out, const char *from, size_t n)
{
    float x[SOME];
    uint16_t h[SOME];
    size_t m;

    for (; n; n -= m, from += m * sizeof *h, out += m * sizeof *x) {
        m = n < SOME ? n : SOME;
        memcpy(h, from, m * sizeof *h);
        waste_f16_widen(h, m, x);
        memcpy(out, x, m * sizeof *x);
    }
}

void waste_sequence_put_latents(waste_seq *s, int layer, int64_t from, int64_t to, const void *in)
{
    const size_t n = waste_sequence_latent_floats(s->config);
    const char *x = in;

    for (; from < to; from++, x += n * sizeof(float)) {
        char *at = latents_at(s, layer, from);

        if (s->kv == WASTE_KV_F16)
            put_half(at, x, n);
        else
            memcpy(at, x, n * sizeof(float));
    }
}

void waste_sequence_get_latents(const waste_seq *s, int layer, int64_t from, int64_t to, void *out)
{
    const size_t n = waste_sequence_latent_floats(s->config);
    char *x = out;

    for (; from < to; from++, x += n * sizeof(float)) {
        const char *at = latents_at(s, layer, from);

        if (s->kv == WASTE_KV_F16)
            get_half(x, at, n);
        else
            memcpy(x, at, n * sizeof(float));
    }
}
