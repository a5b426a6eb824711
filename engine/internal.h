/* What the public handles are made of. For waste.c, container.c and generate.c;
 * the layers below take the parts they need, never these. */
#ifndef WASTE_INTERNAL_H
#define WASTE_INTERNAL_H

#include <pthread.h>

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
    uint64_t sequence_bytes; /* of all sequences, against plan.sequences */
};

#endif
