/* convert/vq_beam and its cores: against a slow reading of the rule in vq_core.h,
 * against each other bit for bit, and at the ends of the number range. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "convert/vq_beam.h"
#include "convert/vq_books.h"
#include "emulated.h"
#include "lib/weights.h"

static const waste_quant geometry[] = {
    {3, 8, 256, 64, 8, 3}, {4, 8, 64, 64, 6, 3}, {2, 8, 256, 64, 8, 2}, {3, 8, 64, 64, 8, 3}};
static const char *const names[] = {"plain", "avx2", "avx512"};

#define GEOMETRIES 4

/* ---- the rule, slowly --------------------------------------------------------------- */

typedef struct slow_path {
    int score, entry[4];
} slow_path;

static int saturate(int v)
{
    return v > 32767 ? 32767 : v < -32768 ? -32768 : v;
}

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Bracket of entry k of stage s, from the packed tables. */
static int bracket(const waste_vq_tables *t, int lanes, int s, int k, const int16_t *x)
{
    int32_t v = t->norm[s * t->entries + (int)waste_vq_place_norm(lanes, k)];
    int d;

    for (d = 0; d < 8; d++)
        v += x[d] *
             t->part[(size_t)(s * 8 * t->entries) + waste_vq_place_part(lanes, t->entries, k, d)];
    return saturate(v >> WASTE_VQ_SHIFT);
}

static void search_slowly(const waste_vq_tables *t, int lanes, const int16_t *x, int beam,
                          uint8_t *index)
{
    static slow_path path[WASTE_VQ_KEPT], next[WASTE_VQ_KEPT];
    static int score[WASTE_VQ_KEPT * 256];
    const int K = t->entries;
    int n = 1, s, i, p, sum, low[64], best;

    memset(path, 0, sizeof path);
    for (i = 0, sum = 0; i < 8; i++) sum += x[i] * x[i];
    path[0].score = saturate(sum >> WASTE_VQ_SHIFT);
    for (s = 0; s < t->stages; s++) {
        for (i = 0; i < n * K; i++) {
            sum = bracket(t, lanes, s, i % K, x);
            for (p = 0; p < s; p++)
                sum = saturate(sum + t->cross[p][s][path[i / K].entry[p] * K + i % K]);
            score[i] = saturate(sum + path[i / K].score);
        }
        if (s == t->stages - 1) break;
        for (i = 0; i < 64; i++) low[i] = 32767;
        for (i = 0; i < n * K; i++)
            if (score[i] < low[i % 64]) low[i % 64] = score[i];
        qsort(low, 64, sizeof *low, by_value);
        for (i = 0, p = 0; i < n * K && p < WASTE_VQ_KEPT; i++) {
            if (score[i] > low[beam - 1]) continue;
            next[p] = path[i / K];
            next[p].entry[s] = i % K;
            next[p++].score = score[i];
        }
        n = p;
        memcpy(path, next, sizeof path);
    }
    for (i = 1, best = 0; i < n * K; i++)
        if (score[i] < score[best]) best = i;
    for (p = 0; p < s; p++) index[p] = (uint8_t)path[best / K].entry[p];
    index[s] = (uint8_t)(best % K);
}

typedef struct raw {
    waste_vq_tables t;
    void *block;
} raw;

/* Tables of arbitrary numbers; `wild`: up to the ends of 16 bits. */
static raw raw_tables(const waste_quant *q, uint64_t seed, int wild, int lanes)
{
    const size_t n = (size_t)(q->stages * q->entries), K = (size_t)q->entries;
    waste_vq_random r = {seed};
    size_t i;
    raw a;
    char *at;
    int s, k, d;

    a.block = waste_mem_aligned(64, (n * 20 + 6 * K * K * 2 + 640) / 64 * 64);
    a.t.stages = q->stages;
    a.t.entries = q->entries;
    at = a.block;
    a.t.part = (int16_t *)(void *)at;
    at += n * 16;
    a.t.norm = (int32_t *)(void *)at;
    at += n * 4;
    for (s = 0; s < q->stages; s++)
        for (k = 0; k < q->entries; k++) {
            int32_t norm = 1 << (WASTE_VQ_SHIFT - 1);
            for (d = 0; d < 8; d++) {
                int c = (int)waste_vq_below(&r, wild ? 11000 : 3000) - (wild ? 5500 : 1500);
                a.t.part[(size_t)(s * 8 * q->entries) +
                         waste_vq_place_part(lanes, q->entries, k, d)] = (int16_t)(-2 * c);
                norm += c * c;
            }
            a.t.norm[s * q->entries + (int)waste_vq_place_norm(lanes, k)] = norm;
        }
    for (s = 0; s < q->stages; s++)
        for (k = s + 1; k < q->stages; k++, at += K * K * 2) {
            a.t.cross[s][k] = (int16_t *)(void *)at;
            for (i = 0; i < K * K; i++)
                a.t.cross[s][k][i] = wild ? (int16_t)waste_vq_next(&r)
                                          : (int16_t)((int)waste_vq_below(&r, 2000) - 1000);
        }
    return a;
}

/* Vectors within reach; every seventh is zero, and components are coarse so that
 * scores are often equal. */
static int16_t *raw_vectors(size_t n, uint64_t seed)
{
    int16_t *x = malloc(n * 16);
    waste_vq_random r = {seed};
    size_t i;

    for (i = 0; i < n * 8; i++)
        x[i] = i / 8 % 7 == 6 ? 0 : (int16_t)(((int)waste_vq_below(&r, 41) - 20) * 250);
    return x;
}

static void every_core_follows_the_rule(void **state)
{
    static const int beams[] = {1, 2, 7, 16, 32};
    const size_t n = 25;
    int16_t *x = raw_vectors(n, 4);
    void *scratch = waste_mem_aligned(64, WASTE_VQ_SCRATCH);
    uint8_t got[25 * 4], want[4];
    size_t c, g, b, v;
    int wild;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    for (c = 0; c < 3; c++) {
        const waste_vq_core *core = waste_vq_core_named(names[c], waste_cpu_features());
        if (!core) continue;
        for (g = 0; g < GEOMETRIES; g++)
            for (wild = 0; wild < 2; wild++) {
                raw a = raw_tables(geometry + g, g + 1, wild, core->lanes);
                for (b = 0; b < 5; b++) {
                    core->search(&a.t, x, n, beams[b], scratch, got);
                    for (v = 0; v < n; v++) {
                        const size_t S = (size_t)a.t.stages;
                        search_slowly(&a.t, core->lanes, x + 8 * v, beams[b], want);
                        if (memcmp(got + v * S, want, S))
                            fail_msg("%s, geometry %zu, beam %d, vector %zu", core->name, g,
                                     beams[b], v);
                    }
                }
                waste_mem_free(a.block);
            }
    }
    waste_mem_free(scratch);
    free(x);
}

static void cores_are_found_by_name(void **state)
{
    (void)state;
    assert_string_equal(waste_vq_core_pick(0)->name, "plain");
    assert_ptr_equal(waste_vq_core_named("plain", 0), waste_vq_plain());
    assert_null(waste_vq_core_named("avx2", 0));
    assert_null(waste_vq_core_named("sse9", ~0u));
#if defined(__x86_64__)
    assert_string_equal(waste_vq_core_pick(WASTE_CPU_AVX2)->name, "avx2");
#endif
}

/* ---- floats --------------------------------------------------------------------------- */

static waste_vq_coder *coder_of(const char *name, const waste_quant *q)
{
    const waste_vq_core *core = waste_vq_core_named(name, waste_cpu_features());
    waste_vq_coder *c = NULL;
    waste_error err = {0};

    if (core) assert_int_equal(waste_vq_coder_new(&c, core, q, &err), WASTE_OK);
    return c;
}

static double error_of(const waste_vq_books *b, const float *x, const uint8_t *index, size_t n)
{
    double wrong = 0, all = 0;
    size_t v;
    int d;

    for (v = 0; v < n; v++) {
        float y[8];
        waste_vq_decode(b, index + v * (size_t)b->stages, y);
        for (d = 0; d < 8; d++) {
            double e = (double)x[v * 8 + (size_t)d] - (double)y[d];
            wrong += e * e;
            all += (double)x[v * 8 + (size_t)d] * (double)x[v * 8 + (size_t)d];
        }
    }
    return sqrt(wrong / all);
}

/* Normal vectors, some so long that they leave the range of 16 bits. */
static float *vectors(size_t n)
{
    float *x = weights_make(WEIGHTS_T6, (int64_t)n / 32, 256, 3);
    size_t i;

    for (i = 0; i < n * 8; i++) x[i] *= 50;
    for (i = 0; i < 8; i++) {
        x[8 * 100 + i] *= 10;
        x[8 * 101 + i] *= 100;
        x[8 * 900 + i] *= 3000;
        x[8 * 901 + i] *= 1e6f;
        x[8 * 902 + i] *= 1e30f; /* beyond any level */
        x[8 * 903 + i] = 0;
        x[8 * 904 + i] *= 1e-30f;
    }
    return x;
}

static void all_instruction_sets_give_the_same_indices(void **state)
{
    static const float heavy[8] = {2, .1f, .1f, .5f, 1, 1, .3f, 1.2f};
    const size_t n = 1280;
    float *x = vectors(n);
    uint8_t *first = malloc(n * 4), *next = malloc(n * 4);
    waste_vq_books *b = malloc(sizeof *b);
    size_t c, g;
    int weighted;
    (void)state;
    for (g = 0; g < 3; g++)
        for (weighted = 0; weighted < 2; weighted++) {
            int have = 0;
            waste_vq_books_universal(b, geometry + g);
            for (c = 0; c < 3; c++) {
                const size_t bytes = n * (size_t)b->stages;
                waste_vq_coder *coder = coder_of(names[c], geometry + g);
                if (!coder) continue;
                waste_vq_coder_set(coder, b, weighted ? heavy : NULL);
                waste_vq_coder_search(coder, x, 8, n, 16, have++ ? next : first);
                if (have > 1) assert_memory_equal(first, next, bytes);
                waste_vq_coder_free(coder);
            }
        }
    free(x);
    free(first);
    free(next);
    free(b);
}

/* What stands around a vector, and where, does not matter. */
static void vectors_do_not_influence_each_other(void **state)
{
    const size_t n = 1024;
    float *x = vectors(n + 32), apart[24];
    uint8_t *index = malloc(n * 3), one[3];
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_coder *c = coder_of("plain", geometry);
    size_t v;
    int d;
    (void)state;
    waste_vq_books_universal(b, geometry);
    waste_vq_coder_set(c, b, NULL);
    waste_vq_coder_search(c, x, 8, n, 8, index);
    for (v = 0; v < n; v += 11) {
        for (d = 0; d < 8; d++) apart[d] = x[v * 8 + (size_t)d];
        waste_vq_coder_search(c, apart, 24, 1, 8, one);
        assert_memory_equal(one, index + v * 3, 3);
    }
    for (v = 100; v < 102; v++) { /* of two levels */
        waste_vq_coder_search(c, x + v * 8, 8, 1, 8, one);
        assert_memory_equal(one, index + v * 3, 3);
    }
    waste_vq_coder_free(c);
    free(x);
    free(index);
    free(b);
}

static void a_wider_beam_finds_better_sums(void **state)
{
    static const int beams[] = {1, 4, 16, 32};
    static const double most[][4] = {{.205, .175, .160, .158}, {.216, .178, .162, .160}};
    const size_t n = 4096;
    float *x = weights_make(WEIGHTS_NORMAL, 128, 256, 8);
    uint8_t *index = malloc(n * 4);
    waste_vq_books *b = malloc(sizeof *b);
    size_t g, i;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    for (i = 0; i < n * 8; i++) x[i] *= 50;
    for (g = 0; g < 2; g++) {
        waste_vq_coder *c = coder_of(waste_vq_core_pick(waste_cpu_features())->name, geometry + g);
        waste_vq_books_universal(b, geometry + g);
        waste_vq_coder_set(c, b, NULL);
        for (i = 0; i < 4; i++) {
            double e;
            waste_vq_coder_search(c, x, 8, n, beams[i], index);
            e = error_of(b, x, index, n);
            if (e > most[g][i]) fail_msg("beam %d: %g", beams[i], e);
        }
        waste_vq_coder_free(c);
    }
    free(x);
    free(index);
    free(b);
}

/* Long vectors are searched on a coarser grid, which the error must not show: the
 * same vectors and books at another scale. */
static void long_vectors_lose_next_to_nothing(void **state)
{
    static const double scale[] = {1, 3, 4, 20, 300};
    const size_t n = 1024;
    float *x = weights_make(WEIGHTS_NORMAL, 32, 256, 8), *y = malloc(n * 32);
    uint8_t *index = malloc(n * 3);
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_coder *c = coder_of("plain", geometry);
    double e, first = 0;
    size_t i, k;
    int s, d, j;
    (void)state;
    emulated_skip(EMULATED_TOO_LONG);
    for (k = 0; k < 5; k++) {
        waste_vq_books_universal(b, geometry);
        for (s = 0; s < 3; s++)
            for (d = 0; d < 8; d++)
                for (j = 0; j < 256; j++) b->book[s].part[d][j] *= (float)scale[k];
        for (i = 0; i < n * 8; i++) y[i] = x[i] * 50 * (float)scale[k];
        waste_vq_coder_set(c, b, NULL);
        waste_vq_coder_search(c, y, 8, n, 16, index);
        e = error_of(b, y, index, n);
        if (k == 0) first = e;
        if (e > first * 1.03) fail_msg("scale %g: %g, %g at scale 1", scale[k], e, first);
    }
    waste_vq_coder_free(c);
    free(x);
    free(y);
    free(index);
    free(b);
}

/* An error in a heavy component costs more, so less of it is made. */
static void weights_move_the_error(void **state)
{
    static const float g[8] = {2, 2, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f};
    const size_t n = 2048;
    float *x = weights_make(WEIGHTS_NORMAL, 64, 256, 8);
    uint8_t *index = malloc(n * 3);
    waste_vq_books *b = malloc(sizeof *b);
    waste_vq_coder *c = coder_of("plain", geometry);
    double wrong[2][8] = {{0}};
    size_t v, i;
    int k, d;
    (void)state;
    for (i = 0; i < n * 8; i++) x[i] *= 50;
    waste_vq_books_universal(b, geometry);
    for (k = 0; k < 2; k++) {
        waste_vq_coder_set(c, b, k ? g : NULL);
        waste_vq_coder_search(c, x, 8, n, 16, index);
        for (v = 0; v < n; v++) {
            float y[8];
            waste_vq_decode(b, index + 3 * v, y);
            for (d = 0; d < 8; d++) wrong[k][d] += pow((double)(x[v * 8 + (size_t)d] - y[d]), 2);
        }
    }
    assert_true(wrong[1][0] < 0.5 * wrong[0][0] && wrong[1][1] < 0.5 * wrong[0][1]);
    assert_true(wrong[1][4] > wrong[0][4]);
    waste_vq_coder_free(c);
    free(x);
    free(index);
    free(b);
}

static void opening_fails_cleanly(void **state)
{
    static const waste_quant odd[] = {
        {1, 8, 256, 64, 8, 1}, {6, 8, 16, 64, 8, 6}, {3, 4, 256, 64, 8, 3}};
    uint64_t before = waste_mem_used(), n;
    waste_vq_coder *c;
    waste_error err;
    (void)state;
    for (n = 0; n < 3; n++) assert_false(waste_vq_beam_fits(odd + n));
    for (n = 0; n < GEOMETRIES; n++) assert_true(waste_vq_beam_fits(geometry + n));
    for (n = 1; n <= 2; n++) {
        memset(&err, 0, sizeof err);
        waste_mem_fail_at(n, 1);
        assert_int_equal(waste_vq_coder_new(&c, NULL, geometry, &err), WASTE_NOMEM);
        waste_mem_fail_at(0, 0);
        assert_null(c);
        assert_int_equal(waste_mem_used(), before);
    }
    waste_vq_coder_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_core_follows_the_rule),
        cmocka_unit_test(cores_are_found_by_name),
        cmocka_unit_test(all_instruction_sets_give_the_same_indices),
        cmocka_unit_test(vectors_do_not_influence_each_other),
        cmocka_unit_test(a_wider_beam_finds_better_sums),
        cmocka_unit_test(long_vectors_lose_next_to_nothing),
        cmocka_unit_test(weights_move_the_error),
        cmocka_unit_test(opening_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
