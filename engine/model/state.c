/* A sequence in parts: see state.h. Owns nothing; called on the thread that has
 * the sequence. What always holds: a part's place and size have been checked
 * before they index anything. */
#include "model/state.h"

#include <libdeflate.h>
#include <string.h>

#include "kernels/kernels.h"

enum { OF_KDA = 1, OF_MLA = 2 };

/* ---- which parts there are ----------------------------------------------------- */

static const char *kind_name(waste_part_kind k)
{
    return k == WASTE_PART_STATE ? "state" : k == WASTE_PART_RING ? "ring" : "latents";
}

/* Floats that stand together: a piece holds whole units. */
static size_t unit(const waste_config *c, waste_part_kind k)
{
    return k == WASTE_PART_LATENTS ? waste_sequence_latent_floats(c) : 1;
}

/* Units in a piece that is full. */
static size_t units_in_piece(const waste_config *c, waste_part_kind k)
{
    const size_t bytes = unit(c, k) * sizeof(float);

    return bytes < WASTE_PART_BYTES ? WASTE_PART_BYTES / bytes : 1;
}

/* Units of a whole layer and kind. */
static size_t units_of(const waste_config *c, waste_part_kind k, int64_t from, int64_t to)
{
    if (k == WASTE_PART_LATENTS) return (size_t)(to - from);
    return k == WASTE_PART_STATE ? waste_sequence_state_floats(c) : waste_sequence_ring_floats(c);
}

static size_t pieces_of(const waste_config *c, waste_part_kind k, int64_t from, int64_t to)
{
    const size_t n = units_of(c, k, from, to), each = units_in_piece(c, k);

    return n / each + (n % each != 0);
}

static waste_seq_part piece(const waste_config *c, int layer, waste_part_kind k, size_t block,
                            int64_t from, int64_t to)
{
    const size_t each = units_in_piece(c, k), left = units_of(c, k, from, to) - block * each;
    const size_t n = left < each ? left : each;
    waste_seq_part p = {.layer = layer, .kind = k, .block = (int64_t)block};

    p.from = k == WASTE_PART_LATENTS ? from + (int64_t)(block * each) : to;
    p.to = k == WASTE_PART_LATENTS ? p.from + (int64_t)n : to;
    p.bytes = n * unit(c, k) * sizeof(float);
    return p;
}

size_t waste_state_parts(const waste_config *c, int64_t from, int64_t to, unsigned of,
                         waste_seq_part *out)
{
    size_t n = 0, b;
    int i, k;

    for (i = 0; i < c->layers; i++) {
        const int first = c->is_kda[i] ? WASTE_PART_STATE : WASTE_PART_LATENTS;
        const int last = c->is_kda[i] ? WASTE_PART_RING : WASTE_PART_LATENTS;

        if (!(of & (c->is_kda[i] ? OF_KDA : OF_MLA))) continue;
        for (k = first; k <= last; k++) {
            const size_t pieces = pieces_of(c, (waste_part_kind)k, from, to);

            for (b = 0; out && b < pieces; b++)
                out[n + b] = piece(c, i, (waste_part_kind)k, b, from, to);
            n += pieces;
        }
    }
    return n;
}

waste_status waste_state_check_part(const waste_config *c, const waste_seq_part *p,
                                    waste_error *err)
{
    const int mla = p->kind == WASTE_PART_LATENTS;
    size_t whole;

    if (p->layer < 0 || p->layer >= c->layers || (c->is_kda[p->layer] != 0) == mla || p->from < 0 ||
        p->to < p->from || p->block < 0)
        return waste_fail(err, WASTE_ARG, "layer %d has no part %s %lld for positions %lld to %lld",
                          p->layer, kind_name(p->kind), (long long)p->block, (long long)p->from,
                          (long long)p->to);
    if (mla) {
        whole = (size_t)(p->to - p->from);
        if (whole == 0 || whole > units_in_piece(c, p->kind)) whole = 0;
        whole *= unit(c, p->kind) * sizeof(float);
    } else {
        if ((uint64_t)p->block >= pieces_of(c, p->kind, 0, 0) || p->from != p->to)
            whole = 0;
        else
            whole = piece(c, p->layer, p->kind, (size_t)p->block, 0, 0).bytes;
    }
    if (whole && p->bytes == whole) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "part %s %lld of layer %d has %zu bytes, wanted %zu",
                      kind_name(p->kind), (long long)p->block, p->layer, p->bytes, whole);
}

/* ---- in and out ----------------------------------------------------------------- */

/* Where a part of a KDA layer lies: its rings follow one another (sequence.c). */
static float *kda_at(const waste_seq *s, const waste_seq_part *p)
{
    const waste_seq_layer *l = &s->layer[p->layer];
    float *base = p->kind == WASTE_PART_STATE ? l->state : l->ring[0];

    return base + (size_t)p->block * units_in_piece(s->config, p->kind);
}

waste_status waste_state_save(const waste_seq *s, const waste_seq_part *p, void *to,
                              waste_error *err)
{
    waste_status st = waste_state_check_part(s->config, p, err);

    if (st) return st;
    if (s->broken) return waste_fail(err, WASTE_ARG, "the sequence is broken: a step has failed");
    if (p->kind == WASTE_PART_LATENTS ? p->to > s->length : p->to != s->length)
        return waste_fail(err, WASTE_ARG,
                          "%s of layer %d at position %lld were asked of a sequence of %lld",
                          kind_name(p->kind), p->layer, (long long)p->to, (long long)s->length);
    if (p->kind == WASTE_PART_LATENTS)
        waste_sequence_get_latents(s, p->layer, p->from, p->to, to);
    else
        memcpy(to, kda_at(s, p), p->bytes);
    return WASTE_OK;
}

waste_status waste_state_begin(waste_seq *s, int64_t length, waste_error *err)
{
    waste_status st;

    if (s->length || s->broken || length < 0)
        return waste_fail(err, WASTE_ARG, "only a new sequence can be loaded, this one has %lld",
                          (long long)s->length);
    st = waste_sequence_reserve(s, length, err);
    if (st) return st;
    s->planned = length;
    s->loaded = 0;
    s->broken = 1;
    return WASTE_OK;
}

waste_status waste_state_put(waste_seq *s, const waste_seq_part *p, const void *from,
                             waste_error *err)
{
    waste_status st = waste_state_check_part(s->config, p, err);

    if (st) return st;
    if (!s->broken || s->length ||
        (p->kind == WASTE_PART_LATENTS ? p->to > s->planned : p->to != s->planned))
        return waste_fail(err, WASTE_ARG,
                          "%s of layer %d at position %lld do not belong to a sequence of %lld",
                          kind_name(p->kind), p->layer, (long long)p->to, (long long)s->planned);
    if (p->kind == WASTE_PART_LATENTS)
        waste_sequence_put_latents(s, p->layer, p->from, p->to, from);
    else
        memcpy(kda_at(s, p), from, p->bytes);
    s->loaded += p->bytes;
    return WASTE_OK;
}

waste_status waste_state_end(waste_seq *s, waste_error *err)
{
    const waste_config *c = s->config;
    const uint64_t kda = waste_sequence_state_floats(c) + waste_sequence_ring_floats(c);
    const uint64_t want = ((uint64_t)c->n_kda * kda + (uint64_t)c->n_mla * (uint64_t)s->planned *
                                                          waste_sequence_latent_floats(c)) *
                          sizeof(float);

    if (!s->broken || s->length || s->loaded != want)
        return waste_fail(err, WASTE_ARG, "%llu of %llu bytes of a sequence were loaded",
                          (unsigned long long)s->loaded, (unsigned long long)want);
    s->length = s->planned;
    s->broken = 0;
    return WASTE_OK;
}

/* ---- checks ----------------------------------------------------------------------- */

/* Multiply and fold, eight bytes at a time (constants of Steele and Vigna's
 * splitmix64). Quick, and every input bit reaches every output bit. */
static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

uint64_t waste_state_hash(uint64_t h, const void *p, size_t n)
{
    const unsigned char *at = p;
    uint64_t w;

    h = mix(h + 0x9e3779b97f4a7c15u + n);
    for (; n >= sizeof w; n -= sizeof w, at += sizeof w) {
        memcpy(&w, at, sizeof w);
        h = mix(h ^ w) + 0x9e3779b97f4a7c15u;
    }
    w = 0;
    if (n) memcpy(&w, at, n);
    return n ? mix(h ^ w) : h;
}

/* The crc notices any damage to a few bytes for certain, the hash everything else
 * but for one chance in four billion. */
uint64_t waste_state_check(const waste_seq_part *p, const void *data, uint64_t model,
                           uint64_t tokens)
{
    const uint64_t head[] = {(uint64_t)p->layer,
                             (uint64_t)p->kind,
                             (uint64_t)p->block,
                             (uint64_t)p->from,
                             (uint64_t)p->to,
                             (uint64_t)p->bytes,
                             model,
                             tokens};
    const uint64_t h = waste_state_hash(waste_state_hash(0, head, sizeof head), data, p->bytes);

    return (uint64_t)libdeflate_crc32(0, data, p->bytes) << 32 | (h & 0xffffffffu);
}
