/* What tests ask of the system besides the engine, where Windows has it by other names
 * or not at all. HAS_FORK: what a forked child has of a process is tested. */
#ifndef TEST_PORTABLE_H
#define TEST_PORTABLE_H

#include <sys/stat.h>
#include <unistd.h>

#if defined(_WIN32)

#include <io.h>
#include <string.h>

#define HAS_FORK 0

static inline int open_signals(void)
{
    return 0;
}

static inline char *mkdtemp(char *dir)
{
    return _mktemp(dir) && mkdir(dir) == 0 ? dir : NULL;
}

#define mkdir(path, mode) mkdir(path)

#else

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define HAS_FORK 1

/* How many of two of the host's signals could reach this thread. */
static inline int open_signals(void)
{
    sigset_t set;

    pthread_sigmask(SIG_BLOCK, NULL, &set);
    return !sigismember(&set, SIGINT) + !sigismember(&set, SIGUSR1);
}

#endif

#endif
