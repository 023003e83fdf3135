/* control.c: flags and locks of umsh.h on addresses; a tag of 0 stands for the calling thread. */
#include "control.h"

#include <pthread.h>

static __thread uint32_t own_tag; /* gettid costs more than an uncontended lock */

static void forget_tag(void) { own_tag = 0; }

__attribute__((constructor)) static void watch_fork(void) { pthread_atfork(NULL, NULL, forget_tag); }

uint32_t umsh_own_tag(void) {
    if (own_tag == 0) own_tag = umsh_thread_tag();
    return own_tag;
}

int umsh_flag_wait(uintptr_t flag, uint32_t value, int64_t timeout_ns) {
    return umsh_wait((const uint32_t *)flag, value, timeout_ns);
}

void umsh_flag_set(uintptr_t flag, uint32_t value) { umsh_set((uint32_t *)flag, value); }

int umsh_lock_acquire(uintptr_t lock, int algorithm, uint32_t tag, int64_t timeout_ns) {
    return umsh_lock((uint32_t *)lock, algorithm, tag ? tag : umsh_own_tag(), timeout_ns);
}

int umsh_lock_release(uintptr_t lock, int algorithm, uint32_t tag) {
    return umsh_unlock((uint32_t *)lock, algorithm, tag ? tag : umsh_own_tag());
}
