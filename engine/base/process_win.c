/* Windows process facts: see process.h. Owns no state. Nothing forks there, and a process
 * gets no signals that a thread of ours could take. */
#include <windows.h>

#include "base/process.h"

int64_t waste_process_id(void)
{
    return (int64_t)GetCurrentProcessId();
}

/* The system counts those that needed the disk together with all others. */
uint64_t waste_process_faults(void)
{
    return 0;
}

void waste_process_stay_loaded(void)
{
    static const wchar_t in_it;
    HMODULE self;

    GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                       &in_it, &self);
}

int waste_process_thread(pthread_t *out, size_t stack, void *(*run)(void *), void *ctx)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);

    if (rc) return rc;
    if (stack) (void)pthread_attr_setstacksize(&attr, stack);
    rc = pthread_create(out, &attr, run, ctx);
    pthread_attr_destroy(&attr);
    return rc;
}
