/* Mixture of experts for the rows of a chunk (docs/model.md 7): routed experts
 * plus the shared ones, which are an ordinary FFN.
 *
 * Each distinct expert of a layer is visited once, for all rows that chose it,
 * in whatever order suits the cache. Its results go to one place per (row, rank)
 * and every row sums its own places in routing order afterwards, so that the
 * order of visits cannot be seen. */
#include <string.h>

#include "model/forward.h"
#include "model/router.h"

/* Routes every row and chains, per expert, the places (row * top_k + rank) that
 * it has to fill, rows ascending. Returns how many distinct experts there are:
 * s->visit, with the number of rows that chose each in s->uses. */
static size_t route(const waste_pass *p, const waste_layer *l)
{
    const waste_config *c = p->config;
    waste_scratch *s = p->s;
    const size_t k = (size_t)c->top_k;
    size_t n = 0, t, i;

    waste_forward_matmul(p, l->router, s->normed, s->route_logits);
    for (t = 0; t < p->n; t++)
        waste_router_pick(c, s->route_logits + t * (size_t)c->experts, l->router_bias,
                          s->route_ids + t * k, s->route_weights + t * k);
    for (i = 0; i < p->n * k; i++) {
        const int e = s->route_ids[i];

        s->next[i] = -1;
        if (s->first[e] < 0) {
            s->visit[n++] = e;
            s->first[e] = (int)i;
        } else {
            s->next[s->last[e]] = (int)i;
        }
        s->last[e] = (int)i;
    }
    for (i = 0; i < n; i++) {
        int at;

        s->uses[i] = 0;
        for (at = s->first[s->visit[i]]; at >= 0; at = s->next[at]) s->uses[i]++;
    }
    return n;
}

static void matrix_of(waste_vq_matrix *m, const waste_pass *p, int layer, int kind,
                      const unsigned char *index, const unsigned char *scale, int64_t rows,
                      int64_t cols)
{
    int i;

    m->index = index;
    m->scale = scale;
    m->rows = rows;
    m->cols = cols;
    for (i = 0; i < p->quant->stages; i++)
        m->book[i] = waste_banks_codebook(p->banks, layer, kind, i);
    m->packed = p->weights->layer[layer].packed[kind];
}

/* What all experts of a layer share. */
static waste_expert expert_of(const waste_pass *p, const float *x)
{
    const waste_quant *q = p->quant;
    const waste_scratch *s = p->s;
    const waste_expert a = {
        .geometry = {q->stages, q->vec_dim, q->index_block, q->index_bits, q->vector_bytes},
        .act = waste_ffn_act(p->config),
        .x = x,
        .x_row = s->x_row,
        .h = s->expert_h,
        .y = s->expert_out,
        .y_row = s->y_row,
        .decoded = s->decoded,
        .planar = p->weights->packing.planar,
        .work = s->work,
    };

    return a;
}

/* Tables that one row's experts of a layer share; NULL when the kernels have none.
 * With more rows each expert makes its own: they would not stay in the CPU's cache
 * until they are used again. */
static const void *tables_of(const waste_pass *p, int layer, const float *x)
{
    const int64_t width = p->config->moe_width, input = p->config->expert_in;
    waste_expert a = expert_of(p, x);

    if (p->n != 1 || !p->weights->layer[layer].packed[0] || !p->kernels->expert_tables) return NULL;
    p->s->x_row[0] = 0;
    a.n = 1;
    matrix_of(&a.gate, p, layer, 0, NULL, NULL, width, input);
    matrix_of(&a.up, p, layer, 1, NULL, NULL, width, input);
    p->kernels->expert_tables(&a, p->s->tables, 0,
                              (input + WASTE_TABLE_COLS - 1) / WASTE_TABLE_COLS);
    return p->s->tables;
}

/* Applies one expert to the rows of its chain. */
static void apply(const waste_pass *p, int layer, int expert, const unsigned char *record,
                  const float *x, const void *tables)
{
    const waste_config *c = p->config;
    const int64_t width = c->moe_width, input = c->expert_in;
    waste_scratch *s = p->s;
    const waste_record_layout *at = waste_banks_layout(p->banks, layer);
    waste_expert a = expert_of(p, x);
    const unsigned char *scale;
    int i;

    a.tables = tables;
    scale = record + at->scale_off;
    matrix_of(&a.gate, p, layer, 0, record + at->gate_off, scale, width, input);
    matrix_of(&a.up, p, layer, 1, record + at->up_off, scale + 2 * width, width, input);
    matrix_of(&a.down, p, layer, 2, record + at->down_off, scale + 4 * width, input, width);
    for (i = s->first[expert]; i >= 0; i = s->next[i], a.n++) {
        s->x_row[a.n] = i / c->top_k;
        s->y_row[a.n] = i;
    }
    p->kernels->expert_up(&a, 0, width);
    p->kernels->expert_down(&a, 0, input);
}

/* Runs all routed experts of the layer on x; their results are in expert_out. All
 * are asked for before the first multiply, and so are those that the next layer
 * will probably want: their reads hide behind this layer's arithmetic. */
static waste_status experts(const waste_pass *p, int layer, const float *x)
{
    waste_scratch *s = p->s;
    const size_t n = route(p, &p->weights->layer[layer]);
    const void *record, *tables = NULL;
    waste_status st;
    int expert;
    size_t i;

    st = waste_cache_ask(p->cache, layer, s->visit, s->uses, n, p->n, p->err);
    if (!st) waste_lookahead(p, layer);
    if (!st) tables = tables_of(p, layer, x);
    while (!st) {
        st = waste_cache_take(p->cache, &expert, &record, p->cancel, p->err);
        if (st) break;
        apply(p, layer, expert, record, x, tables);
        waste_cache_release(p->cache, layer, expert);
    }
    for (i = 0; i < n; i++) s->first[s->visit[i]] = -1;
    return st == WASTE_DONE ? WASTE_OK : st;
}

/* Each row's weighted sum over its experts, in routing order. */
static void combine(const waste_pass *p)
{
    const size_t k = (size_t)p->config->top_k, w = (size_t)p->config->expert_in;
    const waste_scratch *s = p->s;
    size_t t, j, i;

    for (t = 0; t < p->n; t++) {
        float *restrict to = s->expert_sum + t * w;

        memset(to, 0, w * sizeof *to);
        for (j = 0; j < k; j++) {
            const float *restrict from = s->expert_out + (t * k + j) * w;
            const float weight = s->route_weights[t * k + j];

            for (i = 0; i < w; i++) to[i] += weight * from[i];
        }
    }
}

waste_status waste_moe(const waste_pass *p, int layer)
{
    const waste_config *c = p->config;
    const waste_layer *l = &p->weights->layer[layer];
    waste_scratch *s = p->s;
    const size_t w = (size_t)c->expert_in, n = p->n * (size_t)c->hidden;
    const float *x = s->normed, *routed = s->expert_sum;
    waste_status st;
    size_t i;

    if (l->latent_down) {
        waste_forward_matmul(p, l->latent_down, s->normed, s->expert_in);
        x = s->expert_in;
    }
    st = experts(p, layer, x);
    if (st) return st;
    combine(p);
    if (l->latent_norm)
        waste_forward_norm(p, s->expert_sum, l->latent_norm, s->expert_sum, p->n, w, w);
    if (l->latent_up) {
        waste_forward_matmul(p, l->latent_up, s->expert_sum, s->routed);
        routed = s->routed;
    }
    waste_ffn_rows(p, &l->ffn); /* shared experts: unprojected input, weight 1 */
    for (i = 0; i < n; i++) s->out[i] += routed[i];
    return WASTE_OK;
}
