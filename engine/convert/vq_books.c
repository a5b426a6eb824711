/* The universal codebooks: see vq_books.h. The numbers are in vq_books_table.h. */
#include "convert/vq_books.h"

#include <string.h>

#include "convert/vq_books_table.h"
#include "kernels/quant.h"

static const struct {
    int stages, entries;
    const uint16_t *value;
    double normal_error; /* measured by tests/tools/vq_books.c */
} known[] = {
    {3, 256, books_3x256, 0.1588}, {4, 64, books_4x64, 0.1604}, {2, 256, books_2x256, 0.3032}};

static int find(const waste_quant *q)
{
    int i;

    for (i = 0; i < (int)(sizeof known / sizeof *known); i++)
        if (q->vec_dim == WASTE_VQ_DIM && q->stages == known[i].stages &&
            q->entries == known[i].entries)
            return i;
    return -1;
}

int waste_vq_books_universal(waste_vq_books *b, const waste_quant *q)
{
    int i = find(q), s, k, d;
    const uint16_t *v;

    if (i < 0) return -1;
    memset(b, 0, sizeof *b);
    b->stages = q->stages;
    b->entries = q->entries;
    for (s = 0, v = known[i].value; s < b->stages; s++) {
        for (k = 0; k < b->entries; k++)
            for (d = 0; d < WASTE_VQ_DIM; d++) b->book[s].part[d][k] = waste_f16_to_f32(*v++);
        waste_vq_book_round(b->book + s, b->entries);
    }
    return 0;
}

double waste_vq_books_normal_error(const waste_quant *q)
{
    return known[find(q)].normal_error;
}
