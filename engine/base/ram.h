/* How much memory this process may use: what the machine has, and what the
 * control groups above the process allow of it (docs/memory.md). What is in
 * use at the moment does not count, so that the same command plans the same on
 * the same machine. Any thread may call. */
#ifndef WASTE_RAM_H
#define WASTE_RAM_H

#include <stdint.h>

#define WASTE_RAM_UNKNOWN UINT64_MAX

typedef struct waste_ram {
    uint64_t physical; /* bytes, or WASTE_RAM_UNKNOWN */
    uint64_t usable;   /* the smallest of that and of every limit, or WASTE_RAM_UNKNOWN */
    char from[256];    /* whose limit it is: the file's path; empty: the machine's own */
} waste_ram;

/* root: where /proc and /sys are looked for, "" for the real ones (tests have
 * their own), which only Linux has. Never fails: what cannot be read or understood limits nothing. */
void waste_ram_get(waste_ram *out, const char *root);

#endif
