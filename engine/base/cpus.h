/* Sets of CPUs: as text, and what the system has and allows. cpus_posix.c
 * and cpus_win.c ask the system. Any thread. */
#ifndef WASTE_CPUS_H
#define WASTE_CPUS_H

#include <pthread.h>

#include "base/error.h"

#define WASTE_CPUS_MOST 1024 /* CPU numbers are below */

/* One bit each. On Windows CPU i of processor group g has number 64 g + i. */
typedef struct waste_cpus {
    uint64_t bit[WASTE_CPUS_MOST / 64];
} waste_cpus;

/* Numbers and ranges: "0-5,8", blanks around , and - allowed. WASTE_ARG names the
 * option `cpus`; WASTE_UNSUPPORTED where threads cannot be bound. */
waste_status waste_cpus_parse(waste_cpus *out, const char *text, waste_error *err);
/* The same of text that the system wrote; 0 on success. */
int waste_cpus_read(waste_cpus *out, const char *text);
int waste_cpus_has(const waste_cpus *c, int cpu);
int waste_cpus_count(const waste_cpus *c); /* NULL has none */
/* CPU number i of a set that is not empty, round and round. */
int waste_cpus_pick(const waste_cpus *c, int i);

int waste_cpus_can_bind(void); /* whether threads can be bound to CPUs at all */
/* CPUs that the calling thread may use; not 0 where the system does not say. */
int waste_cpus_allowed(waste_cpus *out);
/* Physical cores that the process may use, fewer in a control group with less CPU time;
 * below 1 when the system does not say. */
int waste_cpus_cores(void);
/* The same of what the system calls processors, and without control groups. */
int waste_cpus_processors(void);
/* 0 when the thread runs on these alone from now on. */
int waste_cpus_bind(pthread_t thread, const waste_cpus *to);

#endif
