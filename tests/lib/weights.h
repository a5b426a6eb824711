/* Matrices of known kinds for measuring quantisers: the same bits for a seed up to
 * the rounding of a libc's logarithm. */
#ifndef TEST_WEIGHTS_H
#define TEST_WEIGHTS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "convert/vq.h"

/* Built under a sanitizer that makes training take minutes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEIGHTS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEIGHTS_SLOW 1
#endif
#endif
#ifndef WEIGHTS_SLOW
#define WEIGHTS_SLOW 0
#endif

typedef enum weights_kind {
    WEIGHTS_NORMAL,
    WEIGHTS_T6,      /* Student's t, 6 degrees: heavy tails */
    WEIGHTS_COLUMNS, /* normal times lognormal columns (.5) and rows (.3) */
    WEIGHTS_MXFP4,   /* normal, rounded to MXFP4 as in K3's release */
    WEIGHTS_KINDS
} weights_kind;

static const char *const weights_names[] = {"normal", "t6", "columns", "mxfp4"};

static inline double weights_normal(waste_vq_random *r)
{
    double u, v, s;

    do {
        u = (double)(waste_vq_next(r) >> 11) * 0x1p-52 - 1;
        v = (double)(waste_vq_next(r) >> 11) * 0x1p-52 - 1;
        s = u * u + v * v;
    } while (s >= 1 || s == 0);
    return u * sqrt(-2 * log(s) / s);
}

/* One group of 32 to the nearest of +-{0, .5, 1, 1.5, 2, 3, 4, 6} 2^e, with the least
 * e at which the largest does not overflow. */
static inline void weights_round(float *w)
{
    static const float value[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float most = 0, scale;
    int i, k, best;

    for (i = 0; i < 32; i++) most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
    if (most == 0) return;
    scale = exp2f(ceilf(log2f(most / 6)));
    for (i = 0; i < 32; i++) {
        float a = fabsf(w[i]) / scale;
        for (k = 1, best = 0; k < 8; k++)
            if (fabsf(a - value[k]) < fabsf(a - value[best])) best = k;
        w[i] = copysignf(value[best] * scale, w[i]);
    }
}

/* [rows][cols], cols a multiple of 32; free() it. */
static inline float *weights_make(weights_kind kind, int64_t rows, int64_t cols, uint64_t seed)
{
    waste_vq_random r = {seed};
    float *w = malloc((size_t)(rows * cols) * sizeof *w);
    double *column = malloc((size_t)cols * sizeof *column), row, v, chi;
    int64_t i, c;
    int k;

    if (!w || !column) abort();
    for (c = 0; c < cols; c++)
        column[c] = kind == WEIGHTS_COLUMNS ? exp(0.5 * weights_normal(&r)) : 1;
    for (i = 0; i < rows; i++) {
        row = 0.02 * (kind == WEIGHTS_COLUMNS ? exp(0.3 * weights_normal(&r)) : 1);
        for (c = 0; c < cols; c++) {
            v = weights_normal(&r);
            if (kind == WEIGHTS_T6) {
                for (k = 0, chi = 0; k < 6; k++) {
                    double z = weights_normal(&r);
                    chi += z * z;
                }
                v /= sqrt(chi / 6);
            }
            w[i * cols + c] = (float)(v * row * column[c]);
        }
        for (c = 0; kind == WEIGHTS_MXFP4 && c < cols; c += 32) weights_round(w + i * cols + c);
    }
    free(column);
    return w;
}

#endif
