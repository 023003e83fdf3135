/* atomics.h: atomic operations on addresses, for Python. */
#ifndef UMSH_ATOMICS_H
#define UMSH_ATOMICS_H
#include <stdint.h>

/* cdef begin */
uint32_t umsh_load_acquire(uintptr_t p);
void umsh_store_release(uintptr_t p, uint32_t v);
uint32_t umsh_exchange(uintptr_t p, uint32_t v);
uint32_t umsh_compare_exchange(uintptr_t p, uint32_t expected, uint32_t desired);
uint32_t umsh_fetch_add(uintptr_t p, uint32_t v);
uint64_t umsh_load_acquire64(uintptr_t p);
void umsh_store_release64(uintptr_t p, uint64_t v);
uint64_t umsh_exchange64(uintptr_t p, uint64_t v);
uint64_t umsh_compare_exchange64(uintptr_t p, uint64_t expected, uint64_t desired);
uint64_t umsh_fetch_add64(uintptr_t p, uint64_t v);
void umsh_fence(void);
/* cdef end */

#endif
