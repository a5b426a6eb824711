/* Counted heap: see mem.h. Thread-safe; the counters are atomics. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/plat.h"

/* Under AddressSanitizer everything has red zones. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RED_ZONES 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(RED_ZONES)
#define RED_ZONES 1
#endif
#ifndef RED_ZONES
#define RED_ZONES 0
#endif

#define LARGE ((size_t)128 << 10) /* bytes that are worth pages of their own */

/* Sits right before the caller's bytes; 32 keeps SIMD alignment of malloc's 16. */
typedef struct header {
    void *base;    /* what malloc gave, or the first of its pages */
    size_t size;   /* what the caller asked for */
    size_t mapped; /* bytes of pages; 0: malloc's */
    uint64_t pad;
} header;

static _Atomic uint64_t used;
static _Atomic uint64_t fail_in; /* 0: off */
static _Atomic int fail_stays;

static int must_fail(void)
{
    uint64_t n = atomic_load(&fail_in);

    if (n == 0) return 0;
    if (n > 1) {
        atomic_fetch_sub(&fail_in, 1);
        return 0;
    }
    if (!atomic_load(&fail_stays)) atomic_store(&fail_in, 0);
    return 1;
}

static header *head_of(void *p)
{
    return (header *)p - 1;
}

/* pages: of its own, if it is large and there are any. */
static void *allocate(size_t align, size_t size, int pages)
{
    char *base = NULL, *p;
    header *h;
    size_t mapped = 0;

    if (size == 0 || size > SIZE_MAX / 2 || must_fail()) return NULL;
    if (pages && size >= LARGE && !RED_ZONES) {
        base = waste_pages_map(sizeof *h + align + size, 0);
        mapped = base ? sizeof *h + align + size : 0;
    }
    if (!base) base = malloc(sizeof *h + align + size);
    if (!base) return NULL;
    p = base + sizeof *h;
    p += (align - ((uintptr_t)p & (align - 1))) & (align - 1);
    h = head_of(p);
    h->base = base;
    h->size = size;
    h->mapped = mapped;
    atomic_fetch_add(&used, size);
    return p;
}

void *waste_mem_alloc(size_t size)
{
    return allocate(sizeof(void *) * 2, size, 0);
}

void *waste_mem_aligned(size_t align, size_t size)
{
    return allocate(align, size, 0);
}

void *waste_mem_zero(size_t size)
{
    void *p = waste_mem_alloc(size);

    if (p) memset(p, 0, size);
    return p;
}

void *waste_mem_array(size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size) return NULL;
    return waste_mem_zero(n * size);
}

void *waste_mem_pages(size_t size)
{
    void *p = allocate(64, size, 1);

    if (p && !head_of(p)->mapped) memset(p, 0, size);
    return p;
}

void *waste_mem_resize(void *p, size_t size)
{
    void *q;

    if (!p) return waste_mem_alloc(size);
    q = waste_mem_alloc(size);
    if (!q) return NULL;
    memcpy(q, p, head_of(p)->size < size ? head_of(p)->size : size);
    waste_mem_free(p);
    return q;
}

char *waste_mem_text(const char *s, size_t bytes)
{
    char *p = bytes < SIZE_MAX ? waste_mem_alloc(bytes + 1) : NULL;

    if (!p) return NULL;
    if (bytes) memcpy(p, s, bytes);
    p[bytes] = 0;
    return p;
}

void waste_mem_free(void *p)
{
    header h;

    if (!p) return;
    h = *head_of(p);
    atomic_fetch_sub(&used, h.size);
    if (h.mapped)
        waste_pages_unmap(h.base, h.mapped);
    else
        free(h.base);
}

void *waste_mem_region(size_t size)
{
    void *p;

    if (RED_ZONES) {
        p = waste_mem_aligned(4096, size);
        if (p) memset(p, 0, size);
        return p;
    }
    p = size == 0 || size > SIZE_MAX / 2 || must_fail() ? NULL : waste_pages_map(size, 1);
    if (p) atomic_fetch_add(&used, size);
    return p;
}

void waste_mem_region_free(void *p, size_t size)
{
    if (RED_ZONES) {
        waste_mem_free(p);
    } else if (p) {
        waste_pages_unmap(p, size);
        atomic_fetch_sub(&used, size);
    }
}

uint64_t waste_mem_used(void)
{
    return atomic_load(&used);
}

void waste_mem_fail_at(uint64_t n, int stay)
{
    atomic_store(&fail_stays, stay);
    atomic_store(&fail_in, n);
}
