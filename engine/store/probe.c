/* Measures the disk under a container's banks: see probe.h. Each of two threads
 * has its bank, its buffer and its own sequence of random places; the clock
 * decides when they end. Nothing outlives the call. */
#include "store/probe.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/plat.h"

#define READERS  2
#define FOR_NS   100000000
#define ALIGN_TO 16384

typedef struct reader {
    const waste_bank_entry *bank;
    char path[WASTE_PATH_MAX];
    waste_file file;
    char *to;
    uint64_t until, random, bytes, reads;
    int direct;
    waste_status st;
    waste_error err;
} reader;

static void *read_until(void *ctx)
{
    reader *r = ctx;
    const waste_bank_entry *b = r->bank;

    do {
        uint64_t n;

        r->random = r->random * 6364136223846793005u + 1442695040888963407u;
        n = (r->random >> 33) % (uint64_t)b->experts;
        r->st = waste_file_read_blocks(&r->file, r->path, r->to, (size_t)b->record_bytes,
                                       n * b->record_bytes, &r->err);
        if (r->st) return NULL;
        r->bytes += b->record_bytes;
        r->reads++;
    } while (waste_clock_ns() < r->until);
    return NULL;
}

static waste_status open_reader(reader *r, const waste_manifest *m, const waste_bank_entry *bank,
                                int buffered, waste_error *err)
{
    waste_status st = waste_path_join(r->path, sizeof r->path, m->dir, bank->file, err);

    r->bank = bank;
    if (st) return st;
    r->to = waste_mem_aligned(ALIGN_TO, (size_t)bank->record_bytes);
    if (!r->to)
        return waste_fail(err, WASTE_NOMEM, "out of memory for a record of %llu bytes of %s",
                          (unsigned long long)bank->record_bytes, r->path);
    return waste_file_open_direct(&r->file, r->path, (size_t)bank->record_bytes, !buffered,
                                  &r->direct, err);
}

/* The n-th of the banks, from 0; NULL when there are fewer. */
static const waste_bank_entry *nth_bank(const waste_manifest *m, int layers, int n)
{
    int i;

    for (i = 0; i < layers && i < WASTE_MAX_LAYERS; i++)
        if (m->bank[i].file && m->bank[i].experts > 0 && n-- == 0) return &m->bank[i];
    return NULL;
}

/* Where both have threads of their own they start together; without a second
 * thread one measures alone. */
static void run(reader *r, uint64_t start)
{
    pthread_t other;
    int i, two;

    for (i = 0; i < READERS; i++) r[i].until = start + FOR_NS;
    two = pthread_create(&other, NULL, read_until, &r[1]) == 0;
    read_until(&r[0]);
    if (two) pthread_join(other, NULL);
}

waste_status waste_probe_banks(waste_probe *out, const waste_manifest *m, int layers, int buffered,
                               waste_error *err)
{
    reader *r = waste_mem_array(READERS, sizeof *r);
    uint64_t start = waste_clock_ns(), took;
    waste_status st = WASTE_OK;
    int i, n = 0;

    *out = (waste_probe){0};
    if (!r) return waste_fail(err, WASTE_NOMEM, "out of memory measuring %s", m->dir);
    for (i = 0; i < READERS; i++) r[i].file.fd = WASTE_FILE_CLOSED;
    while (nth_bank(m, layers, n)) n++;
    for (i = 0; i < READERS && n && !st; i++) { /* a third and two thirds down the model */
        st = open_reader(&r[i], m, nth_bank(m, layers, n * (i + 1) / (READERS + 1)), buffered, err);
        r[i].random = start + (uint64_t)i; /* other places every time */
    }
    if (!st && n) {
        start = waste_clock_ns();
        run(r, start);
        took = waste_clock_ns() - start;
        out->direct = 1;
        for (i = 0; i < READERS && !st; i++) {
            if (r[i].st) st = waste_fail(err, r[i].st, "measuring the disk: %s", r[i].err.text);
            out->reads += r[i].reads;
            out->direct &= r[i].direct;
            out->rate += (double)r[i].bytes / ((double)took * 1e-9);
        }
    }
    for (i = 0; i < READERS; i++) {
        waste_file_close(&r[i].file);
        waste_mem_free(r[i].to);
    }
    waste_mem_free(r);
    return st;
}
