/* Recorded routing, of tests/golden/traces or tests/tools/routes.c. */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct trace {
    const char *name;
    int tokens, layers, experts, chosen;
    uint16_t *id;        /* [tokens][layers][chosen] */
    uint16_t *rank;      /* [tokens][layers][experts] by the router's keys, or NULL */
    float *score;        /* [tokens][layers][chosen] its keys, or NULL */
    uint16_t *next_rank; /* [tokens][layers][experts] of the next layer, by the lookahead */
} trace;

/* Prints what is wrong with the file and gives 1; 0 when it is loaded. */
int trace_load(trace *t, const char *path);
void trace_clear(trace *t);

/* tokens * layers */
size_t trace_passes(const trace *t);
/* Records that a share of all is. */
int trace_capacity(const trace *t, double share);
/* What a layer chose for a token. */
const uint16_t *trace_ids(const trace *t, int token, int layer);

#endif
