/* atomics.c: atomic operations on addresses; read-modify-writes and the fence are sequentially consistent. */
#include "atomics.h"

#define ATOMICS(type, suffix)                                                                                \
    type umsh_load_acquire##suffix(uintptr_t p) { return __atomic_load_n((type *)p, __ATOMIC_ACQUIRE); }     \
    void umsh_store_release##suffix(uintptr_t p, type v) {                                                   \
        __atomic_store_n((type *)p, v, __ATOMIC_RELEASE);                                                    \
    }                                                                                                        \
    type umsh_exchange##suffix(uintptr_t p, type v) {                                                        \
        return __atomic_exchange_n((type *)p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                                        \
    type umsh_compare_exchange##suffix(uintptr_t p, type expected, type desired) {                           \
        __atomic_compare_exchange_n((type *)p, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
        return expected; /* the value that was there, whether or not it was replaced */                      \
    }                                                                                                        \
    type umsh_fetch_add##suffix(uintptr_t p, type v) {                                                       \
        return __atomic_fetch_add((type *)p, v, __ATOMIC_SEQ_CST);                                           \
    }

ATOMICS(uint32_t, )
ATOMICS(uint64_t, 64)

void umsh_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
