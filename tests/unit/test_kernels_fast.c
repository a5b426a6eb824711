/* Every fast kernel table against plain C, within the bounds that its files state, on
 * ordinary and adversarial data: trunk, KDA, MLA and elementwise slots; and how a table is
 * chosen. No grouping, cut or layout changes a bit. A table that this CPU or this build does
 * not have is skipped, and says so. */
#include "fast_tables.h"

/* ---- trunk -------------------------------------------------------------------- */

typedef struct trunk {
    waste_matmul a;   /* tiled */
    waste_matrix raw; /* as stored */
    unsigned char *stored, *tiled;
    uint16_t *stored_scales, *tiled_scales;
    void *input; /* for MOST_ROWS */
} trunk;

static void trunk_new(trunk *t, waste_fmt fmt, int rows, int cols, int group)
{
    const int groups = fmt == WASTE_FMT_F32 ? 0 : (cols + group - 1) / group;
    const size_t row_bytes = (size_t)waste_quant_row_bytes(fmt, cols, group);
    float *w = malloc((size_t)cols * sizeof *w);
    void *temp;
    int r, i;

    memset(t, 0, sizeof *t);
    t->stored = calloc((size_t)rows, row_bytes);
    t->tiled = malloc((size_t)rows * row_bytes);
    t->stored_scales = calloc((size_t)rows * (size_t)groups + 1, 2);
    t->tiled_scales = malloc((size_t)rows * (size_t)groups * 2 + 2);
    for (r = 0; r < rows; r++) {
        for (i = 0; i < cols; i++) w[i] = noise();
        if (fmt == WASTE_FMT_F32)
            memcpy(t->stored + (size_t)r * row_bytes, w, row_bytes);
        else
            waste_quant_encode_row(fmt, w, cols, group, t->stored + (size_t)r * row_bytes,
                                   t->stored_scales + r * groups);
    }
    memcpy(t->tiled, t->stored, (size_t)rows * row_bytes);
    memcpy(t->tiled_scales, t->stored_scales, (size_t)rows * (size_t)groups * 2);
    t->raw = (waste_matrix){fmt,   t->stored, t->stored_scales,   rows, cols,
                            group, groups,    (int64_t)row_bytes, 0};
    t->a.w = t->raw;
    t->a.w.data = t->tiled;
    t->a.w.scales = t->tiled_scales;
    temp = malloc(waste_kernels_pack_bytes(&t->raw));
    fast.pack_matrix(&t->a.w, t->tiled, t->tiled_scales, temp);
    t->a.decoded = malloc((size_t)cols * sizeof(float));
    t->input = guarded_new(waste_kernels_activations_bytes(cols, MOST_ROWS));
    t->a.x_stride = (size_t)cols;
    t->a.y_stride = (size_t)rows;
    free(temp);
    free(w);
}

static void trunk_free(trunk *t)
{
    guarded_free(t->input, waste_kernels_activations_bytes(t->raw.cols, MOST_ROWS));
    free(t->stored);
    free(t->tiled);
    free(t->stored_scales);
    free(t->tiled_scales);
    free(t->a.decoded);
}

/* Makes the rows of a ready, the last one first. */
static void ready(const trunk *t, waste_matmul *a)
{
    a->activations = t->input;
    if (!a->w.tiled) return;
    fast.activations(a, t->input, (int64_t)a->n - 1, (int64_t)a->n);
    fast.activations(a, t->input, 0, (int64_t)a->n - 1);
}

/* Half a step of every group's activations, of which narrow matrices take the rest as well
 * (tiles.h), and the rounding of the sums. */
static double trunk_bound(const trunk *t, int row, const float *x)
{
    const waste_matrix *m = &t->raw;
    float *w = malloc((size_t)m->cols * sizeof *w);
    double bound = 0, sum = 0;
    int64_t i, k;

    waste_quant_decode_row(m->fmt, t->stored + row * m->row_bytes, m->scales + row * m->n_groups,
                           m->cols, m->group, w);
    for (k = 0; k < (m->fmt == WASTE_FMT_F32 ? 1 : m->n_groups); k++) {
        double top = 0, weights = 0;
        const int64_t end =
            m->fmt == WASTE_FMT_F32 || (k + 1) * m->group > m->cols ? m->cols : (k + 1) * m->group;

        for (i = m->fmt == WASTE_FMT_F32 ? 0 : k * m->group; i < end; i++) {
            if (fabs((double)x[i]) > top) top = fabs((double)x[i]);
            weights += fabs((double)w[i]);
            sum += fabs((double)w[i] * x[i]);
        }
        if (m->fmt == WASTE_FMT_F32) continue;
        if (m->cols <= 256) top /= 65278;
        if (top < 1e-30) top = 1e-30; /* steps do not get finer than for that */
        bound += top / 65278 * weights;
    }
    free(w);
    return 1.01 * bound + 4e-6 * sum + 1e-38;
}

static void check_trunk(waste_fmt fmt, int rows, int cols, int group)
{
    enum { BATCH = 7 };
    static const int counts[] = {2, 3, 4, 5, 6, 7};
    trunk t;
    float *y = malloc(BATCH * (size_t)rows * sizeof *y), *one = malloc((size_t)rows * sizeof *y);
    float *to[1] = {one};
    waste_matmul b;

    trunk_new(&t, fmt, rows, cols, group);
    for (data kind = 0; kind < N_DATA; kind++) {
        float *x = floats(BATCH * (size_t)cols, kind);
        float *want = malloc(BATCH * (size_t)rows * sizeof *want);

        t.a.n = BATCH;
        t.a.x = x;
        t.a.y = y;
        t.a.y_rows = NULL;
        ready(&t, &t.a);
        fast.matmul(&t.a, 0, rows);
        b = t.a;
        b.w = t.raw;
        b.y = want;
        plain.matmul(&b, 0, rows);
        for (int i = 0; i < BATCH; i++)
            for (int r = 0; r < rows; r++)
                within(y[i * rows + r], want[i * rows + r], trunk_bound(&t, r, x + i * cols),
                       "matmul", r);
        /* alone, in three parts, into a row of its own */
        for (int i = 0; i < BATCH && (kind == MIXED || !emulated()); i++) {
            b = t.a;
            b.n = 1;
            b.x = x + i * cols;
            b.y = NULL;
            b.y_rows = to;
            ready(&t, &b);
            fast.matmul(&b, rows / 2, rows);
            fast.matmul(&b, 0, rows / 3);
            fast.matmul(&b, rows / 3, rows / 2);
            same_bits(one, y + i * rows, (size_t)rows);
        }
        /* in company of other sizes */
        for (size_t c = 0; c < sizeof counts / sizeof *counts && (kind == MIXED || !emulated());
             c++) {
            b = t.a;
            b.n = (size_t)counts[c];
            b.x = x + (BATCH - counts[c]) * cols;
            b.y = want;
            ready(&t, &b);
            fast.matmul(&b, 0, rows);
            same_bits(want, y + (BATCH - counts[c]) * rows, (size_t)(counts[c] * rows));
        }
        free(x);
        free(want);
    }
    free(y);
    free(one);
    trunk_free(&t);
}

static void matmul_within_its_bound(void **state)
{
    static const waste_fmt formats[] = {WASTE_FMT_Q8G, WASTE_FMT_Q4G, WASTE_FMT_Q3G};

    take(state);
    for (size_t i = 0; i < 3; i++) {
        check_trunk(formats[i], 64, 128, 128);
        check_trunk(formats[i], 65, 256, 128);
        check_trunk(formats[i], 130, 203, 128);
        check_trunk(formats[i], 192, 40, 32);
        check_trunk(formats[i], 70, 300, 96);
        check_trunk(formats[i], 192, 296, 32);
        check_trunk(formats[i], 64, 270, 20);
        check_trunk(formats[i], 7, 256, 128);
        check_trunk(formats[i], 66, 513, 256);
        check_trunk(formats[i], 66, 600, 512); /* too long a group to be sped up */
        check_trunk(formats[i], 64, 50, 20);
        check_trunk(formats[i], 64, 1, 128);
    }
    check_trunk(WASTE_FMT_F32, 1, 1, 0);
    check_trunk(WASTE_FMT_F32, 3, 17, 0);
    check_trunk(WASTE_FMT_F32, 70, 203, 0);
    check_trunk(WASTE_FMT_F32, 9, 256, 0);
}

static void check_companies(waste_fmt fmt, int cols)
{
    enum { ROWS = 100 };
    float *x = floats(MOST_ROWS * (size_t)cols, OUTLIERS);
    float *all = malloc(MOST_ROWS * ROWS * sizeof *all);
    float *some = malloc(MOST_ROWS * ROWS * sizeof *some);
    trunk t;

    trunk_new(&t, fmt, ROWS, cols, 128);
    t.a.x = x;
    t.a.n = MOST_ROWS;
    t.a.y = all;
    ready(&t, &t.a);
    fast.matmul(&t.a, 0, ROWS);
    t.a.y = some;
    for (t.a.n = 1; t.a.n < MOST_ROWS; t.a.n += t.a.n < 9 ? 1 : emulated() ? 57 : 7) {
        ready(&t, &t.a);
        fast.matmul(&t.a, 0, ROWS);
        same_bits(some, all, t.a.n * ROWS);
    }
    trunk_free(&t);
    free(x);
    free(all);
    free(some);
}

static void matmul_rows_do_not_see_each_other(void **state)
{
    static const waste_fmt formats[] = {WASTE_FMT_F32, WASTE_FMT_Q8G, WASTE_FMT_Q4G, WASTE_FMT_Q3G};

    take(state);
    for (size_t i = 0; i < 4; i++) {
        check_companies(formats[i], 264);
        check_companies(formats[i], 200);
    }
}

static void matmul_of_what_is_not_finite(void **state)
{
    float x[256] = {0}, y[70];
    trunk t;

    take(state);
    trunk_new(&t, WASTE_FMT_Q4G, 70, 256, 128);
    x[3] = 1;
    x[200] = INFINITY;
    t.a.n = 1;
    t.a.x = x;
    t.a.y = y;
    ready(&t, &t.a);
    fast.matmul(&t.a, 0, 70);
    for (int r = 0; r < 70; r++) assert_true(!isfinite(y[r]));
    trunk_free(&t);
}

/* ---- KDA ------------------------------------------------------------------------ */

static void check_kda(int heads, int dim, float bound, data kind)
{
    enum { N = WASTE_KDA_ROWS + 11 };
    /* a run longer than pass together, and short ones */
    static const int of[N] = {[WASTE_KDA_ROWS + 2] = 1, 1, 1, 0, 2, 0, 2, 2};
    const size_t c = (size_t)(heads * dim), size = c * (size_t)dim;
    float *q = floats(N * c, kind), *k = floats(N * c, kind), *v = floats(N * c, kind);
    float *z = floats(N * c, PLAIN), *beta = floats(N * (size_t)heads, PLAIN);
    float *a_log = floats((size_t)heads, PLAIN), *dt = floats(c, PLAIN);
    float *s = calloc(9 * size, sizeof *s), *o = malloc(3 * N * c * sizeof *o);
    float *scratch = malloc(WASTE_KDA_FLOATS(dim) * sizeof *scratch), *states[3][N], *one;
    const waste_kda first = {N,    heads, dim, q,     k,    v,    z,
                             beta, a_log, dt,  bound, NULL, NULL, scratch};
    waste_kda a = first;

    for (size_t i = 0; i < 3 * size; i++) s[i] = s[3 * size + i] = s[6 * size + i] = noise();
    for (int w = 0; w < 3; w++)
        for (int t = 0; t < N; t++) states[w][t] = s + (size_t)(3 * w + of[t]) * size;
    a.state = states[0];
    a.o = o;
    plain.kda(&a, 0, heads);
    a.state = states[1];
    a.o = o + N * c;
    fast.kda(&a, heads / 2, heads);
    fast.kda(&a, 0, heads / 2);
    for (size_t i = 0; i < N * c; i++)
        within(o[N * c + i], o[i], 2e-5 * (1 + fabs(o[i])), "kda", (int)i);
    for (size_t i = 0; i < 3 * size; i++)
        within(s[3 * size + i], s[i], 2e-5 * (1 + fabs(s[i])), "state", (int)i);
    /* one row at a time */
    for (int t = 0; t < N; t++) {
        one = states[2][t];
        a = first;
        a.n = 1;
        a.q += (size_t)t * c;
        a.k += (size_t)t * c;
        a.v += (size_t)t * c;
        a.decay += (size_t)t * c;
        a.beta += t * heads;
        a.state = &one;
        a.o = o + 2 * N * c;
        fast.kda(&a, 0, heads);
        same_bits(a.o, o + N * c + (size_t)t * c, c);
    }
    same_bits(s + 3 * size, s + 6 * size, 3 * size);
    free(q);
    free(k);
    free(v);
    free(z);
    free(beta);
    free(a_log);
    free(dt);
    free(s);
    free(o);
    free(scratch);
}

static void kda_agrees(void **state)
{
    take(state);
    check_kda(2, 128, 0, PLAIN);
    check_kda(3, 128, -5, OUTLIERS);
    check_kda(2, 80, -5, PLAIN);
    check_kda(3, 16, 0, ZEROS);
    check_kda(2, 32, 0, DENORMALS);
    check_kda(2, 20, -5, PLAIN); /* no whole vectors: plain C */
}

static void check_conv(int channels, int taps)
{
    enum { N = 7 };
    static const int of[N] = {0, 0, 1, 0, 1, 1, 0};
    const size_t c = (size_t)channels, r = c * (size_t)(taps - 1);
    float *w = floats(c * (size_t)taps, PLAIN), *x[3], *ring[3], *rings[3][N];
    waste_conv a = {N, channels, taps, w, NULL, NULL};

    x[0] = floats(N * c, PLAIN);
    ring[0] = floats(2 * r, PLAIN);
    for (int i = 0; i < 3; i++) {
        if (i) x[i] = memcpy(malloc(N * c * sizeof(float)), x[0], N * c * sizeof(float));
        if (i) ring[i] = memcpy(malloc(2 * r * sizeof(float) + 4), ring[0], 2 * r * sizeof(float));
        for (int t = 0; t < N; t++) rings[i][t] = ring[i] + (size_t)of[t] * r;
    }
    a.x = x[0];
    a.ring = rings[0];
    plain.conv(&a, 0, channels);
    a.x = x[1];
    a.ring = rings[1];
    fast.conv(&a, channels / 3, channels);
    fast.conv(&a, 0, channels / 3);
    for (size_t i = 0; i < N * c; i++) within(x[1][i], x[0][i], 2e-6, "conv", (int)i);
    same_bits(ring[0], ring[1], 2 * r);
    /* one row at a time, cut elsewhere */
    a.n = 1;
    for (int t = 0; t < N; t++) {
        a.x = x[2] + (size_t)t * c;
        a.ring = rings[2] + t;
        fast.conv(&a, channels - 1, channels);
        fast.conv(&a, 0, channels - 1);
    }
    same_bits(x[2], x[1], N * c);
    same_bits(ring[2], ring[1], 2 * r);
    for (int i = 0; i < 3; i++) {
        free(x[i]);
        free(ring[i]);
    }
    free(w);
}

static void conv_agrees(void **state)
{
    take(state);
    check_conv(64, 4);
    check_conv(53, 4);
    check_conv(5, 4);
    check_conv(40, 3);
    check_conv(40, 1);
}

/* ---- MLA -------------------------------------------------------------------------- */

static void check_mla(waste_fmt fmt, int heads, int nope, int rope, int rank, int v, data kind)
{
    enum { N = 11, PAST = 200 };
    static const int64_t last[N] = {0, 1, 62, 63, 64, 65, 127, 128, 130, 198, 199};
    const int group = 128, width = rank + rope, rows = heads * (nope + v);
    const int groups = fmt == WASTE_FMT_F32 ? 0 : (rank + group - 1) / group;
    const size_t row_bytes = (size_t)waste_quant_row_bytes(fmt, rank, group);
    const size_t qn = (size_t)(heads * (nope + rope)), on = (size_t)(heads * v);
    float *latent = floats(256 * (size_t)width, kind), *q = floats(N * qn, kind);
    float *w = malloc((size_t)rank * sizeof *w), *o = malloc(4 * N * on * sizeof *o);
    void *blocks[2][4], *const *tables[2][N];
    uint16_t *half = malloc(256 * (size_t)width * sizeof *half);
    unsigned char *kv_b = calloc((size_t)rows, row_bytes);
    uint16_t *scales = calloc((size_t)(rows * groups) + 1, 2);
    const waste_kernel_limits l = {N, 0, 0, heads, rank, rope};
    waste_mla a = {.n = N,
                   .heads = heads,
                   .nope = nope,
                   .rope = rope,
                   .rank = rank,
                   .v = v,
                   .scale = 0.3f,
                   .q = q,
                   .block = tables[0],
                   .last = last,
                   .o = o,
                   .decoded = malloc((size_t)rank * sizeof(float)),
                   .latent = malloc(2 * N * (size_t)rank * sizeof(float)),
                   .work = work_new(&l)};

    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < rank; i++) w[i] = noise();
        if (fmt == WASTE_FMT_F32)
            memcpy(kv_b + (size_t)r * row_bytes, w, row_bytes);
        else
            waste_quant_encode_row(fmt, w, rank, group, kv_b + (size_t)r * row_bytes,
                                   scales + r * groups);
    }
    a.kv_b = (waste_matrix){fmt, kv_b, scales, rows, rank, group, groups, (int64_t)row_bytes, 0};
    /* the same latents in both forms */
    waste_f16_narrow(latent, 256 * (size_t)width, half);
    waste_f16_widen(half, 256 * (size_t)width, latent);
    for (int i = 0; i < 4; i++) {
        blocks[0][i] = latent + i * 64 * width;
        blocks[1][i] = half + i * 64 * width;
    }
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < N; i++) tables[f][i] = blocks[f];
    plain.mla(&a, 0, heads);
    a.o = o + N * on;
    fast.mla(&a, 0, heads);
    for (size_t i = 0; i < N * on; i++)
        within(o[N * on + i], o[i], 5e-5 * (1 + fabs(o[i])), "mla", (int)i);
    /* one row and one head at a time */
    for (int t = 0; t < N; t++) {
        waste_mla b = a;

        b.n = 1;
        b.q = q + (size_t)t * qn;
        b.last = last + t;
        b.o = o + 2 * N * on;
        for (int h = heads; h-- > 0;) fast.mla(&b, h, h + 1);
        same_bits(b.o, a.o + (size_t)t * on, on);
    }
    /* binary16 is f32 in half the room */
    for (int k = 0; k < 2; k++) {
        waste_mla b = a;

        b.f16 = 1;
        b.block = tables[1];
        b.o = o + 3 * N * on;
        (k ? fast : plain).mla(&b, 0, heads);
        same_bits(b.o, k ? a.o : o, N * on);
    }
    work_free(a.work, &l);
    free(latent);
    free(half);
    free(q);
    free(w);
    free(o);
    free(kv_b);
    free(scales);
    free(a.decoded);
    free(a.latent);
}

static void mla_agrees(void **state)
{
    take(state);
    check_mla(WASTE_FMT_Q4G, 5, 32, 16, 128, 32, PLAIN);
    check_mla(WASTE_FMT_Q8G, 4, 20, 8, 200, 17, PLAIN);
    check_mla(WASTE_FMT_Q8G, 5, 20, 8, 256, 32, PLAIN);
    check_mla(WASTE_FMT_Q4G, 2, 9, 3, 256, 24, PLAIN);
    check_mla(WASTE_FMT_Q4G, 3, 16, 16, 192, 16, PLAIN); /* half a group at the end */
    check_mla(WASTE_FMT_Q8G, 2, 8, 64, 512, 24, PLAIN);
    check_mla(WASTE_FMT_Q3G, 3, 16, 64, 512, 16, PLAIN);
    check_mla(WASTE_FMT_F32, 6, 7, 3, 50, 5, PLAIN);
    check_mla(WASTE_FMT_Q4G, 1, 16, 16, 64, 8, ZEROS);
    check_mla(WASTE_FMT_F32, 2, 8, 2, 20, 8, DENORMALS);
}

/* ---- elementwise --------------------------------------------------------------------- */

/* Accurate functions of f64, on arguments from tiny to overflowing. */
static void functions_are_accurate(void **state)
{
    static const float scales[] = {1e-30f, 1e-3f, 0.7f, 3, 20, 100, 1000};
    enum { N = 700 };
    float g[N], u[N], y[N], gated[N];
    waste_act silu = {{0, 0, 0}, g, u, y}, situ = {{1, 4, 25}, g, u, y};
    waste_gate gate = {g, y};

    take(state);
    for (int i = 0; i < N; i++) {
        g[i] = noise() * scales[i % 7];
        u[i] = noise() * scales[i / 7 % 7];
        y[i] = u[i];
    }
    fast.gate(&gate, 3, N);
    fast.gate(&gate, 0, 3);
    memcpy(gated, y, sizeof y);
    for (int i = 0; i < N; i++) {
        const double want = u[i] / (1 + exp(-(double)g[i]));
        within(y[i], (float)want, 1e-6 * fabs(want) + 1.2e-38 * (1 + fabs(u[i])), "gate", i);
    }
    fast.act(&silu, 0, N);
    for (int i = 0; i < N; i++) {
        const double want = g[i] / (1 + exp(-(double)g[i])) * u[i];
        within(y[i], (float)want, 1e-6 * fabs(want) + 1.2e-38 * (1 + fabs(u[i] * g[i])), "silu", i);
    }
    fast.act(&situ, 0, N);
    for (int i = 0; i < N; i++) {
        const double want =
            4 * tanh(g[i] / 4.0) / (1 + exp(-(double)g[i])) * 25 * tanh(u[i] / 25.0);
        within(y[i], (float)want, 1.5e-6 * fabs(want) + 2e-36, "situ", i);
    }
    for (int i = 0; i < N; i++) { /* whatever lane it is in, and however many there are */
        float one;
        waste_act a = {{1, 4, 25}, g + i, u + i, &one};
        waste_gate b = {g + i, &one};

        fast.act(&a, 0, 1);
        assert_memory_equal(&one, &y[i], sizeof one);
        one = u[i];
        fast.gate(&b, 0, 1);
        assert_memory_equal(&one, &gated[i], sizeof one);
    }
}

static void norms_agree(void **state)
{
    enum { T = 3 };
    static const int widths[] = {1, 15, 16, 33, 128, 203, 2304};

    take(state);
    for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
        const size_t w = (size_t)widths[k];
        float *x = floats(T * (w + 3), OUTLIERS), *g = floats(w, PLAIN);
        float *y[2] = {floats(T * (w + 3), ZEROS), floats(T * (w + 3), ZEROS)};
        float *blocks = floats(4 * T * w, PLAIN), *scratch = floats(6 + w, PLAIN);
        waste_rmsnorm a = {x, g, y[0], w, w + 3, w + 3, 1e-5f};
        waste_ares r = {4, T * w, blocks, x, g, g, y[0], w, 1e-5f, scratch};

        plain.rmsnorm(&a, 0, T);
        a.y = y[1];
        fast.rmsnorm(&a, 2, T);
        fast.rmsnorm(&a, 0, 2);
        for (size_t i = 0; i < T * (w + 3); i++)
            within(y[1][i], y[0][i], 2e-6 * fabs(y[0][i]) + 1e-30, "norm", (int)i);
        for (size_t t = 0; t < T; t++) { /* a row alone, in place */
            waste_rmsnorm b = a;

            b.x = b.y = memcpy(y[0], x + t * (w + 3), w * sizeof *x);
            fast.rmsnorm(&b, 0, 1);
            same_bits(y[0], y[1] + t * (w + 3), w);
        }
        plain.ares(&r, 0, T);
        r.y = y[1];
        fast.ares(&r, 1, T);
        fast.ares(&r, 0, 1);
        for (size_t i = 0; i < T * w; i++)
            within(y[1][i], y[0][i], 2e-5 * (fabs(y[0][i]) + 1), "ares", (int)i);
        r.p = r.y = memcpy(y[0], x, T * w * sizeof *x); /* in place */
        fast.ares(&r, 0, T);
        same_bits(y[0], y[1], T * w);
        free(x);
        free(g);
        free(y[0]);
        free(y[1]);
        free(blocks);
        free(scratch);
    }
}

/* ---- the choice ------------------------------------------------------------------------ */

static void tables_are_chosen_by_name_and_cpu(void **state)
{
    waste_kernels k;
    (void)state;

    assert_true(waste_kernels_named(&k, "plain", 0));
    assert_string_equal(k.name, "plain");
    assert_null(k.pack_matrix);
    assert_null(k.pack_record);
    assert_false(waste_kernels_named(&k, "avx512", 0));
    assert_false(waste_kernels_named(&k, "avx512", WASTE_CPU_AVX2));
    assert_false(waste_kernels_named(&k, "avx512", WASTE_CPU_AVX2 | WASTE_CPU_AVX512BW));
    assert_false(waste_kernels_named(&k, "avx512bw", WASTE_CPU_AVX2));
    if (waste_kernels_named(&k, "avx512bw", WASTE_CPU_AVX2 | WASTE_CPU_AVX512BW)) {
        waste_kernels_pick(&k, WASTE_CPU_AVX2 | WASTE_CPU_AVX512BW);
        assert_string_equal(k.name, "avx512bw");
    }
    assert_false(waste_kernels_named(&k, "avx2", 0));
    assert_false(waste_kernels_named(&k, "AVX2", WASTE_CPU_AVX2 | WASTE_CPU_AVX512));
    assert_false(waste_kernels_named(&k, "", 0));
    waste_kernels_pick(&k, 0);
    assert_string_equal(k.name, "plain");
    assert_false(waste_kernels_named(&k, "neon", 0));
    assert_false(waste_kernels_named(&k, "neon-dotprod", WASTE_CPU_NEON));
    if (waste_kernels_named(&k, "neon-dotprod", WASTE_CPU_NEON | WASTE_CPU_DOTPROD)) {
        waste_kernels_pick(&k, WASTE_CPU_NEON | WASTE_CPU_DOTPROD);
        assert_string_equal(k.name, "neon-dotprod");
        waste_kernels_pick(&k, WASTE_CPU_NEON);
        assert_string_equal(k.name, "neon");
    }
    if (waste_kernels_named(&k, "avx2", WASTE_CPU_AVX2)) {
        waste_kernels_pick(&k, WASTE_CPU_AVX2);
        assert_string_equal(k.name, "avx2");
    }
}

/* Trunk sums are the same integers in every fast table. */
static void fast_tables_agree_on_the_trunk(void **state)
{
    enum { ROWS = 130, MOST = 384, N = 5 };
    static const waste_fmt formats[] = {WASTE_FMT_Q8G, WASTE_FMT_Q4G, WASTE_FMT_Q3G};
    float *x, *y[2] = {malloc(N * ROWS * sizeof(float)), malloc(N * ROWS * sizeof(float))};
#if defined(__aarch64__)
    char one_name[] = "neon", other_name[] = "neon-dotprod";
#else
    char one_name[] = "avx2", other_name[] = "avx512";
#endif
    void *names[2] = {one_name, other_name};
    trunk t;
    (void)state;

    x = floats(N * MOST, OUTLIERS);
    for (size_t i = 0; i < 6; i++) {
        for (int j = 0; j < 2; j++) {
            take(&names[j]);
            seed = 77; /* the same matrix */
            trunk_new(&t, formats[i % 3], ROWS, i < 3 ? MOST : 200, 128);
            t.a.n = N;
            t.a.x = x;
            t.a.y = y[j];
            ready(&t, &t.a);
            fast.matmul(&t.a, 0, ROWS);
            trunk_free(&t);
        }
        same_bits(y[0], y[1], N * ROWS);
    }
    free(x);
    free(y[0]);
    free(y[1]);
}

#define TRUNK(name)                                                                       \
    POINT(name, matmul_within_its_bound), POINT(name, matmul_rows_do_not_see_each_other), \
        POINT(name, matmul_of_what_is_not_finite)
#define ALL(name)                                                                            \
    TRUNK(name), POINT(name, kda_agrees), POINT(name, conv_agrees), POINT(name, mla_agrees), \
        POINT(name, functions_are_accurate), POINT(name, norms_agree)

int main(void)
{
#if defined(__aarch64__)
    static char neon[] = "neon", dotprod[] = "neon-dotprod";
#else
    static char avx512[] = "avx512", avx512bw[] = "avx512bw", avx2[] = "avx2";
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_chosen_by_name_and_cpu),
#if defined(__aarch64__)
        ALL(neon),
        TRUNK(dotprod), /* the rest is neon's */
#else
        ALL(avx512),
        ALL(avx512bw),
        ALL(avx2),
#endif
        cmocka_unit_test(fast_tables_agree_on_the_trunk),
    };

    emulated_say("cuts and companies of one kind of data, fewer batch sizes");
    waste_kernels_pick(&plain, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
