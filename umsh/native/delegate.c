/* delegate.c: grant the GPU's requests for delegated locks, taking each lock on the CPU's side for it. */
#include "umsh.h"
#include "delegate.h"

#define IDLE_SPINS 4096 /* passes without work before the thread sleeps between looks */

/* One look at one lock. 1 when something changed. Never waits: other locks are served meanwhile. */
static int serve_one(uint32_t *lock, uint32_t tag, int64_t *grants) {
    uint32_t wants = umsh_acquire(&lock[UMSH_LOCK_GPU_WANTS]);
    uint32_t granted = __atomic_load_n(&lock[UMSH_LOCK_GRANT], __ATOMIC_RELAXED);
    uint32_t *side = &lock[UMSH_LOCK_CPU_SIDE], old = 0;
    if (wants == granted) return 0; /* the GPU holds it */
    if (__atomic_load_n(side, __ATOMIC_RELAXED) == tag) {
        umsh_release(side, 0); /* it gave the lock back, or gave up after it was granted */
        return 1;
    }
    if (wants % 2 == 0) return 0;
    if (!__atomic_compare_exchange_n(side, &old, tag, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return 0;
    umsh_release(&lock[UMSH_LOCK_GRANT], wants);
    (*grants)++;
    return 1;
}

static int holds_any(uintptr_t locks, size_t count, size_t stride, uint32_t tag) {
    for (size_t i = 0; i < count; i++)
        if (umsh_acquire((uint32_t *)(locks + i * stride) + UMSH_LOCK_CPU_SIDE) == tag) return 1;
    return 0;
}

/* Serve `count` locks, `stride` bytes apart, until the word at `stop` is not 0 and the GPU holds none, or until
 * timeout_ns has passed. Returns the grants made. One thread serves a lock. */
int64_t umsh_delegate_serve(uintptr_t locks, size_t count, size_t stride, uintptr_t stop, int64_t timeout_ns) {
    int64_t grants = 0, deadline_ns = umsh_now_ns() + timeout_ns;
    struct timespec nap = {0, 20000};
    uint32_t tag = umsh_thread_tag(), idle = 0;
    for (;;) {
        int moved = 0;
        for (size_t i = 0; i < count; i++) moved |= serve_one((uint32_t *)(locks + i * stride), tag, &grants);
        if (moved) {
            idle = 0;
            continue;
        }
        if (umsh_acquire((const uint32_t *)stop) && !holds_any(locks, count, stride, tag)) return grants;
        if (umsh_now_ns() >= deadline_ns) return grants;
        umsh_pause();
        if (++idle > IDLE_SPINS) nanosleep(&nap, NULL);
    }
}
