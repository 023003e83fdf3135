/* region.h: fills umsh.h's description of a region, for Python to hand to native code. */
#ifndef UMSH_REGION_H
#define UMSH_REGION_H
#include "umsh.h"

/* cdef begin */
void umsh_region_describe(struct umsh_region *out, uintptr_t cpu, uint64_t device, size_t nbytes,
                          int write_method, int read_method);
/* cdef end */

#endif
