/* Records how a model routes, for tests/bench/policy.c: what its experts' scores are,
 * which of them it chose, and what the lookahead thought beforehand.
 *
 *   routes CONTAINER OUT [TOKENS] < IDS
 *
 * IDS are lines of token ids, separated by anything but digits, each line a
 * sequence of its own; one token a step, as in decoding. Ends after TOKENS of them
 * (all). Arithmetic is the default, which may differ a little between machines.
 *
 * OUT, in the machine's byte order: four 32-bit numbers (tokens, MoE layers, experts,
 * chosen), then per token and MoE layer
 *   uint16 chosen[]     ids, likeliest first
 *   float key[experts]  what the router orders by
 *   float next[experts] the same of the next layer's router, given what this layer's
 *                       saw (engine/model/lookahead.c); 0 after the last
 * Exit: 0, 1 with the error on stderr, 2 for a wrong command line. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "model/forward.h"

#define LINE_BYTES ((size_t)1 << 20)

typedef struct recorder {
    waste_model *m;
    waste_pass pass;
    float *logits, *key, *none; /* [experts] */
    FILE *out;
    uint32_t tokens, most;
} recorder;

static void *need(void *p)
{
    if (p) return p;
    fprintf(stderr, "routes: out of memory\n");
    exit(1);
}

static void put(recorder *r, const void *data, size_t size, size_t n)
{
    if (fwrite(data, size, n, r->out) == n) return;
    fprintf(stderr, "routes: writing: %s\n", strerror(errno));
    exit(1);
}

/* What router.c orders by. */
static void put_keys(recorder *r, const float *logits, const float *bias)
{
    const int n = r->pass.config->experts;
    int e;

    for (e = 0; e < n; e++) r->key[e] = 1.0f / (1.0f + expf(-logits[e])) + (bias ? bias[e] : 0);
    put(r, r->key, sizeof *r->key, (size_t)n);
}

/* After a layer: the scratch still has its router's input and output. */
static void put_layer(recorder *r, int layer)
{
    const waste_pass *p = &r->pass;
    const waste_config *c = p->config;
    const waste_layer *l = &p->weights->layer[layer];
    int k;

    for (k = 0; k < c->top_k; k++) {
        const uint16_t id = (uint16_t)p->s->route_ids[k];

        put(r, &id, sizeof id, 1);
    }
    put_keys(r, p->s->route_logits, l->router_bias);
    if (layer + 1 == c->layers) {
        put(r, r->none, sizeof *r->none, (size_t)c->experts);
        return;
    }
    waste_forward_matmul(p, l[1].router, p->s->normed, r->logits);
    put_keys(r, r->logits, l[1].router_bias);
}

static waste_status put_token(recorder *r, waste_seq *s, int32_t token, waste_error *err)
{
    const waste_row row = {s, token, NULL};
    waste_status st = waste_model_reserve(s, s->length + 1, err);

    if (!st) st = waste_forward_begin(&r->pass, &row, 1);
    while (!st) {
        const int layer = r->pass.layer;

        st = waste_forward_layer(&r->pass);
        if (!st && waste_config_is_moe(r->pass.config, layer)) put_layer(r, layer);
    }
    if (st != WASTE_DONE) return st;
    r->tokens++;
    return WASTE_OK;
}

static waste_status put_line(recorder *r, const char *at, waste_error *err)
{
    waste_seq *s = NULL;
    waste_status st = waste_seq_new(&s, r->m, err);
    const long vocab = (long)waste_container_info(waste_model_container(r->m))->vocab;

    while (!st && r->tokens < r->most) {
        char *end;
        long id;

        while (*at && !isdigit((unsigned char)*at)) at++;
        if (!*at) break;
        id = strtol(at, &end, 10);
        at = end;
        if (id >= vocab) {
            fprintf(stderr, "routes: there is no token %ld\n", id);
            exit(1);
        }
        st = put_token(r, s, (int32_t)id, err);
    }
    waste_seq_free(s);
    return st;
}

static void put_head(recorder *r)
{
    const waste_config *c = r->pass.config;
    const uint32_t head[] = {r->tokens, (uint32_t)(c->layers - c->dense_layers),
                             (uint32_t)c->experts, (uint32_t)c->top_k};

    rewind(r->out);
    put(r, head, sizeof *head, sizeof head / sizeof *head);
}

static void open_pass(recorder *r, waste_error *err)
{
    waste_model *m = r->m;
    const size_t experts = (size_t)m->container->config.experts;

    r->pass = (waste_pass){.config = &m->container->config,
                           .weights = m->weights,
                           .tensors = m->tensors,
                           .kernels = &m->kernels,
                           .quant = &m->container->manifest->quant,
                           .banks = m->banks,
                           .cache = m->cache,
                           .s = m->scratch,
                           .err = err};
    r->logits = need(calloc(experts, sizeof *r->logits));
    r->key = need(calloc(experts, sizeof *r->key));
    r->none = need(calloc(experts, sizeof *r->none));
}

int main(int n, char **arg)
{
    const waste_model_options opt = {.threads = 1};
    recorder r = {.most = UINT32_MAX};
    waste_error err = {0};
    waste_status st;
    char *line;

    if (n < 3 || n > 4) {
        fprintf(stderr, "routes CONTAINER OUT [TOKENS]; see the head of tests/tools/routes.c\n");
        return 2;
    }
    if (n == 4) r.most = (uint32_t)strtoul(arg[3], NULL, 10);
    st = waste_model_open(&r.m, arg[1], &opt, &err);
    if (!st && !r.m->cache) {
        fprintf(stderr, "routes: %s has no experts\n", arg[1]);
        st = WASTE_ARG;
    }
    if (!st) {
        r.out = fopen(arg[2], "wb");
        if (!r.out) {
            fprintf(stderr, "routes: %s: %s\n", arg[2], strerror(errno));
            return 1;
        }
        open_pass(&r, &err);
        put_head(&r);
        line = need(malloc(LINE_BYTES));
        while (!st && r.tokens < r.most && fgets(line, (int)LINE_BYTES, stdin))
            st = put_line(&r, line, &err);
        free(line);
    }
    if (!st) put_head(&r);
    if (err.text[0]) fprintf(stderr, "routes: error %d: %s\n", (int)st, err.text);
    if (r.out && fclose(r.out)) st = WASTE_IO;
    free(r.logits);
    free(r.key);
    free(r.none);
    waste_model_close(r.m);
    return st != WASTE_OK;
}
