/* The choice of codebooks: see vq_choice.h. Figures behind the numbers here are in
 * docs/measured.md. */
#include "convert/vq_choice.h"

#include <string.h>

#include "base/mem.h"
#include "convert/vq_books.h"
#include "convert/vq_joint.h"

#define DIM       WASTE_VQ_DIM
#define HELD_OUT  50000  /* vectors to judge by; a sixth of the sample at most */
#define LEAST_OWN 16384  /* a smaller sample teaches nothing */
#define NORMAL    1.01   /* times the error on normal vectors: nothing to gain */
#define GAIN      0.001  /* of the error: what own books must be better by */
#define BEAM      16     /* to judge by */
#define START     100000 /* vectors that own books start from */

static const waste_vq_schedule own_books = {60, 12, 50000};

static void shuffle(float *x, size_t n, waste_vq_random *r)
{
    float t[DIM];

    for (; n > 1; n--) {
        float *a = x + (n - 1) * DIM, *b = x + (size_t)waste_vq_below(r, n) * DIM;
        memcpy(t, a, sizeof t);
        memcpy(a, b, sizeof t);
        memcpy(b, t, sizeof t);
    }
}

/* From books of k-means: from the universal ones training ends in worse books where
 * the weights are far from normal. */
static waste_status train_own(waste_vq_books *own, const waste_quant *q, const float *x, size_t n,
                              waste_vq_random *r, waste_vq_team *team, const waste_cancel *cancel,
                              waste_error *err)
{
    const size_t first = n < START ? n : START;
    float *copy = waste_mem_array(first, DIM * sizeof *copy);
    waste_status st;

    if (!copy) return waste_fail(err, WASTE_NOMEM, "out of memory training codebooks");
    memcpy(copy, x, first * DIM * sizeof *copy);
    st = waste_vq_train(own, q, copy, first, r, cancel, err);
    waste_mem_free(copy);
    if (!st) st = waste_vq_joint_train(own, x, n, &own_books, r, team, cancel, err);
    return st;
}

waste_status waste_vq_choice_make(waste_vq_books *b, const waste_quant *q, float *x, size_t n,
                                  waste_vq_random *r, waste_vq_team *team,
                                  const waste_cancel *cancel, waste_error *err)
{
    const size_t held = n / 6 < HELD_OUT ? n / 6 : HELD_OUT, rest = n - held;
    const float *unseen = x + rest * DIM;
    waste_vq_books *own;
    double theirs, ours = 0;
    waste_status st;

    if (waste_vq_books_universal(b, q))
        return waste_fail(err, WASTE_ARG, "no codebooks for %d stages of %d entries", q->stages,
                          q->entries);
    if (n < LEAST_OWN) return WASTE_OK;
    shuffle(x, n, r);
    st = waste_vq_joint_error(b, unseen, held, BEAM, team, &theirs, cancel, err);
    if (st || theirs <= NORMAL * waste_vq_books_normal_error(q)) return st;

    own = waste_mem_alloc(sizeof *own);
    if (!own) return waste_fail(err, WASTE_NOMEM, "out of memory training codebooks");
    st = train_own(own, q, x, rest, r, team, cancel, err);
    if (!st) st = waste_vq_joint_error(own, unseen, held, BEAM, team, &ours, cancel, err);
    if (!st && ours < theirs - GAIN) *b = *own;
    waste_mem_free(own);
    return st;
}
