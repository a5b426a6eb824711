/* Experts in every fast kernel table against plain C, within the bounds that its files
 * state; and that no grouping, cut or layout changes a bit (as test_kernels_fast.c). */
#include "fast_tables.h"

/* ---- experts ------------------------------------------------------------------ */

typedef struct expert {
    waste_quant q;
    int width, input;
    waste_expert a; /* over `record`, which is planar where the table wants it */
    waste_vq_matrix *m[3];
    unsigned char *record, *file;
    waste_record_layout at;
    float *books, *x, *h, *y;
    int index[MOST_ROWS];
    void *packed[3], *tables;
    waste_kernel_limits l;
} expert;

static void point_at(expert *e, unsigned char *record)
{
    const uint64_t off[3] = {e->at.gate_off, e->at.up_off, e->at.down_off};

    for (int j = 0; j < 3; j++) {
        e->m[j]->index = record + off[j];
        e->m[j]->scale = record + e->at.scale_off + 2 * e->width * j;
    }
}

/* Whose books and record are packed, if the table has a form for the geometry, whatever it
 * would do at this size; or left as they are. */
typedef enum form { PACKED, UNPACKED } form;

/* Values of indices that the geometry can name. */
static void expert_new(expert *e, waste_quant q, int width, int input, form f)
{
    const size_t book = 256 * (size_t)q.vec_dim;
    const float *books[8];
    size_t n;
    uint64_t i;

    memset(e, 0, sizeof *e);
    e->q = q;
    e->width = width;
    e->input = input;
    waste_record_layout_of(&e->at, &q, width, input);
    e->record = waste_mem_aligned(4096, e->at.bytes);
    e->file = waste_mem_aligned(4096, e->at.bytes);
    memset(e->file, 0, e->at.bytes);
    for (i = e->at.gate_off; i < e->at.scale_off; i++) e->file[i] = (unsigned char)bits();
    for (i = e->at.scale_off; i < e->at.scale_end; i += 2) {
        const uint16_t s = waste_f32_to_f16(0.2f * noise());
        memcpy(e->file + i, &s, 2);
    }
    memcpy(e->record, e->file, e->at.bytes);
    e->books = floats(3 * 8 * book, PLAIN);
    e->x = floats(MOST_ROWS * (size_t)input, PLAIN);
    e->h = floats(MOST_ROWS * (size_t)width, PLAIN);
    e->y = floats(MOST_ROWS * (size_t)input, PLAIN);
    for (int j = 0; j < MOST_ROWS; j++) e->index[j] = j;
    e->l = (waste_kernel_limits){MOST_ROWS, width, input, 0, 0, 0};
    e->a = (waste_expert){
        .geometry = {q.stages, q.vec_dim, q.index_block, q.index_bits, q.vector_bytes},
        .x = e->x,
        .x_row = e->index,
        .h = e->h,
        .y = e->y,
        .y_row = e->index,
        .decoded = malloc(2 * sizeof(float) * (size_t)(width > input ? width : input)),
        .work = work_new(&e->l),
    };
    e->m[0] = &e->a.gate;
    e->m[1] = &e->a.up;
    e->m[2] = &e->a.down;
    for (int j = 0; j < 3; j++) {
        e->m[j]->rows = j < 2 ? width : input;
        e->m[j]->cols = j < 2 ? input : width;
        for (int s = 0; s < q.stages; s++)
            books[s] = e->m[j]->book[s] = e->books + (size_t)(j * 8 + s) * book;
        n = f == PACKED ? fast.books_bytes(&e->a.geometry, 4096, 4096) : 0;
        if (n) {
            e->packed[j] = waste_mem_aligned(64, (n + 63) / 64 * 64);
            fast.pack_books(e->packed[j], &e->a.geometry, books);
            e->m[j]->packed = e->packed[j];
        }
    }
    e->a.planar = e->packed[0] && fast.pack_record;
    if (e->a.planar) fast.pack_record(e->record, &e->at, &e->a.geometry);
    assert_memory_equal(e->record, e->file, e->at.gate_off);
    assert_memory_equal(e->record + e->at.scale_off, e->file + e->at.scale_off,
                        e->at.bytes - e->at.scale_off);
    point_at(e, e->record);
}

static void expert_free(expert *e)
{
    work_free(e->a.work, &e->l);
    waste_mem_free(e->record);
    waste_mem_free(e->file);
    free(e->books);
    free(e->x);
    free(e->h);
    free(e->y);
    free(e->a.decoded);
    waste_mem_free(e->tables);
    for (int j = 0; j < 3; j++) waste_mem_free(e->packed[j]);
}

static float length_of(const float *v)
{
    float s = 0;

    for (int i = 0; i < 8; i++) s += v[i] * v[i];
    return sqrtf(s);
}

/* What kernels_avx512_vq.h promises before the row scale, or kernels_neon_vq.c with
 * byte indices, and rounding in f32, which is all where weights are decoded. */
static double expert_bound(const expert *e, const waste_vq_matrix *m, const float *x)
{
    const int stages = e->q.stages, block = 8;
    const int entries = 1 << e->q.index_bits;
    const double units = e->q.index_bits == 8 && !strncmp(fast.name, "neon", 4) ? 10 : 4;
    double books = 0, bound = 0;

    if (e->q.vec_dim != 8) return 0;
    for (int s = 0; s < stages; s++) {
        double most = 0;
        for (int k = 0; k < entries; k++)
            if (length_of(m->book[s] + 8 * k) > most) most = length_of(m->book[s] + 8 * k);
        books += most;
    }
    for (int64_t v = 0; v < m->cols / 8; v += block) {
        int64_t n = m->cols / 8 - v < block ? m->cols / 8 - v : block;
        double longest = 1e-25;

        for (int64_t i = 0; i < n; i++) {
            double s = 0;
            for (int d = 0; d < 8; d++)
                s += (double)x[8 * (v + i) + d] * (double)x[8 * (v + i) + d];
            if (sqrt(s) > longest) longest = sqrt(s);
        }
        if (e->packed[0]) bound += (double)n * units * stages * longest * books / 32600 * 1.01;
        bound += (double)n * longest * books * 2e-6;
    }
    return bound;
}

static double scale_of(const waste_vq_matrix *m, int r)
{
    return fabs((double)waste_f16_to_f32((uint16_t)(m->scale[2 * r] | m->scale[2 * r + 1] << 8)));
}

/* n rows from row `first` on. */
static void run_up(const waste_kernels *k, expert *e, size_t first, size_t n, float *h)
{
    e->a.n = n;
    e->a.x_row = e->index + first;
    e->a.h = h;
    k->expert_up(&e->a, 0, e->width);
}

static void run_down(const waste_kernels *k, expert *e, size_t n, float *y)
{
    e->a.n = n;
    e->a.y = y;
    e->a.y_row = e->index;
    k->expert_down(&e->a, 0, e->input);
}

static void check_form(waste_quant q, int width, int input, form f)
{
    enum { N = 3 };
    expert e;
    float *want, *gate_abs;

    expert_new(&e, q, width, input, f);
    want = malloc(N * sizeof *want * (size_t)(width > input ? width : input));
    gate_abs = malloc(sizeof *gate_abs * (size_t)width);
    for (data kind = 0; kind < N_DATA; kind++) {
        if (kind == HUGE_ONES) continue; /* products of gate and up overflow: see below */
        for (size_t i = 0; i < N * (size_t)input; i++) e.x[i] = value(kind, i);
        run_up(&fast, &e, 0, N, e.h);
        point_at(&e, e.file);
        run_up(&plain, &e, 0, N, want);
        for (int t = 0; t < N; t++) {
            const double bg = expert_bound(&e, &e.a.gate, e.x + t * input);
            const double bu = expert_bound(&e, &e.a.up, e.x + t * input);
            double norm = 0, bw = 0;

            for (int c = 0; c < input; c++) norm += fabs((double)e.x[t * input + c]);
            for (int s = 0; s < q.stages; s++) bw += 1; /* entries are below 1 */
            for (int r = 0; r < width; r++) {
                const double sg = scale_of(&e.a.gate, r), su = scale_of(&e.a.up, r);
                const double most = norm * bw * (sg > su ? sg : su);
                const double eg = sg * bg + 1e-6 * most, eu = su * bu + 1e-6 * most;

                within(e.h[t * width + r], want[t * width + r],
                       1.2 * (eg * (most + eu) + eu * most) + 1e-37, "up", r);
            }
        }
        for (size_t i = 0; i < N * (size_t)width; i++) e.h[i] = value(kind, i);
        e.a.h = e.h;
        run_down(&plain, &e, N, want);
        point_at(&e, e.record);
        run_down(&fast, &e, N, e.y);
        for (int t = 0; t < N; t++) {
            const double b = expert_bound(&e, &e.a.down, e.h + t * width);

            for (int r = 0; r < input; r++) {
                double norm = 0;
                for (int c = 0; c < width; c++) norm += fabs((double)e.h[t * width + c]);
                within(e.y[t * input + r], want[t * input + r],
                       scale_of(&e.a.down, r) * (b + 2e-6 * norm * q.stages) + 1e-37, "down", r);
            }
        }
    }
    free(want);
    free(gate_abs);
    expert_free(&e);
}

static void check_expert(waste_quant q, int width, int input)
{
    check_form(q, width, input, PACKED);
    check_form(q, width, input, UNPACKED);
}

static void experts_within_their_bound(void **state)
{
    take(state);
    check_expert((waste_quant){3, 8, 256, 64, 8, 3}, 64, 64);
    check_expert((waste_quant){3, 8, 256, 64, 8, 3}, 72, 88);
    check_expert((waste_quant){3, 8, 256, 64, 8, 3}, 200, 264);
    check_expert((waste_quant){3, 8, 256, 64, 8, 3}, 264, 8);
    check_expert((waste_quant){3, 8, 256, 64, 8, 3}, 8, 8);
    check_expert((waste_quant){2, 8, 256, 64, 8, 2}, 136, 40);
    check_expert((waste_quant){2, 8, 256, 64, 8, 2}, 256, 192);
    check_expert((waste_quant){2, 8, 256, 64, 8, 2}, 32, 256);
    check_expert((waste_quant){2, 8, 256, 64, 8, 2}, 72, 264);
    check_expert((waste_quant){4, 8, 64, 64, 6, 3}, 72, 136);
    check_expert((waste_quant){4, 8, 64, 64, 6, 3}, 192, 328);
    check_expert((waste_quant){4, 8, 64, 64, 6, 3}, 16, 24);
    /* what the table leaves to plain C */
    check_expert((waste_quant){3, 8, 256, 0, 8, 3}, 24, 16);
    check_expert((waste_quant){4, 8, 256, 64, 8, 4}, 72, 16);
    check_expert((waste_quant){4, 8, 64, 0, 6, 3}, 16, 24);
    check_expert((waste_quant){2, 4, 16, 64, 8, 2}, 12, 20);
    check_expert((waste_quant){1, 8, 256, 64, 8, 1}, 72, 72);
}

static const waste_quant kinds[] = {
    {3, 8, 256, 64, 8, 3}, {2, 8, 256, 64, 8, 2}, {4, 8, 64, 64, 6, 3}};

static double rms_of(waste_quant q, int width, int input, form f)
{
    enum { N = 40 };
    const size_t n = N * (size_t)input;
    float *want = malloc(n * sizeof *want);
    double err = 0, sum = 0;
    expert e;

    expert_new(&e, q, width, input, f);
    for (int i = 0; i < N * width; i++) e.h[i] = i % 251 ? noise() : 20 * noise();
    run_down(&fast, &e, N, e.y);
    point_at(&e, e.file);
    run_down(&plain, &e, N, want);
    for (size_t i = 0; i < n; i++) {
        err += ((double)e.y[i] - want[i]) * ((double)e.y[i] - want[i]);
        sum += (double)want[i] * want[i];
    }
    expert_free(&e);
    free(want);
    return sqrt(err / sum);
}

/* rms over random data: far below the bound, which adds up worst cases. */
static void experts_are_accurate(void **state)
{
    take(state);
    for (size_t g = 0; g < 3; g++) {
        assert_true(rms_of(kinds[g], 256, 512, PACKED) < 1e-3);
        assert_true(rms_of(kinds[g], 64, 128, UNPACKED) < 1e-6); /* what small models get */
    }
}

/* Alone or in company, whole or in parts, planar or as in the file, with tables made
 * beforehand or in the slot. */
static void check_bits(waste_quant q, int width, int input, const int *cuts, int n_cuts, form f)
{
    static const size_t some[] = {3, 27, MOST_ROWS};
    const size_t w = (size_t)width, in = (size_t)input;
    float *h = malloc(MOST_ROWS * w * sizeof *h), *y = malloc(MOST_ROWS * in * sizeof *y);
    expert e;

    expert_new(&e, q, width, input, f);
    run_up(&fast, &e, 0, MOST_ROWS, e.h);
    run_down(&fast, &e, MOST_ROWS, e.y);
    for (size_t n = 1; n < MOST_ROWS; n += n < 5                      ? 1
                                           : emulated()               ? 11
                                           : n % 8 == 7 || n % 8 == 0 ? 1
                                                                      : 3) {
        e.a.h = e.h;
        run_down(&fast, &e, n, y);
        same_bits(y, e.y, n * in);
        run_up(&fast, &e, 0, n, h);
        same_bits(h, e.h, n * w);
        run_up(&fast, &e, MOST_ROWS - n, n, h);
        same_bits(h, e.h + (MOST_ROWS - n) * w, n * w);
    }
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        const size_t n = some[k];
        const int planar = e.a.planar;

        /* in parts */
        memset(h, 0xFF, n * w * sizeof *h);
        memset(y, 0xFF, n * in * sizeof *y);
        e.a.n = n;
        e.a.x_row = e.index;
        e.a.h = h;
        e.a.y = y;
        for (int i = n_cuts - 1; i > 0; i--) fast.expert_up(&e.a, cuts[i - 1], cuts[i]);
        same_bits(h, e.h, n * w);
        fast.expert_down(&e.a, width, input);
        for (int i = 1; i < n_cuts; i++) fast.expert_down(&e.a, cuts[i - 1], cuts[i]);
        same_bits(y, e.y, n * in);
        /* as in the file */
        point_at(&e, e.file);
        e.a.planar = 0;
        run_up(&fast, &e, 0, n, h);
        run_down(&fast, &e, n, y);
        same_bits(h, e.h, n * w);
        same_bits(y, e.y, n * in);
        point_at(&e, e.record);
        e.a.planar = planar;
    }
    /* tables made beforehand, in two parts */
    if (e.packed[0] && fast.expert_tables && fast.tables_bytes(&e.a.geometry, input)) {
        const int64_t blocks = (input + WASTE_TABLE_COLS - 1) / WASTE_TABLE_COLS;

        e.tables = waste_mem_aligned(64, (fast.tables_bytes(&e.a.geometry, input) + 63) / 64 * 64);
        for (int i = 0; i < 3; i++) {
            e.a.n = 1;
            e.a.x_row = e.index + i;
            fast.expert_tables(&e.a, e.tables, 1, blocks);
            fast.expert_tables(&e.a, e.tables, 0, 1);
            e.a.tables = e.tables;
            run_up(&fast, &e, (size_t)i, 1, h);
            same_bits(h, e.h + (size_t)i * w, w);
            e.a.tables = NULL;
        }
    }
    expert_free(&e);
    free(h);
    free(y);
}

static void expert_bits_depend_on_the_row_alone(void **state)
{
    static const int cuts[] = {0, 1, 64, 70, 127, 130, 200};
    static const int few[] = {0, 1, 18, 24, 37, 56};

    take(state);
    for (size_t g = 0; g < 3; g++) {
        check_bits(kinds[g], 200, 264, cuts, 7, PACKED);
        check_bits(kinds[g], 200, 256, cuts, 7, UNPACKED);
        check_bits(kinds[g], 56, 136, few, 6, UNPACKED);
    }
}

/* What is small, and what is not, and what only plain C is for. */
static void narrow_experts_are_left_unpacked(void **state)
{
    static const waste_vq_geometry other = {2, 4, 64, 8, 2};

    take(state);
    assert_true(fast.books_bytes(&other, 1024, 2304) == 0);
    for (size_t g = 0; g < 3; g++) {
        const waste_quant *q = &kinds[g];
        const waste_vq_geometry v = {q->stages, q->vec_dim, q->index_block, q->index_bits,
                                     q->vector_bytes};

        assert_true(fast.books_bytes(&v, 64, 128) == 0);
        assert_true(fast.books_bytes(&v, 8, 264) > 0);
        assert_true(fast.books_bytes(&v, 1024, 2304) > 0);
    }
}

static void check_not_finite(int width, int input, form f)
{
    enum { N = 40 };
    expert e;

    expert_new(&e, kinds[0], width, input, f);
    for (int i = 0; i < N * width; i++) e.h[i] = 1;
    e.h[5] = NAN;
    e.h[width + 5] = 1e36f;
    e.h[20 * width + 70] = INFINITY;
    for (size_t n = 2; n <= N; n += N - 2) {
        run_down(&fast, &e, n, e.y);
        for (int i = 0; i < (int)n; i++)
            for (int r = 0; r < input; r++)
                assert_true(!isfinite(e.y[i * input + r]) == (i == 0 || i == 20));
    }
    expert_free(&e);
}

static void expert_of_what_is_not_finite(void **state)
{
    take(state);
    check_not_finite(72, 72, PACKED);
    check_not_finite(72, 72, UNPACKED);
}

#if !defined(__aarch64__)
/* With byte planes or whole entries, and whatever multiplies: one table's experts are the
 * other's. */
static void both_avx512_tables_agree_on_experts(void **state)
{
    enum { N = 40, W = 136, IN = 72 };
    char one[] = "avx512", other[] = "avx512bw";
    void *names[2] = {one, other};
    float *h[2], *y[2];
    expert e;
    (void)state;

    for (int j = 0; j < 2; j++) {
        h[j] = malloc(N * W * sizeof(float));
        y[j] = malloc(N * IN * sizeof(float));
    }
    for (size_t g = 0; g < 3; g++) {
        for (int j = 0; j < 2; j++) {
            take(&names[j]);
            seed = 78; /* the same expert */
            expert_new(&e, kinds[g], W, IN, PACKED);
            for (size_t i = 0; i < (size_t)N * IN; i++) e.x[i] = value(OUTLIERS, i);
            run_up(&fast, &e, 0, N, h[j]);
            e.a.h = h[j];
            run_down(&fast, &e, N, y[j]);
            e.a.h = e.h;
            expert_free(&e);
        }
        same_bits(h[0], h[1], N * W);
        same_bits(y[0], y[1], N * IN);
    }
    for (int j = 0; j < 2; j++) {
        free(h[j]);
        free(y[j]);
    }
}
#endif

#define ALL(name)                                                               \
    POINT(name, experts_within_their_bound), POINT(name, experts_are_accurate), \
        POINT(name, expert_bits_depend_on_the_row_alone),                       \
        POINT(name, narrow_experts_are_left_unpacked), POINT(name, expert_of_what_is_not_finite)

int main(void)
{
#if defined(__aarch64__)
    static char neon[] = "neon";
#else
    static char avx512[] = "avx512", avx512bw[] = "avx512bw", avx2[] = "avx2";
#endif
    const struct CMUnitTest tests[] = {
#if defined(__aarch64__)
        ALL(neon),
#else
        ALL(avx512),
        ALL(avx512bw),
        ALL(avx2),
        cmocka_unit_test(both_avx512_tables_agree_on_experts),
#endif
    };

    emulated_say("cuts and companies of one kind of data, fewer batch sizes");
    waste_kernels_pick(&plain, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
