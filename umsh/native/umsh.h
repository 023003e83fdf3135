/* umsh.h: flags, locks and regions for native programs; C and C++, nothing to link.
 *
 * The same memory layouts are used by the kernels' headers, so a flag or lock may be shared by
 * Python, native code and device code. What each verb promises is stated in docs/contract.md.
 */
#ifndef UMSH_H
#define UMSH_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes between control words: two 64-byte lines, as prefetchers and some GPUs move pairs. */
/* cdef begin */
#define UMSH_LINE_BYTES 128
/* cdef end */

/* ---- acquire, release ---------------------------------------------------------------- */

static inline uint32_t umsh_acquire(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

static inline void umsh_release(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* ---- bounded waiting ----------------------------------------------------------------- */

#define UMSH_SPINS_PAUSE 256
#define UMSH_SPINS_YIELD 64
#define UMSH_SLEEP_NS_MIN 1000
#define UMSH_SLEEP_NS_MAX 200000

typedef struct {
    int64_t timeout_ns, deadline_ns, sleep_ns;
    uint32_t spins;
} umsh_backoff;

static inline void umsh_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* "yield" is a no-op on most cores */
#endif
}

static inline int64_t umsh_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Negative timeouts count as zero: one attempt. The clock is first read when waiting begins. */
static inline umsh_backoff umsh_backoff_begin(int64_t timeout_ns) {
    umsh_backoff b;
    b.timeout_ns = timeout_ns > 0 ? timeout_ns : 0;
    b.deadline_ns = 0;
    b.sleep_ns = UMSH_SLEEP_NS_MIN;
    b.spins = 0;
    return b;
}

/* Wait a little: pause, later yield, later sleep. Returns 1 once the deadline has passed. */
static inline int umsh_backoff_step(umsh_backoff *b) {
    int64_t now_ns, left_ns;
    struct timespec t;
    uint32_t spin = b->spins++;
    if (spin == 0) {
        if (b->timeout_ns == 0) return 1;
        now_ns = umsh_now_ns();
        b->deadline_ns = b->timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + b->timeout_ns;
    }
    if (spin < UMSH_SPINS_PAUSE) {
        umsh_pause();
        return spin % 16 == 15 && umsh_now_ns() >= b->deadline_ns;
    }
    left_ns = b->deadline_ns - umsh_now_ns();
    if (left_ns <= 0) return 1;
    if (spin < UMSH_SPINS_PAUSE + UMSH_SPINS_YIELD) {
        sched_yield();
        return 0;
    }
    b->spins = UMSH_SPINS_PAUSE + UMSH_SPINS_YIELD; /* stay in this stage, never wrap */
    t.tv_sec = 0;
    t.tv_nsec = (long)(left_ns < b->sleep_ns ? left_ns : b->sleep_ns);
    nanosleep(&t, NULL); /* woken early by a signal: the loop looks again */
    b->sleep_ns = b->sleep_ns * 2 < UMSH_SLEEP_NS_MAX ? b->sleep_ns * 2 : UMSH_SLEEP_NS_MAX;
    return 0;
}

/* ---- flags --------------------------------------------------------------------------- */

/* cdef begin */
#define UMSH_FLAG_BYTES UMSH_LINE_BYTES
#define UMSH_WAIT_REACHED 0
#define UMSH_WAIT_TIMEOUT 1
/* cdef end */

/* Publish `value`: everything written before is visible to whoever sees it. */
static inline void umsh_set(uint32_t *flag, uint32_t value) { umsh_release(flag, value); }

/* Values count upwards, so a waiter never misses a setter that runs ahead; wrapping is safe. */
static inline int umsh_reached(uint32_t seen, uint32_t value) { return (int32_t)(seen - value) >= 0; }

/* UMSH_WAIT_REACHED once the flag has reached `value`, or UMSH_WAIT_TIMEOUT. One load if it has already. */
static inline int umsh_wait(const uint32_t *flag, uint32_t value, int64_t timeout_ns) {
    umsh_backoff b;
    if (umsh_reached(umsh_acquire(flag), value)) return UMSH_WAIT_REACHED;
    b = umsh_backoff_begin(timeout_ns);
    while (!umsh_backoff_step(&b))
        if (umsh_reached(umsh_acquire(flag), value)) return UMSH_WAIT_REACHED;
    return umsh_reached(umsh_acquire(flag), value) ? UMSH_WAIT_REACHED : UMSH_WAIT_TIMEOUT;
}

/* ---- locks --------------------------------------------------------------------------- */

/* cdef begin */
/* A lock is 512 zeroed bytes on a 128-byte boundary and keeps one algorithm for life. */
#define UMSH_LOCK_BYTES (4 * UMSH_LINE_BYTES)
#define UMSH_LOCK_CAS 0      /* compare-exchange of the holder word */
#define UMSH_LOCK_TICKET 1   /* first come, first served; up to UMSH_LOCK_QUEUE waiters keep a place */
#define UMSH_LOCK_PETERSON 2 /* only loads and stores cross between the agents */
#define UMSH_LOCK_DELEGATED 3 /* a CPU thread takes the lock for the GPU: umsh_delegate_serve */

/* Word (uint32_t) indices. One line each for the holder, the CPU, the GPU and what both write. */
#define UMSH_LOCK_HOLDER 0 /* tag of the holder, 0 when free */
#define UMSH_LOCK_NEXT 32  /* ticket: the next ticket to hand out */
#define UMSH_LOCK_SERVING 64
#define UMSH_LOCK_GONE 96 /* ticket: UMSH_LOCK_QUEUE marks of waiters that gave up */
#define UMSH_LOCK_QUEUE 32
#define UMSH_LOCK_CPU_WANTS 32 /* peterson: written by the CPU only */
#define UMSH_LOCK_CPU_SIDE 33  /* peterson: tag of the CPU thread that runs for the CPU */
#define UMSH_LOCK_GPU_WANTS 64
#define UMSH_LOCK_GPU_SIDE 65
#define UMSH_LOCK_TURN 96 /* peterson: the side that goes first when both want: 0 CPU, 1 GPU */
#define UMSH_LOCK_GRANT 97 /* delegated: the odd value of GPU_WANTS that the CPU has granted */

#define UMSH_LOCK_OK 0
#define UMSH_LOCK_TIMEOUT 1
#define UMSH_LOCK_HOLDER_DIED 2
#define UMSH_LOCK_RELOCK 3
#define UMSH_LOCK_NOT_HOLDER 1
#define UMSH_LOCK_UNKNOWN (-EINVAL)

#define UMSH_TAG_GPU 0x80000000u /* tags: a CPU thread's id, or this bit and a GPU-side id */
/* cdef end */

/* This CPU thread's tag. A system call: keep it, but not across fork. */
static inline uint32_t umsh_thread_tag(void) { return (uint32_t)syscall(SYS_gettid); }

#include "umsh_lock.h"

/* Take the lock for `tag`: UMSH_LOCK_OK, _TIMEOUT, _HOLDER_DIED (a CPU holder whose thread is gone; nothing
 * was changed), _RELOCK (this tag has it already) or _UNKNOWN (no such algorithm). */
static inline int umsh_lock(uint32_t *lock, int algorithm, uint32_t tag, int64_t timeout_ns) {
    switch (algorithm) {
    case UMSH_LOCK_CAS: return umsh_lock_cas_(lock, tag, timeout_ns);
    case UMSH_LOCK_TICKET: return umsh_lock_ticket_(lock, tag, timeout_ns);
    case UMSH_LOCK_PETERSON: return umsh_lock_peterson_(lock, tag, timeout_ns);
    case UMSH_LOCK_DELEGATED: return umsh_lock_delegated_(lock, tag, timeout_ns);
    default: return UMSH_LOCK_UNKNOWN;
    }
}

/* Give the lock back: UMSH_LOCK_OK, _NOT_HOLDER (nothing was changed) or _UNKNOWN. */
static inline int umsh_unlock(uint32_t *lock, int algorithm, uint32_t tag) {
    if (algorithm < UMSH_LOCK_CAS || algorithm > UMSH_LOCK_DELEGATED) return UMSH_LOCK_UNKNOWN;
    if (__atomic_load_n(&lock[UMSH_LOCK_HOLDER], __ATOMIC_RELAXED) != tag) return UMSH_LOCK_NOT_HOLDER;
    umsh_release(&lock[UMSH_LOCK_HOLDER], 0);
    if (algorithm == UMSH_LOCK_TICKET) umsh_unlock_ticket_(lock);
    if (algorithm == UMSH_LOCK_PETERSON) umsh_unlock_peterson_(lock, tag);
    if (algorithm == UMSH_LOCK_DELEGATED) umsh_release(&lock[UMSH_LOCK_CPU_SIDE], 0);
    return UMSH_LOCK_OK;
}

/* ---- regions ------------------------------------------------------------------------- */

/* A bound region, as `umsh_region_describe` of the Python module fills it in. publish: call after the CPU
 * wrote [offset, offset + n) and before the GPU is told. refresh: call after the GPU's word was acquired and
 * before the CPU reads. Neither may be called once the region is unbound. */
/* cdef begin */
typedef struct umsh_region umsh_region;
struct umsh_region {
    void *cpu;
    uint64_t device;
    size_t nbytes;
    void (*publish)(const umsh_region *region, size_t offset, size_t n);
    void (*refresh)(const umsh_region *region, size_t offset, size_t n);
};
/* cdef end */

#ifdef __cplusplus
}
#endif
#endif
