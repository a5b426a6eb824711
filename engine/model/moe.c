/* Mixture of experts for the rows of a chunk (docs/model.md 7): routed experts
 * plus the shared ones, which are an ordinary FFN.
 *
 * Each distinct expert of a layer is visited once, for all rows that chose it,
 * in whatever order suits the cache. Its results go to one place per (row, rank)
 * and every row sums its own places in routing order afterwards, so that the
 * order of visits cannot be seen. */
#include <string.h>

#include "model/forward.h"
#include "model/observer.h"
#include "model/router.h"

#define EXPONENTIAL 16 /* multiply-adds that one takes as long as, about */
#define TOGETHER    64 /* experts that run together, at most */
#define BLOCK       64 /* rows of an expert that go together (docs/format.md 5.4) */
#define PARTS       16 /* that an expert is cut into, at most */

typedef struct picks {
    const waste_pass *p;
    const float *bias;
} picks;

static void pick_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const picks *j = ctx;
    const waste_config *c = j->p->config;
    const waste_scratch *s = j->p->s;
    int64_t t;

    (void)thread;
    for (t = lo; t < hi; t++)
        waste_router_pick(c, s->route_logits + t * c->experts, j->bias, s->route_ids + t * c->top_k,
                          s->route_weights + t * c->top_k);
}

/* Picks every row's experts and chains, per expert, the places (row * top_k + rank)
 * that it has to fill, rows ascending. Returns how many distinct experts there are:
 * s->visit, with the number of rows that chose each in s->uses. */
static size_t route(const waste_pass *p, const waste_layer *l)
{
    const waste_config *c = p->config;
    waste_scratch *s = p->s;
    const size_t k = (size_t)c->top_k;
    picks j = {p, l->router_bias};
    size_t n = 0, i;

    waste_forward_share(p, (int64_t)p->n, (int64_t)c->experts * EXPONENTIAL, pick_part, &j);
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
static waste_expert expert_of(const waste_pass *p, const float *x, int thread)
{
    const waste_quant *q = p->quant;
    const waste_scratch *s = p->s;
    const waste_expert a = {
        .geometry = {q->stages, q->vec_dim, q->index_block, q->index_bits, q->vector_bytes},
        .act = waste_ffn_act(p->config),
        .x = x,
        .y = s->expert_out,
        .decoded = s->lane[thread].decoded,
        .planar = p->weights->packing.planar,
        .work = s->lane[thread].work,
    };

    return a;
}

/* ---- tables that experts share ---------------------------------------------------- */

typedef struct tables {
    const waste_pass *p;
    int layer;
    const float *x;
} tables;

static void tables_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    static const int first_row = 0;
    const tables *j = ctx;
    const waste_pass *p = j->p;
    const int64_t width = p->config->moe_width, input = p->config->expert_in;
    waste_expert a = expert_of(p, j->x, thread);

    a.n = 1;
    a.x_row = &first_row;
    matrix_of(&a.gate, p, j->layer, 0, NULL, NULL, width, input);
    matrix_of(&a.up, p, j->layer, 1, NULL, NULL, width, input);
    p->kernels->expert_tables(&a, p->s->tables, lo, hi);
}

/* Tables that one row's experts of a layer share; NULL when the kernels have none.
 * With more rows each expert makes its own: they would not stay in the CPU's cache
 * until they are used again. */
static const void *tables_of(const waste_pass *p, int layer, const float *x)
{
    const int64_t blocks = (p->config->expert_in + WASTE_TABLE_COLS - 1) / WASTE_TABLE_COLS;
    tables j = {p, layer, x};

    if (p->n != 1 || !p->weights->layer[layer].packed[0] || !p->kernels->expert_tables) return NULL;
    if (!p->kernels->tables_bytes(&p->weights->packing.geometry, p->config->expert_in)) return NULL;
    /* 256 entries of 2 matrices for each column and stage, mostly */
    waste_forward_share(p, blocks, WASTE_TABLE_COLS * 512, tables_part, &j);
    return p->s->tables;
}

/* ---- experts that run together ------------------------------------------------------ */

/* One of them, and its places in x_row, y_row and expert_h. */
typedef struct member {
    int expert;
    const unsigned char *record;
    size_t at, n;
} member;

/* Each is cut into `parts`: parts of its rows of the batch, if there are as many, else
 * of the rows of its matrices. The former share nothing, and one thread does gate, up
 * and down; for the latter down begins when up has ended. */
typedef struct group {
    const waste_pass *p;
    int layer;
    const float *x;
    const void *tables;
    int64_t parts;
    int down; /* of members that are cut by the rows of their matrices */
    size_t n;
    member member[TOGETHER];
} group;

static int by_inputs(const group *g, const member *m)
{
    return g->parts == 1 || (int64_t)m->n >= g->parts;
}

/* Part `part` of n items that go in blocks. */
static void cut(int64_t n, int64_t block, int64_t part, int64_t parts, int64_t *lo, int64_t *hi)
{
    const int64_t blocks = (n + block - 1) / block;

    *lo = blocks * part / parts * block;
    *hi = blocks * (part + 1) / parts * block;
    if (*hi > n) *hi = n;
    if (*lo > *hi) *lo = *hi;
}

static void run_part(const group *g, const member *m, int64_t part, int thread)
{
    const waste_pass *p = g->p;
    const int64_t width = p->config->moe_width, input = p->config->expert_in;
    const waste_record_layout *at = waste_banks_layout(p->banks, g->layer);
    const unsigned char *scale = m->record + at->scale_off;
    waste_expert a = expert_of(p, g->x, thread);
    int64_t lo = 0, hi = (int64_t)m->n;

    if (by_inputs(g, m)) cut((int64_t)m->n, 1, part, g->parts, &lo, &hi);
    a.n = (size_t)(hi - lo);
    a.x_row = p->s->x_row + m->at + lo;
    a.y_row = p->s->y_row + m->at + lo;
    a.h = p->s->expert_h + (m->at + (size_t)lo) * (size_t)width;
    a.tables = g->tables;
    matrix_of(&a.gate, p, g->layer, 0, m->record + at->gate_off, scale, width, input);
    matrix_of(&a.up, p, g->layer, 1, m->record + at->up_off, scale + 2 * width, width, input);
    matrix_of(&a.down, p, g->layer, 2, m->record + at->down_off, scale + 4 * width, input, width);
    if (by_inputs(g, m)) {
        p->kernels->expert_up(&a, 0, width);
        p->kernels->expert_down(&a, 0, input);
    } else if (!g->down) {
        cut(width, BLOCK, part, g->parts, &lo, &hi);
        p->kernels->expert_up(&a, lo, hi);
    } else {
        cut(input, BLOCK, part, g->parts, &lo, &hi);
        p->kernels->expert_down(&a, lo, hi);
    }
}

static void group_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const group *g = ctx;

    for (; lo < hi; lo++) {
        const member *m = &g->member[lo / g->parts];

        if (!g->down || !by_inputs(g, m)) run_part(g, m, lo % g->parts, thread);
    }
}

/* As few parts as keep the threads busy: what is cut makes some of its tables more
 * than once (docs/measured.md). */
static int64_t parts_for(int64_t threads, int64_t n)
{
    int64_t parts;

    for (parts = 1; parts < PARTS; parts++) {
        const int64_t items = n * parts, rounds = (items + threads - 1) / threads;

        if (4 * items >= 3 * threads * rounds) break;
    }
    return parts;
}

/* So that the threads end at about the same time. */
static void largest_first(group *g)
{
    size_t i, j;

    for (i = 1; i < g->n; i++) {
        const member m = g->member[i];

        for (j = i; j && g->member[j - 1].n < m.n; j--) g->member[j] = g->member[j - 1];
        g->member[j] = m;
    }
}

/* Threads that the group's work is worth. */
static int64_t useful_threads(const group *g)
{
    const waste_config *c = g->p->config;
    int64_t rows = 0, grain;
    size_t i;

    for (i = 0; i < g->n; i++) rows += (int64_t)g->member[i].n;
    rows *= 3 * c->moe_width;
    grain = waste_forward_grain(g->p, c->expert_in);
    rows = (rows + grain - 1) / grain;
    return rows < g->p->turn.threads ? rows : g->p->turn.threads;
}

static void run_group(group *g)
{
    const waste_pass *p = g->p;
    const int64_t threads = useful_threads(g);
    int cut_rows = 0;
    size_t i;

    g->parts = 1;
    g->down = 0;
    if (threads < 2) {
        group_part(g, 0, 0, (int64_t)g->n);
        return;
    }
    largest_first(g);
    g->parts = parts_for(threads, (int64_t)g->n);
    for (i = 0; i < g->n; i++) cut_rows |= !by_inputs(g, &g->member[i]);
    waste_pool_run(&p->turn, (int64_t)g->n * g->parts, 1, group_part, g);
    if (!cut_rows) return;
    g->down = 1;
    waste_pool_run(&p->turn, (int64_t)g->n * g->parts, 1, group_part, g);
}

/* Takes the next record, whose rows are those of its chain. */
static waste_status take(group *g, size_t *rows, waste_error *err)
{
    const waste_pass *p = g->p;
    waste_scratch *s = p->s;
    const void *record;
    member *m = &g->member[g->n];
    waste_status st = waste_cache_take(p->cache, &m->expert, &record, p->cancel, err);
    int i;

    if (st) return st;
    m->record = record;
    m->at = *rows;
    for (i = s->first[m->expert]; i >= 0; i = s->next[i], ++*rows) {
        s->x_row[*rows] = i / p->config->top_k;
        s->y_row[*rows] = i;
    }
    m->n = *rows - m->at;
    g->n++;
    return WASTE_OK;
}

/* Waits for one record and takes those that are there by then: all, if the rest of the
 * batch is. While reads are under way not many, since what is held keeps the slots
 * from those that are still to come. */
static waste_status gather(group *g, waste_error *err)
{
    const waste_pass *p = g->p;
    const size_t few = p->turn.threads > 1 ? (size_t)p->turn.threads : 1;
    const size_t half = p->config->top_k > 1 ? (size_t)p->config->top_k / 2 : 1;
    size_t rows = 0, ready, left, most;
    waste_status st;

    g->n = 0;
    st = take(g, &rows, err);
    if (st) return st;
    waste_cache_ready(p->cache, &ready, &left);
    most = ready == left ? TOGETHER : few < half ? few : half;
    while (!st && ready-- && g->n < most) st = take(g, &rows, err);
    return st;
}

static void observe(const group *g)
{
    const waste_scratch *s = g->p->s;
    size_t i;

    for (i = 0; i < g->n; i++) {
        const member *m = &g->member[i];

        waste_observer_hidden(g->p, s->expert_h + m->at * (size_t)g->p->config->moe_width,
                              s->y_row + m->at, m->n);
    }
}

/* Runs all experts of the layer: the routed ones on x, with their results in
 * expert_out, and the shared ones, into out. All that are to be read are asked for
 * before the first multiply, and so are those that the next layer will probably want:
 * their reads hide behind this layer's arithmetic, of which what needs no read is
 * first. */
static waste_status experts(const waste_pass *p, int layer, const float *x)
{
    waste_scratch *s = p->s;
    const size_t n = route(p, &p->weights->layer[layer]);
    const int observed = waste_observer_wanted(p);
    group g = {.p = p, .layer = layer, .x = x};
    waste_status st;
    size_t i;

    st = waste_cache_ask(p->cache, layer, s->visit, s->uses, n, p->n, p->err);
    if (!st) waste_lookahead(p, layer);
    if (!st) waste_ffn_rows(p, &p->weights->layer[layer].ffn); /* unprojected input, weight 1 */
    if (!st) g.tables = tables_of(p, layer, x);
    while (!st) {
        st = gather(&g, p->err);
        if (!st) run_group(&g);
        if (!st && observed) observe(&g);
        for (i = 0; i < g.n; i++) waste_cache_release(p->cache, layer, g.member[i].expert);
    }
    if (st == WASTE_DONE && observed) waste_observer_layer(p, layer, x);
    for (i = 0; i < n; i++) s->first[s->visit[i]] = -1;
    return st == WASTE_DONE ? WASTE_OK : st;
}

/* ---- the layer ----------------------------------------------------------------------- */

typedef struct sums {
    const waste_pass *p;
} sums;

/* Each row's weighted sum over its experts, in routing order. */
static void combine_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const waste_pass *p = ((const sums *)ctx)->p;
    const size_t k = (size_t)p->config->top_k, w = (size_t)p->config->expert_in;
    const waste_scratch *s = p->s;
    size_t t, j, i;

    (void)thread;
    for (t = (size_t)lo; t < (size_t)hi; t++) {
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
    const size_t w = (size_t)c->expert_in;
    const waste_product in[] = {
        {l->router, s->normed, s->route_logits},
        {l->latent_down, s->normed, s->expert_in}, /* if there is one */
    };
    sums j = {p};
    waste_status st;

    waste_forward_products(p, in, l->latent_down ? 2 : 1);
    st = experts(p, layer, l->latent_down ? s->expert_in : s->normed);
    if (st) return st;
    waste_forward_share(p, (int64_t)p->n, (int64_t)c->top_k * c->expert_in, combine_part, &j);
    if (l->latent_norm)
        waste_forward_norm(p, s->expert_sum, l->latent_norm, s->expert_sum, p->n, w, w);
    if (l->latent_up) waste_forward_matmul(p, l->latent_up, s->expert_sum, s->routed);
    waste_forward_add(p, s->out, l->latent_up ? s->routed : s->expert_sum,
                      p->n * (size_t)c->hidden);
    return WASTE_OK;
}
