/* cache.h: CPU cache maintenance from user space, and copies that go past the caches. */
#ifndef UMSH_CACHE_H
#define UMSH_CACHE_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
typedef struct {
    unsigned line_bytes;
    int has_clflush, has_clflushopt, has_clwb, has_nontemporal; /* x86-64; 0 elsewhere but has_nontemporal */
    const char *writeback, *invalidate, *bypass;                /* the instruction each method uses */
} umsh_cache_facts;

void umsh_cache_describe(umsh_cache_facts *out);
void umsh_writeback_lines(uintptr_t p, size_t n);
void umsh_invalidate_lines(uintptr_t p, size_t n);
void umsh_copy_bypass(uintptr_t dst, uintptr_t src, size_t n);
void umsh_copy(uintptr_t dst, uintptr_t src, size_t n);
/* cdef end */

#endif
