/* What somebody wants of a model: its options, from a row of waste_models or from
 * an argument. Stateless. */
#ifndef EXT_WISH_H
#define EXT_WISH_H

#include "base/json.h"
#include "base/plat.h"
#include "waste.h"

/* Model options, and which of them somebody asked for (bits of `given`). */
enum {
    WASTE_GIVEN_BUDGET = 1,
    WASTE_GIVEN_CONTEXT = 2,
    WASTE_GIVEN_PRECISION = 4,
    WASTE_GIVEN_VERIFY = 8,
    WASTE_GIVEN_DIRECT_IO = 16,
    WASTE_GIVEN_IO_THREADS = 32,
    WASTE_GIVEN_LOOKAHEAD = 64,
    WASTE_GIVEN_EXCLUSIVE = 128,
    WASTE_GIVEN_USAGE = 256,
    WASTE_GIVEN_THREADS = 512,
    WASTE_GIVEN_CPUS = 1024,
    WASTE_GIVEN_KV = 2048,
    WASTE_GIVEN_SEQUENCES = 4096,
    WASTE_GIVEN_ALL = 8191
};

/* Where learned demand is kept: each connection's own affair, nothing to agree
 * on. */
typedef enum waste_usage_kind {
    WASTE_USAGE_OFF,
    WASTE_USAGE_TABLE, /* waste_usage of the connection's database */
    WASTE_USAGE_INSIDE /* usage.waste in the container */,
    WASTE_USAGE_FILE /* at `path` */
} waste_usage_kind;

typedef struct waste_usage_choice {
    waste_usage_kind kind;
    char path[WASTE_PATH_MAX];
} waste_usage_choice;

#define WASTE_CPUS_TEXT 256 /* room for a list of CPUs */

typedef struct waste_wish {
    waste_model_options options; /* but for usage and cpus: they are below */
    waste_usage_choice usage;
    char cpus[WASTE_CPUS_TEXT]; /* empty: none */
    unsigned given;
} waste_wish;

/* Adds the model options in `object` (NULL: none) to the wish. `who` is for
 * messages. options.cpus points into the wish: a copy points it at its own. */
waste_status waste_wish_read(waste_wish *wish, const waste_json *object, const char *who,
                             waste_error *err);
/* The same with waste_plan's own "probe" among them, which *probe gets. */
waste_status waste_wish_read_probe(waste_wish *wish, int *probe, const waste_json *object,
                                   const char *who, waste_error *err);

#endif
