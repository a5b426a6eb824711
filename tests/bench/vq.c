/* The encoders of the experts: error and speed.
 *
 *     vq [--train VECTORS] [--test VECTORS] [--cols N] [--core NAME] [--threads N] [--speed]
 *
 * Prints JSON lines.
 *   error  one for each kind of weights (tests/lib/weights.h), format and effort: the
 *          relative error in percent of `test` vectors (0: not measured), with books
 *          from `train` others of the same kind, and the CPU seconds of the books
 *   speed  one for each format and effort: million weights a second of CPU time, over
 *          whole rows (scaling, search, refit, packing); the median and the quartiles
 *          of 15 runs */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../lib/weights.h"
#include "base/cpu.h"
#include "convert/experts.h"
#include "convert/vq_choice.h"
#include "convert/vq_rows.h"
#include "store/record.h"

#define RUNS 15

static const char *const formats[] = {"vq3r", "vq4p", "vq2r"};
static const char *const efforts[] = {"fast", "default", "best"};

static const waste_vq_core *core;
static int threads = 1;
static int64_t cols = 1024;

static void check(waste_status st, const waste_error *err)
{
    if (!st) return;
    fprintf(stderr, "vq: %s\n", err->text);
    exit(1);
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void make_books(waste_vq_books *b, const waste_quant *q, int beam, const float *w,
                       int64_t rows, waste_vq_team *team)
{
    const size_t n = (size_t)(rows * cols / 8);
    float *x = malloc(n * 8 * sizeof *x);
    waste_vq_random r = {1};
    waste_error err = {0};
    int64_t i;

    if (!x) abort();
    for (i = 0; i < rows; i++) {
        const float *row = w + i * cols;
        waste_vq_normalise(row, cols,
                           beam ? waste_vq_row_rms(row, cols) : waste_vq_row_scale(row, cols),
                           x + i * cols);
    }
    if (beam)
        check(waste_vq_choice_make(b, q, x, n, &r, team, NULL, &err), &err);
    else
        check(waste_vq_train(b, q, x, n, &r, NULL, &err), &err);
    free(x);
}

static double encode(const waste_vq_books *b, const waste_quant *q, int beam, const float *w,
                     int64_t rows, waste_vq_team *team)
{
    float *copy = malloc((size_t)(rows * cols) * sizeof *copy);
    unsigned char *indices = malloc((size_t)((rows + 64) * cols / 8) * 4);
    uint16_t *scale = malloc((size_t)rows * sizeof *scale);
    waste_convert_loss loss = {0, 0};
    waste_error err = {0};
    waste_vq_rows *e;
    waste_vq_job job = {q, b, beam, NULL, copy, rows, cols, 0, indices, scale};

    if (!copy || !indices || !scale) abort();
    memcpy(copy, w, (size_t)(rows * cols) * sizeof *copy);
    check(waste_vq_rows_open(&e, q, team, rows, rows * cols, &err), &err);
    check(waste_vq_rows_start(e, &job, NULL, &err), &err);
    check(waste_vq_rows_finish(e, &loss, NULL, &err), &err);
    waste_vq_rows_close(e);
    free(copy);
    free(indices);
    free(scale);
    return sqrt(loss.wrong / loss.all);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void speed(int64_t rows)
{
    float *w = weights_make(WEIGHTS_NORMAL, rows, cols, 9);
    waste_vq_books *b = malloc(sizeof *b);
    const char *label;
    waste_error err = {0};
    size_t f, e;
    int k;

    for (f = 0; f < sizeof formats / sizeof *formats; f++)
        for (e = 0; e < sizeof efforts / sizeof *efforts; e++) {
            double rate[RUNS];
            waste_vq_team team;
            waste_quant q;
            waste_fmt fmt;
            int beam;
            waste_experts_format(formats[f], &q, &fmt, &label);
            waste_experts_effort(efforts[e], &beam);
            check(waste_vq_team_init(&team, &q, threads, core, &err), &err);
            make_books(b, &q, beam, w, rows < 64 ? rows : 64, &team);
            for (k = 0; k < RUNS; k++) {
                double t = cpu_seconds();
                encode(b, &q, beam, w, rows, &team);
                rate[k] = (double)(rows * cols) / (cpu_seconds() - t) / 1e6;
            }
            qsort(rate, RUNS, sizeof *rate, by_value);
            printf(
                "{\"speed\":\"%s\",\"effort\":\"%s\",\"core\":\"%s\",\"mweights_per_cpu_second\":"
                "{\"median\":%.2f,\"lower\":%.2f,\"upper\":%.2f}}\n",
                formats[f], efforts[e], core->name, rate[RUNS / 2], rate[RUNS / 4],
                rate[3 * RUNS / 4]);
            fflush(stdout);
            waste_vq_team_clear(&team);
        }
    free(w);
    free(b);
}

static void error_of(weights_kind kind, const char *format, const char *effort, const float *train,
                     int64_t n_train, const float *test, int64_t n_test)
{
    waste_vq_books *b = malloc(sizeof *b);
    waste_error err = {0};
    const char *label;
    waste_vq_team team;
    waste_quant q;
    waste_fmt fmt;
    double t, e;
    int beam;

    waste_experts_format(format, &q, &fmt, &label);
    waste_experts_effort(effort, &beam);
    check(waste_vq_team_init(&team, &q, threads, core, &err), &err);
    t = cpu_seconds();
    make_books(b, &q, beam, train, n_train, &team);
    t = cpu_seconds() - t;
    e = encode(b, &q, beam, test, n_test, &team);
    printf("{\"error\":\"%s\",\"format\":\"%s\",\"effort\":\"%s\",\"percent\":%.3f,"
           "\"books_cpu_seconds\":%.2f}\n",
           weights_names[kind], format, effort, 100 * e, t);
    fflush(stdout);
    waste_vq_team_clear(&team);
    free(b);
}

static void errors(int64_t n_train, int64_t n_test)
{
    size_t f, e;
    int kind;

    for (kind = 0; kind < WEIGHTS_KINDS; kind++) {
        /* one matrix, since its columns are what one kind is about */
        float *w = weights_make((weights_kind)kind, n_train + n_test, cols, 7);
        for (f = 0; f < sizeof formats / sizeof *formats; f++)
            for (e = 0; e < sizeof efforts / sizeof *efforts; e++)
                error_of((weights_kind)kind, formats[f], efforts[e], w, n_train, w + n_train * cols,
                         n_test);
        free(w);
    }
}

int main(int argc, char **argv)
{
    int64_t train = 300000, test = 100000;
    int i, only_speed = 0;

    core = waste_vq_core_pick(waste_cpu_features());
    for (i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--speed"))
            only_speed = 1;
        else if (!strcmp(argv[i], "--train") && ++i)
            train = atoll(v);
        else if (!strcmp(argv[i], "--test") && ++i)
            test = atoll(v);
        else if (!strcmp(argv[i], "--cols") && ++i)
            cols = atoll(v);
        else if (!strcmp(argv[i], "--threads") && ++i)
            threads = atoi(v);
        else if (!strcmp(argv[i], "--core") && ++i)
            core = waste_vq_core_named(v, waste_cpu_features());
        else
            core = NULL;
        if (!core || cols < 32 || cols % 32) {
            fprintf(stderr, "vq: not understood: %s %s\n", argv[i < argc ? i : argc - 1], v);
            return 2;
        }
    }
    if (!only_speed) errors(train * 8 / cols, test * 8 / cols);
    speed(((int64_t)1 << 19) / cols);
    return 0;
}
