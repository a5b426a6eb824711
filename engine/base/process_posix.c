/* POSIX process facts: see process.h. Owns no state. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/process.h"

int64_t waste_process_id(void)
{
    return (int64_t)getpid();
}

uint64_t waste_process_faults(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) == 0 && u.ru_majflt > 0 ? (uint64_t)u.ru_majflt : 0;
}

void waste_process_stay_loaded(void)
{
    static const char in_it;
    Dl_info self;

    if (dladdr(&in_it, &self) && self.dli_fname) dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE);
}

int waste_process_thread(pthread_t *out, size_t stack, void *(*run)(void *), void *ctx)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);

    if (rc) return rc;
    if (stack) (void)pthread_attr_setstacksize(&attr, stack);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(out, &attr, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}
