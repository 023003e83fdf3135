/* litmus.c: the litmus interpreter of device/steps.h compiled for the CPU. */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>
#include "cache.h"
#include "control.h"
#include "litmus.h"
#include "work.h"

#define UMSH_GLOBAL
#define UMSH_SPIN_SCALE 1u
#define SPINS_BUSY 256u   /* polls before the first pause: two agents that run together meet within these */
#define SPINS_PAUSE 4096u /* polls before the first sleep: past them the partner may wait for this very core */
#define SLEEP_NS 50000    /* a sleeper wakes on an idle core or before a spinner; one that yields does neither */
#define LOCK_TIMEOUT_NS 2000000000

typedef uint64_t umsh_u64;

/* Move to another core: a partner that shares this one can never run at the same time. */
static void step_aside(void) {
    cpu_set_t allowed, others;
    int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    others = allowed;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
    sched_setaffinity(0, sizeof allowed, &allowed);
}

static inline void step_relax(umsh_u32 k) {
    struct timespec t = {0, SLEEP_NS};
    if (k < SPINS_BUSY) return;
    if (k < SPINS_PAUSE) umsh_pause();
    else nanosleep(&t, NULL);
    if (k == SPINS_PAUSE) step_aside();
}

static inline umsh_u32 step_load(umsh_u32 *p, umsh_u32 order) {
    switch (order) {
    case UMSH_ORDER_RELAXED: return __atomic_load_n(p, __ATOMIC_RELAXED);
    case UMSH_ORDER_ACQUIRE: return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    case UMSH_ORDER_SEQ_CST: return __atomic_load_n(p, __ATOMIC_SEQ_CST);
    default: return *(volatile umsh_u32 *)p;
    }
}

static inline void step_store(umsh_u32 *p, umsh_u32 v, umsh_u32 order) {
    switch (order) {
    case UMSH_ORDER_RELAXED: __atomic_store_n(p, v, __ATOMIC_RELAXED); break;
    case UMSH_ORDER_RELEASE: __atomic_store_n(p, v, __ATOMIC_RELEASE); break;
    case UMSH_ORDER_SEQ_CST: __atomic_store_n(p, v, __ATOMIC_SEQ_CST); break;
    default: *(volatile umsh_u32 *)p = v;
    }
}

static inline umsh_u64 step_load64(unsigned char *p, umsh_u32 order) {
    umsh_u64 *q = (umsh_u64 *)p;
    if (order == UMSH_ORDER_PLAIN) return *(volatile umsh_u64 *)q;
    if (order == UMSH_ORDER_ACQUIRE) return __atomic_load_n(q, __ATOMIC_ACQUIRE);
    return __atomic_load_n(q, __ATOMIC_RELAXED);
}

static inline void step_store64(unsigned char *p, umsh_u64 v, umsh_u32 order) {
    umsh_u64 *q = (umsh_u64 *)p;
    if (order == UMSH_ORDER_PLAIN) *(volatile umsh_u64 *)q = v;
    else if (order == UMSH_ORDER_RELEASE) __atomic_store_n(q, v, __ATOMIC_RELEASE);
    else __atomic_store_n(q, v, __ATOMIC_RELAXED);
}

static inline void step_store16(unsigned char *p, umsh_u32 v) { *(volatile uint16_t *)p = (uint16_t)v; }

static inline void step_fence(umsh_u32 order) {
    switch (order) {
    case UMSH_ORDER_ACQUIRE: __atomic_thread_fence(__ATOMIC_ACQUIRE); break;
    case UMSH_ORDER_RELEASE: __atomic_thread_fence(__ATOMIC_RELEASE); break;
    case UMSH_ORDER_ACQ_REL: __atomic_thread_fence(__ATOMIC_ACQ_REL); break;
    default: __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
}

static inline umsh_u32 step_add(umsh_u32 *p, umsh_u32 v) {
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

static inline umsh_u32 step_exchange(umsh_u32 *p, umsh_u32 v) {
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

static inline umsh_u32 step_cas(umsh_u32 *p, umsh_u32 expected, umsh_u32 desired) {
    __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

static inline void step_write(umsh_u32 *p, umsh_u32 v, umsh_u32 method) {
    if (method == UMSH_METHOD_WBP) {
        umsh_copy_bypass((uintptr_t)p, (uintptr_t)&v, sizeof v);
        return;
    }
    *(volatile umsh_u32 *)p = v;
    if (method == UMSH_METHOD_WF) umsh_writeback_lines((uintptr_t)p, sizeof v);
}

static inline umsh_u32 step_read(umsh_u32 *p, umsh_u32 method) {
    if (method == UMSH_METHOD_RI) umsh_invalidate_lines((uintptr_t)p, sizeof *p);
    return *(volatile umsh_u32 *)p;
}

static inline void step_fill(unsigned char *p, umsh_u32 nbytes, umsh_u32 seed, umsh_u32 method) {
    umsh_fill((uintptr_t)p, nbytes, seed, (int)method);
}

static inline umsh_u32 step_check(unsigned char *p, umsh_u32 nbytes, umsh_u32 seed, umsh_u32 method) {
    return (umsh_u32)umsh_check((uintptr_t)p, nbytes, seed, (int)method);
}

static inline int step_lock(umsh_u32 *p, umsh_u32 algorithm, umsh_u32 role, umsh_u32 polls, umsh_u32 *stop) {
    (void)role, (void)polls, (void)stop;
    return umsh_lock_acquire((uintptr_t)p, (int)algorithm, umsh_own_tag(), LOCK_TIMEOUT_NS);
}

static inline void step_unlock(umsh_u32 *p, umsh_u32 algorithm, umsh_u32 role) {
    (void)role;
    umsh_lock_release((uintptr_t)p, (int)algorithm, umsh_own_tag());
}

#define UMSH_STEPS_INTERPRETER
#include "../device/steps.h"

uint32_t umsh_steps(uintptr_t program, uintptr_t words, uintptr_t registers, uintptr_t control, uint32_t role,
                    uint32_t instances, uintptr_t settings) {
    return umsh_steps_interpret((const int *)program, (unsigned char *)words, (umsh_u32 *)registers,
                                (unsigned char *)control, role, instances, (const umsh_u32 *)settings);
}
