/* State of one sequence: see sequence.h. The KDA part is one block of fixed
 * size, zero at the start; latents come in blocks and are never moved. */
#include "model/sequence.h"

#include "base/mem.h"
#include "kernels/kernels.h"

static size_t kda_channels(const waste_config *c)
{
    return (size_t)c->kda_heads * (size_t)c->kda_dim;
}

/* Floats of one KDA layer: at most 2^31 * 2^16 + 3 * 2^31 * 63 (container.md 2.5). */
static size_t kda_floats(const waste_config *c)
{
    return kda_channels(c) * ((size_t)c->kda_dim + 3 * (size_t)(c->taps - 1));
}

static size_t block_floats(const waste_config *c)
{
    return WASTE_LATENT_BLOCK * ((size_t)c->kv_rank + (size_t)c->rope_dim);
}

static size_t blocks_for(int64_t positions)
{
    return (size_t)(positions / WASTE_LATENT_BLOCK + (positions % WASTE_LATENT_BLOCK != 0));
}

uint64_t waste_sequence_bytes(const waste_config *c, int64_t positions)
{
    uint64_t n = sizeof(waste_seq);

    if (c->n_kda) n += (uint64_t)c->n_kda * kda_floats(c) * sizeof(float);
    if (c->n_mla) /* the table of blocks has room for twice as many at most */
        n += (uint64_t)c->n_mla * blocks_for(positions) *
             (block_floats(c) * sizeof(float) + 2 * sizeof(float *));
    return n;
}

waste_status waste_sequence_new(waste_seq **out, waste_model *m, const waste_config *c,
                                waste_error *err)
{
    waste_seq *s = waste_mem_zero(sizeof *s);
    float *at;
    int i, j;

    *out = NULL;
    if (s && c->n_kda) {
        s->fixed = waste_mem_array((size_t)c->n_kda * kda_floats(c), sizeof *s->fixed);
    }
    if (!s || (c->n_kda && !s->fixed)) {
        waste_sequence_free(s);
        return waste_fail(err, WASTE_NOMEM, "out of memory for a sequence of %llu bytes",
                          (unsigned long long)waste_sequence_bytes(c, 0));
    }
    s->model = m;
    s->config = c;
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

void waste_sequence_free(waste_seq *s)
{
    size_t b;
    int i;

    if (!s) return;
    for (i = 0; i < WASTE_MAX_LAYERS; i++) {
        for (b = 0; b < s->layer[i].n_blocks; b++) waste_mem_free(s->layer[i].block[b]);
        waste_mem_free(s->layer[i].block);
    }
    waste_mem_free(s->fixed);
    waste_mem_free(s);
}

static int grow(waste_seq_layer *l, size_t blocks, size_t floats)
{
    if (blocks > l->space) {
        size_t space = blocks > 2 * l->space ? blocks : 2 * l->space;
        float **p = waste_mem_resize(l->block, space * sizeof *p);

        if (!p) return -1;
        l->block = p;
        l->space = space;
    }
    while (l->n_blocks < blocks) {
        float *p = waste_mem_aligned(64, floats * sizeof *p);

        if (!p) return -1;
        l->block[l->n_blocks++] = p;
    }
    return 0;
}

waste_status waste_sequence_reserve(waste_seq *s, int64_t positions, waste_error *err)
{
    const waste_config *c = s->config;
    int i;

    for (i = 0; i < c->layers && positions > s->reserved; i++)
        if (!c->is_kda[i] && grow(&s->layer[i], blocks_for(positions), block_floats(c)))
            return waste_fail(err, WASTE_NOMEM, "out of memory for %lld positions of a sequence",
                              (long long)positions);
    if (positions > s->reserved) s->reserved = positions;
    return WASTE_OK;
}
