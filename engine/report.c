/* The plan as rows, of waste.h: what opening a model would reserve, without
 * loading it. The figures are those that opening itself works with
 * (waste_model_plan). Any thread may call; nothing outlives the call but the
 * rows. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/aside.h"
#include "base/mem.h"
#include "base/ram.h"
#include "base/utf8.h"
#include "internal.h"
#include "model/scratch.h"
#include "model/weights.h"
#include "store/probe.h"

#define MAX_ROWS 24

typedef unsigned long long llu;

static void add(waste_plan_report *r, const char *part, double value, const char *unit,
                const char *fmt, ...) WASTE_PRINTF(5, 6);

static void add(waste_plan_report *r, const char *part, double value, const char *unit,
                const char *fmt, ...)
{
    waste_plan_row *row = &r->row[r->n++];
    va_list ap;
    size_t n;

    row->part = part;
    row->value = value;
    row->unit = unit;
    va_start(ap, fmt);
    vsnprintf(row->why, sizeof row->why, fmt, ap);
    va_end(ap);
    n = strlen(row->why); /* a path may have been cut inside a letter */
    row->why[n - waste_utf8_tail(row->why, n)] = 0;
}

static void add_bytes(waste_plan_report *r, const char *part, uint64_t bytes, const char *why)
{
    add(r, part, (double)bytes, "bytes", "%s", why);
}

/* ---- rows ------------------------------------------------------------------- */

static void sequences(waste_plan_report *r, const waste_plan *p, const waste_info *info,
                      int64_t context)
{
    char many[48] = "one sequence";

    if (p->count > 1) snprintf(many, sizeof many, "%llu sequences", (llu)p->count);
    add(r, "state", (double)(p->count * p->state), "bytes",
        "%s of %lld positions: %d KDA layers and %d MLA layers", many, (long long)context,
        info->kda_layers, info->mla_layers);
    if (p->count > 1)
        snprintf(many, sizeof many, "each of %llu generations", (llu)p->count);
    else
        snprintf(many, sizeof many, "one generation");
    add(r, "generation", (double)(p->count * p->generation), "bytes",
        "logits, sampler and prompt of %s with a full context", many);
}

static void needs(waste_plan_report *r, const waste_plan *p, const waste_container *c,
                  int64_t context)
{
    add_bytes(r, "trunk", p->trunk,
              "dense weights, as stored; a quantised embedding table stays on disk");
    add(r, "codebooks", (double)p->codebooks, "bytes", "expert codebooks of %d layers, as f32",
        p->moe_layers);
    add_bytes(r, "tables", p->tables,
              "manifest, tensor handles, tokenizer, index of the cache: an upper estimate");
    add(r, "scratch", (double)p->scratch, "bytes",
        "working memory of the forward pass, for %d rows", WASTE_ROWS_LEAST);
    sequences(r, p, &c->info, context);
    add(r, "min_cache", (double)p->min_cache, "bytes",
        "%llu expert records of %llu bytes: twice what a layer picks for one token",
        (llu)p->min_slots, (llu)p->record);
    add_bytes(r, "floor", p->floor, "the sum of the above; a smaller budget is refused");
    add(r, "working_set", (double)p->working_set, "bytes",
        "%d experts in each of %d layers: what one token reads", p->top_k, p->moe_layers);
    add(r, "expert_set", (double)(p->records * p->slot), "bytes", "all %llu expert records",
        (llu)p->records);
}

static void ceiling(waste_plan_report *r, const waste_ram *ram)
{
    if (ram->usable == WASTE_RAM_UNKNOWN)
        add(r, "ceiling", NAN, "bytes", "the system does not say how much memory it has");
    else if (ram->from[0])
        add(r, "ceiling", (double)ram->usable, "bytes", "usable RAM: the limit in %s", ram->from);
    else
        add(r, "ceiling", (double)ram->usable, "bytes", "usable RAM: all of the physical RAM");
}

static void budget(waste_plan_report *r, const waste_plan *p, uint64_t given, uint64_t cliff)
{
    const uint64_t all = p->records * p->slot;
    const char *why;

    if (!given && p->sets && p->budget - p->floor - p->chunk == all) {
        why = p->chunk ? "chosen: the floor, the chunk and all experts, within 3/4 of the ceiling"
                       : "chosen: the floor and all experts, within 3/4 of the ceiling";
    } else if (!given && p->sets) {
        add(r, "budget", (double)p->budget, "bytes",
            "chosen: the floor%s and %d working set%s, the most within 3/4 of the ceiling",
            p->chunk ? ", the chunk" : "", p->sets, p->sets > 1 ? "s" : "");
        return;
    } else if (!given) {
        why = p->working_set ? "chosen: the floor; a working set more is above 3/4 of the ceiling"
                             : "chosen: the floor; there are no experts to keep";
    } else if (given < p->floor) {
        why = "as given: below the floor, opening would be refused";
    } else if (given > cliff) {
        why = "as given: above 3/4 of the ceiling, where the system may page the cache out";
    } else if (given - p->floor > all) {
        why = "as given: more than the floor and all experts";
    } else {
        why = "as given";
    }
    add_bytes(r, "budget", p->budget, why);
}

static void division(waste_plan_report *r, const waste_plan *p, uint64_t given)
{
    add(r, "cache", (double)(p->slots * p->slot), "bytes",
        p->slots && p->slots == p->records ? "room for every expert record"
                                           : "what the budget has over the rest of the floor");
    add(r, "slots", (double)p->slots, "slots", "expert records that the cache holds, of %llu",
        (llu)p->records);
    add(r, "chunk", (double)p->chunk, "bytes",
        "scratch for %d rows of a prompt at a time, beyond that for %d", p->rows, WASTE_ROWS_LEAST);
    add_bytes(r, "sequences", p->sequences,
              given ? "for all sequences together: what the budget leaves"
                    : "for all sequences together: up to 3/4 of the ceiling");
}

/* Two figures that follow from the disk alone, and say so. */
static void speed(waste_plan_report *r, const waste_plan *p, const waste_probe *d)
{
    const double cold = d->rate / (double)p->working_set;
    const double hits = (double)p->slots / (double)p->records;

    add(r, "disk", d->rate, "bytes/s", "%llu reads of whole records at random places, %s",
        (llu)d->reads, d->direct ? "past the page cache" : "through the page cache: may be memory");
    add(r, "cold", cold, "tokens/s", "disk / working_set: nothing cached, arithmetic not counted");
    if (!p->slots) return;
    if (p->slots >= p->records)
        add(r, "warm", NAN, "tokens/s", "all experts stay in memory: arithmetic decides");
    else
        add(r, "warm", cold / (1 - hits), "tokens/s",
            "cold / (1 - slots / records), %.1f %% hits, as if all experts were equally likely; "
            "favourites make it more",
            100 * hits);
}

/* ---- making it --------------------------------------------------------------- */

static waste_status fill(waste_plan_report *out, const waste_container *c, const waste_plan *p,
                         const waste_ram *ram, const waste_model_options *o, int probe,
                         waste_error *err)
{
    waste_probe disk;
    waste_status st = WASTE_OK;

    out->row = waste_mem_array(MAX_ROWS, sizeof *out->row);
    if (!out->row) return waste_fail(err, WASTE_NOMEM, "out of memory for a plan");
    needs(out, p, c, o->context);
    ceiling(out, ram);
    budget(out, p, o->budget, waste_plan_cliff(ram->usable));
    division(out, p, o->budget);
    if (!probe || !p->records) return WASTE_OK;
    st = waste_probe_banks(&disk, c->manifest, c->config.layers, o->buffered, err);
    if (!st) speed(out, p, &disk);
    return st;
}

/* A report that is being made, with copies of the caller's texts: the caller may go
 * while a read hangs. */
typedef struct making {
    waste_plan_report report;
    waste_model_options options;
    char *path, *cpus;
    int probe;
} making;

static void drop(void *ctx)
{
    making *k = ctx;

    waste_plan_clear(&k->report);
    waste_mem_free(k->cpus);
    waste_mem_free(k->path);
    waste_mem_free(k);
}

static waste_status make(void *ctx, const waste_cancel *left, waste_error *err)
{
    making *k = ctx;
    const waste_model_options *o = &k->options;
    waste_container *c = waste_mem_zero(sizeof *c);
    waste_tensors *t = NULL;
    waste_weights *w = NULL;
    waste_plan p = {0};
    waste_ram ram;
    waste_cpus list;
    const waste_cpus *cpus;
    waste_error below = {0};
    waste_status st;
    int threads;

    (void)left; /* all of it is short, unless a read hangs */
    if (!c) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", k->path);
    st = waste_model_threads(&threads, &cpus, &list, o, err);
    if (!st) st = waste_container_read(c, k->path, err);
    if (!st) st = waste_tensors_open(&t, c->manifest, err);
    if (!st) st = waste_weights_open(&w, t, c->manifest, &c->config, err);
    if (!st) {
        waste_ram_get(&ram, "");
        st = waste_model_plan(&p, c, w, o, threads, &ram, &below);
        if (st == WASTE_RAM_BUDGET && p.floor) st = WASTE_OK; /* a row will say so */
        if (st) waste_fail(err, st, "%s", below.text);
    }
    if (!st) st = fill(&k->report, c, &p, &ram, o, k->probe, err);
    waste_weights_close(w);
    waste_tensors_close(t);
    waste_container_close(c);
    return st;
}

waste_status waste_plan_make(waste_plan_report *out, const char *path,
                             const waste_model_options *opt, int probe, waste_error *err)
{
    waste_model_options o = {0};
    making *k;
    waste_status st;

    if (!out) return waste_fail(err, WASTE_ARG, "waste_plan_make: no place for the plan");
    memset(out, 0, sizeof *out);
    st = waste_model_options_check(&o, opt, err);
    if (st) return st;
    if (!path || !*path) return waste_fail(err, WASTE_ARG, "the path of the container is empty");
    k = waste_mem_zero(sizeof *k);
    if (k) k->path = waste_mem_text(path, strlen(path));
    if (k && o.cpus) k->cpus = waste_mem_text(o.cpus, strlen(o.cpus));
    if (!k || !k->path || (o.cpus && !k->cpus)) {
        if (k) drop(k);
        return waste_fail(err, WASTE_NOMEM, "%s: out of memory", path);
    }
    k->options = o;
    k->options.cpus = k->cpus;
    k->probe = probe;
    st = waste_aside_run(waste_container_key(path), make, drop, k, &o.cancel, err);
    if (st) return st;
    *out = k->report;
    memset(&k->report, 0, sizeof k->report);
    drop(k);
    return WASTE_OK;
}

void waste_plan_clear(waste_plan_report *r)
{
    waste_mem_free(r->row);
    memset(r, 0, sizeof *r);
}
