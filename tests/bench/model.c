/* model: how fast a container decodes and reads prompts inside a RAM budget,
 * beside what its disk can do, measured in the same run. Uses waste.h alone.
 *
 *   model --container DIR [options]
 *
 * What is measured, each with a freshly opened model:
 *   --prefill N,..    a prompt of N tokens in one step
 *   --decode N        N tokens one by one, after a prompt of --prompt tokens
 *   --prompt N,..     (16); long ones measure attention, and want a --context
 *   --batch B,..      with --decode: B sequences in every step (1)
 *   --budget B,..     bytes, with K, M, G behind them ("1536M", "46G", "0" for the
 *                     engine's choice), or "floor", or "floor+N": N working sets
 *                     above the floor, one being what a token uses (floor+1)
 *   --repeat R        times each (1). The first finds an empty expert cache and is
 *                     called cold, the others warm: they go on in the text, or,
 *   --again           do the same tokens once more
 *   --cold            every repetition is cold
 *   --start ID        first token (1000); prompts are consecutive ids, which on
 *                     containers of tests/tools/mkbig.c is how decoding goes on too
 * What the model is opened with (waste_model_options):
 *   --context N  --sequences N  --precision fast|exact  --kv f32|f16  --verify  --buffered
 *   --io-threads N  --lookahead N  --usage FILE  --threads N  --cpus LIST  --kernels NAME
 * The disk: random reads of whole records past the page cache, by 1, 2, 4 and 8
 * threads for --disk-seconds S each (1; 0: not at all), before and after. Memory:
 * reads of --memory MIB (512; 0: not at all) in order, by one thread and by as many as
 * compute, after each opening.
 *
 * The page cache is told to forget this container's files before each opening;
 * nothing else on the machine is touched. Output is one JSON object a line:
 *   {"name":"disk", ...}   record_bytes, direct, GB/s by threads
 *   {"name":"open", ...}   ms, slots, memory, peak RSS of opening; trunk_ms: reading
 *       trunk.bin once, buffered, just before; of_trunk: ms over it
 *   {"name":"memory", ...} GB/s of one thread and of all
 *   {"name":"decode"|"prefill", ...}
 *       prompt (before decoding), tok_s, ms_median (of steps), hits, misses, bytes, gb_s
 *       (bytes over the whole time), wait (share of time spent waiting for reads), wait_known
 *       (of time, for reads that were known before they were needed: waste_model_stats),
 *       disk_idle (share of time with no read under way), cpu_s, cores (cpu_s over time),
 *       peak_rss, walk (share of tokens t decoded to t + 1; 1 is expected of
 *       mkbig's containers), disk_gb_s (the disk's best before), of_disk (gb_s in it),
 *       weights_gb_s (bytes of weights that the steps go through, the resident ones once
 *       and each expert once a step, over the whole time; for up to 64 rows a step),
 *       of_memory (that in what memory gives to all threads; states of sequences are
 *       not counted)
 * GB are 10^9 bytes. Exit: 0, 1 with the error on stderr, 2 for a wrong command line. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "disk.h"
#include "memory.h"
#include "waste.h"

#define LIST_MAX   16
#define PATH_BYTES 4096
#define PASS_ROWS  64 /* that the engine computes together at least */

typedef struct list {
    long v[LIST_MAX];
    int n;
} list;

typedef struct bench {
    const char *container;
    const char *budget[LIST_MAX];
    int n_budgets;
    list prefill, batch, prompt;
    long decode, repeat, start;
    int again, cold;
    double disk_seconds;
    long memory; /* MiB */
    waste_model_options options;
    waste_info info;
    double disk_best;   /* GB/s, 0: not measured */
    double memory_gb_s; /* of all threads, likewise */
} bench;

/* One line of output. */
typedef struct result {
    const char *name;
    int cold;
    long rows, tokens, prompt; /* per step; in all; before them */
    double seconds, cpu, *step;
    long n_steps, walked, asked; /* asked: tokens whose follower was looked at */
    waste_step_stats sum;
} result;

static int usage(const char *what, const char *about)
{
    fprintf(stderr, "model: %s %s; see the head of tests/bench/model.c\n", what, about);
    return 2;
}

static int fail(const waste_error *err)
{
    fprintf(stderr, "model: error %d: %s\n", (int)err->status, err->text);
    return 1;
}

static void *need(void *p)
{
    if (p) return p;
    fprintf(stderr, "model: out of memory\n");
    exit(1);
}

/* ---- clocks and memory ---------------------------------------------------- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Where the system can, the peak counts from here; else from the start. */
static void reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");

    if (!f) return;
    fputs("5", f);
    fclose(f);
}

static double peak_rss(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    struct rusage u;
    char line[256];
    long kb = 0;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld kB", &kb) == 1) break;
    if (f) fclose(f);
    getrusage(RUSAGE_SELF, &u);
    return 1024.0 * (double)(kb ? kb : u.ru_maxrss);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, long n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n ? (v[(n - 1) / 2] + v[n / 2]) / 2 : 0;
}

/* ---- the container's files ------------------------------------------------- */

static void file_path(char *to, const bench *b, const char *name)
{
    snprintf(to, PATH_BYTES, "%s/%s", b->container, name);
}

static void forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) return;
#ifdef POSIX_FADV_DONTNEED
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    close(fd);
}

static int forget_container(const bench *b, waste_error *err)
{
    static const char *const other[] = {"trunk.bin", "codebooks.bin", "manifest.json"};
    waste_container *c = NULL;
    waste_bank_info bank;
    char path[PATH_BYTES];
    size_t i;
    int layer;

    if (waste_container_open(&c, b->container, NULL, err)) return fail(err);
    for (layer = 0; layer < b->info.layers; layer++) {
        waste_container_bank(c, layer, &bank);
        if (!bank.file) continue;
        file_path(path, b, bank.file);
        forget(path);
    }
    waste_container_close(c);
    for (i = 0; i < sizeof other / sizeof *other; i++) {
        file_path(path, b, other[i]);
        forget(path);
    }
    return 0;
}

/* ---- the disk ----------------------------------------------------------------- */

static int add_banks(disk *d, const bench *b, waste_error *err)
{
    waste_container *c = NULL;
    waste_bank_info bank;
    char path[PATH_BYTES];
    int layer, bad = 0;

    if (waste_container_open(&c, b->container, NULL, err)) return fail(err);
    for (layer = 0; layer < b->info.layers && !bad; layer++) {
        waste_container_bank(c, layer, &bank);
        if (!bank.file) continue;
        file_path(path, b, bank.file);
        bad = disk_add(d, path, bank.experts, (size_t)bank.record_bytes);
        if (bad) fprintf(stderr, "model: %s: %s\n", path, strerror(bad));
    }
    waste_container_close(c);
    return bad != 0;
}

static int measure_disk(bench *b, const char *when, waste_error *err)
{
    double speed[4] = {0}, best = 0;
    disk d = {0};
    int i, rc;

    if (b->disk_seconds <= 0 || b->info.record_bytes <= 0) return 0;
    rc = add_banks(&d, b, err);
    for (i = 0; i < 4 && !rc; i++) {
        speed[i] = disk_speed(&d, 1 << i, b->disk_seconds);
        rc = speed[i] < 0;
        if (rc) fprintf(stderr, "model: reading records: %s\n", strerror(errno));
        if (speed[i] > best) best = speed[i];
    }
    disk_close(&d);
    if (rc) return rc;
    if (b->disk_best == 0) b->disk_best = best;
    printf("{\"name\":\"disk\",\"when\":\"%s\",\"container\":\"%s\",\"record_bytes\":%lld,"
           "\"direct\":%s,\"gb_s\":{\"1\":%.3f,\"2\":%.3f,\"4\":%.3f,\"8\":%.3f},\"best\":%.3f}\n",
           when, b->container, (long long)b->info.record_bytes, d.buffered ? "false" : "true",
           speed[0], speed[1], speed[2], speed[3], best);
    fflush(stdout);
    return 0;
}

/* ---- budgets -------------------------------------------------------------------- */

/* "1536M"; 1 when it is no size. */
static int parse_size(const char *text, uint64_t *bytes)
{
    static const char unit[] = "KMG";
    const char *u;
    char *end;
    double v = strtod(text, &end);

    if (end == text || v < 0) return 1;
    u = *end ? strchr(unit, *end) : NULL;
    if (u) {
        v *= (double)((uint64_t)1 << (10 * (u - unit + 1)));
        end++;
    }
    if (*end == 'B') end++;
    if (*end || v > 1e18) return 1;
    *bytes = (uint64_t)v;
    return 0;
}

/* The least budget of these options, which the refusal of a smaller one tells. */
static int find_floor(const bench *b, uint64_t *bytes, waste_error *err)
{
    static const char before[] = "floor of ";
    waste_model_options opt = b->options;
    waste_model *m = NULL;
    waste_error refusal = {0};
    const char *at;
    waste_status st;

    opt.budget = 1;
    opt.usage = NULL;
    st = waste_model_open(&m, b->container, &opt, &refusal);
    waste_model_close(m);
    at = strstr(refusal.text, before);
    if (st == WASTE_RAM_BUDGET && at) {
        *bytes = strtoull(at + strlen(before), NULL, 10);
        if (*bytes) return 0;
    }
    *err = refusal;
    if (!err->text[0]) snprintf(err->text, sizeof err->text, "a budget of 1 byte was not refused");
    return fail(err);
}

/* The bytes that a --budget stands for. */
static int budget_of(const bench *b, const char *text, uint64_t *bytes, waste_error *err)
{
    const uint64_t set =
        (uint64_t)b->info.top_k * (uint64_t)b->info.moe_layers * (uint64_t)b->info.record_bytes;
    double sets = 0;
    char *end;

    if (strncmp(text, "floor", 5) != 0)
        return parse_size(text, bytes) ? usage("no budget:", text) : 0;
    if (text[5]) {
        sets = strtod(text + 5, &end);
        if (text[5] != '+' || *end || !(sets >= 0 && sets < 1e4)) return usage("no budget:", text);
    }
    if (find_floor(b, bytes, err)) return 1;
    /* a slot takes a little more than its record: padding, bookkeeping */
    *bytes += (uint64_t)(sets * (double)(set + set / 512));
    return 0;
}

/* ---- running ------------------------------------------------------------------------ */

/* The model and the buffers that a measurement uses. */
typedef struct run {
    bench *b;
    const char *budget_name;
    waste_model *m;
    size_t vocab;
    long next; /* token that the next text begins with */
    float *logits;
} run;

/* What memory gives, now that it is known how many threads compute. */
static int measure_memory(bench *b, int threads)
{
    const size_t bytes = (size_t)b->memory << 20;
    double one;

    if (!b->memory) return 0;
    if (threads > MEMORY_READERS) threads = MEMORY_READERS;
    one = memory_speed(1, bytes);
    b->memory_gb_s = threads > 1 ? memory_speed(threads, bytes) : one;
    if (one < 0 || b->memory_gb_s < 0) {
        fprintf(stderr, "model: no memory for reading %ld MiB\n", b->memory);
        return 1;
    }
    printf("{\"name\":\"memory\",\"threads\":%d,\"one_gb_s\":%.1f,\"all_gb_s\":%.1f}\n", threads,
           one, b->memory_gb_s);
    fflush(stdout);
    return 0;
}

/* What opening cannot do without: milliseconds that reading the trunk takes. */
static double read_trunk(const bench *b)
{
    const size_t bytes = (size_t)1 << 20;
    char path[PATH_BYTES], *buf = need(malloc(bytes));
    double t;
    int fd;

    memset(buf, 1, bytes);
    file_path(path, b, "trunk.bin");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    t = now();
    while (fd >= 0 && read(fd, buf, bytes) > 0) continue;
    t = now() - t;
    if (fd >= 0) close(fd);
    free(buf);
    forget(path);
    return 1e3 * t;
}

static int run_open(run *r, uint64_t budget, const char *name, waste_error *err)
{
    bench *b = r->b;
    waste_model_options opt = b->options;
    waste_model_stats s;
    double t, trunk;

    if (forget_container(b, err)) return 1;
    trunk = read_trunk(b);
    opt.budget = budget;
    reset_peak();
    t = now();
    if (waste_model_open(&r->m, b->container, &opt, err)) return fail(err);
    t = now() - t;
    r->budget_name = name;
    r->next = b->start;
    waste_model_stats_get(r->m, &s);
    printf("{\"name\":\"open\",\"container\":\"%s\",\"budget\":\"%s\",\"budget_bytes\":%llu,"
           "\"ms\":%.1f,\"trunk_ms\":%.1f,\"of_trunk\":%.3f,\"slots\":%llu,\"memory\":%llu,"
           "\"resident\":%lld,\"io_threads\":%d,"
           "\"lookahead\":%d,\"policy\":\"%s\",\"threads\":%d,\"peak_rss\":%.0f}\n",
           b->container, name, (unsigned long long)budget, 1e3 * t, trunk, 1e3 * t / trunk,
           (unsigned long long)s.cache_slots, (unsigned long long)s.memory_bytes,
           (long long)b->info.resident_bytes, s.io_threads, s.lookahead, s.policy ? s.policy : "",
           s.threads, peak_rss());
    fflush(stdout);
    return measure_memory(b, s.threads);
}

static void run_close(run *r)
{
    waste_model_close(r->m);
    r->m = NULL;
}

static int32_t token_at(const run *r, long position)
{
    return (int32_t)((unsigned long)position % r->vocab);
}

/* The likeliest token, lowest id first; -1 when a logit is not finite. */
static int32_t likeliest(const float *logits, size_t n)
{
    size_t i, best = 0;

    for (i = 0; i < n; i++) {
        if (!isfinite(logits[i])) return -1;
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* One step of n rows; into `out` unless NULL. */
static waste_status step(const run *r, const waste_row *rows, size_t n, result *out,
                         waste_error *err)
{
    waste_step_stats s;
    double t = now();
    waste_status st = waste_step(r->m, rows, n, NULL, &s, err);

    if (st || !out) return st;
    out->step[out->n_steps++] = now() - t;
    out->tokens += (long)n;
    out->sum.hits += s.hits;
    out->sum.misses += s.misses;
    out->sum.bytes_read += s.bytes_read;
    out->sum.io_ns += s.io_ns;
    out->sum.known_ns += s.known_ns;
    out->sum.disk_ns += s.disk_ns;
    return WASTE_OK;
}

static void print_result(const run *r, const result *x)
{
    const bench *b = r->b;
    const double gb_s = (double)x->sum.bytes_read * 1e-9 / x->seconds;
    const double looked = (double)(x->sum.hits + x->sum.misses);
    const double weights =
        (double)b->info.resident_bytes * (double)x->n_steps + (double)b->info.record_bytes * looked;
    const double weights_gb_s = 1e-9 * weights / x->seconds;
    waste_model_stats s;

    waste_model_stats_get(r->m, &s);
    printf("{\"name\":\"%s\",\"container\":\"%s\",\"budget\":\"%s\",\"slots\":%llu,"
           "\"state\":\"%s\",\"rows\":%ld,\"prompt\":%ld,\"tokens\":%ld,\"seconds\":%.3f,\"tok_s\":"
           "%.3f,"
           "\"ms_median\":%.2f,\"hits\":%llu,\"misses\":%llu,\"hit_rate\":%.4f,"
           "\"bytes\":%llu,\"mb_per_token\":%.2f,\"gb_s\":%.3f,\"wait\":%.4f,\"wait_known\":%.4f,"
           "\"disk_idle\":%.4f,\"cpu_s\":%.3f,"
           "\"cores\":%.2f,\"peak_rss\":%.0f,\"guesses\":%llu,\"guesses_used\":%llu",
           x->name, b->container, r->budget_name, (unsigned long long)s.cache_slots,
           x->cold ? "cold" : "warm", x->rows, x->prompt, x->tokens, x->seconds,
           (double)x->tokens / x->seconds, 1e3 * median(x->step, x->n_steps),
           (unsigned long long)x->sum.hits, (unsigned long long)x->sum.misses,
           looked > 0 ? (double)x->sum.hits / looked : 0, (unsigned long long)x->sum.bytes_read,
           (double)x->sum.bytes_read * 1e-6 / (double)x->tokens, gb_s,
           (double)x->sum.io_ns * 1e-9 / x->seconds, (double)x->sum.known_ns * 1e-9 / x->seconds,
           1 - (double)x->sum.disk_ns * 1e-9 / x->seconds, x->cpu, x->cpu / x->seconds, peak_rss(),
           (unsigned long long)s.guesses, (unsigned long long)s.guesses_used);
    if (x->asked) printf(",\"walk\":%.3f", (double)x->walked / (double)x->asked);
    if (b->disk_best > 0)
        printf(",\"disk_gb_s\":%.3f,\"of_disk\":%.3f", b->disk_best, gb_s / b->disk_best);
    if (x->rows <= PASS_ROWS) printf(",\"weights_gb_s\":%.2f", weights_gb_s);
    if (x->rows <= PASS_ROWS && b->memory_gb_s > 0)
        printf(",\"memory_gb_s\":%.1f,\"of_memory\":%.3f", b->memory_gb_s,
               weights_gb_s / b->memory_gb_s);
    printf("}\n");
    fflush(stdout);
}

static waste_status not_finite(waste_error *err)
{
    snprintf(err->text, sizeof err->text, "the logits are not finite");
    return err->status = WASTE_FORMAT;
}

/* A prompt of n tokens in one step. */
static waste_status prefill_once(run *r, long n, int cold, waste_error *err)
{
    waste_row *rows = need(calloc((size_t)n, sizeof *rows));
    double one, t = now(), cpu = cpu_seconds();
    result x = {.name = "prefill", .cold = cold, .rows = n, .step = &one};
    waste_seq *q = NULL;
    waste_status st = waste_seq_new(&q, r->m, err);
    long i;

    for (i = 0; i < n; i++) {
        rows[i].seq = q;
        rows[i].token = token_at(r, r->next + i);
        rows[i].logits = i + 1 == n ? r->logits : NULL;
    }
    if (!st) st = step(r, rows, (size_t)n, &x, err);
    x.seconds = now() - t;
    x.cpu = cpu_seconds() - cpu;
    if (!st) {
        int32_t to = likeliest(r->logits, r->vocab);

        x.asked = 1;
        x.walked = to == token_at(r, r->next + n);
        if (to < 0) st = not_finite(err);
    }
    if (!st) print_result(r, &x);
    waste_seq_free(q);
    free(rows);
    if (!r->b->again) r->next += n;
    return st;
}

/* Sequences that decode side by side, far from each other in the text. */
typedef struct group {
    long n;
    long prompt; /* tokens before */
    waste_seq **seq;
    waste_row *row;
} group;

static void group_close(group *g)
{
    long i;

    for (i = 0; i < g->n && g->seq; i++) waste_seq_free(g->seq[i]);
    free(g->seq);
    free(g->row);
    memset(g, 0, sizeof *g);
}

/* The prompts, each in a step of its own. Afterwards rows hold what comes next. */
static waste_status group_open(group *g, run *r, long n, long prompt, waste_error *err)
{
    const long apart = (long)r->vocab / n;
    waste_row *rows = need(calloc((size_t)prompt, sizeof *rows));
    waste_status st = WASTE_OK;
    long i, k;

    g->n = n;
    g->prompt = prompt;
    g->seq = need(calloc((size_t)n, sizeof *g->seq));
    g->row = need(calloc((size_t)n, sizeof *g->row));
    for (i = 0; i < n && !st; i++) {
        st = waste_seq_new(&g->seq[i], r->m, err);
        for (k = 0; k < prompt; k++) {
            rows[k].seq = g->seq[i];
            rows[k].token = token_at(r, r->next + i * apart + k);
        }
        if (!st && prompt) st = step(r, rows, (size_t)prompt, NULL, err);
        g->row[i].seq = g->seq[i];
        g->row[i].token = token_at(r, r->next + i * apart + prompt);
        g->row[i].logits = r->logits + (size_t)i * r->vocab;
    }
    free(rows);
    return st;
}

static waste_status decode_once(run *r, group *g, int cold, waste_error *err)
{
    const long n = r->b->decode;
    result x = {.name = "decode", .cold = cold, .rows = g->n, .prompt = g->prompt};
    double t = now(), cpu = cpu_seconds();
    waste_status st = WASTE_OK;
    long i, k;

    x.step = need(calloc((size_t)n, sizeof *x.step));
    for (k = 0; k < n && !st; k++) {
        st = step(r, g->row, (size_t)g->n, &x, err);
        for (i = 0; i < g->n && !st; i++) {
            int32_t to = likeliest(g->row[i].logits, r->vocab);

            x.asked++;
            x.walked += to == token_at(r, g->row[i].token + 1L);
            if (to < 0) st = not_finite(err);
            g->row[i].token = to;
        }
    }
    x.seconds = now() - t;
    x.cpu = cpu_seconds() - cpu;
    if (!st) print_result(r, &x);
    free(x.step);
    return st;
}

/* All repetitions of one measurement, after a prompt of n tokens; batch 0: of the prompt
 * itself. */
static int measure(run *r, uint64_t budget, const char *name, long batch, long n, waste_error *err)
{
    const bench *b = r->b;
    group g = {0};
    long k;
    int rc = 0, fresh;

    r->logits = need(malloc(r->vocab * (size_t)(batch ? batch : 1) * sizeof *r->logits));
    for (k = 0; k < b->repeat && !rc; k++) {
        fresh = k == 0 || b->cold;
        if (fresh || b->again) group_close(&g);
        if (fresh) {
            run_close(r);
            rc = run_open(r, budget, name, err);
        }
        if (!rc && batch && !g.n && group_open(&g, r, batch, n, err)) rc = fail(err);
        if (!rc && (batch ? decode_once(r, &g, fresh, err) : prefill_once(r, n, fresh, err)))
            rc = fail(err);
    }
    group_close(&g);
    run_close(r);
    free(r->logits);
    return rc;
}

static int run_all(bench *b, waste_error *err)
{
    run r = {.b = b, .vocab = (size_t)b->info.vocab};
    uint64_t budget[LIST_MAX];
    int i, k, rc = 0;

    for (i = 0; i < b->n_budgets && !rc; i++) rc = budget_of(b, b->budget[i], &budget[i], err);
    if (!rc) rc = measure_disk(b, "before", err);
    for (i = 0; i < b->n_budgets && !rc; i++) {
        for (k = 0; k < b->prefill.n && !rc; k++)
            rc = measure(&r, budget[i], b->budget[i], 0, b->prefill.v[k], err);
        for (k = 0; b->decode && k < b->batch.n * b->prompt.n && !rc; k++)
            rc = measure(&r, budget[i], b->budget[i], b->batch.v[k / b->prompt.n],
                         b->prompt.v[k % b->prompt.n], err);
    }
    return rc ? rc : measure_disk(b, "after", err);
}

/* ---- command line ----------------------------------------------------------------------- */

static int number(const char *text, long lo, long hi, long *to)
{
    char *end;

    errno = 0;
    *to = strtol(text, &end, 10);
    return end != text && !*end && !errno && *to >= lo && *to <= hi;
}

static int integer(const char *text, int *to)
{
    long v;

    if (!number(text, -1, 1 << 20, &v)) return 0;
    *to = (int)v;
    return 1;
}

static int numbers(char *text, list *to)
{
    char *part, *rest = text;

    to->n = 0;
    while ((part = strsep(&rest, ",")) != NULL) {
        if (to->n == LIST_MAX || !number(part, 1, 1 << 20, &to->v[to->n])) return 0;
        to->n++;
    }
    return 1;
}

static int budgets(bench *b, char *text)
{
    char *rest = text;

    for (b->n_budgets = 0; b->n_budgets < LIST_MAX && rest; b->n_budgets++)
        b->budget[b->n_budgets] = strsep(&rest, ",");
    return !rest;
}

/* Options that stand alone. */
static int flag(bench *b, const char *name)
{
    if (!strcmp(name, "--again")) return b->again = 1;
    if (!strcmp(name, "--cold")) return b->cold = 1;
    if (!strcmp(name, "--verify")) return b->options.verify = 1;
    if (!strcmp(name, "--buffered")) return b->options.buffered = 1;
    return 0;
}

/* Options with a value: 1 when it is good. */
static int option(bench *b, const char *name, char *value)
{
    waste_model_options *o = &b->options;
    long n;
    char *end;

    if (!strcmp(name, "--container")) return (b->container = value)[0] != 0;
    if (!strcmp(name, "--budget")) return budgets(b, value);
    if (!strcmp(name, "--prefill")) return numbers(value, &b->prefill);
    if (!strcmp(name, "--batch")) return numbers(value, &b->batch);
    if (!strcmp(name, "--decode")) return number(value, 0, 1 << 20, &b->decode);
    if (!strcmp(name, "--prompt")) return numbers(value, &b->prompt);
    if (!strcmp(name, "--repeat")) return number(value, 1, 1000, &b->repeat);
    if (!strcmp(name, "--start")) return number(value, 0, 1 << 24, &b->start);
    if (!strcmp(name, "--memory")) return number(value, 0, 1 << 20, &b->memory);
    if (!strcmp(name, "--io-threads")) return integer(value, &o->io_threads);
    if (!strcmp(name, "--lookahead")) return integer(value, &o->lookahead);
    if (!strcmp(name, "--threads")) return integer(value, &o->threads);
    if (!strcmp(name, "--cpus")) return (o->cpus = value)[0] != 0;
    if (!strcmp(name, "--kernels")) return (o->kernels = value)[0] != 0;
    if (!strcmp(name, "--usage")) return (o->usage = value)[0] != 0;
    if (!strcmp(name, "--context")) {
        if (!number(value, 1, 1 << 30, &n)) return 0;
        o->context = n;
        return 1;
    }
    if (!strcmp(name, "--sequences")) {
        if (!number(value, 1, 1 << 12, &n)) return 0;
        o->sequences = n;
        return 1;
    }
    if (!strcmp(name, "--precision")) {
        o->precision = !strcmp(value, "exact") ? WASTE_PRECISION_EXACT : WASTE_PRECISION_FAST;
        return !strcmp(value, "exact") || !strcmp(value, "fast");
    }
    if (!strcmp(name, "--kv")) {
        o->kv = !strcmp(value, "f16") ? WASTE_KV_F16 : WASTE_KV_F32;
        return !strcmp(value, "f16") || !strcmp(value, "f32");
    }
    if (strcmp(name, "--disk-seconds") != 0) return 0;
    b->disk_seconds = strtod(value, &end);
    return end != value && !*end;
}

int main(int argc, char **argv)
{
    bench b = {.budget = {"floor+1"},
               .n_budgets = 1,
               .batch = {{1}, 1},
               .prompt = {{16}, 1},
               .repeat = 1,
               .start = 1000,
               .disk_seconds = 1,
               .memory = 512};
    waste_container *c = NULL;
    waste_error err = {0};
    int i, rc;

    for (i = 1; i < argc; i++) {
        if (flag(&b, argv[i])) continue;
        if (i + 1 == argc || !option(&b, argv[i], argv[i + 1])) return usage("cannot use", argv[i]);
        i++;
    }
    if (!b.container) return usage("wanted:", "--container DIR");
    if (!b.decode && !b.prefill.n) return usage("wanted:", "--decode N or --prefill N");
    if (waste_container_open(&c, b.container, NULL, &err)) return fail(&err);
    b.info = *waste_container_info(c);
    rc = run_all(&b, &err);
    waste_container_close(c);
    return rc;
}
