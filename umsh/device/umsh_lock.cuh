// umsh_lock.cuh: the lock algorithms, step for step those of umsh_lock.h; included by umsh.cuh only.

#define UMSH_LOCK_HOLDER 0
#define UMSH_LOCK_NEXT 32
#define UMSH_LOCK_SERVING 64
#define UMSH_LOCK_GONE 96
#define UMSH_LOCK_QUEUE 32
#define UMSH_LOCK_CPU_WANTS 32
#define UMSH_LOCK_GPU_WANTS 64 // delegated: odd while the GPU asks for or holds the lock
#define UMSH_LOCK_GPU_SIDE 65
#define UMSH_LOCK_TURN 96
#define UMSH_LOCK_GRANT 97 // delegated: the odd value of GPU_WANTS that the CPU has granted

// One sequentially consistent access each: the fence orders it after all earlier ones (PTX, fence.sc).
UMSH_DEVICE umsh_u32 umsh_load_sc_(const umsh_u32 *p) {
    umsh_fence();
    return umsh_acquire(p);
}
UMSH_DEVICE void umsh_store_sc_(umsh_u32 *p, umsh_u32 v) {
    umsh_fence();
    umsh_store_relaxed(p, v);
}
UMSH_DEVICE umsh_u32 umsh_cas_sc_(umsh_u32 *p, umsh_u32 expected, umsh_u32 desired) {
    umsh_fence();
    return umsh_compare_exchange(p, expected, desired);
}

UMSH_DEVICE int umsh_lock_cas_(umsh_u32 *lock, umsh_u32 tag, umsh_bound *b) {
    umsh_u32 *word = &lock[UMSH_LOCK_HOLDER];
    for (;;) {
        umsh_u32 old = umsh_compare_exchange(word, 0, tag);
        if (old == 0) return UMSH_LOCK_OK;
        if (old == tag) return UMSH_LOCK_RELOCK;
        do {
            if (umsh_bound_step(b)) return UMSH_LOCK_TIMEOUT;
        } while (umsh_load_relaxed(word) != 0);
    }
}

// ---- ticket ------------------------------------------------------------------------------------

UMSH_DEVICE umsh_u32 *umsh_ticket_mark_(umsh_u32 *lock, umsh_u32 ticket) {
    return &lock[UMSH_LOCK_GONE + ticket % UMSH_LOCK_QUEUE];
}

// At most UMSH_LOCK_QUEUE turns: marks exist only for tickets handed out.
UMSH_DEVICE void umsh_ticket_pass_(umsh_u32 *lock, umsh_u32 ticket) {
    for (int turn = 0; turn < UMSH_LOCK_QUEUE; turn++) {
        if (umsh_load_sc_(umsh_ticket_mark_(lock, ticket)) != ((ticket << 1) | 1)) return;
        if (umsh_cas_sc_(&lock[UMSH_LOCK_SERVING], ticket, ticket + 1) != ticket) return;
        umsh_store_sc_(umsh_ticket_mark_(lock, ticket), 0);
        ticket++;
    }
}

UMSH_DEVICE int umsh_ticket_take_(umsh_u32 *lock, umsh_u32 *ticket, umsh_bound *b) {
    for (;;) {
        umsh_u32 next = umsh_load_sc_(&lock[UMSH_LOCK_NEXT]);
        umsh_u32 serving = umsh_load_sc_(&lock[UMSH_LOCK_SERVING]);
        if (next - serving < UMSH_LOCK_QUEUE && umsh_load_sc_(umsh_ticket_mark_(lock, next)) == 0) {
            *ticket = next;
            if (umsh_cas_sc_(&lock[UMSH_LOCK_NEXT], next, next + 1) == next) return UMSH_LOCK_OK;
        }
        if (umsh_bound_step(b)) return UMSH_LOCK_TIMEOUT;
    }
}

UMSH_DEVICE int umsh_lock_ticket_(umsh_u32 *lock, umsh_u32 tag, umsh_bound *b) {
    umsh_u32 ticket = 0;
    if (umsh_load_relaxed(&lock[UMSH_LOCK_HOLDER]) == tag) return UMSH_LOCK_RELOCK;
    if (umsh_ticket_take_(lock, &ticket, b) != UMSH_LOCK_OK) return UMSH_LOCK_TIMEOUT;
    while (umsh_acquire(&lock[UMSH_LOCK_SERVING]) != ticket) {
        if (!umsh_bound_step(b)) continue;
        umsh_store_sc_(umsh_ticket_mark_(lock, ticket), (ticket << 1) | 1);
        if (umsh_load_sc_(&lock[UMSH_LOCK_SERVING]) == ticket) umsh_ticket_pass_(lock, ticket);
        return UMSH_LOCK_TIMEOUT;
    }
    umsh_release(&lock[UMSH_LOCK_HOLDER], tag);
    return UMSH_LOCK_OK;
}

UMSH_DEVICE void umsh_unlock_ticket_(umsh_u32 *lock) {
    umsh_u32 ticket = umsh_load_relaxed(&lock[UMSH_LOCK_SERVING]) + 1;
    umsh_fence();
    umsh_release(&lock[UMSH_LOCK_SERVING], ticket);
    umsh_ticket_pass_(lock, ticket);
}

// ---- peterson ----------------------------------------------------------------------------------

// GPU threads settle among themselves first: the CPU never touches this word, so device scope is enough
// and no read-modify-write crosses the link.
UMSH_DEVICE int umsh_lock_side_(umsh_u32 *lock, umsh_u32 tag, umsh_bound *b) {
    umsh_u32 *side = &lock[UMSH_LOCK_GPU_SIDE];
    for (;;) {
        umsh_u32 old = umsh_compare_exchange_gpu(side, 0, tag);
        if (old == 0) return UMSH_LOCK_OK;
        if (old == tag) return UMSH_LOCK_RELOCK;
        if (umsh_bound_step(b)) return UMSH_LOCK_TIMEOUT;
    }
}

UMSH_DEVICE void umsh_unlock_side_(umsh_u32 *lock) {
    umsh_fence_acq_rel();
    // An exchange, not a store: it meets the compare-exchanges where they are performed.
    asm volatile("{ .reg .u32 t; atom.release.gpu.exch.b32 t, [%0], 0; }" ::"l"(&lock[UMSH_LOCK_GPU_SIDE])
                 : "memory");
}

UMSH_DEVICE int umsh_lock_peterson_(umsh_u32 *lock, umsh_u32 tag, umsh_bound *b) {
    int r = umsh_lock_side_(lock, tag, b);
    if (r != UMSH_LOCK_OK) return r;
    umsh_store_sc_(&lock[UMSH_LOCK_GPU_WANTS], 1);
    umsh_store_sc_(&lock[UMSH_LOCK_TURN], 0);
    while (umsh_load_sc_(&lock[UMSH_LOCK_CPU_WANTS]) && umsh_load_sc_(&lock[UMSH_LOCK_TURN]) == 0) {
        if (!umsh_bound_step(b)) continue;
        umsh_store_sc_(&lock[UMSH_LOCK_GPU_WANTS], 0);
        umsh_unlock_side_(lock);
        return UMSH_LOCK_TIMEOUT;
    }
    umsh_release(&lock[UMSH_LOCK_HOLDER], tag);
    return UMSH_LOCK_OK;
}

UMSH_DEVICE void umsh_unlock_peterson_(umsh_u32 *lock) {
    umsh_fence();
    umsh_release(&lock[UMSH_LOCK_GPU_WANTS], 0);
    umsh_unlock_side_(lock);
}

// ---- delegated ---------------------------------------------------------------------------------

// The GPU asks by an odd number and waits for its grant; a CPU thread in umsh_delegate_serve takes the
// CPU's lock on its behalf. Giving up makes the number even, which also returns a grant that crossed it.
UMSH_DEVICE int umsh_lock_delegated_(umsh_u32 *lock, umsh_u32 tag, umsh_bound *b) {
    int r = umsh_lock_side_(lock, tag, b);
    if (r != UMSH_LOCK_OK) return r;
    umsh_u32 asked = umsh_load_relaxed(&lock[UMSH_LOCK_GPU_WANTS]) + 1;
    umsh_release(&lock[UMSH_LOCK_GPU_WANTS], asked);
    while (umsh_acquire(&lock[UMSH_LOCK_GRANT]) != asked) {
        if (!umsh_bound_step(b)) continue;
        umsh_release(&lock[UMSH_LOCK_GPU_WANTS], asked + 1);
        umsh_unlock_side_(lock);
        return UMSH_LOCK_TIMEOUT;
    }
    umsh_release(&lock[UMSH_LOCK_HOLDER], tag);
    return UMSH_LOCK_OK;
}

UMSH_DEVICE void umsh_unlock_delegated_(umsh_u32 *lock) {
    umsh_release(&lock[UMSH_LOCK_GPU_WANTS], umsh_load_relaxed(&lock[UMSH_LOCK_GPU_WANTS]) + 1);
    umsh_unlock_side_(lock);
}
