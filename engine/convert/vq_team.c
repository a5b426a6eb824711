/* Threads and coders: see vq_team.h. */
#include "convert/vq_team.h"

#include <string.h>

#include "base/mem.h"

waste_status waste_vq_team_init(waste_vq_team *t, const waste_quant *q, int threads,
                                const waste_vq_core *core, waste_error *err)
{
    waste_status st;
    int i;

    memset(t, 0, sizeof *t);
    st = waste_vq_pool_open(&t->pool, threads, err);
    if (st) return st;
    t->size = waste_vq_pool_size(t->pool);
    if (!waste_vq_beam_fits(q)) return WASTE_OK;
    t->coder = waste_mem_array((size_t)t->size, sizeof *t->coder);
    if (!t->coder) return waste_fail(err, WASTE_NOMEM, "out of memory for codebook tables");
    for (i = 0; !st && i < t->size; i++) st = waste_vq_coder_new(t->coder + i, core, q, err);
    return st;
}

void waste_vq_team_clear(waste_vq_team *t)
{
    int i;

    waste_vq_pool_close(t->pool);
    for (i = 0; t->coder && i < t->size; i++) waste_vq_coder_free(t->coder[i]);
    waste_mem_free(t->coder);
    memset(t, 0, sizeof *t);
}

typedef struct setting {
    waste_vq_team *team;
    const waste_vq_books *books;
} setting;

static void set_one(void *ctx, int worker, size_t i)
{
    const setting *s = ctx;

    (void)worker;
    waste_vq_coder_set(s->team->coder[i], s->books, NULL);
}

waste_status waste_vq_team_set(waste_vq_team *t, const waste_vq_books *b,
                               const waste_cancel *cancel, waste_error *err)
{
    setting s = {t, b};

    return waste_vq_pool_run(t->pool, set_one, &s, (size_t)t->size, cancel, err);
}
