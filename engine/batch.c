/* Batches of generations, of waste.h. Owns the generations in it; all of them are
 * stepped by the thread that calls. What always holds: a step has a row of every
 * generation that is writing, and what is left of a pass is for prompts, the oldest
 * first, so that a long prompt delays nobody by more than a pass.
 *
 * When a step fails that several share, it is not known whose fault it was. Each then
 * goes alone until it has its next token: those that cannot, fail; the others, whose
 * sequences a half-made pass has spoilt, compute theirs again. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "generate.h"
#include "internal.h"
#include "model/forward.h"
#include "waste.h"

#define PROMPT_ROWS 16 /* at least, in every step that has prompts to compute */

typedef struct member {
    waste_gen *gen;
    void *tag;
    size_t asked; /* rows in the running step */
    int begun;    /* its token is */
    int alone;    /* until its next token */
    int ended;    /* and to be given out */
    waste_error error;
} member;

struct waste_batch {
    waste_model *model;
    waste_cancel cancel;
    size_t parallel, n;
    int full;  /* the only one in it may come to need all the memory there is */
    member *m; /* [parallel], the oldest first */
    waste_row rows[WASTE_BATCH_MOST + WASTE_ROWS_MOST];
};

waste_status waste_batch_open(waste_batch **out, waste_model *m, int parallel,
                              const waste_cancel *cancel, waste_error *err)
{
    waste_batch *b;

    *out = NULL;
    if (!m) return waste_fail(err, WASTE_ARG, "waste_batch_open: no model");
    if (parallel < 1 || parallel > WASTE_BATCH_MOST)
        return waste_fail(err, WASTE_ARG, "%d generations at a time are not in 1..%d", parallel,
                          WASTE_BATCH_MOST);
    b = waste_mem_zero(sizeof *b);
    if (b) b->m = waste_mem_array((size_t)parallel, sizeof *b->m);
    if (!b || !b->m) {
        waste_batch_close(b);
        return waste_fail(err, WASTE_NOMEM, "out of memory for a batch of %d generations",
                          parallel);
    }
    b->model = m;
    b->parallel = (size_t)parallel;
    if (cancel) b->cancel = *cancel;
    *out = b;
    return WASTE_OK;
}

void waste_batch_close(waste_batch *b)
{
    size_t i;

    if (!b) return;
    for (i = 0; i < b->n; i++) waste_gen_close(b->m[i].gen);
    waste_mem_free(b->m);
    waste_mem_free(b);
}

size_t waste_batch_size(const waste_batch *b)
{
    return b->n;
}

/* With all the memory that it may come to need: running out half-way would lose what
 * has been done. If there is not enough for one, it has a try with what there is, alone. */
static waste_status admit(waste_batch *b, waste_gen **g, const waste_prompt *prompt,
                          const waste_gen_params *params, waste_error *err)
{
    waste_status st = waste_gen_open(g, b->model, prompt, params, err);

    b->full = 0;
    if (!st) st = waste_gen_reserve(*g, err);
    if (!st || !*g) return st;
    if (b->n == 0) {
        memset(err, 0, sizeof *err);
        b->full = 1;
        return WASTE_OK;
    }
    waste_gen_close(*g);
    *g = NULL;
    return st;
}

waste_status waste_batch_add(waste_batch *b, const waste_prompt *prompt,
                             const waste_gen_params *params, void *tag, waste_error *err)
{
    waste_gen_params own;
    waste_error why = {0};
    waste_gen *g = NULL;
    waste_status st;

    if (!b || !prompt || !params)
        return waste_fail(err, WASTE_ARG, "waste_batch_add: an argument is missing");
    if (prompt->seq)
        return waste_fail(err, WASTE_ARG, "a generation in a batch has its own sequence");
    if (b->n == b->parallel || (b->n && b->full))
        return waste_fail(err, WASTE_BUSY, "%zu generations are under way", b->n);
    own = *params;
    memset(&own.cancel, 0, sizeof own.cancel);
    st = admit(b, &g, prompt, &own, &why);
    if ((st == WASTE_RAM_BUDGET || st == WASTE_NOMEM) && b->n)
        return waste_fail(err, WASTE_BUSY, "%zu generations are under way, and %s", b->n, why.text);
    if (st) return waste_fail(err, st, "%s", why.text);
    memset(&b->m[b->n], 0, sizeof b->m[b->n]);
    b->m[b->n].gen = g;
    b->m[b->n++].tag = tag;
    return WASTE_OK;
}

/* ---- one step ------------------------------------------------------------ */

static void end(member *m, waste_status st, waste_error *why)
{
    m->ended = 1;
    if (st > 0) st = WASTE_OK;
    if (st) waste_fail(&m->error, st, "%s", why->status ? why->text : "the generation failed");
}

/* Its next token, or the reason why there is none. */
static void take_token(member *m, waste_status st, waste_error *why)
{
    waste_gen_token t;
    waste_error e = {0};

    memset(&t, 0, sizeof t);
    t.token = -1;
    st = waste_gen_end(m->gen, st, &t, why, &e);
    m->begun = m->alone = 0;
    if (st || t.finish) end(m, st, &e);
}

/* Gives tokens that need no step, and begins one that does. 0: it has ended. */
static int begin_token(member *m)
{
    while (!m->ended) {
        waste_error e = {0};
        waste_status st = m->begun ? WASTE_OK : waste_gen_begin(m->gen, &e);

        if (st) {
            end(m, st, &e);
            break;
        }
        m->begun = 1;
        if (waste_gen_late(m->gen))
            take_token(m, WASTE_CANCELLED, &e);
        else if (waste_gen_known(m->gen))
            take_token(m, WASTE_OK, &e);
        else
            return 1;
    }
    return 0;
}

static int begin(waste_batch *b)
{
    size_t i;
    int any = 0;

    for (i = 0; i < b->n; i++) any |= begin_token(&b->m[i]);
    return any;
}

/* Of all that go together, or of the first that has to go alone. */
static size_t gather(waste_batch *b)
{
    const size_t most = (size_t)b->model->plan.rows;
    size_t n = 0, i, room;
    member *alone = NULL;

    for (i = 0; i < b->n; i++) {
        b->m[i].asked = 0;
        if (!b->m[i].ended && b->m[i].alone && !alone) alone = &b->m[i];
    }
    if (alone) return alone->asked = waste_gen_rows(alone->gen, b->rows, most);

    for (i = 0; i < b->n; i++) {
        member *m = &b->m[i];
        if (!m->ended && waste_gen_pending(m->gen) == 1)
            n += m->asked = waste_gen_rows(m->gen, b->rows + n, 1);
    }
    if (!n)
        room = most;
    else
        room = n + PROMPT_ROWS < WASTE_ROWS_LEAST ? WASTE_ROWS_LEAST - n : PROMPT_ROWS;
    for (i = 0; i < b->n && room; i++) {
        member *m = &b->m[i];

        if (m->ended || m->asked) continue;
        m->asked = waste_gen_rows(m->gen, b->rows + n, room);
        n += m->asked;
        room -= m->asked;
    }
    return n;
}

/* The step of n rows has failed, and nobody asked for it. */
static void failed(waste_batch *b, waste_status st, waste_error *why)
{
    size_t i, sharing = 0;

    for (i = 0; i < b->n; i++) sharing += b->m[i].asked > 0;
    for (i = 0; i < b->n; i++) {
        member *m = &b->m[i];
        waste_error e = {0};
        waste_status again;

        if (!m->asked) continue;
        if (sharing == 1) {
            take_token(m, st, why);
            continue;
        }
        m->alone = 1;
        again = waste_gen_broken(m->gen) ? waste_gen_rewind(m->gen, &e) : WASTE_OK;
        if (again) take_token(m, again, &e);
    }
}

static waste_status step(waste_batch *b, waste_error *err)
{
    waste_error why = {0};
    const size_t n = gather(b);
    const waste_status st = waste_step(b->model, b->rows, n, &b->cancel, NULL, &why);
    size_t i;

    if (st == WASTE_CANCELLED) return waste_fail(err, st, "cancelled");
    if (st) {
        failed(b, st, &why);
        return WASTE_OK;
    }
    for (i = 0; i < b->n; i++) {
        member *m = &b->m[i];
        waste_error none = {0};

        if (m->asked && waste_gen_stepped(m->gen, m->asked)) take_token(m, WASTE_OK, &none);
    }
    return WASTE_OK;
}

static int take_ended(waste_batch *b, waste_batch_end *out)
{
    size_t i;

    for (i = 0; i < b->n; i++) {
        if (!b->m[i].ended) continue;
        out->tag = b->m[i].tag;
        out->gen = b->m[i].gen;
        out->error = b->m[i].error;
        b->n--;
        memmove(&b->m[i], &b->m[i + 1], (b->n - i) * sizeof *b->m);
        return 1;
    }
    return 0;
}

waste_status waste_batch_next(waste_batch *b, waste_batch_end *out, waste_error *err)
{
    memset(out, 0, sizeof *out);
    while (b->n) {
        waste_status st;

        if (take_ended(b, out)) return WASTE_OK;
        if (!begin(b)) continue;
        st = step(b, err);
        if (st) return st;
    }
    return WASTE_DONE;
}
