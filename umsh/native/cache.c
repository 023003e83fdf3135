/* cache.c: what both architectures share; the instructions are in cache_x86.h and cache_arm.h. */
#include "cache.h"

#include <string.h>

#if defined(__x86_64__)
#include "cache_x86.h"
#elif defined(__aarch64__)
#include "cache_arm.h"
#else
#error "umsh has cache maintenance for x86-64 and aarch64 only"
#endif

/* Write-then-flush: what was written reaches memory; it is ordered before later stores. */
void umsh_writeback_lines(uintptr_t p, size_t n) {
    uintptr_t line = cache_line_bytes();
    if (n == 0) return;
    writeback_begin();
    writeback_range(p & ~(line - 1), p + n, line);
    writeback_end();
}

/* Read-after-invalidate. User space has no pure invalidate: dirty lines are written back first, so the reader
 * must not have written to them. Call it after acquiring and right before reading: prefetch may refill. */
void umsh_invalidate_lines(uintptr_t p, size_t n) {
    uintptr_t line = cache_line_bytes();
    if (n == 0) return;
    invalidate_range(p & ~(line - 1), p + n, line);
    invalidate_end();
}

/* Write-bypass: unaligned ends are written through the cache and then written back. */
void umsh_copy_bypass(uintptr_t dst, uintptr_t src, size_t n) {
    size_t head = -dst & (BYPASS_BYTES - 1), middle;
    if (n < head + BYPASS_BYTES) {
        memcpy((void *)dst, (const void *)src, n);
        umsh_writeback_lines(dst, n);
        return;
    }
    middle = (n - head) & ~(size_t)(BYPASS_BYTES - 1);
    if (head) {
        memcpy((void *)dst, (const void *)src, head);
        umsh_writeback_lines(dst, head);
    }
    bypass_range(dst + head, src + head, middle);
    bypass_end();
    if (head + middle < n) {
        memcpy((void *)(dst + head + middle), (const void *)(src + head + middle), n - head - middle);
        umsh_writeback_lines(dst + head + middle, n - head - middle);
    }
}

void umsh_copy(uintptr_t dst, uintptr_t src, size_t n) { memcpy((void *)dst, (const void *)src, n); }
