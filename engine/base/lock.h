/* Advisory ownership of a directory: of all processes that ask, one at a time
 * gets it. Within a process it is shared and counted. Nothing is written, so a
 * read-only directory can be owned as well.
 *
 * Never waited for. Only another owner makes it fail: where locking is not
 * possible (a file system without locks, no permission) it is granted. A forked
 * child owns nothing. Any thread may call. */
#ifndef WASTE_LOCK_H
#define WASTE_LOCK_H

#include "base/error.h"

typedef struct waste_lock waste_lock;

/* WASTE_BUSY, naming the directory, when another process owns it. */
waste_status waste_lock_take(waste_lock **out, const char *dir, waste_error *err);
void waste_lock_release(waste_lock *l); /* NULL is fine */

#endif
