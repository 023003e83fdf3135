// control.cu: control work of the GPU agent; flag echo, lock rounds and throttled polling.
#include "umsh.cuh"

#define UMSH_OTHER 32 // word index of the second flag: 128 bytes from the first

// Ping-pong over words[0] and words[32]; one thread. Rounds completed.
extern "C" __global__ void umsh_echo(umsh_u32 *words, umsh_u32 rounds, int first, umsh_u64 timeout_ns,
                                     const umsh_u32 *abort, umsh_u64 *done) {
    umsh_u32 round = 1;
    for (; round <= rounds; round++) {
        if (first) umsh_set(words, round);
        if (umsh_wait(words + (first ? UMSH_OTHER : 0), round, timeout_ns, abort) != UMSH_WAIT_REACHED) break;
        if (!first) umsh_set(words + UMSH_OTHER, round);
    }
    umsh_release64(done, round - 1);
}

// lock; counter += 1; unlock; one thread a block, so that contenders need no independent scheduling.
extern "C" __global__ void umsh_lock_rounds(umsh_u32 *lock, umsh_u32 *counter, umsh_u32 rounds, int algorithm,
                                            umsh_u64 timeout_ns, const umsh_u32 *abort, umsh_u32 *arrived,
                                            umsh_u64 *total, umsh_u64 *done) {
    umsh_u32 tag = UMSH_TAG_GPU | (blockIdx.x + 1), round = 0;
    for (; round < rounds; round++) {
        if (umsh_lock(lock, algorithm, tag, timeout_ns, abort) != UMSH_LOCK_OK) break;
        *(volatile umsh_u32 *)counter = *(volatile umsh_u32 *)counter + 1;
        umsh_unlock(lock, algorithm, tag);
    }
    atomicAdd(total, (umsh_u64)round);
    if (umsh_fetch_add_gpu(arrived, 1) != gridDim.x - 1) return;
    *arrived = 0;
    umsh_release64(done, atomicExch(total, 0ull));
}

// Every poller has been let through: the last block answers.
UMSH_DEVICE void umsh_answer(umsh_u32 *words, umsh_u32 round, umsh_u32 *arrived) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (umsh_fetch_add_gpu(arrived, 1) != gridDim.x - 1) return;
    *arrived = 0;
    umsh_set(words + UMSH_OTHER, round);
}

// level 0 thread: every thread polls. 1 block: one thread of each block polls. 2 grid: one of all.
// The bounds promise four blocks of 256 a multiprocessor: POLL_BLOCKS_PER_SM in agent.py.
extern "C" __global__ void __launch_bounds__(256, 4)
umsh_poll(umsh_u32 *words, umsh_u32 rounds, int level, umsh_grid *grid, umsh_u32 *arrived, umsh_u64 timeout_ns,
          const umsh_u32 *abort, umsh_u64 *done) {
    umsh_u32 round = 1;
    for (; round <= rounds; round++) {
        int late = 0;
        if (level == 0) late = __syncthreads_or(umsh_wait(words, round, timeout_ns, abort));
        if (level == 1) late = umsh_wait_block(words, round, timeout_ns, abort);
        if (level == 2) late = umsh_wait_grid(words, round, grid, timeout_ns, abort);
        if (late) break;
        umsh_answer(words, round, arrived);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) umsh_release64(done, round - 1);
}

// Kernel level: this one-thread kernel waits, the pollers' own kernel runs after it on the stream. A wait
// that failed fails all later ones at once: *done counts the rounds and stays behind.
extern "C" __global__ void umsh_poll_gate(const umsh_u32 *words, umsh_u32 round, umsh_u64 timeout_ns,
                                          const umsh_u32 *abort, umsh_u64 *done) {
    if (umsh_load_relaxed64(done) != round - 1) return;
    if (umsh_wait(words, round, timeout_ns, abort) == UMSH_WAIT_REACHED) umsh_release64(done, round);
}

extern "C" __global__ void umsh_poll_after(umsh_u32 *words, umsh_u32 round, umsh_u32 *arrived,
                                           const umsh_u64 *done) {
    if (umsh_load_relaxed64(done) == round) umsh_answer(words, round, arrived);
}
