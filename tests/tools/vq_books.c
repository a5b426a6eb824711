/* Writes engine/convert/vq_books_table.h: the universal codebooks, trained jointly on
 * normally distributed vectors.
 *
 *     build/tests/tools/vq_books > engine/convert/vq_books_table.h
 *
 * Some three minutes of one core. The table is committed: containers depend on it, and
 * the logarithms of the generator here are a libc's. Progress goes to stderr: held-out
 * error by geometry. An argument scales the number of passes (0.1 for a quick look). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/vq_joint.h"
#include "kernels/quant.h"

#define TRAIN   3000000u /* vectors */
#define START   200000u  /* for k-means */
#define HELD    200000u
#define BATCH   300000u
#define PER_ROW 12

static const waste_quant geometry[] = {
    {3, 8, 256, 64, 8, 3}, {4, 8, 64, 64, 6, 3}, {2, 8, 256, 64, 8, 2}};

static void fail(const char *what)
{
    fprintf(stderr, "vq_books: %s\n", what);
    exit(1);
}

/* Marsaglia's polar method. */
static float *normal(size_t n, uint64_t seed)
{
    waste_vq_random r = {seed};
    float *x = malloc(n * sizeof *x);
    size_t i;

    if (!x) fail("out of memory");
    for (i = 0; i < n; i += 2) {
        double u, v, s;
        do {
            u = (double)(waste_vq_next(&r) >> 11) * 0x1p-52 - 1;
            v = (double)(waste_vq_next(&r) >> 11) * 0x1p-52 - 1;
            s = u * u + v * v;
        } while (s >= 1 || s == 0);
        s = sqrt(-2 * log(s) / s);
        x[i] = (float)(u * s);
        x[i + 1] = (float)(v * s);
    }
    return x;
}

static void put(const waste_vq_books *b)
{
    int s, k, d, n = 0;

    printf("static const uint16_t books_%dx%d[%d * %d * %d] = {", b->stages, b->entries, b->stages,
           b->entries, WASTE_VQ_DIM);
    for (s = 0; s < b->stages; s++)
        for (k = 0; k < b->entries; k++)
            for (d = 0; d < WASTE_VQ_DIM; d++)
                printf("%s0x%04X,", n++ % PER_ROW ? " " : "\n    ",
                       waste_f32_to_f16(b->book[s].part[d][k]));
    printf("\n};\n\n");
}

int main(int argc, char **argv)
{
    const double scale = argc > 1 ? atof(argv[1]) : 1;
    const waste_vq_schedule phases[] = {{(int)(90 * scale) + 1, 8, BATCH},
                                        {(int)(180 * scale) + 1, 16, BATCH},
                                        {(int)(90 * scale) + 1, 20, BATCH}};
    float *x = normal(TRAIN * WASTE_VQ_DIM, 1), *held = normal(HELD * WASTE_VQ_DIM, 2), *first;
    waste_vq_books *b = calloc(1, sizeof *b);
    waste_error err = {0};
    size_t g, p;

    if (!b) fail("out of memory");
    printf("/* Universal codebooks, f16: [stage][entry][component]. Made by\n"
           " * tests/tools/vq_books.c; not edited by hand. */\n#include <stdint.h>\n\n/* "
           "clang-format off */\n\n");
    for (g = 0; g < sizeof geometry / sizeof *geometry; g++) {
        waste_vq_team team;
        waste_vq_random r = {3};
        double e = 0;
        if (waste_vq_team_init(&team, geometry + g, 0, NULL, &err)) fail(err.text);
        first = malloc(START * WASTE_VQ_DIM * sizeof *first);
        if (!first) fail("out of memory");
        memcpy(first, x, START * WASTE_VQ_DIM * sizeof *first);
        if (waste_vq_train(b, geometry + g, first, START, &r, NULL, &err)) fail(err.text);
        free(first);
        for (p = 0; p < sizeof phases / sizeof *phases; p++) {
            if (waste_vq_joint_train(b, x, TRAIN, phases + p, &r, &team, NULL, &err))
                fail(err.text);
            if (waste_vq_joint_error(b, held, HELD, 16, &team, &e, NULL, &err)) fail(err.text);
            fprintf(stderr, "%dx%d after beam %d: %.3f %% at beam 16\n", b->stages, b->entries,
                    phases[p].beam, 100 * e);
        }
        put(b);
        waste_vq_team_clear(&team);
    }
    free(x);
    free(held);
    free(b);
    return 0;
}
