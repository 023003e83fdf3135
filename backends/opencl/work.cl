// What the GPU agent does in tests and benchmarks. Every loop has a bound.
#include "steps.h"
#include "umsh.clh"

// A run's control words, 128 bytes apart: what it returns, what stops it, and two for pollers.
#define RESULT 0
#define STOP 32
#define ARRIVED 64
#define GATE 96

// Words [base, end) of one turn: `span` words for each work-item, then the whole grid moves on.
#define EACH_SPAN(base, end, span, count)                                                              \
    for (ulong base = get_global_id(0) * (ulong)span, end = min(count, base + span); base < count;     \
         base += get_global_size(0) * (ulong)span, end = min(count, base + span))

__kernel void umsh_fill(__global uint *memory, ulong first, ulong count, uint seed, uint span, int method) {
    __global uint *words = memory + first;
    EACH_SPAN(base, end, span, count) {
        if (method == UMSH_WBP)
            for (ulong i = base; i < end; i++) umsh_write(&words[i], umsh_pattern(seed, (uint)i), UMSH_WBP);
        else
            for (ulong i = base; i < end; i++) words[i] = umsh_pattern(seed, (uint)i);
    }
    umsh_publish(method);
}

__kernel void umsh_check(__global uint *memory, ulong first, ulong count, uint seed, uint span, int method,
                         umsh_word *control) {
    __global uint *words = memory + first;
    uint wrong = 0;
    umsh_refresh(method);
    EACH_SPAN(base, end, span, count) {
        if (method == UMSH_RB)
            for (ulong i = base; i < end; i++)
                wrong += umsh_read(&words[i], UMSH_RB) != umsh_pattern(seed, (uint)i);
        else
            for (ulong i = base; i < end; i++) wrong += words[i] != umsh_pattern(seed, (uint)i);
    }
    if (wrong)
        atomic_fetch_add_explicit(UMSH_ATOMIC(&control[RESULT]), wrong, memory_order_relaxed,
                                  memory_scope_all_svm_devices);
}

// Sum of `count` words, one of each chosen place of `stride` bytes; the same places as umsh_gather of work.c.
__kernel void umsh_gather(__global uint *words, ulong places, ulong count, uint seed, uint stride, uint span,
                          int method, umsh_word *control) {
    uint sum = 0;
    umsh_refresh(method);
    EACH_SPAN(base, end, span, count)
        for (ulong i = base; i < end; i++)
            sum += umsh_read(&words[umsh_pattern(seed, (uint)i) % places * (stride / 4)], method);
    atomic_fetch_add_explicit(UMSH_ATOMIC(&control[RESULT]), sum, memory_order_relaxed,
                              memory_scope_all_svm_devices);
}

// One work-item. `first` sets words[0] and waits for words[32], the other answers.
__kernel void umsh_echo(umsh_word *words, uint rounds, int first, umsh_word *control, ulong polls) {
    umsh_bound bound = umsh_within(&control[STOP], polls);
    uint round = 0;
    while (round < rounds) {
        uint next = round + 1;
        if (first) umsh_set(&words[0], next);
        if (umsh_wait(&words[first ? 32 : 0], next, bound) != UMSH_OK) break;
        if (!first) umsh_set(&words[32], next);
        round = next;
    }
    control[RESULT] = round;
}

// Groups of one work-item: a lock taker never stands in the way of its own neighbour.
__kernel void umsh_lock_rounds(umsh_word *lock, __global uint *counter, uint rounds, int algorithm,
                               umsh_word *control, ulong polls) {
    umsh_bound bound = umsh_within(&control[STOP], polls);
    uint tag = UMSH_TAG_GPU | (uint)(get_global_id(0) + 1);
    uint round = 0;
    for (; round < rounds; round++) {
        if (umsh_lock(lock, algorithm, tag, bound) != UMSH_OK) break;
        *counter = *counter + 1;
        if (umsh_unlock(lock, algorithm, tag) != UMSH_OK) break;
    }
    atomic_fetch_add_explicit(UMSH_ATOMIC(&control[RESULT]), round, memory_order_relaxed,
                              memory_scope_all_svm_devices);
}

// One of `arrivals` has seen `round`; the last one answers.
static void arrive(umsh_word *words, umsh_word *control, uint arrivals, uint round) {
    uint before = atomic_fetch_add_explicit(UMSH_ATOMIC(&control[ARRIVED]), 1, memory_order_acq_rel,
                                            memory_scope_device);
    if (before + 1 != arrivals * round) return;
    control[RESULT] = round;
    umsh_set(&words[32], round);
}

__kernel void umsh_poll_thread(umsh_word *words, uint rounds, umsh_word *control, ulong polls) {
    umsh_bound bound = umsh_within(&control[STOP], polls);
    for (uint round = 1; round <= rounds; round++) {
        if (umsh_wait(&words[0], round, bound) != UMSH_OK) return;
        arrive(words, control, (uint)get_global_size(0), round);
    }
}

__kernel void umsh_poll_block(umsh_word *words, uint rounds, umsh_word *control, ulong polls) {
    __local int seen;
    umsh_bound bound = umsh_within(&control[STOP], polls);
    for (uint round = 1; round <= rounds; round++) {
        if (umsh_wait_block(&words[0], round, bound, &seen) != UMSH_OK) return;
        if (get_local_id(0) == 0) arrive(words, control, (uint)get_num_groups(0), round);
    }
}

__kernel void umsh_poll_grid(umsh_word *words, uint rounds, umsh_word *control, ulong polls) {
    __local int seen;
    umsh_bound bound = umsh_within(&control[STOP], polls);
    for (uint round = 1; round <= rounds; round++) {
        if (umsh_wait_grid(&words[0], &control[GATE], round, bound, &seen) != UMSH_OK) return;
        if (get_local_id(0) == 0) arrive(words, control, (uint)get_num_groups(0), round);
    }
}

// Kernel-level throttling: one work-item waits, the work is the next kernel of the queue.
__kernel void umsh_poll_kernel(umsh_word *words, uint round, umsh_word *control, ulong polls) {
    if (umsh_wait(&words[0], round, umsh_within(&control[STOP], polls)) != UMSH_OK) control[STOP] = 1;
}

__kernel void umsh_answer_kernel(umsh_word *words, uint round, umsh_word *control) {
    if (UMSH_LOAD(&control[STOP], memory_order_relaxed) == 0)
        arrive(words, control, (uint)get_global_size(0), round);
}

// How fast this device polls: a wait that nobody ends.
__kernel void umsh_poll_rate(umsh_word *control, ulong polls) {
    control[RESULT] = umsh_wait(&control[GATE], 1, umsh_within(&control[STOP], polls));
}
