/* Counted heap. Every allocation of the engine passes here: the memory ceiling
 * is checked against this count, and tests make the n-th request fail.
 * Thread-safe. */
#ifndef WASTE_MEM_H
#define WASTE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* NULL when memory is out, when n * size overflows, or when size is 0. */
void *waste_mem_alloc(size_t size);
void *waste_mem_zero(size_t size);
void *waste_mem_array(size_t n, size_t size); /* zeroed */
/* Grows or shrinks; p may be NULL. On failure p is untouched. */
void *waste_mem_resize(void *p, size_t size);
/* `align` is a power of two; memory is not cleared. Released by waste_mem_free. */
void *waste_mem_aligned(size_t align, size_t size);
/* Zeroed, aligned to 64; a large block has pages of its own (plat.h), which the system has
 * back at once. In a heap it would stay with the arena of the thread that asked for it, of
 * no use to others: many threads in turn would hold a multiple of what is counted. Released
 * by waste_mem_free. */
void *waste_mem_pages(size_t size);
char *waste_mem_text(const char *s, size_t bytes); /* copy with a NUL after it */
void waste_mem_free(void *p);                      /* NULL is fine */

/* A large block in pages of its own (plat.h), zeroed, aligned to 4096, counted as
 * a whole although the system gives pages as they are touched. Released with the
 * same size; NULL is fine. */
void *waste_mem_region(size_t size);
void waste_mem_region_free(void *p, size_t size);

uint64_t waste_mem_used(void); /* bytes held by the process now, headers not counted */

/* Tests: the n-th allocation from now on fails (1: the next), and all after it
 * when `stay` is set. 0 turns it off. */
void waste_mem_fail_at(uint64_t n, int stay);

#endif
