/* The choice of a kernel table: see kernels.h. No state, any thread. */
#include "kernels/kernels.h"

#include <string.h>

#include "base/cpu.h"
#include "kernels/kernels_ref.h"
#include "kernels/kernels_tables.h"
#include "kernels/kernels_work.h"
#include "kernels/tiles.h"

typedef struct table {
    const char *name;
    unsigned needs;                /* CPU bits */
    int (*fill)(waste_kernels *k); /* over the plain table; 0: not in this build */
} table;

static int plain(waste_kernels *k)
{
    (void)k;
    return 1;
}

/* The fastest first. */
static const table tables[] = {
    {"avx512", WASTE_CPU_AVX512, waste_kernels_avx512},
    {"avx512bw", WASTE_CPU_AVX512BW, waste_kernels_avx512bw},
    {"avx2", WASTE_CPU_AVX2, waste_kernels_avx2},
    {"neon-dotprod", WASTE_CPU_NEON | WASTE_CPU_DOTPROD, waste_kernels_neon_dot},
    {"neon", WASTE_CPU_NEON, waste_kernels_neon},
    {"plain", 0, plain},
};

#define N_TABLES (sizeof tables / sizeof *tables)

static int fill(waste_kernels *k, const table *t, unsigned cpu)
{
    if ((t->needs & cpu) != t->needs) return 0;
    waste_kernels_ref(k);
    return t->fill(k);
}

void waste_kernels_pick(waste_kernels *k, unsigned cpu)
{
    size_t i;

    for (i = 0; i < N_TABLES && !fill(k, &tables[i], cpu); i++) continue;
}

int waste_kernels_named(waste_kernels *k, const char *name, unsigned cpu)
{
    size_t i;

    for (i = 0; i < N_TABLES; i++)
        if (!strcmp(tables[i].name, name)) return fill(k, &tables[i], cpu);
    return 0;
}

/* ---- scratch ---------------------------------------------------------------- */

static size_t max2(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t up_to(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

/* Per row of integers 16 bits a column, padded to whole groups and
 * to 64, and a scale and a sum per group (4 columns at least: tiles.h). */
static size_t integers_bytes(int64_t cols, size_t n)
{
    const size_t padded = (size_t)cols + WASTE_TILES_GROUP + 64, groups = (size_t)cols / 4 + 1;

    return up_to(waste_tiles_terms(cols) * n * (2 * padded + 8 * groups), 64);
}

size_t waste_kernels_activations_bytes(int64_t cols, size_t n)
{
    const int64_t narrow = cols < WASTE_TILES_NARROW ? cols : WASTE_TILES_NARROW;

    return max2(integers_bytes(cols, n), integers_bytes(narrow, n));
}

static size_t expert_bytes(const waste_kernel_limits *l)
{
    /* a range that starts inside an index block touches one more */
    const size_t up = 2 * (up_to((size_t)l->width, 64) + 64);
    const size_t down = up_to((size_t)l->in, 64) + 64;
    const size_t scales = 2 * (size_t)WASTE_VQ_BLOCKS(l->width > l->in ? l->width : l->in);

    if (!l->width) return 0;
    return WASTE_VQ_TABLE_BYTES + WASTE_VQ_PLANE_BYTES + WASTE_VQ_MANY_BYTES +
           WASTE_VQ_MANY * (scales + max2(up, down)) * sizeof(float);
}

/* Per row and head: query, weighted latents, scores, maximum and sum. A block of
 * latents as f32. */
static size_t mla_bytes(const waste_kernel_limits *l)
{
    const size_t rank = up_to((size_t)l->rank, 16), rope = up_to((size_t)l->rope, 16);
    const size_t rows = l->rows < WASTE_MLA_ROWS ? l->rows : WASTE_MLA_ROWS;

    if (!l->heads) return 0;
    return (rows * up_to((size_t)l->heads, 4) * (2 * rank + rope + WASTE_LATENT_BLOCK + 2) +
            WASTE_MLA_DECODED * rank + WASTE_LATENT_BLOCK * (rank + rope) + 64) *
           sizeof(float);
}

size_t waste_kernels_work_bytes(const waste_kernel_limits *l)
{
    return up_to(max2(expert_bytes(l), mla_bytes(l)), 64) + 64;
}

/* Two matrices of 16-bit entries, three stages of 256 to a position at most, and a
 * scale for each block of positions. */
size_t waste_kernels_tables_most(int64_t cols)
{
    const size_t nv = (size_t)cols / 8 + 1;

    return 2 * up_to(nv * (3 * 256 * 2 + sizeof(float)), 64);
}

size_t waste_kernels_pack_bytes(const waste_matrix *w)
{
    return 64 * ((size_t)w->row_bytes + 2 * (size_t)w->n_groups);
}
