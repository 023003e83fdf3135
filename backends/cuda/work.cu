// work.cu: bulk work of the GPU agent; fill, check, gather and repeated passes over a region.
#include "umsh.cuh"
#define UMSH_FUNCTION UMSH_DEVICE
#include "steps.h"

// Sums over a grid. The last block writes the total to the host's word and leaves the slot zeroed, so
// that reading a result costs no copy.
struct umsh_total {
    umsh_u64 sum;
    umsh_u32 arrived;
};

UMSH_DEVICE void umsh_total_add(umsh_total *total, umsh_u64 *host, umsh_u64 mine) {
    __shared__ umsh_u64 block;
    if (threadIdx.x == 0) block = 0;
    __syncthreads();
    if (mine) atomicAdd(&block, mine);
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (block) atomicAdd(&total->sum, block);
    __threadfence();
    if (atomicAdd(&total->arrived, 1u) != gridDim.x - 1) return;
    umsh_u64 sum = atomicExch(&total->sum, 0ull);
    total->arrived = 0;
    umsh_release64(host, sum);
}

// Write methods 0 WA, 1 WF, 2 WBp and read methods 0 RA, 1 RI, 2 RB of 16 bytes at a time.
UMSH_DEVICE void umsh_store4(uint4 *p, uint4 v, int method) {
    if (method == 2)
        asm volatile("st.relaxed.sys.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
                     "r"(v.w) : "memory");
    else
        *p = v;
}

UMSH_DEVICE uint4 umsh_load4(const uint4 *p, int method) {
    uint4 v;
    if (method != 2) return *p;
    asm volatile("ld.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}

UMSH_DEVICE umsh_u32 umsh_load1(const umsh_u32 *p, int method) { return method == 2 ? umsh_load_relaxed(p) : *p; }

UMSH_DEVICE uint4 umsh_pattern4(umsh_u32 seed, umsh_u64 quad) {
    umsh_u32 i = (umsh_u32)(4 * quad);
    return make_uint4(umsh_pattern(seed, i), umsh_pattern(seed, i + 1), umsh_pattern(seed, i + 2),
                      umsh_pattern(seed, i + 3));
}

UMSH_DEVICE umsh_u32 umsh_differ4(uint4 a, uint4 b) {
    return (a.x != b.x) + (a.y != b.y) + (a.z != b.z) + (a.w != b.w);
}

// `words` is 16-byte aligned for the first `quads` groups of 4; the remaining words follow them.
extern "C" __global__ void umsh_fill(umsh_u32 *words, umsh_u64 count, umsh_u64 quads, umsh_u32 seed, int method) {
    umsh_u64 first = blockIdx.x * (umsh_u64)blockDim.x + threadIdx.x, step = (umsh_u64)gridDim.x * blockDim.x;
    for (umsh_u64 q = first; q < quads; q += step) umsh_store4((uint4 *)words + q, umsh_pattern4(seed, q), method);
    for (umsh_u64 i = 4 * quads + first; i < count; i += step) {
        if (method == 2)
            umsh_store_relaxed(words + i, umsh_pattern(seed, (umsh_u32)i));
        else
            words[i] = umsh_pattern(seed, (umsh_u32)i);
    }
    if (method == 1) umsh_publish();
}

// Four loads in flight for each thread: the link's latency is what bounds direct reads.
extern "C" __global__ void umsh_check(const umsh_u32 *words, umsh_u64 count, umsh_u64 quads, umsh_u32 seed,
                                      int method, umsh_total *total, umsh_u64 *host) {
    umsh_u64 first = blockIdx.x * (umsh_u64)blockDim.x + threadIdx.x, step = (umsh_u64)gridDim.x * blockDim.x;
    const uint4 *data = (const uint4 *)words;
    umsh_u32 wrong = 0;
    umsh_u64 q = first;
    if (method == 1) umsh_refresh();
    for (; q + 3 * step < quads; q += 4 * step) {
        uint4 a = umsh_load4(data + q, method), b = umsh_load4(data + q + step, method);
        uint4 c = umsh_load4(data + q + 2 * step, method), d = umsh_load4(data + q + 3 * step, method);
        wrong += umsh_differ4(a, umsh_pattern4(seed, q)) + umsh_differ4(b, umsh_pattern4(seed, q + step));
        wrong += umsh_differ4(c, umsh_pattern4(seed, q + 2 * step)) + umsh_differ4(d, umsh_pattern4(seed, q + 3 * step));
    }
    for (; q < quads; q += step) wrong += umsh_differ4(umsh_load4(data + q, method), umsh_pattern4(seed, q));
    for (umsh_u64 i = 4 * quads + first; i < count; i += step)
        wrong += umsh_load1(words + i, method) != umsh_pattern(seed, (umsh_u32)i);
    umsh_total_add(total, host, wrong);
}

// Reads all of it `passes` times; the sum keeps the loads alive. One launch, as an application would.
extern "C" __global__ void umsh_passes(const uint4 *data, umsh_u64 quads, int passes, umsh_total *total,
                                       umsh_u64 *host) {
    umsh_u64 first = blockIdx.x * (umsh_u64)blockDim.x + threadIdx.x, step = (umsh_u64)gridDim.x * blockDim.x;
    umsh_u32 sum = 0;
    for (int pass = 0; pass < passes; pass++) {
        umsh_u64 q = first;
        for (; q + 3 * step < quads; q += 4 * step) {
            uint4 a = __ldcs(data + q), b = __ldcs(data + q + step);
            uint4 c = __ldcs(data + q + 2 * step), d = __ldcs(data + q + 3 * step);
            sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
            sum += c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
        }
        for (; q < quads; q += step) {
            uint4 a = __ldcs(data + q);
            sum += a.x + a.y + a.z + a.w;
        }
    }
    umsh_total_add(total, host, sum);
}

// Word umsh_pattern(seed, i) mod places, times stride, for i < count; as the CPU's umsh_gather.
extern "C" __global__ void umsh_gather(const umsh_u32 *words, umsh_u64 places, umsh_u64 stride_words,
                                       umsh_u64 count, umsh_u32 seed, int method, umsh_total *total,
                                       umsh_u64 *host) {
    umsh_u64 first = blockIdx.x * (umsh_u64)blockDim.x + threadIdx.x, step = (umsh_u64)gridDim.x * blockDim.x;
    umsh_u32 sum = 0;
    if (method == 1) umsh_refresh();
    for (umsh_u64 i = first; i < count; i += step) {
        umsh_u64 place = umsh_pattern(seed, (umsh_u32)i) % places;
        sum += umsh_load1(words + place * stride_words, method);
    }
    umsh_total_add(total, host, sum);
}
