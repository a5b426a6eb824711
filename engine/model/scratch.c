/* Layout of a pass's working memory: see scratch.h. One pass at a time uses it. */
#include "model/scratch.h"

#include "base/arena.h"
#include "base/mem.h"
#include "kernels/kernels.h"
#include "kernels/kernels_work.h"
#include "model/rope.h"

static size_t max2(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The widest FFN that some layer really has. */
static size_t ffn_width(const waste_config *c)
{
    size_t w = 0;
    int i;

    for (i = 0; i < c->layers; i++)
        w = max2(w, (size_t)(waste_config_is_moe(c, i) ? c->shared_width : c->dense_width));
    return w;
}

/* The widest row of weights that is decoded. */
static size_t widest(const waste_config *c)
{
    size_t w = (size_t)c->hidden;

    if (c->n_kda) w = max2(w, (size_t)c->kda_heads * (size_t)c->kda_dim);
    if (c->n_mla) {
        w = max2(w, (size_t)c->heads * (size_t)c->v_dim);
        w = max2(w, max2((size_t)c->kv_rank, (size_t)c->q_rank));
    }
    w = max2(w, ffn_width(c));
    if (c->experts) w = max2(w, 2 * max2((size_t)c->expert_in, (size_t)c->moe_width));
    return w;
}

static void carve_kda(waste_scratch *s, const waste_config *c, size_t t, waste_arena *a)
{
    const size_t heads = (size_t)c->kda_heads, dim = (size_t)c->kda_dim, ch = heads * dim;

    s->kda_q = waste_arena_take(a, t * ch, sizeof(float));
    s->kda_k = waste_arena_take(a, t * ch, sizeof(float));
    s->kda_v = waste_arena_take(a, t * ch, sizeof(float));
    s->kda_decay = waste_arena_take(a, t * ch, sizeof(float));
    s->kda_gate = waste_arena_take(a, t * ch, sizeof(float));
    s->kda_o = waste_arena_take(a, t * ch, sizeof(float));
    s->kda_low = waste_arena_take(a, t * dim, sizeof(float));
    s->gate_low = waste_arena_take(a, t * dim, sizeof(float));
    s->kda_beta = waste_arena_take(a, t * heads, sizeof(float));
    s->kda_state = waste_arena_take(a, t, sizeof(float *));
    s->kda_ring = waste_arena_take(a, 3 * t, sizeof(float *));
}

static void carve_mla(waste_scratch *s, const waste_config *c, size_t t, waste_arena *a)
{
    const size_t heads = (size_t)c->heads, rank = (size_t)c->kv_rank, rope = (size_t)c->rope_dim;
    const size_t q = heads * ((size_t)c->nope_dim + rope), v = heads * (size_t)c->v_dim;

    s->turn = waste_arena_take(a, t * 2 * (size_t)waste_rope_pairs(c), sizeof(float));
    s->position = waste_arena_take(a, t, sizeof(int64_t));
    s->mla_q = waste_arena_take(a, t * q, sizeof(float));
    s->mla_low = waste_arena_take(a, t * (size_t)c->q_rank, sizeof(float));
    s->mla_o = waste_arena_take(a, t * v, sizeof(float));
    s->mla_gate = waste_arena_take(a, t * (c->out_gate ? v : 0), sizeof(float));
    s->mla_kv = waste_arena_take(a, t * (rank + rope), sizeof(float));
    s->mla_block = waste_arena_take(a, t, sizeof(*s->mla_block));
}

static void carve_moe(waste_scratch *s, const waste_config *c, size_t t, waste_arena *a)
{
    const size_t e = (size_t)c->experts, tk = t * (size_t)c->top_k, w = (size_t)c->expert_in;

    s->route_logits = waste_arena_take(a, t * e, sizeof(float));
    s->route_ids = waste_arena_take(a, tk, sizeof(int));
    s->route_weights = waste_arena_take(a, tk, sizeof(float));
    s->expert_in = waste_arena_take(a, c->latent ? t * w : 0, sizeof(float));
    s->expert_h = waste_arena_take(a, tk * (size_t)c->moe_width, sizeof(float));
    s->expert_out = waste_arena_take(a, tk * w, sizeof(float));
    s->expert_sum = waste_arena_take(a, t * w, sizeof(float));
    s->routed = waste_arena_take(a, c->latent ? t * (size_t)c->hidden : 0, sizeof(float));
    s->visit = waste_arena_take(a, e < tk ? e : tk, sizeof(int));
    s->uses = waste_arena_take(a, e < tk ? e : tk, sizeof(int));
    s->votes = waste_arena_take(a, e, sizeof(int));
    s->first = waste_arena_take(a, e, sizeof(int));
    s->last = waste_arena_take(a, e, sizeof(int));
    s->next = waste_arena_take(a, tk, sizeof(int));
    s->x_row = waste_arena_take(a, tk, sizeof(int));
    s->y_row = waste_arena_take(a, tk, sizeof(int));
    s->tables = waste_arena_take(a, 1, waste_kernels_tables_most(c->expert_in));
}

/* What the slots of the kernels need for the shapes of this model. */
static size_t work_bytes(const waste_config *c, size_t t)
{
    const waste_kernel_limits l = {
        .rows = t,
        .width = c->experts ? c->moe_width : 0,
        .in = c->experts ? c->expert_in : 0,
        .heads = c->n_mla ? c->heads : 0,
        .rank = c->kv_rank,
        .rope = c->rope_dim,
    };

    return waste_kernels_work_bytes(&l);
}

/* History entries of Attention Residuals. */
static size_t history_blocks(const waste_config *c)
{
    return c->ares_block > 0 ? (size_t)(c->layers / c->ares_block + 2) : 0;
}

static void carve_lanes(waste_scratch *s, const waste_config *c, size_t t, waste_arena *a)
{
    const size_t blocks = history_blocks(c), work = work_bytes(c, t);
    const size_t mix = blocks ? blocks + 1 + (size_t)c->hidden : 0;
    int i;

    s->lane = waste_arena_take(a, (size_t)s->threads, sizeof *s->lane);
    for (i = 0; i < s->threads; i++) {
        waste_lane l;

        l.decoded = waste_arena_take(a, widest(c), sizeof(float));
        l.work = waste_arena_take(a, 1, work);
        l.mix = waste_arena_take(a, mix, sizeof(float));
        l.kda_head =
            waste_arena_take(a, c->n_kda ? WASTE_KDA_FLOATS(c->kda_dim) : 0, sizeof(float));
        l.latent = waste_arena_take(a, c->n_mla ? 2 * WASTE_MLA_ROWS * (size_t)c->kv_rank : 0,
                                    sizeof(float));
        if (s->lane) s->lane[i] = l;
    }
}

size_t waste_scratch_carve(waste_scratch *s, const waste_config *c, int rows, int threads,
                           char *block)
{
    const size_t t = (size_t)rows, h = (size_t)c->hidden;
    const size_t ffn = ffn_width(c);
    waste_arena a = {block, 0, 0};
    int i;

    s->rows = rows;
    s->threads = threads;
    s->x = waste_arena_take(&a, t * h, sizeof(float));
    s->normed = waste_arena_take(&a, t * h, sizeof(float));
    s->out = waste_arena_take(&a, t * h, sizeof(float));
    s->logits = waste_arena_take(&a, t, sizeof(float *));
    for (i = 0; i < WASTE_INPUTS; i++)
        s->input[i] =
            waste_arena_take(&a, 1, waste_kernels_activations_bytes((int64_t)widest(c), t));
    carve_lanes(s, c, t, &a);
    if (c->ares_block > 0) {
        s->sum = waste_arena_take(&a, t * h, sizeof(float));
        s->history = waste_arena_take(&a, history_blocks(c) * t * h, sizeof(float));
    }
    if (c->n_kda) carve_kda(s, c, t, &a);
    if (c->n_mla) carve_mla(s, c, t, &a);
    s->ffn_gate = waste_arena_take(&a, t * ffn, sizeof(float));
    s->ffn_up = waste_arena_take(&a, t * ffn, sizeof(float));
    if (c->experts) carve_moe(s, c, t, &a);
    s->bytes = a.overflow ? 0 : a.used;
    return s->bytes;
}

waste_status waste_scratch_open(waste_scratch **out, const waste_config *c, int rows, int threads,
                                waste_error *err)
{
    waste_scratch *s = waste_mem_zero(sizeof *s);
    size_t bytes;
    int i;

    *out = NULL;
    bytes = s ? waste_scratch_carve(s, c, rows, threads, NULL) : 0;
    if (bytes) s->block = waste_mem_pages(bytes);
    if (!bytes || !s->block) {
        waste_scratch_close(s);
        return waste_fail(err, WASTE_NOMEM, "out of memory for %llu bytes of scratch",
                          (unsigned long long)bytes);
    }
    waste_scratch_carve(s, c, rows, threads, s->block);
    for (i = 0; i < c->experts; i++) s->first[i] = -1;
    *out = s;
    return WASTE_OK;
}

void waste_scratch_close(waste_scratch *s)
{
    if (!s) return;
    waste_mem_free(s->block);
    waste_mem_free(s);
}
