/* Prompts seen lately: see prefix.h. Owns hashes of their beginnings, guarded by the
 * model's lock. A hash that misleads costs a copy of a state that nobody will want:
 * what is taken over is decided by the tokens themselves (keep.c). */
#include "prefix.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "internal.h"

#define RECENT 16  /* prompts */
#define STRIDE 8   /* tokens between hashes */
#define HASHES 512 /* of each prompt */
#define WORTH  16  /* tokens that are worth a copy of the state */

struct waste_prefix {
    size_t next; /* the oldest */
    size_t n[RECENT];
    uint32_t hash[RECENT][HASHES]; /* of the first STRIDE, 2 * STRIDE, ... tokens */
};

waste_status waste_prefix_open(struct waste_prefix **out, waste_error *err)
{
    *out = waste_mem_zero(sizeof **out);
    return *out ? WASTE_OK : waste_fail(err, WASTE_NOMEM, "out of memory for a list of prompts");
}

void waste_prefix_close(struct waste_prefix *p)
{
    waste_mem_free(p);
}

size_t waste_prefix_meet(waste_model *m, const int32_t *ids, size_t n, size_t has)
{
    struct waste_prefix *p = m->prefix;
    const size_t some = (n - 1) / STRIDE, k = some < HASHES ? some : HASHES;
    uint32_t hash[HASHES] = {0};
    uint64_t h = 0;
    size_t best = 0, i, j;

    for (i = 0; i < k; i++) {
        h = waste_tokens_hash(h, ids + i * STRIDE, STRIDE);
        hash[i] = (uint32_t)(h ^ h >> 32);
    }
    pthread_mutex_lock(&m->turn);
    m->stats.reused += has;
    for (i = 0; i < RECENT; i++) {
        for (j = 0; j < k && j < p->n[i] && hash[j] == p->hash[i][j]; j++) continue;
        if (j > best) best = j;
    }
    if (k) memcpy(p->hash[p->next], hash, k * sizeof *hash);
    p->n[p->next] = k;
    p->next = (p->next + 1) % RECENT;
    pthread_mutex_unlock(&m->turn);
    return best * STRIDE >= has + WORTH ? best * STRIDE : 0;
}
