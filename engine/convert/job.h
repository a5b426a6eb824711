/* What a conversion is of, as text: equal for equal sources and options, and for
 * nothing else. It decides whether unfinished work can be gone on with. */
#ifndef WASTE_JOB_H
#define WASTE_JOB_H

#include "base/buf.h"
#include "convert/files.h"
#include "convert/settings.h"
#include "convert/source.h"

typedef struct waste_job_options {
    int trunk_bits;
    const char *experts, *effort; /* as named in waste_convert_options */
    const char *importance;       /* path, or NULL: its content counts */
} waste_job_options;

/* Appends the text, JSON. Sizes and times of shards count; threads, the place of the
 * target and which layers are asked for do not. */
waste_status waste_job_write(waste_buf *out, const waste_source *s, const waste_settings *c,
                             const waste_files *f, const waste_job_options *o, waste_error *err);

/* "1,2" or "3-5,7": marks in[layer] for layers [first, end). WASTE_ARG says what is
 * wrong. NULL: all. Returns how many there are in *n. */
waste_status waste_job_layers(const char *text, int first, int end,
                              unsigned char in[WASTE_MAX_LAYERS], int *n, waste_error *err);

#endif
