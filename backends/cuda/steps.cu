// steps.cu: the litmus interpreter of steps.h compiled for CUDA; one thread runs one role.
#include "umsh.cuh"

#define UMSH_FUNCTION static __device__
#include "steps.h"

#define UMSH_GLOBAL
#define UMSH_SPIN_SCALE 1u
#define CHECK_LOADS 32
#define UMSH_POLL_NS 1000u // about one load of a mapped word: turns a bound in polls into one in time

// Plain is a weak access: it may be served by the L1, as a kernel's ordinary load may.
UMSH_FUNCTION umsh_u32 step_load_plain(const umsh_u32 *p) {
    umsh_u32 v;
    asm volatile("ld.weak.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

UMSH_FUNCTION void step_store_plain(umsh_u32 *p, umsh_u32 v) {
    asm volatile("st.weak.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

UMSH_FUNCTION umsh_u32 step_load(umsh_u32 *p, umsh_u32 order) {
    switch (order) {
    case UMSH_ORDER_RELAXED: return umsh_load_relaxed(p);
    case UMSH_ORDER_ACQUIRE: return umsh_acquire(p);
    case UMSH_ORDER_SEQ_CST: umsh_fence(); return umsh_acquire(p);
    default: return step_load_plain(p);
    }
}

UMSH_FUNCTION void step_store(umsh_u32 *p, umsh_u32 v, umsh_u32 order) {
    switch (order) {
    case UMSH_ORDER_RELAXED: umsh_store_relaxed(p, v); break;
    case UMSH_ORDER_RELEASE: umsh_release(p, v); break;
    case UMSH_ORDER_SEQ_CST: umsh_fence(); umsh_store_relaxed(p, v); break;
    default: step_store_plain(p, v);
    }
}

UMSH_FUNCTION umsh_u64 step_load64(unsigned char *p, umsh_u32 order) {
    umsh_u64 v, *word = (umsh_u64 *)p;
    if (order == UMSH_ORDER_ACQUIRE) return umsh_acquire64(word);
    if (order == UMSH_ORDER_RELAXED) return umsh_load_relaxed64(word);
    asm volatile("ld.weak.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

UMSH_FUNCTION void step_store64(unsigned char *p, umsh_u64 v, umsh_u32 order) {
    if (order == UMSH_ORDER_RELEASE)
        umsh_release64((umsh_u64 *)p, v);
    else if (order == UMSH_ORDER_RELAXED)
        umsh_store_relaxed64((umsh_u64 *)p, v);
    else
        asm volatile("st.weak.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

UMSH_FUNCTION void step_store16(unsigned char *p, umsh_u32 v) {
    asm volatile("st.weak.u16 [%0], %1;" ::"l"(p), "h"((unsigned short)v) : "memory");
}

// PTX has no fence weaker than acquire-release that every supported architecture takes.
UMSH_FUNCTION void step_fence(umsh_u32 order) {
    if (order == UMSH_ORDER_ACQUIRE || order == UMSH_ORDER_RELEASE || order == UMSH_ORDER_ACQ_REL)
        umsh_fence_acq_rel();
    else
        umsh_fence();
}

UMSH_FUNCTION umsh_u32 step_add(umsh_u32 *p, umsh_u32 v) {
    umsh_fence();
    return umsh_fetch_add(p, v);
}

UMSH_FUNCTION umsh_u32 step_exchange(umsh_u32 *p, umsh_u32 v) {
    umsh_fence();
    return umsh_exchange(p, v);
}

UMSH_FUNCTION umsh_u32 step_cas(umsh_u32 *p, umsh_u32 expected, umsh_u32 desired) {
    umsh_fence();
    return umsh_compare_exchange(p, expected, desired);
}

UMSH_FUNCTION void step_write_word(umsh_u32 *p, umsh_u32 v, umsh_u32 method) {
    if (method == UMSH_METHOD_WBP)
        umsh_store_relaxed(p, v);
    else
        step_store_plain(p, v);
}

UMSH_FUNCTION umsh_u32 step_read_word(umsh_u32 *p, umsh_u32 method) {
    return method == UMSH_METHOD_RB ? umsh_load_relaxed(p) : step_load_plain(p);
}

UMSH_FUNCTION void step_write(umsh_u32 *p, umsh_u32 v, umsh_u32 method) {
    step_write_word(p, v, method);
    if (method == UMSH_METHOD_WF) umsh_publish();
}

UMSH_FUNCTION umsh_u32 step_read(umsh_u32 *p, umsh_u32 method) {
    if (method == UMSH_METHOD_RI) umsh_refresh();
    return step_read_word(p, method);
}

UMSH_FUNCTION void step_fill(unsigned char *p, umsh_u32 nbytes, umsh_u32 seed, umsh_u32 method) {
    umsh_u32 *words = (umsh_u32 *)p;
#pragma unroll 8
    for (umsh_u32 i = 0; i < nbytes / 4; i++) step_write_word(&words[i], umsh_pattern(seed, i), method);
    if (method == UMSH_METHOD_WF) umsh_publish();
}

// Two words a load and many loads in flight: one thread checks a payload that lies across the link.
UMSH_FUNCTION umsh_u32 step_check(unsigned char *p, umsh_u32 nbytes, umsh_u32 seed, umsh_u32 method) {
    umsh_u32 wrong = 0, order = method == UMSH_METHOD_RB ? UMSH_ORDER_RELAXED : UMSH_ORDER_PLAIN;
    if (method == UMSH_METHOD_RI) umsh_refresh();
    for (umsh_u32 at = 0; at < nbytes; at += 8 * CHECK_LOADS) {
        umsh_u64 seen[CHECK_LOADS];
#pragma unroll
        for (umsh_u32 k = 0; k < CHECK_LOADS; k++)
            seen[k] = at + 8 * k < nbytes ? step_load64(p + at + 8 * k, order) : 0;
#pragma unroll
        for (umsh_u32 k = 0; k < CHECK_LOADS; k++) {
            umsh_u32 i = at / 4 + 2 * k;
            if (at + 8 * k >= nbytes) continue;
            wrong += (umsh_u32)seen[k] != umsh_pattern(seed, i);
            wrong += (umsh_u32)(seen[k] >> 32) != umsh_pattern(seed, i + 1);
        }
    }
    return wrong;
}

UMSH_FUNCTION int step_lock(umsh_u32 *p, umsh_u32 algorithm, umsh_u32 role, umsh_u32 polls, umsh_u32 *stop) {
    return umsh_lock(p, (int)algorithm, UMSH_TAG_GPU | (role + 1), (umsh_u64)polls * UMSH_POLL_NS, stop);
}

UMSH_FUNCTION void step_unlock(umsh_u32 *p, umsh_u32 algorithm, umsh_u32 role) {
    umsh_unlock(p, (int)algorithm, UMSH_TAG_GPU | (role + 1));
}

UMSH_FUNCTION void step_relax(umsh_u32 k) {}

#define UMSH_STEPS_INTERPRETER
#include "steps.h"

// Arguments in the order of StepRun; `done` receives the instances completed.
extern "C" __global__ void umsh_steps(const int *program, unsigned char *words, umsh_u32 *registers,
                                      unsigned char *control, umsh_u32 role, umsh_u32 instances,
                                      const umsh_u32 *settings, umsh_u64 *done) {
    umsh_release64(done, umsh_steps_interpret(program, words, registers, control, role, instances, settings));
}
