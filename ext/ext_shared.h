/* The models this process has open: each container once, whatever connection,
 * name or path led to it. Any thread may call; nothing here refers to a
 * connection. */
#ifndef EXT_SHARED_H
#define EXT_SHARED_H

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
    WASTE_GIVEN_VERIFY = 8
};

typedef struct waste_wish {
    waste_model_options options;
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

/* WASTE_ARG naming the first option of the wish that s was not opened with. */
waste_status waste_shared_agrees(const waste_shared *s, const char *path, const waste_wish *wish,
                                 waste_error *err);

waste_model *waste_shared_model(const waste_shared *s); /* borrowed */
const waste_model_options *waste_shared_options(const waste_shared *s);
int waste_shared_users(const waste_shared *s); /* holds on it now */

#endif
