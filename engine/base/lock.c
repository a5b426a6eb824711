/* Ownership of directories: see lock.h.
 *
 * Owns the list of what this process has locked, under one mutex. A forked child
 * inherits list, mutex and descriptors, and the lock itself belongs to the open
 * file that both have; so the child closes its copies, which unlocks nothing,
 * and starts with an empty list. The parent unlocks by name: a child that never
 * came here must not keep the lock alive. */
#include "base/lock.h"

#include <string.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"

struct waste_lock {
    waste_lock *next;
    int64_t process;
    uint64_t id[2];
    intptr_t lock; /* WASTE_DIR_UNLOCKED: granted without */
    int holders;
};

static waste_process_gate gate = WASTE_PROCESS_GATE;
static waste_lock *owned;

/* In a forked child, the parent's entries are closed. Their memory stays: those
 * who hold one there release it here too. */
static void enter(void)
{
    waste_lock *l;

    if (!waste_process_enter(&gate)) return;
    for (l = owned; l; l = l->next) waste_dir_unlock(&l->lock, 1);
    owned = NULL;
}

/* Called with the mutex. */
static waste_status own(waste_lock **out, const char *dir, const uint64_t id[2], waste_error *err)
{
    waste_lock *l;

    for (l = owned; l; l = l->next) {
        if (memcmp(l->id, id, sizeof l->id) != 0) continue;
        l->holders++;
        *out = l;
        return WASTE_OK;
    }
    l = waste_mem_zero(sizeof *l);
    if (!l) return waste_fail(err, WASTE_NOMEM, "out of memory locking %s", dir);
    if (waste_dir_lock(&l->lock, dir, NULL) == WASTE_BUSY) {
        waste_mem_free(l);
        return waste_fail(err, WASTE_BUSY,
                          "%s is owned by another process, which opened it with 'exclusive'", dir);
    }
    memcpy(l->id, id, sizeof l->id);
    l->process = waste_process_id();
    l->holders = 1;
    l->next = owned;
    owned = l;
    *out = l;
    return WASTE_OK;
}

waste_status waste_lock_take(waste_lock **out, const char *dir, waste_error *err)
{
    uint64_t id[2];
    waste_status st = waste_path_identity(dir, id, err);

    *out = NULL;
    if (st) return st;
    enter();
    st = own(out, dir, id, err);
    pthread_mutex_unlock(&gate.mutex);
    return st;
}

void waste_lock_release(waste_lock *l)
{
    waste_lock **at = &owned;
    int last;

    if (!l || l->process != waste_process_id()) return;
    enter();
    last = --l->holders == 0;
    if (last) {
        while (*at != l) at = &(*at)->next;
        *at = l->next;
        waste_dir_unlock(&l->lock, 0);
    }
    pthread_mutex_unlock(&gate.mutex);
    if (last) waste_mem_free(l);
}
