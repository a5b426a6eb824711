/* Loading of traces: see trace.h. */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *p)
{
    if (p) return p;
    fprintf(stderr, "policy: out of memory\n");
    exit(1);
}

static void ranks_of(uint16_t *rank, const float *key, int n)
{
    int e, j;

    for (e = 0; e < n; e++) {
        rank[e] = 0;
        for (j = 0; j < n; j++) rank[e] += key[j] > key[e] || (key[j] == key[e] && j < e);
    }
}

size_t trace_passes(const trace *t)
{
    return (size_t)t->tokens * (size_t)t->layers;
}

static void load_scored(trace *t, const char *at)
{
    const size_t n = trace_passes(t), e = (size_t)t->experts, k = (size_t)t->chosen;
    float *key = need(malloc(2 * e * sizeof *key));
    size_t i, j;

    t->rank = need(malloc(n * e * sizeof *t->rank));
    t->next_rank = need(malloc(n * e * sizeof *t->next_rank));
    t->score = need(malloc(n * k * sizeof *t->score));
    for (i = 0; i < n; i++) {
        memcpy(t->id + i * k, at, k * sizeof *t->id);
        at += k * sizeof *t->id;
        memcpy(key, at, 2 * e * sizeof *key);
        at += 2 * e * sizeof *key;
        ranks_of(t->rank + i * e, key, t->experts);
        ranks_of(t->next_rank + i * e, key + e, t->experts);
        for (j = 0; j < k; j++) t->score[i * k + j] = key[t->id[i * k + j]];
    }
    free(key);
}

int trace_load(trace *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    uint32_t head[4] = {0};
    char *data = NULL;
    size_t n, e, k, bytes = 0, i;
    int bad = !f || fread(head, sizeof head, 1, f) != 1 || fseek(f, 0, SEEK_END) != 0;

    if (!bad) {
        bytes = (size_t)ftell(f) - sizeof head;
        data = need(malloc(bytes + 1));
        fseek(f, sizeof head, SEEK_SET);
        bad = fread(data, 1, bytes, f) != bytes;
    }
    if (f) fclose(f);
    t->name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    t->tokens = (int)head[0];
    t->layers = (int)head[1];
    t->experts = (int)head[2];
    t->chosen = (int)head[3];
    n = (size_t)head[0] * head[1];
    e = head[2];
    k = head[3];
    if (!bad) t->id = need(malloc(n * k * sizeof *t->id + 1));
    if (bad) {
        fprintf(stderr, "policy: %s: %s\n", path, errno ? strerror(errno) : "too short");
    } else if (bytes == n * k) {
        for (i = 0; i < bytes; i++) t->id[i] = (unsigned char)data[i];
    } else if (bytes == n * (k * sizeof *t->id + 2 * e * sizeof(float))) {
        load_scored(t, data);
    } else {
        fprintf(stderr, "policy: %s is no trace\n", path);
        bad = 1;
    }
    free(data);
    return bad;
}

int trace_capacity(const trace *t, double share)
{
    return (int)((double)t->layers * t->experts * share);
}

const uint16_t *trace_ids(const trace *t, int token, int layer)
{
    return t->id + ((size_t)token * (size_t)t->layers + (size_t)layer) * (size_t)t->chosen;
}

void trace_clear(trace *t)
{
    free(t->id);
    free(t->rank);
    free(t->score);
    free(t->next_rank);
}
