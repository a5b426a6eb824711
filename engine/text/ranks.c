/* Reading the rank file, and the two directions: bytes to id by a hash table,
 * id to bytes by an array. Used from any thread; nothing changes after opening.
 *
 * The decoded tokens lie one after the other in the buffer that held the file:
 * base64 only shrinks, so a token is written over lines already read. */
#include "text/ranks.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/plat.h"

#define FILE_MAX (1u << 28) /* 16 bytes for each possible id */

typedef struct token {
    uint32_t at, n; /* bytes in `text`; n 0: no such token */
} token;

typedef struct slot {
    uint32_t tag; /* upper half of the hash: most misses end here */
    int32_t id;   /* WASTE_RANKS_NONE: empty */
} slot;

struct waste_ranks {
    char *text;
    token *tokens;
    int32_t n, room; /* ids seen, and allocated */
    slot *slots;
    size_t mask;
    uint32_t longest; /* bytes of the longest token */
    int32_t *pairs;   /* ids of two-byte tokens, by first byte * 256 + second */
    int32_t bytes[256];
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: Knuth's multiplicative hash */
    return h ^ h >> 32;
}

static uint64_t hash_of(const char *s, size_t n)
{
    uint64_t h = mix(0, n), v;

    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&v, s, 8);
        h = mix(h, v);
    }
    v = 0;
    if (n) memcpy(&v, s, n);
    return mix(mix(h, v), 0);
}

static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

/* Decodes s[0..n) to `to`, which may lie at or before s. Bytes written, or -1
 * when s is no base64. The padding may be missing: it says nothing new. */
static int64_t decode(char *to, const char *s, size_t n)
{
    size_t digits;
    uint32_t bits = 0;
    int held = 0;
    int64_t w = 0;

    for (digits = 0; digits < n && s[digits] != '='; digits++) {
        int v = sextet(s[digits]);
        if (v < 0) return -1;
        bits = (bits << 6 | (uint32_t)v) & 0xFFFF;
        held += 6;
        if (held >= 8) {
            held -= 8;
            to[w++] = (char)(bits >> held);
        }
    }
    if (held == 6 || n - digits > 2 || (n - digits == 2 && s[n - 1] != '=')) return -1;
    return w;
}

static waste_status grow(waste_ranks *r, int32_t id, const char *path, waste_error *err)
{
    int32_t want = r->room ? r->room : 1024;
    token *p;

    if (id < r->room) return WASTE_OK;
    while (want <= id) want *= 2;
    p = waste_mem_resize(r->tokens, (size_t)want * sizeof *p);
    if (!p) return waste_fail(err, WASTE_NOMEM, "%s: out of memory for %d tokens", path, want);
    memset(p + r->room, 0, (size_t)(want - r->room) * sizeof *p);
    r->tokens = p;
    r->room = want;
    return WASTE_OK;
}

/* One line s[0..n) without its end; its token goes to text + *used. */
static waste_status read_line(waste_ranks *r, const char *s, size_t n, size_t *used, int64_t limit,
                              const char *path, uint64_t line, waste_error *err)
{
    const char *space = memchr(s, ' ', n);
    size_t left;
    uint64_t id;
    int64_t bytes;
    waste_status st;

    if (!space) return WASTE_OK;
    left = (size_t)(space - s);
    if (waste_parse_u64(space + 1, n - left - 1, (uint64_t)limit - 1, &id))
        return waste_fail(err, WASTE_FORMAT,
                          "%s, line %llu: wanted a token id from 0 to %lld after the space", path,
                          (unsigned long long)line, (long long)limit - 1);
    bytes = decode(r->text + *used, s, left);
    if (bytes < 0)
        return waste_fail(err, WASTE_FORMAT, "%s, line %llu: the token is not valid base64", path,
                          (unsigned long long)line);
    if (bytes == 0)
        return waste_fail(err, WASTE_FORMAT, "%s, line %llu: the token is empty", path,
                          (unsigned long long)line);
    st = grow(r, (int32_t)id, path, err);
    if (st) return st;
    if (r->tokens[id].n) return WASTE_OK;
    r->tokens[id].at = (uint32_t)*used;
    r->tokens[id].n = (uint32_t)bytes;
    *used += (size_t)bytes;
    if ((int32_t)id >= r->n) r->n = (int32_t)id + 1;
    return WASTE_OK;
}

static waste_status read_lines(waste_ranks *r, size_t bytes, int64_t limit, const char *path,
                               waste_error *err)
{
    size_t at = 0, used = 0;
    uint64_t line = 0;
    char *p;

    while (at < bytes) {
        const char *end = memchr(r->text + at, '\n', bytes - at);
        size_t n = (end ? (size_t)(end - r->text) : bytes) - at, next = at + n + 1;
        waste_status st;

        if (n && r->text[at + n - 1] == '\r') n--;
        st = read_line(r, r->text + at, n, &used, limit, path, ++line, err);
        if (st) return st;
        at = next;
    }
    if (r->n == 0) return waste_fail(err, WASTE_FORMAT, "%s holds no tokens", path);
    p = waste_mem_resize(r->text, used);
    if (p) r->text = p; /* a failure to shrink costs nothing */
    return WASTE_OK;
}

static const char *bytes_of(const waste_ranks *r, int32_t id)
{
    return r->text + r->tokens[id].at;
}

/* The slot that holds these bytes, whose hash is h, or the empty one where they
 * would go. At most half of the slots are taken, so there is one. */
static slot *slot_of(const waste_ranks *r, uint64_t h, const char *s, size_t n)
{
    uint32_t tag = (uint32_t)(h >> 32);
    size_t i;

    for (i = (size_t)h & r->mask;; i = (i + 1) & r->mask) {
        slot *p = &r->slots[i];
        if (p->id < 0) return p;
        if (p->tag == tag && r->tokens[p->id].n == n && !memcmp(bytes_of(r, p->id), s, n)) return p;
    }
}

/* Ids ascend, so of two ids with the same bytes the lower one stays. */
static waste_status index_tokens(waste_ranks *r, const char *path, waste_error *err)
{
    size_t i, room = 1024;
    int32_t id;

    while (room < 2 * (size_t)r->n) room *= 2;
    r->mask = room - 1;
    r->slots = waste_mem_alloc(room * sizeof *r->slots);
    r->pairs = waste_mem_alloc(65536 * sizeof *r->pairs);
    if (!r->slots || !r->pairs)
        return waste_fail(err, WASTE_NOMEM, "%s: out of memory for %d tokens", path, r->n);
    for (i = 0; i < room; i++) r->slots[i].id = WASTE_RANKS_NONE;
    for (i = 0; i < 65536; i++) r->pairs[i] = WASTE_RANKS_NONE;
    for (i = 0; i < 256; i++) r->bytes[i] = WASTE_RANKS_NONE;

    for (id = 0; id < r->n; id++) {
        uint32_t n = r->tokens[id].n;
        const unsigned char *s = (const unsigned char *)bytes_of(r, id);
        uint64_t h;
        slot *p;

        if (n == 0) continue;
        h = hash_of((const char *)s, n);
        p = slot_of(r, h, (const char *)s, n);
        if (p->id >= 0) continue;
        p->id = id;
        p->tag = (uint32_t)(h >> 32);
        if (n > r->longest) r->longest = n;
        if (n == 1) r->bytes[s[0]] = id;
        if (n == 2) r->pairs[s[0] << 8 | s[1]] = id;
    }
    return WASTE_OK;
}

waste_status waste_ranks_open(waste_ranks **out, const char *path, int64_t n_vocab,
                              waste_error *err)
{
    int64_t limit = n_vocab < WASTE_RANKS_MAX ? n_vocab : WASTE_RANKS_MAX;
    waste_ranks *r;
    waste_status st;
    size_t bytes;

    *out = NULL;
    if (limit < 1)
        return waste_fail(err, WASTE_ARG, "a vocabulary of %lld tokens", (long long)n_vocab);
    r = waste_mem_zero(sizeof *r);
    if (!r) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    st = waste_file_load(path, FILE_MAX, &r->text, &bytes, err);
    if (!st) st = read_lines(r, bytes, limit, path, err);
    if (!st) st = index_tokens(r, path, err);
    if (st) {
        waste_ranks_close(r);
        return st;
    }
    *out = r;
    return WASTE_OK;
}

void waste_ranks_close(waste_ranks *r)
{
    if (!r) return;
    waste_mem_free(r->text);
    waste_mem_free(r->tokens);
    waste_mem_free(r->slots);
    waste_mem_free(r->pairs);
    waste_mem_free(r);
}

int32_t waste_ranks_count(const waste_ranks *r)
{
    return r->n;
}

/* Most look-ups are of one byte or of two: those are arrays. */
int32_t waste_ranks_find(const waste_ranks *r, const char *bytes, size_t n)
{
    const unsigned char *s = (const unsigned char *)bytes;

    if (n == 1) return r->bytes[s[0]];
    if (n == 2) return r->pairs[s[0] << 8 | s[1]];
    return n > r->longest ? WASTE_RANKS_NONE : slot_of(r, hash_of(bytes, n), bytes, n)->id;
}

const char *waste_ranks_bytes(const waste_ranks *r, int32_t id, size_t *n)
{
    if (id < 0 || id >= r->n || r->tokens[id].n == 0) return NULL;
    *n = r->tokens[id].n;
    return bytes_of(r, id);
}
