/* The yardstick: see memory.h. A call runs its own threads and joins them; the calling
 * thread is the first of them. */
#include "memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define TIMES 12 /* the first finds cold pages and is not counted */

typedef struct reader {
    const uint64_t *from;
    size_t words;
    pthread_barrier_t *all;
    uint64_t sum; /* so that the reads are not left out */
} reader;

uint64_t memory_sum(const uint64_t *p, size_t n)
{
    uint64_t s[8] = {0};
    size_t i;
    int j;

    for (i = 0; i < n; i += 8)
        for (j = 0; j < 8; j++) s[j] += p[i + (size_t)j];
    for (j = 1; j < 8; j++) s[0] += s[j];
    return s[0];
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one reading, from when all begin until all have ended. */
static double read_once(reader *r)
{
    double t;

    pthread_barrier_wait(r->all);
    t = now();
    r->sum += memory_sum(r->from, r->words);
    pthread_barrier_wait(r->all);
    return now() - t;
}

static void *read_all(void *arg)
{
    int i;

    for (i = 0; i < TIMES; i++) read_once(arg);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double run(reader *r, int threads)
{
    pthread_t id[MEMORY_READERS];
    double t[TIMES];
    int i, n;

    for (n = 1; n < threads; n++)
        if (pthread_create(&id[n], NULL, read_all, &r[n])) break;
    if (n < threads) { /* those that run would wait for ever */
        fprintf(stderr, "memory: no %d threads\n", threads);
        exit(1);
    }
    for (i = 0; i < TIMES; i++) t[i] = read_once(&r[0]);
    for (i = 1; i < threads; i++) pthread_join(id[i], NULL);
    qsort(t + 1, TIMES - 1, sizeof *t, by_size);
    return t[1 + (TIMES - 1) / 4];
}

double memory_speed(int threads, size_t bytes)
{
    const size_t part = bytes / (size_t)threads / 64 * 64;
    pthread_barrier_t all;
    reader r[MEMORY_READERS];
    uint64_t *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double seconds;
    size_t i;
    int k;

    if (block == MAP_FAILED) return -1;
#if defined(MADV_HUGEPAGE)
    madvise(block, bytes, MADV_HUGEPAGE);
#endif
    for (i = 0; i < bytes / 8; i++) block[i] = i;
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    for (k = 0; k < threads; k++) r[k] = (reader){block + (size_t)k * part / 8, part / 8, &all, 0};
    seconds = run(r, threads);
    pthread_barrier_destroy(&all);
    munmap(block, bytes);
    return 1e-9 * (double)part * threads / seconds;
}
