/* An ordinary feed-forward network for the rows of a chunk: dense layers and
 * shared experts (docs/model.md 1, 8). */
#include "model/forward.h"

waste_act_kind waste_ffn_act(const waste_config *c)
{
    waste_act_kind k = {c->situ, c->situ_beta, c->situ_linear_beta};

    return k;
}

typedef struct half {
    const waste_pass *p;
    const waste_ffn *f;
    const void *gate, *up; /* their inputs */
} half;

/* Gate and up for tiles lo..hi-1 of the width, and their activation. */
static void half_part(void *ctx, int thread, int64_t lo, int64_t hi)
{
    const half *j = ctx;
    const waste_pass *p = j->p;
    const int64_t width = j->f->width, from = lo * WASTE_FORWARD_TILE;
    const int64_t to = hi * WASTE_FORWARD_TILE < width ? hi * WASTE_FORWARD_TILE : width;
    waste_scratch *s = p->s;
    waste_matmul gate = waste_forward_rows(p, j->f->gate, s->normed, j->gate, s->ffn_gate, thread);
    waste_matmul up = waste_forward_rows(p, j->f->up, s->normed, j->up, s->ffn_up, thread);
    waste_act act = {waste_ffn_act(p->config), s->ffn_gate, s->ffn_up, s->ffn_gate};
    int64_t t;

    p->kernels->matmul(&gate, from, to);
    p->kernels->matmul(&up, from, to);
    for (t = 0; t < (int64_t)p->n; t++) p->kernels->act(&act, t * width + from, t * width + to);
}

void waste_ffn_rows(const waste_pass *p, const waste_ffn *f)
{
    half j = {p, f, waste_forward_input(p, f->gate, p->s->normed, p->n, 0), NULL};

    j.up = f->up->tiled == f->gate->tiled && f->up->group == f->gate->group
               ? j.gate
               : waste_forward_input(p, f->up, p->s->normed, p->n, 1);
    waste_forward_share(p, waste_forward_tiles(f->width),
                        2 * WASTE_FORWARD_TILE * f->gate->cols * (int64_t)p->n, half_part, &j);
    waste_forward_matmul(p, f->down, p->s->ffn_gate, p->s->out);
}
