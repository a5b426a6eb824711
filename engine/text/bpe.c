/* The merge, over a linked list of parts and a heap of pairs. All state is the
 * caller's waste_bpe.
 *
 * A part is named by the offset of its first byte. The heap holds rank << 32 |
 * offset of the left part, so its least entry is the pair to merge. Entries are
 * not taken out when a merge makes them void: an entry counts when its rank is
 * still the one noted at its part. */
#include "text/bpe.h"

#include <string.h>

#include "base/mem.h"

#define NO_PAIR UINT32_MAX

typedef struct waste_bpe_part {
    uint32_t before, end; /* where the part before starts, where this one ends */
    uint32_t pair;        /* rank of this part and the next as one, or NO_PAIR */
    int32_t id;           /* of this part; WASTE_RANKS_NONE: a byte that is no token */
} part;

/* An array with room for `want` elements that continues p; NULL when memory is
 * out, and p is then as it was. */
static void *reserve(void *p, size_t size, size_t *room, size_t want)
{
    size_t n = *room ? *room : 64;
    void *grown;

    if (want <= *room) return p;
    while (n < want) n += n / 2;
    if (n > SIZE_MAX / size) return NULL;
    grown = waste_mem_resize(p, n * size);
    if (grown) *room = n;
    return grown;
}

static waste_status no_memory(waste_error *err)
{
    return waste_fail(err, WASTE_NOMEM, "out of memory tokenizing");
}

waste_status waste_bpe_id(waste_bpe *b, int32_t id, waste_error *err)
{
    int32_t *ids = reserve(b->ids, sizeof *ids, &b->room, b->n + 1);

    if (!ids) return no_memory(err);
    b->ids = ids;
    b->ids[b->n++] = id;
    return WASTE_OK;
}

void waste_bpe_clear(waste_bpe *b)
{
    waste_mem_free(b->ids);
    waste_mem_free(b->parts);
    waste_mem_free(b->heap);
    memset(b, 0, sizeof *b);
}

/* For a piece of n bytes; nonzero when memory is out. The heap starts with less
 * than n pairs, and each of less than n merges takes one out and brings in at
 * most two. */
static int reserve_all(waste_bpe *b, size_t n)
{
    void *ids, *parts, *heap;

    ids = reserve(b->ids, sizeof *b->ids, &b->room, b->n + n);
    if (ids) b->ids = ids;
    parts = reserve(b->parts, sizeof *b->parts, &b->part_room, n);
    if (parts) b->parts = parts;
    heap = reserve(b->heap, sizeof *b->heap, &b->heap_room, 2 * n);
    if (heap) b->heap = heap;
    return !ids || !parts || !heap;
}

static void sink(uint64_t *heap, size_t n, size_t i)
{
    uint64_t v = heap[i];

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (v <= heap[child]) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
}

static void rise(uint64_t *heap, size_t i)
{
    uint64_t v = heap[i];

    while (i > 0 && heap[(i - 1) / 2] > v) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = v;
}

/* Notes what the part at `at` and the next are as one; nonzero when a token. */
static int look_up(part *parts, const waste_ranks *r, const char *s, uint32_t n, uint32_t at)
{
    uint32_t next = parts[at].end;

    parts[at].pair = NO_PAIR;
    if (next == n) return 0;
    parts[at].pair = (uint32_t)waste_ranks_find(r, s + at, parts[next].end - at);
    return parts[at].pair != NO_PAIR;
}

static void merge(waste_bpe *b, const waste_ranks *r, const char *s, uint32_t n)
{
    part *parts = b->parts;
    uint64_t *heap = b->heap;
    size_t held = 0, i;

    for (i = 0; i < n; i++) {
        parts[i].before = (uint32_t)i - 1;
        parts[i].end = (uint32_t)i + 1;
        parts[i].id = waste_ranks_find(r, s + i, 1);
    }
    for (i = 0; i < n; i++)
        if (look_up(parts, r, s, n, (uint32_t)i)) heap[held++] = (uint64_t)parts[i].pair << 32 | i;
    for (i = held / 2; i-- > 0;) sink(heap, held, i);

    while (held > 0) {
        uint32_t at = (uint32_t)heap[0], rank = (uint32_t)(heap[0] >> 32), next;

        heap[0] = heap[--held];
        if (held) sink(heap, held, 0);
        if (parts[at].pair != rank) continue;

        next = parts[at].end;
        parts[at].end = parts[next].end;
        parts[at].id = (int32_t)rank;
        parts[next].pair = NO_PAIR; /* it is a part no more */
        if (parts[at].end < n) parts[parts[at].end].before = at;
        if (look_up(parts, r, s, n, at)) {
            heap[held] = (uint64_t)parts[at].pair << 32 | at;
            rise(heap, held++);
        }
        if (at > 0 && look_up(parts, r, s, n, parts[at].before)) {
            at = parts[at].before;
            heap[held] = (uint64_t)parts[at].pair << 32 | at;
            rise(heap, held++);
        }
    }
}

waste_status waste_bpe_piece(waste_bpe *b, const waste_ranks *r, const char *s, size_t n,
                             waste_error *err)
{
    int32_t whole = waste_ranks_find(r, s, n);
    size_t kept = b->n, at;

    if (whole != WASTE_RANKS_NONE) return waste_bpe_id(b, whole, err);
    if (n >= UINT32_MAX / 4)
        return waste_fail(err, WASTE_ARG, "a piece of %llu bytes is too long to tokenize",
                          (unsigned long long)n);
    if (reserve_all(b, n)) return no_memory(err);
    merge(b, r, s, (uint32_t)n);
    for (at = 0; at < n; at = b->parts[at].end) {
        if (b->parts[at].id == WASTE_RANKS_NONE) {
            b->n = kept;
            return waste_fail(err, WASTE_FORMAT,
                              "the vocabulary has no token for the byte 0x%02X of the text",
                              (unsigned)(unsigned char)s[at]);
        }
        b->ids[b->n++] = b->parts[at].id;
    }
    return WASTE_OK;
}
