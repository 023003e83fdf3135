/* work.c: fill, check, gather, ping-pong, lock rounds and polling on the CPU; every loop has a bound. */
#include "work.h"

#include "../device/steps.h"
#include "cache.h"
#include "umsh.h"

#define BLOCK_WORDS 1024

uint32_t umsh_pattern_word(uint32_t seed, uint32_t i) { return umsh_pattern(seed, i); }

static inline __attribute__((always_inline)) void fill_loop(uint32_t *words, size_t n, uint32_t seed,
                                                            uint32_t first) {
    for (size_t i = 0; i < n; i++)
        words[i] = umsh_pattern(seed, first + (uint32_t)i);
}

static inline __attribute__((always_inline)) uint64_t check_loop(const uint32_t *words, size_t n,
                                                                 uint32_t seed) {
    uint64_t wrong = 0;
    for (size_t at = 0; at < n; at += BLOCK_WORDS) { /* a narrow counter inside, as wide as the words */
        size_t end = n - at < BLOCK_WORDS ? n : at + BLOCK_WORDS;
        uint32_t wrong_block = 0;
        for (size_t i = at; i < end; i++)
            wrong_block += words[i] != umsh_pattern(seed, (uint32_t)i);
        wrong += wrong_block;
    }
    return wrong;
}

/* The pattern must cost less than the memory it fills; SSE2, the base of x86-64, multiplies badly. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void fill_avx2(uint32_t *words, size_t n, uint32_t seed,
                                                      uint32_t first) {
    fill_loop(words, n, seed, first);
}

__attribute__((target("avx2"))) static uint64_t check_avx2(const uint32_t *words, size_t n, uint32_t seed) {
    return check_loop(words, n, seed);
}
#else
#define fill_avx2 fill_loop
#define check_avx2 check_loop
#endif

static int has_avx2(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

static void fill_words(uint32_t *words, size_t n, uint32_t seed, uint32_t first) {
    if (has_avx2())
        fill_avx2(words, n, seed, first);
    else
        fill_loop(words, n, seed, first);
}

/* Write the pattern's nbytes / 4 words by a write method, so that it is ordered before a later release. */
void umsh_fill(uintptr_t p, size_t nbytes, uint32_t seed, int method) {
    size_t words = nbytes / 4;
    if (method != UMSH_WRITE_BYPASS) {
        fill_words((uint32_t *)p, words, seed, 0);
        if (method == UMSH_WRITE_FLUSH) umsh_writeback_lines(p, nbytes);
        return;
    }
    for (size_t at = 0; at < words; at += BLOCK_WORDS) {
        uint32_t block[BLOCK_WORDS];
        size_t n = words - at < BLOCK_WORDS ? words - at : BLOCK_WORDS;
        fill_words(block, n, seed, (uint32_t)at);
        umsh_copy_bypass(p + at * 4, (uintptr_t)block, n * 4);
    }
}

/* Read by a read method; the number of words that differ from the pattern. */
uint64_t umsh_check(uintptr_t p, size_t nbytes, uint32_t seed, int method) {
    const uint32_t *words = (const uint32_t *)p;
    if (method == UMSH_READ_INVALIDATE) umsh_invalidate_lines(p, nbytes);
    return has_avx2() ? check_avx2(words, nbytes / 4, seed) : check_loop(words, nbytes / 4, seed);
}

/* Sum, modulo 2**32, of `count` seeded-random words; access k reads the first word of slot
 * umsh_pattern(seed, k) % (nbytes / stride). stride: bytes, a multiple of 4. 0 when nothing fits. */
uint32_t umsh_gather(uintptr_t p, size_t nbytes, uint32_t count, uint32_t seed, uint32_t stride, int method) {
    uint32_t slots = stride ? (uint32_t)(nbytes / stride) : 0, sum = 0;
    for (uint32_t k = 0; slots && k < count; k++) {
        uintptr_t word = p + (size_t)(umsh_pattern(seed, k) % slots) * stride;
        if (method == UMSH_READ_INVALIDATE) umsh_invalidate_lines(word, 4);
        sum += *(const uint32_t *)word;
    }
    return sum;
}

/* Ping-pong over words[0] (from first to second) and words[32]; returns the rounds completed. */
int64_t umsh_echo(uintptr_t words, int64_t rounds, int first, int64_t timeout_ns) {
    uint32_t *ping = (uint32_t *)words, *pong = ping + UMSH_LINE_BYTES / 4;
    for (int64_t r = 1; r <= rounds; r++) {
        if (first) umsh_set(ping, (uint32_t)r);
        if (umsh_wait(first ? pong : ping, (uint32_t)r, timeout_ns) != UMSH_WAIT_REACHED) return r - 1;
        if (!first) umsh_set(pong, (uint32_t)r);
    }
    return rounds;
}

/* The same as plain C would be written: the yardstick for umsh_echo. */
int64_t umsh_echo_bare(uintptr_t words, int64_t rounds, int first, int64_t timeout_ns) {
    uint32_t *ping = (uint32_t *)words, *pong = ping + UMSH_LINE_BYTES / 4;
    uint32_t *in = first ? pong : ping, *out = first ? ping : pong;
    int64_t deadline_ns = umsh_now_ns() + timeout_ns;
    for (int64_t r = 1; r <= rounds; r++) {
        uint32_t spins = 0;
        if (first) __atomic_store_n(out, (uint32_t)r, __ATOMIC_RELEASE);
        while (__atomic_load_n(in, __ATOMIC_ACQUIRE) != (uint32_t)r)
            if (++spins % 65536 == 0 && umsh_now_ns() > deadline_ns) return r - 1;
        if (!first) __atomic_store_n(out, (uint32_t)r, __ATOMIC_RELEASE);
    }
    return rounds;
}

/* lock; counter += 1, not atomic; unlock. Returns the rounds completed, fewer when a lock was not had in
 * time. */
int64_t umsh_lock_rounds(uintptr_t lock, uintptr_t counter, int64_t rounds, int algorithm, uint32_t tag,
                         int64_t timeout_ns) {
    volatile uint32_t *count = (volatile uint32_t *)counter;
    if (tag == 0) tag = umsh_thread_tag();
    for (int64_t r = 0; r < rounds; r++) {
        if (umsh_lock((uint32_t *)lock, algorithm, tag, timeout_ns) != UMSH_LOCK_OK) return r;
        *count = *count + 1;
        if (umsh_unlock((uint32_t *)lock, algorithm, tag) != UMSH_LOCK_OK) return r;
    }
    return rounds;
}

/* The same for one thread as plain C would be written: the yardstick for an uncontended lock. */
int64_t umsh_lock_rounds_bare(uintptr_t word, uintptr_t counter, int64_t rounds) {
    volatile uint32_t *count = (volatile uint32_t *)counter;
    uint32_t *lock = (uint32_t *)word;
    for (int64_t r = 0; r < rounds; r++) {
        uint32_t free_word = 0;
        if (!__atomic_compare_exchange_n(lock, &free_word, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return r;
        *count = *count + 1;
        __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
    }
    return rounds;
}

/* One of `pollers` threads that each wait for words[0] to reach 1..rounds; the last to see a value answers it
 * in words[32]. words[64] counts arrivals. The other agent runs umsh_echo(first). Returns the rounds
 * completed. */
int64_t umsh_poll_answer(uintptr_t words, int64_t rounds, uint32_t pollers, int64_t timeout_ns) {
    uint32_t *flag = (uint32_t *)words, *answer = flag + UMSH_LINE_BYTES / 4,
             *seen = answer + UMSH_LINE_BYTES / 4;
    for (int64_t r = 1; r <= rounds; r++) {
        if (umsh_wait(flag, (uint32_t)r, timeout_ns) != UMSH_WAIT_REACHED) return r - 1;
        if (__atomic_add_fetch(seen, 1, __ATOMIC_ACQ_REL) == (uint32_t)r * pollers)
            umsh_set(answer, (uint32_t)r);
    }
    return rounds;
}
