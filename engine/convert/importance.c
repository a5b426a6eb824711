/* Importance files: see importance.h. */
#include "convert/importance.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/plat.h"

#define DIGITS      9 /* that tell floats apart */
#define MOST_TOKENS ((int64_t)1 << 53)

static const char *const keys[] = {"gate_up", "down"};

waste_status waste_importance_init(waste_importance *m, int first, int layers, int64_t in,
                                   int64_t width, waste_error *err)
{
    memset(m, 0, sizeof *m);
    m->first = first;
    m->layers = layers;
    m->cols[WASTE_IMPORTANCE_GATE_UP] = in;
    m->cols[WASTE_IMPORTANCE_DOWN] = width;
    m->mean = waste_mem_array(WASTE_IMPORTANCE_KINDS * (size_t)(layers - first), sizeof *m->mean);
    return m->mean ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory for importance");
}

void waste_importance_clear(waste_importance *m)
{
    int i;

    for (i = 0; m->mean && i < WASTE_IMPORTANCE_KINDS * (m->layers - m->first); i++)
        waste_mem_free(m->mean[i]);
    waste_mem_free(m->mean);
    m->mean = NULL;
}

float **waste_importance_at(const waste_importance *m, int layer, int kind)
{
    return m->mean + WASTE_IMPORTANCE_KINDS * (layer - m->first) + kind;
}

int waste_importance_add(waste_importance *m, int layer)
{
    int k, missing = 0;

    for (k = 0; k < WASTE_IMPORTANCE_KINDS; k++) {
        float **list = waste_importance_at(m, layer, k);

        *list = waste_mem_array((size_t)m->cols[k], sizeof **list);
        missing |= !*list;
    }
    return missing;
}

/* ---- reading ---------------------------------------------------------------------- */

static waste_status read_list(const waste_json *list, int64_t n, float *to, const char *path,
                              const char *layer, const char *key, waste_error *err)
{
    int64_t i;
    double v;

    if (waste_json_kind_of(list) != WASTE_JSON_ARRAY || waste_json_count(list) != (size_t)n)
        return waste_fail(err, WASTE_ARG, "%s: \"%s\" of layer %s is no list of %lld numbers", path,
                          key, layer, (long long)n);
    for (i = 0; i < n; i++) {
        if (waste_json_number(waste_json_at(list, (size_t)i), &v) || !(v >= 0 && v <= 1e30))
            return waste_fail(err, WASTE_ARG,
                              "%s: number %lld of \"%s\" of layer %s is not from 0 to 1e30", path,
                              (long long)i, key, layer);
        to[i] = (float)v;
    }
    return WASTE_OK;
}

static waste_status read_layer(waste_importance *m, const char *name, const waste_json *value,
                               const char *path, waste_error *err)
{
    waste_status st = WASTE_OK;
    uint64_t layer = 0;
    int k;

    if (waste_parse_u64(name, strlen(name), (uint64_t)m->layers - 1, &layer) ||
        layer < (uint64_t)m->first)
        return waste_fail(err, WASTE_ARG, "%s: \"%s\" is no layer with experts", path, name);
    if (waste_json_kind_of(value) != WASTE_JSON_OBJECT)
        return waste_fail(err, WASTE_ARG, "%s: layer %s is no object", path, name);
    if (*waste_importance_at(m, (int)layer, 0))
        return waste_fail(err, WASTE_ARG, "%s: layer %s stands twice", path, name);
    if (waste_importance_add(m, (int)layer))
        return waste_fail(err, WASTE_NOMEM, "out of memory reading %s", path);
    for (k = 0; !st && k < WASTE_IMPORTANCE_KINDS; k++)
        st = read_list(waste_json_get(value, keys[k]), m->cols[k],
                       *waste_importance_at(m, (int)layer, k), path, name, keys[k], err);
    return st;
}

static const waste_json *layers_of(const waste_json *file)
{
    const waste_json *layers = waste_json_get(file, "layers");

    return waste_json_kind_of(layers) == WASTE_JSON_OBJECT ? layers : NULL;
}

static waste_status check(const waste_json *doc, const char *what, int64_t *tokens,
                          waste_error *err)
{
    if (!layers_of(doc)) return waste_fail(err, WASTE_ARG, "%s has no object \"layers\"", what);
    return waste_json_int_in(doc, "tokens", 0, 0, MOST_TOKENS, tokens, what, err);
}

waste_status waste_importance_load(waste_importance *m, const char *path, waste_error *err)
{
    waste_json_iter it = {0};
    waste_json *file = NULL;
    int64_t tokens = 0;
    waste_status st = waste_json_load(&file, path, err);

    if (!st) st = check(file, path, &tokens, err);
    while (!st && waste_json_each(&it, layers_of(file)))
        st = read_layer(m, it.key, it.value, path, err);
    m->tokens = (uint64_t)tokens;
    waste_json_free(file);
    return st;
}

/* ---- writing ---------------------------------------------------------------------- */

/* Digits and an exponent: no decimal point, which depends on the host's locale. */
static void add_number(waste_buf *b, float v)
{
    const int exponent = v > 0 ? (int)floor(log10((double)v)) - (DIGITS - 1) : 0;

    if (v > 0)
        waste_buf_printf(b, "%.0fe%d", (double)v / pow(10, exponent), exponent);
    else
        waste_buf_byte(b, '0');
}

void waste_importance_text(waste_buf *b, const waste_importance *m)
{
    const char *comma = "";
    int layer, k;
    int64_t i;

    waste_buf_printf(b, "{\"tokens\":%" PRIu64 ",\"layers\":{", m->tokens);
    for (layer = m->first; layer < m->layers; layer++) {
        if (!*waste_importance_at(m, layer, 0)) continue;
        waste_buf_printf(b, "%s\n\"%d\":{", comma, layer);
        for (k = 0; k < WASTE_IMPORTANCE_KINDS; k++) {
            const float *list = *waste_importance_at(m, layer, k);

            waste_buf_printf(b, "%s\"%s\":[", k ? "," : "", keys[k]);
            for (i = 0; i < m->cols[k]; i++) {
                if (i) waste_buf_byte(b, ',');
                add_number(b, list[i]);
            }
            waste_buf_byte(b, ']');
        }
        waste_buf_byte(b, '}');
        comma = ",";
    }
    waste_buf_text(b, "}}\n");
}

static waste_status may_replace(const char *path, waste_error *err)
{
    waste_error ignored = {0};
    waste_json *file = NULL;
    int ours;

    if (!waste_path_exists(path)) return WASTE_OK;
    ours = !waste_json_load(&file, path, &ignored) && layers_of(file);
    waste_json_free(file);
    if (ours) return WASTE_OK;
    return waste_fail(err, WASTE_ARG, "%s is there and is no importance file; it is left alone",
                      path);
}

waste_status waste_importance_publish(const char *path, waste_str text, uint64_t *tokens,
                                      waste_error *err)
{
    waste_json *doc = NULL;
    int64_t n = 0;
    waste_status st =
        waste_json_parse(&doc, text.text, text.bytes, 0, "the importance", WASTE_ARG, err);

    if (!st) st = check(doc, "the importance", &n, err);
    waste_json_free(doc);
    if (!st) st = may_replace(path, err);
    if (!st) st = waste_file_publish(path, text.text, text.bytes, err);
    if (!st && tokens) *tokens = (uint64_t)n;
    return st;
}
