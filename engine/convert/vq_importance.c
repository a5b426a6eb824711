/* Weights of columns: see vq_importance.h. Owns those of all layers of the file; for
 * K3 some 5 MB. */
#include "convert/vq_importance.h"

#include <math.h>

#include "base/mem.h"
#include "convert/importance.h"

#define DIM   8
#define LEAST 1e-4 /* of a list's mean: no channel weighs nothing */

struct waste_vq_importance {
    waste_importance file;
    float **weight; /* like file.mean: scale, then g */
};

/* Weights are roots, hence factors of errors are fourth roots. */
static void make_weights(const float *mean, float *scale, float *g, int64_t n)
{
    double all = 0;
    int64_t i;
    int d;

    for (i = 0; i < n; i++) all += (double)mean[i] / (double)n;
    for (i = 0; i < n; i++) {
        double v = all > 0 ? (double)mean[i] / all : 1;
        scale[i] = (float)sqrt(v > LEAST ? v : LEAST);
    }
    for (i = 0; i < n; i += DIM) {
        double sum = 0;
        for (d = 0; d < DIM; d++) sum += (double)scale[i + d];
        for (d = 0; d < DIM; d++) g[i + d] = (float)sqrt((double)scale[i + d] * DIM / sum);
    }
}

static waste_status make_all(waste_vq_importance *m, const char *path, waste_error *err)
{
    const size_t n = WASTE_IMPORTANCE_KINDS * (size_t)(m->file.layers - m->file.first);
    size_t i;

    m->weight = waste_mem_array(n, sizeof *m->weight);
    for (i = 0; m->weight && i < n; i++) {
        const int64_t cols = m->file.cols[i % WASTE_IMPORTANCE_KINDS];

        if (!m->file.mean[i]) continue;
        m->weight[i] = waste_mem_array(2 * (size_t)cols, sizeof **m->weight);
        if (!m->weight[i]) break;
        make_weights(m->file.mean[i], m->weight[i], m->weight[i] + cols, cols);
    }
    if (m->weight && i == n) return WASTE_OK;
    return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
}

waste_status waste_vq_importance_open(waste_vq_importance **out, const char *path, int first,
                                      int layers, int64_t in, int64_t width, waste_error *err)
{
    waste_vq_importance *m = waste_mem_zero(sizeof *m);
    waste_status st;

    *out = NULL;
    if (!m) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    st = waste_importance_init(&m->file, first, layers, in, width, err);
    if (!st) st = waste_importance_load(&m->file, path, err);
    if (!st) st = make_all(m, path, err);
    if (st) {
        waste_vq_importance_close(m);
        return st;
    }
    *out = m;
    return WASTE_OK;
}

void waste_vq_importance_close(waste_vq_importance *m)
{
    int i;

    if (!m) return;
    for (i = 0; m->weight && i < WASTE_IMPORTANCE_KINDS * (m->file.layers - m->file.first); i++)
        waste_mem_free(m->weight[i]);
    waste_mem_free(m->weight);
    waste_importance_clear(&m->file);
    waste_mem_free(m);
}

int waste_vq_importance_get(const waste_vq_importance *m, int layer, int kind, waste_vq_weights *w)
{
    const float *p;

    if (!m) return 0;
    p = m->weight[waste_importance_at(&m->file, layer, kind) - m->file.mean];
    if (!p) return 0;
    w->scale = p;
    w->g = p + m->file.cols[kind];
    return 1;
}
