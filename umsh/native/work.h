/* work.h: what the CPU does in tests and benchmarks; patterns are those of device/steps.h. */
#ifndef UMSH_WORK_H
#define UMSH_WORK_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
#define UMSH_WRITE_ALONE 0
#define UMSH_WRITE_FLUSH 1
#define UMSH_WRITE_BYPASS 2
#define UMSH_READ_ALONE 0
#define UMSH_READ_INVALIDATE 1
uint32_t umsh_pattern_word(uint32_t seed, uint32_t i);
void umsh_fill(uintptr_t p, size_t nbytes, uint32_t seed, int method);
uint64_t umsh_check(uintptr_t p, size_t nbytes, uint32_t seed, int method);
uint32_t umsh_gather(uintptr_t p, size_t nbytes, uint32_t count, uint32_t seed, uint32_t stride, int method);
int64_t umsh_echo(uintptr_t words, int64_t rounds, int first, int64_t timeout_ns);
int64_t umsh_echo_bare(uintptr_t words, int64_t rounds, int first, int64_t timeout_ns);
int64_t umsh_lock_rounds(uintptr_t lock, uintptr_t counter, int64_t rounds, int algorithm, uint32_t tag,
                         int64_t timeout_ns);
int64_t umsh_lock_rounds_bare(uintptr_t word, uintptr_t counter, int64_t rounds);
int64_t umsh_poll_answer(uintptr_t words, int64_t rounds, uint32_t pollers, int64_t timeout_ns);
/* cdef end */

#endif
