/* The models this process has open: each container once, whatever connection,
 * name or path led to it. Any thread may call; nothing here refers to a
 * connection. */
#ifndef EXT_SHARED_H
#define EXT_SHARED_H

#include "base/plat.h"
#include "waste.h"

/* Where a container is and which edition of it: `id` (device and inode of the
 * directory) finds an open model, `stamp` (inode, size and time of its manifest)
 * tells that what is there now is not what was opened. */
typedef struct waste_place {
    uint64_t id[2];
    uint64_t stamp[3];
} waste_place;

waste_status waste_shared_place(waste_place *out, const char *path, waste_error *err);

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
    WASTE_GIVEN_ALL = 2047
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

typedef struct waste_shared waste_shared;

/* Opens the container, or joins those who have it open; when another thread is
 * opening or closing it, waits for that (`cancel` is asked meanwhile). WASTE_ARG
 * when it is open with options that contradict the wish, WASTE_BUSY when an
 * earlier edition of it is. Every hold needs its release; the last one closes. */
waste_status waste_shared_hold(waste_shared **out, const char *path, const waste_place *place,
                               const waste_wish *wish, const waste_cancel *cancel,
                               waste_error *err);
void waste_shared_release(waste_shared *s);

/* WASTE_ARG naming the first option of the wish that s was not opened with, and
 * how many hold it. */
waste_status waste_shared_agrees(const waste_shared *s, const char *path, const waste_wish *wish,
                                 waste_error *err);
/* WASTE_BUSY in a process that was forked after s was opened: threads and locks
 * of the model are the parent's. All that can be done with it there is release. */
waste_status waste_shared_here(const waste_shared *s, const char *path, waste_error *err);

waste_model *waste_shared_model(const waste_shared *s); /* borrowed */
const waste_model_options *waste_shared_options(const waste_shared *s);
int waste_shared_users(const waste_shared *s); /* holds on it now */

/* An open model as it is at this moment. */
typedef struct waste_shared_view {
    char path[WASTE_PATH_MAX]; /* that opened it */
    uint64_t id[2];
    int users;
    waste_precision precision;
    waste_model_stats stats;
} waste_shared_view;

/* All of the process, opened last first. Free *out with waste_mem_free. */
waste_status waste_shared_views(waste_shared_view **out, size_t *n, waste_error *err);

#endif
