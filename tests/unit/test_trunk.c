/* convert/trunk.c: the bytes of trunk.bin, against the quantiser row by row, whatever the
 * number of threads; what is reported of a row that does not fit; stopping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "convert/trunk.h"
#include "lib/checkpoint.h"

static char source[256], target[300];

/* Pieces have 2^20 weights: two tensors have more, one of them as floats; a row of the
 * widest is as much as a thread's share. */
static void make_source(void)
{
    ckpt c = {.seed = 5};

    ckpt_add(&c, "BF16", "big.weight", 2, 1301, 1000, 1, 1);
    ckpt_add(&c, "F16", "wide.weight", 2, 5, 40000, 1, 1);
    ckpt_add(&c, "F32", "model.embed_tokens.weight", 2, 601, 130, 1, 1);
    ckpt_add(&c, "BF16", "long_conv1d.weight", 3, 300000, 1, 4, 1);
    ckpt_add(&c, "F32", "norm.weight", 1, 77, 1, 1, 1);
    ckpt_save(&c, source, "model.safetensors");
    test_text(source, "config.json", "{}");
}

static int set_up(void **state)
{
    (void)state;
    test_dir(source);
    snprintf(target, sizeof target, "%s.waste", source);
    make_source();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_dir_remove(source);
    test_dir_remove(target);
    return 0;
}

typedef struct made {
    char *bytes;
    size_t n;
    waste_trunk trunk;
    waste_convert_loss loss;
} made;

static waste_status make_trunk(made *m, int threads, const waste_cancel *cancel, waste_error *err)
{
    const waste_settings settings = {.prefix = "", .layers = 1};
    char path[WASTE_PATH_MAX];
    waste_source *s;
    waste_writer *w;
    waste_vq_pool *pool;
    waste_status st = WASTE_OK;
    size_t i;

    memset(m, 0, sizeof *m);
    test_dir_remove(target);
    assert_int_equal(waste_source_open(&s, source, err), WASTE_OK);
    assert_int_equal(waste_trunk_list(&m->trunk, s, &settings, WASTE_FMT_Q4G, err), WASTE_OK);
    assert_int_equal(waste_writer_open(&w, target, source, 1, err), WASTE_OK);
    assert_int_equal(waste_writer_start(w, "{}", 2, err), WASTE_OK);
    assert_int_equal(waste_writer_begin(w, "trunk.bin", 0, err), WASTE_OK);
    assert_int_equal(waste_vq_pool_open(&pool, threads, err), WASTE_OK);
    for (i = 0; !st && i < m->trunk.n; i++)
        st = waste_trunk_write(m->trunk.item + i, s, pool, w, &m->loss, cancel, err);
    if (!st) {
        assert_int_equal(waste_writer_end(w, err), WASTE_OK);
        assert_int_equal(waste_writer_path(w, "trunk.bin", 0, path, err), WASTE_OK);
        assert_int_equal(waste_file_load(path, 1 << 28, &m->bytes, &m->n, err), WASTE_OK);
    }
    waste_vq_pool_close(pool);
    waste_writer_close(w);
    waste_source_close(s);
    return st;
}

static void clear(made *m)
{
    waste_mem_free(m->bytes);
    waste_trunk_clear(&m->trunk);
}

/* A tensor's rows one after the other. */
static void compare(const made *m, waste_source *s, const waste_trunk_item *t)
{
    const size_t row_bytes = (size_t)waste_quant_row_bytes(t->fmt, t->cols, WASTE_TRUNK_GROUP);
    const size_t groups = (size_t)((t->cols + WASTE_TRUNK_GROUP - 1) / WASTE_TRUNK_GROUP);
    float *row = malloc((size_t)t->cols * sizeof *row);
    unsigned char *want = malloc(row_bytes);
    uint16_t *scales = malloc(groups * sizeof *scales);
    waste_error err = {0};
    waste_weight w;
    int64_t r;

    assert_int_equal(waste_weight_find(s, t->name, &w, &err), WASTE_OK);
    w.rows = t->rows;
    w.cols = t->cols;
    for (r = 0; r < t->rows; r++) {
        assert_int_equal(waste_weight_rows(s, &w, r, 1, row, &err), WASTE_OK);
        if (t->fmt == WASTE_FMT_F32) {
            memcpy(want, row, row_bytes);
        } else {
            waste_quant_encode_row(t->fmt, row, t->cols, WASTE_TRUNK_GROUP, want, scales);
            assert_memory_equal(m->bytes + t->scale_off + (size_t)r * groups * 2, scales,
                                groups * 2);
        }
        assert_memory_equal(m->bytes + t->off + (size_t)r * row_bytes, want, row_bytes);
    }
    free(row);
    free(want);
    free(scales);
}

static void every_row_is_the_quantisers_whatever_the_threads(void **state)
{
    static const int threads[] = {1, 2, 7};
    waste_error err = {0};
    waste_source *s;
    made first, m;
    size_t i;
    (void)state;
    assert_int_equal(make_trunk(&first, threads[0], NULL, &err), WASTE_OK);
    assert_int_equal(first.n, first.trunk.bytes);
    assert_int_equal(first.trunk.n, 5);
    assert_int_equal(waste_source_open(&s, source, &err), WASTE_OK);
    for (i = 0; i < first.trunk.n; i++) compare(&first, s, first.trunk.item + i);
    waste_source_close(s);
    for (i = 1; i < 3; i++) {
        assert_int_equal(make_trunk(&m, threads[i], NULL, &err), WASTE_OK);
        assert_int_equal(m.n, first.n);
        assert_memory_equal(m.bytes, first.bytes, m.n);
        assert_memory_equal(&m.loss, &first.loss, sizeof m.loss);
        clear(&m);
    }
    assert_true(first.loss.wrong > 0 && first.loss.wrong < 0.04 * first.loss.all);
    clear(&first);
}

static int asked_enough(void *ctx)
{
    return ++*(int *)ctx > 3;
}

static void stops_when_asked_and_keeps_no_memory(void **state)
{
    const uint64_t before = waste_mem_used();
    int asked = 0;
    waste_cancel cancel = {asked_enough, &asked};
    waste_error err = {0};
    made m;
    (void)state;
    assert_int_equal(make_trunk(&m, 2, &cancel, &err), WASTE_CANCELLED);
    clear(&m);
    assert_int_equal(waste_mem_used(), before);
}

/* Of several such rows the first is named. */
static void a_row_too_large_for_its_scale_is_named(void **state)
{
    float *x = calloc(600 * 128, sizeof *x);
    waste_error err = {0};
    made m;
    int threads;
    (void)state;
    x[517 * 128 + 3] = 1e7f;
    x[599 * 128] = -1e9f;
    test_dir_remove(source);
    assert_int_equal(waste_path_make_dir(source, NULL), WASTE_OK);
    test_text(source, "config.json", "{}");
    test_safetensors(source, "model.safetensors",
                     "{\"q.weight\":{\"dtype\":\"F32\",\"shape\":[600,128],"
                     "\"data_offsets\":[0,307200]}}",
                     x, 307200);
    free(x);
    for (threads = 1; threads < 4; threads++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(make_trunk(&m, threads, NULL, &err), WASTE_FORMAT);
        clear(&m);
        assert_string_equal(err.text,
                            "tensor q.weight: row 517 has weights too large for an F16 scale");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_the_quantisers_whatever_the_threads),
        cmocka_unit_test(stops_when_asked_and_keeps_no_memory),
        cmocka_unit_test(a_row_too_large_for_its_scale_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
