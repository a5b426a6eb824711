/* What the public handles are made of. For the files beside it; the layers below take
 * the parts they need, never these. */
#ifndef WASTE_INTERNAL_H
#define WASTE_INTERNAL_H

#include <pthread.h>

#include "base/lock.h"
#include "base/pool.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/plan.h"
#include "store/bank.h"
#include "store/cache.h"
#include "store/tensors.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct waste_weights;                       /* model/weights.h */
struct waste_scratch;                       /* model/scratch.h */
typedef struct waste_resting waste_resting; /* keep.c */

struct waste_container {
    waste_manifest *manifest;
    waste_config config;
    waste_tokenizer *tokenizer; /* NULL: none */
    waste_chat *chat;
    waste_info info;
};

struct waste_model {
    waste_container *container;
    waste_model_options options; /* with defaults filled in */
    waste_tensors *tensors;
    struct waste_weights *weights;
    waste_banks *banks; /* NULL without experts */
    waste_cache *cache;
    waste_kernels kernels;
    waste_pool *pool;
    int threads;   /* of it, and lanes of scratch */
    int64_t least; /* waste_pass.least; tests set it */
    waste_plan plan;
    pthread_mutex_t turn; /* guards what follows; never held while computing */
    int has_turn;         /* initialised */
    struct waste_combine *combine;
    struct waste_scratch *scratch; /* of whoever runs a pass */
    waste_model_stats stats;
    uint64_t step_began; /* clock; 0: no step runs */
    /* of all sequences and generations, against plan.sequences and plan.generation */
    uint64_t sequence_bytes, generation_bytes;
    waste_resting *resting;      /* resting sequences, latest first (keep.c) */
    struct waste_prefix *prefix; /* prompts seen lately */
    int has_identity;
    waste_identity identity;
    /* constant from opening on */
    int64_t process;  /* that opened it: a forked child has neither threads nor turn */
    waste_lock *lock; /* options.exclusive */
    uint64_t opened_ns, faults;
};

/* Fills a zeroed container, on the calling thread (container.c). */
waste_status waste_container_read(waste_container *c, const char *path, waste_error *err);
/* What reads of the container at `path` are left behind under (base/aside.h); 0 when
 * there is nothing at path (container.c). */
uint64_t waste_container_key(const char *path);

/* given, or the defaults, into *o; refuses what is out of range (open.c). */
waste_status waste_model_options_check(waste_model_options *o, const waste_model_options *given,
                                       waste_error *err);
/* Threads of a model opened with these options now. The list of CPUs, which NULL
 * stands for if there is none, goes to *list (open.c). */
waste_status waste_model_threads(int *threads, const waste_cpus **cpus, waste_cpus *list,
                                 const waste_model_options *o, waste_error *err);
/* What opening reserves, from the handles of its tensors: for opening itself and
 * for the report (open.c). threads: that compute. After WASTE_RAM_BUDGET for
 * a budget below the floor all sizes and the floor are there. */
waste_status waste_model_plan(waste_plan *p, const waste_container *c,
                              const struct waste_weights *w, const waste_model_options *o,
                              int threads, const waste_ram *ram, waste_error *err);
/* A generation's buffers are within the ceiling too: counted before they are
 * allocated, given back when they are gone (waste.c). */
waste_status waste_model_take_generation(waste_model *m, uint64_t bytes, waste_error *err);
void waste_model_give_generation(waste_model *m, uint64_t bytes);

/* Counts bytes of sequences. Resting ones make room (waste.c). */
waste_status waste_model_take_sequence(waste_model *m, uint64_t bytes, waste_error *err);
void waste_model_give_sequence(waste_model *m, uint64_t bytes);
/* Room in s for that many positions, within the budget; rows after the first that
 * need it find it done (waste.c). */
waste_status waste_model_reserve(waste_seq *s, int64_t positions, waste_error *err);
/* Drops the sequence that has rested longest; 0 when none rests (keep.c). */
int waste_keep_drop(waste_model *m);

/* Bytes that sequences may still take (waste.c). */
uint64_t waste_model_spare(waste_model *m);

/* Beginnings of prompts rest as well, as many as this, and never in the place of what
 * others left (keep.c). */
#define WASTE_KEEP_PREFIXES 32
/* Keeps a copy of s, if there is room; ids made it. */
void waste_keep_prefix(const waste_seq *s, const int32_t *ids);
/* A copy of the longest resting sequence whose tokens begin ids[0..n), or NULL. */
waste_seq *waste_keep_fork(waste_model *m, const int32_t *ids, size_t n);
size_t waste_keep_prefixes(const waste_model *m); /* how many; with the lock held */

/* WASTE_BUSY in a process forked after the model was opened (open.c). */
waste_status waste_model_here(const waste_model *m, waste_error *err);
/* Starts warming the cache from a hotlist file, if there is one (stats.c). */
void waste_stats_warm(waste_model *m, const char *path);

#endif
