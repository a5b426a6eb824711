/* CPUs of Windows: see cpus.h. Owns no state. A thread runs in one processor group at a
 * time, of up to 64 CPUs; which others the process may use the system says by group
 * alone, so what a thread may use is its own group's part. */
#include <windows.h>

#include <string.h>

#include "base/cpus.h"
#include "base/mem.h"

#define GROUPS (WASTE_CPUS_MOST / 64)

int waste_cpus_can_bind(void)
{
    return 1;
}

int waste_cpus_allowed(waste_cpus *out)
{
    GROUP_AFFINITY a;

    memset(out, 0, sizeof *out);
    if (!GetThreadGroupAffinity(GetCurrentThread(), &a) || a.Group >= GROUPS) return -1;
    out->bit[a.Group] = a.Mask;
    return 0;
}

/* Calls for a list of cores, whose length is not known before. NULL when there is none;
 * waste_mem_free frees it. */
static char *list_cores(DWORD *bytes)
{
    char *list;

    *bytes = 0;
    GetLogicalProcessorInformationEx(RelationProcessorCore, NULL, bytes);
    list = *bytes ? waste_mem_alloc(*bytes) : NULL;
    if (list && GetLogicalProcessorInformationEx(
                    RelationProcessorCore, (SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX *)list, bytes))
        return list;
    waste_mem_free(list);
    return NULL;
}

/* A core counts if one of its CPUs is allowed: `may` NULL, each does. */
static int count_cores(const waste_cpus *may)
{
    DWORD bytes, at = 0;
    char *list = list_cores(&bytes);
    int n = 0;

    while (list && at < bytes) {
        const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX *i = (const void *)(list + at);
        const GROUP_AFFINITY *a = i->Processor.GroupMask;

        n += !may || (a->Group < GROUPS && (may->bit[a->Group] & a->Mask));
        at += i->Size;
    }
    waste_mem_free(list);
    return n;
}

/* With one group the process's own mask is the answer. With several the process may
 * use all of them, from Windows 11 on without asking. */
static const waste_cpus *restriction(waste_cpus *c)
{
    DWORD_PTR mine, all;

    memset(c, 0, sizeof *c);
    if (GetActiveProcessorGroupCount() != 1 ||
        !GetProcessAffinityMask(GetCurrentProcess(), &mine, &all) || !mine)
        return NULL;
    c->bit[0] = mine;
    return c;
}

int waste_cpus_cores(void)
{
    waste_cpus c;
    const int n = count_cores(restriction(&c));

    return n ? n : waste_cpus_processors();
}

int waste_cpus_processors(void)
{
    waste_cpus c;

    return restriction(&c) ? waste_cpus_count(&c)
                           : (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

int waste_cpus_bind(pthread_t thread, const waste_cpus *to)
{
    GROUP_AFFINITY a = {0};
    const HANDLE h = pthread_equal(thread, pthread_self()) ? GetCurrentThread()
                                                           : (HANDLE)pthread_gethandle(thread);

    while (a.Group < GROUPS && !to->bit[a.Group]) a.Group++;
    if (a.Group == GROUPS || !h) return -1;
    a.Mask = to->bit[a.Group];
    return SetThreadGroupAffinity(h, &a, NULL) ? 0 : -1;
}
