/* Importance of input channels: see vq_importance.h. Owns the weights of all layers
 * of the file; for K3 some 5 MB. */
#include "convert/vq_importance.h"

#include <math.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

#define DIM   8
#define LEAST 1e-4 /* of a list's mean: no channel weighs nothing */

struct waste_vq_importance {
    int first, layers;
    int64_t cols[2]; /* of gate and up, of down */
    float **weight;  /* [layers - first][2]: scale, then g; NULL: not in the file */
};

static const char *const keys[] = {"gate_up", "down"};

static float **at(const waste_vq_importance *m, int layer, int down)
{
    return m->weight + 2 * (layer - m->first) + down;
}

/* n numbers; *mean of them. */
static waste_status read_numbers(const waste_json *list, int64_t n, float *to, double *mean,
                                 const char *path, const char *layer, const char *key,
                                 waste_error *err)
{
    int64_t i;
    double v;

    if (waste_json_kind_of(list) != WASTE_JSON_ARRAY || waste_json_count(list) != (size_t)n)
        return waste_fail(err, WASTE_ARG, "%s: \"%s\" of layer %s is no list of %lld numbers", path,
                          key, layer, (long long)n);
    for (i = 0, *mean = 0; i < n; i++) {
        if (waste_json_number(waste_json_at(list, (size_t)i), &v) || !(v >= 0 && v <= 1e30))
            return waste_fail(err, WASTE_ARG,
                              "%s: number %lld of \"%s\" of layer %s is not from 0 to 1e30", path,
                              (long long)i, key, layer);
        to[i] = (float)v;
        *mean += v / (double)n;
    }
    return WASTE_OK;
}

/* Weights are roots, hence factors of errors are fourth roots. */
static void make_weights(float *scale, float *g, int64_t n, double mean)
{
    int64_t i;
    int d;

    for (i = 0; i < n; i++) {
        double v = mean > 0 ? (double)scale[i] / mean : 1;
        scale[i] = (float)sqrt(v > LEAST ? v : LEAST);
    }
    for (i = 0; i < n; i += DIM) {
        double sum = 0;
        for (d = 0; d < DIM; d++) sum += (double)scale[i + d];
        for (d = 0; d < DIM; d++) g[i + d] = (float)sqrt((double)scale[i + d] * DIM / sum);
    }
}

static waste_status read_layer(waste_vq_importance *m, const char *name, const waste_json *value,
                               const char *path, waste_error *err)
{
    waste_status st = WASTE_OK;
    uint64_t layer = 0;
    double mean = 0;
    size_t n = 0;
    int k;

    while (name[n]) n++;
    if (waste_parse_u64(name, n, (uint64_t)m->layers - 1, &layer) || layer < (uint64_t)m->first)
        return waste_fail(err, WASTE_ARG, "%s: \"%s\" is no layer with experts", path, name);
    if (waste_json_kind_of(value) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_ARG, "%s: layer %s is no object", path, name);
    for (k = 0; !st && k < 2; k++) {
        float **w = at(m, (int)layer, k);
        if (*w) return waste_fail(err, WASTE_ARG, "%s: layer %s stands twice", path, name);
        *w = waste_mem_array(2 * (size_t)m->cols[k], sizeof **w);
        if (!*w) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
        st = read_numbers(waste_json_get(value, keys[k]), m->cols[k], *w, &mean, path, name,
                          keys[k], err);
        if (!st) make_weights(*w, *w + m->cols[k], m->cols[k], mean);
    }
    return st;
}

static waste_status read_file(waste_vq_importance *m, const waste_json *file, const char *path,
                              waste_error *err)
{
    const waste_json *layers = waste_json_get(file, "layers");
    waste_json_iter it = {0};
    waste_status st = WASTE_OK;

    if (waste_json_kind_of(layers) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_ARG, "%s has no object \"layers\"", path);
    while (!st && waste_json_each(&it, layers)) st = read_layer(m, it.key, it.value, path, err);
    return st;
}

waste_status waste_vq_importance_open(waste_vq_importance **out, const char *path, int first,
                                      int layers, int64_t in, int64_t width, waste_error *err)
{
    waste_vq_importance *m = waste_mem_zero(sizeof *m);
    waste_json *file = NULL;
    waste_status st = WASTE_OK;

    *out = NULL;
    if (!m) return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    m->first = first;
    m->layers = layers;
    m->cols[0] = in;
    m->cols[1] = width;
    m->weight = waste_mem_array(2 * (size_t)(layers - first), sizeof *m->weight);
    if (!m->weight) st = waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    if (!st) st = waste_json_load(&file, path, err);
    if (!st) st = read_file(m, file, path, err);
    waste_json_free(file);
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
    for (i = 0; m->weight && i < 2 * (m->layers - m->first); i++) waste_mem_free(m->weight[i]);
    waste_mem_free(m->weight);
    waste_mem_free(m);
}

int waste_vq_importance_get(const waste_vq_importance *m, int layer, int down, waste_vq_weights *w)
{
    const float *p = m ? *at(m, layer, down) : NULL;

    if (!p) return 0;
    w->scale = p;
    w->g = p + m->cols[down];
    return 1;
}
