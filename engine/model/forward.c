/* Layers in order, for a batch of rows: see forward.h (docs/model.md 4). Runs on
 * the thread that holds the model's turn; parts run on the pool's workers as well,
 * each with a lane of scratch. Buffers of the chunk are in scratch.h;
 * x is the residual stream, and with Attention Residuals also what a read of the
 * history gave. */
#include "model/forward.h"

#include <string.h>

#include "base/error.h"
#include "model/rope.h"

#define LEAST    (1 << 17) /* multiply-adds that are worth a piece (docs/measured.md) */
#define QUANTISE 8         /* multiply-adds that an activation takes as long as, about */

/* ---- parts of slots ------------------------------------------------------------ */

int64_t waste_forward_grain(const waste_pass *p, int64_t work)
{
    const int64_t least = p->least > 0 ? p->least : LEAST;

    return work > 0 ? (least - 1) / work + 1 : least;
}

void waste_forward_share(const waste_pass *p, int64_t n, int64_t work, waste_pool_part part,
                         void *ctx)
{
    waste_pool_run(&p->turn, n, waste_forward_grain(p, work), part, ctx);
}

typedef struct inputs {
    const waste_kernels *kernels;
    waste_matmul a;
    void *to;
} inputs;

static void input_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const inputs *j = ctx;

    (void)thread;
    j->kernels->activations(&j->a, j->to, lo, hi);
}

const void *waste_forward_input(const waste_pass *p, const waste_tensor *w, const float *x,
                                size_t n, int which)
{
    inputs j = {
        p->kernels,
        {.w = waste_weights_matrix(w), .n = n, .x = x, .x_stride = (size_t)w->cols},
        p->s->input[which],
    };

    if (!w->tiled) return NULL;
    waste_forward_share(p, (int64_t)n, QUANTISE * w->cols, input_part, &j);
    return j.to;
}

waste_matmul waste_forward_rows(const waste_pass *p, const waste_tensor *w, const float *x,
                                const void *input, float *y, int thread)
{
    const waste_matmul a = {
        .w = waste_weights_matrix(w),
        .n = p->n,
        .x = x,
        .x_stride = (size_t)w->cols,
        .y = y,
        .y_stride = (size_t)w->rows,
        .decoded = p->s->lane[thread].decoded,
        .activations = input,
    };

    return a;
}

static int64_t tiles_of(const waste_tensor *w)
{
    return waste_forward_tiles(w->rows);
}

/* Multiply-adds of a tile for n rows of the batch. */
static int64_t tile_work(const waste_tensor *w, size_t n)
{
    return WASTE_FORWARD_TILE * w->cols * (int64_t)n;
}

typedef struct products {
    const waste_pass *p;
    const waste_product *list;
    const void *input[WASTE_PRODUCTS];
    size_t n;
} products;

/* The tiles of all matrices are numbered through. */
static void products_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const products *j = ctx;
    int64_t first = 0, end;
    size_t i;

    for (i = 0; i < j->n && first < hi; i++, first = end) {
        const waste_product *m = &j->list[i];
        waste_matmul a;
        int64_t from, to;

        end = first + tiles_of(m->w);
        if (end <= lo) continue;
        from = lo > first ? (lo - first) * WASTE_FORWARD_TILE : 0;
        to = hi < end ? (hi - first) * WASTE_FORWARD_TILE : m->w->rows;
        a = waste_forward_rows(j->p, m->w, m->x, j->input[i], m->y, thread);
        j->p->kernels->matmul(&a, from, to);
    }
}

/* Whether what was made of one's x serves the other. */
static int same_input(const waste_product *a, const waste_product *b)
{
    return a->x == b->x && a->w->tiled && b->w->tiled && a->w->cols == b->w->cols &&
           a->w->group == b->w->group;
}

/* The inputs of the first products of the list, as many as there are buffers for. */
static void find_inputs(products *j, size_t n)
{
    int used = 0;
    size_t k;

    for (j->n = 0; j->n < n; j->n++) {
        const waste_product *m = &j->list[j->n];

        j->input[j->n] = NULL;
        for (k = 0; k < j->n && !j->input[j->n]; k++)
            if (same_input(m, &j->list[k])) j->input[j->n] = j->input[k];
        if (j->input[j->n] || !m->w->tiled) continue;
        if (used == WASTE_INPUTS) return;
        j->input[j->n] = waste_forward_input(j->p, m->w, m->x, j->p->n, used++);
    }
}

void waste_forward_products(const waste_pass *p, const waste_product *list, size_t n)
{
    products j = {.p = p, .list = list};

    for (; n; n -= j.n, j.list += j.n) {
        int64_t tiles = 0, work = 0;
        size_t i;

        find_inputs(&j, n);
        for (i = 0; i < j.n; i++) {
            tiles += tiles_of(j.list[i].w);
            work += tiles_of(j.list[i].w) * tile_work(j.list[i].w, p->n);
        }
        /* cppcheck-suppress zerodiv ; one product at least was taken */
        waste_forward_share(p, tiles, work / tiles, products_part, &j);
    }
}

void waste_forward_matmul(const waste_pass *p, const waste_tensor *w, const float *x, float *y)
{
    const waste_product one = {w, x, y};

    waste_forward_products(p, &one, 1);
}

typedef struct norms {
    const waste_kernels *kernels;
    waste_rmsnorm a;
} norms;

static void norm_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const norms *j = ctx;

    (void)thread;
    j->kernels->rmsnorm(&j->a, lo, hi);
}

void waste_forward_norm(const waste_pass *p, const float *x, const float *w, float *y, size_t n,
                        size_t width, size_t stride)
{
    norms j = {p->kernels, {x, w, y, width, stride, stride, p->config->eps}};

    waste_forward_share(p, (int64_t)n, 2 * (int64_t)width, norm_part, &j);
}

typedef struct sum {
    float *x;
    const float *y;
} sum;

static void add_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const sum *j = ctx;
    float *restrict x = j->x;
    const float *restrict y = j->y;

    (void)thread;
    for (; lo < hi; lo++) x[lo] += y[lo];
}

void waste_forward_add(const waste_pass *p, float *x, const float *y, size_t n)
{
    sum j = {x, y};

    waste_forward_share(p, (int64_t)n, 1, add_part, &j);
}

/* ---- layers ----------------------------------------------------------------------- */

static void norm_rows(const waste_pass *p, const float *w)
{
    const size_t h = (size_t)p->config->hidden;

    waste_forward_norm(p, p->s->x, w, p->s->normed, p->n, h, h);
}

typedef struct read {
    const waste_pass *p;
    waste_ares a;
} read;

static void read_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const read *j = ctx;
    waste_ares a = j->a;

    a.scratch = j->p->s->lane[thread].mix;
    j->p->kernels->ares(&a, lo, hi);
}

/* x = read of the history's first `blocks` entries and the running sum v. */
static void read_history(const waste_pass *p, size_t blocks, const float *v, const float *norm,
                         const float *proj)
{
    const size_t h = (size_t)p->config->hidden;
    waste_scratch *s = p->s;
    read j = {p,
              {
                  .n_blocks = blocks,
                  .block_stride = (size_t)s->rows * h,
                  .blocks = s->history,
                  .p = v,
                  .norm = norm,
                  .proj = proj,
                  .y = s->x,
                  .width = h,
                  .eps = p->config->eps,
              }};

    waste_forward_share(p, (int64_t)p->n, (int64_t)(4 * h * (blocks + 1)), read_part, &j);
}

static void attention(const waste_pass *p, int layer)
{
    norm_rows(p, p->weights->layer[layer].attn_norm);
    if (p->config->is_kda[layer])
        waste_attn_kda(p, layer);
    else
        waste_attn_mla(p, layer);
}

static waste_status feed_forward(const waste_pass *p, int layer)
{
    norm_rows(p, p->weights->layer[layer].ffn_norm);
    if (waste_config_is_moe(p->config, layer)) return waste_moe(p, layer);
    waste_ffn_rows(p, &p->weights->layer[layer].ffn);
    return WASTE_OK;
}

/* The history of Attention Residuals before and after the attention: the running sum
 * is read together with it, becomes an entry at a block's first layer and starts anew
 * with that attention's output. */
static int opens_block(const waste_pass *p)
{
    return p->layer % p->config->ares_block == 0;
}

static void before_attention(waste_pass *p)
{
    const waste_layer *l = &p->weights->layer[p->layer];
    waste_scratch *s = p->s;
    const size_t h = (size_t)p->config->hidden, bytes = p->n * h * sizeof(float);

    memcpy(s->sum, s->x, bytes);
    if (p->blocks) read_history(p, p->blocks, s->sum, l->attn_res_norm, l->attn_res_proj);
    if (opens_block(p)) memcpy(s->history + p->blocks++ * (size_t)s->rows * h, s->sum, bytes);
}

static void after_attention(const waste_pass *p)
{
    const waste_layer *l = &p->weights->layer[p->layer];
    waste_scratch *s = p->s;
    const size_t n = p->n * (size_t)p->config->hidden;

    if (opens_block(p))
        memcpy(s->sum, s->out, n * sizeof(float));
    else
        waste_forward_add(p, s->sum, s->out, n);
    read_history(p, p->blocks, s->sum, l->ffn_res_norm, l->ffn_res_proj);
}

/* The layer's first half: attention, which changes the sequences. */
static void mix_tokens(waste_pass *p)
{
    const int ares = p->config->ares_block > 0;

    if (ares) before_attention(p);
    attention(p, p->layer);
    if (ares)
        after_attention(p);
    else
        waste_forward_add(p, p->s->x, p->s->out, p->n * (size_t)p->config->hidden);
}

/* Its second half: only scratch changes, and x only when all else is done, so that it
 * can be done again. */
static waste_status mix_channels(waste_pass *p)
{
    const size_t n = p->n * (size_t)p->config->hidden;
    const int ares = p->config->ares_block > 0;
    waste_status st = feed_forward(p, p->layer);

    if (st) return st;
    waste_forward_add(p, ares ? p->s->sum : p->s->x, p->s->out, n);
    if (ares) memcpy(p->s->x, p->s->sum, n * sizeof(float));
    return WASTE_OK;
}

/* Positions of the chunk's rows, their rotary angles and embeddings. */
static waste_status begin(waste_pass *p)
{
    const waste_config *c = p->config;
    const int pairs = c->n_mla ? waste_rope_pairs(c) : 0;
    waste_scratch *s = p->s;
    int32_t token[WASTE_ROWS_MOST];
    size_t t;

    for (t = 0; t < p->n; t++) p->rows[t].seq->planned = p->rows[t].seq->length;
    for (t = 0; t < p->n; t++) {
        const int64_t at = p->rows[t].seq->planned++;

        if (c->n_mla) s->position[t] = at;
        if (pairs) waste_rope_angles(p->weights->rope, pairs, at, s->turn + t * 2 * (size_t)pairs);
        token[t] = p->rows[t].token;
    }
    return waste_tensors_rows(p->tensors, p->weights->embedding, token, p->n, s->x, p->cancel,
                              p->err);
}

typedef struct ends {
    const waste_pass *p;
    size_t n; /* rows that want logits */
    const void *input;
} ends;

static void head_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const ends *j = ctx;
    const waste_tensor *w = j->p->weights->head;
    waste_matmul a = waste_forward_rows(j->p, w, j->p->s->normed, j->input, NULL, thread);

    a.n = j->n;
    a.y_rows = j->p->s->logits;
    hi *= WASTE_FORWARD_TILE;
    j->p->kernels->matmul(&a, lo * WASTE_FORWARD_TILE, hi < w->rows ? hi : w->rows);
}

/* Logits of the rows that want them. */
static void head(waste_pass *p)
{
    const waste_tensor *w = p->weights->head;
    const size_t h = (size_t)p->config->hidden;
    waste_scratch *s = p->s;
    ends j = {.p = p};
    size_t t;

    for (t = 0; t < p->n; t++) {
        if (!p->rows[t].logits) continue;
        waste_forward_norm(p, s->x + t * h, p->weights->norm, s->normed + j.n * h, 1, h, h);
        s->logits[j.n++] = p->rows[t].logits;
    }
    if (!j.n) return;
    j.input = waste_forward_input(p, w, s->normed, j.n, 0);
    waste_forward_share(p, tiles_of(w), tile_work(w, j.n), head_part, &j);
}

waste_status waste_forward_begin(waste_pass *p, const waste_row *rows, size_t n)
{
    p->rows = rows;
    p->n = n;
    p->layer = 0;
    p->half = 0;
    p->blocks = 0;
    return begin(p);
}

waste_status waste_forward_layer(waste_pass *p)
{
    waste_status st;
    size_t t;

    if (p->layer < p->config->layers) {
        if (!p->half) {
            p->touched = 1;
            mix_tokens(p);
            p->half = 1;
        }
        st = mix_channels(p);
        if (st) return st;
        p->half = 0;
        p->layer++;
        return WASTE_OK;
    }
    if (p->blocks)
        read_history(p, p->blocks, p->s->x, p->weights->out_res_norm, p->weights->out_res_proj);
    head(p);
    for (t = 0; t < p->n; t++) p->rows[t].seq->length++;
    return WASTE_DONE;
}

void waste_forward_keep(waste_pass *p, waste_row *rows, const unsigned char *keep)
{
    const waste_config *c = p->config;
    const size_t h = (size_t)c->hidden, angles = c->n_mla ? 2 * (size_t)waste_rope_pairs(c) : 0;
    waste_scratch *s = p->s;
    size_t t, b, n = 0;

    for (t = 0; t < p->n; t++) {
        if (!keep[t]) continue;
        if (n < t) {
            rows[n] = rows[t];
            memcpy(s->x + n * h, s->x + t * h, h * sizeof *s->x);
            for (b = 0; b < p->blocks; b++) {
                float *block = s->history + b * (size_t)s->rows * h;

                memcpy(block + n * h, block + t * h, h * sizeof *block);
            }
            if (c->n_mla) s->position[n] = s->position[t];
            if (angles)
                memcpy(s->turn + n * angles, s->turn + t * angles, angles * sizeof *s->turn);
        }
        n++;
    }
    p->n = n;
}
