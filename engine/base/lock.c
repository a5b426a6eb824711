/* Ownership of directories: see lock.h. flock() on the directory's descriptor:
 * it needs no write permission, no file of its own that could be left behind,
 * and ends with the process whatever becomes of it.
 *
 * Owns the list of what this process has locked, under one mutex. A forked child
 * inherits list, mutex and descriptors, and the lock itself belongs to the open
 * file that both have; so the child closes its copies, which unlocks nothing,
 * and starts with an empty list. The parent unlocks by name: a child that never
 * came here must not keep the lock alive. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/plat.h"
#include "base/process.h"

struct waste_lock {
    waste_lock *next;
    int64_t process;
    uint64_t id[2]; /* device and inode */
    int fd;         /* -1: granted without a lock */
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
    for (l = owned; l; l = l->next)
        if (l->fd >= 0) close(l->fd);
    owned = NULL;
}

/* -1 when there is no way to lock; -2 when somebody else has it. */
static int open_locked(const char *dir)
{
    int fd, rc;

    do fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return -1;
    do rc = flock(fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) return fd;
    rc = errno == EWOULDBLOCK ? -2 : -1;
    close(fd);
    return rc;
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
    l->fd = open_locked(dir);
    if (l->fd == -2) {
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
        if (l->fd >= 0) {
            flock(l->fd, LOCK_UN);
            close(l->fd);
        }
    }
    pthread_mutex_unlock(&gate.mutex);
    if (last) waste_mem_free(l);
}
