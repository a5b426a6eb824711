/* Conversions of small checkpoints, for tests: one checkpoint and its container, and what
 * is found in the latter held against the former. Included once in a program. */
#ifndef CONVERSION_H
#define CONVERSION_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/plat.h"
#include "convert/source.h"
#include "convert/vq.h"
#include "kernels/quant.h"
#include "lib/checkpoint.h"
#include "model/config.h"
#include "store/record.h"

static char source[256], target[300];
static char last_proof[200]; /* what the proof said last */

static inline int make_dirs(void **state)
{
    (void)state;
    test_dir(source);
    snprintf(target, sizeof target, "%s.waste", source);
    return 0;
}

static inline int remove_dirs(void **state)
{
    (void)state;
    test_dir_remove(source);
    test_dir_remove(target);
    return 0;
}

static inline waste_status run(const waste_convert_options *opt, waste_error *err)
{
    waste_convert *c;
    waste_convert_row row;
    waste_status st;
    uint64_t done = 0;

    memset(err, 0, sizeof *err);
    st = waste_convert_open(&c, source, target, opt, err);
    while (!st) {
        st = waste_convert_next(c, &row, err);
        if (st < 0) break;
        assert_true(row.done >= done && row.done <= row.total);
        done = row.done;
        if (!st && strcmp(row.phase, "proof") == 0)
            snprintf(last_proof, sizeof last_proof, "%s", row.note);
    }
    if (st == WASTE_DONE) assert_int_equal(row.done, row.total);
    waste_convert_close(c);
    return st;
}

static inline void expect(waste_status got, waste_status want, const waste_error *err,
                          const char *about)
{
    if (got != want) fail_msg("status %d, wanted %d: %s", got, want, err->text);
    if (!strstr(err->text, about)) fail_msg("\"%s\" does not say \"%s\"", err->text, about);
}

static inline char *load(const char *name, size_t *bytes)
{
    char path[600], *data;
    waste_error err = {0};

    snprintf(path, sizeof path, "%s/%s", target, name);
    assert_int_equal(waste_file_load(path, 1 << 28, &data, bytes, &err), WASTE_OK);
    return data;
}

static inline int there(const char *dir, const char *name)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return waste_path_exists(path);
}

static inline int has(const char *name)
{
    return there(target, name);
}

/* ---- what is in a container ------------------------------------------------------ */

static inline void decode_trunk(const waste_trunk_entry *e, const char *trunk, float *to)
{
    int64_t bytes = waste_quant_row_bytes(e->fmt, e->cols, e->group), r;

    for (r = 0; r < e->rows; r++) {
        int64_t groups = e->group ? (e->cols + e->group - 1) / e->group : 0;
        waste_quant_decode_row(e->fmt, trunk + e->off + (uint64_t)(r * bytes),
                               trunk + e->scale_off + (uint64_t)(2 * r * groups), e->cols, e->group,
                               to + r * e->cols);
    }
}

static inline double distance(const float *a, const float *b, int64_t n)
{
    double wrong = 0, all = 0;
    int64_t i;

    for (i = 0; i < n; i++) {
        wrong += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)a[i] * (double)a[i];
    }
    return sqrt(wrong / all);
}

/* Every trunk tensor against the weight it came from. */
static inline void compare_trunk(const waste_manifest *m, waste_source *s, waste_fmt matrix)
{
    static const double bound[] = {[WASTE_FMT_F32] = 1e-9,
                                   [WASTE_FMT_Q8G] = 0.01,
                                   [WASTE_FMT_Q4G] = 0.15,
                                   [WASTE_FMT_Q3G] = 0.35};
    size_t i, bytes, seen = 0;
    char *trunk = load("trunk.bin", &bytes), name[256];
    waste_error err = {0};

    for (i = 0; i < m->n_trunk; i++) {
        const waste_trunk_entry *e = m->trunk + i;
        const char *moe = strstr(e->name, ".block_sparse_moe.");
        float *got = malloc((size_t)(e->rows * e->cols) * sizeof *got), *want;
        waste_weight w;

        snprintf(name, sizeof name, "%s", e->name);
        if (moe && !waste_source_has(s, name))
            snprintf(name, sizeof name, "%.*s.mlp.%s", (int)(moe - e->name), e->name,
                     moe + strlen(".block_sparse_moe."));
        if (!waste_source_has(s, name)) strcpy(name, "model.embed_tokens.weight"); /* tied */
        assert_int_equal(waste_weight_find(s, name, &w, &err), WASTE_OK);
        assert_int_equal(w.rows * w.cols, e->rows * e->cols);
        want = malloc((size_t)(w.rows * w.cols) * sizeof *want);
        assert_int_equal(waste_weight_rows(s, &w, 0, w.rows, want, &err), WASTE_OK);
        decode_trunk(e, trunk, got);
        if (distance(want, got, w.rows * w.cols) > bound[e->fmt])
            fail_msg("%s is %g off", e->name, distance(want, got, w.rows * w.cols));
        seen += e->fmt == matrix;
        free(got);
        free(want);
    }
    assert_true(seen >= 3); /* the dense layer's matrices */
    waste_mem_free(trunk);
}

static inline int index_at(const waste_quant *q, const unsigned char *p, int s)
{
    uint32_t u;

    if (q->index_bits == 8) return p[s];
    u = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
    return (int)(u >> 6 * s & 63);
}

static inline void decode_matrix(const waste_quant *q, const unsigned char *books, int first,
                                 const unsigned char *indices, const unsigned char *scales,
                                 int rows, int cols, float *to)
{
    const size_t bytes = waste_vq_book_bytes(q);
    int r, v, s, d;

    for (r = 0; r < rows; r++)
        for (v = 0; v < cols / 8; v++)
            for (d = 0; d < 8; d++) {
                const unsigned char *p = indices + waste_record_index_pos(q, cols / 8, r, v);
                float sum = 0;
                for (s = 0; s < q->stages; s++) {
                    const unsigned char *e =
                        books + (size_t)(first + s) * bytes + 16 + 2 * (index_at(q, p, s) * 8 + d);
                    sum += waste_f16_to_f32((uint16_t)(e[0] | e[1] << 8));
                }
                to[r * cols + v * 8 + d] =
                    sum * waste_f16_to_f32((uint16_t)(scales[2 * r] | scales[2 * r + 1] << 8));
            }
}

static inline void compare_experts(const waste_manifest *m, waste_source *s, const char *names,
                                   double bound)
{
    const char *const kind[] = {strstr(names, "mlp") ? "gate_proj" : "w1",
                                strstr(names, "mlp") ? "up_proj" : "w3",
                                strstr(names, "mlp") ? "down_proj" : "w2"};
    size_t bytes;
    char *books = load("codebooks.bin", &bytes), name[256];
    waste_record_layout l;
    waste_record_header h;
    waste_error err = {0};
    int layer, e, k;

    assert_int_equal(bytes, 2u * 3u * (size_t)m->quant.stages * waste_vq_book_bytes(&m->quant));
    waste_record_layout_of(&l, &m->quant, CKPT_WIDTH, CKPT_HIDDEN);
    for (layer = 1; layer < CKPT_LAYERS; layer++) {
        const waste_bank_entry *b = m->bank + layer;
        char *bank = load(b->file, &bytes);
        assert_int_equal(bytes, CKPT_EXPERTS * l.bytes);
        for (e = 0; e < CKPT_EXPERTS; e++) {
            const unsigned char *r = (unsigned char *)bank + (size_t)e * l.bytes;
            const uint64_t part[] = {l.gate_off, l.up_off, l.down_off};
            const unsigned char *scales = r + l.scale_off;
            memcpy(&h, r, sizeof h);
            assert_int_equal(waste_record_check(&h, &l, &m->quant, layer, e, b->codebook_base,
                                                b->record_bytes, b->file, &err),
                             WASTE_OK);
            assert_int_equal(waste_record_crc(r, &l), h.crc32);
            for (k = 0; k < 3; k++) {
                int rows = k == 2 ? CKPT_HIDDEN : CKPT_WIDTH,
                    cols = k == 2 ? CKPT_WIDTH : CKPT_HIDDEN;
                float got[CKPT_WIDTH * CKPT_HIDDEN], want[CKPT_WIDTH * CKPT_HIDDEN];
                waste_weight w;
                snprintf(name, sizeof name, "%smodel.layers.%d.%s.experts.%d.%s.weight", m->prefix,
                         layer, names, e, kind[k]);
                assert_int_equal(waste_weight_find(s, name, &w, &err), WASTE_OK);
                assert_int_equal(waste_weight_rows(s, &w, 0, rows, want, &err), WASTE_OK);
                decode_matrix(&m->quant, (unsigned char *)books, h.codebook + k * m->quant.stages,
                              r + part[k], scales, rows, cols, got);
                if (distance(want, got, rows * cols) > bound)
                    fail_msg("%s is %g off", name, distance(want, got, rows * cols));
                scales += 2 * rows;
            }
        }
        waste_mem_free(bank);
    }
    waste_mem_free(books);
}

static inline void check_container(const char *names, waste_fmt matrix, double bound)
{
    waste_manifest *m;
    waste_config config;
    waste_source *s;
    waste_error err = {0};

    if (waste_manifest_open(&m, target, &err)) fail_msg("%s", err.text);
    if (waste_config_read(&config, m, &err)) fail_msg("%s", err.text);
    assert_int_equal(waste_source_open(&s, source, &err), WASTE_OK);
    compare_trunk(m, s, matrix);
    compare_experts(m, s, names, bound);
    waste_source_close(s);
    waste_manifest_close(m);
}

static inline void clean(void)
{
    test_dir_remove(source);
    test_dir_remove(target);
    assert_int_equal(waste_path_make_dir(source, NULL), WASTE_OK);
}

/* No container, and this checkpoint. */
static inline void begin(int flags, const char *skip)
{
    clean();
    ckpt_model(source, flags, skip);
}

#endif
