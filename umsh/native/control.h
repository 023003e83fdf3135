/* control.h: flags and locks of umsh.h on addresses, for Python. */
#ifndef UMSH_CONTROL_H
#define UMSH_CONTROL_H
#include "umsh.h"

/* cdef begin */
int umsh_flag_wait(uintptr_t flag, uint32_t value, int64_t timeout_ns);
void umsh_flag_set(uintptr_t flag, uint32_t value);
int umsh_lock_acquire(uintptr_t lock, int algorithm, uint32_t tag, int64_t timeout_ns);
int umsh_lock_release(uintptr_t lock, int algorithm, uint32_t tag);
uint32_t umsh_own_tag(void);
/* cdef end */

#endif
