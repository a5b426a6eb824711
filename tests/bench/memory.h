/* What memory gives to threads that only read it: the yardstick of decoding. For one
 * thread. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_READERS 64 /* threads at most */

/* Sum of n words, read in order; n is a multiple of 8. */
uint64_t memory_sum(const uint64_t *p, size_t n);

/* GB/s (10^9 bytes) of `threads` that read `bytes` together, a stretch each, several
 * times: the upper quartile, since what else uses the memory only makes it less. The
 * block is in huge pages where the system has them. -1: no memory. Ends
 * the program when a thread cannot be had. */
double memory_speed(int threads, size_t bytes);

#endif
