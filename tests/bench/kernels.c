/* kernels: how fast each slot of the kernel tables is on one core, beside plain C
 * and beside what the core can read from memory, measured in the same run.
 *
 *   kernels [--table NAME] [--only TEXT] [--pool MIB]
 *
 *   --table   avx512, avx512bw, avx2, neon-dotprod, neon or plain; default: the one that
 *             would be chosen
 *   --only    lines whose name contains TEXT
 *   --pool    MiB of distinct weights that "ram" streams over (1024)
 *
 * Time is the thread's CPU time, the lower quartile of several repetitions, so that
 * a machine that does other work too can be used. Output is one JSON object a line:
 *   {"name":"memory", ...}   GB/s read, and read and written back
 *   {"name":..., "shape":..., "rows":T, "ns":of one call, "gb_s":weight (or state)
 *    bytes over that time, "of_memory":gb_s in the memory's, "mac_cycle":multiply
 *    and adds per cycle of the clock measured, "plain":how many times faster than
 *    plain C, "rms","max":error against plain C over the rms of its result}
 * "ram" in a name: every call meets other weights; "hot": always the same; "direct":
 * experts left unpacked, as narrow ones are. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cpu.h"
#include "kernels/kernels.h"
#include "kernels/kernels_work.h"
#include "kernels/quant.h"
#include "memory.h"
#include "store/record.h"

#define REPEAT_MAX 64

static struct {
    waste_kernels fast, plain;
    const char *only;
    size_t pool_bytes;
    unsigned char *pool;
    double read_gb, write_gb, ghz;
    void *work;
} b;

static uint64_t seed = 88172645463325252u;

static uint64_t bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

/* [0, 1) */
static float uniform(void)
{
    return (float)(bits() >> 40) * 0x1p-24f;
}

/* Gaussian, one in 256 with sigma 30: what activations look like. */
static float gauss(void)
{
    const double r = sqrt(-2 * log(1e-12 + uniform())) * cos(6.283185307 * uniform());

    return (float)(bits() % 256 ? r : 30 * r);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *need(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (!p) {
        fprintf(stderr, "kernels: out of memory\n");
        exit(2);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static float *floats(size_t n, float (*of)(void))
{
    float *p = need(n * sizeof *p);
    size_t i;

    for (i = 0; i < n; i++) p[i] = of();
    return p;
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, c = *(const double *)y;

    return (a > c) - (a < c);
}

#define PART_NS 5e7 /* of one timing, unless a call takes longer */
#define ALL_NS  1e9 /* of all of them; three are made at least */

/* Lower quartile of up to `n` timings of call(ctx, i), each of up to `calls` calls. */
typedef void call(void *ctx, size_t i);

static double timed(call *f, void *ctx, int n, size_t calls)
{
    double t[REPEAT_MAX], start = now(), one;
    size_t k = 0, j;
    int i;

    f(ctx, k++);
    one = now() - start;
    if (one * (double)calls > PART_NS) calls = one < PART_NS ? (size_t)(PART_NS / one) : 1;
    for (i = 0; i < n && (i < 3 || now() - start < ALL_NS); i++) {
        t[i] = now();
        for (j = 0; j < calls; j++) f(ctx, k++);
        t[i] = (now() - t[i]) / (double)calls;
    }
    qsort(t, (size_t)i, sizeof *t, ascending);
    return t[i / 4];
}

static void errors(const float *got, const float *want, size_t n, double *rms, double *max)
{
    double e = 0, s = 0, m = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        const double d = (double)got[i] - want[i];
        e += d * d;
        s += (double)want[i] * want[i];
        if (!(fabs(d) <= m)) m = fabs(d);
    }
    *rms = sqrt(e / s);
    *max = m / sqrt(s / (double)n);
}

typedef struct line {
    const char *name, *shape;
    size_t rows;
    double ns, bytes, macs, plain_ns;
    double memory; /* GB/s to compare with; 0: read */
    double rms, max;
} line;

static void report(const line *l)
{
    const double gb = l->bytes / l->ns;

    printf("{\"name\":\"%s\",\"table\":\"%s\",\"shape\":\"%s\",\"rows\":%zu,\"ns\":%.0f,"
           "\"gb_s\":%.1f,\"of_memory\":%.2f,\"mac_cycle\":%.1f,\"plain\":%.1f,\"rms\":%.1e,"
           "\"max\":%.1e}\n",
           l->name, b.fast.name, l->shape, l->rows, l->ns, gb,
           gb / (l->memory > 0 ? l->memory : b.read_gb), l->macs / l->ns / b.ghz,
           l->plain_ns / l->ns, l->rms, l->max);
    fflush(stdout);
}

static int wanted(const char *name)
{
    return !b.only || strstr(name, b.only);
}

/* ---- the machine ------------------------------------------------------------ */

static volatile uint64_t sink;

static void read_pool(void *ctx, size_t n)
{
    (void)ctx, (void)n;
    sink = memory_sum((const uint64_t *)b.pool, b.pool_bytes / 8);
}

static void change_pool(void *ctx, size_t n)
{
    uint64_t *p = (uint64_t *)b.pool;
    size_t i;

    (void)ctx, (void)n;
    for (i = 0; i < b.pool_bytes / 8; i++) p[i] ^= 0x5555555555555555u;
}

/* A chain of dependent multiplications, three cycles each. */
static void chain(void *ctx, size_t n)
{
    uint64_t x = n | 1;
    int i;

    (void)ctx;
    for (i = 0; i < 1000000; i++) {
        x *= x;
        __asm__ volatile("" : "+r"(x));
    }
    sink = x;
}

static void machine(void)
{
    size_t i;

    for (i = 0; i < b.pool_bytes / 8; i++) ((uint64_t *)b.pool)[i] = bits();
    b.ghz = 3e6 / timed(chain, NULL, 9, 1);
    b.read_gb = (double)b.pool_bytes / timed(read_pool, NULL, 5, 1);
    b.write_gb = 2 * (double)b.pool_bytes / timed(change_pool, NULL, 5, 1);
    printf("{\"name\":\"memory\",\"read_gb_s\":%.1f,\"change_gb_s\":%.1f,\"ghz\":%.2f}\n",
           b.read_gb, b.write_gb, b.ghz);
}

/* ---- experts ---------------------------------------------------------------- */

typedef struct expert {
    const waste_kernels *k;
    waste_expert a;
    waste_record_layout at;
    waste_quant q;
    const unsigned char *records; /* n of them */
    size_t n;
    size_t top_k; /* calls that share the tables of one row */
    void *tables;
} expert;

static void point_at(expert *e, const unsigned char *record)
{
    waste_vq_matrix *m[3] = {&e->a.gate, &e->a.up, &e->a.down};
    const uint64_t off[3] = {e->at.gate_off, e->at.up_off, e->at.down_off};
    int i;

    for (i = 0; i < 3; i++) {
        m[i]->index = record + off[i];
        m[i]->scale = record + e->at.scale_off + (uint64_t)i * 2 * (uint64_t)e->a.gate.rows;
    }
}

static void run_expert(void *ctx, size_t i)
{
    expert *e = ctx;

    point_at(e, e->records + i % e->n * e->at.bytes);
    e->a.tables = NULL;
    if (e->a.n == 1 && e->k->expert_tables && e->a.gate.packed) {
        if (i % e->top_k == 0)
            e->k->expert_tables(&e->a, e->tables, 0,
                                (e->a.gate.cols + WASTE_TABLE_COLS - 1) / WASTE_TABLE_COLS);
        if (e->k->tables_bytes(&e->a.geometry, e->a.gate.cols)) e->a.tables = e->tables;
    }
    e->k->expert_up(&e->a, 0, e->a.gate.rows);
    e->k->expert_down(&e->a, 0, e->a.down.rows);
}

/* form: "", in the table's own; " direct", left unpacked. */
static void bench_expert(const char *format, const char *form, waste_quant q, const char *model,
                         int64_t width, int64_t input, size_t top_k)
{
    enum { MOST = 64 };
    static const size_t counts[] = {1, 2, 4, 8, 16, 32, 64};
    static const float spread[4] = {1, .5f, .27f, .2f};
    const size_t entries = q.index_bits == 6 ? 64 : 256;
    expert e = {.q = q, .top_k = top_k};
    waste_vq_matrix *m[3] = {&e.a.gate, &e.a.up, &e.a.down};
    int index[MOST];
    float *x, *y[2], *books;
    unsigned char *record;
    char name[64], shape[64];
    line l = {name, shape, 0, 0, 0, 0, 0, 0, 0, 0};
    size_t i, r, macs = 3 * (size_t)(width * input);
    int j, s;

    snprintf(name, sizeof name, "expert %s%s", format, form);
    if (!wanted(name)) return;
    snprintf(shape, sizeof shape, "%s %dx%d", model, (int)width, (int)input);
    waste_record_layout_of(&e.at, &q, width, input);
    x = floats((size_t)(MOST * input), gauss);
    y[0] = need((size_t)(MOST * input) * sizeof(float));
    y[1] = need((size_t)(MOST * input) * sizeof(float));
    books = need(3 * 4 * 2048 * sizeof *books);
    for (i = 0; i < MOST; i++) index[i] = (int)i;
    e.a = (waste_expert){
        .geometry = {q.stages, q.vec_dim, q.index_block, q.index_bits, q.vector_bytes},
        .x = x,
        .x_row = index,
        .h = need((size_t)(MOST * width) * sizeof(float)),
        .y_row = index,
        .decoded = need((size_t)(2 * (width + input)) * sizeof(float)),
        .planar = !*form,
        .work = b.work,
    };
    for (j = 0; j < 3; j++) {
        m[j]->rows = j < 2 ? width : input;
        m[j]->cols = j < 2 ? input : width;
        for (s = 0; s < q.stages; s++) {
            float *book = books + (j * 4 + s) * 2048;
            for (i = 0; i < entries * 8; i++)
                book[i] = waste_f16_to_f32(waste_f32_to_f16(spread[s] * 2 * (uniform() - .5f)));
            m[j]->book[s] = book;
        }
        if (!*form && b.fast.books_bytes) {
            /* as for a wide one, whatever the table would do with this one */
            void *packed = need(b.fast.books_bytes(&e.a.geometry, 4096, 4096));
            b.fast.pack_books(packed, &e.a.geometry, m[j]->book);
            m[j]->packed = packed;
        }
    }
    if (b.fast.tables_bytes) e.tables = need(b.fast.tables_bytes(&e.a.geometry, input) + 64);
    record = need(e.at.bytes);
    memcpy(record, b.pool, e.at.bytes);
    for (i = e.at.scale_off; i < e.at.scale_end; i += 2) {
        const uint16_t f = waste_f32_to_f16(0.01f * (0.5f + uniform()));
        memcpy(record + i, &f, 2);
    }
    for (r = 0; r < sizeof counts / sizeof *counts; r++) {
        unsigned char *planar = need(e.at.bytes);

        l.rows = e.a.n = counts[r];
        memcpy(planar, record, e.at.bytes);
        if (!*form && b.fast.pack_record) b.fast.pack_record(planar, &e.at, &e.a.geometry);
        e.k = &b.plain;
        e.records = record;
        e.n = 1;
        e.a.y = y[0];
        l.plain_ns = timed(run_expert, &e, 3, 1);
        e.k = &b.fast;
        e.records = planar;
        e.a.y = y[1];
        run_expert(&e, 0);
        errors(y[1], y[0], e.a.n * (size_t)input, &l.rms, &l.max);
        l.bytes = (double)e.at.bytes;
        l.macs = (double)(macs * l.rows);
        snprintf(name, sizeof name, "expert %s%s hot", format, form);
        l.ns = timed(run_expert, &e, 16, 2 * top_k);
        report(&l);
        snprintf(name, sizeof name, "expert %s%s ram", format, form);
        e.records = b.pool;
        e.n = b.pool_bytes / e.at.bytes;
        l.ns = timed(run_expert, &e, 16, (e.n / (4 * l.rows) / top_k + 1) * top_k);
        report(&l);
        free(planar);
    }
    free(x);
    free(y[0]);
    free(y[1]);
    free(books);
    free(record);
    free(e.tables);
    free(e.a.h);
    free(e.a.decoded);
    for (j = 0; j < 3; j++) free((void *)(uintptr_t)m[j]->packed);
}

static void experts(void)
{
    static const struct {
        const char *name;
        waste_quant q;
    } f[] = {{"VQ3R", {3, 8, 256, 64, 8, 3}},
             {"VQ4P", {4, 8, 64, 64, 6, 3}},
             {"VQ2R", {2, 8, 256, 64, 8, 2}}};
    static const int64_t width[] = {64, 128, 256}, input[] = {128, 128, 256};
    size_t i, j;

    for (i = 0; i < 3; i++) {
        bench_expert(f[i].name, "", f[i].q, "kimi-linear", 1024, 2304, 8);
        bench_expert(f[i].name, "", f[i].q, "k3", 3072, 3584, 16);
        for (j = 0; j < 3; j++) {
            bench_expert(f[i].name, "", f[i].q, "narrow", width[j], input[j], 4);
            bench_expert(f[i].name, " direct", f[i].q, "narrow", width[j], input[j], 4);
        }
    }
}

/* ---- trunk ------------------------------------------------------------------ */

typedef struct trunk {
    const waste_kernels *k;
    waste_matmul a;
    const unsigned char *weights;
    void *input;
    size_t n, bytes;
} trunk;

static void run_trunk(void *ctx, size_t i)
{
    trunk *t = ctx;

    t->a.w.data = t->weights + i % t->n * t->bytes;
    t->a.activations = t->input;
    if (t->k->activations) t->k->activations(&t->a, t->input, 0, (int64_t)t->a.n);
    t->k->matmul(&t->a, 0, t->a.w.rows);
}

static void bench_trunk(const char *format, waste_fmt fmt, int64_t rows, int64_t cols)
{
    enum { MOST = 64 };
    static const size_t counts[] = {1, 4, 16, 64};
    const int64_t groups = cols / 128;
    const size_t row_bytes = (size_t)waste_quant_row_bytes(fmt, cols, 128);
    trunk t = {.bytes = (size_t)rows * row_bytes};
    char name[64], shape[64];
    line l = {name, shape, 0, 0, 0, 0, 0, 0, 0, 0};
    unsigned char *weights, *packed;
    uint16_t *scales, *packed_scales;
    float *x, *y[2];
    void *temp;
    size_t i, r;

    snprintf(name, sizeof name, "trunk %s ram", format);
    if (!wanted(name)) return;
    snprintf(shape, sizeof shape, "%dx%d", (int)rows, (int)cols);
    t.a.w = (waste_matrix){fmt, NULL, NULL, rows, cols, 128, groups, (int64_t)row_bytes, 0};
    weights = need(t.bytes);
    packed = need(t.bytes);
    memcpy(weights, b.pool, t.bytes);
    memcpy(packed, weights, t.bytes);
    scales = need(2 * (size_t)(rows * groups));
    packed_scales = need(2 * (size_t)(rows * groups));
    for (i = 0; i < (size_t)(rows * groups); i++)
        packed_scales[i] = scales[i] = waste_f32_to_f16(0.003f * (0.5f + uniform()));
    x = floats((size_t)(MOST * cols), gauss);
    y[0] = need((size_t)(MOST * rows) * sizeof(float));
    y[1] = need((size_t)(MOST * rows) * sizeof(float));
    temp = need(waste_kernels_pack_bytes(&t.a.w));
    t.a.x = x;
    t.a.x_stride = (size_t)cols;
    t.a.y_stride = (size_t)rows;
    t.a.decoded = need((size_t)cols * sizeof(float));
    t.input = need(waste_kernels_activations_bytes(cols, MOST));
    for (r = 0; r < sizeof counts / sizeof *counts; r++) {
        waste_matrix w = t.a.w;

        l.rows = t.a.n = counts[r];
        t.k = &b.plain;
        t.weights = weights;
        t.n = 1;
        t.a.w.scales = scales;
        t.a.y = y[0];
        l.plain_ns = timed(run_trunk, &t, 3, 1);
        t.k = &b.fast;
        t.a.y = y[1];
        if (r == 0 && b.fast.pack_matrix) b.fast.pack_matrix(&w, packed, packed_scales, temp);
        if (r == 0) t.a.w.tiled = w.tiled;
        t.a.w.scales = packed_scales;
        t.weights = packed;
        run_trunk(&t, 0);
        errors(y[1], y[0], t.a.n * (size_t)rows, &l.rms, &l.max);
        t.weights = b.pool;
        t.n = b.pool_bytes / t.bytes;
        l.ns = timed(run_trunk, &t, 16, t.n / (4 * l.rows) + 1);
        l.bytes = (double)t.bytes;
        l.macs = (double)(rows * cols) * (double)l.rows;
        report(&l);
    }
    free(weights);
    free(packed);
    free(scales);
    free(packed_scales);
    free(x);
    free(y[0]);
    free(y[1]);
    free(temp);
    free(t.a.decoded);
    free(t.input);
}

/* ---- attention -------------------------------------------------------------- */

typedef struct kda {
    const waste_kernels *k;
    waste_kda a;
    float *states, *state[64];
    size_t n, step;
} kda;

static void run_kda(void *ctx, size_t i)
{
    kda *t = ctx;
    size_t r;

    for (r = 0; r < t->a.n; r++) t->state[r] = t->states + i % t->n * t->step;
    t->k->kda(&t->a, 0, t->a.heads);
}

/* rows of one sequence */
static void bench_kda(int heads, size_t rows)
{
    enum { DIM = 128 };
    const size_t c = (size_t)heads * DIM, size = c * DIM;
    float *o[2], *state = floats(size, uniform);
    kda t = {.n = b.pool_bytes / (size * sizeof(float)), .step = size};
    char shape[64];
    line l = {"kda ram", shape, rows, 0, 0, 0, 0, 0, 0, 0};
    size_t i;

    if (!wanted(l.name)) return;
    snprintf(shape, sizeof shape, "%d heads", heads);
    for (i = 0; i < 2; i++) o[i] = need(rows * c * sizeof(float));
    t.a = (waste_kda){.n = rows,
                      .heads = heads,
                      .dim = DIM,
                      .q = floats(rows * c, gauss),
                      .k = floats(rows * c, gauss),
                      .v = floats(rows * c, gauss),
                      .decay = floats(rows * c, gauss),
                      .beta = floats(rows * (size_t)heads, gauss),
                      .a_log = floats((size_t)heads, uniform),
                      .dt_bias = floats(c, uniform),
                      .state = t.state,
                      .scratch = need(WASTE_KDA_FLOATS(DIM) * sizeof(float))};
    t.states = (float *)b.pool;
    for (i = 0; i < 2; i++) {
        memcpy(t.states, state, size * sizeof *state);
        t.k = i ? &b.fast : &b.plain;
        t.a.o = o[i];
        run_kda(&t, 0);
    }
    errors(o[1], o[0], rows * c, &l.rms, &l.max);
    for (i = 0; i < b.pool_bytes / 4; i++) t.states[i] = 0.1f;
    t.k = &b.plain;
    l.plain_ns = timed(run_kda, &t, 3, t.n / 4 / rows + 1);
    t.k = &b.fast;
    l.ns = timed(run_kda, &t, 16, t.n / 4 / rows + 1);
    l.bytes = 2.0 * (double)size * sizeof(float);
    l.macs = 4.0 * (double)(size * rows);
    l.memory = b.write_gb;
    report(&l);
    for (i = 0; i < b.pool_bytes / 8; i++) ((uint64_t *)b.pool)[i] = bits();
}

typedef struct mla {
    const waste_kernels *k;
    waste_mla a;
} mla;

static void run_mla(void *ctx, size_t i)
{
    const mla *t = ctx;

    (void)i;
    t->k->mla(&t->a, 0, t->a.heads);
}

/* The last `rows` of `past` positions of one sequence. */
static void bench_mla(int heads, int64_t past, size_t rows, int f16)
{
    enum { NOPE = 128, ROPE = 64, RANK = 512, VDIM = 128, WIDTH = RANK + ROPE, MOST = 64 };
    const size_t blocks = (size_t)(past + 63) / 64, m = (size_t)heads * (NOPE + VDIM);
    const size_t row_bytes = RANK / 2, c = (size_t)heads * VDIM, n = blocks * 64 * WIDTH;
    const size_t bytes = f16 ? sizeof(uint16_t) : sizeof(float);
    float *latents, *o[2];
    void **table, *const *tables[MOST];
    int64_t last[MOST];
    unsigned char *kv_b;
    uint16_t *scales, *half;
    mla t = {0};
    char shape[64];
    line l = {f16 ? "mla f16" : "mla", shape, rows, 0, 0, 0, 0, 0, 0, 0};
    size_t i;

    if (!wanted(l.name)) return;
    snprintf(shape, sizeof shape, "%d heads, %d positions", heads, (int)past);
    latents = floats(n, gauss);
    half = need(f16 ? n * sizeof *half : 1);
    if (f16) waste_f16_narrow(latents, n, half);
    table = need(blocks * sizeof *table);
    for (i = 0; i < blocks; i++)
        table[i] = (char *)(f16 ? (void *)half : latents) + i * 64 * WIDTH * bytes;
    for (i = 0; i < rows; i++) {
        tables[i] = table;
        last[i] = past - (int64_t)(rows - i);
        l.macs += (double)heads * (double)(last[i] + 1) * (WIDTH + RANK);
    }
    for (i = 0; i < 2; i++) o[i] = need(rows * c * sizeof(float));
    kv_b = need(m * row_bytes);
    memcpy(kv_b, b.pool, m * row_bytes);
    scales = need(m * 4 * 2);
    for (i = 0; i < m * 4; i++) scales[i] = waste_f32_to_f16(0.002f * uniform());
    t.a = (waste_mla){
        .n = rows,
        .heads = heads,
        .nope = NOPE,
        .rope = ROPE,
        .rank = RANK,
        .v = VDIM,
        .kv_b = {WASTE_FMT_Q4G, kv_b, scales, (int64_t)m, RANK, 128, 4, (int64_t)row_bytes, 0},
        .scale = 0.07f,
        .q = floats(rows * (size_t)heads * (NOPE + ROPE), gauss),
        .f16 = f16,
        .block = tables,
        .last = last,
        .decoded = need(RANK * sizeof(float)),
        .latent = need(2 * rows * RANK * sizeof(float)),
        .work = b.work};
    t.k = &b.plain;
    t.a.o = o[0];
    l.plain_ns = timed(run_mla, &t, 1, 1);
    t.k = &b.fast;
    t.a.o = o[1];
    l.ns = timed(run_mla, &t, 12, past > 1000 ? 1 : 8);
    errors(o[1], o[0], rows * c, &l.rms, &l.max);
    l.bytes = (double)past * WIDTH * (double)bytes + (double)(m * row_bytes);
    report(&l);
    free(latents);
    free(half);
    free(table);
    for (i = 0; i < 2; i++) free(o[i]);
    free(kv_b);
    free(scales);
}

/* ---- the rest --------------------------------------------------------------- */

int main(int argc, char **argv)
{
    const waste_kernel_limits limits = {64, 3072, 3584, 96, 512, 64};
    const char *table = NULL;
    int i;

    b.pool_bytes = (size_t)1024 << 20;
    for (i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--table"))
            table = argv[i + 1];
        else if (!strcmp(argv[i], "--only"))
            b.only = argv[i + 1];
        else if (!strcmp(argv[i], "--pool") && atol(argv[i + 1]) >= 64)
            b.pool_bytes = (size_t)atol(argv[i + 1]) << 20;
        else
            break;
    }
    if (i < argc) {
        fprintf(stderr, "kernels: see the head of tests/bench/kernels.c\n");
        return 2;
    }
    waste_kernels_pick(&b.plain, 0);
    waste_kernels_pick(&b.fast, waste_cpu_features());
    if (table && !waste_kernels_named(&b.fast, table, waste_cpu_features())) {
        fprintf(stderr, "kernels: no table %s here\n", table);
        return 2;
    }
    b.pool = need(b.pool_bytes);
    b.work = need(waste_kernels_work_bytes(&limits));
    machine();
    experts();
    bench_trunk("Q4G", WASTE_FMT_Q4G, 4096, 2304);
    bench_trunk("Q8G", WASTE_FMT_Q8G, 4096, 2304);
    bench_trunk("Q3G", WASTE_FMT_Q3G, 4096, 2304);
    bench_trunk("Q4G", WASTE_FMT_Q4G, 4096, 128); /* the second half of a low-rank gate */
    bench_trunk("Q4G", WASTE_FMT_Q4G, 256, 256);
    bench_kda(32, 1);
    bench_kda(96, 1);
    bench_kda(32, 64);
    for (i = 0; i < 2; i++) {
        bench_mla(32, 256, 1, i);
        bench_mla(32, 4096, 1, i);
        bench_mla(96, 4096, 1, i);
        bench_mla(32, 4096, 8, i);
    }
    return 0;
}
