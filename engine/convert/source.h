/* A checkpoint directory: config.json, and weights by name wherever they lie -
 * in the shards of model.safetensors.index.json or in one model.safetensors. What
 * tensors make a weight, and its values, are weight.h's. One thread at a time. */
#ifndef WASTE_SOURCE_H
#define WASTE_SOURCE_H

#include "convert/weight.h"

typedef struct waste_source waste_source;

/* Reads config.json, the index and the header of every shard. Errors name the
 * file that is missing and the tensor that is not where the index says. */
waste_status waste_source_open(waste_source **out, const char *dir, waste_error *err);

typedef struct waste_source_options {
    /* Directory with NAME.header of shards that were reclaimed, or NULL. Such a shard
     * counts as gone: its tensors are listed, their weights cannot be read. */
    const char *headers;
    /* Shards that are missing, unfinished or malformed are counted, not refused; their
     * tensors are not listed. The first of them is named by waste_source_missing. */
    int partial;
} waste_source_options;

waste_status waste_source_open_with(waste_source **out, const char *dir,
                                    const waste_source_options *opt, waste_error *err);
void waste_source_close(waste_source *s);

const char *waste_source_dir(const waste_source *s);
const waste_json *waste_source_config(const waste_source *s); /* an object, as in the file */

typedef struct waste_source_shard {
    const char *name;      /* a plain file name */
    uint64_t bytes, mtime; /* as they are now, or were when the header was kept */
    int gone;              /* only its header is left */
} waste_source_shard;

size_t waste_source_shards(const waste_source *s);
/* By name. A shard that was left out (partial) has no bytes. */
void waste_source_shard_get(const waste_source *s, size_t i, waste_source_shard *out);
/* The shard that holds t. */
size_t waste_source_shard_of(const waste_source *s, const waste_st_tensor *t);
/* Writes what a later waste_source_open_with needs of shard i, into dir/NAME.header. */
waste_status waste_source_keep_header(const waste_source *s, size_t i, const char *dir,
                                      waste_error *err);
/* With `partial`: how many shards were left out, and in *first why the first was. */
size_t waste_source_missing(const waste_source *s, const char **first);

/* Every tensor of the checkpoint, ascending name (strcmp). */
size_t waste_source_count(const waste_source *s);
const waste_st_tensor *waste_source_at(const waste_source *s, size_t i);
const waste_st_tensor *waste_source_find(const waste_source *s, const char *name);

/* Whether `name` exists, plain or packed. */
int waste_source_has(const waste_source *s, const char *name);
/* The tensor `name` + `end`, or NULL. */
const waste_st_tensor *waste_source_part(const waste_source *s, const char *name, const char *end);

/* What weight.h reads with, and the size of fp8 blocks in it; borrowed. */
waste_weight_reader *waste_source_reader(waste_source *s);
const waste_weight_reader *waste_source_blocks(const waste_source *s);

#endif
