/* What the public handles are made of. For waste.c, container.c and generate.c;
 * the layers below take the parts they need, never these. */
#ifndef WASTE_INTERNAL_H
#define WASTE_INTERNAL_H

#include <pthread.h>

#include "base/lock.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/plan.h"
#include "store/bank.h"
#include "store/cache.h"
#include "store/tensors.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct waste_weights; /* model/weights.h */
struct waste_scratch; /* model/scratch.h */
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
    waste_plan plan;
    /* One step at a time: whoever has set `busy` owns scratch. */
    pthread_mutex_t turn;   /* guards what follows; never held while computing */
    pthread_cond_t idle;    /* busy became 0 */
    int has_turn, has_idle; /* initialised */
    int busy;
    struct waste_scratch *scratch;
    waste_model_stats stats;
    uint64_t step_began; /* clock; 0: no step runs */
    /* of all sequences and generations, against plan.sequences and plan.generation */
    uint64_t sequence_bytes, generation_bytes;
    waste_resting *resting; /* resting sequences, latest first (keep.c) */
    int has_identity;
    waste_identity identity;
    /* constant from opening on */
    int64_t process;  /* that opened it: a forked child has neither threads nor turn */
    waste_lock *lock; /* options.exclusive */
    uint64_t opened_ns, faults;
};

/* given, or the defaults, into *o; refuses what is out of range (waste.c). */
waste_status waste_model_options_check(waste_model_options *o, const waste_model_options *given,
                                       waste_error *err);
/* What opening reserves, from the handles of its tensors: for opening itself and
 * for the report (waste.c). After WASTE_RAM_BUDGET for a budget below the floor
 * all sizes and the floor are there. */
waste_status waste_model_plan(waste_plan *p, const waste_container *c,
                              const struct waste_weights *w, const waste_model_options *o,
                              const waste_ram *ram, waste_error *err);
/* A generation's buffers are within the ceiling too: counted before they are
 * allocated, given back when they are gone (waste.c). */
waste_status waste_model_take_generation(waste_model *m, uint64_t bytes, waste_error *err);
void waste_model_give_generation(waste_model *m, uint64_t bytes);

/* Counts bytes of sequences. Resting ones make room (waste.c). */
waste_status waste_model_take_sequence(waste_model *m, uint64_t bytes, waste_error *err);
void waste_model_give_sequence(waste_model *m, uint64_t bytes);
/* Drops the sequence that has rested longest; 0 when none rests (keep.c). */
int waste_keep_drop(waste_model *m);

/* WASTE_BUSY in a process forked after the model was opened (waste.c). */
waste_status waste_model_here(const waste_model *m, waste_error *err);
/* Starts warming the cache from a hotlist file, if there is one (stats.c). */
void waste_stats_warm(waste_model *m, const char *path);

#endif
