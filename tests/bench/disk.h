/* What a disk gives to random reads of whole expert records, past the page cache:
 * the yardstick of streaming. For one thread. */
#ifndef BENCH_DISK_H
#define BENCH_DISK_H

#include <stddef.h>

#define DISK_READERS 8 /* threads at most */

typedef struct bank_file bank_file;

/* Zero-initialised is empty. */
typedef struct disk {
    bank_file *bank;
    int n_banks;
    int buffered;  /* some file could not be read past the page cache */
    size_t record; /* bytes of a read, a multiple of 4096 */
} disk;

/* A file of `records` records of `record` bytes, the same for all files. 0, or an
 * errno. */
int disk_add(disk *d, const char *path, long records, size_t record);
/* GB/s (10^9 bytes) of n <= DISK_READERS threads that read records drawn at random,
 * never the same series twice, for so long; -1 with errno when a read failed. There
 * is at least one file. */
double disk_speed(const disk *d, int n, double seconds);
void disk_close(disk *d);

#endif
