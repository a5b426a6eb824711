/* Calibration, of waste.h: sums over texts to the means of an importance file. Owns an
 * observer that every window's sequence carries; a window is a sequence of its own. */
#include <string.h>

#include "base/mem.h"
#include "convert/importance.h"
#include "internal.h"
#include "model/forward.h"
#include "model/observer.h"

struct waste_calibration {
    waste_model *model;
    const waste_config *config; /* the model's */
    waste_observer *observer;
    uint64_t counted; /* bytes within the model's ceiling */
    uint64_t tokens;
    int broken; /* a step failed: layers have seen different rows */
};

waste_status waste_calibration_open(waste_calibration **out, waste_model *m, waste_error *err)
{
    const waste_config *config = &m->container->config;
    const size_t rows = (size_t)m->plan.rows;
    waste_calibration *c;
    waste_status st;

    *out = NULL;
    if (!config->experts)
        return waste_fail(err, WASTE_UNSUPPORTED, "%s: the model has no experts to calibrate",
                          m->container->info.path);
    c = waste_mem_zero(sizeof *c);
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory for a calibration");
    c->model = m;
    c->config = config;
    st = waste_model_take_generation(m, waste_observer_bytes(config, rows), err);
    if (!st) {
        c->counted = waste_observer_bytes(config, rows);
        st = waste_observer_open(&c->observer, config, rows, err);
    }
    if (st) {
        waste_calibration_close(c);
        return st;
    }
    *out = c;
    return WASTE_OK;
}

void waste_calibration_close(waste_calibration *c)
{
    if (!c) return;
    waste_observer_close(c->observer);
    waste_model_give_generation(c->model, c->counted);
    waste_mem_free(c);
}

uint64_t waste_calibration_tokens(const waste_calibration *c)
{
    return c->tokens;
}

/* ---- adding ------------------------------------------------------------------------ */

static waste_status check(const waste_calibration *c, const int32_t *ids, size_t n, int64_t *window,
                          waste_error *err)
{
    const int64_t context = c->config->n_mla ? waste_model_context(c->model) : INT64_MAX;
    size_t i;

    if (c->broken)
        return waste_fail(err, WASTE_ARG, "the calibration is broken: adding to it has failed");
    if (*window == 0)
        *window = context < WASTE_CALIBRATION_WINDOW ? context : WASTE_CALIBRATION_WINDOW;
    if (*window < 1 || *window > context)
        return waste_fail(err, WASTE_ARG, "window is %lld, wanted 1 to the context of %lld",
                          (long long)*window, (long long)context);
    for (i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= c->config->vocab)
            return waste_fail(err, WASTE_ARG, "token %ld at %zu is not in 0..%d", (long)ids[i], i,
                              c->config->vocab - 1);
    return WASTE_OK;
}

static waste_status add_window(waste_calibration *c, const int32_t *ids, size_t n,
                               const waste_cancel *cancel, waste_error *err)
{
    waste_row rows[WASTE_ROWS_MOST];
    waste_seq *s = NULL;
    waste_status st = waste_seq_new(&s, c->model, err);
    size_t first, i, some;

    if (st) return st;
    s->observer = c->observer;
    for (first = 0; !st && first < n; first += some) {
        some = n - first < WASTE_ROWS_MOST ? n - first : WASTE_ROWS_MOST;
        for (i = 0; i < some; i++) rows[i] = (waste_row){s, ids[first + i], NULL};
        st = waste_step(c->model, rows, some, cancel, NULL, err);
        if (!st) c->tokens += some;
    }
    waste_seq_free(s);
    return st;
}

waste_status waste_calibration_add(waste_calibration *c, const int32_t *ids, size_t n,
                                   int64_t window, const waste_cancel *cancel, waste_error *err)
{
    waste_status st = check(c, ids, n, &window, err);
    size_t first, some;

    if (st) return st;
    for (first = 0; !st && first < n; first += some) {
        some = (uint64_t)window < n - first ? (size_t)window : n - first;
        st = add_window(c, ids + first, some, cancel, err);
    }
    if (st) c->broken = 1;
    return st;
}

/* ---- to and from files -------------------------------------------------------------- */

static waste_status file_of(waste_importance *file, const waste_calibration *c, waste_error *err)
{
    return waste_importance_init(file, c->config->dense_layers, c->config->layers,
                                 c->config->expert_in, c->config->moe_width, err);
}

/* The sums of a layer, and the number of squares in each for `tokens` positions. */
static double *sums_of(const waste_calibration *c, int layer, int kind, uint64_t tokens,
                       double *squares)
{
    const size_t at = (size_t)(layer - c->config->dense_layers);

    *squares = (double)tokens;
    if (kind == WASTE_IMPORTANCE_GATE_UP)
        return c->observer->in + at * (size_t)c->config->expert_in;
    *squares *= c->config->top_k;
    return c->observer->hidden + at * (size_t)c->config->moe_width;
}

static waste_status add_file(waste_calibration *c, const waste_importance *file, const char *path,
                             waste_error *err)
{
    double squares, *sum;
    int64_t i;
    int l, k;

    if (!file->tokens)
        return waste_fail(err, WASTE_ARG,
                          "%s does not say of how many tokens it is: nothing can be added to it",
                          path);
    for (l = file->first; l < file->layers; l++)
        if (!*waste_importance_at(file, l, 0))
            return waste_fail(err, WASTE_ARG, "%s lacks layer %d", path, l);
    for (l = file->first; l < file->layers; l++)
        for (k = 0; k < WASTE_IMPORTANCE_KINDS; k++) {
            sum = sums_of(c, l, k, file->tokens, &squares);
            for (i = 0; i < file->cols[k]; i++)
                sum[i] += (double)(*waste_importance_at(file, l, k))[i] * squares;
        }
    c->tokens += file->tokens;
    return WASTE_OK;
}

waste_status waste_calibration_load(waste_calibration *c, const char *path, waste_error *err)
{
    waste_importance file;
    waste_status st = file_of(&file, c, err);

    if (!st) st = waste_importance_load(&file, path, err);
    if (!st) st = add_file(c, &file, path, err);
    waste_importance_clear(&file);
    return st;
}

static waste_status make_file(waste_importance *file, const waste_calibration *c, waste_error *err)
{
    waste_status st = file_of(file, c, err);
    double squares, *sum;
    int64_t i;
    int l, k;

    if (!st && c->broken)
        st = waste_fail(err, WASTE_ARG, "the calibration is broken: adding to it has failed");
    else if (!st && !c->tokens)
        st = waste_fail(err, WASTE_ARG, "the calibration has seen no token");
    for (l = file->first; !st && l < file->layers; l++) {
        if (waste_importance_add(file, l))
            st = waste_fail(err, WASTE_NOMEM, "out of memory for importance");
        for (k = 0; !st && k < WASTE_IMPORTANCE_KINDS; k++) {
            sum = sums_of(c, l, k, c->tokens, &squares);
            for (i = 0; i < file->cols[k]; i++)
                (*waste_importance_at(file, l, k))[i] = (float)(sum[i] / squares);
        }
    }
    file->tokens = c->tokens;
    return st;
}

waste_status waste_calibration_text(const waste_calibration *c, waste_text *out, waste_error *err)
{
    waste_importance file;
    waste_buf b = {0};
    waste_status st = make_file(&file, c, err);

    memset(out, 0, sizeof *out);
    if (!st) {
        waste_importance_text(&b, &file);
        if (b.failed) st = waste_fail(err, WASTE_NOMEM, "out of memory for importance");
    }
    waste_importance_clear(&file);
    if (st) {
        waste_buf_clear(&b);
        return st;
    }
    out->text = b.data;
    out->bytes = b.len;
    return WASTE_OK;
}
