/* Weights in the order of the kernels: see pack.h. */
#include "model/pack.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/process.h"

/* ---- trunk -------------------------------------------------------------- */

/* Rearranging happens tile by tile through a buffer of the thread's that suits the
 * largest. */
typedef struct packer {
    const waste_kernels *kernels;
    waste_tensors *tensors;
    char *temp;   /* [threads][bytes] */
    size_t bytes; /* a multiple of 64 */
} packer;

static size_t up64(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Handles have no bytes yet, and those of tensors that stay on disk never will. */
static void matrix(packer *p, const waste_tensor *x)
{
    waste_matrix m;
    size_t bytes;

    if (!x || x->fmt == WASTE_FMT_F32) return;
    m = waste_weights_matrix(x);
    bytes = up64(waste_kernels_pack_bytes(&m));
    if (bytes > p->bytes) p->bytes = bytes;
    waste_tensors_arrange(p->tensors, x);
}

static void arrange(void *ctx, int thread, waste_tensor *rows)
{
    const packer *p = ctx;
    waste_matrix m = waste_weights_matrix(rows);

    /* the bytes are the tensors' own block, which nobody else reads yet */
    p->kernels->pack_matrix(&m, (void *)(uintptr_t)rows->data, (uint16_t *)(uintptr_t)rows->scales,
                            p->temp + (size_t)thread * p->bytes);
    rows->tiled = m.tiled;
}

/* kv_b stays as it is: half of its rows are taken by columns. */
static void layer(packer *p, const waste_layer *l)
{
    const waste_tensor *const all[] = {
        l->q,           l->g,         l->o,        l->k,      l->v,        l->f_a,  l->f_b,
        l->b,           l->g_a,       l->g_b,      l->q_a,    l->q_b,      l->kv_a, l->router,
        l->latent_down, l->latent_up, l->ffn.gate, l->ffn.up, l->ffn.down,
    };
    size_t i;

    for (i = 0; i < sizeof all / sizeof *all; i++) matrix(p, all[i]);
}

static void all_matrices(packer *p, const waste_weights *w, const waste_config *c)
{
    int i;

    for (i = 0; i < c->layers; i++) layer(p, &w->layer[i]);
    matrix(p, w->head);
}

waste_status waste_pack_trunk(waste_weights *w, waste_tensors *t, const waste_kernels *k,
                              const waste_config *c, int threads, int buffered,
                              const waste_cancel *cancel, waste_error *err)
{
    packer p = {k, t, NULL, 0};
    waste_tensors_how how = {2 * threads, buffered, arrange, &p};
    waste_status st;

    if (how.threads > WASTE_PROCESS_TEAM) how.threads = WASTE_PROCESS_TEAM;
    if (k->pack_matrix) all_matrices(&p, w, c);
    if (p.bytes) p.temp = waste_mem_aligned(64, (size_t)how.threads * p.bytes);
    if (p.bytes && !p.temp)
        return waste_fail(err, WASTE_NOMEM, "no memory for rearranging the trunk");
    st = waste_tensors_load(t, &how, cancel, err);
    waste_mem_free(p.temp);
    return st;
}

/* ---- experts ------------------------------------------------------------ */

/* In f32 as many bytes as the books themselves, with a header for each matrix. */
uint64_t waste_pack_layer_bytes(const waste_quant *q)
{
    const uint64_t book = ((uint64_t)1 << q->index_bits) * (uint64_t)q->vec_dim * sizeof(float);

    return 3 * ((uint64_t)q->stages * book + 128);
}

static void pack_record(void *ctx, void *record)
{
    const waste_packing *p = ctx;

    p->kernels->pack_record(record, p->layout, &p->geometry);
}

static void pack_layer(waste_weights *w, const waste_banks *b, int n, size_t bytes, char *to)
{
    const waste_packing *p = &w->packing;
    const float *book[8];
    int kind, s;

    for (kind = 0; kind < 3; kind++, to += bytes) {
        for (s = 0; s < p->geometry.stages; s++) book[s] = waste_banks_codebook(b, n, kind, s);
        p->kernels->pack_books(to, &p->geometry, book);
        w->layer[n].packed[kind] = to;
    }
}

waste_status waste_pack_experts(waste_weights *w, waste_banks *b, const waste_kernels *k,
                                const waste_config *c, const waste_quant *q, waste_error *err)
{
    waste_packing *p = &w->packing;
    size_t bytes, n = 0;
    char *to;
    int i;

    p->kernels = k;
    p->geometry =
        (waste_vq_geometry){q->stages, q->vec_dim, q->index_block, q->index_bits, q->vector_bytes};
    bytes = k->books_bytes ? up64(k->books_bytes(&p->geometry, c->moe_width, c->expert_in)) : 0;
    for (i = 0; i < c->layers; i++) n += waste_config_is_moe(c, i) != 0;
    if (!bytes || !n) return WASTE_OK;
    p->books = to = waste_mem_pages(n * 3 * bytes);
    if (!to) return waste_fail(err, WASTE_NOMEM, "no memory for the kernels' codebooks");
    for (i = 0; i < c->layers; i++) {
        if (!waste_config_is_moe(c, i)) continue;
        p->layout = waste_banks_layout(b, i); /* one for all */
        pack_layer(w, b, i, bytes, to);
        to += 3 * bytes;
    }
    if (k->pack_record) {
        p->planar = 1;
        waste_banks_pack(b, pack_record, p);
    }
    return WASTE_OK;
}
