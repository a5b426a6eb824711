/* An ordinary feed-forward network for the rows of a chunk: dense layers and
 * shared experts (docs/model.md 1, 8). */
#include "model/forward.h"

waste_act_kind waste_ffn_act(const waste_config *c)
{
    waste_act_kind k = {c->situ, c->situ_beta, c->situ_linear_beta};

    return k;
}

void waste_ffn_rows(const waste_pass *p, const waste_ffn *f)
{
    waste_scratch *s = p->s;
    waste_act a = {waste_ffn_act(p->config), s->ffn_gate, s->ffn_up, s->ffn_gate};

    waste_forward_matmul(p, f->gate, s->normed, s->ffn_gate);
    waste_forward_matmul(p, f->up, s->normed, s->ffn_up);
    p->kernels->act(&a, 0, (int64_t)p->n * f->width);
    waste_forward_matmul(p, f->down, s->ffn_gate, s->out);
}
