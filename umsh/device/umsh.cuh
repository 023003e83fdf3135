// umsh.cuh: the verbs inside CUDA kernels; for nvcc, NVRTC and CuPy RawKernel, nothing to link.
//
// Layouts are those of umsh.h. Ordering is stated in the PTX memory model at system scope (.sys), which
// is what the ISA guarantees between CPU and GPU; cache operators (.cg .cv .wt) are hints and promise
// nothing, so no verb relies on one. Every loop has a deadline and, if given, an abort word: a lost
// partner never hangs the GPU. Pass abort = 0 for none.
#ifndef UMSH_CUH
#define UMSH_CUH

#define UMSH_DEVICE static __device__ __forceinline__ __attribute__((unused))

typedef unsigned int umsh_u32;
typedef unsigned long long umsh_u64;

// ---- acquire, release, fences ------------------------------------------------------------------

#define UMSH_LOAD(name, how, ctype, reg, type)                                            \
    UMSH_DEVICE ctype name(const ctype *p) {                                              \
        ctype v;                                                                          \
        asm volatile("ld." how "." type " %0, [%1];" : "=" reg(v) : "l"(p) : "memory");  \
        return v;                                                                         \
    }
#define UMSH_STORE(name, how, ctype, reg, type)                                          \
    UMSH_DEVICE void name(ctype *p, ctype v) {                                           \
        asm volatile("st." how "." type " [%0], %1;" ::"l"(p), reg(v) : "memory");       \
    }

UMSH_LOAD(umsh_acquire, "acquire.sys", umsh_u32, "r", "u32")
UMSH_LOAD(umsh_acquire64, "acquire.sys", umsh_u64, "l", "u64")
UMSH_LOAD(umsh_load_relaxed, "relaxed.sys", umsh_u32, "r", "u32")
UMSH_LOAD(umsh_load_relaxed64, "relaxed.sys", umsh_u64, "l", "u64")
UMSH_LOAD(umsh_load_cg, "global.cg", umsh_u32, "r", "u32")
UMSH_LOAD(umsh_load_cv, "global.cv", umsh_u32, "r", "u32")
UMSH_STORE(umsh_release, "release.sys", umsh_u32, "r", "u32")
UMSH_STORE(umsh_release64, "release.sys", umsh_u64, "l", "u64")
UMSH_STORE(umsh_store_relaxed, "relaxed.sys", umsh_u32, "r", "u32")
UMSH_STORE(umsh_store_relaxed64, "relaxed.sys", umsh_u64, "l", "u64")
UMSH_STORE(umsh_store_cg, "global.cg", umsh_u32, "r", "u32")
UMSH_STORE(umsh_store_wt, "global.wt", umsh_u32, "r", "u32")

UMSH_DEVICE void umsh_fence() { asm volatile("fence.sc.sys;" ::: "memory"); }
UMSH_DEVICE void umsh_fence_acq_rel() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Read-modify-write at system scope. Atomic for the CPU too only where HOST_NATIVE_ATOMIC_SUPPORTED is 1.
UMSH_DEVICE umsh_u32 umsh_compare_exchange(umsh_u32 *p, umsh_u32 expected, umsh_u32 desired) {
    umsh_u32 old;
    asm volatile("atom.acq_rel.sys.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old) : "l"(p), "r"(expected), "r"(desired) : "memory");
    return old;
}
UMSH_DEVICE umsh_u32 umsh_exchange(umsh_u32 *p, umsh_u32 v) {
    umsh_u32 old;
    asm volatile("atom.acq_rel.sys.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
UMSH_DEVICE umsh_u32 umsh_fetch_add(umsh_u32 *p, umsh_u32 v) {
    umsh_u32 old;
    asm volatile("atom.acq_rel.sys.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

// ---- write and read methods --------------------------------------------------------------------

// Publish after plain stores (write-then-flush); refresh before plain loads (read-after-invalidate).
// What the ISA guarantees: accesses ordered across the fence at system scope. Whether a line also
// leaves the L2 is the device's business.
UMSH_DEVICE void umsh_publish() { umsh_fence_acq_rel(); }
UMSH_DEVICE void umsh_refresh() { umsh_fence_acq_rel(); }

// ---- bounded waiting ---------------------------------------------------------------------------

#define UMSH_WAIT_REACHED 0
#define UMSH_WAIT_TIMEOUT 1
#define UMSH_POLLS_CLOSE 1024 // polls of a mapped word take about a microsecond each: pace only long waits
#define UMSH_SLEEP_NS 500

UMSH_DEVICE umsh_u64 umsh_now_ns() {
    umsh_u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

struct umsh_bound {
    umsh_u64 deadline_ns;
    const umsh_u32 *abort;
    umsh_u32 polls;
};

UMSH_DEVICE umsh_bound umsh_bound_begin(umsh_u64 timeout_ns, const umsh_u32 *abort) {
    umsh_bound b;
    b.deadline_ns = umsh_now_ns() + timeout_ns;
    b.abort = abort;
    b.polls = 0;
    return b;
}

// One step of a wait: 1 once the deadline has passed or the abort word is set.
UMSH_DEVICE int umsh_bound_step(umsh_bound *b) {
    b->polls++;
    if (b->polls > UMSH_POLLS_CLOSE) __nanosleep(UMSH_SLEEP_NS);
    if (b->polls % 64 == 0 && b->abort && umsh_load_relaxed(b->abort)) return 1;
    return umsh_now_ns() >= b->deadline_ns;
}

// ---- wait, set ---------------------------------------------------------------------------------

// Everything this thread wrote before is visible to whoever sees `value`.
UMSH_DEVICE void umsh_set(umsh_u32 *flag, umsh_u32 value) { umsh_release(flag, value); }

// Values count upwards and may wrap, so a setter that runs ahead is never missed.
UMSH_DEVICE int umsh_reached(umsh_u32 seen, umsh_u32 value) { return (int)(seen - value) >= 0; }

UMSH_DEVICE int umsh_wait(const umsh_u32 *flag, umsh_u32 value, umsh_u64 timeout_ns, const umsh_u32 *abort) {
    umsh_bound b = umsh_bound_begin(timeout_ns, abort);
    while (!umsh_reached(umsh_acquire(flag), value))
        if (umsh_bound_step(&b))
            return umsh_reached(umsh_acquire(flag), value) ? UMSH_WAIT_REACHED : UMSH_WAIT_TIMEOUT;
    return UMSH_WAIT_REACHED;
}

// Block level: one thread polls, the block's barrier throttles the rest. All threads of the block call it.
UMSH_DEVICE int umsh_wait_block(const umsh_u32 *flag, umsh_u32 value, umsh_u64 timeout_ns,
                                const umsh_u32 *abort) {
    __shared__ int result;
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) result = umsh_wait(flag, value, timeout_ns, abort);
    __syncthreads();
    int seen = result;
    __syncthreads(); // before a next call overwrites it
    return seen;
}

// All threads of the block call it; one store after the block's barrier publishes what all of them wrote.
UMSH_DEVICE void umsh_set_block(umsh_u32 *flag, umsh_u32 value) {
    umsh_fence_acq_rel();
    __syncthreads();
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) umsh_set(flag, value);
}

// ---- grid level --------------------------------------------------------------------------------

// Zeroed device memory, one for each running grid. The kernel must be launched cooperatively, which is
// what makes all its blocks run at once; the barrier is ours because grid.sync() has no bound.
struct umsh_grid {
    umsh_u32 arrived, generation, result[2];
};

UMSH_DEVICE umsh_u32 umsh_grid_blocks() { return gridDim.x * gridDim.y * gridDim.z; }

UMSH_DEVICE umsh_u32 umsh_load_acquire_gpu(const umsh_u32 *p) {
    umsh_u32 v;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
UMSH_DEVICE void umsh_store_release_gpu(umsh_u32 *p, umsh_u32 v) {
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
UMSH_DEVICE umsh_u32 umsh_fetch_add_gpu(umsh_u32 *p, umsh_u32 v) {
    umsh_u32 old;
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
UMSH_DEVICE umsh_u32 umsh_compare_exchange_gpu(umsh_u32 *p, umsh_u32 expected, umsh_u32 desired) {
    umsh_u32 old;
    asm volatile("atom.acq_rel.gpu.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old) : "l"(p), "r"(expected), "r"(desired) : "memory");
    return old;
}

// One thread of each block: UMSH_WAIT_REACHED once all blocks have come, UMSH_WAIT_TIMEOUT otherwise.
UMSH_DEVICE int umsh_grid_arrive(umsh_grid *grid, umsh_u64 timeout_ns, const umsh_u32 *abort) {
    umsh_u32 generation = umsh_load_acquire_gpu(&grid->generation);
    if (umsh_fetch_add_gpu(&grid->arrived, 1) == umsh_grid_blocks() - 1) {
        grid->arrived = 0;
        umsh_store_release_gpu(&grid->generation, generation + 1);
        return UMSH_WAIT_REACHED;
    }
    umsh_bound b = umsh_bound_begin(timeout_ns, abort);
    while (umsh_load_acquire_gpu(&grid->generation) == generation)
        if (umsh_bound_step(&b)) return UMSH_WAIT_TIMEOUT;
    return UMSH_WAIT_REACHED;
}

UMSH_DEVICE int umsh_barrier_grid(umsh_grid *grid, umsh_u64 timeout_ns, const umsh_u32 *abort) {
    __shared__ int result;
    __syncthreads();
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) result = umsh_grid_arrive(grid, timeout_ns, abort);
    __syncthreads();
    int seen = result;
    __syncthreads();
    return seen;
}

// Grid level: one thread of the grid polls, the grid's barrier throttles the rest.
UMSH_DEVICE int umsh_wait_grid(const umsh_u32 *flag, umsh_u32 value, umsh_grid *grid, umsh_u64 timeout_ns,
                               const umsh_u32 *abort) {
    __shared__ int result;
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {
        umsh_u32 generation = umsh_load_acquire_gpu(&grid->generation);
        // Two slots: block 0 is at most one wait ahead of a block that still reads its result.
        umsh_u32 *slot = &grid->result[generation & 1];
        if ((blockIdx.x | blockIdx.y | blockIdx.z) == 0) *slot = umsh_wait(flag, value, timeout_ns, abort);
        result = umsh_grid_arrive(grid, 2 * timeout_ns, abort);
        if (result == UMSH_WAIT_REACHED) result = *(volatile umsh_u32 *)slot;
    }
    __syncthreads();
    int seen = result;
    __syncthreads();
    return seen;
}

// ---- locks -------------------------------------------------------------------------------------

// 512 zeroed bytes on a 128-byte boundary; word indices as in umsh.h. Not to be taken by two threads of
// one warp unless the device schedules threads independently (compute capability >= 7.0).
#define UMSH_LOCK_CAS 0
#define UMSH_LOCK_TICKET 1
#define UMSH_LOCK_PETERSON 2
#define UMSH_LOCK_DELEGATED 3 // a CPU thread takes the lock for the GPU: umsh_delegate_serve

#define UMSH_LOCK_OK 0
#define UMSH_LOCK_TIMEOUT 1
#define UMSH_LOCK_RELOCK 3
#define UMSH_LOCK_NOT_HOLDER 1
#define UMSH_LOCK_UNKNOWN (-22)
#define UMSH_TAG_GPU 0x80000000u

#include "umsh_lock.cuh"

UMSH_DEVICE int umsh_lock(umsh_u32 *lock, int algorithm, umsh_u32 tag, umsh_u64 timeout_ns,
                          const umsh_u32 *abort) {
    umsh_bound b = umsh_bound_begin(timeout_ns, abort);
    switch (algorithm) {
    case UMSH_LOCK_CAS: return umsh_lock_cas_(lock, tag, &b);
    case UMSH_LOCK_TICKET: return umsh_lock_ticket_(lock, tag, &b);
    case UMSH_LOCK_PETERSON: return umsh_lock_peterson_(lock, tag, &b);
    case UMSH_LOCK_DELEGATED: return umsh_lock_delegated_(lock, tag, &b);
    default: return UMSH_LOCK_UNKNOWN;
    }
}

UMSH_DEVICE int umsh_unlock(umsh_u32 *lock, int algorithm, umsh_u32 tag) {
    if (algorithm < UMSH_LOCK_CAS || algorithm > UMSH_LOCK_DELEGATED) return UMSH_LOCK_UNKNOWN;
    if (umsh_load_relaxed(&lock[UMSH_LOCK_HOLDER]) != tag) return UMSH_LOCK_NOT_HOLDER;
    umsh_release(&lock[UMSH_LOCK_HOLDER], 0);
    if (algorithm == UMSH_LOCK_TICKET) umsh_unlock_ticket_(lock);
    if (algorithm == UMSH_LOCK_PETERSON) umsh_unlock_peterson_(lock);
    if (algorithm == UMSH_LOCK_DELEGATED) umsh_unlock_delegated_(lock);
    return UMSH_LOCK_OK;
}

// Block level: one thread locks for its block, so that a block is one contender.
UMSH_DEVICE int umsh_lock_block(umsh_u32 *lock, int algorithm, umsh_u32 tag, umsh_u64 timeout_ns,
                                const umsh_u32 *abort) {
    __shared__ int result;
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0)
        result = umsh_lock(lock, algorithm, tag, timeout_ns, abort);
    __syncthreads();
    int seen = result;
    __syncthreads();
    return seen;
}

UMSH_DEVICE void umsh_unlock_block(umsh_u32 *lock, int algorithm, umsh_u32 tag) {
    umsh_fence_acq_rel();
    __syncthreads();
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) umsh_unlock(lock, algorithm, tag);
}

#endif
