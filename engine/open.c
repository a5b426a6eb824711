/* Opening models, and what they were opened with: options, kernels, threads, the plan, and
 * the parts below in the order in which one can refuse before another costs anything. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/aside.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"
#include "combine.h"
#include "internal.h"
#include "model/forward.h"
#include "model/pack.h"
#include "prefix.h"
#include "store/reader.h"

#define DEFAULT_CONTEXT 4096
#define MAX_CONTEXT     ((int64_t)1 << 30)
#define MAX_SEQUENCES   4096

waste_status waste_model_options_check(waste_model_options *o, const waste_model_options *given,
                                       waste_error *err)
{
    if (given) *o = *given;
    if (o->context == 0) o->context = DEFAULT_CONTEXT;
    if (o->context < 1 || o->context > MAX_CONTEXT)
        return waste_fail(err, WASTE_ARG, "a context of %lld positions is not in 1..%lld",
                          (long long)o->context, (long long)MAX_CONTEXT);
    if (o->sequences == 0) o->sequences = 1;
    if (o->sequences < 1 || o->sequences > MAX_SEQUENCES)
        return waste_fail(err, WASTE_ARG, "%lld sequences are not in 1..%d",
                          (long long)o->sequences, MAX_SEQUENCES);
    if (o->precision != WASTE_PRECISION_FAST && o->precision != WASTE_PRECISION_EXACT)
        return waste_fail(err, WASTE_ARG, "precision %d is neither fast nor exact",
                          (int)o->precision);
    if (o->kv != WASTE_KV_F32 && o->kv != WASTE_KV_F16)
        return waste_fail(err, WASTE_ARG, "kv %d is neither f32 nor f16", (int)o->kv);
    if (o->io_threads < 0 || o->io_threads > WASTE_READER_MOST)
        return waste_fail(err, WASTE_ARG, "io_threads %d is not in 0..%d", o->io_threads,
                          WASTE_READER_MOST);
    if (o->lookahead < -1 || o->lookahead > WASTE_LOOKAHEAD_MOST)
        return waste_fail(err, WASTE_ARG, "a lookahead of %d experts is not in -1..%d",
                          o->lookahead, WASTE_LOOKAHEAD_MOST);
    if (o->lookahead == 0) o->lookahead = WASTE_LOOKAHEAD;
    if (o->threads < 0 || o->threads > WASTE_POOL_MOST)
        return waste_fail(err, WASTE_ARG, "threads %d is not in 0..%d", o->threads,
                          WASTE_POOL_MOST);
    return WASTE_OK;
}

waste_status waste_model_threads(int *threads, const waste_cpus **cpus, waste_cpus *list,
                                 const waste_model_options *o, waste_error *err)
{
    waste_status st = o->cpus ? waste_cpus_parse(list, o->cpus, err) : WASTE_OK;

    *cpus = o->cpus ? list : NULL;
    *threads = st ? 1 : waste_pool_threads(o->threads, *cpus);
    return st;
}

/* Experts that some layer really has. */
static int has_experts(const waste_config *c)
{
    return c->experts > 0 && c->dense_layers < c->layers;
}

waste_status waste_model_plan(waste_plan *p, const waste_container *c,
                              const struct waste_weights *w, const waste_model_options *o,
                              int threads, const waste_ram *ram, waste_error *err)
{
    waste_status st = waste_plan_size(p, &c->config, c->manifest, w->resident, threads, o->context,
                                      o->kv, o->sequences, c->tokenizer != NULL, err);

    return st ? st : waste_plan_divide(p, o->budget, ram->usable, err);
}

/* Adds to what the statistics have to say. */
static void note(waste_model *m, const char *fmt, ...) WASTE_PRINTF(2, 3);

static void note(waste_model *m, const char *fmt, ...)
{
    char *to = m->stats.notice;
    size_t n = strlen(to), room = sizeof m->stats.notice;
    va_list ap;

    if (n && n + 2 < room) n += (size_t)snprintf(to + n, room - n, "; ");
    va_start(ap, fmt);
    vsnprintf(to + n, room - n, fmt, ap);
    va_end(ap);
}

static waste_status plan(waste_model *m, waste_error *err)
{
    waste_ram ram;
    waste_status st;

    waste_ram_get(&ram, "");
    st = waste_model_plan(&m->plan, m->container, m->weights, &m->options, m->threads, &ram, err);
    if (!st && m->plan.budget > waste_plan_cliff(ram.usable))
        note(m, "the budget of %llu bytes is above 3/4 of the usable RAM of %llu: it may be paged",
             (unsigned long long)m->plan.budget, (unsigned long long)ram.usable);
    return st;
}

/* The cache comes last. When there is less memory than was planned with, it gives
 * way, by halves. */
static waste_status open_cache(waste_model *m, waste_error *err)
{
    waste_plan *p = &m->plan;
    const uint64_t planned = p->slots;
    waste_error e = {0};
    waste_status st = waste_cache_open(&m->cache, m->banks, p->slots, m->options.io_threads, &e);

    while (st == WASTE_NOMEM && p->slots > p->min_slots) {
        waste_plan_shrink(p, p->slots / 2 > p->min_slots ? p->slots / 2 : p->min_slots);
        memset(&e, 0, sizeof e);
        st = waste_cache_open(&m->cache, m->banks, p->slots, m->options.io_threads, &e);
    }
    if (st) return waste_fail(err, st, "%s", e.text);
    if (p->slots < planned)
        note(m, "memory ran out while opening: the cache has %llu slots instead of %llu",
             (unsigned long long)p->slots, (unsigned long long)planned);
    return WASTE_OK;
}

static waste_status open_experts(waste_model *m, const waste_cancel *cancel, waste_error *err)
{
    const waste_config *c = &m->container->config;
    const waste_bank_shape shape = {c->layers, c->dense_layers, c->experts, c->moe_width,
                                    c->expert_in};
    const unsigned flags = (m->options.verify ? WASTE_BANKS_VERIFY : 0) |
                           (m->options.buffered ? WASTE_BANKS_BUFFERED : 0);
    waste_status st;

    st = waste_banks_open(&m->banks, m->container->manifest, &shape, flags, cancel, err);
    if (!st)
        st = waste_pack_experts(m->weights, m->banks, &m->kernels, c,
                                &m->container->manifest->quant, err);
    return st ? st : open_cache(m, err);
}

/* Exact arithmetic is the plain table's. */
static waste_status choose_kernels(waste_model *m, waste_error *err)
{
    const waste_model_options *o = &m->options;
    const int exact = o->precision == WASTE_PRECISION_EXACT;

    if (!o->kernels) {
        waste_kernels_pick(&m->kernels, exact ? 0 : waste_cpu_features());
        return WASTE_OK;
    }
    if (!waste_kernels_named(&m->kernels, o->kernels, waste_cpu_features()))
        return waste_fail(err, WASTE_ARG, "no kernels \"%.20s\" for this CPU or in this build",
                          o->kernels);
    if (exact && m->kernels.pack_matrix)
        return waste_fail(err, WASTE_ARG, "precision exact has plain kernels, not \"%s\"",
                          m->kernels.name);
    return WASTE_OK;
}

static waste_status hold_pool(waste_model *m, waste_error *err)
{
    const waste_cpus *cpus;
    waste_cpus list;
    char notice[120];
    waste_status st = waste_model_threads(&m->threads, &cpus, &list, &m->options, err);

    if (!st) st = waste_pool_hold(&m->pool, m->options.threads, cpus, notice, sizeof notice, err);
    if (st) return st;
    m->threads = waste_pool_threads(m->options.threads, cpus); /* now that it is there */
    if (notice[0]) note(m, "%s", notice);
    return WASTE_OK;
}

static waste_status open_container(waste_model *m, const char *path, waste_error *err)
{
    m->container = waste_mem_zero(sizeof *m->container);
    if (!m->container) return waste_fail(err, WASTE_NOMEM, "out of memory opening %s", path);
    return waste_container_read(m->container, path, err);
}

static waste_status open_parts(waste_model *m, const char *path, const waste_cancel *cancel,
                               waste_error *err)
{
    const waste_config *c;
    waste_status st;

    m->has_turn = pthread_mutex_init(&m->turn, NULL) == 0;
    if (!m->has_turn) return waste_fail(err, WASTE_NOMEM, "no lock could be made for the model");
    st = open_container(m, path, err);
    if (st) return st;
    c = &m->container->config;
    if (m->options.exclusive) st = waste_lock_take(&m->lock, path, err);
    if (st) return st;
    st = choose_kernels(m, err);
    if (!st) st = hold_pool(m, err);
    if (st) return st;

    /* Handles first: what the plan refuses must not have been loaded. */
    st = waste_tensors_open(&m->tensors, m->container->manifest, err);
    if (!st) st = waste_weights_open(&m->weights, m->tensors, m->container->manifest, c, err);
    if (!st) st = plan(m, err);
    if (!st)
        st = waste_pack_trunk(m->weights, m->tensors, &m->kernels, c, m->threads,
                              m->options.buffered, cancel, err);
    if (!st) st = waste_scratch_open(&m->scratch, c, m->plan.rows, m->threads, err);
    if (!st && has_experts(c)) st = open_experts(m, cancel, err);
    if (!st) st = waste_combine_open(&m->combine, m, err);
    if (!st) st = waste_prefix_open(&m->prefix, err);
    if (!st && m->options.usage) waste_stats_warm(m, m->options.usage);
    return st;
}

/* A model that is being opened, with copies of the caller's texts: the caller may go
 * while a read hangs. */
typedef struct opening {
    waste_model *model;
    char *path, *usage, *kernels, *cpus;
} opening;

static waste_status open_all(void *ctx, const waste_cancel *left, waste_error *err)
{
    opening *o = ctx;
    fenv_t host;
    waste_status st;

    waste_fpenv_enter(&host); /* tables and codebooks are computed, workers started */
    st = open_parts(o->model, o->path, left, err);
    waste_fpenv_leave(&host);
    return st;
}

static void drop(void *ctx)
{
    opening *o = ctx;

    waste_model_close(o->model);
    waste_mem_free(o->cpus);
    waste_mem_free(o->kernels);
    waste_mem_free(o->usage);
    waste_mem_free(o->path);
    waste_mem_free(o);
}

/* 0 when there is no memory for it. */
static int copy_text(char **to, const char *text)
{
    *to = text ? waste_mem_text(text, strlen(text)) : NULL;
    return !text || *to;
}

static waste_status prepare(opening **out, const char *path, const waste_model_options *opt,
                            waste_error *err)
{
    opening *o = waste_mem_zero(sizeof *o);
    waste_model *m = o ? waste_mem_zero(sizeof *m) : NULL;
    waste_model_options *copy = m ? &m->options : NULL;
    waste_status st = WASTE_OK;

    if (o) o->model = m;
    if (m) {
        m->process = waste_process_id();
        m->opened_ns = waste_clock_ns();
        m->faults = waste_process_faults();
        st = waste_model_options_check(copy, opt, err);
    }
    if (!st && !(m && copy_text(&o->path, path) && copy_text(&o->usage, copy->usage) &&
                 copy_text(&o->kernels, copy->kernels) && copy_text(&o->cpus, copy->cpus)))
        st = waste_fail(err, WASTE_NOMEM, "%s: out of memory", path);
    if (st) {
        if (o) drop(o);
        return st;
    }
    copy->usage = o->usage;
    copy->kernels = o->kernels;
    copy->cpus = o->cpus;
    *out = o;
    return WASTE_OK;
}

waste_status waste_model_open(waste_model **out, const char *path, const waste_model_options *opt,
                              waste_error *err)
{
    opening *o = NULL;
    waste_model *m;
    waste_status st;

    if (!out) return waste_fail(err, WASTE_ARG, "waste_model_open: no place for the model");
    *out = NULL;
    if (!path) return waste_fail(err, WASTE_ARG, "waste_model_open: no path");
    st = prepare(&o, path, opt, err);
    if (st) return st;
    m = o->model;
    st = waste_aside_run(waste_container_key(path), open_all, drop, o, opt ? &opt->cancel : NULL,
                         err);
    if (st) return st;
    /* the caller's, and texts that go now */
    memset(&m->options.cancel, 0, sizeof m->options.cancel);
    m->options.usage = m->options.kernels = m->options.cpus = NULL;
    o->model = NULL;
    drop(o);
    *out = m;
    return WASTE_OK;
}

/* In a forked child nothing can be taken apart: the threads that would have to
 * end are the parent's. The memory is shared with it until written. */
void waste_model_close(waste_model *m)
{
    if (!m || m->process != waste_process_id()) return;
    while (waste_keep_drop(m)) continue;
    waste_prefix_close(m->prefix);
    waste_combine_close(m->combine);
    waste_scratch_close(m->scratch);
    waste_cache_close(m->cache);
    waste_banks_close(m->banks);
    waste_weights_close(m->weights);
    waste_tensors_close(m->tensors);
    waste_container_close(m->container);
    waste_pool_release(m->pool);
    waste_lock_release(m->lock);
    if (m->has_turn) pthread_mutex_destroy(&m->turn);
    waste_mem_free(m);
}

void waste_settle(void)
{
    waste_aside_settle(0);
}

const waste_container *waste_model_container(const waste_model *m)
{
    return m->container;
}

int64_t waste_model_context(const waste_model *m)
{
    return m->options.context;
}

waste_status waste_model_here(const waste_model *m, waste_error *err)
{
    if (m->process == waste_process_id()) return WASTE_OK;
    return waste_fail(err, WASTE_BUSY,
                      "%s: this process was forked after the model was opened; open a new "
                      "connection",
                      m->container->manifest->dir);
}
