// The litmus interpreter of steps.h compiled for the device: one work-item runs one role.
#include "steps.h"
#include "umsh.clh"

#define UMSH_GLOBAL __global
#define UMSH_SPIN_SCALE 8192u // a poll takes some ns here; the CPU sleeps between its later ones

typedef ulong umsh_u64;

static inline uint step_load(__global uint *p, uint order) {
    switch (order) {
    case UMSH_ORDER_RELAXED: return UMSH_LOAD(p, memory_order_relaxed);
    case UMSH_ORDER_ACQUIRE: return UMSH_LOAD(p, memory_order_acquire);
    case UMSH_ORDER_SEQ_CST: return UMSH_LOAD(p, memory_order_seq_cst);
    default: return *(volatile __global uint *)p;
    }
}

static inline void step_store(__global uint *p, uint v, uint order) {
    switch (order) {
    case UMSH_ORDER_RELAXED: UMSH_STORE(p, v, memory_order_relaxed); break;
    case UMSH_ORDER_RELEASE: UMSH_STORE(p, v, memory_order_release); break;
    case UMSH_ORDER_SEQ_CST: UMSH_STORE(p, v, memory_order_seq_cst); break;
    default: *(volatile __global uint *)p = v;
    }
}

// 64-bit atomics are an extension; a plain access is one instruction and fences give the order.
static inline ulong step_load64(__global uchar *p, uint order) {
    ulong v = *(volatile __global ulong *)p;
    if (order == UMSH_ORDER_ACQUIRE) UMSH_FENCE(memory_order_acquire);
    return v;
}

static inline void step_store64(__global uchar *p, ulong v, uint order) {
    if (order == UMSH_ORDER_RELEASE) UMSH_FENCE(memory_order_release);
    *(volatile __global ulong *)p = v;
}

static inline void step_store16(__global uchar *p, uint v) { *(volatile __global ushort *)p = (ushort)v; }

static inline void step_fence(uint order) {
    switch (order) {
    case UMSH_ORDER_ACQUIRE: UMSH_FENCE(memory_order_acquire); break;
    case UMSH_ORDER_RELEASE: UMSH_FENCE(memory_order_release); break;
    case UMSH_ORDER_ACQ_REL: UMSH_FENCE(memory_order_acq_rel); break;
    default: UMSH_FENCE(memory_order_seq_cst);
    }
}

static inline uint step_add(__global uint *p, uint v) {
    return atomic_fetch_add_explicit(UMSH_ATOMIC(p), v, memory_order_seq_cst, memory_scope_all_svm_devices);
}

static inline uint step_exchange(__global uint *p, uint v) {
    return atomic_exchange_explicit(UMSH_ATOMIC(p), v, memory_order_seq_cst, memory_scope_all_svm_devices);
}

static inline uint step_cas(__global uint *p, uint expected, uint desired) {
    atomic_compare_exchange_strong_explicit(UMSH_ATOMIC(p), &expected, desired, memory_order_seq_cst,
                                            memory_order_seq_cst, memory_scope_all_svm_devices);
    return expected;
}

static inline void step_write(__global uint *p, uint v, uint method) {
    umsh_write((__global uint *)p, v, method);
    umsh_publish(method);
}

static inline uint step_read(__global uint *p, uint method) {
    umsh_refresh(method);
    return method == UMSH_METHOD_RB ? umsh_read(p, method) : *(volatile __global uint *)p;
}

static inline void step_fill(__global uchar *p, uint nbytes, uint seed, uint method) {
    __global uint *words = (__global uint *)p;
    for (uint i = 0; i < nbytes / 4; i++) umsh_write(&words[i], umsh_pattern(seed, i), method);
    umsh_publish(method);
}

static inline uint step_check(__global uchar *p, uint nbytes, uint seed, uint method) {
    __global uint *words = (__global uint *)p;
    uint wrong = 0;
    umsh_refresh(method);
    for (uint i = 0; i < nbytes / 4; i++) wrong += umsh_read(&words[i], method) != umsh_pattern(seed, i);
    return wrong;
}

static inline int step_lock(__global uint *p, uint algorithm, uint role, uint polls, __global uint *stop) {
    return umsh_lock(p, algorithm, UMSH_TAG_GPU | (role + 1), umsh_within(stop, polls));
}

static inline void step_unlock(__global uint *p, uint algorithm, uint role) {
    umsh_unlock(p, algorithm, UMSH_TAG_GPU | (role + 1));
}

static inline void step_relax(uint k) {}

#define UMSH_STEPS_INTERPRETER
#include "steps.h"

// Arguments in the order of StepRun; the DONE word of the role in `control` counts the instances completed.
__kernel void umsh_steps(__global const int *program, __global uchar *words, __global uint *registers,
                         __global uchar *control, uint role, uint instances, __global const uint *settings) {
    umsh_steps_interpret(program, words, registers, control, role, instances, settings);
}
