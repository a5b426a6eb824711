/* The models this process has open: each container once, whatever connection,
 * name or path led to it. Any thread may call; nothing here refers to a
 * connection. */
#ifndef EXT_SHARED_H
#define EXT_SHARED_H

#include "base/plat.h"
#include "ext_wish.h"
#include "waste.h"

/* Where a container is and which edition of it: `id` (device and inode of the
 * directory) finds an open model, `stamp` (inode, size and time of its manifest)
 * tells that what is there now is not what was opened. */
typedef struct waste_place {
    uint64_t id[2];
    uint64_t stamp[3];
} waste_place;

waste_status waste_shared_place(waste_place *out, const char *path, waste_error *err);

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
    waste_kv kv;
    waste_model_stats stats;
} waste_shared_view;

/* All of the process, opened last first. Free *out with waste_mem_free. */
waste_status waste_shared_views(waste_shared_view **out, size_t *n, waste_error *err);

#endif
