/* delegate.h: the CPU thread that takes delegated locks for the GPU. */
#ifndef UMSH_DELEGATE_H
#define UMSH_DELEGATE_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
int64_t umsh_delegate_serve(uintptr_t locks, size_t count, size_t stride, uintptr_t stop, int64_t timeout_ns);
/* cdef end */

#endif
