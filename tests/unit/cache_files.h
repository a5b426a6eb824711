/* A cache over the files of fixture_files.h, for tests: records whose reads fail or wait at a
 * gate, and what is counted. Included once in a program. */
#ifndef CACHE_FILES_H
#define CACHE_FILES_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "fixture_files.h"
#include "store/cache.h"
#include "store/policy.h"
#include "store/reader.h"

static fixture box;
static waste_manifest *manifest;
static waste_banks *banks;
static waste_cache *cache;

/* Per record: reads so far; what a read does; the gate that GATED ones wait at. */
enum { NORMAL, FAILING, GATED };
static _Atomic int reads[3][FIXTURE_EXPERTS], kind[3][FIXTURE_EXPERTS], begun;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int shut;
static _Atomic int failing_gate; /* who waited at the gate fails */

static inline waste_status on_read(void *ctx, int layer, int expert, waste_error *err)
{
    const int what = kind[layer][expert];
    (void)ctx;
    reads[layer][expert]++;
    begun++;
    if (what == FAILING) return waste_fail(err, WASTE_IO, "the disk says no");
    pthread_mutex_lock(&lock);
    while (what == GATED && shut) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    if (what == GATED && failing_gate) return waste_fail(err, WASTE_IO, "the gate says no");
    return WASTE_OK;
}

static inline void set_gate(int closed)
{
    pthread_mutex_lock(&lock);
    shut = closed;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static inline void pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static inline int setup(void **state)
{
    static const waste_bank_shape shape = {3, 1, FIXTURE_EXPERTS, FIXTURE_WIDTH, FIXTURE_HIDDEN};
    waste_error e = {0};
    (void)state;
    fixture_make(&box);
    return waste_manifest_open(&manifest, box.dir, &e) ||
           waste_banks_open(&banks, manifest, &shape, WASTE_BANKS_VERIFY, NULL, &e);
}

static inline int teardown(void **state)
{
    (void)state;
    waste_banks_close(banks);
    waste_manifest_close(manifest);
    fixture_remove(&box);
    return 0;
}

static inline void open_cache_with(uint64_t slots, int threads)
{
    waste_error e = {0};
    int i;

    for (i = 0; i < 3 * FIXTURE_EXPERTS; i++) (&reads[0][0])[i] = (&kind[0][0])[i] = 0;
    begun = shut = 0;
    waste_banks_fault(banks, on_read, NULL);
    if (waste_cache_open(&cache, banks, slots, threads, &e)) fail_msg("%s", e.text);
}

/* Two readers: one may be held up by a gate while the other goes on in order. */
static inline void open_cache(uint64_t slots)
{
    open_cache_with(slots, 2);
}

static inline waste_cache_counts counts(void)
{
    waste_cache_counts n;

    waste_cache_counts_get(cache, &n);
    return n;
}

static inline void ask(int layer, const int *ids, size_t n)
{
    waste_error e = {0};

    if (waste_cache_ask(cache, layer, ids, NULL, n, 1, &e)) fail_msg("%s", e.text);
}

/* Takes one and looks at its bytes; -1 at the end. */
static inline int take(int layer)
{
    waste_error e = {0};
    const unsigned char *r;
    const void *record;
    int expert;
    waste_status st = waste_cache_take(cache, &expert, &record, NULL, &e);

    if (st == WASTE_DONE) return -1;
    if (st) fail_msg("%s", e.text);
    r = record;
    assert_int_equal((uintptr_t)r % 4096, 0);
    assert_int_equal(r[48], layer * 16 + expert);
    return expert;
}

static inline void use_all(int layer, const int *ids, size_t n)
{
    int expert;
    size_t taken;

    ask(layer, ids, n);
    for (taken = 0; (expert = take(layer)) >= 0; taken++) waste_cache_release(cache, layer, expert);
    assert_int_equal(taken, n);
}

/* A batch of one; whether it was there already. */
static inline int use(int layer, int expert)
{
    const uint64_t before = counts().hits;

    use_all(layer, &expert, 1);
    return counts().hits > before;
}

static inline waste_status try_take(int *expert, const waste_cancel *cancel, waste_error *e)
{
    const void *record;

    memset(e, 0, sizeof *e);
    return waste_cache_take(cache, expert, &record, cancel, e);
}

static inline int yes(void *ctx)
{
    (void)ctx;
    return 1;
}

/* Gives up what was not taken: as an interrupt does, which is asked about every now
 * and then only. */
static inline void give_up(void)
{
    const waste_cancel cancel = {yes, NULL};
    waste_error e;
    int expert;

    pause_ms(50);
    assert_int_equal(try_take(&expert, &cancel, &e), WASTE_CANCELLED);
}

static inline void close_cache(void)
{
    set_gate(0);
    waste_cache_close(cache);
}

#endif
