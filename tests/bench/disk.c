/* The yardstick: see disk.h. A call runs its own threads and joins them. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define READ_ALIGN 4096

struct bank_file {
    int fd;
    long records;
};

typedef struct reader {
    const disk *d;
    uint64_t seed, bytes;
    double until;
    int error;
} reader;

void disk_close(disk *d)
{
    int i;

    for (i = 0; i < d->n_banks; i++) close(d->bank[i].fd);
    free(d->bank);
}

static int open_past_cache(const char *path, int *buffered)
{
    int fd = -1;

#ifdef O_DIRECT
    void *probe = NULL;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    /* some file systems take the flag and refuse the read */
    if (fd >= 0 && !posix_memalign(&probe, READ_ALIGN, READ_ALIGN) &&
        pread(fd, probe, READ_ALIGN, 0) != READ_ALIGN) {
        close(fd);
        fd = -1;
    }
    free(probe);
#endif
    if (fd >= 0) return fd;
    *buffered = 1;
    fd = open(path, O_RDONLY | O_CLOEXEC);
#ifdef POSIX_FADV_RANDOM
    if (fd >= 0) posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#endif
    return fd;
}

int disk_add(disk *d, const char *path, long records, size_t record)
{
    bank_file *grown = realloc(d->bank, ((size_t)d->n_banks + 1) * sizeof *grown);
    int fd;

    if (!grown) return ENOMEM;
    d->bank = grown;
    fd = open_past_cache(path, &d->buffered);
    if (fd < 0) return errno;
    d->bank[d->n_banks].fd = fd;
    d->bank[d->n_banks++].records = records;
    d->record = record;
    return 0;
}

static double disk_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *read_records(void *arg)
{
    reader *r = arg;
    const disk *d = r->d;
    void *to = NULL;

    if (posix_memalign(&to, READ_ALIGN, d->record)) {
        r->error = ENOMEM;
        return NULL;
    }
    while (disk_clock() < r->until && !r->error) {
        const bank_file *bank;
        size_t at = 0;
        uint64_t x;

        r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
        x = r->seed >> 33;
        bank = &d->bank[x % (uint64_t)d->n_banks];
        x = x / (uint64_t)d->n_banks % (uint64_t)bank->records;
        while (at < d->record) {
            ssize_t n =
                pread(bank->fd, (char *)to + at, d->record - at, (off_t)(x * d->record + at));

            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
                r->error = n < 0 ? errno : EIO;
                break;
            }
            at += (size_t)n;
        }
        if (!r->error) r->bytes += d->record;
    }
    free(to);
    return NULL;
}

double disk_speed(const disk *d, int n, double seconds)
{
    static uint64_t runs;
    pthread_t thread[DISK_READERS];
    reader r[DISK_READERS];
    double start = disk_clock();
    uint64_t bytes = 0;
    int i, started = 0, error = 0;

    memset(r, 0, sizeof r);
    for (i = 0; i < n && !error; i++) {
        r[i].d = d;
        r[i].seed = ++runs * 0x9E3779B97F4A7C15u;
        r[i].until = start + seconds;
        error = pthread_create(&thread[i], NULL, read_records, &r[i]);
        started += !error;
    }
    for (i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        bytes += r[i].bytes;
        if (r[i].error) error = r[i].error;
    }
    errno = error;
    return error ? -1 : (double)bytes * 1e-9 / (disk_clock() - start);
}
