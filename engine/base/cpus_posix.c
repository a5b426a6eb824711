/* CPUs of Linux and macOS: see cpus.h. Owns no state. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/cpus.h"

static int online(void)
{
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

#if defined(__linux__)

int waste_cpus_can_bind(void)
{
    return 1;
}

int waste_cpus_allowed(waste_cpus *out)
{
    cpu_set_t set;
    int i;

    memset(out, 0, sizeof *out);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return -1;
    for (i = 0; i < CPU_SETSIZE && i < WASTE_CPUS_MOST; i++)
        if (CPU_ISSET(i, &set)) out->bit[i / 64] |= (uint64_t)1 << i % 64;
    return 0;
}

/* Whether a CPU with a lower number, which is allowed too, is the same core. */
static int is_sibling(const waste_cpus *may, int cpu)
{
    char path[96], text[256];
    waste_cpus same;
    FILE *f;
    int i, ok;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    f = fopen(path, "re");
    if (!f) return 0;
    ok = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    if (!ok) return 0;
    text[strcspn(text, "\n")] = 0;
    if (waste_cpus_read(&same, text)) return 0;
    for (i = 0; i < cpu; i++)
        if (waste_cpus_has(&same, i) && waste_cpus_has(may, i)) return 1;
    return 0;
}

/* CPUs' worth of time that a container's control group lets it have. */
static int quota(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    long long time, period;
    int n = INT_MAX;

    if (!f) return n;
    if (fscanf(f, "%lld %lld", &time, &period) == 2 && time > 0 && period > 0 && time / period < n)
        n = (int)((time + period - 1) / period);
    fclose(f);
    return n;
}

int waste_cpus_cores(void)
{
    const int most = quota();
    waste_cpus may;
    int n = 0, i;

    if (waste_cpus_allowed(&may)) return online();
    for (i = 0; i < WASTE_CPUS_MOST; i++)
        if (waste_cpus_has(&may, i) && !is_sibling(&may, i)) n++;
    return n < most ? n : most;
}

int waste_cpus_bind(pthread_t thread, const waste_cpus *to)
{
    cpu_set_t set;
    int i;

    CPU_ZERO(&set);
    for (i = 0; i < CPU_SETSIZE && i < WASTE_CPUS_MOST; i++)
        if (waste_cpus_has(to, i)) CPU_SET(i, &set);
    return pthread_setaffinity_np(thread, sizeof set, &set);
}

int waste_cpus_processors(void)
{
    waste_cpus may;

    return waste_cpus_allowed(&may) ? online() : waste_cpus_count(&may);
}

#else

int waste_cpus_can_bind(void)
{
    return 0;
}

int waste_cpus_allowed(waste_cpus *out)
{
    memset(out, 0, sizeof *out);
    return -1;
}

int waste_cpus_cores(void)
{
#if defined(__APPLE__)
    int n = 0;
    size_t bytes = sizeof n;

    if (sysctlbyname("hw.physicalcpu", &n, &bytes, NULL, 0) == 0 && n > 0) return n;
#endif
    return online();
}

int waste_cpus_processors(void)
{
    return online();
}

int waste_cpus_bind(pthread_t thread, const waste_cpus *to)
{
    (void)thread;
    (void)to;
    return -1;
}

#endif
